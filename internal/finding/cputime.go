package finding

import (
	"fmt"

	"github.com/whylate/whylate/report"
)

// sampleNS is the CPU time between two samples of runtime/pprof at its usual rate of 100 a second.
const sampleNS = 10e6

func cpuTimeRule() Rule {
	return Rule{
		Code: "WL5011", Name: "threads-off-cpu",
		Summary: "goroutines that show as running were often not on a CPU",
		Doc: Doc{
			Means: "A goroutine shows as running while its thread may be waiting for a CPU: a quota (WL4), busy neighbours, or more Ps than CPUs (WL1005). Then time given to computing (cause cpu), and what " +
				"others waited for it, is partly the kernel's doing, and a CPU profile shows less than the trace.",
			Measured: "CPU samples come at 100 a second of CPU time. The time they stand for, outside of the scheduler, is less than 70 % of the time in which goroutines ran on Ps; at least 50 were to be expected.",
			Wrong:    "If the profile was set to another rate, or was started later than the trace.",
		},
		Run: func(in *Input) []Verdict {
			s := &in.Census.Samples
			expected := float64(in.Census.BusyNS) / sampleNS
			got := float64(s.All - s.Scheduler)
			// A profile over a part of the trace says nothing; without a single sample there was none.
			if expected < 50 || s.All < 20 || got >= 0.7*expected {
				return nil
			}
			return doubt(report.Finding{
				Title: "goroutines that show as running were often not on a CPU", Confidence: 0.6,
				Evidence: []report.Evidence{
					{Text: "of their running time, CPU samples saw", Value: got / expected, Unit: "share"},
					{Text: fmt.Sprintf("CPU samples, of %.0f to be expected", expected), Value: got, Unit: "count"},
				},
				Fix: "look at the limits of the process and its machine: whylate limits, cpu.stat, the run queue",
			})
		},
	}
}
