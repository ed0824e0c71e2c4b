package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A request that repeatedly writes a part of its answer between two waits sends a stream: its client receives each part at
// once and does not wait for the whole. A request that waits several times and then answers has written nothing between its
// waits.

// maxStreamGaps bounds the waits of one request that are counted.
const maxStreamGaps = 64

// A streamSum adds up the requests that spend most of their time in waits at one line, several times each.
type streamSum struct {
	gaps    int64 // times between two successive waits of one request
	written int64 // gaps in which the request wrote to its client
}

// addStream recognises a streaming request: it waits at one line, at least threshold.Repeats times, and spends most of its time in
// these waits after the first, before which its client has nothing. It counts how often the request writes to its client between
// two of them. It changes the elements of waits.
func (p *workerSum) addStream(w *path.WalkResult, waits []ownWait) {
	chain := w.FollowedWaits()
	blocking := slices.DeleteFunc(waits, func(x ownWait) bool {
		kinds := []critpath.WaitKind{critpath.WaitChan, critpath.WaitSelect, critpath.WaitCond}
		return x.waitIndex >= 0 && !slices.Contains(kinds, chain[x.waitIndex].Kind)
	})
	for i := range w.Segments { // the parts of a peer's answer that the request reads itself
		if s := &w.Segments[i]; s.G == w.Req.G && s.FollowedWait < 0 && s.Code.Cause() == cause.Network && !s.Inbound {
			blocking = append(blocking, ownWait{s.Site, s.Start, s.End, -1})
		}
	}
	p.ownWaitScratch = blocking
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
			lastEnd = wait.end // one wait, which a freeze divided
			continue
		}
		if count == 0 {
			total -= wait.end - wait.start
		}
		if count > 0 && count < maxStreamGaps {
			sum.gaps++
			if p.hasWrittenAnswer(w.Req, lastEnd, wait.start) {
				sum.written++
			}
		}
		count, lastEnd = count+1, wait.end
	}
	if count < threshold.Repeats || 2*total <= w.Req.End-w.Req.Start {
		return
	}
	p.streams[site] = p.streams[site].plus(sum)
}

func (s streamSum) plus(addend streamSum) streamSum {
	return streamSum{s.gaps + addend.gaps, s.written + addend.written}
}

// hasWrittenAnswer reports whether a request's goroutine wrote to its client in [from, to): by its own system call, or by a
// hand-over to the goroutine that writes for all streams of the connection. Of a server for which no function has the role
// AnswerWrite, a write by code of one owner counts: the client library of a peer has another one than the handler that calls it.
func (p *workerSum) hasWrittenAnswer(r *request.Request, from, to int64) (wrote bool) {
	sites := p.stage.Sites
	p.spans = p.stage.Win.SpansCoarse(r.G, from, to, p.spans[:0])
	for i := range p.spans {
		switch s := &p.spans[i]; {
		case s.Start < from:
		case s.State == timeline.Waiting && sites.HasRole(s.Stack, knowledge.AnswerWrite):
			return true
		case s.State == timeline.Syscall && sites.HasRole(s.Stack, knowledge.SocketWrite): // not a read from the peer
			if sites.HasRole(s.Stack, knowledge.AnswerWrite) || r.AnswersClient && sites.HasOneOwner(s.Stack) {
				return true
			}
		}
	}
	wrote, _ = p.stage.Win.HasWoken(r.G, from, to, func(_ uint64, stack tracefmt.StackID) bool { return sites.HasRole(stack, knowledge.AnswerWrite) })
	return wrote
}

// A Stream describes the requests that spent most of their time in waits at one line, several times each, in the sampled slices
// of the trace.
type Stream struct {
	Site *report.Site
	// WriteShare is the share of the times between two of these waits in which a write to the client was observed. It misses
	// writes if the goroutine that writes for all streams of a connection is already awake.
	WriteShare float64
}

// Streams returns the streams, one a source line. Merge must have been called.
func (s *Sum) Streams(sp *spell.Speller) (out []Stream) {
	for site, sum := range s.workers[0].streams {
		out = append(out, Stream{sp.Site(site), float64(sum.written) / float64(sum.gaps)})
	}
	slices.SortFunc(out, func(a, b Stream) int { return a.Site.Compare(b.Site) })
	return out
}
