package hostjoin

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/report"
)

// Summarize returns the host section of a report: what the samples show about the time of a trace. It reads rep, which must be
// complete except for findings, and does not change it. It returns an error if the samples cannot be assigned to the trace's
// time.
func Summarize(samples *host.Samples, w Window, rep *report.Report) (*report.Host, error) {
	v, clock, ok := viewOf(samples, w)
	if !ok {
		return nil, fmt.Errorf("%w that can be joined with the trace: it has no clock of its own (Go before 1.25), and they do not say when it was asked for", host.ErrFormat)
	}
	if v.to <= v.from {
		first, last := time.Duration(v.traceTime(samples.Points[0].MonoNS)), time.Duration(v.traceTime(samples.Points[len(samples.Points)-1].MonoNS))
		return nil, fmt.Errorf("%w of the trace's time: they begin %v after its start and end %v after it", host.ErrFormat,
			first.Round(time.Millisecond), last.Round(time.Millisecond))
	}
	host := &report.Host{
		PID: samples.PID, FromNS: v.from - w.Start, ToNS: v.to - w.Start, Coverage: v.coverage(w),
		Samples: len(samples.Points), IntervalNS: samples.IntervalNS, Clock: clock, CostNS: samples.CostNS, States: samples.HasStates, Warnings: []report.Warning{},
	}
	copyFacts(samples, &host.Facts)
	for _, x := range samples.Warnings {
		host.Warnings = append(host.Warnings, report.Warning{Code: x.Code, Text: x.Text})
	}
	v.addQuota(host)
	v.addLostTime(host, rep)
	v.addMemory(host)
	v.addSeries(&host.Series)
	v.addNetwork(host, rep)
	return host, nil
}

// copyFacts copies the recorded facts about the machine and its limits; negative values become 0.
func copyFacts(s *host.Samples, f *report.HostFacts) {
	if s.Facts == nil {
		return
	}
	x := s.Facts
	*f = report.HostFacts{
		Kernel: x.Kernel, CPUs: max(0, x.CPUs), Parallelism: max(0, x.Parallelism), QuotaCPUs: max(0, x.QuotaCPUs), PeriodNS: max(0, x.QuotaPeriodNS),
		QuotaFrom: x.QuotaFile, QuotaDepth: max(0, x.QuotaDepth), QuotaHidden: x.HasHiddenGroups,
		MemoryBytes: max(0, x.MemoryBytes), MemoryFrom: x.MemoryFile, GOMAXPROCS: x.GOMAXPROCS, Go: x.Go,
	}
}

// addMemory sets the largest resident memory of the process and of its control group.
func (v *view) addMemory(h *report.Host) {
	for i := range v.s.Points {
		if p := &v.s.Points[i]; v.contains(p.MonoNS) {
			h.Memory.RSSMaxBytes = max(h.Memory.RSSMaxBytes, orZero(p.RSSBytes))
		}
	}
	for i := range v.s.Seconds {
		if x := &v.s.Seconds[i]; v.contains(x.MonoNS) {
			h.Memory.GroupMaxBytes = max(h.Memory.GroupMaxBytes, orZero(x.MemoryBytes))
		}
	}
}
