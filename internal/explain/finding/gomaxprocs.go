package finding

import (
	"cmp"
	"fmt"
	"math"

	"github.com/whylate/whylate/report"
)

// hiddenFile replaces the file name of a control group in a redacted recording, which does not contain it.
const hiddenFile = "the control group"

// checkGOMAXPROCSAndLimit is WL4002, gomaxprocs-and-limit.
func checkGOMAXPROCSAndLimit(in *Input) []Verdict {
	host, procs := in.Report.Host, in.Report.Input.GOMAXPROCS
	if host == nil || host.Facts.QuotaCPUs <= 0 || procs == 0 {
		return nil
	}
	limit := host.Facts.QuotaCPUs
	f := report.Finding{Confidence: 0.9, Evidence: []report.Evidence{
		measurement("GOMAXPROCS", procs, "Ps"),
		measurement("CPU limit, by "+cmp.Or(host.Facts.QuotaFrom, hiddenFile), limit, "CPUs"),
	}}
	if host.Facts.GOMAXPROCS != "" {
		f.Evidence = append(f.Evidence, report.Evidence{Text: "GOMAXPROCS in the process's environment: " + host.Facts.GOMAXPROCS})
	}
	// The runtime uses at least 2 Ps if the machine has 2 CPUs.
	switch maxProcs := min(max(procsForLimit(limit), 2), max(host.Facts.Parallelism, 1)); {
	case procs > maxProcs:
		f.Title = fmt.Sprintf("GOMAXPROCS is %d, but the CPU limit is %.3g CPUs", procs, limit)
		f.Fix = fmt.Sprintf("set GOMAXPROCS to %d, or import github.com/whylate/whylate/service/auto, which follows the limit", procsForLimit(limit))
		g, share, gain := mostThrottled(in.Report)
		if g == nil || !in.Report.Runtime.Throttle.Verdict.HeldBack() || usesWholeLimit(in.Report, limit) {
			return []Verdict{{Fact: true, Finding: f}}
		}
		f.Cause, f.Group, f.Share = report.CauseThrottle, g.ID, share
		return []Verdict{{Gain: gain, Finding: f}}
	case procs < int(math.Floor(limit)) && procs < host.Facts.Parallelism:
		f.Title = fmt.Sprintf("GOMAXPROCS is %d, but the CPU limit is %.3g CPUs: part of the limit cannot be used", procs, limit)
		f.Fix = "leave GOMAXPROCS to the runtime (Go 1.25 and later) or import github.com/whylate/whylate/service/auto"
		return []Verdict{{Fact: true, Finding: f}}
	}
	return nil
}

// mostThrottled returns the group that lost most time to freezes; nil if no group did.
func mostThrottled(r *report.Report) (g *report.Group, share float64, gain Gain) {
	for i := range r.Groups {
		if s, w := weigh(&r.Groups[i], isThrottle); w.TotalNS > gain.TotalNS {
			g, share, gain = &r.Groups[i], s, w
		}
	}
	return g, share, gain
}
