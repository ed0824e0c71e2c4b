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
		Summary: "requests wait for the next run of work that is done at a fixed interval",
		Doc: Doc{
			Means: "Requests end only when a ticker or timer next fires on a goroutine that serves all of them: a batcher that flushes at an interval, a loop " +
				"that polls for work. On average a request waits half the interval, at worst all of it.",
			Measured: "The requests' paths lead to a sleep on a goroutine that many requests share, and the sleep ends at instants that are a fixed time, or a " +
				"multiple of it, apart (four of five distances within 10 %). The sleep had begun before the request arrived, or ends for several requests at " +
				"once. Requests that were seen to hand over nothing before they wait may be long polls: those are left to WL2001, unless the ones that arrive " +
				"while a run is under way wait for the next run, as in a batch. Confidence is 0.9.",
			Before: "case <-ticker.C: // every 50 ms\n\tflush(batch)",
			After:  "case rec := <-in:\n\tbatch = append(batch, rec)\n\tif len(in) == 0 { // no other record is waiting to be added\n\t\tflush(batch)\n\t}",
			Wrong:  "Where the interval is required (a report each second), or saves more than the wait costs, such as a sync to disk for each record.",
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
	if c.Call != pause {
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
		Title: fmt.Sprintf("requests wait for the next tick of a %s interval at %s", words.Brief(t.PeriodNS), place(users(top.Cause, top.via))),
		Cause: report.CauseSleep, Site: users(top.Cause, top.via), Group: cl.g.ID, Share: c.share, Confidence: 0.9,
		Evidence: []report.Evidence{
			{Text: "interval between the ends of the waits (or a multiple of it)", Value: float64(t.PeriodNS), Unit: "ns"},
			{Text: "mean wait per slow request, " + onWhose(top.via), Value: float64(c.won.SlowNS), Unit: "ns"},
			{Text: "requests served by one tick, on average", Value: t.Together, Unit: "count"},
		},
		Fix: fmt.Sprintf("serve the batch as soon as no other request is waiting to join it, or make the interval shorter than %s: requests wait half of it on average", words.Brief(t.PeriodNS)),
	}}
}
