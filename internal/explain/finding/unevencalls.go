package finding

import (
	"math"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
)

// callCountsAt returns how many calls the group's slow requests and others make from the service's line of a route; nil if that is not known.
func (a *attribution) callCountsAt(route *causeRoute) *queues.CallCounts {
	line := route.ownLine()
	return firstMatch(a.in.CallCounts[a.group.ID], func(c *queues.CallCounts) bool {
		return line != nil && c.Line == line.Line && c.File == line.File
	})
}

// rewriteForUnevenCalls rewrites a verdict on calls of which slow requests make far more than others, one after the other. It returns
// false, and changes nothing, if they do not. The change is that each request makes as many as the others.
func (w *peerWait) rewriteForUnevenCalls(v *Verdict) bool {
	counts := w.callCountsAt(w.top)
	if !counts.AreUneven() || w.isParallel || w.isSequential && !counts.DoesOthersWork() {
		return false
	}
	usual := max(1, math.Round(counts.UsualCalls))
	slowText, usualText := words.Figure(math.Round(counts.SlowCalls)), words.Figure(usual)
	v.Title, v.Fix, v.InService = textOf("title uneven-calls", "n", slowText, "site", v.Site, "usual", usualText), textOf("fix uneven-calls", "n", slowText), true
	v.isSequence = true
	if usual == 1 {
		v.Fix = textOf("fix repeats-of-one-call")
	}
	if l := libraryAt(counts.Drain); l != nil && l.drainAdvice != "" {
		v.Title = textOf("title drained-calls", "n", slowText, "site", v.Site, "usual", usualText, "library", l.name)
		v.Fix = l.fix(l.drainAdvice)
	}
	v.prependEvidence(
		evidenceOf("evidence slow-calls", counts.SlowCalls, "count"),
		evidenceOf("evidence usual-calls", counts.UsualCalls, "count"),
		evidenceOf("evidence sequential-wait", counts.CallNS, "ns"))
	v.Gain = w.cand.gain.scaled(1 - counts.UsualCalls/counts.SlowCalls)
	v.Changes = []predict.Change{predict.Calls(names.Position(w.cand.routes[0].ownLine()), int(usual))}
	w.predictAs(v, "phrase change-usual-calls")
	return true
}
