package explain_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestCoarseTimer: a goroutine checks each 20 ms which timers have run out, and ends the wait of a request, which has lasted for more than one of
// its intervals. It fails if the report takes it for a batch.
func TestCoarseTimer(t *testing.T) {
	const wheel = uint64(20)
	s := newServer()
	s.builder.Waiting(wheel)
	sleep := []string{"runtime.selectgo", "main.(*Wheel).Run@/src/wheel.go:45"}
	s.wake(ms, wheel)
	s.thread.Block(ms+2*us, "select", sleep...)
	for clock, tick := int64(20*ms), 0; clock < 900*ms; clock, tick = clock+20*ms, tick+1 {
		conn := []uint64{firstConn, otherConn}[tick%2]
		s.wake(clock, wheel)
		if tick >= 2 && tick%3 != 1 {
			s.thread.Unblock(clock+2*us, conn, "runtime.closechan", "main.(*Wheel).turn@/src/wheel.go:66", "main.(*Wheel).Run@/src/wheel.go:45")
		}
		s.thread.Block(clock+3*us, "select", sleep...)
		if tick >= 2 && tick%3 != 1 {
			s.thread.Start(clock+4*us, conn)
			s.awaitRequest(clock+10*us, conn)
		}
		if tick%3 == 2 {
			continue // no request begins
		}
		s.wake(clock+5*ms, conn)
		s.thread.Create(clock+5*ms+2*us, uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
		s.thread.Create(clock+5*ms+3*us, uint64(clock)+1, "main.free.func1", "main.free@/src/main.go:18", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc)
		s.thread.Block(clock+5*ms+4*us, "select", "runtime.selectgo", "main.free@/src/main.go:20", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc)
	}
	rep := s.explain(t)
	must.True(t, len(rep.Findings) != 0, "no findings")
	first := rep.Findings[0]
	check.True(t, strings.Contains(first.Title, "timers that are checked only every 20ms") && strings.Contains(first.Fix, "main.free (main.go:20) a timer of its own"), "%s: %s", first.Title, first.Fix)
}
