package request

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestBacklog: of messages that all wake an idle goroutine, those that find it at work wait until it has done those before them.
// If messages end while it is idle and do not wake it, they go elsewhere.
func TestBacklog(t *testing.T) {
	first, second, third, next := &clientMessage{end: 2}, &clientMessage{end: 10}, &clientMessage{end: 30}, &clientMessage{end: 101}
	periods := []workPeriod{{start: 1, end: 91, waker: 1, hasMessage: true}, {start: 100, end: 130, waker: 1, hasMessage: true}}
	startedMessages := map[*clientMessage]bool{first: true, next: true}
	b, ok := newBacklog(periods, []*clientMessage{first, second, third, next}, startedMessages, nil)
	if want := []int64{0, 0, 21, 31}; !ok || !slices.Equal(waitsOf(&b), want) || b.Queued != 2 || b.HandlingNS != 30 {
		t.Errorf("got %+v, %v; want waits %v, 2 queued, 30 ns each", b, ok, want)
	}
	if b, ok = newBacklog(periods, []*clientMessage{first, second, third, {end: 95}, next}, startedMessages, nil); ok {
		t.Errorf("a message that did not wake the idle goroutine queued for it: %+v", b)
	}
	// The last message of a period that began before the trace is done at its end.
	periods[0].waker, periods[0].hasMessage, startedMessages[first] = 0, false, false
	if b, ok = newBacklog(periods, []*clientMessage{second, third, next}, startedMessages, nil); !ok || !slices.Equal(waitsOf(&b), []int64{0, 21, 31}) {
		t.Errorf("got %+v, %v", b, ok)
	}
	periods[1].isOpenAtEnd = true
	if _, ok = newBacklog(periods, []*clientMessage{second, third, next}, startedMessages, nil); ok {
		t.Error("the time that a message takes is not known")
	}
}

// TestBacklogUnits: where each message of a period begins and ends is known, so that a long one makes those behind it wait for all of it.
func TestBacklogUnits(t *testing.T) {
	first := &clientMessage{end: 1}
	periods := []workPeriod{{start: 1, end: 100, waker: 1, hasMessage: true}, {start: 200, end: 230, waker: 1, hasMessage: true, isOpenAtEnd: true}}
	messages := []*clientMessage{first, {end: 10}, {end: 20}, {end: 210}, {end: 215}}
	units := []workUnit{{start: 1, end: 80}, {start: 80, end: 90}, {start: 90, end: 95}, {start: 95, end: 100}, {start: 200, end: 220}}
	b, _ := newBacklog(periods, messages, map[*clientMessage]bool{first: true}, units)
	want := []QueuedMessage{
		{1, 1, 80}, {1, 80, 90}, {10, 90, 95}, {20, 95, 100}, // two in the first data
		{200, 200, 220}, {210, 220, 253}, {215, 253, 286}, // those that are not done take as long as others
	}
	check.True(t, slices.Equal(b.Messages, want), "got %v, want %v", b.Messages, want)
}

// waitsOf returns the times in the queue, the shortest first.
func waitsOf(b *Backlog) (waits []int64) {
	for _, m := range b.Messages {
		waits = append(waits, m.Start-m.Arrival)
	}
	slices.Sort(waits)
	return waits
}

// TestReadBacklog: while all goroutines that read a socket are at work, arrivals wait there until one of them reads it without a
// wait. One that is idle reads it at once.
func TestReadBacklog(t *testing.T) {
	iterations := []readIteration{
		{start: 0, end: 10, goroutine: 1, isReady: false}, {start: 20, end: 120, goroutine: 1, isReady: false}, // the other one is idle
		{start: 40, end: 100, goroutine: 2, isReady: false}, {start: 100, end: 110, goroutine: 2, isReady: true}, {start: 110, end: 115, goroutine: 2, isReady: true},
		{start: 130, end: 140, goroutine: 2, isReady: true}, // the other one is idle
	}
	// Both are at work from 40 to 115. Two messages have arrived until 110, at 63 and 86.
	b := readBacklog(iterations)
	if want := []int64{0, 0, 0, 0, 24, 37}; !slices.Equal(waitsOf(&b), want) || b.Queued != 2 || b.WorkNS != 75 || b.Goroutines != 2 {
		t.Errorf("got %+v; want waits %v, 2 queued, 75 ns of work", b, want)
	}
	iterations = []readIteration{{start: 0, end: 10, goroutine: 1, isReady: false}, {start: 10, end: 30, goroutine: 1, isReady: true}}
	if b = readBacklog(iterations); !slices.Equal(waitsOf(&b), []int64{0, 5}) || b.WorkNS != 30 {
		t.Errorf("got %+v", b)
	}
}

// TestDividedBacklog: each event loop reads its own connections, so a message queues for its loop while another one is idle.
func TestDividedBacklog(t *testing.T) {
	b := dividedBacklog([]readIteration{
		{start: 0, end: 100, goroutine: 1, isReady: false}, {start: 10, end: 20, goroutine: 2, isReady: false},
		{start: 100, end: 110, goroutine: 1, isReady: true},
	})
	if want := []int64{0, 0, 50}; !slices.Equal(waitsOf(&b), want) || b.Queued != 1 || b.Goroutines != 2 || !b.IsDivided || b.WorkNS != 60 {
		t.Errorf("got %+v; want waits %v, 1 queued", b, want)
	}
}

// TestReaderOfFullList: what a reader receives is counted even if it began its first period when the list of periods was full.
func TestReaderOfFullList(t *testing.T) {
	const reader, start, end = 7, 100, 200
	l := newLoopSource(1, nil, nil, &messageSource{})
	l.goroutines[reader] = &loopGoroutine{waitsForNetwork: true}
	l.backlogs.periodCount = maxBacklogRecords
	iteration := &iterationState{start: start, beginWait: observation{observedWait: observedWait{waker: reader, end: start}}}
	if _, isStored := l.addWorkPeriod(nil, 8, iteration, end, &loopFunc{}, &originStats{}, 0, 0); isStored {
		t.Error("a period was stored beyond the limit")
	}
	check.Equal(t, l.backlogs.receivedIn(reader, start, end), 0, "received")
}
