package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Types of GGUF values and of tensors (ggml/include/gguf.h, ggml.h).
const (
	typeUint32  = 4
	typeFloat32 = 6
	typeBool    = 7
	typeString  = 8
	typeArray   = 9
	typeInt32   = 5

	tensorF32 = 0
)

// align is what the data of every tensor begins at a multiple of, unless the file says
// otherwise.
const align = 32

// gguf is a file in the making: what it states of the model, and its tensors.
type gguf struct {
	names  []string // of the values, in order
	values []any    // uint32, float32, bool, string, []string, []float32, []int32

	tensors []tensor
}

// tensor holds its dimensions as ggml counts them: the first is the one that runs fastest.
type tensor struct {
	name string
	dims []int
	data []float32
}

func (g *gguf) set(name string, v any) {
	g.names = append(g.names, name)
	g.values = append(g.values, v)
}

func (g *gguf) add(name string, data []float32, dims ...int) {
	g.tensors = append(g.tensors, tensor{name, dims, data})
}

// write writes version 3 of the format (docs/gguf.md of ggml): the values, the list of
// tensors with offsets, and their data, all little-endian.
func (g *gguf) write(to io.Writer) error {
	w := &counting{to: bufio.NewWriterSize(to, 1<<20)}
	w.raw([]byte("GGUF"))
	w.u32(3)
	w.u64(uint64(len(g.tensors)))
	w.u64(uint64(len(g.values)))
	for i, name := range g.names {
		w.str(name)
		if err := w.value(g.values[i]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	at := 0
	for _, t := range g.tensors {
		n := 1
		w.str(t.name)
		w.u32(uint32(len(t.dims)))
		for _, d := range t.dims {
			w.u64(uint64(d))
			n *= d
		}
		if n != len(t.data) {
			return fmt.Errorf("tensor %s: %d values for dimensions %v", t.name, len(t.data), t.dims)
		}
		w.u32(tensorF32)
		w.u64(uint64(at))
		at = padded(at + 4*n)
	}
	w.pad()
	for _, t := range g.tensors {
		binary.Write(w, binary.LittleEndian, t.data)
		w.pad()
	}
	if w.err != nil {
		return w.err
	}
	return w.to.Flush()
}

func padded(n int) int { return (n + align - 1) / align * align }

// counting keeps the first error and counts, so that a caller checks once.
type counting struct {
	to  *bufio.Writer
	n   int
	err error
}

func (w *counting) Write(b []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.to.Write(b)
	w.n += n
	w.err = err
	return n, err
}

func (w *counting) raw(b []byte) { w.Write(b) }
func (w *counting) u32(v uint32) { binary.Write(w, binary.LittleEndian, v) }
func (w *counting) u64(v uint64) { binary.Write(w, binary.LittleEndian, v) }
func (w *counting) pad()         { w.raw(make([]byte, padded(w.n)-w.n)) }

func (w *counting) str(s string) {
	w.u64(uint64(len(s)))
	w.raw([]byte(s))
}

func (w *counting) value(v any) error {
	list := func(kind uint32, n int) {
		w.u32(typeArray)
		w.u32(kind)
		w.u64(uint64(n))
	}
	switch v := v.(type) {
	case uint32:
		w.u32(typeUint32)
		w.u32(v)
	case float32:
		w.u32(typeFloat32)
		binary.Write(w, binary.LittleEndian, v)
	case bool:
		w.u32(typeBool)
		binary.Write(w, binary.LittleEndian, v)
	case string:
		w.u32(typeString)
		w.str(v)
	case []string:
		list(typeString, len(v))
		for _, s := range v {
			w.str(s)
		}
	case []float32:
		list(typeFloat32, len(v))
		binary.Write(w, binary.LittleEndian, v)
	case []int32:
		list(typeInt32, len(v))
		binary.Write(w, binary.LittleEndian, v)
	default:
		return fmt.Errorf("no GGUF type for %T", v)
	}
	return w.err
}
