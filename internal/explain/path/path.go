// Package path analyses one request: it walks the critical path, classifies every step by cause, marks the parts that
// a freeze may have taken, and finds the handler that names the request's group.
//
// A Stage does this for the requests of one worker, over a window of decoded generations. It returns a WalkResult for
// each request. The package adds up nothing over requests: adders (see Adder, and package pass) do.
//
// Causes, groups and chains of waits are numbered densely from 0 (see IDs), so that adders can use slices. Each Stage
// numbers on its own; MergeIDs translates afterwards.
package path

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Form says which part of a request a WalkResult covers.
type Form uint8

// Forms of results.
const (
	// Whole is a whole request that was walked at once.
	Whole Form = iota
	// Piece is a part of a request that is open over many generations. Its group is not yet known.
	Piece
	// Joined is a whole request whose pieces were walked before. It has no steps, and only its first segments.
	Joined
	// CutAtStart is a request that began before the trace and ended in it. It was not walked.
	CutAtStart
	// NotWalked are requests of which only group and times are known. Walked requests of the same group with a
	// similar latency represent them, by their Weight.
	NotWalked
)

// A WalkResult is the analysis of one request. It is valid during the call that receives it, which must not change it.
type WalkResult struct {
	Req  *request.Request
	Form Form
	// Weight is the number of requests that this one represents; adders multiply counts and times by it. AddedSeparately is the
	// number of these that are also added as NotWalked results.
	Weight, AddedSeparately int64
	// Units are the requests of a NotWalked result. They are in one group; Req, Start and the other fields describe the first, and
	// Weight is their number.
	Units []request.Unit
	// Sparse reports that not all requests of the group that ended in the same generation were walked. Requests that
	// a Chooser of package pass needs always are.
	Sparse bool
	// Start is when the request began. PathStart is when its path begins: later than Start if the request is open and
	// began before the window.
	Start, PathStart int64
	Group            GroupID
	HandlerFrame     tracefmt.FrameID // a frame of the handler; 0 if unknown
	// Observer reports that the request observed the process itself, for example to write a profile or a trace.
	Observer bool
	// HandlerSeenTwice reports that at least two stacks contain the handler, so that their common frames are
	// meaningful.
	HandlerSeenTwice bool
	// Sampled selects about fifty requests a generation, for which adders look up what ran concurrently. It depends
	// only on the request.
	Sampled bool
	// LongPWaits are the indexes of the first MaxLongPWaits segments that wait for a P long enough to look up what
	// ran then.
	LongPWaits []int32
	Steps      []critpath.Step
	// Segments cover [PathStart, Req.End). CauseIDs has the cause of each.
	Segments []cause.Segment
	CauseIDs []CauseID
	// CauseTimes add up to the length of all segments, including segments that a Joined result lost.
	CauseTimes []CauseTime
	// ReadyNS is how long the request was ready before it first ran, -1 if unknown. PollGapNS is how long its message
	// may have been unread before that.
	ReadyNS, PollGapNS int64
	// Unlisted has, for the segments that a Joined result could not store, one segment for each cause and site, with the sum of
	// their lengths.
	Unlisted []cause.Segment
	// Spreads and SpreadWeights have the error of a Joined result's CauseTimes, if only a sample of its pieces was walked.
	Spreads       []Spread
	SpreadWeights float64
	// PieceEnds are the ends of all pieces of a Joined request but the last.
	PieceEnds []PieceEnd

	waitChains [][]ChainWait // of the segments of a Joined result
	stage      *Stage
}

// An Adder is one worker's part of a sum over requests.
type Adder interface {
	// Add adds a request, or a piece of one.
	Add(w *WalkResult)
}

// A CauseTime is the time that a request spent on one cause.
type CauseTime struct {
	Cause CauseID
	NS    int64
}

// A Spread accumulates the sampling error of one cause over sampled pieces. A piece that represents w times its own length, x ns of
// them with the cause, adds (1-1/w)x to Linear and (1-1/w)x² to Square, and 1-1/w to SpreadWeights.
type Spread struct {
	Cause          CauseID
	Linear, Square float64
}

// IsComplete reports whether the request ended, its whole path was walked (at once or in pieces), and it was not an observer.
func (w *WalkResult) IsComplete() bool {
	return (w.Form == Whole || w.Form == Joined) && !w.Req.Open && !w.Observer
}

// Latency returns the time from the request's start to its end, in ns; to the end of the trace if it is open.
func (w *WalkResult) Latency() int64 { return w.Req.End - w.Start }

// CountedRequests returns the number of requests that this result adds to counts and latencies: Weight without those that are
// added separately.
func (w *WalkResult) CountedRequests() int64 { return w.Weight - w.AddedSeparately }

// WaitChains returns the chain of waits that led to each segment. The result stays valid.
func (w *WalkResult) WaitChains() [][]ChainWait {
	if w.waitChains != nil {
		return w.waitChains
	}
	return w.stage.waitChains(w.Segments)
}

