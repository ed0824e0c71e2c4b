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
	// Joint is a request of which all pieces were walked before. It has no steps,
	// and only the first of its segments.
	Joint
	// Cut is a request that began before the trace and ended in it. Nothing of it
	// was walked.
	Cut
	// Glanced is a request of which only group and latency are known: others of
	// its group that took as long stand for the rest.
	Glanced
)

// A Walked is what was found of one request. It is valid during the call in
// which it is given, and must not be changed.
type Walked struct {
	Req  *request.Request
	Form Form
	// Weight is how many requests this one stands for. Counts and times are added
	// up multiplied by it. Others of them are given as well, Glanced.
	Weight, Others int64
	// Sparse says that not all requests of its group that ended in the same
	// generation were walked: those that a Sum needs were, see pass.Chooser.
	Sparse bool
	// Start is when the request began, From where its path begins: later than
	// Start for an open request that began before what is left of the trace.
	Start, From int64
	Group       GroupID
	Entry       tracefmt.FrameID // a frame of the handler; 0: none
	// Observer says that the request looked at the process itself: a profile, a
	// trace.
	Observer bool
	// Several says that several stacks showed the handler, so that what they have
	// in common means something.
	Several bool
	// Sampled selects about fifty requests a generation: what ran beside them
	// is looked up. It depends on the request alone.
	Sampled bool
	// Looked are the indexes of the waits for a P that are long enough to look up
	// what ran meanwhile: the first MostLooked.
	Looked []int32
	Steps  []critpath.Step
	// Segments cover [From, Req.End). CauseIDs has their causes.
	Segments []cause.Segment
	CauseIDs []CauseID
	// Sums add up to the length of all segments, also those that a Joint left out.
	Sums []Sum
	// Ready is how long the request was ready to run before it first did, -1 if
	// that is not known; Gap how long its message may have lain unread before.
	Ready, Gap int64
	// Borders are the times at which a Joint was cut.
	Borders []int64

	vias  [][]Via // of a Joint's segments
	stage *Stage
}

// An Adder is one worker's part of something that is added up over requests.
type Adder interface {
	// Add adds one request that was walked, or a piece of one.
	Add(w *Walked)
}

// A Sum is the time that a request spent on one cause.
type Sum struct {
	Cause CauseID
	NS    int64
}

// Ended reports whether a request was followed to its end, at once or in pieces, and did not look at the process itself.
func (w *Walked) Ended() bool {
	return (w.Form == Whole || w.Form == Joint) && !w.Req.Open && !w.Observer
}

// Latency returns how long the request took, so far if it is open.
func (w *Walked) Latency() int64 { return w.Req.End - w.Start }

// Counted returns for how many requests' latencies this one stands: for its own alone
// where the others are given as well.
func (w *Walked) Counted() int64 { return w.Weight - w.Others }

// Vias returns the chain of waits that led to each segment. The result stays
// valid.
func (w *Walked) Vias() [][]Via {
	if w.vias != nil {
		return w.vias
	}
	return w.stage.vias(w.Segments)
}

// Waits returns the waits that the walk of a Whole followed. It is valid during the call.
func (w *Walked) Waits() []critpath.FollowedWait { return w.stage.walker.FollowedWaits }

// Options configure a Stage.
type Options struct {
	// Freezes knows the stretches that may be freezes; nil: there are none.
	Freezes *freeze.Detector
	// Settled, if not nil, says which of them were: then no code is pending.
	Settled *cause.Settlement
	// Answers, if not nil, says for which requests of the process another one
	// waits: the path goes on in them. See critpath.Walker.
	Answers func(g uint64, start int64) []critpath.Answer
	// Clients, if not nil, says of more waits for the network that a client of the process ends them.
	Clients func(wait tracefmt.StackID) bool
}

// Tell gives a walker what is known beside the trace's events.
func (o *Options) Tell(w *critpath.Walker) { w.AnswersOf, w.IsClientWait = o.Answers, o.Clients }

// A Stage walks requests of a window. One goroutine may use it at a time.
type Stage struct {
	Win  *timeline.Window
	Syms *tracefmt.Symbols
	// Sites remembers the sites of stacks, IDs numbers what was found.
	Sites *cause.Sites
	IDs   *IDs

	opts    Options
	walker  *critpath.Walker
	class   *cause.Classifier
	namer   *request.Namer
	walked  Walked
	parts   map[uint64]*partial // by request.Key
	samples bool                // the window has CPU samples
	aside   bool                // http.TimeoutHandler was seen
	rate    uint64              // one request of a server of so many is Sampled,
	rateAll uint64              // and one of so many of others

	// Of one request.
	best    request.Handler
	stack   tracefmt.StackID // the first that showed the handler
	several bool             // another one was seen
	chains  []ChainID        // by index in walker.Vias
	ids     []CauseID
	looked  []int32
	sums    []Sum
	sumAt   []int32 // by cause: index in sums + 1
	cut     []cause.Segment
	spans   []timeline.Span
	told    []tracefmt.StackID
	asides  map[int64]map[uint64][]timeline.Birth // by generation and creator: see timedOut
}

