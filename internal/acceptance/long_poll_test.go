package acceptance_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// A longPoll is a request of longPollTrace.
type longPoll struct {
	waits       int    // number of waits of its handler
	waitNS      int64  // duration of each
	endedByNews bool   // another goroutine ends each wait, not a timer
	writer      string // function that writes to a connection between two waits, "" if there is none
}

// A newsSource is the goroutine that ends waits with news.
type newsSource int

const (
	fromTicker newsSource = iota
	fromRequest
	fromWorker
)

// An event is emitted at a time of a synthetic trace.
type event struct {
	timeNS int64
	emit   func(timeNS int64)
}

// emitInOrder emits events in order of time, at least 30 us apart. The P is idle between two, so that the network is polled.
// An event may add events.
func emitInOrder(th *tracetext.Thread, events *[]event) {
	const us = 1_000
	last, p := int64(0), th.Proc()
	for len(*events) > 0 {
		k := 0
		for i := range *events {
			if (*events)[i].timeNS < (*events)[k].timeNS {
				k = i
			}
		}
		e := (*events)[k]
		*events = append((*events)[:k], (*events)[k+1:]...)
		if last > 0 {
			th.ProcStop(last + 29*us)
		}
		if e.timeNS = max(e.timeNS, last+30*us); last > 0 {
			th.ProcStart(e.timeNS, p)
		}
		last = e.timeNS
		e.emit(last + us/10)
	}
}

