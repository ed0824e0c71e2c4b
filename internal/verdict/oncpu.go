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

// onCPU returns for which part of its running time a band's requests really had a CPU, and whether that is what they had at
// most: a goroutine shows as running while its thread waits for a CPU that other processes have. The process's CPU time says
// how much of all running time had none, at the least; CPU samples, where there are enough, how much of it this band met: a
// thread that waits is not sampled. It is 1 where nothing is known.
func onCPU(r *report.Report, b *report.Band) (on float64, atMost bool) {
	if r.Host == nil {
		return 1, false
	}
	without, _ := r.Host.Lost.WithoutCPU()
	if on = 1 - without; on >= mostlyOn {
		return 1, false
	}
	ran, samples := int64(0), 0
	for i := range b.Causes {
		if c := &b.Causes[i]; c.Cause == report.CauseCPU {
			ran += c.TotalNS
			samples += c.Samples
		}
	}
	if samples > 0 && ran >= leastTimeNS {
		return min(1, float64(samples)*report.SampleNS/float64(ran)), false
	}
	return on, true
}

// withoutCPU says of running time that had a CPU for a part of it only that it is not computing.
func withoutCPU(causes []report.VerdictCause, r *report.Report, b *report.Band) {
	on, atMost := onCPU(r, b)
	if on >= mostlyOn {
		return
	}
	part := words.Percent(on)
	if atMost {
		part = "at most " + part
	}
	for i := range causes {
		if c := &causes[i]; c.Cause == report.CauseCPU {
			c.Words = "running, with a CPU for " + part + " of it"
		}
	}
}
