package threadstate

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// sums accumulate over the whole recording what Summary returns.
type sums struct {
	runningNS       int64 // time in which the trace shows goroutines as running
	byKind          [KindCount]int64
	waitByName      map[tracefmt.StringID]int64
	throttled       map[int32][]freeze.Interval // intervals in which a quota held a thread back, by CPU
	stopped         []freeze.Interval
	retransmissions map[uint64][]int64
	softirqNS, lost int64
	summedTo        int64
}

// maxIntervals bounds lists of intervals and times.
const maxIntervals = 1 << 16

func (s *sums) init() {
	s.waitByName, s.throttled, s.retransmissions = map[tracefmt.StringID]int64{}, map[int32][]freeze.Interval{}, map[uint64][]int64{}
}

// addRetransmission records the time of a retransmitted segment of a socket.
func (s *sums) addRetransmission(time int64, socket uint64) {
	if list := s.retransmissions[socket]; len(list) < maxIntervals {
		s.retransmissions[socket] = append(list, time)
	}
}

// add adds the running time of goroutines in a generation, divided by the state of their threads, and the throttled and stopped
// intervals of threads up to the generation's end.
func (s *sums) add(t *Tracker, g *timeline.Gen) {
	g.EachRun(max(g.Base, t.Start()), min(g.End, t.End()), func(r timeline.Run) {
		s.runningNS += r.To - r.From
		if th := t.byM[r.M]; th != nil {
			t.eachOfThread(th, r.From, r.To, func(x Interval) {
				s.byKind[x.Kind] += x.End - x.Start
				if x.Kind == Waiting {
					s.waitByName[x.Name] += x.End - x.Start
				}
			})
		}
	})
	from := cmp.Or(s.summedTo, g.Base)
	for _, th := range t.threads {
		for i := indexBefore(th.changes, from, func(c *change) int64 { return c.time }); i < len(th.changes) && th.changes[i].time < g.End; i++ {
			c := &th.changes[i]
			x := freeze.Interval{Start: max(from, c.time), End: g.End}
			if i+1 < len(th.changes) {
				x.End = min(x.End, th.changes[i+1].time)
			}
			switch {
			case x.End <= x.Start:
			case c.kind == Throttled && len(s.throttled[c.cpu]) < maxIntervals:
				s.throttled[c.cpu] = append(s.throttled[c.cpu], x)
			case c.kind == Stopped && len(s.stopped) < maxIntervals:
				s.stopped = append(s.stopped, x)
			}
		}
	}
	s.summedTo = g.End
}

// joinGapNS is the largest gap between two intervals of one freeze: after a refill, the first thread runs at once.
const joinGapNS = 1e6

// union returns the union of intervals; those at most joinGapNS apart are joined.
func union(list []freeze.Interval) []freeze.Interval {
	return joinIntervals(slices.Clone(list), joinGapNS)
}

// joinIntervals sorts intervals in place, and joins those that overlap or are at most gap ns apart.
func joinIntervals(list []freeze.Interval, gap int64) (out []freeze.Interval) {
	slices.SortFunc(list, func(a, b freeze.Interval) int { return cmp.Compare(a.Start, b.Start) })
	for _, x := range list {
		if n := len(out); n > 0 && x.Start <= out[n-1].End+gap {
			out[n-1].End = max(out[n-1].End, x.End)
		} else {
			out = append(out, x)
		}
	}
	return out
}

