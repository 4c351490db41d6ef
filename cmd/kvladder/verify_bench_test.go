package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/receipts"
)

// BenchmarkVerifyRows verifies a run folder of many rows: hashes, decodes and scores all of
// them, and reports rows a second and the peak of resident memory. The rows are those of a
// real climb of twelve requests, asked under more names:
//
//	KVLADDER_BENCH_ROWS=200000 go test ./cmd/kvladder -run '^$' -bench VerifyRows -benchtime 1x
func BenchmarkVerifyRows(b *testing.B) {
	rows := 3200
	if s := os.Getenv("KVLADDER_BENCH_ROWS"); s != "" {
		var err error
		if rows, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	dir, n := folderOfRows(b, rows)
	peak := 0.0
	start := time.Now()
	done := 0
	for b.Loop() {
		code, out, errs, mib := measured(b, "verify", dir)
		if code != 0 {
			b.Fatalf("exit %d\n%s%s", code, out, errs)
		}
		peak, done = max(peak, mib), done+n
	}
	b.ReportMetric(float64(done)/time.Since(start).Seconds(), "rows/s")
	b.ReportMetric(peak, "peak-MiB")
}

// folderOfRows makes a sealed run folder of about that many replies, and says how many.
func folderOfRows(tb testing.TB, rows int) (string, int) {
	tb.Helper()
	ladders, err := filepath.Abs("../../arms/ladders")
	if err != nil {
		tb.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(ladders, "sub-block.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	small := filepath.Join(tb.TempDir(), "small")
	if code, _, errs, _ := measured(tb, "run", "--out", small, filepath.Join(ladders, "sub-block.yaml")); code != 2 {
		tb.Fatal(errs)
	}
	seen := map[string]*probes.Reply{} // the first reply to each prompt
	recs, err := probes.ReadAll(filepath.Join(small, receipts.TranscriptFile))
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range recs {
		if r.Kind == probes.KindReply && seen[r.Reply.Prompt] == nil {
			seen[r.Reply.Prompt] = r.Reply
		}
	}
	set, err := prompts.Open(filepath.Join(small, receipts.SetDir, "sub-block-12.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	var ps []prompts.Prompt
	from := map[string]string{}
	for i := range max(1, rows/16) {
		p := set.Prompts[i%len(set.Prompts)]
		from[fmt.Sprintf("q%06d", i)] = p.ID
		p.ID = fmt.Sprintf("q%06d", i)
		ps = append(ps, p)
	}
	h := set.Header
	h.Name = "many"
	many, err := prompts.Freeze(h, ps)
	if err != nil {
		tb.Fatal(err)
	}
	if err := many.Write(filepath.Join(dir, "many.jsonl")); err != nil {
		tb.Fatal(err)
	}
	ladder := filepath.Join(dir, "many.yaml")
	if err := os.WriteFile(ladder, []byte(strings.Replace(string(text), "../../prompts/sets/sub-block-12.jsonl", "many.jsonl", 1)), 0o644); err != nil {
		tb.Fatal(err)
	}
	r, err := resolve(ladder)
	if err != nil {
		tb.Fatal(err)
	}
	return sealRows(tb, filepath.Join(dir, "run"), r, from, seen)
}

// sealRows writes what a climb would have written, without a server.
func sealRows(tb testing.TB, run string, r *resolved, from map[string]string, seen map[string]*probes.Reply) (string, int) {
	tb.Helper()
	check := func(err error) {
		if err != nil {
			tb.Helper()
			tb.Fatal(err)
		}
	}
	check(os.MkdirAll(filepath.Join(run, receipts.SetDir), 0o755))
	d, pb, err := r.plan.Digest()
	check(err)
	check(os.WriteFile(filepath.Join(run, receipts.PlanFile), pb, 0o644))
	check(r.set.Write(filepath.Join(run, receipts.SetDir, r.set.Name+".jsonl")))
	enter := func(kind string, o receipts.LedgerObject) {
		o.Plan = d
		_, err := receipts.AppendLedger(filepath.Join(run, receipts.LedgerFile), kind, o)
		check(err)
	}
	enter(receipts.LedgerPrereg, receipts.LedgerObject{Set: r.set.Digest})
	w, err := probes.OpenWriter(filepath.Join(run, receipts.TranscriptFile))
	check(err)
	fact := func(chain, arm, name, value string) {
		check(w.Append(probes.Record{Kind: probes.KindFact, Chain: chain, Arm: arm, Fact: &probes.Fact{Name: name, Value: []byte(value)}}))
	}
	fact("", "", probes.FactPlan, fmt.Sprintf(`{"plan":%q,"set":%q,"tool":"test"}`, d, r.set.Digest))
	id, n := checker().RequestID, 0
	for _, ch := range r.plan.Chains {
		fact(ch.Name, "", probes.FactAttempt, fmt.Sprintf(`{"chain":%q,"run":0}`, ch.Name))
		for _, arm := range r.plan.Design.Arms {
			if arm.Chain != ch.Name {
				continue
			}
			enter(receipts.LedgerArmStart, receipts.LedgerObject{Chain: ch.Name, Arm: arm.Name})
			fact(ch.Name, arm.Name, probes.FactArmStart, "{}")
			for pass := 1; pass <= max(1, arm.Passes); pass++ {
				for _, p := range r.set.Prompts {
					reply := *seen[from[p.ID]]
					reply.Prompt, reply.Pass = p.ID, pass
					rec := probes.Record{Kind: probes.KindReply, Chain: ch.Name, Arm: arm.Name, Reply: &reply}
					reply.RequestID = id(d, &rec)
					check(w.Append(rec))
					n++
				}
			}
			fact(ch.Name, arm.Name, probes.FactArmEnd, "{}")
		}
		fact(ch.Name, "", probes.FactChainEnd, "{}")
	}
	check(w.Close())
	recs, err := probes.ReadAll(filepath.Join(run, receipts.TranscriptFile))
	check(err)
	res, err := assess(r.plan, r.set, recs)
	check(err)
	_, err = receipts.Seal(run, *r.plan, res, receipts.Options{Assess: reassess})
	check(err)
	return run, n
}
