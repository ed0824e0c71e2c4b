package verify

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// recording returns a report of one group whose latencies are around base, with findings.
func recording(name string, base time.Duration, requests int, findings ...report.Finding) *report.Report {
	random := rand.New(rand.NewPCG(uint64(base), uint64(requests)))
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(base)
	g := report.Group{ID: "g1", Name: "main.handle", Kind: report.KindHTTP1, Count: requests}
	var all []int64
	const blocks = 40
	for b := range blocks {
		block := report.Block{StartNS: int64(b) * 250e6, DurationNS: 250e6, Causes: map[report.CauseName]int64{}}
		counts := map[int64]int64{}
		for range requests / blocks {
			ns := int64(float64(base) * (1 + 0.1*random.Float64()))
			all = append(all, ns)
			block.Count++
			block.TotalNS += ns
			width := int64(1) << (bits.Len64(uint64(ns)) - 6)
			counts[(ns/width+1)*width]++
		}
		for hi, n := range counts {
			block.Histogram = append(block.Histogram, [2]int64{hi, n})
		}
		slices.SortFunc(block.Histogram, func(a, b [2]int64) int { return int(a[0] - b[0]) })
		g.Blocks = append(g.Blocks, block)
	}
	for i := range g.Blocks {
		g.Histogram, g.TotalNS = append(g.Histogram, g.Blocks[i].Histogram...), g.TotalNS+g.Blocks[i].TotalNS
	}
	slices.Sort(all)
	quantile := func(q float64) *int64 { return &all[int(q*float64(len(all)-1))] }
	g.LatencyNS = report.Latency{Mean: quantile(0.5), P50: quantile(0.5), Max: quantile(1)}
	if requests >= 100 {
		g.LatencyNS.P99 = quantile(0.99)
	}
	g.Bands = []report.Band{{Band: report.BandAll, Count: requests, Causes: []report.Cause{
		{Cause: report.CauseSleep, Site: &report.Site{Func: "main.backoff", Line: 7}, TotalNS: int64(requests) * int64(base-9*time.Millisecond), Requests: requests},
		{Cause: report.CauseCPU, Site: &report.Site{Func: "main.handle", Line: 3}, TotalNS: int64(requests) * 9e6, Requests: requests},
	}}}
	quiet := &report.Host{Lost: report.Lost{PressureNS: new(int64)}}
	return &report.Report{Input: report.Input{Name: name, Start: &start, DurationNS: 10e9}, Host: quiet, Groups: []report.Group{g}, Findings: findings}
}

func ms(n int64) *int64 { n *= 1e6; return &n }

// finding returns a finding that predicts a change of the group's percentiles from 55 ms to a number of ms.
func finding(to int64) report.Finding {
	e := report.Estimate{Est: to * 1e6, Low: (to - 2) * 1e6, High: (to + 2) * 1e6}
	return report.Finding{
		ID: "f1", Code: "WL2001", Title: "it sleeps", Cause: report.CauseSleep, Site: &report.Site{Func: "main.backoff", Line: 7}, Group: "g1", Share: 0.8,
		Predicted: &report.Predicted{Change: "sleep@main.backoff:7=gone", P50NS: e, P99NS: e, WasP50NS: ms(52), WasP99NS: ms(55)},
	}
}

