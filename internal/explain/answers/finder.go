package answers

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Plan says of groups, by path.GroupKey.Text, which one of the report each
// belongs to, and which of those serve what it waits for.
type Plan struct {
	Groups    map[string]int32
	Answerers map[int32][]int32
}

// A Finder joins the requests of a window. Its method Of may be called at any
// time but during Add, by anybody.
type Finder struct {
	// KeepAll keeps what was found of requests that the window no longer holds.
	KeepAll bool

	plan            *Plan
	win             *timeline.Window
	scouts          []*scout
	unmatched       map[int32][]Span // that no wait has yet
	answersByWaiter map[RequestKey][]critpath.Answer
}

// A scout walks requests to see what they wait for.
type scout struct {
	stage           *path.Stage
	groups          []int32 // by path.GroupID, -1: none of the plan
	waits, requests map[int32][]Span
	parts           []WaitPart
}

// NewFinder returns a Finder for a pass with so many workers.
func NewFinder(plan *Plan, win *timeline.Window, syms *tracefmt.Symbols, workers int) *Finder {
	f := &Finder{plan: plan, win: win, unmatched: make(map[int32][]Span), answersByWaiter: make(map[RequestKey][]critpath.Answer)}
	for range workers {
		f.scouts = append(f.scouts, &scout{stage: path.New(win, syms, path.Options{})})
	}
	return f
}

// AnswersTo returns which requests another one waits for, in order of time.
func (f *Finder) AnswersTo(g uint64, start int64) []critpath.Answer {
	return f.answersByWaiter[RequestKey{g, start}]
}

// AnswersSoFar returns Of of what was found until now, without the rest of the Finder.
func (f *Finder) AnswersSoFar() func(g uint64, start int64) []critpath.Answer {
	answersByWaiter := f.answersByWaiter
	return func(g uint64, start int64) []critpath.Answer { return answersByWaiter[RequestKey{g, start}] }
}

// scoutChunk is how many requests a scout takes at a time.
const scoutChunk = 64

// Add joins the requests of one more generation, before they are walked.
func (f *Finder) Add(reqs []request.Request) {
	f.dropExpired()
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, s := range f.scouts {
		s.stage.Begin(0, 0)
		s.waits, s.requests = make(map[int32][]Span), make(map[int32][]Span)
		wg.Go(func() {
			for {
				i := int(next.Add(scoutChunk)) - scoutChunk
				if i >= len(reqs) {
					return
				}
				for k := i; k < min(i+scoutChunk, len(reqs)); k++ {
					if r := &reqs[k]; r.Piece == request.WholeRequest && !r.Open && !r.CutAtStart {
						f.inspect(s, r)
					}
				}
			}
		})
	}
	wg.Wait()
	waits := make(map[int32][]Span)
	for _, s := range f.scouts {
		for g, list := range s.waits {
			waits[g] = append(waits[g], list...)
		}
		for g, list := range s.requests {
			f.unmatched[g] = append(f.unmatched[g], list...)
		}
	}
	for _, g := range slices.Sorted(maps.Keys(f.plan.Answerers)) {
		f.join(waits[g], f.plan.Answerers[g])
	}
}

// inspect takes note of what a request waits for, and that it may be an answer, as far as the plan says so of its group. Only
// those that wait are walked, where a glance tells which they are.
func (f *Finder) inspect(s *scout, r *request.Request) {
	if glance := s.stage.Glance(r); glance.Enough {
		if g := f.planGroup(s, s.stage.IDs.ID(glance.Group)); g < 0 {
			return
		} else if _, isWaiting := f.plan.Answerers[g]; !isWaiting {
			s.addRequest(s.stage.Seen(r, &glance), g)
			return
		}
	}
	w := s.stage.Walk(r)
	if !IsWhole(w) {
		return
	}
	g := f.planGroup(s, w.Group)
	if g < 0 {
		return
	}
	if _, isWaiting := f.plan.Answerers[g]; isWaiting {
		EachWait(w, s.parts, func(x Span) {
			s.parts, x.Parts = x.Parts, nil
			s.waits[g] = append(s.waits[g], x)
		})
	}
	s.addRequest(w, g)
}

// planGroup returns the group of the plan that a scout's one belongs to, -1 if there is none.
func (f *Finder) planGroup(s *scout, id path.GroupID) int32 {
	for int(id) >= len(s.groups) {
		g, ok := f.plan.Groups[s.stage.IDs.Group(path.GroupID(len(s.groups))).Text(s.stage.Syms)]
		if !ok {
			g = -1
		}
		s.groups = append(s.groups, g)
	}
	return s.groups[id]
}

// addRequest keeps a request that may be an answer.
func (s *scout) addRequest(w *path.Walked, g int32) {
	if x, ok := AnswerSpan(w); ok {
		s.requests[g] = append(s.requests[g], x)
	}
}

// join gives waits the requests of the groups that serve them.
func (f *Finder) join(waits []Span, groups []int32) {
	var requests []Span
	for _, g := range groups {
		requests = append(requests, f.unmatched[g]...)
	}
	Sort(waits)
	Sort(requests)
	matched := make(map[RequestKey]bool)
	Match(waits, requests, 0, func(w, r Span) {
		matched[r.Request] = true
		list := append(f.answersByWaiter[w.Request], critpath.Answer{G: r.Request.G, Start: r.Start, End: r.End})
		slices.SortFunc(list, func(a, b critpath.Answer) int { return cmp.Compare(a.Start, b.Start) })
		f.answersByWaiter[w.Request] = list
	})
	for _, g := range groups {
		f.unmatched[g] = slices.DeleteFunc(f.unmatched[g], func(r Span) bool { return matched[r.Request] })
	}
}

// dropExpired drops what lies before the window.
func (f *Finder) dropExpired() {
	from := f.win.Start()
	for g, list := range f.unmatched {
		f.unmatched[g] = slices.DeleteFunc(list, func(r Span) bool { return r.End < from })
	}
	if f.KeepAll {
		return
	}
	for k, list := range f.answersByWaiter {
		if list[len(list)-1].End < from {
			delete(f.answersByWaiter, k)
		}
	}
}
