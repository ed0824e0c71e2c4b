// Package path walks a request: it follows its critical path, gives every step
// a cause, cuts the segments at the borders of what may be freezes, and names
// the handler. What it finds of one request is a Walked, which adders sum up;
// this package sums up nothing.
package path

import (
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Form says how much of a request a Walked is.
type Form uint8

// Forms.
const (
	// Whole is a request that was walked at once.
	Whole Form = iota
	// Piece is a part of a request that is open over many generations. Its group
	// is not known yet.
	Piece
	// Joined is a request of which all pieces were walked before. It has no steps,
	// and only the first of its segments.
	Joined
	// CutAtStart is a request that began before the trace and ended in it. Nothing of it
	// was walked.
	CutAtStart
	// NotWalked is a request of which only group and latency are known: others of
	// its group that took as long stand for the rest.
	NotWalked
)

// A Walked is what was found of one request. It is valid during the call in
// which it is given, and must not be changed.
type WalkResult struct {
	Req  *request.Request
	Form Form
	// Weight is how many requests this one stands for. Counts and times are added
	// up multiplied by it. Others of them are given as well, Glanced.
	Weight, AddedSeparately int64
	// Sparse says that not all requests of its group that ended in the same
	// generation were walked: those that a Sum needs were, see pass.Chooser.
	Sparse bool
	// Start is when the request began, From where its path begins: later than
	// Start for an open request that began before what is left of the trace.
	Start, PathStart int64
	Group            GroupID
	HandlerFrame     tracefmt.FrameID // a frame of the handler; 0: none
	// Observer says that the request looked at the process itself: a profile, a
	// trace.
	Observer bool
	// HandlerSeenTwice says that several stacks showed the handler, so that what they have
	// in common means something.
	HandlerSeenTwice bool
	// Sampled selects about fifty requests a generation: what ran beside them
	// is looked up. It depends on the request alone.
	Sampled bool
	// LongPWaits are the indexes of the waits for a P that are long enough to look up
	// what ran meanwhile: the first MaxLongPWaits.
	LongPWaits []int32
	Steps      []critpath.Step
	// Segments cover [From, Req.End). CauseIDs has their causes.
	Segments []cause.Segment
	CauseIDs []CauseID
	// CauseTimes add up to the length of all segments, also those that a Joint left out.
	CauseTimes []CauseTime
	// ReadyNS is how long the request was ready to run before it first did, -1 if
	// that is not known; Gap how long its message may have lain unread before.
	ReadyNS, PollGapNS int64
	// PieceEnds are the times at which a Joint was cut.
	PieceEnds []int64

	waitChains [][]ChainWait // of a Joint's segments
	stage      *Stage
}

// An Adder is one worker's part of something that is added up over requests.
type Adder interface {
	// Add adds one request that was walked, or a piece of one.
	Add(w *WalkResult)
}

// A Sum is the time that a request spent on one cause.
type CauseTime struct {
	Cause CauseID
	NS    int64
}

// IsComplete reports whether a request was followed to its end, at once or in pieces, and did not look at the process itself.
func (w *WalkResult) IsComplete() bool {
	return (w.Form == Whole || w.Form == Joined) && !w.Req.Open && !w.Observer
}

// Latency returns how long the request took, so far if it is open.
func (w *WalkResult) Latency() int64 { return w.Req.End - w.Start }

// CountedRequests returns for how many requests' latencies this one stands: for its own alone
// where the others are given as well.
func (w *WalkResult) CountedRequests() int64 { return w.Weight - w.AddedSeparately }

// WaitChains returns the chain of waits that led to each segment. The result stays
// valid.
func (w *WalkResult) WaitChains() [][]ChainWait {
	if w.waitChains != nil {
		return w.waitChains
	}
	return w.stage.waitChains(w.Segments)
}

// FollowedWaits returns the waits that the walk of a Whole followed. It is valid during the call.
func (w *WalkResult) FollowedWaits() []critpath.FollowedWait { return w.stage.walker.FollowedWaits }

// Options configure a Stage.
type Options struct {
	// Freezes knows the stretches that may be freezes; nil: there are none.
	Freezes *freeze.Detector
	// Settlement, if not nil, says which of them were: then no code is pending.
	Settlement *cause.Settlement
	// AnswersOf, if not nil, says for which requests of the process another one
	// waits: the path goes on in them. See critpath.Walker.
	AnswersOf func(g uint64, start int64) []critpath.Answer
	// IsClientWait, if not nil, says of more waits for the network that a client of the process ends them.
	IsClientWait func(wait tracefmt.StackID) bool
}

// ConfigureWalker gives a walker what is known beside the trace's events.
func (o *Options) ConfigureWalker(walker *critpath.Walker) {
	walker.AnswersOf, walker.IsClientWait = o.AnswersOf, o.IsClientWait
}

// A Stage walks requests of a window. One goroutine may use it at a time.
type Stage struct {
	Win  *timeline.Window
	Syms *tracefmt.Symbols
	// Sites remembers the sites of stacks, IDs numbers what was found.
	Sites *cause.Sites
	IDs   *IDs

	options           Options
	walker            *critpath.Walker
	classifier        *cause.Classifier
	namer             *request.Namer
	result            WalkResult
	joined            map[uint64]*joinedPieces // by request.Key
	hasCPUSamples     bool                     // the window has CPU samples
	hasTimeoutHandler bool                     // http.TimeoutHandler was seen
	servedPerSampled  uint64                   // one request of a server of so many is Sampled,
	otherPerSampled   uint64                   // and one of so many of others

	// Of one request.
	bestHandler       request.Handler
	handlerStack      tracefmt.StackID // the first that showed the handler
	handlerSeenTwice  bool             // another one was seen
	chains            []ChainID        // by index in walker.Vias
	causeIDs          []CauseID
	longPWaits        []int32
	causeTimes        []CauseTime
	causeTimeIndex    []int32 // by cause: index in sums + 1
	splitSegments     []cause.Segment
	spans             []timeline.Span
	namingStacks      []tracefmt.StackID
	timeoutGoroutines map[int64]map[uint64][]timeline.Birth // by generation and creator: see timedOut
}

// New returns a Stage over a window. syms must hold the window's symbols at
// every call.
func New(win *timeline.Window, syms *tracefmt.Symbols, opts Options) *Stage {
	s := &Stage{
		Win: win, Syms: syms, IDs: newIDs(), options: opts, servedPerSampled: 1, otherPerSampled: 1,
		walker:            critpath.New(win, syms),
		classifier:        cause.New(win, syms),
		namer:             request.NewNamer(syms),
		joined:            make(map[uint64]*joinedPieces),
		timeoutGoroutines: make(map[int64]map[uint64][]timeline.Birth),
	}
	s.Sites = s.classifier.Sites
	opts.ConfigureWalker(s.walker)
	s.walker.VisitOwnStack = func(id tracefmt.StackID) { s.noteHandler(s.namer.HandlerOf(id), id) }
	return s
}

// Bounds of looking things up for Sampled requests.
const (
	sampledPerGeneration = 50 // of a generation, about

	// MaxLongPWaits bounds the waits of one request that are Looked at.
	MaxLongPWaits = 8
)

// BeginGeneration prepares for the requests of one more generation: n of servers, and
// others. Of the first as many are Sampled whatever work stands beside them.
func (s *Stage) BeginGeneration(servedCount, otherCount int) {
	s.servedPerSampled = uint64(1 + servedCount/sampledPerGeneration)
	s.otherPerSampled = uint64(1 + otherCount/sampledPerGeneration)
	s.hasCPUSamples = false
	for _, g := range s.Win.Gens {
		s.hasCPUSamples = s.hasCPUSamples || len(g.Samples) > 0
	}
	s.hasTimeoutHandler = s.Syms.Lookup(timeoutHandler) != 0
	s.namer.FindMainModule()
	clear(s.timeoutGoroutines)
}

// Walk walks a request, or a part of one. The result is valid until the next
// call.
func (s *Stage) Walk(r *request.Request) *WalkResult {
	s.bestHandler, s.handlerStack, s.handlerSeenTwice = request.Handler{}, 0, false
	s.result = WalkResult{Req: r, Weight: 1, Start: r.Start, PathStart: r.Start, stage: s}
	w := &s.result
	if r.CutAtStart && !r.Open {
		w.Form = CutAtStart
		w.Group, w.HandlerFrame = s.groupOf(r)
		return w
	}
	if r.CutAtStart {
		w.PathStart = max(w.PathStart, s.Win.Start())
	}
	perSampled := s.servedPerSampled
	if !r.Kind.IsServed() {
		perSampled = s.otherPerSampled
	}
	w.Sampled = hash(uint64(r.Start)^r.G<<32)>>8%perSampled == 0
	w.Steps = s.walker.Walk(r.G, w.PathStart, r.End)
	w.ReadyNS, w.PollGapNS = s.readyTime(r, w.Steps)
	s.nameBySamples(r, w.Steps)
	s.nameByTimeoutHandler(r, w.Steps)
	w.Segments = s.SplitAtFreezes(&s.splitSegments, s.classifier.Segments(w.Steps))
	w.Observer, w.HandlerSeenTwice = s.bestHandler.IsObserver, s.handlerSeenTwice
	if r.Piece == request.WholeRequest && w.Observer {
		return w
	}
	s.numberChains()
	s.sumByCause(w)
	if r.Piece != request.WholeRequest {
		w.Form = Piece
		s.addPiece(w)
		return w
	}
	w.Group, w.HandlerFrame = s.groupOf(r)
	return w
}

// Segments walks one goroutine's path and returns its segments, which are
// valid until the next call. They are no request's: nothing is named or summed.
func (s *Stage) Segments(g uint64, from, to int64) []cause.Segment {
	return s.SplitAtFreezes(&s.splitSegments, s.classifier.Segments(s.walker.Walk(g, from, to)))
}

// Graph returns what the end of what a goroutine did depended on: see critpath.Walker.Graph.
func (s *Stage) Graph(g uint64, from, to int64) *critpath.Graph { return s.walker.Graph(g, from, to) }

// WalkAgain walks a request, or a part of one, for its steps and segments alone.
func (s *Stage) WalkAgain(r *request.Request) *WalkResult {
	s.result = WalkResult{Req: r, Weight: 1, Start: r.Start, PathStart: r.Start, stage: s}
	w := &s.result
	w.Steps = s.walker.Walk(r.G, r.Start, r.End)
	w.Segments = s.SplitAtFreezes(&s.splitSegments, s.classifier.Segments(w.Steps))
	s.numberChains()
	return w
}

// readyTime returns for how long a request was ready to run, and the poll gap before.
func (s *Stage) readyTime(r *request.Request, steps []critpath.Step) (ready, gap int64) {
	if r.WokenAt == 0 || r.WokenAt != r.Start || len(steps) == 0 || steps[0].Kind != critpath.Runnable {
		return -1, 0
	}
	for i := range steps {
		if steps[i].Kind != critpath.Runnable || steps[i].G != steps[0].G {
			break
		}
		ready = steps[i].End - r.WokenAt
	}
	if steps[0].WokenByPoller {
		gap = s.walker.PollGap(r.WokenAt)
	}
	return ready, gap
}

// sumByCause adds up the segments by cause.
func (s *Stage) sumByCause(w *WalkResult) {
	s.causeIDs, s.causeTimes, s.longPWaits = s.causeIDs[:0], s.causeTimes[:0], s.longPWaits[:0]
	for i := range w.Segments {
		segment := &w.Segments[i]
		chain := ChainID(0)
		if segment.FollowedWait >= 0 {
			chain = s.chains[segment.FollowedWait]
		}
		runLength := segment.RunLength
		if segment.SiteSource != cause.SiteFromBracket {
			runLength = 0
		}
		id := s.IDs.causeID(CauseKey{segment.Code, segment.SiteSource, runLength, segment.Inbound, segment.Site, segment.Kind, segment.Call, chain})
		s.causeIDs = append(s.causeIDs, id)
		if segment.Code.Cause() == cause.Sched && segment.End-segment.Start > scale.Blink && len(s.longPWaits) < MaxLongPWaits {
			s.longPWaits = append(s.longPWaits, int32(i))
		}
		for int(id) >= len(s.causeTimeIndex) {
			s.causeTimeIndex = append(s.causeTimeIndex, 0)
		}
		if k := s.causeTimeIndex[id]; k != 0 {
			s.causeTimes[k-1].NS += segment.End - segment.Start
		} else {
			s.causeTimes = append(s.causeTimes, CauseTime{id, segment.End - segment.Start})
			s.causeTimeIndex[id] = int32(len(s.causeTimes))
		}
	}
	for _, sum := range s.causeTimes {
		s.causeTimeIndex[sum.Cause] = 0
	}
	w.CauseIDs, w.CauseTimes, w.LongPWaits = s.causeIDs, s.causeTimes, s.longPWaits
}

func hash(k uint64) uint64 {
	k *= 0x9e3779b97f4a7c15
	return k ^ k>>32
}
