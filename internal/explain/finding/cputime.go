package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// checkThreadsOffCPU is WL5011, threads-off-cpu.
func checkThreadsOffCPU(in *Input) []Verdict {
	if h := in.Report.Host; h != nil && h.Lost.CPUNS != nil && h.Lost.BusyNS != nil {
		had := hadCPU(in)
		if had < 0 || had >= scale.Most {
			return nil
		}
		return offCPU(0.9, measured("share of running time in which the process's threads had a CPU", had, "share"))
	}
	s := &in.Process.Samples
	expected := float64(in.Process.BusyNS) / report.SampleNS
	got := float64(s.All - s.Scheduler)
	// A profile over a part of the trace says nothing; without samples there was none.
	if in.Process.BusyNS < scale.Running || s.All < scale.Enough || got >= scale.Most*expected {
		return nil
	}
	return offCPU(0.6, measured("share of running time that CPU samples cover", got/expected, "share"),
		measured(fmt.Sprintf("CPU samples, of %.0f expected", expected), got, "count"))
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
