package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// flushInterval describes a sleep that is a shared goroutine's interval,
// nil for other sleeps.
func (a *attribution) flushInterval(c *report.Cause) *queues.ServiceStats {
	t := a.in.turns(c, nil)
	if t == nil || c.Cause != report.CauseSleep || t.PeriodNS == 0 || t.OtherRequestShare > 0.5 || t.Requests < 2*scale.Few || t.Requests < 5*t.Servers {
		return nil
	}
	underWay := t.BegunEarlyShare >= 0.5
	if c.Call != pause {
		underWay = underWay || t.BatchSize >= 1.5 || float64(t.WaitedSleepNS) < 0.95*float64(t.PeriodNS)
	}
	if !underWay {
		return nil
	}
	return t
}

// checkFlushInterval is WL2004, flush-interval.
func checkFlushInterval(attr *attribution, cand *candidate) Verdict {
	top := cand.heaviestRoute(report.CauseSleep)
	t := attr.flushInterval(top.Cause)
	v := attr.newVerdict(cand, top)
	v.Cause = report.CauseSleep
	v.Title = fmt.Sprintf("requests wait for the next tick of a %s interval at %s", words.Brief(t.PeriodNS), place(v.Site))
	v.addEvidence(
		measured("interval between the ends of the waits (or a multiple of it)", t.PeriodNS, "ns"),
		measured("mean wait per slow request, "+onWhose(top.via), cand.won.Slow.NS, "ns"),
		measured("requests served by one tick, on average", t.BatchSize, "count"))
	v.Fix = fmt.Sprintf("serve the batch as soon as no other request is waiting to join it, or make the interval shorter than %s: requests wait half of it on average", words.Brief(t.PeriodNS))
	return v
}
