package verdict

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestDemoteScatteredCPU checks that a wait at one site comes before computing that is scattered over many sites
// without samples, and that computing with samples, or with one large site, stays before a smaller wait.
func TestDemoteScatteredCPU(t *testing.T) {
	computing := func(share float64, inferred bool, places ...float64) report.VerdictCause {
		c := report.VerdictCause{Cause: report.CauseCPU, Share: share, TotalNS: int64(share * 1e9)}
		for i, p := range places {
			c.Sites = append(c.Sites, report.VerdictSite{Site: &report.Site{Func: "x.f", Line: i + 1}, Share: p, TotalNS: int64(p * 1e9), Inferred: inferred})
		}
		return c
	}
	wait := func(cause report.CauseName, share, place float64) report.VerdictCause {
		return report.VerdictCause{Cause: cause, Share: share, TotalNS: int64(share * 1e9), Sites: []report.VerdictSite{{Site: &report.Site{Func: "x.wait", Line: 7}, Share: place, TotalNS: int64(place * 1e9)}}}
	}
	for _, c := range []struct {
		name   string
		causes []report.VerdictCause
		first  report.CauseName
	}{
		{"a wait at one site, and computing at many sites without samples", []report.VerdictCause{computing(0.46, true, 0.13, 0.09, 0.08), wait(report.CauseSyscall, 0.3, 0.3)}, report.CauseSyscall},
		{"the wait comes third", []report.VerdictCause{computing(0.46, true, 0.13, 0.09, 0.08), wait(report.CauseSched, 0.28, 0.28), wait(report.CauseSleep, 0.26, 0.26)}, report.CauseSleep},
		{"computing has samples", []report.VerdictCause{computing(0.46, false, 0.13, 0.09, 0.08), wait(report.CauseSyscall, 0.3, 0.3)}, report.CauseCPU},
		{"computing has one large site", []report.VerdictCause{computing(0.46, true, 0.3, 0.09), wait(report.CauseSyscall, 0.35, 0.35)}, report.CauseCPU},
		{"the wait is far shorter than computing", []report.VerdictCause{computing(0.7, true, 0.08, 0.07, 0.06), wait(report.CauseSyscall, 0.2, 0.2)}, report.CauseCPU},
		{"the wait is scattered, too", []report.VerdictCause{computing(0.46, true, 0.13, 0.09, 0.08), wait(report.CauseNetwork, 0.4, 0.1)}, report.CauseCPU},
		{"the site of the wait is not twice as large as the first site of computing", []report.VerdictCause{computing(0.46, true, 0.13, 0.09, 0.08), wait(report.CauseNetwork, 0.4, 0.2)}, report.CauseCPU},
		{"waiting for a CPU is the machine's", []report.VerdictCause{computing(0.46, true, 0.13, 0.09, 0.08), wait(report.CauseSched, 0.4, 0.4)}, report.CauseCPU},
		{"the wait takes most time", []report.VerdictCause{wait(report.CauseSyscall, 0.5, 0.5), computing(0.4, true, 0.1, 0.09)}, report.CauseSyscall},
	} {
		total := 0.0
		out := demoteScatteredCPU(c.causes)
		for i := range out {
			total += out[i].Share
		}
		if want := func() (w float64) {
			for i := range c.causes {
				w += c.causes[i].Share
			}
			return w
		}(); len(out) != len(c.causes) || total < want-1e-9 || total > want+1e-9 {
			t.Errorf("%s: %d causes of %v became %d of %v", c.name, len(c.causes), want, len(out), total)
		}
		check.True(t, out[0].Cause == c.first, "%s: %s comes first, want %s", c.name, out[0].Cause, c.first)
	}
}
