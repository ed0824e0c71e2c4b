package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

func herdRule() Rule {
	return Rule{
		Code: report.RuleHerd, Name: "herd",
		Summary: "many goroutines wake at the same time and take the Ps",
		Doc: Doc{
			Means: "Timers wake dozens or thousands of goroutines within a millisecond, and requests that become runnable then queue behind all of them. Most of a herd often looks whether there is " +
				"something to do, finds nothing, and sleeps again.",
			Measured: fmt.Sprintf("Wakes by timers are counted by the place where the goroutine waits next; %d and more within %d ms are a herd, with those woken before the last of them has run. The requests' part is the time they waited for a P "+
				"(causes sched, sched-poll) where most of what ran meanwhile were goroutines of the herd. Where these run at other times, too, or wait for the network in between, most of the waits must lie in the herds' moments.", process.HerdSize, int(process.HerdNS/1e6)),
			Before: "for _, c := range conns { // thousands\n\tgo func() {\n\t\tfor range time.Tick(time.Second) {\n\t\t\tc.flushIfNeeded()\n\t\t}\n\t}()\n}",
			After:  "go func() { // one goroutine, and only those that need it\n\tfor range time.Tick(time.Second) {\n\t\tfor c := range dirty { c.flush() }\n\t}\n}()\n// or spread them: time.Sleep(rand.N(time.Second)) before the first tick",
			Wrong:  "If what the herd does is needed at that very moment; then spread it by a random delay.",
		},
		Run: herds,
	}
}

func herds(in *Input) []Verdict {
	var out []Verdict
	eachQueue(in, report.RuleHerd, func(q *queue) {
		h := q.herd
		for i := range q.takers {
			if h != nil {
				break
			}
			h = herdOf(in.Process, &q.takers[i])
		}
		evidence := []report.Evidence{
			{Text: "goroutines in the largest herd, which woke within " + words.Brief(h.WithinNS), Value: float64(h.Most), Unit: "count"},
			{Text: "until the last of them ran", Value: float64(h.LateNS), Unit: "ns"},
			q.waited(),
			{Text: "until the last of a herd had run, on average", Value: float64(h.ClearNS) / float64(h.Times), Unit: "ns"},
			{Text: "each of them ran, on average", Value: float64(h.RanNS) / float64(h.Wakes), Unit: "ns"},
			{Text: "of them ran for less than 50 us and waited again", Value: float64(h.Empty) / float64(h.Wakes), Unit: "share"},
			{Text: "herds", Value: float64(h.Times), Unit: "count"},
			{Text: "of what ran while requests waited: the herd", Value: q.most, Unit: "share"},
		}
		if q.herd != nil {
			evidence = append(evidence, report.Evidence{Text: "of the time that requests waited for a P, in the herds' moments", Value: q.herded, Unit: "share"})
		}
		out = append(out, Verdict{Won: q.won, Changes: q.changes(), Finding: report.Finding{
			Title: fmt.Sprintf("%d goroutines of %s wake together and take the Ps", h.Most, short(h.Start)),
			Cause: report.CauseSched, Site: h.Site, Group: q.g.ID, Share: q.share, Confidence: 0.85, Evidence: evidence,
			Fix: "one goroutine with one ticker for all of them, or a random delay before each one's first tick",
		}})
	})
	return out
}
