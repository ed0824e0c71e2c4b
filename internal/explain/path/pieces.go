package path

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A PieceEnd is where a piece of a long request ends: a time, and the goroutine from which its path is walked.
type PieceEnd struct {
	Time int64
	G    uint64
}

// joinedPieces is what the pieces of one long request have shown so far.
type joinedPieces struct {
	start              int64
	causeTimes         []CauseTime // sorted by cause
	spreads            []Spread    // sorted by cause
	spreadWeights      float64
	bestHandler        request.Handler
	bestHandlerStart   int64 // of the piece that showed it
	segments           []cause.Segment
	unlisted           []unlistedSum // sums of the segments beyond maxPartialSegments
	unlistedIndexes    map[unlistedKey]int32
	lastUnlisted       []int32       // by cause id: index in unlisted plus one of the last sum
	waitChains         [][]ChainWait // nil as long as no segment has one
	pollGapNS, readyNS int64
	pieceEnds          []PieceEnd
}

// An unlistedKey identifies segments of one cause and site.
type unlistedKey struct {
	site       tracefmt.FrameID
	stack      tracefmt.StackID
	kind, call tracefmt.StringID
	code       cause.Code
	isInbound  bool
}

// An unlistedSum is the total length of the segments with one key. start is that of the first one.
type unlistedSum struct {
	unlistedKey
	start, ns int64
}

// maxPartialSegments bounds the segments that are stored of one long request.
const maxPartialSegments = 10000

// isFull reports whether no more segments are stored, only their sums.
func (p *joinedPieces) isFull() bool { return len(p.segments) >= maxPartialSegments }

// HasListed reports whether the stage has already stored as many segments of a long request as it may, so that those of further
// pieces are only added up. Then other stages may walk further pieces, with WalkUnlisted.
func (s *Stage) HasListed(r *request.Request) bool {
	pieces := s.joined[r.PieceKey]
	return pieces != nil && pieces.isFull()
}

// addPiece adds the result of a piece to the earlier pieces of its request: cause times, best handler, and segments. Beyond
// maxPartialSegments, segments are only added up by cause and site.
func (s *Stage) addPiece(w *WalkResult) {
	r := w.Req
	pieces := entry.GetOrMake(s.joined, r.PieceKey, func() *joinedPieces { return &joinedPieces{start: r.Start, readyNS: w.ReadyNS, pollGapNS: w.PollGapNS} })
	pieces.offerHandler(s.bestHandler, r.Start)
	representedNS := cmp.Or(s.representedNS, r.End-r.Start)
	pieces.addTimes(w, representedNS)
	if s.representedNS == 0 && !pieces.isFull() {
		if pieces.waitChains == nil && slices.ContainsFunc(w.Segments, func(seg cause.Segment) bool { return seg.FollowedWait >= 0 }) {
			pieces.waitChains = make([][]ChainWait, len(pieces.segments))
		}
		if pieces.waitChains != nil {
			pieces.waitChains = append(pieces.waitChains, s.waitChains(w.Segments)...)
		}
		pieces.segments = append(pieces.segments, w.Segments...)
	} else {
		pieces.addUnlisted(w, representedNS)
	}
	if r.Piece == request.MiddlePiece {
		pieces.pieceEnds = append(pieces.pieceEnds, PieceEnd{r.End, r.G})
	}
}

// offerHandler replaces the best handler by one that a piece showed, if its rank is higher, or equal and the piece is earlier.
func (p *joinedPieces) offerHandler(handler request.Handler, start int64) {
	isObserver := p.bestHandler.IsObserver || handler.IsObserver
	if handler.Rank > p.bestHandler.Rank || handler.Rank == p.bestHandler.Rank && start < p.bestHandlerStart {
		p.bestHandler, p.bestHandlerStart = handler, start
	}
	p.bestHandler.IsObserver = isObserver
}

// A scaler multiplies lengths by a factor such that their sum is multiplied exactly.
type scaler struct {
	factor      float64
	sum, scaled int64 // of the lengths so far
}

