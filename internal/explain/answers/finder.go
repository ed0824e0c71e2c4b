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
	Groups map[string]int32
	Asks   map[int32][]int32
}

// A Finder joins the requests of a window. Its method Of may be called at any
// time but during Add, by anybody.
type Finder struct {
	// Keep keeps what was found of requests that the window no longer holds.
	Keep bool

	plan   *Plan
	win    *timeline.Window
	scouts []*scout
	served map[int32][]Span // that no wait has yet
	found  map[Key][]critpath.Answer
}

// A scout walks requests to see what they wait for.
type scout struct {
	stage         *path.Stage
	groups        []int32 // by path.GroupID, -1: none of the plan
	waits, served map[int32][]Span
	parts         []Part
}

// NewFinder returns a Finder for a pass with so many workers.
func NewFinder(plan *Plan, win *timeline.Window, syms *tracefmt.Symbols, workers int) *Finder {
	f := &Finder{plan: plan, win: win, served: make(map[int32][]Span), found: make(map[Key][]critpath.Answer)}
	for range workers {
		f.scouts = append(f.scouts, &scout{stage: path.New(win, syms, path.Options{})})
	}
	return f
}

// Of returns which requests another one waits for, in order of time.
func (f *Finder) Of(g uint64, start int64) []critpath.Answer { return f.found[Key{g, start}] }

// Found returns Of of what was found until now, without the rest of the Finder.
func (f *Finder) Found() func(g uint64, start int64) []critpath.Answer {
	found := f.found
	return func(g uint64, start int64) []critpath.Answer { return found[Key{g, start}] }
}

// scoutChunk is how many requests a scout takes at a time.
const scoutChunk = 64

// Add joins the requests of one more generation, before they are walked.
func (f *Finder) Add(reqs []request.Request) {
	f.forget()
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, s := range f.scouts {
		s.stage.Begin(0, 0)
		s.waits, s.served = make(map[int32][]Span), make(map[int32][]Span)
		wg.Go(func() {
			for {
				i := int(next.Add(scoutChunk)) - scoutChunk
				if i >= len(reqs) {
					return
				}
				for k := i; k < min(i+scoutChunk, len(reqs)); k++ {
					if r := &reqs[k]; r.Part == request.Whole && !r.Open && !r.Cut {
						f.look(s, r)
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
		for g, list := range s.served {
			f.served[g] = append(f.served[g], list...)
		}
	}
	for _, g := range slices.Sorted(maps.Keys(f.plan.Asks)) {
		f.join(waits[g], f.plan.Asks[g])
	}
}

// look takes note of what a request waits for, and that it may be an answer, as far as the plan says so of its group. Only
// those that wait are walked, where a glance tells which they are.
func (f *Finder) look(s *scout, r *request.Request) {
	if it := s.stage.Glance(r); it.Enough {
		if g := f.groupOf(s, s.stage.IDs.ID(it.Group)); g < 0 {
			return
		} else if _, asks := f.plan.Asks[g]; !asks {
			s.serve(s.stage.Seen(r, &it), g)
			return
		}
	}
	w := s.stage.Walk(r)
	if !IsWhole(w) {
		return
	}
	g := f.groupOf(s, w.Group)
	if g < 0 {
		return
	}
	if _, asks := f.plan.Asks[g]; asks {
		Waits(w, s.parts, func(x Span) {
			s.parts, x.Parts = x.Parts, nil
			s.waits[g] = append(s.waits[g], x)
		})
	}
	s.serve(w, g)
}

// groupOf returns the group of the plan that a scout's one belongs to, -1 if there is none.
func (f *Finder) groupOf(s *scout, id path.GroupID) int32 {
	for int(id) >= len(s.groups) {
		g, ok := f.plan.Groups[s.stage.IDs.Group(path.GroupID(len(s.groups))).Text(s.stage.Syms)]
		if !ok {
			g = -1
		}
		s.groups = append(s.groups, g)
	}
	return s.groups[id]
}

// serve keeps a request that may be an answer.
func (s *scout) serve(w *path.Walked, g int32) {
	if x, ok := Served(w); ok {
		s.served[g] = append(s.served[g], x)
	}
}

// join gives waits the requests of the groups that serve them.
func (f *Finder) join(waits []Span, groups []int32) {
	var served []Span
	for _, g := range groups {
		served = append(served, f.served[g]...)
	}
	Sort(waits)
	Sort(served)
	taken := make(map[Key]bool)
	Match(waits, served, 0, func(w, r Span) {
		taken[r.Of] = true
		list := append(f.found[w.Of], critpath.Answer{G: r.Of.G, Start: r.Start, End: r.End})
		slices.SortFunc(list, func(a, b critpath.Answer) int { return cmp.Compare(a.Start, b.Start) })
		f.found[w.Of] = list
	})
	for _, g := range groups {
		f.served[g] = slices.DeleteFunc(f.served[g], func(r Span) bool { return taken[r.Of] })
	}
}

// forget drops what lies before the window.
func (f *Finder) forget() {
	from := f.win.Start()
	for g, list := range f.served {
		f.served[g] = slices.DeleteFunc(list, func(r Span) bool { return r.End < from })
	}
	if f.Keep {
		return
	}
	for k, list := range f.found {
		if list[len(list)-1].End < from {
			delete(f.found, k)
		}
	}
}
