package verdict

import (
	"github.com/whylate/whylate/internal/words"
	"github.com/whylate/whylate/report"
)

// Bounds of what is known of running time without a CPU.
const (
	mostlyOn    = 0.8   // running time that had a CPU for more than that is computing
	leastTimeNS = 200e6 // of running time whose samples can be counted
)

// onCPU returns for which part of its running time a band's requests really had a CPU: a goroutine shows as running while
// its thread waits for one that other processes have. The host's samples say whether that happened; CPU samples, where
// there are enough, how much of it this band met: a thread that waits is not sampled. It is 1 where nothing is known.
func onCPU(r *report.Report, b *report.Band) float64 {
	h := r.Host
	if h == nil || h.Lost.CPUNS == nil || h.Lost.RunDelayNS == nil {
		return 1
	}
	waited := *h.Lost.RunDelayNS
	if h.Lost.RunQueueNS != nil {
		waited = *h.Lost.RunQueueNS // what quotas took is another cause
	}
	if waited+*h.Lost.CPUNS <= 0 {
		return 1
	}
	on := float64(*h.Lost.CPUNS) / float64(waited+*h.Lost.CPUNS)
	if on >= mostlyOn {
		return 1
	}
	ran, samples := int64(0), 0
	for i := range b.Causes {
		if c := &b.Causes[i]; c.Cause == report.CauseCPU {
			ran += c.TotalNS
			samples += c.Samples
		}
	}
	if samples > 0 && ran >= leastTimeNS {
		on = min(1, float64(samples)*report.SampleNS/float64(ran))
	}
	return on
}

// withoutCPU says of running time that had a CPU for a part of it only that it is not computing.
func withoutCPU(causes []report.VerdictCause, r *report.Report, b *report.Band) {
	on := onCPU(r, b)
	if on >= mostlyOn {
		return
	}
	for i := range causes {
		if c := &causes[i]; c.Cause == report.CauseCPU {
			c.Words = "running, with a CPU for " + words.Percent(on) + " of it"
		}
	}
}