// A Summary has sums over the whole recording.
type Summary struct {
	// RunningNS is the time in which goroutines showed as running, within the time of the events. ByKind divides it by the
	// state of their threads; the rest is unknown.
	RunningNS int64
	ByKind    [KindCount]int64
	// WaitByName divides the time of Waiting by what had the CPU.
	WaitByName map[tracefmt.StringID]int64
	// Freezes are the intervals in which a quota held at least one thread back, LostCPUNS their time summed over CPUs.
	Freezes   []freeze.Interval
	LostCPUNS int64
	// Stopped are the intervals in which a signal, a debugger or the freezer of a control group held a thread.
	Stopped []freeze.Interval
	// Retransmissions has the times of segments that were sent again, by the socket's addresses.
	Retransmissions []Retransmissions
	// SoftirqNS is the time that interrupts took from the process's threads while they had a CPU.
	SoftirqNS int64
	Lost      int64
	// HasOwnQuota and HasAncestorQuota report whether the process's control group and one above it have a quota. PeriodNS is
	// the period of the tightest of them.
	HasOwnQuota, HasAncestorQuota bool
	PeriodNS                      int64
}

// Retransmissions are the segments of one connection that were sent again.
type Retransmissions struct {
	Local, Remote string
	Times         []int64
}

// Summary returns the sums of all generations so far: thread states, throttled and stopped intervals, retransmissions, quotas. It
// shares maps and lists with the tracker.
func (t *Tracker) Summary() Summary {
	s := &t.sums
	out := Summary{RunningNS: s.runningNS, ByKind: s.byKind, WaitByName: s.waitByName, SoftirqNS: s.softirqNS, Lost: s.lost}
	t.addQuotas(&out)
	var all []freeze.Interval
	for _, list := range s.throttled {
		for _, x := range union(list) {
			out.LostCPUNS += x.Length()
		}
		all = append(all, list...)
	}
	out.Freezes, out.Stopped = union(all), union(s.stopped)
	for x := range entry.Each(t.tables.Sockets) {
		if times := s.retransmissions[x.ID]; len(times) > 0 {
			out.Retransmissions = append(out.Retransmissions, Retransmissions{x.Local, x.Remote, times})
		}
	}
	slices.SortFunc(out.Retransmissions, func(a, b Retransmissions) int {
		return cmp.Or(cmp.Compare(len(b.Times), len(a.Times)), cmp.Compare(a.Local+a.Remote, b.Local+b.Remote))
	})
	return out
}

// addQuotas sets HasOwnQuota, HasAncestorQuota and PeriodNS from the recorded control groups.
func (t *Tracker) addQuotas(out *Summary) {
	ownGroups := map[uint64]bool{}
	for i := range t.tables.Threads {
		if th := &t.tables.Threads[i]; th.Own {
			ownGroups[th.Cgroup] = true
		}
	}
	tightest := math.Inf(1)
	for c := range entry.Each(t.tables.Cgroups) {
		if c.QuotaNS <= 0 || c.PeriodNS <= 0 {
			continue
		}
		isAncestor := false
		for group := range entry.Each(t.tables.Cgroups) {
			isAncestor = isAncestor || ownGroups[group.ID] && strings.HasPrefix(group.Path, strings.TrimSuffix(c.Path, "/")+"/")
		}
		if !ownGroups[c.ID] && !isAncestor {
			continue
		}
		out.HasOwnQuota, out.HasAncestorQuota = out.HasOwnQuota || ownGroups[c.ID], out.HasAncestorQuota || isAncestor
		if cpus := float64(c.QuotaNS) / float64(c.PeriodNS); cpus < tightest {
			tightest, out.PeriodNS = cpus, c.PeriodNS
		}
	}
}

// FreezesIn returns the parts of [from, to), in order and without overlaps, in which a quota held any thread back or a thread
// was stopped. isKnown is false if the kernel's events do not cover the whole interval.
func (t *Tracker) FreezesIn(from, to int64) (out []freeze.Interval, isKnown bool) {
	if from < t.Start() || to > t.End() || t.err != nil {
		return nil, false
	}
	for _, th := range t.threads {
		t.eachOfThread(th, from, to, func(x Interval) {
			if x.Kind == Throttled || x.Kind == Stopped {
				out = append(out, freeze.Interval{Start: x.Start, End: x.End})
			}
		})
	}
	return union(out), true
}
