package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// checkThreadsOffCPU is WL5011, threads-off-cpu: threads had a CPU for less than threshold.MostShare of the time in which their
// goroutines show as running, by the threads' own clocks or else by the number of CPU samples. Computing in the report then
// contains other waits.
func checkThreadsOffCPU(in *Input) []Verdict {
	if in.Report.Kernel.IsComplete() {
		return nil // that time has the causes cpu-wait, throttle and disk
	}
	if host := in.Report.Host; host != nil && host.Lost.CPUNS != nil && host.Lost.BusyNS != nil {
		cpuShare := cpuShareOfRunning(in)
		if cpuShare < 0 || cpuShare >= threshold.MostShare {
			return nil
		}
		return offCPUVerdicts(0.9, evidenceOf("evidence threads-on-cpu", cpuShare, "share"))
	}
	samples := &in.Process.Samples
	expected := float64(in.Process.BusyNS) / report.SampleNS
	got := float64(samples.All - samples.Scheduler)
	// Few samples mean that no profile was recorded, or only in a part of the trace.
	if in.Process.BusyNS < threshold.SampledRunNS || samples.All < threshold.MedianSample || got >= threshold.MostShare*expected {
		return nil
	}
	return offCPUVerdicts(0.6, evidenceOf("evidence sampled-running", got/expected, "share"),
		evidenceOf("evidence cpu-samples", got, "count", "n", fmt.Sprintf("%.0f", expected)))
}

// cpuShareOfRunning returns the share of the goroutines' running time in which the process's threads had a CPU, by the threads'
// own clocks. It is -1 if these were not recorded, or if goroutines ran for less than threshold.SampledRunNS.
func cpuShareOfRunning(in *Input) float64 {
	host := in.Report.Host
	if host == nil || host.Lost.CPUNS == nil || host.Lost.BusyNS == nil || *host.Lost.BusyNS < threshold.SampledRunNS {
		return -1
	}
	return float64(*host.Lost.CPUNS) / float64(*host.Lost.BusyNS)
}

// offCPUVerdicts returns the finding of WL5011.
func offCPUVerdicts(confidence float64, evidence ...report.Evidence) []Verdict {
	return doubtVerdict(report.Finding{Title: textOf("title threads-off-cpu"), Fix: textOf("fix threads-off-cpu"), Confidence: confidence, Evidence: evidence})
}
