package verdict

import (
	"testing"

	"github.com/whylate/whylate/report"
)

// TestWithoutCPU: time in which threads waited for a CPU is not called computing, and what samples saw on one is.
func TestWithoutCPU(t *testing.T) {
	host := func(cpu, waited int64) *report.Host {
		busy := int64(1e9)
		return &report.Host{Lost: report.Lost{BusyNS: &busy, CPUNS: &cpu, RunDelayNS: &waited}}
	}
	for _, c := range []struct {
		name    string
		host    *report.Host
		ns      int64
		samples int
		want    string
	}{
		{"no host samples", nil, 1e9, 10, "computing"},
		{"threads found a CPU", host(9e8, 1e8), 1e9, 0, "computing"},
		{"threads waited for one", host(4e8, 6e8), 1e9, 0, "running, with a CPU for at most 40% of it"},
		{"threads that were woken waited, and running ones had a CPU", host(11e8, 15e8), 1e9, 0, "computing"},
		{"they waited less than is missing", host(4e8, 3e8), 1e9, 0, "running, with a CPU for at most 70% of it"},
		{"these requests less than others", host(4e8, 6e8), 1e9, 10, "running, with a CPU for 10% of it"},
		{"others than these", host(4e8, 6e8), 1e9, 95, "computing"},
		{"too little for samples", host(4e8, 6e8), 1e8, 1, "running, with a CPU for at most 40% of it"},
	} {
		band := report.Band{Band: report.BandAll, Count: 20, Causes: []report.Cause{{Cause: report.CauseCPU, Site: &report.Site{Func: "main.f"}, TotalNS: c.ns, Share: 1, Samples: c.samples}}}
		r := &report.Report{Host: c.host, Groups: []report.Group{{ID: "g", Count: 20, TotalNS: c.ns, Bands: []report.Band{band}}}}
		if got := Of(r)[0].Causes[0].Words; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
