package flight

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/service/internal/markname"
	"github.com/whylate/whylate/service/redact"
)

// A moment is a trigger before its text is made, which only those have that a recording
// names.
type moment struct {
	kind   Kind
	at     time.Time // its end
	took   time.Duration
	name   string // name, status and limit belong to a request
	status string
	limit  time.Duration
	text   string // for all other kinds
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

// A class is the kinds that share Options.Gap, because one fault causes all of them.
type class int

const (
	classRequests class = iota
	classFreeze
	classLatency
	classGoroutines
	classGC
	classesAll
)

// classOf has the kinds whose class is not classRequests.
var classOf = map[Kind]class{KindFreeze: classFreeze, KindLatency: classLatency, KindGoroutines: classGoroutines, KindGC: classGC}

// mostNamed is how many triggers a recording names. The others are only counted.
const mostNamed = 8

// A plan decides when to take the next snapshot, and for which triggers. It reads no
// clock.
//
// One fault makes many requests slow: those that wait for a lock, for example. So a
// snapshot waits for the tail after the last trigger, and then for the requests that have
// begun, as long as the ring holds the first trigger's beginning. One snapshot serves all
// triggers. A trigger within the gap after a recording of its class gets a recording when
// the gap ends, if the ring still holds it then.
type plan struct {
	tail, gap, minAge time.Duration
	reach             time.Duration // how far back the ring reaches

	kept    [classesAll]time.Time     // when the last recording of a class was taken
	longest [classesAll]time.Duration // the longest moment in it
	heard   [classesAll]time.Time     // when a class was last triggered
	waiting []moment                  // the longest of each kind and route, at most mostNamed
	counts  map[Kind]uint64           // of all triggers that wait
	from    time.Time                 // when the earliest of them began
	due     time.Time                 // when the first tail begins
	last    time.Time                 // when the last trigger came
	settled time.Time                 // when the last tail ended
}

const (
	margin    = 500 * time.Millisecond // by how much a snapshot may start late
	mostTails = 5                      // how often further triggers start the tail again
	openEvery = 25 * time.Millisecond  // how often open requests are counted

	// A moment that lasts farWorse times as long as all in the last recording of its class
	// needs no gap.
	farWorse = 4
)

// add takes a trigger, and reports whether a recording will hold it.
func (p *plan) add(m moment, now time.Time) bool {
	due, c := now, classOf[m.kind]
	heard := p.heard[c]
	p.heard[c] = now
	if kept := p.kept[c]; !kept.IsZero() && now.Sub(kept) < p.gap {
		switch {
		case p.longest[c] > 0 && m.took >= farWorse*p.longest[c]:
		case len(p.waiting) == 0 && now.Sub(heard) < mostTails*p.tail:
			return false // the last recording holds this fault's beginning
		default:
			due = kept.Add(p.gap)
		}
	}
	from := m.at.Add(-m.took)
	if len(p.waiting) > 0 {
		due = earlier(due, p.due)
	}
	if due.After(now) && due.Add(p.tail+margin).Sub(from) > p.reach {
		return false // the ring will not hold it by then
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
		// It replaces the shortest, but one of each kind stays.
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

// step returns when to call it again, 0 if the snapshot is due now, and a negative value if
// no trigger waits. open counts the running requests that began between two times.
func (p *plan) step(now time.Time, open func(from, to time.Time) int) time.Duration {
	if len(p.waiting) == 0 {
		return -1
	}
	if wait := p.due.Sub(now); wait > 0 {
		return wait
	}
	// The ring must not lose the beginning, but a short tail is always recorded.
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

// take returns and forgets the triggers for a snapshot that is taken now: the reason, the
// others that are named, and the number of each kind. Requests come first.
func (p *plan) take(now time.Time) (why moment, also []moment, counts map[Kind]uint64) {
	slices.SortStableFunc(p.waiting, func(a, b moment) int {
		return cmp.Or(btoi(ofRequest(b.kind))-btoi(ofRequest(a.kind)), cmp.Compare(b.took, a.took))
	})
	for k := range p.counts {
		p.kept[classOf[k]], p.longest[classOf[k]] = now, 0
	}
	for i := range p.waiting {
		c := classOf[p.waiting[i].kind]
		p.longest[c] = max(p.longest[c], p.waiting[i].took)
	}
	why, also, counts = p.waiting[0], p.waiting[1:], p.counts
	p.drop()
	return why, also, counts
}

// drop forgets the waiting triggers, and returns the number of each kind.
func (p *plan) drop() map[Kind]uint64 {
	counts := p.counts
	p.waiting, p.counts, p.settled = nil, nil, time.Time{}
	return counts
}
