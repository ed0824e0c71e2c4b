package exchange

import (
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A lifetime is when a connection of HTTP/1 was opened, and when the client closed it, as one of its ends shows it; 0 if it does not. At
// the client's end a time is not after the message was sent, at the server's end it is not before the message arrived.
type lifetime struct{ opened, closed int64 }

// canBeOf reports whether the client's end of a connection can have the server's end s: a server neither accepts a connection before its
// client opens it, nor reads its end before the client closes it.
func (c lifetime) canBeOf(s lifetime, l *Link) bool {
	isAfter := func(client, server int64) bool {
		return client == 0 || server == 0 || client <= l.ToClient(server)+l.slack
	}
	return isAfter(c.opened, s.opened) && isAfter(c.closed, s.closed)
}

// merge adds what another request of the connection shows.
func (c *lifetime) merge(o lifetime) {
	c.opened, c.closed = max(c.opened, o.opened), max(c.closed, o.closed)
}

// lifetimeOf returns the lifetime of the connection of a request, at the server's end: its goroutine is created when the connection is
// accepted, and the client has closed it if the goroutine waits for the next request and then ends.
func (f *AnswerFinder) lifetimeOf(r *request.Request) (out lifetime) {
	if b, ok := f.window.BirthBefore(r.G, r.End); ok {
		out.opened = b.Time
	}
	death, ok := f.window.Death(r.G, r.End)
	if !ok {
		return out
	}
	wake, ok := f.window.LastWake(r.G, r.End, death)
	if !ok {
		return out
	}
	f.spanScratch = f.window.Spans(r.G, wake.Time-1, wake.Time, f.spanScratch[:0])
	for i := range f.spanScratch {
		if s := &f.spanScratch[i]; s.State == timeline.Waiting && s.End == wake.Time && s.Waker == 0 && f.stacks.rolesOf(s.Stack).Has(knowledge.RequestPeek) {
			out.closed = wake.Time
		}
	}
	return out
}

// openTime returns when the goroutine that created the reader of a connection began to call the kernel for a socket; 0 if that is not
// known, because another goroutine may have opened the connection.
func (c *Clients) openTime(reader timeline.Birth) int64 {
	dialer, ok := c.window.BirthBefore(reader.Creator, reader.Time)
	if !ok || dialer.Time < reader.Time-maxSendNS {
		return 0
	}
	c.spanScratch = c.window.Spans(reader.Creator, dialer.Time, reader.Time, c.spanScratch[:0])
	for i := range c.spanScratch {
		if s := &c.spanScratch[i]; s.State == timeline.Syscall && c.stacks.rolesOf(s.Stack).Has(knowledge.Socket) {
			return s.Start
		}
	}
	return 0
}

// closeTime returns when the reader of a connection, which died, began to close it: its last calls of the kernel do, with TLS the first
// of them sends a message. It is 0 if another goroutine may have closed the connection, or if the reader passed no answer on after its
// last wait for the network: then the server has closed it. spans are those of the generation.
func (c *Clients) closeTime(conn *clientConnection, spans []timeline.Span) (start int64) {
	if len(conn.arrivals) == 0 {
		return 0
	}
	hasAnswered, _ := c.window.HasWoken(conn.reader, last(conn.arrivals), c.to+1, func(woken uint64, _ tracefmt.StackID) bool {
		return woken != 0 && c.writers[woken] == nil
	})
	for i := len(spans) - 1; i >= 0 && hasAnswered && spans[i].State != timeline.Waiting; i-- {
		if s := &spans[i]; s.State == timeline.Syscall {
			if roles := c.stacks.rolesOf(s.Stack); !roles.Has(knowledge.Socket) || roles.Has(knowledge.ConnectionRead) {
				break
			}
			start = s.Start
		}
	}
	return start
}
