package path

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// group returns the group of the request that was walked, and a frame of its
// handler.
func (s *Stage) group(r *request.Request) (GroupID, tracefmt.FrameID) {
	k, frame := s.groupKey(r)
	return s.IDs.ID(k), frame
}

func (s *Stage) groupKey(r *request.Request) (k GroupKey, frame tracefmt.FrameID) {
	k.Kind = r.Kind
	switch r.Kind {
	case request.Task, request.Region:
		k.Name = r.Name
	case request.Mark:
		k.Name, frame = r.Name, s.best.Frame
		if k.Name == 0 { // its end would have told
			k.Name = s.best.Key
		}
	case request.Main:
		k.Name = s.Syms.Lookup("main.main")
	case request.Goroutine, request.Func, request.Loop, request.WebSocket:
		if frames := s.Syms.Stack(r.EntryStack); len(frames) > 0 {
			frame = frames[len(frames)-1]
			if r.RootFrame != 0 {
				frame = r.RootFrame
			}
			k.Name = s.Syms.Frame(frame).Func
		}
	default:
		k.Name, frame, k.Path = s.best.Key, s.best.Frame, s.best.Path
	}
	return k, frame
}

// Entry returns the frame at which a function was seen as a handler's part; 0
// if it was not.
func (s *Stage) Entry(fn tracefmt.StringID) tracefmt.FrameID { return s.namer.FrameOf(fn) }

// named takes note of what a stack says about the request's handler.
func (s *Stage) named(h *request.Handler, id tracefmt.StackID) {
	switch {
	case h.Rank > s.best.Rank:
		was := s.best.IsObserver
		s.best, s.stack, s.several = *h, id, false
		s.best.IsObserver = h.IsObserver || was
	case h.Rank == s.best.Rank && h.Key == s.best.Key && h.Key != 0 && id != s.stack:
		s.best.Path = s.best.Path.CommonPrefix(h.Path)
		s.several = true
	}
	if h.IsObserver {
		s.best.IsObserver = true
	}
}

// sampleNames looks for the handler in CPU samples of the request's own goroutine if no event showed it: a request that
// computes and never waits may be on no other stack.
func (s *Stage) sampleNames(r *request.Request, steps []critpath.Step) {
	if s.best.Key != 0 || !s.samples {
		return
	}
	for i := range steps {
		st := &steps[i]
		if st.Kind != critpath.CPU || st.G != r.G {
			continue
		}
		g := s.Win.Gens[s.Win.At(st.Start)]
		for _, k := range g.SamplesIn(st.G, st.Start, st.End) {
			id := g.Samples[k].Stack
			s.named(s.namer.HandlerOf(id), id)
		}
	}
}

// asideNames looks for the handler in a goroutine of http.TimeoutHandler that
// the request started.
func (s *Stage) asideNames(r *request.Request, steps []critpath.Step) {
	if r.Kind != request.HTTP1 && r.Kind != request.HTTP2 {
		return
	}
	checked, mine := uint64(0), false
	for i := range steps {
		st := &steps[i]
		if st.G == r.G || st.Stack == 0 {
			continue
		}
		h := *s.namer.HandlerOf(st.Stack)
		if !h.IsTimeoutGoroutine || h.Key == 0 || h.Rank+aside < s.best.Rank {
			continue
		}
		if st.G != checked {
			b, ok := s.Win.Gens[s.Win.At(st.Start)].BirthOf(st.G)
			checked, mine = st.G, ok && b.By == r.G && b.Time >= r.Start
		}
		if mine {
			h.Rank += aside
			s.named(&h, st.Stack)
		}
	}
	s.timedOut(r)
}

const timeoutHandler = "net/http.(*timeoutHandler).ServeHTTP"

// timedOut looks for the handler of a request that http.TimeoutHandler answered
// itself: the handler still runs on a goroutine of its own, and is not on the
// request's path.
func (s *Stage) timedOut(r *request.Request) {
	if s.best.Key == 0 || s.Syms.String(s.best.Key) != timeoutHandler {
		return
	}
	isAside := func(start tracefmt.StackID) bool {
		frames := s.Syms.Stack(start)
		return len(frames) > 0 && s.Syms.String(s.Syms.Frame(frames[0]).Func) == timeoutHandler+".func1"
	}
	for i := s.Win.At(r.Start); i <= s.Win.At(r.End); i++ {
		g := s.Win.Gens[i]
		born, ok := s.asides[g.Base]
		if !ok {
			born = make(map[uint64][]timeline.Birth)
			all := g.Births(isAside, nil)
			timeline.SortBirths(all)
			for _, b := range all {
				born[b.By] = append(born[b.By], b)
			}
			s.asides[g.Base] = born
		}
		births := born[r.G] // in order of time
		first, _ := slices.BinarySearchFunc(births, r.Start, func(b timeline.Birth, t int64) int { return cmp.Compare(b.Time, t) })
		for _, b := range births[first:] {
			if b.Time >= r.End {
				break
			}
			s.spans = s.Win.SpansCoarse(b.G, b.Time, r.End, s.spans[:0])
			for _, sp := range s.spans {
				if h := *s.namer.HandlerOf(sp.Stack); sp.How != timeline.HowCreated && h.IsTimeoutGoroutine && h.Key != 0 {
					h.Rank += aside
					s.named(&h, sp.Stack)
				}
			}
		}
	}
}

// aside ranks what runs under a TimeoutHandler above what stands before it.
const aside = 1 << 16
