package verdict

import (
	"math"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestSplitOffCPU checks that running time without a CPU is not reported as computing but as another cause, that CPU
// samples of the band override the process's CPU time, and that no time is counted twice or lost.
func TestSplitOffCPU(t *testing.T) {
	host := func(cpu, waited int64) *report.Host {
		busy := int64(1e9)
		return &report.Host{Lost: report.Lost{BusyNS: &busy, CPUNS: &cpu, RunDelayNS: &waited}}
	}
	for _, c := range []struct {
		name    string
		host    *report.Host
		ns      int64
		samples int
		on      float64
		words   string
	}{
		{"no host samples", nil, 1e9, 10, 1, "computing"},
		{"threads found a CPU", host(95e7, 5e7), 1e9, 0, 1, "computing"},
		{"threads waited for an eighth", host(875e6, 125e6), 1e9, 0, 0.875, "computing (at most: some of it perhaps without a CPU)"},
		{"too small a share for samples", host(875e6, 125e6), 1e9, 30, 0.875, "computing (at most: some of it perhaps without a CPU)"},
		{"threads waited for one", host(4e8, 6e8), 1e9, 0, 0.4, "computing (at most: some of it perhaps without a CPU)"},
		{"threads waited after being woken, but running ones had a CPU", host(11e8, 15e8), 1e9, 0, 1, "computing"},
		{"threads waited for less than the missing time", host(4e8, 3e8), 1e9, 0, 0.7, "computing (at most: some of it perhaps without a CPU)"},
		{"these requests had less CPU than others", host(4e8, 6e8), 1e9, 10, 0.1, "computing"},
		{"only other requests had no CPU", host(4e8, 6e8), 1e9, 95, 1, "computing"},
		{"too little running time for samples", host(4e8, 6e8), 1e8, 1, 0.4, "computing (at most: some of it perhaps without a CPU)"},
	} {
		band := report.Band{Band: report.BandAll, Count: 20, Causes: []report.Cause{{Cause: report.CauseCPU, Site: &report.Site{Func: "main.f"}, TotalNS: c.ns, Share: 1, Samples: c.samples}}}
		r := &report.Report{Host: c.host, Groups: []report.Group{{ID: "g", Count: 20, TotalNS: c.ns, Bands: []report.Band{band}}}}
		var on, off report.VerdictCause
		share, total := 0.0, int64(0)
		for _, v := range Verdicts(r)[0].Causes {
			share, total = share+v.Share, total+v.TotalNS
			if v.Cause == report.CauseCPU {
				on = v
			} else if v.Cause == report.CauseSched && v.Kind == NoCPU {
				off = v
			}
		}
		check.True(t, math.Abs(share-1) <= 1e-9 && total == c.ns, "%s: the causes add up to %v, %d ns", c.name, share, total)
		if on.Words != c.words || math.Abs(on.Share-c.on) > 1e-9 || math.Abs(off.Share-(1-c.on)) > 1e-9 || len(on.Sites) != 1 || math.Abs(on.Sites[0].Share-c.on) > 1e-9 {
			t.Errorf("%s: %q %v, without a CPU %v; want %q, %v", c.name, on.Words, on.Share, off.Share, c.words, c.on)
		}
	}
}

// TestSplitAssistOffCPU checks that GC assists lose the share of time without a CPU, and that the CPU samples of
// computing change only the share of computing.
func TestSplitAssistOffCPU(t *testing.T) {
	busy, cpu, waited := int64(1e9), int64(4e8), int64(6e8)
	band := report.Band{Band: report.BandAll, Count: 20, Causes: []report.Cause{
		{Cause: report.CauseCPU, Site: &report.Site{Func: "main.f"}, TotalNS: 5e8, Share: 0.5, Samples: 30},
		{Cause: report.CauseGCAssist, Site: &report.Site{Func: "main.f"}, TotalNS: 5e8, Share: 0.5},
	}}
	r := &report.Report{Host: &report.Host{Lost: report.Lost{BusyNS: &busy, CPUNS: &cpu, RunDelayNS: &waited}}, Groups: []report.Group{{ID: "g", Count: 20, TotalNS: 1e9, Bands: []report.Band{band}}}}
	want := map[string]float64{"computing": 0.3, "helping the garbage collector (at most)": 0.2, "shown as running, but without a CPU": 0.5}
	bare := *r
	bare.Host, bare.Runtime.Sched.WithoutCPU = nil, 0.6 // a trace alone, by its CPU samples
	for _, r := range []*report.Report{r, &bare} {
		got := map[string]float64{}
		for _, v := range Verdicts(r)[0].Causes {
			got[v.Words] = v.Share
		}
		for words, share := range want {
			check.True(t, math.Abs(got[words]-share) <= 1e-9 && len(got) == len(want),
				"host samples %v: %s: %v of the time, want %v; %v", r.Host != nil, words, got[words], share, got)
		}
	}
}
