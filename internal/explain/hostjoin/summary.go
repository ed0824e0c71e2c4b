package hostjoin

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/cgroup"
)

// A Window is the time of a trace, and the relation of its clock to other clocks.
type Window struct {
	Start, End int64 // the trace's clock, ns
	// Snapshot, taken at SnapshotTime on the trace's clock, is nil for traces from before Go 1.25.
	Snapshot     *tracefmt.ClockSnapshot
	SnapshotTime int64
}

// The clock by which the times of samples were converted to the trace's clock.
const (
	clockMonotonic = "monotonic"
	clockWall      = "wall"
	clockRequested = "asked" // by the time at which the trace was requested
)

// maxClockStep is the largest change of the difference between wall and monotonic clock during a recording. Two
// machines did not boot in the same second.
const maxClockStep = time.Second

// clockOffset returns the difference between the trace's clock and that of the samples, and the clock that it follows
// from.
func clockOffset(s *host.Samples, w Window) (offset int64, clock string, ok bool) {
	if w.Snapshot == nil {
		if s.TraceRequest == nil {
			return 0, "", false
		}
		return w.Start - s.TraceRequest.MonoNS, clockRequested, true
	}
	mono := int64(min(w.Snapshot.Mono, 1<<62))
	wall := time.Unix(int64(min(w.Snapshot.UnixSec, 1<<33)), int64(min(w.Snapshot.UnixNsec, 1e9))).UnixNano()
	p := &s.Points[0]
	if d := (p.WallNS - p.MonoNS) - (wall - mono); mono > 0 && d < int64(maxClockStep) && d > -int64(maxClockStep) {
		return w.SnapshotTime - mono, clockMonotonic, true
	}
	return w.SnapshotTime - wall + (p.WallNS - p.MonoNS), clockWall, true
}

// Summarize returns what the samples show about the time of a trace. It reads the trace's report, which is complete
// except for findings, and does not change it.
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

// A view is the samples in one interval of the trace.
type view struct {
	s        *host.Samples
	offset   int64 // trace clock minus sample clock
	start    int64 // of the trace, on the trace's clock
	from, to int64
}

// viewOf returns the samples in a window, and the clock of the conversion. ok is false if their times cannot be
// converted. The view is empty if all samples are outside the window.
func viewOf(s *host.Samples, w Window) (v view, clock string, ok bool) {
	offset, clock, ok := clockOffset(s, w)
	if !ok {
		return v, "", false
	}
	first, last := s.Points[0].MonoNS+offset, s.Points[len(s.Points)-1].MonoNS+offset
	return view{s: s, offset: offset, start: w.Start, from: max(w.Start, first), to: min(w.End, last)}, clock, true
}

// coverage returns the share of the window that the samples cover.
func (v *view) coverage(w Window) float64 { return float64(v.to-v.from) / float64(w.End-w.Start) }

// traceTime converts a sample's time to ns since the start of the trace.
func (v *view) traceTime(mono int64) int64 { return mono + v.offset - v.start }

// A step is the growth of a counter between two samples that contain it.
type step struct {
	from, to int64 // on the trace's clock
	growth   int64
}

// growthIn returns the growth in [from, to), assuming constant growth between the two samples.
func (d *step) growthIn(from, to int64) int64 {
	a, b := max(d.from, from), min(d.to, to)
	if b <= a || d.to <= d.from {
		return 0
	}
	if a == d.from && b == d.to {
		return d.growth
	}
	return int64(float64(d.growth) * float64(b-a) / float64(d.to-d.from))
}

// stepsOf returns the steps of a counter that overlap the view. The counter of a control group has no step where the
// process changes the group.
func (v *view) stepsOf(samples []host.Sample, isGroupCounter bool, counter func(*host.Sample) *int64) iter.Seq[step] {
	return func(yield func(step) bool) {
		var last *host.Sample
		for i := range samples {
			x := &samples[i]
			if counter(x) == nil {
				continue
			}
			if last != nil && (!isGroupCounter || x.GroupIndex == last.GroupIndex) {
				d := step{last.MonoNS + v.offset, x.MonoNS + v.offset, *counter(x) - *counter(last)}
				if d.growth >= 0 && d.to > v.from && d.from < v.to && !yield(d) {
					return
				}
			}
			last = x
		}
	}
}

// delaySteps returns the steps of the time for which threads waited for a CPU.
func (v *view) delaySteps() iter.Seq[step] {
	return v.stepsOf(v.s.Points, false, func(x *host.Sample) *int64 { return x.RunDelayNS })
}

