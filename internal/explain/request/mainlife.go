package request

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// mainKey is the PieceKey of the main goroutine's life.
const mainKey = ^uint64(0)

// maxEvidenceSpans is up to how many states in a generation the main goroutine's life is emitted although jobs or iterations
// were found in it. Their short runs without stacks are assigned to sites by longer runs below the same function, and the main
// goroutine may have those.
const maxEvidenceSpans = 1 << 14

// mainSource emits the main goroutine's life, for programs in which no request is found: one piece in each generation.
type mainSource struct {
	sourceStubs
	life    openRequest
	isKnown bool
	idleNS  int64 // how long the goroutine waited without work of this process ending the wait
}

func (m *mainSource) add(c *collector, g *timeline.Gen) {
	requestCount := c.requestCount
	for i := 0; i < len(c.emitted) && requestCount < threshold.MedianSample; i++ {
		if kind := c.emitted[i].Kind; kind != Goroutine && kind != Loop {
			requestCount++
		}
	}
	if requestCount >= threshold.MedianSample || !g.Knows(1) {
		return
	}
	if len(c.emitted) >= threshold.MedianSample && g.Pieces(1) > 2*maxEvidenceSpans {
		return
	}
	idleNS, spanCount := int64(0), 0
	c.spanBuffer = c.window.EachSpans(1, g.Base, g.End, c.spanBuffer, func(spans []timeline.Span) {
		for i := range spans {
			if s := &spans[i]; s.State == timeline.Waiting && isEndedOutside(c, g, s) {
				idleNS += min(s.End, g.End) - max(s.Start, g.Base)
			}
		}
		spanCount += len(spans)
	})
	if len(c.emitted) >= threshold.MedianSample && spanCount > maxEvidenceSpans {
		return
	}
	if !m.isKnown {
		m.isKnown, m.life = true, openAt(g.Base)
	}
	m.idleNS += idleNS
	if to := c.pieceEnd(1, m.life.pieceStart, g.End); to > m.life.pieceStart {
		m.emitPiece(c, to, MiddlePiece)
		m.life.pieceStart = to
		c.requestCount--
	}
}

func (m *mainSource) finish(c *collector, end int64) {
	if m.isKnown {
		m.emitPiece(c, end, LastPiece)
	}
}

func (m *mainSource) emitPiece(c *collector, end int64, piece Piece) {
	c.emitted = append(c.emitted, Request{Kind: Main, Start: m.life.pieceStart, End: end, G: 1, Piece: piece, PieceKey: mainKey})
}

// isEndedOutside reports whether no work of this process ended a wait: it has not ended, or a timer or the network
// ended it.
func isEndedOutside(c *collector, g *timeline.Gen, s *timeline.Span) bool {
	if !s.Woken || s.Waker == 0 {
		return true
	}
	reason := c.reasonOf(s.Reason)
	b, born := g.BirthOf(s.Waker) // the runtime starts a goroutine for a context's deadline
	return reason == reasonSleep || reason == reasonNetwork || born && b.Creator == 0 && c.stackInfo(b.Start).role == roleMachinery
}

// IsMainIdle reports whether the main goroutine was idle for most of the time: it slept, accepted connections, or
// waited for a signal.
func (f *Finder) IsMainIdle() bool {
	return f.main.isKnown && 2*f.main.idleNS > f.main.life.pieceStart-f.main.life.start
}
