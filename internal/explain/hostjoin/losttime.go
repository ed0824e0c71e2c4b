package hostjoin

import (
	"iter"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/report"
)

// delaySteps returns the steps of the time in which threads waited for a CPU.
func (v *view) delaySteps() iter.Seq[step] {
	return v.stepsOf(v.s.Points, false, func(x *host.Sample) *int64 { return x.RunDelayNS })
}

// cpuSteps returns the steps of the process's CPU time: in ns if the kernel has it for each thread, else in ticks of
// 10 ms.
func (v *view) cpuSteps() iter.Seq[step] {
	fine := v.stepsOf(v.s.Points, false, func(x *host.Sample) *int64 { return x.RunNS })
	if v.totalGrowth(fine) != nil {
		return fine
	}
	return v.stepsOf(v.s.Points, false, func(x *host.Sample) *int64 {
		if x.UserNS == nil || x.SystemNS == nil {
			return nil
		}
		return new(*x.UserNS + *x.SystemNS)
	})
}

// throttledSteps returns the growth, from sample to sample, of the throttled time in ns, summed over CPUs: that of the control
// group by any quota (the kernel's local counter), else that by its own quota plus that by its ancestors' quotas.
func (v *view) throttledSteps() iter.Seq[step] {
	return v.stepsOf(v.s.Points, true, func(x *host.Sample) *int64 {
		switch {
		case x.LocalThrottledNS != nil:
			return x.LocalThrottledNS
		case x.ThrottledNS != nil:
			return new(*x.ThrottledNS + orZero(x.AncestorThrottledNS))
		}
		return nil
	})
}

// longDelayNS returns the time in which threads waited for a CPU for at least 1 ms between two samples, in total; nil if the
// samples do not record single threads.
func (v *view) longDelayNS() *int64 {
	total := int64(0)
	for i := range v.s.Points {
		if p := &v.s.Points[i]; p.MonoNS+v.offset > v.from && p.MonoNS+v.offset <= v.to {
			for _, x := range p.ThreadWaits {
				total += x[1]
			}
		}
	}
	if total == 0 && !v.s.HasStates {
		return nil
	}
	return &total
}

// addLostTime sets h.Lost: the time in which threads were ready but did not run, divided by cause (quota, run queue, steal).
func (v *view) addLostTime(h *report.Host, rep *report.Report) {
	lost := &h.Lost
	lost.RunDelayNS, lost.CPUNS = v.totalGrowth(v.delaySteps()), v.totalGrowth(v.cpuSteps())
	lost.LongDelayNS = v.longDelayNS()
	lost.QuotaNS = v.totalGrowth(v.throttledSteps())
	if lost.QuotaNS != nil && h.Quota.Verdict == report.ThrottleUnknown && *lost.QuotaNS == 0 {
		lost.QuotaNS = nil // the own quota did not throttle, and ancestors' counters are not visible
	}
	lost.StealNS = v.totalGrowth(v.stepsOf(v.s.Seconds, false, func(x *host.Sample) *int64 { return x.StealNS }))
	lost.MachineNS = v.totalGrowth(v.stepsOf(v.s.Seconds, false, func(x *host.Sample) *int64 { return x.MachineCPUNS }))
	lost.PressureNS = v.totalGrowth(v.stepsOf(v.s.Seconds, false, func(x *host.Sample) *int64 { return x.PressureNS }))
	if busyTime, ok := busyNS(rep, v.from-v.start, v.to-v.start); ok {
		lost.BusyNS = &busyTime
	}
	if lost.RunDelayNS != nil && lost.QuotaNS != nil {
		queue, unsplit, unthrottled := v.splitDelay()
		lost.RunQueueNS, lost.UnsplitNS = &queue, &unsplit
		if lost.BusyNS != nil && lost.CPUNS != nil && *lost.QuotaNS > 0 {
			offNS := v.offCPUNS(rep, unthrottled)
			lost.OffCPUNS = &offNS
		}
	}
	if lost.BusyNS != nil && lost.CPUNS != nil && lost.RunQueueNS != nil {
		rest := max(0, *lost.BusyNS-*lost.CPUNS-*lost.QuotaNS-*lost.RunQueueNS-*lost.UnsplitNS)
		lost.UnexplainedNS = &rest
	}
}

