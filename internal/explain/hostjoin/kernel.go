package hostjoin

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/report"
)

// HowKernel is the source of a verdict that the kernel's events show.
const HowKernel = "the kernel's events"

// maxProcesses bounds the processes of a report.
const maxProcesses = 10

// AddKernel adds the summary of the kernel's events to a report, and marks the causes that they show as observed. If the events
// are complete, it also replaces the verdict on throttling: they show each interval in which a quota held a thread back.
// arrivals is the number of requests whose arrival was seen. name calls its argument for each process that delayed threads,
// with the time in ns.
func AddKernel(rep *report.Report, t *threadstate.Tracker, w Window, arrivals int64, name func(*threadstate.Summary, func(string, int64))) {
	s := t.Summary()
	k := &report.Kernel{
		FromNS: max(0, t.Start()-w.Start), ToNS: min(w.End, t.End()) - w.Start, Lost: s.Lost, RunningNS: s.RunningNS,
		CPUNS: s.ByKind[threadstate.OnCPU], CPUWaitNS: s.ByKind[threadstate.Waiting], ThrottledNS: s.ByKind[threadstate.Throttled],
		DiskNS: s.ByKind[threadstate.Disk], AsleepNS: s.ByKind[threadstate.Asleep], StoppedNS: s.ByKind[threadstate.Stopped],
		SoftirqNS: s.SoftirqNS, Arrivals: arrivals, Processes: []report.ProcessShare{}, Retransmitted: []report.KernelRetransmissions{},
	}
	stateNS := k.CPUNS + k.CPUWaitNS + k.ThrottledNS + k.DiskNS + k.AsleepNS + k.StoppedNS
	if part := float64(k.ToNS-k.FromNS) / float64(max(1, w.End-w.Start)); s.RunningNS > 0 {
		k.Coverage = min(1, part*float64(stateNS)/float64(s.RunningNS))
	}
	name(&s, func(text string, ns int64) {
		if k.CPUWaitNS > 0 && text != "" {
			k.Processes = append(k.Processes, report.ProcessShare{Process: text, Share: float64(ns) / float64(k.CPUWaitNS)})
		}
	})
	slices.SortFunc(k.Processes, func(a, b report.ProcessShare) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Process, b.Process))
	})
	k.Processes = k.Processes[:min(len(k.Processes), maxProcesses)]
	for _, r := range s.Retransmissions {
		out := report.KernelRetransmissions{Local: r.Local, Remote: r.Remote, Count: len(r.Times), WhenNS: []int64{}}
		for _, at := range r.Times[:min(len(r.Times), maxSeries)] {
			out.WhenNS = append(out.WhenNS, at-w.Start)
		}
		k.Retransmitted = append(k.Retransmitted, out)
	}
	rep.Kernel = k
	markObserved(rep, k.IsComplete())
	if k.IsComplete() {
		replaceThrottleByKernel(rep, &s)
		if rep.Runtime.Series != nil {
			rep.Runtime.Series.Freezes = longestFreezes(s.Freezes, w)
		}
	}
}

// longestFreezes returns the longest freezes within the trace as [start, length], relative to its start, in order of time.
func longestFreezes(freezes []freeze.Interval, w Window) (out [][2]int64) {
	for _, x := range freezes {
		if start, end := max(x.Start, w.Start), min(x.End, w.End); start < end {
			out = append(out, [2]int64{start - w.Start, end - start})
		}
	}
	slices.SortFunc(out, func(a, b [2]int64) int { return cmp.Compare(b[1], a[1]) })
	out = out[:min(len(out), maxSeries)]
	slices.SortFunc(out, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	return out
}

// leastPeerShare is the least share of a wait for which the state of the peer must be known.
const leastPeerShare = 0.95

// markObserved sets Observed of the report's cause rows that the kernel's events show. Rows of causes cpu, syscall and throttle
// are sums over all time, so they are observed only if the events are complete.
func markObserved(rep *report.Report, isComplete bool) {
	mark := func(list []report.Cause) {
		for i := range list {
			switch c := &list[i]; c.Cause {
			case report.CauseCPUWait, report.CauseDisk:
				c.Observed = true
			case report.CauseSchedPoll:
				c.Observed = c.Kind == report.Arrived
			case report.CauseNetwork:
				share := 0.0
				for k := range c.PeerStates {
					share += c.PeerStates[k].Share
				}
				c.Observed = share >= leastPeerShare
			case report.CauseCPU, report.CauseSyscall, report.CauseThrottle:
				c.Observed = isComplete
			}
		}
	}
	for i := range rep.Groups {
		for k := range rep.Groups[i].Bands {
			mark(rep.Groups[i].Bands[k].Causes)
		}
	}
}

// replaceThrottleByKernel sets the report's verdict on throttling from the kernel's events. The owner of the quota (the own
// group or an ancestor) is that of the host samples, if they have one.
func replaceThrottleByKernel(rep *report.Report, s *threadstate.Summary) {
	t := &rep.Runtime.Throttle
	verdict := report.ThrottleNone
	if s.LostCPUNS > 0 {
		verdict = report.ThrottleOwn
		switch {
		case rep.Host != nil && rep.Host.Quota.Verdict.HeldBack():
			verdict = rep.Host.Quota.Verdict
		case s.HasAncestorQuota && !s.HasOwnQuota:
			verdict = report.ThrottleAncestor
		}
	}
	if t.Text != howSamples && t.Text != "" && rep.Host != nil {
		inferred := *t
		rep.Host.Freezes = &inferred
	}
	*t = report.Throttle{Verdict: verdict, Text: HowKernel, Confidence: 1, PeriodNS: cmp.Or(s.PeriodNS, t.PeriodNS), CPUs: t.CPUs, LostCPUNS: s.LostCPUNS, Freezes: len(s.Freezes)}
	for _, x := range s.Freezes {
		t.LostWallNS += x.Length()
	}
}