func TestReports(t *testing.T) {
	stillFound := finding(10)
	stillFound.Site = &report.Site{Func: "main.backoff", Line: 99} // lines moved
	half, little := stillFound, stillFound
	half.Share, little.Share = 0.4, 0.35 // of 0.8
	ignored := finding(10)
	ignored.Ignored = "wanted"
	removed := finding(10)
	removed.Predicted = nil
	for _, c := range []struct {
		name   string
		before *report.Report
		after  *report.Report
		want   Judgement
		metric string
	}{
		{"kept", recording("a", 50*time.Millisecond, 2000, finding(11)), recording("b", 10*time.Millisecond, 2000), PromiseKept, "p99"},
		{"better", recording("a", 50*time.Millisecond, 2000, finding(30)), recording("b", 10*time.Millisecond, 2000), AbovePromise, "p99"},
		{"short", recording("a", 50*time.Millisecond, 2000, finding(11)), recording("b", 40*time.Millisecond, 2000), BelowPromise, "p99"},
		{"slower", recording("a", 50*time.Millisecond, 2000, finding(11)), recording("b", 80*time.Millisecond, 2000), BelowPromise, "p99"},
		{"nothing promised, nothing got", recording("a", 50*time.Millisecond, 2000, finding(54)), recording("b", 50*time.Millisecond, 2001), MaybeChance, "p99"},
		{"still there", recording("a", 50*time.Millisecond, 2000, finding(11)), recording("b", 50*time.Millisecond, 2001, stillFound), ChangeMissing, "p99"},
		{"half of it still there", recording("a", 50*time.Millisecond, 2000, finding(11)), recording("b", 50*time.Millisecond, 2001, half), ChangeMissing, "p99"},
		{"little of it still there", recording("a", 50*time.Millisecond, 2000, finding(11)), recording("b", 50*time.Millisecond, 2001, little), BelowPromise, "p99"},
		{"made by half", recording("a", 50*time.Millisecond, 2000, finding(28)), recording("b", 25*time.Millisecond, 2000, stillFound), PromiseKept, "p99"},
		{"too few for a p99", recording("a", 50*time.Millisecond, 2000, finding(11)), recording("b", 10*time.Millisecond, 80), PromiseKept, "p50"},
		{"no such group", recording("a", 50*time.Millisecond, 2000, finding(11)), &report.Report{}, Unknown, "p50"},
	} {
		r := Reports(c.before, c.after)
		must.Equal(t, len(r.Verdicts), 1, "%s: %+v", c.name, r)
		v := r.Verdicts[0]
		check.True(t, v.Judgement == c.want && v.Metric == c.metric && v.Group == "main.handle" && v.ID != "",
			"%s: %s by %s: %+v", c.name, v.Judgement, v.Metric, v)
		if text := v.Text(func(ns int64) string { return fmt.Sprint(ns/1e6, "ms") }); c.name == "kept" && !strings.HasPrefix(text, "p99: promised 44ms less, measured 4") || text == "" {
			t.Errorf("%s: %q", c.name, text)
		}
	}
	if r := Reports(recording("a", 50*time.Millisecond, 2000, ignored, removed), recording("b", 10*time.Millisecond, 2000)); len(r.Verdicts) != 0 {
		t.Errorf("what promised nothing, or is ignored, has verdicts: %+v", r.Verdicts)
	}
}

// TestTooShort: recordings of a second give no intervals, so the verdict contains only the promise.
func TestTooShort(t *testing.T) {
	for name, cut := range map[string][2]int{"both": {4, 4}, "before": {4, 40}, "after": {40, 4}, "no stretch at all": {0, 0}} {
		before, after := recording("a", 50*time.Millisecond, 2000, finding(11)), recording("b", 10*time.Millisecond, 2000)
		before.Groups[0].Blocks, after.Groups[0].Blocks = before.Groups[0].Blocks[:cut[0]], after.Groups[0].Blocks[:cut[1]]
		v := Reports(before, after).Verdicts[0]
		check.True(t, v.Judgement == Unknown && v.Got != nil && *v.Got <= -30e6 && v.GotLow == nil && v.GotHigh == nil && v.Metric == "p50",
			"%s: %s by %s, got %v", name, v.Judgement, v.Metric, v.Got)
	}
}

// TestLedger: the sum of verdicts does not depend on their order or on repeated additions, and two ledgers merge by their
// lines.
func TestLedger(t *testing.T) {
	dir := t.TempDir()
	verdicts := Reports(recording("a", 50*time.Millisecond, 2000, finding(11)), recording("b", 10*time.Millisecond, 2000)).Verdicts
	short := Reports(recording("c", 50*time.Millisecond, 2000, finding(11)), recording("d", 40*time.Millisecond, 2000)).Verdicts
	unmade := Reports(recording("e", 50*time.Millisecond, 2000, finding(11)), recording("f", 50*time.Millisecond, 2001, finding(11))).Verdicts
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for _, v := range [][]Verdict{verdicts, short, unmade, verdicts} {
		must.Have(AddToLedger(one, v))(t)
	}
	for _, v := range [][]Verdict{unmade, verdicts} {
		must.Have(AddToLedger(two, v))(t)
	}
	a, _ := os.ReadFile(one)
	b, _ := os.ReadFile(two)
	if err := os.WriteFile(two, append(b, a...), 0o666); err != nil { // merge=union
		t.Fatal(err)
	}
	all, err := AddToLedger(two, nil)
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	if merged, _ := os.ReadFile(two); string(merged) != string(a) {
		t.Errorf("merged:\n%s\nwant\n%s", merged, a)
	}
	sum := SumVerdicts(all)
	if sum.Verdicts != 3 || sum.Judged != 2 || sum.Kept != 1 || sum.Short != 1 || sum.MedianError == nil || *sum.MedianError < 0.2 || *sum.MedianError > 0.6 {
		t.Errorf("%+v", sum)
	}
	must.Do(t, os.WriteFile(one, []byte("{}\n"), 0o666))
	if _, err := ReadLedger(one); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("%v", err)
	}
	if all, err := ReadLedger(filepath.Join(dir, "none")); len(all) != 0 || err != nil {
		t.Error(all, err)
	}
}

