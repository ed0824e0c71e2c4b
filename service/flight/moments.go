package flight

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/service/internal/markname"
	"github.com/whylate/whylate/service/redact"
)

// A moment is a trigger as it comes: its text is made of those alone that are
// named in a recording.
type moment struct {
	kind   Kind
	at     time.Time // its end
	took   time.Duration
	name   string // of a request
	status string
	limit  time.Duration
	text   string // of others than requests
}

func (m *moment) trigger(hide *redact.Options) Trigger {
	t := Trigger{Kind: m.kind, Text: m.text, At: m.at, TookNS: int64(m.took)}
	if !ofRequest(m.kind) {
		return t
	}
	t.Route, t.Status = hide.Route(markname.Clean(m.name)), m.status // as the trace calls it
	words := ", longer than %v"
	if m.kind == KindUnusual {
		words = "; in its last minutes %v was long"
	}
	t.Text = fmt.Sprintf("%s took %v"+words, cmp.Or(t.Route, "a request"), m.took.Round(time.Microsecond), m.limit.Round(time.Microsecond))
	return t
}

func ofRequest(k Kind) bool { return k == KindSlow || k == KindUnusual }

// A class is of kinds that are one storm: after a recording of one of them the
// next of its class is Options.Gap away.
type class int

const (
	classRequests class = iota
	classFreeze
	classLatency
	classGoroutines
	classGC
	classesAll
)

func classOf(k Kind) class {
	switch k {
	case KindFreeze:
		return classFreeze
	case KindLatency:
		return classLatency
	case KindGoroutines:
		return classGoroutines
	case KindGC:
		return classGC
	}
	return classRequests
}

// mostNamed is how many triggers a recording names; the others are counted.
const mostNamed = 8

// A plan says when the next snapshot is taken and for which triggers. It reads no
// clock.
//
// What is slow seldom comes alone: a lock held for long makes a dozen requests
// late, a neighbour's freeze may come just before it. So a snapshot waits for the
// tail of the last trigger and then until those requests have ended that had
// begun, as long as the ring still holds the first trigger's beginning; one
// snapshot serves all that it holds. And what comes too soon after another
// recording of its class gets its own after the gap, if the ring still holds it then.
type plan struct {
	tail, gap, minAge time.Duration
	reach             time.Duration // how far back the ring reaches

	kept    [classesAll]time.Time     // when the last recording of a class was
	longest [classesAll]time.Duration // that it holds
	heard   [classesAll]time.Time     // and its last trigger
	waiting []moment                  // the longest of each kind and route, at most mostNamed
	counts  map[Kind]uint64           // of all that wait
	from    time.Time                 // where the first of them began
	due     time.Time                 // not before
	last    time.Time                 // of the triggers
	settled time.Time                 // since when nothing more came
}

// margin is what a snapshot's begin may be late by.
const margin = 500 * time.Millisecond

// mostTails is how often a tail begins again.
const mostTails = 5

// farWorse is by how much something must be longer than all that the last recording
// of its class holds to have its own without a gap: what was kept was small beside
// it. What grows and grows costs one recording for each such factor.
const farWorse = 4

// openEvery is how often those that are open are looked at.
const openEvery = 25 * time.Millisecond

// add takes a trigger, and reports whether a recording will hold it.
func (p *plan) add(m moment, now time.Time) bool {
	due, c := now, classOf(m.kind)
	heard := p.heard[c]
	p.heard[c] = now
	if kept := p.kept[c]; !kept.IsZero() && now.Sub(kept) < p.gap {
		switch {
		case p.longest[c] > 0 && m.took >= farWorse*p.longest[c]:
		case len(p.waiting) == 0 && now.Sub(heard) < mostTails*p.tail:
			return false // what was kept goes on
		default:
			due = kept.Add(p.gap)
		}
	}
	from := m.at.Add(-m.took)
	if len(p.waiting) > 0 {
		due = earlier(due, p.due)
	}
	if due.After(now) && due.Add(p.tail+margin).Sub(from) > p.reach {
		return false // gone until then
	}
	if len(p.waiting) == 0 {
		p.from, p.counts = from, make(map[Kind]uint64)
	}
	p.due, p.from, p.last = due, earlier(p.from, from), now
	p.counts[m.kind]++
	same := func(w moment) bool { return w.kind == m.kind && w.name == m.name }
	switch i := slices.IndexFunc(p.waiting, same); {
	case i >= 0:
		if m.took > p.waiting[i].took {
			p.waiting[i] = m
		}
	case len(p.waiting) < mostNamed:
		p.waiting = append(p.waiting, m)
	default:
		// The shortest of them gives way, but one of each kind stays.
		of := make(map[Kind]int)
		for _, w := range p.waiting {
			of[w.kind]++
		}
		least := -1
		for i, w := range p.waiting {
			if (w.kind == m.kind || of[w.kind] > 1) && (least < 0 || w.took < p.waiting[least].took) {
				least = i
			}
		}
		if least >= 0 && (of[m.kind] == 0 || p.waiting[least].took < m.took) {
			p.waiting[least] = m
		}
	}
	return true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// step says for how long nothing is to be done, and whether then, or now if that is
// 0, the snapshot is to be taken. It is negative if nothing waits. Open says how
// many requests have not ended that began between two moments.
func (p *plan) step(now time.Time, open func(from, to time.Time) int) time.Duration {
	if len(p.waiting) == 0 {
		return -1
	}
	if wait := p.due.Sub(now); wait > 0 {
		return wait
	}
	// What the ring would lose is not waited for, but a tail there is.
	tail := min(p.tail, p.reach/4)
	begun := p.due
	latest := earlier(begun.Add(max(p.minAge/2, tail)), p.from.Add(p.reach-margin))
	if first := begun.Add(tail); latest.Before(first) {
		latest = first
	}
	end := earlier(earlier(p.last.Add(tail), begun.Add(mostTails*tail)), latest)
	if wait := end.Sub(now); wait > 0 {
		return wait
	}
	if p.settled.IsZero() {
		p.settled = now
	}
	if now.Before(latest) && open(now.Add(-p.reach), p.settled) > 0 {
		return min(openEvery, latest.Sub(now))
	}
	return 0
}

// take returns the triggers that a snapshot that is taken now holds: why it is
// kept, what else it names, and all of them by kind.
func (p *plan) take(now time.Time) (why moment, also []moment, counts map[Kind]uint64) {
	// People wait for requests.
	slices.SortStableFunc(p.waiting, func(a, b moment) int {
		if a, b := ofRequest(a.kind), ofRequest(b.kind); a != b {
			return btoi(b) - btoi(a)
		}
		return cmp.Compare(b.took, a.took)
	})
	for k := range p.counts {
		p.kept[classOf(k)], p.longest[classOf(k)] = now, 0
	}
	for i := range p.waiting {
		c := classOf(p.waiting[i].kind)
		p.longest[c] = max(p.longest[c], p.waiting[i].took)
	}
	why, also, counts = p.waiting[0], p.waiting[1:], p.counts
	p.drop()
	return why, also, counts
}

// drop forgets what waits, and returns how many of each kind that was.
func (p *plan) drop() map[Kind]uint64 {
	counts := p.counts
	p.waiting, p.counts, p.settled = nil, nil, time.Time{}
	return counts
}
