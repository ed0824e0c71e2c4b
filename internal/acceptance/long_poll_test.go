package acceptance_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// A poll is a request of pollTrace: how often its handler waits, for how long, and
// whether somebody else ends that.
type poll struct {
	waits int
	ns    int64
	news  bool
	wrote string // what it calls between two waits, which writes to a connection
}

// newsFrom says who brings the news.
type newsFrom int

const (
	aTicker newsFrom = iota
	aRequest
	aWorker
)

// An event is what happens at a time of a trace that is written.
type event struct {
	at int64
	f  func(at int64)
}

// play writes what happens, one event at a time: each takes less than 30 us. The P rests in between, so that somebody looks at the network. What
// happens may add events.
func play(th *tracetext.Thread, events *[]event) {
	const us = 1_000
	last, p := int64(0), th.Proc()
	for len(*events) > 0 {
		k := 0
		for i := range *events {
			if (*events)[i].at < (*events)[k].at {
				k = i
			}
		}
		e := (*events)[k]
		*events = append((*events)[:k], (*events)[k+1:]...)
		if last > 0 {
			th.ProcStop(last + 29*us)
		}
		if e.at = max(e.at, last+30*us); last > 0 {
			th.ProcStart(e.at, p)
		}
		last = e.at
		e.f(last + us/10)
	}
}

