package finding

import (
	"math"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkPsTaken is WL1002, ps-taken: requests wait for a P because other goroutines run on all Ps. The finding names the function
// with the largest share of what ran. If that is mostly requests and the Ps are otherwise idle, clients send them in bursts and
// the verdict is at most low.
func checkPsTaken(in *Input, wait *runQueueWait) []Verdict {
	t := &wait.occupants[0]
	if psInUse(in) < threshold.MostShare && (wait.gain.Slow.NS < 1e6 || wait.share < 0.05) {
		return nil
	}
	v := wait.newVerdict(t.site, 0.85)
	if t.share <= 0.5 {
		v.doubt(0.7, textOf("phrase doubt-occupants", "share", words.Percent(t.share), "function", words.FuncName(t.site.Func)))
		if psInUse(in) < threshold.HalfShare {
			v.MaxSeverity = report.SeverityLow // no function occupies Ps of which most are idle
		}
	}
	wait.addWaitEvidence(&v)
	v.addEvidence(occupantEvidence(wait.occupants)...)
	if in.Process.SpanNS > 0 {
		v.addEvidence(evidenceOf("evidence ps-in-use", psInUse(in), "share"))
	}
	if t.longShare > 0.5 {
		v.addEvidence(evidenceOf("evidence ps-taken-long-runs", t.longShare, "share"))
	}
	v.Title, v.Fix = textOf("title ps-taken", "function", t.name()), textOf("fix ps-taken-by-requests")
	if !t.servesRequests(in, wait.group) {
		v.Fix = textOf("fix ps-taken", "function", words.FuncName(t.site.Func))
	}
	if l := libraryAt(t.site); l != nil && l.purpose != "" {
		v.MaxSeverity = report.SeverityLow // the service wants that work, which takes as long whenever it is done
	}
	if isHandshake(t.site) {
		v.Fix = textOf("fix ps-taken-handshakes")
	}
	if wait.group.Kind == report.KindRun {
		v.Fix = textOf("fix ps-taken-in-run", "function", words.FuncName(t.site.Func))
		if psInUse(in) < threshold.MostShare {
			v.Fix = textOf("fix ps-idle-in-run", "function", words.FuncName(t.site.Func))
		}
	}
	if wait.rewriteForManyRuns(in, &v) {
		return []Verdict{v}
	}
	if wait.isBurst(in) {
		v.MaxSeverity = report.SeverityLow
		v.Title, v.Fix = textOf("title burst"), textOf("fix burst")
		if v.Site = computeSite(wait.group); v.Site != nil {
			v.Title = textOf("title burst-computes", "function", words.FuncName(v.Site.Func))
		}
	}
	return []Verdict{v}
}

// A goroutine that ends after less than smallWorkNS works for hardly longer than it takes to start and to schedule it. What yields
// repeatedly, each time after less than spinNS, only looks whether something happened.
const (
	smallWorkNS    = 10_000
	spinNS         = 100_000
	manyGoroutines = 100 // started for one request
)

// rewriteForManyRuns rewrites a verdict on occupants that only look whether something happened, or are many goroutines with little
// work each. It returns false, and changes nothing, for other occupants.
func (q *runQueueWait) rewriteForManyRuns(in *Input, v *Verdict) bool {
	for t := range each(q.occupants) {
		runs, function, requests := t.runsIn(in.Process), words.FuncName(t.site.Func), max(1, int64(q.group.Count))
		switch isMost := func(n int64) bool { return float64(n) >= threshold.MostShare*float64(runs.Count) }; {
		case t.share < threshold.MajorShare:
		case isMost(runs.Yields) && runs.NS < spinNS*runs.Count:
			v.Title = textOf("title ps-taken-spins", "function", function, "n", words.Figure(math.Round(float64(runs.Yields)/(float64(in.Process.SpanNS)/1e9))))
			v.Fix = textOf("fix ps-taken-spins", "site", t.site)
			return true
		case isMost(runs.Ends) && runs.NS < smallWorkNS*runs.Count && runs.Ends >= manyGoroutines*requests:
			v.Title = textOf("title ps-taken-small-goroutines", "function", function, "n", words.Figure(math.Round(float64(runs.Ends)/float64(requests))), "time", words.Brief(runs.NS/runs.Count))
			v.Fix = textOf("fix ps-taken-small-goroutines", "function", function)
			return true
		}
	}
	return false
}

// runsIn returns the sum of the runs that ended in the occupant's function.
func (t *occupant) runsIn(stats *process.Stats) (sum process.RunningTime) {
	for r := range each(stats.RunningTimes) {
		if r.Site != nil && r.Site.Func == t.site.Func {
			sum.Add(r)
		}
	}
	return sum
}

// isBurst reports whether requests waited for a P behind other requests while the Ps were idle most of the time: clients sent
// them at the same instant.
func (q *runQueueWait) isBurst(in *Input) bool {
	ownShare := 0.0
	for t := range each(q.occupants) {
		if t.servesRequests(in, q.group) {
			ownShare += t.share
		}
	}
	return ownShare > 0.5 && psInUse(in) < threshold.MajorShare
}

// computeSite returns the site with the most CPU samples of a group, or the group's entry if there are no samples. A goroutine's
// run is known only by the site where it ended, which is often not where it computes.
func computeSite(g *report.Group) *report.Site {
	site, maxSamples := g.Entry, 0
	for c := range each(g.All().Causes) {
		if c.Cause == report.CauseCPU && c.Site != nil && c.Samples > maxSamples {
			site, maxSamples = c.Site, c.Samples
		}
	}
	return site
}
