package explain_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestQueueWithTimer: requests wait for one of a library's two connections, but for 60 ms at most: then they open one more. A request
// whose call is answered gives its connection to the next one; it had waited there, too, perhaps until its timer. It fails if the timer is a pause to shorten, or
// if the change does not remove it.
func TestQueueWithTimer(t *testing.T) {
	const hold, patience, interval = 30 * ms, 60 * ms, 8 * ms
	query := []string{"internal/poll.runtime_pollWait", "net.(*conn).Read", "example.com/pool.(*Pool).Do@/mod/example.com/pool@v1.0.0/pool.go:80", "main.get@/src/main.go:20"}
	acquire := []string{"runtime.selectgo", "example.com/pool.(*Pool).acquire@/mod/example.com/pool@v1.0.0/pool.go:30", "example.com/pool.(*Pool).Do@/mod/example.com/pool@v1.0.0/pool.go:70", "main.get@/src/main.go:20"}
	handler := []string{"net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc}
	s, free := newServer(), 2
	var idle, waiting []uint64
	for g := uint64(20); g < 60; g++ {
		s.builder.Waiting(g)
		idle = append(idle, g)
	}
	events := map[int64]func(clock int64){}
	schedule := func(clock int64, event func(int64)) {
		for events[clock] != nil {
			clock += 100 * us
		}
		events[clock] = event
	}
	var answered func(g uint64) func(int64)
	answered = func(g uint64) func(int64) {
		return func(clock int64) {
			s.wake(clock, g)
			if len(waiting) == 0 {
				free++
				s.awaitRequest(clock+9*us, g)
				idle = append(idle, g)
				return
			}
			next := waiting[0]
			waiting = waiting[1:]
			s.thread.Unblock(clock+5*us, next, "example.com/pool.(*Pool).release@/mod/example.com/pool@v1.0.0/pool.go:50", "main.get@/src/main.go:20")
			s.awaitRequest(clock+9*us, g)
			idle = append(idle, g)
			s.thread.Start(clock+10*us, next)
			s.thread.Block(clock+11*us, "network", append(query, handler...)...)
			schedule(clock+hold, answered(next))
		}
	}
	for clock := int64(10 * ms); clock < 2000*ms; clock += interval {
		schedule(clock, func(clock int64) {
			g := idle[0]
			idle = idle[1:]
			if free > 0 {
				free--
				s.begin(clock, g, "network", query...)
				schedule(clock+hold, answered(g))
				return
			}
			s.begin(clock, g, "select", acquire...)
			waiting = append(waiting, g)
			schedule(clock+patience, func(clock int64) {
				i := slices.Index(waiting, g)
				if i < 0 {
					return
				}
				waiting = slices.Delete(waiting, i, i+1)
				s.wake(clock, g)
				s.thread.Block(clock+2*us, "network", append(query, handler...)...)
				schedule(clock+hold, answered(g))
			})
		})
	}
	for clock := int64(10 * ms); clock < 2000*ms; clock += 100 * us {
		if event := events[clock]; event != nil {
			event(clock)
		}
	}
	rep := s.explain(t)
	must.True(t, len(rep.Findings) != 0 && len(rep.Verdict) != 0 && len(rep.Verdict[0].Causes) != 0, "%+v", rep.Findings)
	f, first := rep.Findings[0], rep.Verdict[0].Causes[0]
	check.True(t, f.Code == report.RulePoolTooSmall && f.Predicted != nil && strings.Contains(f.Predicted.Change, "sleep@example.com/pool.(*Pool).acquire:30=gone"), "%s: %s %+v", f.Code, f.Title, f.Predicted)
	check.True(t, strings.HasSuffix(first.Text, "behind others that are waiting for a peer on the network in pool.(*Pool).Do pool.go:80, called from main.get main.go:20"), "%s", first.Text)
	for _, c := range rep.Groups[0].All().Causes {
		check.True(t, c.Cause != report.CauseSleep, "%+v", c)
	}
	for _, r := range rep.Groups[0].Slowest {
		check.False(t, slices.ContainsFunc(r.Segments, func(s report.Segment) bool { return s.Cause == report.CauseSleep }), "%+v", r)
	}
}

// TestWatchersThatPublish: the goroutine of a connection serves a request that waits for news, and later one that publishes some. It fails if
// it seems to return a slot for which it had waited: that was another request.
func TestWatchersThatPublish(t *testing.T) {
	s := newServer()
	var watching []uint64
	for i := range int64(200) {
		g, clock := uint64(20+i%15), (i+1)*10*ms
		if i < 15 {
			s.builder.Waiting(g)
		}
		if i/5%2 == 0 {
			s.begin(clock, g, "select", "runtime.selectgo", "main.watch@/src/main.go:30")
			watching = append(watching, g)
			continue
		}
		s.wake(clock, g)
		s.thread.Create(clock+2*us, uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
		s.thread.Unblock(clock+5*us, watching[0], "main.publish@/src/main.go:40", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc)
		s.awaitRequest(clock+9*us, g)
		s.thread.Start(clock+10*us, watching[0])
		s.awaitRequest(clock+20*us, watching[0])
		watching = watching[1:]
	}
	for _, g := range s.explain(t).Groups {
		for _, c := range g.All().Causes {
			check.True(t, c.Cause != report.CauseQueue, "%s: %+v", g.Name, c)
		}
	}
}

// TestPoolOfSeveralLines: requests of two routes wait for the connections of one pool, each at its own line. It fails if the pool of three seems to be
// one of fewer connections at each line.
func TestPoolOfSeveralLines(t *testing.T) {
	const hold = 40 * ms
	stackOf := func(g uint64, innermost ...string) []string {
		return append(innermost, "database/sql.(*DB).QueryContext", []string{"main.load@/src/main.go:20", "main.pay@/src/main.go:30"}[g%2])
	}
	handler := []string{"net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc}
	s := newServer()
	for g := range uint64(9) {
		s.builder.Waiting(20 + g)
	}
	for burst := int64(10 * ms); burst < 2000*ms; burst += 130 * ms {
		for i := range uint64(9) {
			clock, g := burst+int64(i)*100*us, 20+i
			if i < 3 {
				s.begin(clock, g, "network", stackOf(g, "internal/poll.runtime_pollWait", "net.(*conn).Read")...)
			} else {
				s.begin(clock, g, "select", stackOf(g, "runtime.selectgo", "database/sql.(*DB).conn")...)
			}
		}
		for i := range uint64(9) {
			clock, g := burst+int64(1+i/3)*hold+int64(i)*100*us, 20+i
			s.wake(clock, g)
			if next := g + 3; i < 6 {
				s.thread.Unblock(clock+5*us, next, append(stackOf(g, "database/sql.(*DB).putConnDBLocked", "database/sql.(*DB).putConn"), handler...)...)
			}
			s.awaitRequest(clock+9*us, g)
			if next := g + 3; i < 6 {
				s.thread.Start(clock+10*us, next)
				s.thread.Block(clock+11*us, "network", append(stackOf(next, "internal/poll.runtime_pollWait", "net.(*conn).Read"), handler...)...)
			}
		}
	}
	rep := s.explain(t)
	check.Equal(t, len(rep.Groups), 2, "groups")
	for _, f := range rep.Findings {
		check.True(t, f.Queue == nil || f.Queue.For == "one of 3 connections of a database/sql pool", "%+v", f.Queue)
	}
	check.True(t, slices.ContainsFunc(rep.Findings, func(f report.Finding) bool { return f.Queue != nil }), "%+v", rep.Findings)
}
