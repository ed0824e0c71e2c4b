// Package moments finds short stretches of time in which many of the slowest requests of a group begin, and says what
// happened in them: a collection, a stop of the world, a freeze, a herd of goroutines that timers woke.
package moments

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
)

// Bounds of what is kept of a group: so many of its slowest requests, and how many requests began in each stretch of
// beganNS, as long as there are at most maxBegan of those.
const (
	keep     = 2048
	maxBegan = 1 << 16
)

// A slow is one of the slowest requests.
type slow struct {
	start, end int64
	g          uint64
	weight     int64
	cause      path.CauseID // that took the most of it
}

// kept is what is kept of a group.
type kept struct {
	slow  []slow
	least int64           // what a latency must be to be among them
	began map[int64]int64 // by stretch; nil if there were too many
	over  bool
	at, n int64 // n more began in stretch at
	waits waiting
}

// A Sum keeps the slowest requests of each group. It implements pass.Sum.
type Sum struct {
	parts []*part
	all   part
}

// New returns an empty Sum.
func New() *Sum { return new(Sum) }

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	p := &part{stage: stage}
	s.parts = append(s.parts, p)
	return p
}

// Merge brings together what all workers kept, by the groups and causes of the report.
func (s *Sum) Merge(ts []path.Translation) {
	for i, p := range s.parts {
		for id, k := range p.groups {
			if k == nil {
				continue
			}
			to := s.all.group(ts[i].Groups[id])
			for _, r := range k.slow {
				r.cause = ts[i].Causes[r.cause]
				to.add(r)
			}
			to.waits.merge(&k.waits)
			k.settle()
			to.over = to.over || k.over
			for at, n := range k.began {
				to.begin(at, n)
			}
			to.settle()
		}
	}
	s.parts = nil
}

// of returns what is kept of a group of the report, nil if nothing is.
func (s *Sum) of(id path.GroupID) *kept {
	if int(id) >= len(s.all.groups) {
		return nil
	}
	return s.all.groups[id]
}

type part struct {
	stage  *path.Stage
	groups []*kept // by path.GroupID
}

func (p *part) group(id path.GroupID) *kept {
	k := entry.At(&p.groups, id)
	if *k == nil {
		*k = &kept{began: make(map[int64]int64)}
	}
	return *k
}

// Add implements pass.Adder.
func (p *part) Add(w *path.WalkResult) {
	if w.Form == path.NotWalked {
		p.group(w.Group).begin(w.Start/scale.Slice, w.Weight)
		return
	}
	if !w.IsComplete() || len(w.CauseTimes) == 0 {
		return
	}
	k := p.group(w.Group)
	k.begin(w.Start/scale.Slice, w.CountedRequests())
	for i := range w.Segments {
		if c := w.Segments[i].Code.Cause(); c == cause.Sched || c == cause.SchedPoll {
			k.waits.add(w.Segments[i].Start, w.Segments[i].End, w.Weight)
		}
	}
	if w.Latency() < k.least {
		return
	}
	top := &w.CauseTimes[0]
	for i := range w.CauseTimes {
		if s := &w.CauseTimes[i]; s.NS > top.NS {
			top = s
		}
	}
	k.add(slow{w.Start, w.Req.End, w.Req.G, w.Weight, top.Cause})
}

func (k *kept) begin(at, n int64) {
	if k.over {
		return
	}
	// Most begin in the stretch of the one before.
	if at != k.at {
		k.settle()
		k.at = at
	}
	k.n += n
}

// settle counts those of the last stretch.
func (k *kept) settle() {
	if k.n == 0 || k.over {
		return
	}
	k.began[k.at] += k.n
	k.n = 0
	if len(k.began) > maxBegan {
		k.over, k.began = true, nil
	}
}

// slowerFirst orders requests, the slowest first. No two are equal, so which are kept does not depend on their order.
func slowerFirst(a, b slow) int {
	if x, y := a.end-a.start, b.end-b.start; x != y {
		return cmp.Compare(y, x)
	}
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g))
}

// add takes a request if it is among the slowest. From keep on, slow is a heap with the one on top that goes next.
func (k *kept) add(r slow) {
	if len(k.slow) < keep {
		if k.slow = append(k.slow, r); len(k.slow) == keep {
			for i := keep/2 - 1; i >= 0; i-- {
				k.sift(i)
			}
			k.least = k.slow[0].end - k.slow[0].start
		}
		return
	}
	if slowerFirst(r, k.slow[0]) < 0 {
		k.slow[0] = r
		k.sift(0)
		k.least = k.slow[0].end - k.slow[0].start
	}
}

// sift moves an entry down to where it belongs in the heap.
func (k *kept) sift(i int) {
	r := k.slow[i]
	for {
		c := 2*i + 1
		if c >= len(k.slow) {
			break
		}
		if c+1 < len(k.slow) && slowerFirst(k.slow[c], k.slow[c+1]) < 0 {
			c++
		}
		if slowerFirst(k.slow[c], r) <= 0 {
			break
		}
		k.slow[i] = k.slow[c]
		i = c
	}
	k.slow[i] = r
}

// cut sorts what is kept, the slowest first. Nothing may be added afterwards.
func (k *kept) cut() { slices.SortFunc(k.slow, slowerFirst) }