// FollowedWaits returns the waits that the walk of a Whole result followed. It is valid during the call.
func (w *WalkResult) FollowedWaits() []critpath.FollowedWait { return w.stage.walker.FollowedWaits }

// Options configure a Stage.
type Options struct {
	// Freezes has the candidates for freezes; nil means none.
	Freezes *freeze.Detector
	// Settlement, if not nil, decides which candidates were freezes. Then no code is pending.
	Settlement *cause.Settlement
	// Threads, if not nil, has the kernel's events about the process's threads.
	Threads *threadstate.Tracker
	// AnswersOf and IsClientWait configure the walker: see critpath.Walker.
	AnswersOf    func(g uint64, start int64) []critpath.Answer
	IsClientWait func(wait tracefmt.StackID) (isClient, isKnown bool)
	// RemoteAnswerTo configures the walker, too. RemoteCause returns the cause of a segment with the given Remote.
	RemoteAnswerTo func(g, waiter uint64, start, end int64) *critpath.RemoteAnswer
	RemoteCause    func(remote int32) cause.Cause
}

// ConfigureWalker sets the walker's external sources: in-process answers and client detection.
func (o *Options) ConfigureWalker(walker *critpath.Walker) {
	walker.AnswersOf, walker.IsClientWait, walker.RemoteAnswerTo = o.AnswersOf, o.IsClientWait, o.RemoteAnswerTo
}

// A Stage walks requests of a window. Only one goroutine may use it at a time.
type Stage struct {
	Win  *timeline.Window
	Syms *tracefmt.Symbols
	// Sites caches the sites of stacks. IDs numbers causes, chains and groups.
	Sites *cause.Sites
	IDs   *IDs

	options           Options
	walker            *critpath.Walker
	classifier        *cause.Classifier
	namer             *request.Namer
	result            WalkResult
	unwalked          WalkResult               // of Unwalked: most fields never change
	joined            map[uint64]*joinedPieces // by request.Key
	representedNS     int64                    // while WalkUnlisted is walking, else 0
	hasCPUSamples     bool
	hasTimeoutHandler bool   // http.TimeoutHandler is in the symbols
	servedPerSampled  uint64 // one of so many served requests is Sampled,
	otherPerSampled   uint64 // and one of so many others

	// The current request.
	bestHandler       request.Handler
	handlerStack      tracefmt.StackID // the first stack that showed the handler
	handlerSeenTwice  bool             // another stack showed it, too
	chains            []ChainID        // by index in walker.FollowedWaits
	causeIDs          []CauseID
	longPWaits        []int32
	causeTimes        []CauseTime
	causeTimeIndex    []int32 // by cause: index in causeTimes plus one
	splitBuffers      SplitBuffers
	spans             []timeline.Span
	namingStacks      []tracefmt.StackID
	timeoutGoroutines map[int64]map[uint64][]timeline.Birth // by generation and creator: see nameTimedOutHandler
}

// New returns a Stage over a window. syms must always be the symbols of that window.
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
	s.unwalked = WalkResult{Form: NotWalked, Sparse: true, ReadyNS: -1, stage: s}
	opts.ConfigureWalker(s.walker)
	s.walker.VisitOwnStack = func(id tracefmt.StackID) { s.offerHandler(s.namer.HandlerOf(id), id) }
	return s
}

// Bounds on Sampled requests.
const (
	sampledPerGeneration = 50 // approximately

	// MaxLongPWaits bounds the LongPWaits of one request.
	MaxLongPWaits = 8

	// pieceSampling is how many times more often a piece of a run is Sampled, which has very many waits for a P.
	pieceSampling = 8
)

// CodeOf returns the cause code of a key. If another process of the recording spent the time, it is that process's cause.
func (s *Stage) CodeOf(key *CauseKey) cause.Code {
	if key.Remote != 0 && s.options.RemoteCause != nil {
		return cause.Code(s.options.RemoteCause(key.Remote))
	}
	return key.Code
}

// BeginGeneration prepares for the requests of one more generation. servedCount requests are of servers, otherCount are not.
// Each kind has its own sampling rate, so that other work does not change which served requests are Sampled.
func (s *Stage) BeginGeneration(servedCount, otherCount int) {
	s.servedPerSampled = uint64(1 + servedCount/sampledPerGeneration)
	s.otherPerSampled = uint64(1 + otherCount/sampledPerGeneration)
	s.hasCPUSamples = false
	for _, g := range s.Win.Gens {
		s.hasCPUSamples = s.hasCPUSamples || len(g.Samples) > 0
	}
	s.hasTimeoutHandler = slices.ContainsFunc(knowledge.Named(knowledge.TimeoutHandler), func(fn string) bool { return s.Syms.Lookup(fn) != 0 })
	s.namer.FindMainModule()
	clear(s.timeoutGoroutines)
}

