package testbed

import (
	"strings"
	"testing"

	"kvladder/arms/testbed/model"
	"kvladder/arms/testbed/sched"
)

// TestFaultsSleep runs faults under the one condition that each needs to be
// absent: no bit may differ, whatever else is reused. This is what lets a ladder
// tell them apart.
func TestFaultsSleep(t *testing.T) {
	g := model.Geometry{}.Filled()
	connected := Config{Connector: true}
	late := func(l *lab, g model.Geometry) {
		for i := range 4 {
			l.ask("late", request(scene(g, 9+uint64(i), 4).tag(1)))
		}
	}
	alone := func(l *lab, g model.Geometry) {
		p := request(scene(g, 20, 3).tag(1))
		l.ask("cold", p)
		l.resetLocal()
		l.external("warm", l.ask("warm", p), 3*g.Every)
	}
	repeat := func(l *lab, g model.Geometry) {
		p := request(scene(g, 12, 4).tag(3))
		l.ask("first", p)
		l.ask("repeat", p)
	}
	for _, c := range []struct {
		fault, when string
		cfg         Config
		run         func(*lab, model.Geometry)
	}{
		{"F01", "without a connector", Config{}, repeat},
		{"F02", "in bf16", connected, warm},
		{"F02b", "in bf16", connected, warm},
		{"F03", "with one source", connected, warm},
		{"F04", "while the store keeps what it has", connected, func(l *lab, g model.Geometry) {
			warm(l, g)
			partial(l, g)
		}},
		{"F05", "for the request itself", connected, warm},
		{"F06", "without a local hit", connected, warm},
		{"F06", "at a local hit of one boundary", connected, func(l *lab, g model.Geometry) {
			p := scene(g, 3, 4)
			l.ask("cold", request(p.tag(2)))
			l.resetLocal()
			l.ask("prime", request(p.tokens[:g.Every+2]))
			l.external("partial", l.ask("partial", request(p.tag(2))), 3*g.Every)
		}},
		{"F07", "without a local hit", connected, warm},
		{"F08-strict", "below the pool", connected, warm},
		{"F08-lenient", "below the pool", connected, warm},
		{"F09", "in bf16", Config{NoPrefixCaching: true, Blocks: 30}, late},
		{"F10", "when chunks end at boundaries", Config{PrefillBudget: g.Every}, repeat},
		{"F13", "while nothing changes", connected, warm},
		{"F14a", "on one rank", Config{Connector: true, SharedStore: true, Ranks: 2}, warm},
		{"F14b", "while every rank has its share", Config{Connector: true, TensorParallel: 2}, warm},
		{"F15", "at concurrency 1", Config{Connector: true, StoreSteps: 2}, alone},
		{"F16", "without aborts", Config{Connector: true, LoadSteps: 5}, alone},
		{"F17", "in a large pool", Config{}, func(l *lab, g model.Geometry) {
			back, fresh := request(scene(g, 33, 4).tag(1)), request(scene(g, 34, 4).tag(1))
			l.ask("first", back)
			l.together("returning", []sched.Request{request(scene(g, 35, 8).tokens), fresh, back})
		}},
		{"F18", "while no load fails", connected, warm},
		{"F19", "without drafts", connected, warm},
		{"F20", "without drafts", connected, func(l *lab, g model.Geometry) {
			var rs []sched.Request
			for i := range 5 {
				r := request(scene(g, 40+uint64(i), 2).tag(1))
				r.IgnoreEOS, r.MaxTokens = true, 5*(1+i)
				rs = append(rs, r)
			}
			l.together("batch", rs)
		}},
	} {
		c.cfg.Faults = []string{c.fault}
		l := newLab(t, c.cfg)
		c.run(l, g)
		if len(l.what) > 0 {
			t.Errorf("%s %s: %s", c.fault, c.when, strings.Join(l.what, "; "))
		}
	}
}
