package finding

import (
	"fmt"

	"github.com/whylate/whylate/report"
)

// eventNS is about what writing one event costs, with its stack: 81 to 93 ns of CPU in two goroutines that pass a number to and
// fro, with tracing against without (Go 1.26, amd64).
const eventNS = 90

// muchTracing is the share of the running time from when on tracing itself is worth a word.
const muchTracing = 0.10

func overheadRule() Rule {
	return Rule{
		Code: report.RuleTraceOverhead, Name: "trace-overhead",
		Summary: "writing the trace took a good part of the CPU",
		Doc: Doc{
			Means:    "The service made so many events that writing them down slowed it: what is short in truth (runs, hand-overs) looks longer, and saturation comes earlier.",
			Measured: fmt.Sprintf("Where the trace has CPU samples, the share of them in the tracer; otherwise events at %d ns each, against the time in which goroutines ran. Reported from %d %% on.", eventNS, int(100*muchTracing)),
			Wrong:    "The cost of an event depends on the machine and on how deep the stacks are. Findings about long waits are not touched by it.",
		},
		Run: func(in *Input) []Verdict {
			c := in.Process
			if c.BusyNS == 0 || c.SpanNS == 0 || c.Procs == 0 {
				return nil
			}
			share := float64(c.Events) * eventNS / float64(c.BusyNS)
			how := "of the running time for writing events, estimated"
			if c.Samples.All >= fewestSamples {
				share, how = float64(c.Samples.Tracing)/float64(c.Samples.All), "of the CPU samples in the tracer"
			}
			if share < muchTracing {
				return nil
			}
			return doubt(report.Finding{
				Title: "tracing itself took a good part of the CPU", Confidence: 0.7,
				Evidence: []report.Evidence{
					{Text: how, Value: min(share, 1), Unit: "share"},
					{Text: "events a second and P", Value: float64(c.Events) / (float64(c.SpanNS) / 1e9) / float64(c.Procs), Unit: "count"},
				},
				Fix: "trust waits more than short runs; trace under less load to see the service as it is otherwise",
			})
		},
	}
}
