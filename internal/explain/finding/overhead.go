package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// eventNS is about what writing one event costs, with its stack: 81 to 93 ns of CPU in two goroutines that pass a number to and
// fro, with tracing against without (Go 1.26, amd64).
const eventNS = 90

func overheadRule() Rule {
	return Rule{
		Code: report.RuleTraceOverhead, Name: "trace-overhead",
		Summary: "writing the trace used much of the CPU",
		Doc: Doc{
			Means: "The service produced so many events that writing them slowed it down: short runs and hand-overs look longer than they are, and saturation " +
				"comes earlier.",
			Measured: fmt.Sprintf("Where the trace has CPU samples, the share of them in the tracer; otherwise %d ns for each event, compared with the time in which goroutines "+
				"ran. The rule reports that share of the requests' time in which they run or wait to run, if it is at least %d %% of all their time. A "+
				"service that hardly runs loses nothing to tracing.", eventNS, int(100*scale.Some)),
			Wrong: "The cost of an event depends on the machine and on the depth of the stacks. Findings about long waits are not affected.",
		},
		Run: func(in *Input) []Verdict {
			c := in.Process
			if c.BusyNS == 0 || c.SpanNS == 0 || c.Procs == 0 {
				return nil
			}
			share := float64(c.Events) * eventNS / float64(c.BusyNS)
			how := "share of the requests' time spent writing events, estimated"
			if c.Samples.All >= scale.Many {
				share, how = float64(c.Samples.Tracing)/float64(c.Samples.All), "share of the requests' time in the tracer, by CPU samples"
			}
			if share *= runs(in.Report); share < scale.Some {
				return nil
			}
			return doubt(report.Finding{
				Title: "tracing itself used much of the CPU", Confidence: 0.7,
				Evidence: []report.Evidence{
					{Text: how, Value: min(share, 1), Unit: "share"},
					{Text: "events per second and P", Value: float64(c.Events) / (float64(c.SpanNS) / 1e9) / float64(c.Procs), Unit: "count"},
				},
				Fix: "trust waits more than short runs; trace under less load to see the service without that cost",
			})
		},
	}
}

// runs is the part of the time of requests in which something runs for them, or waits to.
func runs(r *report.Report) float64 {
	var all, run int64
	for i := range r.Groups {
		g := &r.Groups[i]
		if g.Role != report.RoleRequests || len(g.Bands) == 0 {
			continue
		}
		for k := range g.All().Causes {
			c := &g.All().Causes[k]
			all += c.TotalNS
			switch c.Cause {
			case report.CauseCPU, report.CauseSched, report.CauseSchedWake, report.CauseSchedPoll, report.CauseGCAssist:
				run += c.TotalNS
			}
		}
	}
	return part1(run, all)
}
