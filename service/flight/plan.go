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
	end    time.Time // its end
	took   time.Duration
	name   string // name, status and limit belong to a request
	status string
	limit  time.Duration
	text   string // for all other kinds
}

func (m *moment) trigger(hide *redact.Options) Trigger {
	t := Trigger{Kind: m.kind, Text: m.text, At: m.end, TookNS: int64(m.took)}
	if !isRequestKind(m.kind) {
		return t
	}
	t.Route, t.Status = hide.Route(markname.Clean(m.name)), m.status // as the trace calls it
	bound := ", longer than %v"
	if m.kind == KindUnusual {
		bound = "; in its last minutes %v was long"
	}
	t.Text = fmt.Sprintf("%s took %v"+bound, cmp.Or(t.Route, "a request"), m.took.Round(time.Microsecond), m.limit.Round(time.Microsecond))
	return t
}

func isRequestKind(k Kind) bool { return k == KindSlow || k == KindUnusual }

// A class is the kinds that share Options.Gap, because one fault causes all of them.
type class int

const (
	classRequests class = iota
	classFreeze
	classLatency
	classGoroutines
	classGC
	classCount
)

// classOf has the kinds whose class is not classRequests.
var classOf = map[Kind]class{KindFreeze: classFreeze, KindLatency: classLatency, KindGoroutines: classGoroutines, KindGC: classGC}

// maxNamed is how many triggers a recording names. The others are only counted.
const maxNamed = 8

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

	lastRecorded    [classCount]time.Time     // when the last recording of a class was taken
	longestRecorded [classCount]time.Duration // the longest moment in it
	lastTriggered   [classCount]time.Time     // when a class was last triggered
	waiting         []moment                  // the longest of each kind and route, at most maxNamed
	waitingCounts   map[Kind]uint64           // of all triggers that wait
	earliestBegin   time.Time                 // when the earliest of them began
	tailStart       time.Time                 // when the first tail begins
	lastTrigger     time.Time                 // when the last trigger came
	tailEnd         time.Time                 // when the last tail ended
}

const (
	snapshotMargin   = 500 * time.Millisecond // by how much a snapshot may start late
	maxTails         = 5                      // how often further triggers start the tail again
	openPollInterval = 25 * time.Millisecond  // how often open requests are counted

	// A moment that lasts farWorseFactor times as long as all in the last recording of its class
	// needs no gap.
	farWorseFactor = 4
)

// add takes a trigger, and reports whether a recording will hold it.
func (p *plan) add(m moment, now time.Time) bool {
	tailStart, class := now, classOf[m.kind]
	previousTrigger := p.lastTriggered[class]
	p.lastTriggered[class] = now
	if lastRecorded := p.lastRecorded[class]; !lastRecorded.IsZero() && now.Sub(lastRecorded) < p.gap {
		switch {
		case p.longestRecorded[class] > 0 && m.took >= farWorseFactor*p.longestRecorded[class]:
		case len(p.waiting) == 0 && now.Sub(previousTrigger) < maxTails*p.tail:
			return false // the last recording holds this fault's beginning
		default:
			tailStart = lastRecorded.Add(p.gap)
		}
	}
	begin := m.end.Add(-m.took)
	if len(p.waiting) > 0 {
		tailStart = earlierOf(tailStart, p.tailStart)
	}
	if tailStart.After(now) && tailStart.Add(p.tail+snapshotMargin).Sub(begin) > p.reach {
		return false // the ring will not hold it by then
	}
	if len(p.waiting) == 0 {
		p.earliestBegin, p.waitingCounts = begin, make(map[Kind]uint64)
	}
	p.tailStart, p.earliestBegin, p.lastTrigger = tailStart, earlierOf(p.earliestBegin, begin), now
	p.waitingCounts[m.kind]++
	isSameRequest := func(w moment) bool { return w.kind == m.kind && w.name == m.name }
	switch i := slices.IndexFunc(p.waiting, isSameRequest); {
	case i >= 0:
		if m.took > p.waiting[i].took {
			p.waiting[i] = m
		}
	case len(p.waiting) < maxNamed:
		p.waiting = append(p.waiting, m)
	default:
		// It replaces the shortest, but one of each kind stays.
		countByKind := make(map[Kind]int)
		for _, w := range p.waiting {
			countByKind[w.kind]++
		}
		shortest := -1
		for i, w := range p.waiting {
			if (w.kind == m.kind || countByKind[w.kind] > 1) && (shortest < 0 || w.took < p.waiting[shortest].took) {
				shortest = i
			}
		}
		if shortest >= 0 && (countByKind[m.kind] == 0 || p.waiting[shortest].took < m.took) {
			p.waiting[shortest] = m
		}
	}
	return true
}

func earlierOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// advance returns when to call it again, 0 if the snapshot is due now, and a negative value if
// no trigger waits. open counts the running requests that began between two times.
func (p *plan) advance(now time.Time, countOpen func(from, to time.Time) int) time.Duration {
	if len(p.waiting) == 0 {
		return -1
	}
	if wait := p.tailStart.Sub(now); wait > 0 {
		return wait
	}
	// The ring must not lose the beginning, but a short tail is always recorded.
	tail := min(p.tail, p.reach/4)
	tailStart := p.tailStart
	deadline := earlierOf(tailStart.Add(max(p.minAge/2, tail)), p.earliestBegin.Add(p.reach-snapshotMargin))
	if firstTailEnd := tailStart.Add(tail); deadline.Before(firstTailEnd) {
		deadline = firstTailEnd
	}
	end := earlierOf(earlierOf(p.lastTrigger.Add(tail), tailStart.Add(maxTails*tail)), deadline)
	if wait := end.Sub(now); wait > 0 {
		return wait
	}
	if p.tailEnd.IsZero() {
		p.tailEnd = now
	}
	if now.Before(deadline) && countOpen(now.Add(-p.reach), p.tailEnd) > 0 {
		return min(openPollInterval, deadline.Sub(now))
	}
	return 0
}

// takeWaiting returns and forgets the triggers for a snapshot that is taken now: the reason, the
// others that are named, and the number of each kind. Requests come first.
func (p *plan) takeWaiting(now time.Time) (reason moment, others []moment, counts map[Kind]uint64) {
	slices.SortStableFunc(p.waiting, func(a, b moment) int {
		return cmp.Or(btoi(isRequestKind(b.kind))-btoi(isRequestKind(a.kind)), cmp.Compare(b.took, a.took))
	})
	for k := range p.waitingCounts {
		p.lastRecorded[classOf[k]], p.longestRecorded[classOf[k]] = now, 0
	}
	for i := range p.waiting {
		c := classOf[p.waiting[i].kind]
		p.longestRecorded[c] = max(p.longestRecorded[c], p.waiting[i].took)
	}
	reason, others, counts = p.waiting[0], p.waiting[1:], p.waitingCounts
	p.dropWaiting()
	return reason, others, counts
}

// dropWaiting forgets the waiting triggers, and returns the number of each kind.
func (p *plan) dropWaiting() map[Kind]uint64 {
	counts := p.waitingCounts
	p.waiting, p.waitingCounts, p.tailEnd = nil, nil, time.Time{}
	return counts
}
