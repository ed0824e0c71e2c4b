package path

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/request"
)

// A PieceEnd is where a piece of a long request ends: a time, and the goroutine from which its path is walked.
type PieceEnd struct {
	Time int64
	G    uint64
}

// joinedPieces is what the pieces of a long request have shown so far.
type joinedPieces struct {
	start              int64
	causeTimes         []CauseTime // sorted by cause
	bestHandler        request.Handler
	segments           []cause.Segment
	unlisted           []cause.Segment // one for all segments after those that have the same cause and site
	unlistedIndexes    map[cause.Segment]int
	waitChains         [][]ChainWait // nil as long as no segment has one
	pollGapNS, readyNS int64
	pieceEnds          []PieceEnd
}

// maxPartialSegments bounds the segments that are stored of one long request.
const maxPartialSegments = 10000

// addPiece adds a piece to the other pieces of its request.
func (s *Stage) addPiece(w *WalkResult) {
	r := w.Req
	pieces := s.joined[r.PieceKey]
	if pieces == nil {
		pieces = &joinedPieces{start: r.Start, readyNS: w.ReadyNS, pollGapNS: w.PollGapNS}
		s.joined[r.PieceKey] = pieces
	}
	if s.bestHandler.Rank > pieces.bestHandler.Rank {
		pieces.bestHandler = s.bestHandler
	}
	pieces.bestHandler.IsObserver = pieces.bestHandler.IsObserver || s.bestHandler.IsObserver
	pieces.addCauseTimes(w.CauseTimes)
	if len(pieces.segments) < maxPartialSegments {
		if pieces.waitChains == nil && slices.ContainsFunc(w.Segments, func(seg cause.Segment) bool { return seg.FollowedWait >= 0 }) {
			pieces.waitChains = make([][]ChainWait, len(pieces.segments))
		}
		if pieces.waitChains != nil {
			pieces.waitChains = append(pieces.waitChains, s.waitChains(w.Segments)...)
		}
		pieces.segments = append(pieces.segments, w.Segments...)
	} else {
		pieces.addUnlisted(w.Segments)
	}
	if r.Piece == request.MiddlePiece {
		pieces.pieceEnds = append(pieces.pieceEnds, PieceEnd{r.End, r.G})
	}
}

// addUnlisted adds up segments by cause and site.
func (p *joinedPieces) addUnlisted(segments []cause.Segment) {
	if p.unlistedIndexes == nil {
		p.unlistedIndexes = make(map[cause.Segment]int)
	}
	for i := range segments {
		s := &segments[i]
		sum := cause.Segment{Code: s.Code, Site: s.Site, Stack: s.Stack, Kind: s.Kind, Inbound: s.Inbound, Call: s.Call, FollowedWait: -1}
		index, ok := p.unlistedIndexes[sum]
		if !ok {
			index = len(p.unlisted)
			p.unlistedIndexes[sum], p.unlisted = index, append(p.unlisted, sum)
		}
		p.unlisted[index].End += s.End - s.Start
	}
}

// addCauseTimes adds the times of a piece. Very many requests can be open at once, most of them with one or two
// causes: with a map for each, 200,000 maps were a tenth of the live heap. Hence a sorted slice.
func (p *joinedPieces) addCauseTimes(times []CauseTime) {
	for _, sum := range times {
		i, found := slices.BinarySearchFunc(p.causeTimes, sum.Cause, func(s CauseTime, id CauseID) int { return cmp.Compare(s.Cause, id) })
		if found {
			p.causeTimes[i].NS += sum.NS
		} else {
			p.causeTimes = slices.Insert(p.causeTimes, i, sum)
		}
	}
}

// Join returns the whole request of which Walk has just returned the last piece. The result is valid until the next
// call of Walk; its slices stay valid.
func (s *Stage) Join(r *request.Request) *WalkResult {
	pieces := s.joined[r.PieceKey]
	delete(s.joined, r.PieceKey)
	s.bestHandler = pieces.bestHandler
	s.result = WalkResult{
		Req: r, Form: Joined, Weight: 1, Start: pieces.start, PathStart: pieces.start, Observer: pieces.bestHandler.IsObserver, HandlerSeenTwice: s.handlerSeenTwice,
		Segments: pieces.segments, ReadyNS: pieces.readyNS, PollGapNS: pieces.pollGapNS, PieceEnds: pieces.pieceEnds, waitChains: pieces.waitChains, Unlisted: pieces.unlisted, stage: s,
	}
	w := &s.result
	if w.Observer {
		return w
	}
	w.CauseTimes = pieces.causeTimes
	w.Group, w.HandlerFrame = s.groupOf(r)
	return w
}

// numberChains numbers the chains of waits of the last walk.
func (s *Stage) numberChains() {
	s.chains = s.chains[:0]
	for i := range s.walker.FollowedWaits {
		followed := &s.walker.FollowedWaits[i]
		parent := ChainID(0)
		if followed.Parent >= 0 {
			parent = s.chains[followed.Parent]
		}
		s.chains = append(s.chains, s.IDs.chainID(chainKey{parent, ChainWait{followed.Kind, s.Sites.SiteOf(followed.Stack), s.Sites.CallOf(followed.Stack)}}))
	}
}

// ChainOfSegment returns the chain of waits that led to a segment of the last walk.
func (w *WalkResult) ChainOfSegment(segment *cause.Segment) ChainID {
	return w.stage.chains[segment.FollowedWait]
}

// ChainOfStep returns the chain of waits that led to a step of the last walk.
func (w *WalkResult) ChainOfStep(step *critpath.Step) ChainID {
	if step.FollowedWait < 0 {
		return 0
	}
	return w.stage.chains[step.FollowedWait]
}

// waitChains returns the chain of waits of each segment.
func (s *Stage) waitChains(segs []cause.Segment) [][]ChainWait {
	out := make([][]ChainWait, len(segs))
	var chain []ChainWait // mostly the same for consecutive segments
	lastID := ChainID(-1)
	for i := range segs {
		if segs[i].FollowedWait >= 0 {
			if id := s.chains[segs[i].FollowedWait]; id != lastID {
				lastID, chain = id, s.IDs.Chain(id)
			}
			out[i] = chain
		}
	}
	return out
}
