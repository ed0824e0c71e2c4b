package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

func flushRule() Rule {
	return Rule{
		Code: report.RuleFlushInterval, Name: "flush-interval",
		Summary: "requests wait for the next turn of something that happens at fixed intervals",
		Doc: Doc{
			Means: "Requests are done only when a ticker or timer next fires on a goroutine that serves all of them: a batcher that flushes every so often, a loop that looks for work. " +
				"A request that comes at any time waits half the interval on average, and all of it at worst.",
			Measured: "The requests' paths lead to a sleep on a goroutine that many requests share, and the instants at which it ends lie a fixed time, or a multiple of it, apart " +
				"(four of five distances within 10 %). The sleep was under way when the request came, or ends for several at once. " +
				"Requests that were seen to hand nothing to anybody before they wait may be long polls: those are left to WL2001. Confidence is 0.9.",
			Before: "case <-ticker.C: // each 50 ms\n\tflush(batch)",
			After:  "case rec := <-in:\n\tbatch = append(batch, rec)\n\tif len(in) == 0 { // nobody else is waiting to be added\n\t\tflush(batch)\n\t}",
			Wrong:  "Where the interval is a promise (a report each second) or saves what costs more than the wait, such as a sync to disk for each record.",
		},
		Run: func(in *Input) []Verdict {
			var out []Verdict
			claimsBy(in, report.RuleFlushInterval, func(cl *claims, c *claim) { out = append(out, flushVerdict(cl, c)) })
			return out
		},
	}
}

// flush describes a sleep that is a shared goroutine's interval,
// nil for other sleeps.
func (cl *claims) flush(c *report.Cause) *queues.Turns {
	t := cl.in.turns(c, nil)
	if t == nil || c.Cause != report.CauseSleep || t.PeriodNS == 0 || t.Taken > 0.5 || t.Served < 2*scale.Few || t.Served < 5*t.Servers {
		return nil
	}
	underWay := t.Early >= 0.5
	if c.Call != "time.Sleep" {
		underWay = underWay || t.Together >= 1.5 || float64(t.PartNS) < 0.95*float64(t.PeriodNS)
	}
	if !underWay {
		return nil
	}
	return t
}

func flushVerdict(cl *claims, c *claim) Verdict {
	top := c.heaviest("sleep")
	t := cl.flush(top.Cause)
	return Verdict{Won: c.won, Changes: cl.halfOf(top.Cause), Finding: report.Finding{
		Title: fmt.Sprintf("requests wait for an interval of %s to pass at %s", words.Brief(t.PeriodNS), place(users(top.Cause, top.via))),
		Cause: report.CauseSleep, Site: users(top.Cause, top.via), Group: cl.g.ID, Share: c.share, Confidence: 0.9,
		Evidence: []report.Evidence{
			{Text: "the interval: ends of the wait lie this, or a multiple of it, apart", Value: float64(t.PeriodNS), Unit: "ns"},
			{Text: "mean wait of a slow request, " + onWhose(top.via), Value: float64(c.won.SlowNS), Unit: "ns"},
			{Text: "requests that one and the same turn served, on average", Value: t.Together, Unit: "count"},
		},
		Fix: fmt.Sprintf("serve what has gathered as soon as nobody else is waiting to be added, or make the interval shorter than %s: the mean wait is half of it for requests that come at any time", words.Brief(t.PeriodNS)),
	}}
}
