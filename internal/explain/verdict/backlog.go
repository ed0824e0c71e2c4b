package verdict

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// BacklogName returns what the messages of a backlog queue for.
func BacklogName(b *report.Backlog) string {
	if b.Consumers == 1 {
		return "the only goroutine that handles messages"
	}
	return fmt.Sprintf("one of the %d goroutines that handle messages", b.Consumers)
}

// handlingBand returns the band of a group whose requests take about as long as a backlog's slow messages after they are read.
func handlingBand(g *report.Group) *report.Band {
	nearest, nearestNS := g.All(), int64(-1)
	for b := range entry.Each(g.Bands) {
		if b.Count == 0 {
			continue
		}
		if ns := b.TotalNS()/int64(b.Count) - g.Backlog.Slow.HandlingNS; nearestNS < 0 || max(ns, -ns) < nearestNS {
			nearest, nearestNS = b, max(ns, -ns)
		}
	}
	return nearest
}

// addBacklog makes a verdict on requests a verdict on the slow messages of their backlog: the time in the queue comes in addition.
func addBacklog(v *report.Verdict, g *report.Group) {
	b := g.Backlog
	slow := &b.Slow
	v.Band, v.Requests = slow.Band, slow.Count
	v.Lead = map[report.BandName]string{report.Band99: "The slowest 1% of the messages of", report.Band9099: "From p90 to p99, messages of"}[slow.Band]
	v.Lead = cmp.Or(v.Lead, "Messages of")
	median := ""
	if p50 := b.TotalNS.P50; p50 != nil {
		median = ", median of all " + words.Duration(*p50)
	}
	v.Range = "(" + words.Duration(slow.FromNS) + " to " + words.Duration(slow.ToNS) + " from arrival to done" + median + ")"
	totalNS := max(slow.WaitNS+slow.HandlingNS, 1)
	queueShare := float64(slow.WaitNS) / float64(totalNS)
	for c := range entry.Each(v.Causes) {
		c.Share *= 1 - queueShare
		c.EachNS = int64(c.Share * float64(totalNS))
		c.TotalNS = c.EachNS * int64(slow.Count)
		for s := range entry.Each(c.Sites) {
			s.Share *= 1 - queueShare
			s.TotalNS = int64(s.Share * float64(totalNS) * float64(slow.Count))
		}
	}
	queueNS := slow.WaitNS * int64(slow.Count)
	queue := report.VerdictCause{
		Cause: report.CauseQueue, Kind: BacklogName(b), Share: queueShare, TotalNS: queueNS, EachNS: slow.WaitNS,
		Sites: []report.VerdictSite{{Site: b.Site, Share: queueShare, TotalNS: queueNS, Via: []report.Via{}}},
	}
	queue.Queue = &report.Queue{For: queue.Kind, Waits: []report.Via{}}
	if len(v.Causes) > 0 {
		c := &v.Causes[0]
		work := &report.VerdictWork{Cause: c.Cause, Kind: c.Kind, Sites: slices.Clone(c.Sites)}
		for s := range entry.Each(work.Sites) {
			s.Share *= queueShare / max(c.Share, 1e-9)
			s.TotalNS = int64(s.Share * float64(totalNS) * float64(slow.Count))
			work.TotalNS += s.TotalNS
		}
		queue.AheadWork = work
	}
	queue.Words = Words(&queue)
	index := 0
	for index < len(v.Causes) && v.Causes[index].Share > queueShare {
		index++
	}
	v.Causes = slices.Insert(v.Causes, index, queue)
}
