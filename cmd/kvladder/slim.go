package main

import (
	"reflect"

	"kvladder/probes"
)

// slimmer takes out of records what scoring does not read, and keeps one copy of what many
// of them say: names of counters, texts of tokens, and whole replies that are equal token by
// token, as most are between two arms. What a verifier holds of a transcript is then far
// less than the transcript, and grows with the replies that differ.
type slimmer struct {
	texts   map[string]string
	replies map[string][]probes.Decoded // by prompt and text
}

func newSlimmer() *slimmer {
	return &slimmer{texts: map[string]string{}, replies: map[string][]probes.Decoded{}}
}

const (
	longestShared = 64 // bytes of a text that is worth one copy
	mostShared    = 1 << 18
	mostVariants  = 8 // of one reply
)

func (s *slimmer) share(t *string) {
	if len(*t) > longestShared {
		return
	}
	have, ok := s.texts[*t]
	if !ok {
		if len(s.texts) >= mostShared {
			return
		}
		have = *t
		s.texts[have] = have
	}
	*t = have
}

// record makes r small in place.
func (s *slimmer) record(r *probes.Record) {
	r.Prev = ""
	for _, t := range []*string{&r.Attempt, &r.Chain, &r.Arm, &r.Incarnation} {
		s.share(t)
	}
	switch {
	case r.Sample != nil:
		r.Sample.Raw = ""
		for i := range r.Sample.Values {
			v := &r.Sample.Values[i]
			s.share(&v.Role)
			s.share(&v.Series)
			s.share(&v.Rank)
		}
	case r.Reply != nil:
		r.Time = ""
		s.reply(r.Reply)
	}
}

func (s *slimmer) reply(p *probes.Reply) {
	p.Sent, p.Received = "", ""
	if p.Trace() == nil { // whether a reply is the one that was asked for is scored
		p.SentBody = ""
	}
	// The words of a server that failed are read: it may complain of its own numbers.
	if p.Status < 500 {
		p.Raw = ""
	}
	for _, t := range []*string{&p.Prompt, &p.Path, &p.Client, &p.ErrorKind} {
		s.share(t)
	}
	for i := range p.Counters {
		c := &p.Counters[i]
		s.share(&c.Role)
		s.share(&c.Series)
		s.share(&c.Rank)
	}
	key := p.Prompt + "\x00" + p.Text
	for _, d := range s.replies[key] {
		if reflect.DeepEqual(d, p.Decoded) {
			p.Decoded = d
			return
		}
	}
	s.share(&p.Model)
	s.share(&p.Finish)
	for i := range p.Tokens {
		t := &p.Tokens[i]
		s.share(&t.Text)
		for k := range t.Top {
			s.share(&t.Top[k].Text)
		}
	}
	if len(s.replies[key]) < mostVariants {
		s.replies[key] = append(s.replies[key], p.Decoded)
	}
}