// newScaler returns a scaler for the parts of a piece that represents this much time: its own, or more.
func newScaler(r *request.Request, representedNS int64) scaler {
	if representedNS == r.End-r.Start {
		return scaler{factor: 1}
	}
	return scaler{factor: float64(representedNS) / float64(r.End-r.Start)}
}

// scale returns the scaled length of the next part. The rounding errors of parts do not add up.
func (s *scaler) scale(ns int64) int64 {
	before := s.scaled
	s.sum += ns
	s.scaled = int64(math.Round(float64(s.sum) * s.factor))
	return s.scaled - before
}

// addUnlisted adds the segments of a piece that represents this much time to the sums by cause and site.
func (p *joinedPieces) addUnlisted(w *WalkResult, representedNS int64) {
	lengths := newScaler(w.Req, representedNS)
	for i := range w.Segments {
		s := &w.Segments[i]
		sum := unlistedSum{unlistedKey{s.Site, s.Stack, s.Kind, s.Call, s.Code, s.Inbound}, s.Start, lengths.scale(s.End - s.Start)}
		index := entry.GetOrGrow(&p.lastUnlisted, w.CauseIDs[i])
		if *index != 0 && p.unlisted[*index-1].unlistedKey == sum.unlistedKey {
			p.unlisted[*index-1].ns += sum.ns
		} else {
			*index = p.addUnlistedSum(sum) + 1
		}
	}
}

// addUnlistedSum adds a sum of segments beyond maxPartialSegments to the one with its key (cause and site), which keeps the
// earlier start, and returns that one's index in p.unlisted.
func (p *joinedPieces) addUnlistedSum(sum unlistedSum) int32 {
	index, ok := p.unlistedIndexes[sum.unlistedKey]
	if ok {
		p.unlisted[index].ns += sum.ns
		p.unlisted[index].start = min(p.unlisted[index].start, sum.start)
		return index
	}
	index = int32(len(p.unlisted))
	entry.Put(&p.unlistedIndexes, sum.unlistedKey, index)
	p.unlisted = append(p.unlisted, sum)
	return index
}

// addTimes adds the cause times of a piece that represents this much time, and their error if this is more than its own.
func (p *joinedPieces) addTimes(w *WalkResult, representedNS int64) {
	lengths := newScaler(w.Req, representedNS)
	if lengths.factor == 1 {
		p.addCauseTimes(w.CauseTimes)
		return
	}
	product := max(0, 1-1/lengths.factor)
	p.spreadWeights += product
	for _, sum := range w.CauseTimes {
		sum.NS = lengths.scale(sum.NS)
		p.addCauseTimes([]CauseTime{sum})
		x := float64(sum.NS)
		p.addSpread(Spread{sum.Cause, product * x, product * x * x})
	}
}

// addSpread adds the spread of a piece's cause to that of the same cause, which it creates on demand; spreads stay sorted by
// cause.
func (p *joinedPieces) addSpread(s Spread) {
	i, found := slices.BinarySearchFunc(p.spreads, s.Cause, func(s Spread, id CauseID) int { return cmp.Compare(s.Cause, id) })
	if !found {
		p.spreads = slices.Insert(p.spreads, i, Spread{Cause: s.Cause})
	}
	p.spreads[i].Linear += s.Linear
	p.spreads[i].Square += s.Square
}

// addCauseTimes adds the cause times of a piece. Very many requests can be open at once, most of them with one or two causes:
// with a map for each, 200,000 maps were a tenth of the live heap. Hence a sorted slice.
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

