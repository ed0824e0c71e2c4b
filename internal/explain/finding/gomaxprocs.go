package finding

import (
	"cmp"
	"fmt"
	"math"

	"github.com/whylate/whylate/report"
)

// checkGOMAXPROCSAndLimit is WL4002, gomaxprocs-and-limit: GOMAXPROCS does not match the CPU limit. More Ps than the limit are a
// fault if the quota throttles the process although the load does not use the whole limit; otherwise, and for fewer Ps than the
// limit, it is a fact.
func checkGOMAXPROCSAndLimit(in *Input) []Verdict {
	host, procs := in.Report.Host, in.Report.Input.GOMAXPROCS
	if host == nil || host.Facts.QuotaCPUs <= 0 || procs == 0 {
		return nil
	}
	limit := host.Facts.QuotaCPUs
	limitText := fmt.Sprintf("%.3g", limit)
	f := report.Finding{Confidence: 0.9, Evidence: []report.Evidence{
		evidenceOf("evidence gomaxprocs", procs, "Ps"),
		// A redacted recording does not contain the file name.
		evidenceOf("evidence cpu-limit-by", limit, "CPUs", "file", cmp.Or(host.Facts.QuotaFrom, textOf("phrase hidden-file"))),
	}}
	if host.Facts.GOMAXPROCS != "" {
		f.Evidence = append(f.Evidence, statementOf("evidence gomaxprocs-in-environment", "value", host.Facts.GOMAXPROCS))
	}
	// The runtime uses at least 2 Ps if the machine has 2 CPUs.
	switch maxProcs := min(max(procsForLimit(limit), 2), max(host.Facts.Parallelism, 1)); {
	case procs > maxProcs:
		f.Title, f.Fix = textOf("title gomaxprocs-above-limit", "ps", procs, "cpus", limitText), textOf("fix gomaxprocs-above-limit", "now", procs, "ps", procsForLimit(limit))
		g, share, gain := mostThrottled(in.Report)
		if g == nil || !in.Report.Runtime.Throttle.Verdict.HeldBack() || usesWholeLimit(in.Report, limit) {
			return []Verdict{{Fact: true, Finding: f}}
		}
		f.Cause, f.Group, f.Share = report.CauseThrottle, g.ID, share
		return []Verdict{{Gain: gain, Finding: f}}
	case procs < int(math.Floor(limit)) && procs < host.Facts.Parallelism:
		f.Title, f.Fix = textOf("title gomaxprocs-below-limit", "ps", procs, "cpus", limitText), textOf("fix gomaxprocs-below-limit")
		return []Verdict{{Fact: true, Finding: f}}
	}
	return nil
}

// mostThrottled returns the group that lost most time to a quota's freezes, with the lost share of its time; nil if no group did.
func mostThrottled(r *report.Report) (g *report.Group, share float64, gain Gain) {
	for i := range r.Groups {
		if s, w := gainWithout(&r.Groups[i], isThrottle); w.TotalNS > gain.TotalNS {
			g, share, gain = &r.Groups[i], s, w
		}
	}
	return g, share, gain
}
