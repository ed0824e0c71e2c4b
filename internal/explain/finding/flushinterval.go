package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// flushInterval describes the service behind a sleep that is the interval of a shared goroutine, such as a batcher's; nil for
// other sleeps.
func (a *attribution) flushInterval(c *report.Cause) *queues.ServiceStats {
	service := a.in.serviceAt(c, nil)
	if service == nil || c.Cause != report.CauseSleep || service.PeriodNS == 0 || service.OtherRequestShare > 0.5 || service.Requests < 2*threshold.SmallSample || service.Requests < 5*service.Servers {
		return nil
	}
	underWay := service.BegunEarlyShare >= 0.5
	if c.Call != sleepCall {
		underWay = underWay || service.BatchSize >= 1.5 || float64(service.WaitedSleepNS) < 0.95*float64(service.PeriodNS)
	}
	if !underWay {
		return nil
	}
	return service
}

// checkFlushInterval is WL2004, flush-interval: requests wait for the next run of work that is done at a fixed interval.
func checkFlushInterval(attr *attribution, cand *candidate) Verdict {
	top := cand.heaviestRoute(report.CauseSleep)
	service := attr.flushInterval(top.Cause)
	v := attr.newVerdict(cand, top)
	v.Cause = report.CauseSleep
	v.Title = fmt.Sprintf("requests wait for the next tick of a %s interval at %s", words.Brief(service.PeriodNS), siteText(v.Site))
	v.addEvidence(
		measurement("interval between the ends of the waits (or a multiple of it)", service.PeriodNS, "ns"),
		measurement("mean wait per slow request, "+goroutineText(top.via), cand.gain.Slow.NS, "ns"),
		measurement("requests served by one tick, on average", service.BatchSize, "count"))
	v.Fix = fmt.Sprintf("serve the batch as soon as no other request is waiting to join it, or make the interval shorter than %s: requests wait half of it on average", words.Brief(service.PeriodNS))
	return v
}
