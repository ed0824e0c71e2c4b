package pass

import (
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// Threads returns the kernel's events about the process's threads; nil if the recording has none.
func (p *Pass) Threads() *threadstate.Tracker { return p.options.Path.Threads }

// beginAtArrival changes Start of requests to the time at which their first byte reached the socket, if the kernel's events
// show that: a client waits from then on. The goroutine's work before it waited for the byte is not part of the request.
func (p *Pass) beginAtArrival(reqs []request.Request) {
	threads := p.Threads()
	if threads == nil {
		return
	}
	var spans []timeline.Span
	for i := range reqs {
		r := &reqs[i]
		if r.CutAtStart || r.Piece != request.WholeRequest || r.WokenAt != 0 && r.WokenAt != r.Start {
			continue
		}
		a, ok := threads.ArrivalOf(r.G, r.Start, r.End)
		if !ok || a.Time < p.Window.Start() {
			continue
		}
		if r.WokenAt == 0 {
			p.beginWithinRun(threads, r, &a)
			continue
		}
		if a.Time > r.WokenAt {
			continue
		}
		spans = p.Window.SpansCoarse(r.G, a.Time, r.WokenAt, spans[:0])
		if len(spans) == 0 {
			continue
		}
		if wait := &spans[len(spans)-1]; wait.State == timeline.Waiting && wait.Waker == 0 && p.Symbols.String(wait.Reason) == "network" {
			r.ArrivedAt, r.Start = a.Time, max(a.Time, wait.Start)
			threads.AddArrival(r.G, a)
			p.Arrivals++
		}
	}
}

// beginWithinRun changes Start of an HTTP/1 request whose first byte a was already there when the connection's goroutine read
// it, so that the goroutine did not wait. In the trace alone such a request begins where the request before it ends.
func (p *Pass) beginWithinRun(threads *threadstate.Tracker, r *request.Request, a *threadstate.Arrival) {
	if r.Kind != request.HTTP1 || threads.SocketOf(r.G) != a.Socket {
		return // the goroutine read something else
	}
	p.Arrivals++
	r.ArrivedAt = a.Time
	r.Start = min(max(r.Start, a.Time), r.End)
}
