package request

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Start is what goroutines did that were started with one function: what a
// user could ask about where no requests were found.
type Start struct {
	// Root is a frame of the function, the outermost of the service's own code
	// where there is one.
	Root tracefmt.FrameID
	// Inner is a frame of the function of the service's own that was called most
	// often below it, 0 for none: its calls have a beginning and an end.
	Inner      tracefmt.FrameID
	Goroutines int
	Wakes      int   // waits that ended
	RunningNS  int64 // in all of them
}

// starts adds up what goroutines did, as long as no requests are found.
type starts struct {
	roots map[tracefmt.StringID]*startSum
	known map[uint64]*startSum // goroutines that were counted
	spans []timeline.Span
}

type startSum struct {
	Start
	inner map[tracefmt.FrameID]int // by call: how often it was seen after something else
	last  tracefmt.StringID
}

func (s *starts) add(f *Finder, g *timeline.Gen) {
	if s.roots == nil {
		s.roots, s.known = make(map[tracefmt.StringID]*startSum), make(map[uint64]*startSum)
	}
	forgetGone(s.known, g)
	g.Goroutines(func(id uint64) {
		s.spans = f.win.Spans(id, g.Base, g.End, s.spans[:0])
		sum := s.known[id]
		if sum == nil {
			if sum = s.root(f); sum == nil {
				return
			}
			sum.Goroutines++
			s.known[id] = sum
		}
		for i := range s.spans {
			sum.see(f, &s.spans[i])
		}
	})
}

// root returns the facts about goroutines like the one whose spans it is given;
// nil if it shows no stack, or is not to be asked about.
func (s *starts) root(f *Finder) *startSum {
	outer := tracefmt.FrameID(0)
	for i := range s.spans {
		sp := &s.spans[i]
		if sp.Stack == 0 || sp.How == timeline.HowCreated {
			continue
		}
		info := f.stackInfo(sp.Stack)
		if info.role == roleServes || f.namer.fn(info.root).is(recorder) {
			return nil
		}
		if info.own != 0 {
			outer = info.own
			break
		}
		if frames := f.syms.Stack(sp.Stack); info.role == roleFree && len(frames) > 0 {
			outer = frames[len(frames)-1]
		}
	}
	if outer == 0 {
		return nil
	}
	fn := f.syms.Frame(outer).Func
	sum := s.roots[fn]
	if sum == nil {
		sum = &startSum{Start: Start{Root: outer}, inner: make(map[tracefmt.FrameID]int)}
		s.roots[fn] = sum
	}
	return sum
}

// see adds a span.
func (sum *startSum) see(f *Finder, sp *timeline.Span) {
	switch {
	case sp.State == timeline.Running:
		sum.RunningNS += sp.End - max(sp.Start, f.first)
	case sp.State == timeline.Waiting && sp.Woken:
		sum.Wakes++
	}
	if sp.Stack == 0 || sp.How == timeline.HowCreated {
		return
	}
	// The function of the service's own that its root called.
	frames := f.syms.Stack(sp.Stack)
	inner, below := tracefmt.FrameID(0), false
	for k := len(frames) - 1; k >= 0; k-- {
		fr := f.syms.Frame(frames[k])
		if below && f.namer.owned(fr) {
			inner = frames[k]
			break
		}
		below = below || fr.Func == f.syms.Frame(sum.Root).Func
	}
	fn := tracefmt.StringID(0)
	if inner != 0 {
		fn = f.syms.Frame(inner).Func
	}
	if fn != sum.last && inner != 0 {
		sum.inner[inner]++
	}
	sum.last = fn
}

// Starts returns what goroutines did, by the function that they were started
// with, those that did most first. It is for traces without requests.
func (f *Finder) Starts() []Start {
	var out []Start
	for _, sum := range f.starting.roots {
		st := sum.Start
		most := 0
		byFn := make(map[tracefmt.StringID]int)
		for fr, n := range sum.inner {
			byFn[f.syms.Frame(fr).Func] += n
		}
		for fr := range sum.inner {
			n := byFn[f.syms.Frame(fr).Func]
			if n > most || n == most && f.less(fr, st.Inner) {
				most, st.Inner = n, fr
			}
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b Start) int {
		return cmp.Or(cmp.Compare(b.Wakes, a.Wakes), cmp.Compare(b.RunningNS, a.RunningNS), cmp.Compare(b.Goroutines, a.Goroutines), cmp.Compare(f.name(a.Root), f.name(b.Root)))
	})
	return out
}

func (f *Finder) name(fr tracefmt.FrameID) string { return f.syms.String(f.syms.Frame(fr).Func) }

// less orders frames by function and line.
func (f *Finder) less(a, b tracefmt.FrameID) bool {
	return cmp.Or(cmp.Compare(f.name(a), f.name(b)), cmp.Compare(f.syms.Frame(a).Line, f.syms.Frame(b).Line)) < 0
}
