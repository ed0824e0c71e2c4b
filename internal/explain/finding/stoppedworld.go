package finding

import (
	"cmp"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// checkStoppedWorld is WL3003, stopped-world: requests wait while the runtime has stopped the world. Each reason for a stop has a
// verdict; stops of the collector belong to WL3004 or WL3005 where these apply.
func checkStoppedWorld(in *Input, g *report.Group) (out []Verdict) {
	isReported := map[string]bool{}
	for b := range g.Bands {
		for c := range each(g.Bands[b].Causes) {
			if c.Cause != report.CauseSTW || isReported[c.Kind] || isGCStop(c.Kind) && in.isGCFrequentOrForced() {
				continue
			}
			isReported[c.Kind] = true
			out = append(out, worldStopVerdict(in, g, c.Kind))
		}
	}
	return out
}

// worldStopVerdict returns the verdict on stops of the world for one reason, such as "GC sweep termination". The finding names
// what began the stop or, if the collector did and goroutines took half of the time or more to stop, the slowest of them.
func worldStopVerdict(in *Input, g *report.Group, kind string) Verdict {
	share, gain := gainWithout(g, func(c *report.Cause) bool { return c.Cause == report.CauseSTW && c.Kind == kind })
	var sum process.Stop
	var top *process.Stop
	for s := range each(in.Process.Stops) {
		if s.Kind != kind {
			continue
		}
		top = cmp.Or(top, s)
		sum.Count += s.Count
		sum.TotalNS += s.TotalNS
		sum.MaxNS = max(sum.MaxNS, s.MaxNS)
		sum.ExaminedNS += s.ExaminedNS
		sum.StoppingNS += s.StoppingNS
	}
	v := Verdict{Gain: gain, Changes: []predict.Change{predict.Remove(report.CauseSTW, "")}, Finding: report.Finding{
		Title: textOf("title stopped-world", "kind", kind), Cause: report.CauseSTW, Group: g.ID, Share: share, Confidence: 0.95,
	}}
	v.addSlowEvidence(evidenceOf("evidence slow-mean", gain.Slow.NS, "ns"))
	v.addEvidence(
		evidenceOf("evidence stops", sum.Count, "count"),
		evidenceOf("evidence stop-length", float64(sum.TotalNS)/float64(max(sum.Count, 1)), "ns"),
		evidenceOf("evidence longest-stop", sum.MaxNS, "ns"))
	stoppingShare := ratio(sum.StoppingNS, sum.ExaminedNS)
	if sum.ExaminedNS > 0 {
		v.addEvidence(evidenceOf("evidence stopping-share", stoppingShare, "share"))
	}
	isGC := isGCStop(kind)
	if !isGC {
		in.addStoppedArrivals(&v, sum.Count, sum.TotalNS)
	}
	if top != nil {
		v.Site = top.Site
		for _, s := range top.SlowStoppers {
			if stoppingShare >= 0.2 && s.Share >= 0.1 && s.Site != nil {
				v.addEvidence(evidenceOf("evidence slow-stopper", s.Share, "share", "site", s.Site))
			}
		}
		if isGC && stoppingShare >= 0.5 && len(top.SlowStoppers) > 0 && top.SlowStoppers[0].Site != nil {
			v.Site = top.SlowStoppers[0].Site
		}
	}
	switch {
	case kind == "read mem stats":
		v.Fix = textOf("fix stop-for-mem-stats")
	case strings.Contains(kind, "stack") || strings.Contains(kind, "goroutine"):
		v.Fix = textOf("fix stop-for-stacks")
	case kind == "GOMAXPROCS":
		v.Fix = textOf("fix stop-for-gomaxprocs")
	case isGC && stoppingShare >= 0.5:
		v.Fix = textOf("fix stop-slow")
	case isGC:
		advice, _ := growthAdvice(in.Process)
		v.Fix = textOf("fix stop-for-gc", "advice", advice)
	default:
		v.Fix = textOf("fix stop")
	}
	return v
}

// addStoppedArrivals adds the loss of arriving requests to a verdict on stops that the service's own calls begin: their latencies begin when
// the world runs again. A request arrives at any time of a stop, so it loses half of it on average. That makes the slowest requests of
// clients slow if the world is stopped for a hundredth of the time.
func (in *Input) addStoppedArrivals(v *Verdict, stops int, stoppedNS int64) {
	share := ratio(stoppedNS, in.Process.SpanNS)
	if stops == 0 || share < 1.0/threshold.TailSample {
		return
	}
	requests, spentNS := 0, int64(0)
	for g := range each(in.Report.Groups) {
		if g.Role == report.RoleRequests {
			requests, spentNS = requests+g.Count, spentNS+g.TotalNS
		}
	}
	v.addEvidence(evidenceOf("evidence stopped-share", share, "share"))
	ns := stoppedNS / int64(stops) / 2
	loss := Loss{Share: float64(ns) / float64(ns+spentNS/int64(max(requests, 1))), NS: ns, IsRare: areTooRare(int(share*float64(requests)), requests)}
	if slow := v.Gain.Slow; loss.NS > slow.NS || slow.IsRare && !loss.IsRare {
		v.Gain.Slow = loss
	}
}
