package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

func cpuTimeRule() Rule {
	return Rule{
		Code: report.RuleThreadsOffCPU, Name: "threads-off-cpu",
		Summary: "goroutines shown as running were often not on a CPU",
		Doc: Doc{
			Means: "A goroutine shows as running while its thread may be waiting for a CPU: because of a quota (WL4), other processes on the machine, or more Ps " +
				"than CPUs (WL1005). Part of the time reported as computing (cause cpu), and of the time that others waited for it, then belongs to the " +
				"kernel, and a CPU profile shows less than the trace.",
			Measured: "By host samples the process's threads had a CPU for less than 70 % of the time in which goroutines ran on Ps, and that time is at least half " +
				"a second. Without host samples, by CPU samples: they are taken 100 times per second of CPU time, and those outside of the scheduler cover " +
				"less than 70 % of that time.",
			Wrong: "If a profile was set to another rate, or started later than the trace.",
		},
		Run: func(in *Input) []Verdict {
			if h := in.Report.Host; h != nil && h.Lost.CPUNS != nil && h.Lost.BusyNS != nil {
				had := hadCPU(in)
				if had < 0 || had >= scale.Most {
					return nil
				}
				return offCPU(0.9, report.Evidence{Text: "share of running time in which the process's threads had a CPU", Value: had, Unit: "share"})
			}
			s := &in.Process.Samples
			expected := float64(in.Process.BusyNS) / report.SampleNS
			got := float64(s.All - s.Scheduler)
			// A profile over a part of the trace says nothing; without samples there was none.
			if in.Process.BusyNS < scale.Running || s.All < scale.Enough || got >= scale.Most*expected {
				return nil
			}
			return offCPU(0.6, report.Evidence{Text: "share of running time that CPU samples cover", Value: got / expected, Unit: "share"},
				report.Evidence{Text: fmt.Sprintf("CPU samples, of %.0f expected", expected), Value: got, Unit: "count"})
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
		Title: "goroutines shown as running were often not on a CPU", Confidence: confidence, Evidence: evidence,
		Fix: "check the limits of the process and its machine: whylate limits, cpu.stat, the run queue",
	})
}
