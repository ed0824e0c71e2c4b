package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// checkPsTaken is WL1002, ps-taken.
func checkPsTaken(in *Input, wait *runQueueWait) []Verdict {
	t := &wait.occupants[0]
	if psInUse(in) < threshold.MostShare && (wait.gain.Slow.NS < 1e6 || wait.share < 0.05) {
		return nil
	}
	v := wait.newVerdict(t.site, 0.7)
	if t.share > 0.5 {
		v.Confidence = 0.85
	}
	v.addEvidence(wait.waitEvidence())
	v.addEvidence(occupantEvidence(wait.occupants)...)
	if in.Process.SpanNS > 0 {
		v.addEvidence(measurement("Ps in use over the whole trace", psInUse(in), "share"))
	}
	if t.longShare > 0.5 {
		v.addEvidence(measurement("share of its time in runs of 9 ms or more without yielding", t.longShare, "share"))
	}
	v.Title = fmt.Sprintf("requests wait for a P while %s occupies the Ps", t.name())
	v.Fix = "give the service more CPUs, make the requests cheaper, or admit fewer at a time: they compete for the Ps"
	if !t.servesRequests(in) {
		v.Fix = "run " + shortFunc(t.site.Func) + " on fewer goroutines at a time, make it cheaper, or yield in it; or give the service more CPUs"
	}
	if wait.isBurst(in) {
		v.MaxSeverity = report.SeverityLow
		v.Title = "requests that arrive together wait for each other, on Ps that are idle nearly all the time"
		if v.Site = computeSite(wait.group); v.Site != nil {
			v.Title += ": " + shortFunc(v.Site.Func) + " computes"
		}
		v.Fix = "if clients do not have to ask at the same time, spread their requests; otherwise make the requests cheaper, or give the service more CPUs"
	}
	return []Verdict{v}
}

// isBurst reports whether requests waited behind requests while the Ps were idle most of the time: clients send them
// at the same time.
func (q *runQueueWait) isBurst(in *Input) bool {
	ownShare := 0.0
	for i := range q.occupants {
		if t := &q.occupants[i]; t.servesRequests(in) {
			ownShare += t.share
		}
	}
	return ownShare > 0.5 && psInUse(in) < threshold.MajorShare
}

// computeSite returns the site with the most CPU samples of a group, because a run is only known by the site where it
// ended. Without samples it is the group's entry.
func computeSite(g *report.Group) *report.Site {
	site, maxSamples := g.Entry, 0
	for i := range g.All().Causes {
		if c := &g.All().Causes[i]; c.Cause == report.CauseCPU && c.Site != nil && c.Samples > maxSamples {
			site, maxSamples = c.Site, c.Samples
		}
	}
	return site
}
