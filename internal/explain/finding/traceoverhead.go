package finding

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// eventCostNS is the approximate cost of one event with its stack: 81 to 93 ns of CPU, measured in two goroutines that
// exchange a number, with tracing against without (Go 1.26, amd64).
const eventCostNS = 90

// checkTraceOverhead is WL5004, trace-overhead: tracing itself took threshold.NoticeableShare of the requests' time or more, by
// CPU samples in the tracer, if there are enough, or else by the number of events and eventCostNS; either is scaled by the share in which
// requests ran or were runnable. The verdict is a doubt about the recording, no fault of the service.
func checkTraceOverhead(in *Input) []Verdict {
	stats := in.Process
	if stats.BusyNS == 0 || stats.SpanNS == 0 || stats.Procs == 0 {
		return nil
	}
	share := float64(stats.Events) * eventCostNS / float64(stats.BusyNS)
	key := textKey("evidence writing-events")
	if stats.Samples.All >= threshold.TailSample {
		share, key = float64(stats.Samples.Tracing)/float64(stats.Samples.All), "evidence tracer-samples"
	}
	if share *= runnableShare(in.Report); share < threshold.NoticeableShare {
		return nil
	}
	return doubtVerdict(report.Finding{
		Title: textOf("title trace-overhead"), Fix: textOf("fix trace-overhead"), Confidence: 0.7,
		Evidence: []report.Evidence{
			evidenceOf(key, min(share, 1), "share"),
			evidenceOf("evidence event-rate", float64(stats.Events)/(float64(stats.SpanNS)/1e9)/float64(stats.Procs), "count"),
		},
	})
}

// runnableShare returns the share of requests' time in which a goroutine runs for them or is ready: only that part becomes longer
// by tracing.
func runnableShare(r *report.Report) float64 {
	var allNS, runNS int64
	for g := range each(r.Groups) {
		if g.Role != report.RoleRequests {
			continue
		}
		for c := range each(g.All().Causes) {
			allNS += c.TotalNS
			switch c.Cause {
			case report.CauseCPU, report.CauseSched, report.CauseSchedWake, report.CauseSchedPoll, report.CauseGCAssist:
				runNS += c.TotalNS
			}
		}
	}
	return ratio(runNS, allNS)
}
