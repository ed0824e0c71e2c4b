package flight

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/service/internal/markname"
	"github.com/whylate/whylate/service/redact"
)

// A moment is a trigger before its text is formatted. Only the triggers that a recording
// names get a text.
type moment struct {
	kind   Kind
	end    time.Time // when the request, freeze or second ended
	took   time.Duration
	name   string // name, status and limit are set for requests
	status string
	limit  time.Duration
	text   string // set for all other kinds
}

// trigger returns the moment as a recording lists it, with its text and a redacted route.
func (m *moment) trigger(hide *redact.Options) Trigger {
	t := Trigger{Kind: m.kind, Text: m.text, At: m.end, TookNS: int64(m.took)}
	if !isRequestKind(m.kind) {
		return t
	}
	t.Route, t.Status = hide.Route(markname.Clean(m.name)), m.status // the same name as in the trace
	bound := ", longer than %v"
	if m.kind == KindUnusual {
		bound = "; in its last minutes %v was long"
	}
	t.Text = fmt.Sprintf("%s took %v"+bound, cmp.Or(t.Route, "a request"), m.took.Round(time.Microsecond), m.limit.Round(time.Microsecond))
	return t
}

func isRequestKind(k Kind) bool { return k == KindSlow || k == KindUnusual }

// A class is a set of kinds that share Options.Gap, because one fault causes all of them.
type class int

const (
	classRequests class = iota
	classFreeze
	classLatency
	classGoroutines
	classGC
	classCount
)

// classOf maps a kind to its class. Kinds that it does not have belong to classRequests.
var classOf = map[Kind]class{KindFreeze: classFreeze, KindLatency: classLatency, KindGoroutines: classGoroutines, KindGC: classGC}

// maxNamed is the number of triggers that a recording lists. The others are only counted.
const maxNamed = 8

// A plan decides when to take the next snapshot, and for which triggers. It reads no
// clock.
//
// One fault makes many requests slow, for example all that wait for one lock. So the plan
// collects triggers: after the last one it waits for Options.Tail, and then for marked
// requests that are still running, as long as the ring holds the first trigger's
// beginning. One snapshot serves all collected triggers. A trigger within the gap after a
// recording of its class waits for the end of the gap if the ring will still hold it.
type plan struct {
	tail, gap, minAge time.Duration
	reach             time.Duration // how far back the ring's contents reach

	lastRecorded    [classCount]time.Time     // time of each class's last snapshot
	longestRecorded [classCount]time.Duration // the longest moment in that snapshot
	lastTriggered   [classCount]time.Time     // time of each class's last trigger
	waiting         []moment                  // the longest moment of each kind and route, at most maxNamed
	waitingCounts   map[Kind]uint64           // number of waiting triggers by kind
	earliestBegin   time.Time                 // begin of the earliest waiting moment
	tailStart       time.Time                 // when the first tail starts
	lastTrigger     time.Time                 // time of the last waiting trigger
	tailEnd         time.Time                 // when the last tail ended; zero before that
}

const (
	snapshotMargin   = 500 * time.Millisecond // a snapshot may start this late
	maxTails         = 5                      // further triggers extend the tail up to maxTails tails
	openPollInterval = 25 * time.Millisecond  // how often running requests are counted

	// A moment that lasts farWorseFactor times as long as the longest in the last recording of
	// its class gets a recording within the gap.
	farWorseFactor = 4
)

// add adds a trigger and reports whether a recording will hold it. It is false if the trigger continues a fault that the class's last recording
// holds, or if the ring will have dropped its beginning by the end of the gap.
func (p *plan) add(m moment, now time.Time) bool {
	tailStart, class := now, classOf[m.kind]
	previousTrigger := p.lastTriggered[class]
	p.lastTriggered[class] = now
	if lastRecorded := p.lastRecorded[class]; !lastRecorded.IsZero() && now.Sub(lastRecorded) < p.gap {
		switch {
		case p.longestRecorded[class] > 0 && m.took >= farWorseFactor*p.longestRecorded[class]:
		case len(p.waiting) == 0 && now.Sub(previousTrigger) < maxTails*p.tail:
			return false // the same fault continues, and the last recording holds its beginning
		default:
			tailStart = lastRecorded.Add(p.gap)
		}
	}
	begin := m.end.Add(-m.took)
	if len(p.waiting) > 0 {
		tailStart = earlierOf(tailStart, p.tailStart)
	}
	if tailStart.After(now) && tailStart.Add(p.tail+snapshotMargin).Sub(begin) > p.reach {
		return false // the ring will have dropped its beginning by then
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
		// m replaces the shortest moment, but one moment of each kind stays.
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

// earlierOf returns the earlier of two times.
func earlierOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// advance returns the time until it must be called again: 0 if the snapshot is due now, negative if no trigger waits. countOpen returns the number of
// running requests that began between two times.
func (p *plan) advance(now time.Time, countOpen func(from, to time.Time) int) time.Duration {
	if len(p.waiting) == 0 {
		return -1
	}
	if wait := p.tailStart.Sub(now); wait > 0 {
		return wait
	}
	// The ring must not drop the first trigger's beginning, but a short tail is always recorded.
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

// takeWaiting removes and returns the triggers, at least one, for a snapshot that is taken now: the reason, the other moments to
// list, and the number of triggers by kind. Requests come first, and longer moments before shorter ones.
func (p *plan) takeWaiting(now time.Time) (reason moment, otherMoments []moment, counts map[Kind]uint64) {
	slices.SortStableFunc(p.waiting, func(a, b moment) int {
		return cmp.Or(boolToInt(isRequestKind(b.kind))-boolToInt(isRequestKind(a.kind)), cmp.Compare(b.took, a.took))
	})
	for k := range p.waitingCounts {
		p.lastRecorded[classOf[k]], p.longestRecorded[classOf[k]] = now, 0
	}
	for i := range p.waiting {
		c := classOf[p.waiting[i].kind]
		p.longestRecorded[c] = max(p.longestRecorded[c], p.waiting[i].took)
	}
	reason, otherMoments, counts = p.waiting[0], p.waiting[1:], p.waitingCounts
	p.dropWaiting()
	return reason, otherMoments, counts
}

// dropWaiting removes the waiting triggers and returns their number by kind.
func (p *plan) dropWaiting() map[Kind]uint64 {
	counts := p.waitingCounts
	p.waiting, p.waitingCounts, p.tailEnd = nil, nil, time.Time{}
	return counts
}