// pollTrace writes polls on connections of their own, one after the other in each,
// beside a handler that takes 200 us of sleep in a hundred requests.
func pollTrace(t *testing.T, conns int, polls []poll, by newsFrom) []byte {
	t.Helper()
	const ms, us = 1_000_000, 1_000
	const serve = "net/http.(*conn).serve:2074"
	b := tracetext.New(26)
	th, poller := b.Thread(), b.ThreadWithoutP()
	var events []event
	at := func(t int64, f func(at int64)) { events = append(events, event{t, f}) }
	idle := func(at int64) {
		th.Block(at, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
	}
	began := uint64(10_000)
	request := func(g uint64) func(int64) {
		return func(t int64) {
			poller.Unblock(t, g)
			th.Start(t+us, g)
			th.Create(t+2*us, began, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
			began++
		}
	}
	var publish func(t int64, g uint64)
	inside := func(handler string, frames ...string) []string {
		return append(frames, handler, "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
	}
	for c := range conns {
		g := uint64(100 + c)
		b.Waiting(g)
		from := int64(c+1) * 100 * us
		at(from, func(t int64) { poller.Unblock(t, g); th.Start(t+us, g); idle(t + 2*us) })
		from += 20*ms + int64(c)*37*us
		for _, p := range polls {
			begin := request(g)
			at(from, func(t int64) {
				begin(t)
				if by == aWorker {
					th.Unblock(t+3*us, 8, inside("main.(*feed).poll", "runtime.chansend1")...)
				}
				th.Block(t+5*us, "select", inside("main.(*feed).poll", "runtime.selectgo")...)
				if by == aWorker {
					th.Start(t+6*us, 8)
					th.Block(t+8*us, "chan receive", "runtime.chanrecv1", "main.dispatch")
				}
			})
			for i := range p.waits {
				from += p.ns
				at(from, func(t int64) {
					if p.news {
						poller.Unblock(t, 9)
						th.Start(t+us, 9)
						publish(t+2*us, g)
					} else {
						poller.Unblock(t, g)
					}
					th.Start(t+5*us, g)
					if i+1 < p.waits {
						if p.wrote != "" {
							th.Syscall(t+6*us, inside("main.(*feed).poll", "syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write", p.wrote)...)
							th.SyscallEnd(t + 8*us)
						}
						th.Block(t+10*us, "select", inside("main.(*feed).poll", "runtime.selectgo")...)
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
	rest := func(t int64) {
		switch by {
		case aTicker:
			th.Block(t, "chan receive", "runtime.chanrecv1", "main.main.func1")
		case aWorker:
			th.Block(t, "sleep", "time.Sleep", "main.work", "main.main.func1")
		case aRequest:
			idle(t)
		}
	}
	publish = func(t int64, g uint64) {
		if by == aRequest {
			th.Create(t, began, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
			began++
			th.Unblock(t+500, g, inside("main.(*feed).publish", "runtime.chansend1")...)
		} else {
			th.Unblock(t+500, g, "runtime.chansend1", "main.(*feed).publish", "main.main.func1")
		}
		rest(t + us)
	}
	b.Waiting(8)
	at(40*us, func(t int64) {
		poller.Unblock(t, 8)
		th.Start(t+us, 8)
		th.Block(t+2*us, "chan receive", "runtime.chanrecv1", "main.dispatch")
	})
	b.Waiting(9)
	at(50*us, func(t int64) {
		poller.Unblock(t, 9)
		th.Start(t+us, 9)
		rest(t + 2*us)
	})
	b.Waiting(7)
	at(30*us, func(t int64) { poller.Unblock(t, 7); th.Start(t+us, 7); idle(t + 2*us) })
	for i := range 400 {
		begin := request(7)
		at(int64(i)*20*ms+10*ms+500, func(t int64) {
			begin(t)
			th.Block(t+5*us, "sleep", inside("main.list", "time.Sleep")...)
		})
		at(int64(i)*20*ms+10*ms+500+200*us, func(t int64) {
			poller.Unblock(t, 7)
			th.Start(t+us, 7)
			idle(t + 20*us)
		})
	}
	play(th, &events)
	data := must.Have(b.Bytes())(t)
	return data
}

// TestLongPoll: handlers wait in a select until there is news or their time is up. That
// is no late request, whether a ticker or another request has the news, and nothing loud
// is said; nor where no news came. Who looks again until it is there, sleeps for less than
// any long poll, or hands something over that workers have no time for, is loudly late. Who
// writes to its client between its waits sends a stream; who writes to somebody else does not.
func TestLongPoll(t *testing.T) {
	const ms = 1_000_000
	times := func(p ...poll) (out []poll) {
		for range 6 {
			out = append(out, p...)
		}
		return out
	}
	for _, c := range []struct {
		name  string
		by    newsFrom
		polls []poll
		loud  bool
		says  string
	}{
		{"news of a ticker", aTicker, times(poll{1, 1200 * ms, false, ""}, poll{1, 620 * ms, true, ""}, poll{1, 43 * ms, true, ""}), false, "until something arrives or 1.2s have passed"},
		{"news of another request", aRequest, times(poll{1, 1200 * ms, false, ""}, poll{1, 620 * ms, true, ""}, poll{1, 43 * ms, true, ""}), false, "until something arrives or 1.2s have passed"},
		{"no news", aTicker, times(poll{1, 1200 * ms, false, ""}), false, "until 1.2s have passed"},
		{"workers", aWorker, times(poll{1, 1200 * ms, false, ""}, poll{1, 620 * ms, true, ""}, poll{1, 43 * ms, true, ""}), true, ""},
		{"looks again", aTicker, times(poll{3, 1100 * ms, false, ""}, poll{1, 1100 * ms, false, ""}, poll{2, 1100 * ms, false, ""}), true, ""},
		{"parts of a stream", aTicker, times(poll{12, 60 * ms, false, "net/http.(*response).FlushError"}), false, "they write to their client between the waits"},
		{"a peer that is asked again", aTicker, times(poll{12, 60 * ms, false, "main.(*peer).ask"}), true, ""},
		{"a pause", aTicker, times(poll{1, 300 * ms, false, ""}), true, ""},
	} {
		rep := explainBytes(t, pollTrace(t, 8, c.polls, c.by), whylate.Options{})
		const handler = "main.(*feed).poll"
		loud, said := "", ""
		for i := range rep.Findings {
			f := &rep.Findings[i]
			if g := rep.Group(f.Group); g == nil || g.Name != handler {
				continue
			}
			switch f.Severity {
			case report.SeverityHigh, report.SeverityMedium:
				loud += describeFinding(f) + "\n"
			default:
				said += f.Title + "\n"
			}
		}
		if (loud != "") != c.loud || !strings.Contains(said, c.says) {
			t.Errorf("%s: loud is %q, besides it says %q", c.name, loud, said)
		}
	}
}
