package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/report"
)

// checkStoppedWorld is WL3003, stopped-world.
func checkStoppedWorld(in *Input, g *report.Group) (out []Verdict) {
	isReported := map[string]bool{}
	for b := range g.Bands {
		for i := range g.Bands[b].Causes {
			c := &g.Bands[b].Causes[i]
			if c.Cause != report.CauseSTW || isReported[c.Kind] || isGCStop(c.Kind) && in.isGCFrequentOrForced() {
				continue
			}
			isReported[c.Kind] = true
			out = append(out, stopVerdict(in, g, c.Kind))
		}
	}
	return out
}

func stopVerdict(in *Input, g *report.Group, kind string) Verdict {
	share, gain := weigh(g, func(c *report.Cause) bool { return c.Cause == report.CauseSTW && c.Kind == kind })
	var sum process.Stop
	var top *process.Stop
	for i := range in.Process.Stops {
		s := &in.Process.Stops[i]
		if s.Kind != kind {
			continue
		}
		if top == nil {
			top = s
		}
		sum.Count += s.Count
		sum.TotalNS += s.TotalNS
		sum.MaxNS = max(sum.MaxNS, s.MaxNS)
		sum.ExaminedNS += s.ExaminedNS
		sum.StoppingNS += s.StoppingNS
	}
	v := Verdict{Gain: gain, Changes: []predict.Change{predict.Halve(report.CauseSTW, "")}, Finding: report.Finding{
		Title: fmt.Sprintf("requests stop while the world is stopped (%s)", kind), Cause: report.CauseSTW, Group: g.ID, Share: share, Confidence: 0.95,
	}}
	v.addEvidence(
		measurement("mean per slow request", gain.Slow.NS, "ns"),
		measurement("stops", sum.Count, "count"),
		measurement("mean length of a stop", float64(sum.TotalNS)/float64(max(sum.Count, 1)), "ns"),
		measurement("longest stop", sum.MaxNS, "ns"))
	stoppingShare := ratio(sum.StoppingNS, sum.ExaminedNS)
	if sum.ExaminedNS > 0 {
		v.addEvidence(measurement("share of the longest stops before the last goroutine had stopped", stoppingShare, "share"))
	}
	isGC := isGCStop(kind)
	if top != nil {
		v.Site = top.Site
		for _, s := range top.SlowStoppers {
			if stoppingShare >= 0.2 && s.Share >= 0.1 && s.Site != nil {
				v.addEvidence(measurement("part of that due to code that kept running at "+siteText(s.Site), s.Share, "share"))
			}
		}
		if isGC && stoppingShare >= 0.5 && len(top.SlowStoppers) > 0 && top.SlowStoppers[0].Site != nil {
			v.Site = top.SlowStoppers[0].Site
		}
	}
	switch {
	case kind == "read mem stats":
		v.Fix = "read what you need from runtime/metrics, which does not stop the world, or read it rarely"
	case strings.Contains(kind, "stack") || strings.Contains(kind, "goroutine"):
		v.Fix = "do not take the stacks of all goroutines while requests are served; runtime/metrics counts them"
	case kind == "GOMAXPROCS":
		v.Fix = "set GOMAXPROCS once"
	case isGC && stoppingShare >= 0.5:
		v.Fix = "code that keeps running after the request to stop holds up all goroutines: split long copies and clears of memory, and calls that cannot be interrupted; a thread that the kernel or a quota held back looks the same (see WL4)"
	case isGC:
		v.Fix = "collect less often: allocate less, or " + growthAdvice(in.Process)
	default:
		v.Fix = "do it rarely, or while no requests are served"
	}
	return v
}
