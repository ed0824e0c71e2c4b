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
const maxStreamGaps = 64

// streamSum adds up the requests that spend most of their time in waits at one line, several times each.
type streamSum struct {
	gaps    int64 // between two of these waits of one request
	written int64 // of them, those in which it wrote to its client
}

// addStream takes note of whether a request that waits repeatedly at a line writes to its client meanwhile.
func (p *workerSum) addStream(w *path.WalkResult, waits []ownWait) {
	chain := w.FollowedWaits()
	blocking := slices.DeleteFunc(waits, func(x ownWait) bool {
		return x.waitIndex >= 0 && !slices.Contains([]critpath.WaitKind{critpath.WaitChan, critpath.WaitSelect, critpath.WaitCond}, chain[x.waitIndex].Kind)
	})
	nsBySite := map[tracefmt.FrameID]int64{}
	for _, wait := range blocking {
		nsBySite[wait.site] += wait.end - wait.start
	}
	slices.SortFunc(blocking, func(a, b ownWait) int { return cmp.Compare(a.start, b.start) })
	var site tracefmt.FrameID
	total := int64(0)
	for _, wait := range blocking {
		if nsBySite[wait.site] > total {
			site, total = wait.site, nsBySite[wait.site]
		}
	}
	var sum streamSum
	count, lastEnd := 0, int64(0)
	for _, wait := range blocking {
		if wait.site != site {
			continue
		}
		if wait.start == lastEnd {
			lastEnd = wait.end // one sleep, which a freeze cut
			continue
		}
		if count > 0 && count < maxStreamGaps {
			sum.gaps++
			if p.hasWrittenAnswer(w.Req.G, lastEnd, wait.start) {
				sum.written++
			}
		}
		count, lastEnd = count+1, wait.end
	}
	if count < scale.Several || 2*total <= w.Req.End-w.Req.Start {
		return
	}
	p.streams[site] = p.streams[site].plus(sum)
}

func (s streamSum) plus(addend streamSum) streamSum {
	return streamSum{s.gaps + addend.gaps, s.written + addend.written}
}

// hasWrittenAnswer reports whether a goroutine wrote to its request's client in [from, to): in a system call of its own, or by
// handing it to the goroutine that writes for all streams of the connection.
func (p *workerSum) hasWrittenAnswer(g uint64, from, to int64) bool {
	p.spans = p.stage.Win.SpansCoarse(g, from, to, p.spans[:0])
	for i := range p.spans {
		if s := &p.spans[i]; s.Start >= from && (s.State == timeline.Syscall || s.State == timeline.Waiting) && p.isAnswerWrite(s.Stack) {
			return true
		}
	}
	wrote := false
	p.stage.Win.Woke(g, from, to, func(_ uint64, stack tracefmt.StackID) bool {
		wrote = p.isAnswerWrite(stack)
		return !wrote
	})
	return wrote
}

// isAnswerWrite reports whether a stack is inside of what writes an answer, by a server's own type: a connection alone may be one to a peer.
func (p *workerSum) isAnswerWrite(stack tracefmt.StackID) bool {
	for _, frame := range p.stage.Syms.Stack(stack) {
		fn := p.stage.Syms.String(p.stage.Syms.Frame(frame).Func)
		for _, prefix := range []string{
			"net/http.(*response).", "google.golang.org/grpc.(*serverStream).Send",
		} {
			if strings.HasPrefix(fn, prefix) {
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
	// WriteShare is for which part of the times between two of these waits they were seen to write to their client. A writer that all
	// streams of a connection share may be awake, so that not all are.
	WriteShare float64
}

// Streams returns these sums. Merge must have been called.
func (s *Sum) Streams(sp *spell.Speller) []Stream {
	var out []Stream
	for site, sum := range s.workers[0].streams {
		out = append(out, Stream{sp.Site(site), float64(sum.written) / float64(sum.gaps)})
	}
	slices.SortFunc(out, func(a, b Stream) int { return a.Site.Compare(b.Site) })
	return out
}
