package answers

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/workers"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Plan maps groups, by path.GroupKey.Text, to the report's groups, and each of these to the groups that serve its calls.
type Plan struct {
	Groups    map[string]int32
	Answerers map[int32][]int32
}

// A Finder matches the requests of a window. AnswersTo may be called at any time and concurrently, but not during Add.
type Finder struct {
	// KeepAll keeps the answers to requests that have left the window.
	KeepAll bool

	plan            *Plan
	win             *timeline.Window
	waitFinders     []*waitFinder
	unmatched       map[int32][]Span // requests without a wait
	answersByWaiter map[RequestKey][]critpath.Answer
}

// A waitFinder walks requests for one worker, only to find their waits.
type waitFinder struct {
	stage           *path.Stage
	groups          []int32 // group of the plan by path.GroupID, -1: none
	waits, requests map[int32][]Span
	parts           []WaitPart
}

// NewFinder returns a Finder for a pass with the given number of workers.
func NewFinder(plan *Plan, win *timeline.Window, syms *tracefmt.Symbols, workers int) *Finder {
	f := &Finder{plan: plan, win: win, unmatched: make(map[int32][]Span), answersByWaiter: make(map[RequestKey][]critpath.Answer)}
	for range workers {
		f.waitFinders = append(f.waitFinders, &waitFinder{stage: path.New(win, syms, path.Options{})})
	}
	return f
}

// AnswersTo returns the requests that another one waits for, in order of time.
func (f *Finder) AnswersTo(g uint64, start int64) []critpath.Answer {
	return f.answersByWaiter[RequestKey{g, start}]
}

// AnswersSoFar returns AnswersTo as a function of the answers found so far, which does not keep the rest of the Finder
// in memory.
func (f *Finder) AnswersSoFar() func(g uint64, start int64) []critpath.Answer {
	answersByWaiter := f.answersByWaiter
	return func(g uint64, start int64) []critpath.Answer { return answersByWaiter[RequestKey{g, start}] }
}

// requestsPerChunk is the number of requests that a waitFinder walks at once.
const requestsPerChunk = 64

// Add matches the requests of another generation, before they are walked.
func (f *Finder) Add(reqs []request.Request) {
	f.dropExpired()
	for _, s := range f.waitFinders {
		s.stage.BeginGeneration(0, 0)
		s.waits, s.requests = make(map[int32][]Span), make(map[int32][]Span)
	}
	workers.Share(len(f.waitFinders), len(reqs), requestsPerChunk, func(worker, from, to int) {
		for k := from; k < to; k++ {
			if r := &reqs[k]; r.Piece == request.WholeRequest && !r.Open && !r.CutAtStart {
				f.inspect(f.waitFinders[worker], r)
			}
		}
	})
	waits := make(map[int32][]Span)
	for _, s := range f.waitFinders {
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

// inspect records the waits of a request and the request as a possible answer, if its group is in the plan. If the
// stacks of the request's goroutine show the group (path.Stage.FindQuickGroup), only requests of a group that waits are walked.
func (f *Finder) inspect(s *waitFinder, r *request.Request) {
	var quick path.QuickGroup
	if s.stage.FindQuickGroup(r, &quick); quick.Sufficient {
		if g := f.planGroup(s, s.stage.IDs.GroupID(quick.Group)); g < 0 {
			return
		} else if _, isWaiting := f.plan.Answerers[g]; !isWaiting {
			s.addRequest(s.stage.Unwalked(r, &quick, nil), g)
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

// planGroup returns the group of the plan for a waitFinder's group, -1 if there is none.
func (f *Finder) planGroup(s *waitFinder, id path.GroupID) int32 {
	for int(id) >= len(s.groups) {
		g, ok := f.plan.Groups[s.stage.IDs.Group(path.GroupID(len(s.groups))).Text(s.stage.Syms)]
		if !ok {
			g = -1
		}
		s.groups = append(s.groups, g)
	}
	return s.groups[id]
}

// addRequest records a request that may be an answer.
func (s *waitFinder) addRequest(w *path.WalkResult, g int32) {
	if x, ok := AnswerSpan(w); ok {
		s.requests[g] = append(s.requests[g], x)
	}
}

// join matches waits with the unmatched requests of the groups that serve them, and stores the answers by the waiting request.
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

// dropExpired drops everything that ended before the window.
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
