package finding

import (
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
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
	if !knowledge.Has(c.Call, knowledge.SleepWait) {
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
	interval := words.Brief(service.PeriodNS)
	v.Title, v.Fix = textOf("title flush-interval", "interval", interval, "site", v.Site), textOf("fix flush-interval", "interval", interval)
	v.addEvidence(evidenceOf("evidence flush-interval", service.PeriodNS, "ns"))
	v.addSlowEvidence(evidenceOf("evidence slow-wait-on", cand.gain.Slow.NS, "ns", "goroutine", goroutineText(top.via)))
	v.addEvidence(evidenceOf("evidence flush-batch", service.BatchSize, "count"))
	return v
}