// TestBack: a finding is returned only if its latest verdict calls it fixed and it is found again.
func TestBack(t *testing.T) {
	verdict := Reports(recording("a", 50*time.Millisecond, 2000, finding(11)), recording("b", 10*time.Millisecond, 2000)).Verdicts
	back := recording("c", 50*time.Millisecond, 2000, finding(11))
	if got := ReturnedFindings(back, verdict); len(got) != 1 || got[0].ID != "f1" {
		t.Errorf("%+v", got)
	}
	if got := ReturnedFindings(back, nil); len(got) != 0 {
		t.Errorf("without a ledger: %+v", got)
	}
	laterVerdict := verdict[0]
	when := laterVerdict.When.Add(time.Hour)
	laterVerdict.ID, laterVerdict.When, laterVerdict.Judgement = "x", &when, ChangeMissing
	if got := ReturnedFindings(back, []Verdict{laterVerdict, verdict[0]}); len(got) != 0 {
		t.Errorf("after a later verdict: %+v", got)
	}
	otherFinding := finding(11)
	otherFinding.Site = &report.Site{Func: "main.other"}
	if got := ReturnedFindings(recording("c", 50*time.Millisecond, 2000, otherFinding), verdict); len(got) != 0 {
		t.Errorf("at another site: %+v", got)
	}
}

// TestNothingPromised: a prediction without the percentile before the change cannot be judged.
func TestNothingPromised(t *testing.T) {
	f := finding(7)
	f.Predicted.WasP50NS, f.Predicted.WasP99NS = nil, nil
	v := Reports(recording("before", 52*time.Millisecond, 400, f), recording("after", 7*time.Millisecond, 400)).Verdicts[0]
	if text := v.Text(func(int64) string { return "?" }); v.Judgement != Unknown || text != "too few requests to measure what was promised" {
		t.Errorf("%s: %s", v.Judgement, text)
	}
}

// TestPromiseFromArrival: a promise about latencies from the arrival of messages is compared with such latencies only, and not with
// those from when messages are taken, which are shorter in any recording.
func TestPromiseFromArrival(t *testing.T) {
	f := finding(10)
	f.Predicted.FromArrival = true
	queued := func(r *report.Report, p99 int64) *report.Report {
		r.Groups[0].Backlog = &report.Backlog{TotalNS: report.Latency{P50: ms(p99), P99: ms(p99)}}
		return r
	}
	before, at := queued(recording("a", 9*time.Millisecond, 2000, f), 55), recording("b", 9*time.Millisecond, 2000)
	for _, c := range []struct {
		name  string
		after *report.Report
		want  Judgement
		text  string
	}{
		{"arrivals are not shown", at, Unknown, "p99: promised 45ms less from a message's arrival; the second recording does not show when messages arrive, so they cannot be compared"},
		{"from arrival", queued(recording("b", 9*time.Millisecond, 2000), 12), Unknown, "p99: promised 45ms less, measured 43ms less; both from a message's arrival, and how much of that is chance is not known"},
		{"still there", queued(recording("b", 9*time.Millisecond, 2000, f), 54), ChangeMissing, "p99: promised 45ms less; the finding is still there, so this recording does not have the change"},
	} {
		v := Reports(before, c.after).Verdicts[0]
		check.Equal(t, v.Judgement, c.want, "%s", c.name)
		check.Equal(t, v.Text(func(ns int64) string { return fmt.Sprint(ns/1e6, "ms") }), c.text, "%s", c.name)
	}
}
