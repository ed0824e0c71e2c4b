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