// Walk analyses a request, or a piece of one: path, segments with causes, handler and group. The result is valid until the next
// call, also of WalkAgain.
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
	if s.representedNS > 0 {
		w.Weight = max(1, s.representedNS/(r.End-r.Start))
		perSampled = max(1, perSampled/uint64(pieceSampling*w.Weight))
	}
	w.Sampled = sample.Hash(uint64(r.Start)^r.G<<32)>>8%perSampled == 0
	w.Steps = s.walker.Walk(r.G, w.PathStart, r.End)
	w.ReadyNS, w.PollGapNS = s.readyTime(r, w.Steps)
	s.nameBySamples(r, w.Steps)
	s.nameByTimeoutHandler(r, w.Steps)
	w.Segments = s.Split(&s.splitBuffers, s.classifier.Segments(w.Steps))
	w.Steps = critpath.WithoutRemotes(w.Steps)
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

// WalkUnlisted walks a piece of a long request whose segments are only added up, because another stage HasListed. The piece
// represents this much of the request's time: its own, or more if other pieces are not walked.
func (s *Stage) WalkUnlisted(r *request.Request, representedNS int64) *WalkResult {
	s.representedNS = representedNS
	defer func() { s.representedNS = 0 }()
	return s.Walk(r)
}

// Steps returns the steps of goroutine g's critical path in [from, to), valid until the next call. It neither determines a group nor
// adds anything up.
func (s *Stage) Steps(g uint64, from, to int64) []critpath.Step { return s.walker.Walk(g, from, to) }

// FollowedWaits returns the waits that Steps followed last.
func (s *Stage) FollowedWaits() []critpath.FollowedWait { return s.walker.FollowedWaits }

// Graph returns the dependency graph of what goroutine g did in [from, to): see critpath.Walker.Graph.
func (s *Stage) Graph(g uint64, from, to int64) *critpath.Graph { return s.walker.Graph(g, from, to) }

// IsOnBehalf reports whether goroutine g works for a request at time t: it is the request's own goroutine, or the request's own
// goroutine created it.
func (s *Stage) IsOnBehalf(r *request.Request, g uint64, t int64) bool {
	if g == r.G {
		return true
	}
	birth, ok := s.Win.BirthBefore(g, t)
	return ok && birth.Creator == r.G
}

// AnswersTo returns the requests of this process that answer network calls of a request, in order of time.
func (s *Stage) AnswersTo(r *request.Request) []critpath.Answer {
	if s.options.AnswersOf == nil {
		return nil
	}
	return s.options.AnswersOf(r.G, r.Start)
}

// WalkAgain walks a request, or a piece of one, and returns only steps and segments, which replace the last result. It determines
// no group and adds nothing up.
func (s *Stage) WalkAgain(r *request.Request) *WalkResult {
	s.result = WalkResult{Req: r, Weight: 1, Start: r.Start, PathStart: r.Start, stage: s}
	w := &s.result
	w.Steps = s.walker.Walk(r.G, r.Start, r.End)
	w.Segments = s.Split(&s.splitBuffers, s.classifier.Segments(w.Steps))
	w.Steps = critpath.WithoutRemotes(w.Steps)
	s.numberChains()
	return w
}

// readyTime returns how long a request was runnable before it first ran, in ns (-1 if unknown), and the poll gap before: how
// long its message may have been unread.
func (s *Stage) readyTime(r *request.Request, steps []critpath.Step) (readyNS, pollGapNS int64) {
	if r.ArrivedAt != 0 && r.Start < r.WokenAt {
		for len(steps) > 0 && steps[0].Start < r.WokenAt {
			steps = steps[1:]
		}
		pollGapNS = r.WokenAt - r.Start
	} else if r.WokenAt != r.Start {
		return -1, 0
	}
	if r.WokenAt == 0 || len(steps) == 0 || steps[0].Kind != critpath.Runnable {
		return -1, pollGapNS
	}
	for i := range steps {
		if steps[i].Kind != critpath.Runnable || steps[i].G != steps[0].G {
			break
		}
		readyNS = steps[i].End - r.WokenAt
	}
	if steps[0].WokenByPoller && r.ArrivedAt == 0 {
		pollGapNS = s.walker.PollGap(r.WokenAt)
	}
	return readyNS, pollGapNS
}

// sumByCause sets CauseIDs (the cause of each segment), CauseTimes (the total time of each cause) and LongPWaits of a result
// from its segments.
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
		id := s.IDs.causeID(CauseKey{segment.Code, segment.SiteSource, runLength, segment.Inbound, segment.Site, segment.Kind, segment.Call, chain, segment.Remote})
		s.causeIDs = append(s.causeIDs, id)
		if segment.Code.Cause() == cause.Sched && segment.End-segment.Start > threshold.ThreadWakeNS && len(s.longPWaits) < MaxLongPWaits {
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
