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
			Means: "Timers wake dozens or thousands of goroutines within a millisecond, and requests that become runnable queue behind all of them. Often most " +
				"of a herd only checks for work, finds none, and sleeps again.",
			Measured: fmt.Sprintf("Wakes by timers are counted by the place where the goroutine waits next. A herd is %d or more within %d ms, together with those woken before "+
				"its last goroutine has run. The requests' part is the time they waited for a P (causes sched, sched-poll) while mostly goroutines of the "+
				"herd ran. Where these also run at other times, or wait for the network in between, most of the waits must lie in the herds' moments.", process.HerdSize, int(process.HerdNS/1e6)),
			Before: "for _, c := range conns { // thousands\n\tgo func() {\n\t\tfor range time.Tick(time.Second) {\n\t\t\tc.flushIfNeeded()\n\t\t}\n\t}()\n}",
			After: "go func() { // one goroutine, and only connections that need it\n\tfor range time.Tick(time.Second) {\n\t\tfor c := range dirty { c.flush() " +
				"}\n\t}\n}()\n// or spread them: time.Sleep(rand.N(time.Second)) before the first tick",
			Wrong: "If the herd's work is needed at that very moment; spread it by a random delay then.",
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
			{Text: "goroutines in the largest herd, woken within " + words.Brief(h.WithinNS), Value: float64(h.Most), Unit: "count"},
			{Text: "time until the last of them ran", Value: float64(h.LateNS), Unit: "ns"},
			q.waited(),
			{Text: "time until the last of a herd ran, on average", Value: float64(h.ClearNS) / float64(h.Times), Unit: "ns"},
			{Text: "mean run of each", Value: float64(h.RanNS) / float64(h.Wakes), Unit: "ns"},
			{Text: "share that ran for less than 50 us and waited again", Value: float64(h.Empty) / float64(h.Wakes), Unit: "share"},
			{Text: "herds", Value: float64(h.Times), Unit: "count"},
			{Text: "share of the herd in what ran while requests waited", Value: q.most, Unit: "share"},
		}
		if q.herd != nil {
			evidence = append(evidence, report.Evidence{Text: "share of the requests' waits for a P in the herds' moments", Value: q.herded, Unit: "share"})
		}
		out = append(out, Verdict{Won: q.won, Changes: q.changes(), Finding: report.Finding{
			Title: fmt.Sprintf("%d goroutines of %s wake together and take the Ps", h.Most, short(h.Start)),
			Cause: report.CauseSched, Site: h.Site, Group: q.g.ID, Share: q.share, Confidence: 0.85, Evidence: evidence,
			Fix: "one goroutine with one ticker for all of them, or a random delay before each one's first tick",
		}})
	})
	return out
}