// joinOthers adds the pieces of a request that other stages walked, translating their ids, and removes them there. key is the
// request's PieceKey.
func (s *Stage) joinOthers(pieces *joinedPieces, key uint64, others []*Stage) {
	for _, other := range others {
		part := other.joined[key]
		if part == nil {
			continue
		}
		delete(other.joined, key)
		pieces.offerHandler(part.bestHandler, part.bestHandlerStart)
		translated := func(id CauseID) CauseID {
			k := *other.IDs.Cause(id)
			chain := ChainID(0)
			for _, wait := range other.IDs.Chain(k.Chain) {
				chain = s.IDs.chainID(chainKey{chain, wait})
			}
			k.Chain = chain
			return s.IDs.causeID(k)
		}
		for _, sum := range part.causeTimes {
			pieces.addCauseTimes([]CauseTime{{translated(sum.Cause), sum.NS}})
		}
		pieces.spreadWeights += part.spreadWeights
		for _, spread := range part.spreads {
			spread.Cause = translated(spread.Cause)
			pieces.addSpread(spread)
		}
		for _, sum := range part.unlisted {
			pieces.addUnlistedSum(sum)
		}
		pieces.pieceEnds = append(pieces.pieceEnds, part.pieceEnds...)
	}
	slices.SortFunc(pieces.unlisted, func(a, b unlistedSum) int { return cmp.Compare(a.start, b.start) })
	slices.SortFunc(pieces.pieceEnds, func(a, b PieceEnd) int { return cmp.Compare(a.Time, b.Time) })
}

// Join returns the result for a whole long request, after Walk has returned its last piece. others are stages that may have
// walked pieces of it with WalkUnlisted. The result is valid until the next call of Walk; its slices stay valid.
func (s *Stage) Join(r *request.Request, others []*Stage) *WalkResult {
	pieces := s.joined[r.PieceKey]
	delete(s.joined, r.PieceKey)
	s.joinOthers(pieces, r.PieceKey, others)
	var unlisted []cause.Segment
	for sum := range entry.Each(pieces.unlisted) {
		unlisted = append(unlisted, cause.Segment{
			End: sum.ns, Code: sum.code, Site: sum.site, Stack: sum.stack, Kind: sum.kind, Inbound: sum.isInbound, Call: sum.call, FollowedWait: -1,
		})
	}
	s.bestHandler = pieces.bestHandler
	s.result = WalkResult{
		Req: r, Form: Joined, Weight: 1, Start: pieces.start, PathStart: pieces.start, Observer: pieces.bestHandler.IsObserver, HandlerSeenTwice: s.handlerSeenTwice,
		Segments: pieces.segments, ReadyNS: pieces.readyNS, PollGapNS: pieces.pollGapNS, PieceEnds: pieces.pieceEnds, waitChains: pieces.waitChains, Unlisted: unlisted, stage: s,
	}
	w := &s.result
	if w.Observer {
		return w
	}
	w.CauseTimes, w.Spreads, w.SpreadWeights = pieces.causeTimes, pieces.spreads, pieces.spreadWeights
	w.Group, w.HandlerFrame = s.groupOf(r)
	return w
}

// numberChains sets the chain id of each wait that the last walk followed.
func (s *Stage) numberChains() {
	s.chains = s.chains[:0]
	for followed := range entry.Each(s.walker.FollowedWaits) {
		parent := ChainID(0)
		if followed.Parent >= 0 {
			parent = s.chains[followed.Parent]
		}
		s.chains = append(s.chains, s.IDs.chainID(chainKey{parent, ChainWait{followed.Kind, s.Sites.SiteOf(followed.Stack), s.Sites.CallOf(followed.Stack)}}))
	}
}

// ChainOfSegment returns the chain of waits that led to a segment of the last walk. The segment must have a FollowedWait.
func (w *WalkResult) ChainOfSegment(segment *cause.Segment) ChainID {
	return w.stage.chains[segment.FollowedWait]
}

// ChainOfStep returns the chain of waits that led to a step of the last walk; 0 if the step is the request's own.
func (w *WalkResult) ChainOfStep(step *critpath.Step) ChainID {
	if step.FollowedWait < 0 {
		return 0
	}
	return w.stage.chains[step.FollowedWait]
}

// waitChains returns the chain of waits that led to each segment; nil for the request's own segments.
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
