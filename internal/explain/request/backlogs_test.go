package request

import (
	"slices"
	"testing"
)

// TestBacklog: of messages that all wake an idle goroutine, those that find it at work wait until it has done those before them.
// If messages end while it is idle and do not wake it, they go elsewhere.
func TestBacklog(t *testing.T) {
	first, second, third, next := &clientMessage{end: 2}, &clientMessage{end: 10}, &clientMessage{end: 30}, &clientMessage{end: 101}
	periods := []workPeriod{{start: 1, end: 91, waker: 1, hasMessage: true}, {start: 100, end: 130, waker: 1, hasMessage: true}}
	begun := map[*clientMessage]bool{first: true, next: true}
	b, ok := newBacklog(periods, []*clientMessage{first, second, third, next}, begun)
	if want := []int64{0, 0, 21, 31}; !ok || !slices.Equal(b.WaitsNS, want) || b.Queued != 2 || b.HandlingNS != 30 {
		t.Errorf("got %+v, %v; want waits %v, 2 queued, 30 ns each", b, ok, want)
	}
	if b, ok = newBacklog(periods, []*clientMessage{first, second, third, {end: 95}, next}, begun); ok {
		t.Errorf("a message that did not wake the idle goroutine queued for it: %+v", b)
	}
	// The last message of a period that began before the trace is done at its end.
	periods[0].waker, periods[0].hasMessage, begun[first] = 0, false, false
	if b, ok = newBacklog(periods, []*clientMessage{second, third, next}, begun); !ok || !slices.Equal(b.WaitsNS, []int64{0, 21, 31}) {
		t.Errorf("got %+v, %v", b, ok)
	}
	periods[1].isOpenAtEnd = true
	if _, ok = newBacklog(periods, []*clientMessage{second, third, next}, begun); ok {
		t.Error("the time that a message takes is not known")
	}
}

// TestReadBacklog: while all goroutines that read a socket are at work, what arrives lies there until one of them reads it without a
// wait. One that is idle reads it at once.
func TestReadBacklog(t *testing.T) {
	turns := []readTurn{
		{0, 10, 1, false}, {20, 120, 1, false}, // the other one is idle
		{40, 100, 2, false}, {100, 110, 2, true}, {110, 115, 2, true},
		{130, 140, 2, true}, // the other one is idle
	}
	// Both are at work from 40 to 115. Two messages have arrived until 110, at 63 and 86.
	b := readBacklog(turns)
	if want := []int64{0, 0, 0, 0, 24, 37}; !slices.Equal(b.WaitsNS, want) || b.Queued != 2 || b.WorkNS != 75 || b.Goroutines != 2 {
		t.Errorf("got %+v; want waits %v, 2 queued, 75 ns of work", b, want)
	}
	turns = []readTurn{{0, 10, 1, false}, {10, 30, 1, true}}
	if b = readBacklog(turns); !slices.Equal(b.WaitsNS, []int64{0, 5}) || b.WorkNS != 30 {
		t.Errorf("got %+v", b)
	}
}