// cpuSteps returns the steps of the process's CPU time: in ns if the kernel has it for each thread, else in ticks of
// 10 ms.
func (v *view) cpuSteps() iter.Seq[step] {
	fine := v.stepsOf(v.s.Points, false, func(x *host.Sample) *int64 { return x.RunNS })
	if v.sum(fine) != nil {
		return fine
	}
	return v.stepsOf(v.s.Points, false, func(x *host.Sample) *int64 {
		if x.UserNS == nil || x.SystemNS == nil {
			return nil
		}
		return new(*x.UserNS + *x.SystemNS)
	})
}

// throttledSteps returns the steps of the time for which quotas throttled the control group.
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

// sum returns the growth of a counter in the view; nil if it was not read.
func (v *view) sum(steps iter.Seq[step]) *int64 {
	total, read := int64(0), false
	for d := range steps {
		total, read = total+d.growthIn(v.from, v.to), true
	}
	if !read {
		return nil
	}
	return &total
}

// longDelayNS returns the waiting time for a CPU of threads that waited for at least 1 ms between two samples; nil if
// samples do not contain it.
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

// enclosingSamples returns the last sample before the view and the first one after it. The growth of the control
// group's counters between them is the effect of quotas.
func (v *view) enclosingSamples() (from, to *host.Sample) {
	points := v.s.Points
	a, _ := slices.BinarySearchFunc(points, v.from-v.offset+1, func(x host.Sample, t int64) int { return cmp.Compare(x.MonoNS, t) })
	b, _ := slices.BinarySearchFunc(points, v.to-v.offset, func(x host.Sample, t int64) int { return cmp.Compare(x.MonoNS, t) })
	return &points[max(a-1, 0)], &points[min(b, len(points)-1)]
}

func cgroupStat(sample *host.Sample) *cgroup.Stat {
	stat := &cgroup.Stat{}
	if sample.Periods != nil && sample.ThrottledNS != nil {
		stat.Has |= cgroup.HasBandwidth
		stat.Periods, stat.ThrottledPeriods, stat.Throttled = *sample.Periods, orZero(sample.ThrottledPeriods), time.Duration(*sample.ThrottledNS)
	}
	if sample.LocalThrottledNS != nil {
		stat.Has |= cgroup.HasLocal
		stat.Local = time.Duration(*sample.LocalThrottledNS)
	}
	if sample.AncestorsComplete {
		stat.Has |= cgroup.HasAncestors
	}
	stat.AncestorThrottled, stat.AncestorThrottledPeriods = time.Duration(orZero(sample.AncestorThrottledNS)), orZero(sample.AncestorThrottledPeriods)
	return stat
}

// orZero returns a counter, or 0 if it was not read.
func orZero(counter *int64) int64 {
	if counter == nil {
		return 0
	}
	return *counter
}

// addQuota compares the control group's counters at both ends of the view.
func (v *view) addQuota(h *report.Host) {
	from, to := v.enclosingSamples()
	if from.GroupIndex != to.GroupIndex {
		h.Quota = report.HostQuota{Verdict: report.ThrottleUnknown, Text: "the process was moved to another group during the recording"}
		return
	}
	c := cgroup.Compare(cgroupStat(from), cgroupStat(to))
	h.Quota = report.HostQuota{
		Verdict: report.ThrottleVerdict(c.Verdict), Text: c.Evidence, OwnNS: max(0, int64(c.Own)), AncestorNS: max(0, int64(c.Ancestor)),
		Periods: max(0, c.Periods), ThrottledPeriods: max(0, c.ThrottledPeriods),
	}
	h.Quota.Group = v.throttledGroup(c.Verdict)
}

// throttledGroup returns the control group whose quota throttled the process most, of the levels that samples contain.
func (v *view) throttledGroup(verdict cgroup.Verdict) string {
	if len(v.s.Seconds) < 2 || verdict != cgroup.VerdictOwn && verdict != cgroup.VerdictAncestor {
		return ""
	}
	from, to := &v.s.Seconds[0], &v.s.Seconds[len(v.s.Seconds)-1]
	if from.GroupIndex != to.GroupIndex {
		return ""
	}
	name, maxNS := "", int64(0)
	for _, b := range to.Levels {
		if (b.Depth == 0) != (verdict == cgroup.VerdictOwn) {
			continue
		}
		for _, a := range from.Levels {
			if a.Depth == b.Depth && a.GroupPath == b.GroupPath && b.ThrottledNS-a.ThrottledNS > maxNS {
				name, maxNS = b.GroupPath, b.ThrottledNS-a.ThrottledNS
			}
		}
	}
	return name
}