// longPollTrace writes long polls, one after the other on each of several connections, and another handler that serves 400
// requests by sleeping for 200 us.
func longPollTrace(t *testing.T, conns int, polls []longPoll, source newsSource) []byte {
	t.Helper()
	const ms, us = 1_000_000, 1_000
	const serve = "net/http.(*conn).serve:2074"
	b := tracetext.New(26)
	th, poller := b.Thread(), b.ThreadWithoutP()
	var events []event
	schedule := func(t int64, f func(schedule int64)) { events = append(events, event{t, f}) }
	idle := func(timeNS int64) {
		th.Block(timeNS, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
	}
	readerID := uint64(10_000)
	request := func(g uint64) func(int64) {
		return func(t int64) {
			poller.Unblock(t, g)
			th.Start(t+us, g)
			th.Create(t+2*us, readerID, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
			readerID++
		}
	}
	var publish func(t int64, g uint64)
	stack := func(handler string, frames ...string) []string {
		return append(frames, handler, "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
	}
	for c := range conns {
		g := uint64(100 + c)
		b.Waiting(g)
		from := int64(c+1) * 100 * us
		schedule(from, func(t int64) { poller.Unblock(t, g); th.Start(t+us, g); idle(t + 2*us) })
		from += 20*ms + int64(c)*37*us
		for _, p := range polls {
			begin := request(g)
			schedule(from, func(t int64) {
				begin(t)
				if source == fromWorker {
					th.Unblock(t+3*us, 8, stack("main.(*feed).poll", "runtime.chansend1")...)
				}
				th.Block(t+5*us, "select", stack("main.(*feed).poll", "runtime.selectgo")...)
				if source == fromWorker {
					th.Start(t+6*us, 8)
					th.Block(t+8*us, "chan receive", "runtime.chanrecv1", "main.dispatch")
				}
			})
			for i := range p.waits {
				from += p.waitNS
				schedule(from, func(t int64) {
					if p.endedByNews {
						poller.Unblock(t, 9)
						th.Start(t+us, 9)
						publish(t+2*us, g)
					} else {
						poller.Unblock(t, g)
					}
					th.Start(t+5*us, g)
					if i+1 < p.waits {
						if p.writer != "" {
							th.Syscall(t+6*us, stack("main.(*feed).poll", "syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write", p.writer)...)
							th.SyscallEnd(t + 8*us)
						}
						th.Block(t+10*us, "select", stack("main.(*feed).poll", "runtime.selectgo")...)
						return
					}
					th.Syscall(t+10*us, "syscall.write", "bufio.(*Writer).Flush", "net/http.(*response).finishRequest", serve)
					th.SyscallEnd(t + 15*us)
					idle(t + 20*us)
				})
			}
			from += 10 * ms
		}
	}
	waitForNews := func(t int64) {
		switch source {
		case fromTicker:
			th.Block(t, "chan receive", "runtime.chanrecv1", "main.main.func1")
		case fromWorker:
			th.Block(t, "sleep", "time.Sleep", "main.work", "main.main.func1")
		case fromRequest:
			idle(t)
		}
	}
	publish = func(t int64, g uint64) {
		if source == fromRequest {
			th.Create(t, readerID, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
			readerID++
			th.Unblock(t+500, g, stack("main.(*feed).publish", "runtime.chansend1")...)
		} else {
			th.Unblock(t+500, g, "runtime.chansend1", "main.(*feed).publish", "main.main.func1")
		}
		waitForNews(t + us)
	}
	b.Waiting(8)
	schedule(40*us, func(t int64) {
		poller.Unblock(t, 8)
		th.Start(t+us, 8)
		th.Block(t+2*us, "chan receive", "runtime.chanrecv1", "main.dispatch")
	})
	b.Waiting(9)
	schedule(50*us, func(t int64) {
		poller.Unblock(t, 9)
		th.Start(t+us, 9)
		waitForNews(t + 2*us)
	})
	b.Waiting(7)
	schedule(30*us, func(t int64) { poller.Unblock(t, 7); th.Start(t+us, 7); idle(t + 2*us) })
	for i := range 400 {
		begin := request(7)
		schedule(int64(i)*20*ms+10*ms+500, func(t int64) {
			begin(t)
			th.Block(t+5*us, "sleep", stack("main.list", "time.Sleep")...)
		})
		schedule(int64(i)*20*ms+10*ms+500+200*us, func(t int64) {
			poller.Unblock(t, 7)
			th.Start(t+us, 7)
			idle(t + 20*us)
		})
	}
	emitInOrder(th, &events)
	return must.Have(b.Bytes())(t)
}

// TestLongPoll: a handler that waits in a select until there is news or its time is up is a long poll. It is not late, whether
// a ticker or another request has the news or none comes, and there is no major finding. There is one for a handler that
// checks repeatedly, that sleeps for less than any long poll, or whose work busy workers do not accept. A handler that writes
// to its client between its waits sends a stream; one that writes to another connection does not.
func TestLongPoll(t *testing.T) {
	const ms = 1_000_000
	sixTimes := func(p ...longPoll) (out []longPoll) {
		for range 6 {
			out = append(out, p...)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		source newsSource
		polls  []longPoll
		major  bool
		title  string
	}{
		{"news from a ticker", fromTicker, sixTimes(longPoll{1, 1200 * ms, false, ""}, longPoll{1, 620 * ms, true, ""}, longPoll{1, 43 * ms, true, ""}), false, "until something arrives or 1.2s have passed"},
		{"news from another request", fromRequest, sixTimes(longPoll{1, 1200 * ms, false, ""}, longPoll{1, 620 * ms, true, ""}, longPoll{1, 43 * ms, true, ""}), false, "until something arrives or 1.2s have passed"},
		{"no news", fromTicker, sixTimes(longPoll{1, 1200 * ms, false, ""}), false, "until 1.2s have passed"},
		{"busy workers", fromWorker, sixTimes(longPoll{1, 1200 * ms, false, ""}, longPoll{1, 620 * ms, true, ""}, longPoll{1, 43 * ms, true, ""}), true, ""},
		{"a condition checked repeatedly", fromTicker, sixTimes(longPoll{3, 1100 * ms, false, ""}, longPoll{1, 1100 * ms, false, ""}, longPoll{2, 1100 * ms, false, ""}), true, ""},
		{"parts of a stream", fromTicker, sixTimes(longPoll{12, 60 * ms, false, "net/http.(*response).FlushError"}), false, "they write to their client between the waits"},
		{"repeated calls to a peer", fromTicker, sixTimes(longPoll{12, 60 * ms, false, "main.(*peer).ask"}), true, ""},
		{"a pause", fromTicker, sixTimes(longPoll{1, 300 * ms, false, ""}), true, ""},
	} {
		rep := explainBytes(t, longPollTrace(t, 8, c.polls, c.source), whylate.Options{})
		const handler = "main.(*feed).poll"
		majorFindings, minorTitles := "", ""
		for i := range rep.Findings {
			f := &rep.Findings[i]
			if g := rep.Group(f.Group); g == nil || g.Name != handler {
				continue
			}
			switch f.Severity {
			case report.SeverityHigh, report.SeverityMedium:
				majorFindings += describeFinding(f) + "\n"
			default:
				minorTitles += f.Title + "\n"
			}
		}
		check.True(t, (majorFindings != "") == c.major && strings.Contains(minorTitles, c.title),
			"%s: major findings %q, others %q", c.name, majorFindings, minorTitles)
	}
}
