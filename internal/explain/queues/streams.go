package queues

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Who writes a part of the answer between one wait and the next, repeatedly, sends a stream: its client has each part at once, and does
// not wait for the whole. Who waits several times and then answers has written nothing between.

// Of the waits of one request the first tell.
const streamMost = 64

// streamSum adds up the requests that spend most of their time in waits at one line, several times each.
type streamSum struct {
	gaps  int64 // between two of these waits of one request
	wrote int64 // of them, those in which it wrote to its client
}

// addStream takes note of whether a request that waits repeatedly at a line writes to its client meanwhile.
func (p *part) addStream(w *path.Walked, own []ownWait) {
	waits := w.Waits()
	list := slices.DeleteFunc(own, func(x ownWait) bool {
		return x.of >= 0 && !slices.Contains([]critpath.WaitKind{critpath.WaitChan, critpath.WaitSelect, critpath.WaitCond}, waits[x.of].Kind)
	})
	at := map[tracefmt.FrameID]int64{}
	for _, x := range list {
		at[x.site] += x.to - x.from
	}
	slices.SortFunc(list, func(a, b ownWait) int { return cmp.Compare(a.from, b.from) })
	var site tracefmt.FrameID
	total := int64(0)
	for _, x := range list {
		if at[x.site] > total {
			site, total = x.site, at[x.site]
		}
	}
	var sum streamSum
	n, last := 0, int64(0)
	for _, x := range list {
		if x.site != site {
			continue
		}
		if x.from == last {
			last = x.to // one sleep, which a freeze cut
			continue
		}
		if n > 0 && n < streamMost {
			sum.gaps++
			if p.wroteAnswer(w.Req.G, last, x.from) {
				sum.wrote++
			}
		}
		n, last = n+1, x.to
	}
	if n < scale.Several || 2*total <= w.Req.End-w.Req.Start {
		return
	}
	p.streams[site] = p.streams[site].plus(sum)
}

func (s streamSum) plus(o streamSum) streamSum { return streamSum{s.gaps + o.gaps, s.wrote + o.wrote} }

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
			"net/http.(*response).", "google.golang.org/grpc.(*serverStream).Send",
		} {
			if strings.HasPrefix(fn, of) {
				return true
			}
		}
		if strings.Contains(fn, "websocket.(*Conn).Write") || strings.Contains(fn, "http2") && strings.Contains(fn, "esponseWriter).") {
			return true
		}
	}
	return false
}

// Stream sums up the requests that spent most of their time in waits at a line, several times each, in the slices of time that were looked at.
type Stream struct {
	Site *report.Site
	// Wrote is for which part of the times between two of these waits they were seen to write to their client. A writer that all
	// streams of a connection share may be awake, so that not all are.
	Wrote float64
}

// Streams returns these sums. Merge must have been called.
func (s *Sum) Streams(sp *spell.Speller) []Stream {
	var out []Stream
	for k, r := range s.parts[0].streams {
		out = append(out, Stream{sp.Site(k), float64(r.wrote) / float64(r.gaps)})
	}
	slices.SortFunc(out, func(a, b Stream) int { return a.Site.Compare(b.Site) })
	return out
}