// New returns a Stage over a window. syms must hold the window's symbols at
// every call.
func New(win *timeline.Window, syms *tracefmt.Symbols, opts Options) *Stage {
	s := &Stage{
		Win: win, Syms: syms, IDs: newIDs(), opts: opts, rate: 1, rateAll: 1,
		walker: critpath.New(win, syms),
		class:  cause.New(win, syms),
		namer:  request.NewNamer(syms),
		parts:  make(map[uint64]*partial),
		asides: make(map[int64]map[uint64][]timeline.Birth),
	}
	s.Sites = s.class.Sites
	opts.Tell(s.walker)
	s.walker.VisitOwnStack = func(id tracefmt.StackID) { s.named(s.namer.HandlerOf(id), id) }
	return s
}

// Bounds of looking things up for Sampled requests.
const (
	sampledMost = 50 // of a generation, about

	// MostLooked bounds the waits of one request that are Looked at.
	MostLooked = 8
)

// Begin prepares for the requests of one more generation: n of servers, and
// others. Of the first as many are Sampled whatever work stands beside them.
func (s *Stage) Begin(n, others int) {
	s.rate = uint64(1 + n/sampledMost)
	s.rateAll = uint64(1 + others/sampledMost)
	s.samples = false
	for _, g := range s.Win.Gens {
		s.samples = s.samples || len(g.Samples) > 0
	}
	s.aside = s.Syms.Lookup(timeoutHandler) != 0
	s.namer.FindMainModule()
	clear(s.asides)
}

// Walk walks a request, or a part of one. The result is valid until the next
// call.
func (s *Stage) Walk(r *request.Request) *Walked {
	s.best, s.stack, s.several = request.Handler{}, 0, false
	s.walked = Walked{Req: r, Weight: 1, Start: r.Start, From: r.Start, stage: s}
	w := &s.walked
	if r.CutAtStart && !r.Open {
		w.Form = Cut
		w.Group, w.Entry = s.group(r)
		return w
	}
	if r.CutAtStart {
		w.From = max(w.From, s.Win.Start())
	}
	rate := s.rate
	if !r.Kind.IsServed() {
		rate = s.rateAll
	}
	w.Sampled = hash(uint64(r.Start)^r.G<<32)>>8%rate == 0
	w.Steps = s.walker.Walk(r.G, w.From, r.End)
	w.Ready, w.Gap = s.ready(r, w.Steps)
	s.sampleNames(r, w.Steps)
	s.asideNames(r, w.Steps)
	w.Segments = s.Split(&s.cut, s.class.Segments(w.Steps))
	w.Observer, w.Several = s.best.IsObserver, s.several
	if r.Piece == request.WholeRequest && w.Observer {
		return w
	}
	s.internVias()
	s.sumUp(w)
	if r.Piece != request.WholeRequest {
		w.Form = Piece
		s.keep(w)
		return w
	}
	w.Group, w.Entry = s.group(r)
	return w
}

// Segments walks one goroutine's path and returns its segments, which are
// valid until the next call. They are no request's: nothing is named or summed.
func (s *Stage) Segments(g uint64, from, to int64) []cause.Segment {
	return s.Split(&s.cut, s.class.Segments(s.walker.Walk(g, from, to)))
}

// Graph returns what the end of what a goroutine did depended on: see critpath.Walker.Graph.
func (s *Stage) Graph(g uint64, from, to int64) *critpath.Graph { return s.walker.Graph(g, from, to) }

// Again walks a request, or a part of one, for its steps and segments alone.
func (s *Stage) Again(r *request.Request) *Walked {
	s.walked = Walked{Req: r, Weight: 1, Start: r.Start, From: r.Start, stage: s}
	w := &s.walked
	w.Steps = s.walker.Walk(r.G, r.Start, r.End)
	w.Segments = s.Split(&s.cut, s.class.Segments(w.Steps))
	s.internVias()
	return w
}

// ready returns for how long a request was ready to run, and the poll gap before.
func (s *Stage) ready(r *request.Request, steps []critpath.Step) (ready, gap int64) {
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

// sumUp adds up the segments by cause.
func (s *Stage) sumUp(w *Walked) {
	s.ids, s.sums, s.looked = s.ids[:0], s.sums[:0], s.looked[:0]
	for i := range w.Segments {
		g := &w.Segments[i]
		chain := ChainID(0)
		if g.FollowedWait >= 0 {
			chain = s.chains[g.FollowedWait]
		}
		run := g.RunLength
		if g.SiteSource != cause.SiteFromBracket {
			run = 0
		}
		id := s.IDs.cause(CauseKey{g.Code, g.SiteSource, run, g.Inbound, g.Site, g.Kind, g.Call, chain})
		s.ids = append(s.ids, id)
		if g.Code.Cause() == cause.Sched && g.End-g.Start > scale.Blink && len(s.looked) < MostLooked {
			s.looked = append(s.looked, int32(i))
		}
		for int(id) >= len(s.sumAt) {
			s.sumAt = append(s.sumAt, 0)
		}
		if k := s.sumAt[id]; k != 0 {
			s.sums[k-1].NS += g.End - g.Start
		} else {
			s.sums = append(s.sums, Sum{id, g.End - g.Start})
			s.sumAt[id] = int32(len(s.sums))
		}
	}
	for _, sum := range s.sums {
		s.sumAt[sum.Cause] = 0
	}
	w.CauseIDs, w.Sums, w.Looked = s.ids, s.sums, s.looked
}

func hash(k uint64) uint64 {
	k *= 0x9e3779b97f4a7c15
	return k ^ k>>32
}
