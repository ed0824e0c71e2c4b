package queues

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Who writes a part of the answer between one wait and the next, repeatedly, sends a stream: its client has each part at once, and does
// not wait for the whole. Who waits several times and then answers has written nothing between.

// Bounds of the waits of one request: fewer are no stream, and of more the first tell.
const (
	streamMost = 64
)

// streamSum adds up the requests that spend most of their time asleep at one line, several times each.
type streamSum struct {
	all   int64
	wrote int64 // of them, those that wrote to their client between any two of these sleeps
}

// addStream takes note of whether a request that sleeps repeatedly at a line writes to its client meanwhile.
func (p *part) addStream(w *path.Walked) {
	r, ts := w.Req, &p.turns
	if r.End >= ts.until || !r.Kind.Served() {
		return
	}
	asleep := func(s *cause.Segment) bool { return s.G == r.G && s.Via < 0 && s.Code.Cause() == cause.Sleep }
	var site tracefmt.FrameID
	longest := int64(0)
	for i := range w.Segments {
		if s := &w.Segments[i]; asleep(s) && s.End-s.Start > longest {
			site, longest = s.Site, s.End-s.Start
		}
	}
	n, total, last := 0, int64(0), int64(0)
	wrote := true
	for i := range w.Segments {
		s := &w.Segments[i]
		if !asleep(s) || s.Site != site {
			continue
		}
		if total += s.End - s.Start; s.Start == last {
			last = s.End // one sleep, which a freeze cut
			continue
		}
		if n > 0 && n < streamMost && wrote {
			wrote = p.wroteAnswer(r.G, last, s.Start)
		}
		n, last = n+1, s.End
	}
	if n < scale.Several || 2*total <= r.End-r.Start {
		return
	}
	if ts.streams == nil {
		ts.streams = map[tracefmt.FrameID]streamSum{}
	}
	sum := ts.streams[site]
	sum.all++
	if wrote {
		sum.wrote++
	}
	ts.streams[site] = sum
}

// wroteAnswer reports whether a goroutine wrote to its request's client in [from, to): in a system call of its own, or by
// handing it to the goroutine that writes for all streams of the connection.
func (p *part) wroteAnswer(g uint64, from, to int64) bool {
	p.spans = p.stage.Win.SpansCoarse(g, from, to, p.spans[:0])
	for i := range p.spans {
		if s := &p.spans[i]; s.Start >= from && (s.State == timeline.Syscall || s.State == timeline.Waiting) && p.answers(s.Stack) {
			return true
		}
	}
	wrote := false
	p.stage.Win.Woke(g, from, to, func(_ uint64, stack tracefmt.StackID) bool {
		wrote = p.answers(stack)
		return !wrote
	})
	return wrote
}

// answers reports whether a stack is inside of what writes an answer, by a server's own type: a connection alone may be one to a peer.
func (p *part) answers(stack tracefmt.StackID) bool {
	for _, fr := range p.stage.Syms.Stack(stack) {
		fn := p.stage.Syms.String(p.stage.Syms.Frame(fr).Func)
		for _, of := range []string{
			"net/http.(*response).", "net/http.(*http2responseWriter).", "net/http/internal/http2.(*responseWriter).",
			"golang.org/x/net/http2.(*responseWriter).", "google.golang.org/grpc.(*serverStream).Send",
		} {
			if strings.HasPrefix(fn, of) {
				return true
			}
		}
		if strings.Contains(fn, "websocket.(*Conn).Write") {
			return true
		}
	}
	return false
}

func (ts *turns) mergeStreams(o *turns) {
	for k, s := range o.streams {
		if ts.streams == nil {
			ts.streams = map[tracefmt.FrameID]streamSum{}
		}
		m := ts.streams[k]
		ts.streams[k] = streamSum{m.all + s.all, m.wrote + s.wrote}
	}
}

// Stream sums up the requests that spent most of their time asleep at a line, several times each, in the slices of time that were looked at.
type Stream struct {
	Site *report.Site
	// Requests counts them, Wrote is the part that wrote to its client between any two of these sleeps.
	Requests int
	Wrote    float64
}

// Streams returns these sums. Merge must have been called.
func (s *Sum) Streams(sp *spell.Speller) []Stream {
	var out []Stream
	for k, r := range s.parts[0].turns.streams {
		out = append(out, Stream{sp.Site(k), int(r.all), float64(r.wrote) / float64(r.all)})
	}
	slices.SortFunc(out, func(a, b Stream) int { return a.Site.Compare(b.Site) })
	return out
}
