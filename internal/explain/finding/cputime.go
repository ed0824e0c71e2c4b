package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

func cpuTimeRule() Rule {
	return Rule{
		Code: report.RuleThreadsOffCPU, Name: "threads-off-cpu",
		Summary: "goroutines that show as running were often not on a CPU",
		Doc: Doc{
			Means: "A goroutine shows as running while its thread may be waiting for a CPU: a quota (WL4), busy neighbours, or more Ps than CPUs (WL1005). Then time given to computing (cause cpu), and what " +
				"others waited for it, is partly the kernel's doing, and a CPU profile shows less than the trace.",
			Measured: "By host samples the process's threads had a CPU for less than 70 % of the time in which goroutines ran on Ps, which was half a second or more. Without host samples, by CPU samples: they come at 100 a second of " +
				"CPU time, and those outside of the scheduler stand for less than 70 % of it.",
			Wrong: "If a profile was set to another rate, or was started later than the trace.",
		},
		Run: func(in *Input) []Verdict {
			if h := in.Report.Host; h != nil && h.Lost.CPUNS != nil && h.Lost.BusyNS != nil {
				had := hadCPU(in)
				if had < 0 || had >= scale.Most {
					return nil
				}
				return offCPU(0.9, report.Evidence{Text: "of their running time, the process's threads had a CPU", Value: had, Unit: "share"})
			}
			s := &in.Process.Samples
			expected := float64(in.Process.BusyNS) / report.SampleNS
			got := float64(s.All - s.Scheduler)
			// A profile over a part of the trace says nothing; without samples there was none.
			if in.Process.BusyNS < scale.Running || s.All < scale.Enough || got >= scale.Most*expected {
				return nil
			}
			return offCPU(0.6, report.Evidence{Text: "of their running time, CPU samples saw", Value: got / expected, Unit: "share"},
				report.Evidence{Text: fmt.Sprintf("CPU samples, of %.0f to be expected", expected), Value: got, Unit: "count"})
		},
	}
}

// hadCPU returns for which share of the time in which goroutines ran on Ps the process's threads had a CPU, by their own clocks; -1
// if nobody read these, or if there was little of it.
func hadCPU(in *Input) float64 {
	h := in.Report.Host
	if h == nil || h.Lost.CPUNS == nil || h.Lost.BusyNS == nil || *h.Lost.BusyNS < scale.Running {
		return -1
	}
	return float64(*h.Lost.CPUNS) / float64(*h.Lost.BusyNS)
}

func offCPU(confidence float64, evidence ...report.Evidence) []Verdict {
	return doubt(report.Finding{
		Title: "goroutines that show as running were often not on a CPU", Confidence: confidence, Evidence: evidence,
		Fix: "look at the limits of the process and its machine: whylate limits, cpu.stat, the run queue",
	})
}
