package compare

import (
	"math"
	"slices"
	"testing"

	"github.com/whylate/whylate/report"
)

// TestCallersOfRows: a line of a dependency has a row for each function of the service that called it, if both reports have
// callers. It detects one caller's gain shown as another's loss.
func TestCallersOfRows(t *testing.T) {
	row := func(ns int64, from string) report.Cause {
		c := report.Cause{Cause: report.CauseNetwork, Site: &report.Site{Func: "dep.org/x.Do", File: "x.go", Line: 7}, TotalNS: ns, Requests: 1}
		if from != "" {
			c.Site.CalledFrom = &report.Caller{Func: from, File: "s.go", Line: 1}
		}
		return c
	}
	band := func(rows ...report.Cause) *report.Band { return &report.Band{Count: 1, Causes: rows} }
	if rows := compareRows(band(row(10, "load"), row(90, "save")), band(row(90, "load"), row(10, "save"))); len(rows) != 2 || rows[0].OldNS+rows[0].NewNS != 100 {
		t.Errorf("two callers: %+v", rows)
	}
	if rows := compareRows(band(row(90, "")), band(row(90, "load"))); len(rows) != 1 || rows[0].DeltaNS != 0 {
		t.Errorf("a report that does not say who called: %+v", rows)
	}
}

// TestResampledCauses checks resamples of blocks with equal counts: a cause with equal times in all blocks does not vary, one
// in a single block is drawn as often as this block, and one that varies does so around its mean.
func TestResampledCauses(t *testing.T) {
	const n, count = 24, 10
	g := report.Group{}
	for i := range n {
		b := report.Block{StartNS: int64(i) * 250e6, Count: count, TotalNS: count * 1000, Histogram: [][2]int64{{1024, count}},
			Causes: map[report.CauseName]int64{report.CauseCPU: count * 700, report.CauseLock: int64(i) * 100}}
		if i == 3 {
			b.Causes[report.CauseSleep] = 5000
		}
		g.Blocks = append(g.Blocks, b, report.Block{StartNS: b.StartNS + 1}) // one without a request is none
	}
	s := resample(&g)
	if s == nil || s.draws != n/3 || len(s.causes) != 3 {
		t.Fatalf("%+v", s)
	}
	average := func(v []float64) (m float64) {
		for _, x := range v {
			m += x / float64(len(v))
		}
		return m
	}
	for k := range resamples {
		if c := s.causes[report.CauseCPU][k]; math.Abs(c-1) > 1e-9 || s.latency[0][k] != 0 || s.latency[1][k] != 0 {
			t.Fatalf("resample %d: %v of what is the same everywhere, latency %v and %v", k, c, s.latency[0][k], s.latency[1][k])
		}
		if c := s.causes[report.CauseSleep][k]; math.Abs(c-math.Round(c)) > 1e-9 || c < 0 || c > n {
			t.Fatalf("resample %d: %v times what stands in one block", k, c)
		}
	}
	for c, off := range map[report.CauseName]float64{report.CauseSleep: 0.15, report.CauseLock: 0.03} {
		if m := average(s.causes[c]); math.Abs(m-1) > off {
			t.Errorf("%s is %v of what it is, on average", c, m)
		}
	}
	if low, high := slices.Min(s.causes[report.CauseSleep]), slices.Max(s.causes[report.CauseSleep]); low != 0 || high < 2 {
		t.Errorf("one block is taken %v to %v times", low, high)
	}
	if g.Blocks = g.Blocks[:2*minBlocks-1]; resample(&g) == nil {
		t.Errorf("%d blocks are too few", minBlocks)
	}
	if g.Blocks = g.Blocks[:2*minBlocks-2]; resample(&g) != nil {
		t.Errorf("%d blocks are enough", minBlocks-1)
	}
}

// TestRowDeviations: a row that every request has varies as its cause does, a row of a single request varies additionally by
// its own size, and a missing row does not vary.
func TestRowDeviations(t *testing.T) {
	s := &resampledStats{seed: 1, causes: map[report.CauseName][]float64{report.CauseCPU: make([]float64, resamples), report.CauseSleep: make([]float64, resamples)}}
	for k := range resamples {
		s.causes[report.CauseCPU][k], s.causes[report.CauseSleep][k] = 1+float64(k%3-1)/10, 1
	}
	site := &report.Site{Func: "f", File: "f.go", Line: 1}
	band := &report.Band{Count: 100, Causes: []report.Cause{{Cause: report.CauseCPU, Site: site, Requests: 100}, {Cause: report.CauseSleep, Site: site, Requests: 1}}}
	all := s.rowDeviations(&Row{Cause: report.CauseCPU}, site, 1000, band)
	for k, v := range all {
		if want := float64(k%3-1) * 100; math.Abs(v-want) > 1e-6 {
			t.Fatalf("resample %d of what all requests meet: %v, want %v", k, v, want)
		}
	}
	var square float64
	one := s.rowDeviations(&Row{Cause: report.CauseSleep}, site, 1000, band)
	for _, v := range one {
		square += v * v / resamples
	}
	if d := math.Sqrt(square); d < 900 || d > 1100 {
		t.Errorf("what one request of 100 meets deviates by %v of 1000", d)
	}
	if slices.ContainsFunc(s.rowDeviations(&Row{Cause: report.CauseSleep}, site, 0, band), func(v float64) bool { return v != 0 }) {
		t.Error("a row without time deviates")
	}
	if missing := s.rowDeviations(&Row{Cause: report.CauseSleep}, &report.Site{Func: "f", File: "f.go", Line: 2}, 1000, band); slices.Equal(one, missing) {
		t.Error("two lines deviate together")
	}
}
