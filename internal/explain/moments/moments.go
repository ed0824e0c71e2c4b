// Package moments finds short stretches of time in which many of the slowest requests of a group begin, and says what
// happened in them: a collection, a stop of the world, a freeze, a herd of goroutines that timers woke.
package moments

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// Bounds of what is kept of a group: so many of its slowest requests, and how many requests began in each stretch of
// beganNS, as long as there are at most maxIntervals of those.
const (
	maxSlowest   = 2048
	maxIntervals = 1 << 16
)

// A slow is one of the slowest requests.
type slowRequest struct {
	start, end int64
	g          uint64
	weight     int64
	cause      path.CauseID // that took the most of it
}

// groupRecord is what is kept of a group.
type groupRecord struct {
	slowest                 []slowRequest
	minLatency              int64           // what a latency must be to be among them
	beganByInterval         map[int64]int64 // by stretch; nil if there were too many
	hasOverflowed           bool
	lastInterval, lastCount int64 // n more began in stretch at
	cpuWaits                waitHistogram
}

// A Sum keeps the slowest requests of each group. It implements pass.Sum.
type Sum struct {
	adders []*adder
	merged adder
}

// New returns an empty Sum.
func New() *Sum { return new(Sum) }

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	p := &adder{stage: stage}
	s.adders = append(s.adders, p)
	return p
}

// Merge brings together what all workers kept, by the groups and causes of the report.
func (s *Sum) Merge(ts []path.Translation) {
	for i, p := range s.adders {
		for id, record := range p.groups {
			if record == nil {
				continue
			}
			merged := s.merged.recordOf(ts[i].Groups[id])
			for _, r := range record.slowest {
				r.cause = ts[i].Causes[r.cause]
				merged.addSlow(r)
			}
			merged.cpuWaits.merge(&record.cpuWaits)
			record.flushBegins()
			merged.hasOverflowed = merged.hasOverflowed || record.hasOverflowed
			for interval, n := range record.beganByInterval {
				merged.countBegin(interval, n)
			}
			merged.flushBegins()
		}
	}
	s.adders = nil
}

// recordOf returns what is kept of a group of the report, nil if nothing is.
func (s *Sum) recordOf(id path.GroupID) *groupRecord {
	if int(id) >= len(s.merged.groups) {
		return nil
	}
	return s.merged.groups[id]
}

type adder struct {
	stage  *path.Stage
	groups []*groupRecord // by path.GroupID
}

func (p *adder) recordOf(id path.GroupID) *groupRecord {
	k := entry.At(&p.groups, id)
	if *k == nil {
		*k = &groupRecord{beganByInterval: make(map[int64]int64)}
	}
	return *k
}

// Add implements pass.Adder.
func (p *adder) Add(w *path.WalkResult) {
	if w.Form == path.NotWalked {
		p.recordOf(w.Group).countBegin(w.Start/threshold.Slice, w.Weight)
		return
	}
	if !w.IsComplete() || len(w.CauseTimes) == 0 {
		return
	}
	k := p.recordOf(w.Group)
	k.countBegin(w.Start/threshold.Slice, w.CountedRequests())
	for i := range w.Segments {
		if c := w.Segments[i].Code.Cause(); c == cause.Sched || c == cause.SchedPoll {
			k.cpuWaits.add(w.Segments[i].Start, w.Segments[i].End, w.Weight)
		}
	}
	if w.Latency() < k.minLatency {
		return
	}
	top := &w.CauseTimes[0]
	for i := range w.CauseTimes {
		if s := &w.CauseTimes[i]; s.NS > top.NS {
			top = s
		}
	}
	k.addSlow(slowRequest{w.Start, w.Req.End, w.Req.G, w.Weight, top.Cause})
}

func (k *groupRecord) countBegin(interval, n int64) {
	if k.hasOverflowed {
		return
	}
	// Most begin in the stretch of the one before.
	if interval != k.lastInterval {
		k.flushBegins()
		k.lastInterval = interval
	}
	k.lastCount += n
}

// flushBegins counts those of the last stretch.
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

// slowerFirst orders requests, the slowest first. No two are equal, so which are kept does not depend on their order.
func slowerFirst(a, b slowRequest) int {
	if x, y := a.end-a.start, b.end-b.start; x != y {
		return cmp.Compare(y, x)
	}
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g))
}

// addSlow takes a request if it is among the slowest. From keep on, slow is a heap with the one on top that goes next.
func (k *groupRecord) addSlow(r slowRequest) {
	if len(k.slowest) < maxSlowest {
		if k.slowest = append(k.slowest, r); len(k.slowest) == maxSlowest {
			for i := maxSlowest/2 - 1; i >= 0; i-- {
				k.siftDown(i)
			}
			k.minLatency = k.slowest[0].end - k.slowest[0].start
		}
		return
	}
	if slowerFirst(r, k.slowest[0]) < 0 {
		k.slowest[0] = r
		k.siftDown(0)
		k.minLatency = k.slowest[0].end - k.slowest[0].start
	}
}

// siftDown moves an entry down to where it belongs in the heap.
func (k *groupRecord) siftDown(i int) {
	r := k.slowest[i]
	for {
		c := 2*i + 1
		if c >= len(k.slowest) {
			break
		}
		if c+1 < len(k.slowest) && slowerFirst(k.slowest[c], k.slowest[c+1]) < 0 {
			c++
		}
		if slowerFirst(k.slowest[c], r) <= 0 {
			break
		}
		k.slowest[i] = k.slowest[c]
		i = c
	}
	k.slowest[i] = r
}

// sortSlowest sorts what is kept, the slowest first. Nothing may be added afterwards.
func (k *groupRecord) sortSlowest() { slices.SortFunc(k.slowest, slowerFirst) }
