package main

import (
	"io"
	"sync"
)

// output is standard output that remembers the first write that failed: a report that is cut
// off by a full disk must not end like a whole one.
type output struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

func (o *output) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
