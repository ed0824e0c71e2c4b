// Package moments finds short intervals, moments, in which many of the slowest requests of a group begin, and lists
// what happened in them: a garbage collection, a stop of the world, a freeze, a herd of goroutines that timers woke.
//
// The Sum stores the slowest requests of each group, how many requests began in each interval of threshold.TimeSliceNS, and
// when requests waited for a P. After the pass, Find returns the moments of a group, and AddEvents adds the events of
// the process to them.
package moments

import (
	"cmp"
	"sync"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// Bounds of the data that is stored of a group: its maxSlowest slowest requests, and the number of requests that began in each
// interval of threshold.TimeSliceNS, for at most maxIntervals intervals.
const (
	maxSlowest   = 2048
	maxIntervals = 1 << 16
)

// A slowRequest is one of the slowest requests of a group.
type slowRequest struct {
	start, end int64
	g          uint64
	weight     int64
	cause      path.CauseID // the cause that took most of the request's time
}

// A groupRecord stores the slowest requests of one group, and when its requests began and waited.
type groupRecord struct {
	slowest                 *sample.TopN[slowRequest]
	beganByInterval         map[int64]int64 // requests that began, by interval; nil after an overflow
	hasOverflowed           bool            // there were more than maxIntervals intervals
	lastInterval, lastCount int64           // lastCount further requests began in lastInterval; flushBegins adds them to beganByInterval
	cpuWaits                waitHistogram
}

func newGroupRecord() *groupRecord {
	return &groupRecord{slowest: sample.New(maxSlowest, slowerFirst), beganByInterval: make(map[int64]int64)}
}

// A Sum stores the slowest requests of each group. It implements pass.Sum.
type Sum struct {
	adders []*adder
	merged adder
}

// New returns an empty Sum.
func New() *Sum { return new(Sum) }

// NewAdder implements pass.Sum: it returns an empty adder for one worker.
func (s *Sum) NewAdder(*path.Stage) path.Adder {
	p := new(adder)
	s.adders = append(s.adders, p)
	return p
}

// Merge combines the records of all workers by the merged ids of groups and causes: the slowest requests, the numbers of
// requests that began, and the waits for a P.
func (s *Sum) Merge(ts []path.Translation) {
	var byGroup [][]*groupRecord
	for i, p := range s.adders {
		for id, record := range p.groups {
			if record == nil {
				continue
			}
			for k, r := range record.slowest.Elements() {
				record.slowest.Elements()[k].cause = ts[i].Causes[r.cause]
			}
			record.flushBegins()
			slot := entry.GetOrGrow(&byGroup, ts[i].Groups[id])
			*slot = append(*slot, record)
		}
	}
	var merges sync.WaitGroup
	for id, records := range byGroup {
		if len(records) == 0 {
			continue
		}
		merged := records[0]
		*entry.GetOrGrow(&s.merged.groups, path.GroupID(id)) = merged
		merges.Go(func() {
			for _, record := range records[1:] {
				merged.slowest.Merge(record.slowest)
				merged.cpuWaits.merge(&record.cpuWaits)
				merged.hasOverflowed = merged.hasOverflowed || record.hasOverflowed
				for interval, n := range record.beganByInterval {
					merged.countBegin(interval, n)
				}
				merged.flushBegins()
			}
		})
	}
	merges.Wait()
	s.adders = nil
}

// recordOf returns the merged record of a group, nil if there is none.
func (s *Sum) recordOf(id path.GroupID) *groupRecord {
	if int(id) >= len(s.merged.groups) {
		return nil
	}
	return s.merged.groups[id]
}

// An adder is one worker's part of a Sum.
type adder struct {
	groups []*groupRecord // by path.GroupID
}

// recordOf returns the worker's record of a group.
func (p *adder) recordOf(id path.GroupID) *groupRecord {
	k := entry.GetOrGrow(&p.groups, id)
	if *k == nil {
		*k = newGroupRecord()
	}
	return *k
}

// Add records when a request began and, if it was walked to its end, its waits for a P and, if it is one of the slowest, the
// request with its largest cause. It implements path.Adder.
func (p *adder) Add(w *path.WalkResult) {
	if w.Form == path.NotWalked {
		k := p.recordOf(w.Group)
		for i := range w.Units {
			k.countBegin(w.Units[i].Start/threshold.TimeSliceNS, 1)
		}
		return
	}
	if !w.IsComplete() || len(w.CauseTimes) == 0 {
		return
	}
	k := p.recordOf(w.Group)
	k.countBegin(w.Start/threshold.TimeSliceNS, w.CountedRequests())
	for i := range w.Segments {
		if c := w.Segments[i].Code.Cause(); c == cause.Sched || c == cause.SchedPoll {
			k.cpuWaits.add(w.Segments[i].Start, w.Segments[i].End, w.Weight)
		}
	}
	if fastest, isFull := k.slowest.Last(); isFull && w.Latency() < fastest.end-fastest.start {
		return
	}
	top := &w.CauseTimes[0]
	for i := range w.CauseTimes {
		if s := &w.CauseTimes[i]; s.NS > top.NS {
			top = s
		}
	}
	k.slowest.Add(slowRequest{w.Start, w.Req.End, w.Req.G, w.Weight, top.Cause})
}

// countBegin counts n requests that began in an interval, given by its number. Counts of one interval are held until another is
// given, so callers go from interval to interval. After an overflow it does nothing.
func (k *groupRecord) countBegin(interval, n int64) {
	if k.hasOverflowed {
		return
	}
	// Most requests begin in the same interval as the one before.
	if interval != k.lastInterval {
		k.flushBegins()
		k.lastInterval = interval
	}
	k.lastCount += n
}

// flushBegins adds the requests of the interval that was counted last to beganByInterval. Call it before reading beganByInterval
// and hasOverflowed: with more than maxIntervals intervals it drops all counts and sets hasOverflowed.
func (k *groupRecord) flushBegins() {
	if k.lastCount == 0 || k.hasOverflowed {
		return
	}
	k.beganByInterval[k.lastInterval] += k.lastCount
	k.lastCount = 0
	if len(k.beganByInterval) > maxIntervals {
		k.hasOverflowed, k.beganByInterval = true, nil
	}
}

// slowerFirst orders requests, the slowest first. No two requests are equal, so their order of arrival has no effect
// on which are stored.
func slowerFirst(a, b slowRequest) int {
	if x, y := a.end-a.start, b.end-b.start; x != y {
		return cmp.Compare(y, x)
	}
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g))
}