// splitDelay divides the time in which threads waited for a CPU between the run queue and the quota. The kernel counts a
// thread's wait when it ends, and a throttled interval as well: both appear in the same sample, or in the next ones if threads
// queue up after the throttled interval. So if no quota throttled the group in a sample and in the samples next to it, all
// delay is the run queue's. Otherwise the delay is the quota's up to the throttled time; the rest (unsplit) is several threads
// behind one quota, or other processes. unthrottled are the intervals without throttling, with their delay.
func (v *view) splitDelay() (queue, unsplit int64, unthrottled []step) {
	type delayStep struct {
		step
		throttledNS int64
	}
	var steps []delayStep
	for d := range v.delaySteps() {
		steps = append(steps, delayStep{step: d})
	}
	k := 0
	for d := range v.throttledSteps() {
		for k < len(steps)-1 && steps[k].to < d.to {
			k++
		}
		steps[k].throttledNS += d.growthIn(v.from, v.to)
	}
	isNearThrottling := func(i int) bool {
		for j := max(0, i-1); j <= min(i+1, len(steps)-1); j++ {
			if steps[j].throttledNS > 0 {
				return true
			}
		}
		return false
	}
	delay, quota := int64(0), int64(0) // of the current throttled interval
	flush := func() {
		unsplit += max(0, delay-quota)
		delay, quota = 0, 0
	}
	for i := range steps {
		part := steps[i].growthIn(v.from, v.to)
		if !isNearThrottling(i) {
			flush()
			queue += part
			if n := len(unthrottled); n > 0 && unthrottled[n-1].to == steps[i].from {
				unthrottled[n-1].to = steps[i].to
				unthrottled[n-1].growth += part
			} else {
				unthrottled = append(unthrottled, step{steps[i].from, steps[i].to, part})
			}
			continue
		}
		delay += part
		quota += steps[i].throttledNS
	}
	flush()
	return queue, unsplit, unthrottled
}

// offCPUNS returns the time within the unthrottled intervals in which goroutines showed as running without a CPU: the running
// time of the trace less the CPU time, at most the time in which threads waited for a CPU.
func (v *view) offCPUNS(rep *report.Report, unthrottled []step) (total int64) {
	cpuNS, first := make([]int64, len(unthrottled)), 0
	for d := range v.cpuSteps() {
		for first < len(unthrottled) && unthrottled[first].to <= d.from {
			first++
		}
		for i := first; i < len(unthrottled) && unthrottled[i].from < d.to; i++ {
			cpuNS[i] += d.growthIn(max(v.from, unthrottled[i].from), min(v.to, unthrottled[i].to))
		}
	}
	for i, d := range unthrottled {
		runningNS, _ := busyNS(rep, max(v.from, d.from)-v.start, min(v.to, d.to)-v.start)
		total += max(0, min(runningNS-cpuNS[i], d.growth))
	}
	return total
}

// busyNS returns the running time of goroutines in [from, to), relative to the trace's start, from the report's series; false
// if it has none.
func busyNS(rep *report.Report, from, to int64) (ns int64, ok bool) {
	r := rep.Runtime.Series
	if r == nil || len(r.Running) == 0 || r.StepNS <= 0 {
		return 0, false
	}
	total := 0.0
	for i, p := range r.Running {
		end := p[0] + r.StepNS
		if i+1 < len(r.Running) {
			end = min(end, r.Running[i+1][0])
		}
		end = min(end, rep.Input.DurationNS)
		if a, b := max(p[0], from), min(end, to); b > a {
			total += float64(p[1]) / 1000 * float64(b-a)
		}
	}
	return int64(total), true
}