// addLostTime divides the time for which threads were ready but did not run by its causes.
func (v *view) addLostTime(h *report.Host, rep *report.Report) {
	lost := &h.Lost
	lost.RunDelayNS, lost.CPUNS = v.sum(v.delaySteps()), v.sum(v.cpuSteps())
	lost.LongDelayNS = v.longDelayNS()
	lost.QuotaNS = v.sum(v.throttledSteps())
	if lost.QuotaNS != nil && h.Quota.Verdict == report.ThrottleUnknown && *lost.QuotaNS == 0 {
		lost.QuotaNS = nil // the own quota did not throttle, and ancestors' counters are not visible
	}
	lost.StealNS = v.sum(v.stepsOf(v.s.Seconds, false, func(x *host.Sample) *int64 { return x.StealNS }))
	lost.MachineNS = v.sum(v.stepsOf(v.s.Seconds, false, func(x *host.Sample) *int64 { return x.MachineCPUNS }))
	lost.PressureNS = v.sum(v.stepsOf(v.s.Seconds, false, func(x *host.Sample) *int64 { return x.PressureNS }))
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

// splitDelay divides the waiting time for a CPU into the run queue's and the quota's. The kernel counts a thread's
// wait when it ends, and a throttled interval as well: both appear in the same sample, or in the next ones if threads
// queue up after the throttled interval. So if no quota throttled the group in a sample and in the samples next to it,
// all delay is the run queue's. Otherwise the delay is the quota's up to the throttled time; the rest (unsplit) is
// several threads behind one quota, or other processes. unthrottled are the intervals without throttling, with their
// delay.
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

// offCPUNS returns for how long goroutines showed as running without a CPU in the unthrottled intervals: the running
// time that the CPU time does not cover, at most the time for which threads waited for a CPU.
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

// busyNS returns for how long goroutines ran in a part of the trace, from the report's series; false if it has none.
func busyNS(rep *report.Report, from, to int64) (int64, bool) {
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

func (v *view) contains(mono int64) bool { return mono+v.offset >= v.from && mono+v.offset <= v.to }

// maxSeries bounds the number of points of each series.
const maxSeries = 500

func (v *view) addSeries(out *report.HostSeries) {
	out.ThrottledNS, out.RunDelayNS, out.CPUNS, out.RSSBytes = v.growthSeries(v.throttledSteps()), v.growthSeries(v.delaySteps()), v.growthSeries(v.cpuSteps()), v.rssSeries()
	out.Retransmitted = [][2]int64{}
	for _, e := range v.s.Events {
		if e.Retransmitted == 0 || e.Peer || !v.contains(e.Poll) {
			continue
		}
		if len(out.Retransmitted) == maxSeries {
			break
		}
		out.Retransmitted = append(out.Retransmitted, [2]int64{v.traceTime(e.Poll), e.Retransmitted})
	}
}

// growthSeries adds up the steps of a counter to one point for each pointWidth.
func (v *view) growthSeries(steps iter.Seq[step]) [][2]int64 {
	width, list := v.pointWidth(), [][2]int64{}
	for d := range steps {
		n, t := d.growthIn(v.from, v.to), min(d.to, v.to)-v.start
		if k := len(list) - 1; k >= 0 && t/width == list[k][0]/width {
			list[k] = [2]int64{t, list[k][1] + n}
			continue
		}
		list = append(list, [2]int64{t, n})
	}
	return list
}

// pointWidth returns the time between two points of a series.
func (v *view) pointWidth() int64 { return max((v.to-v.from)/maxSeries, v.s.IntervalNS, 1) }

// rssSeries returns the maximum of the resident memory for each pointWidth.
func (v *view) rssSeries() [][2]int64 {
	width, list := v.pointWidth(), [][2]int64{}
	for i := range v.s.Points {
		p := &v.s.Points[i]
		if p.RSSBytes == nil || !v.contains(p.MonoNS) {
			continue
		}
		t := v.traceTime(p.MonoNS)
		if k := len(list) - 1; k >= 0 && t/width == list[k][0]/width {
			list[k][1] = max(list[k][1], *p.RSSBytes)
			continue
		}
		list = append(list, [2]int64{t, *p.RSSBytes})
	}
	return list
}
