package path

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// groupOf returns the group of the request that was just walked, and a frame of its handler (0 if unknown).
func (s *Stage) groupOf(r *request.Request) (id GroupID, handlerFrame tracefmt.FrameID) {
	var key GroupKey
	frame := s.findGroupKey(r, &key)
	return s.IDs.GroupID(key), frame
}

// findGroupKey sets the zero key to the group of the request that was just walked: by its task, region, mark, entry function or,
// for requests of servers, by the handler found in its stacks. It returns a frame of the handler; 0 if unknown.
func (s *Stage) findGroupKey(r *request.Request, key *GroupKey) (frame tracefmt.FrameID) {
	key.Kind = r.Kind
	switch r.Kind {
	case request.Task, request.Region:
		key.Name = r.Name
	case request.Mark:
		key.Name, frame = r.Name, s.bestHandler.Frame
		if key.Name == 0 { // no end, which would have the name
			key.Name = s.bestHandler.Key
		}
	case request.Run:
		if frame = r.RootFrame; frame != 0 {
			key.Name = s.Syms.Frame(frame).Func
		} else {
			key.Name = s.Syms.Lookup("main.main")
		}
	case request.Goroutine, request.Func, request.Loop, request.WebSocket:
		if frames := s.Syms.Stack(r.EntryStack); len(frames) > 0 {
			frame = frames[len(frames)-1]
			if r.RootFrame != 0 {
				frame = r.RootFrame
			}
			key.Name = s.Syms.Frame(frame).Func
		}
	default:
		key.Name, frame, key.Path = s.bestHandler.Key, s.bestHandler.Frame, s.bestHandler.Path
	}
	return frame
}

// HandlerFrameOf returns a frame in which a function was seen as a handler, 0 if it was not.
func (s *Stage) HandlerFrameOf(fn tracefmt.StringID) tracefmt.FrameID { return s.namer.FrameOf(fn) }

// offerHandler updates the current request's best handler by the handler h that stack id shows: a higher rank wins; a second
// stack with the same handler narrows the path below the handler to the calls that both have.
func (s *Stage) offerHandler(h *request.Handler, id tracefmt.StackID) {
	switch {
	case h.Rank > s.bestHandler.Rank:
		wasObserver := s.bestHandler.IsObserver
		s.bestHandler, s.handlerStack, s.handlerSeenTwice = *h, id, false
		s.bestHandler.IsObserver = h.IsObserver || wasObserver
	case h.Rank == s.bestHandler.Rank && h.Key == s.bestHandler.Key && h.Key != 0 && id != s.handlerStack:
		s.bestHandler.Path = s.bestHandler.Path.CommonPrefix(h.Path)
		s.handlerSeenTwice = true
	}
	s.bestHandler.IsObserver = s.bestHandler.IsObserver || h.IsObserver
}

// nameBySamples looks for the request's handler in CPU samples of its goroutine, if no event showed one, and offers it
// (offerHandler): a request that computes and never waits may be on no other stack.
func (s *Stage) nameBySamples(r *request.Request, steps []critpath.Step) {
	if s.bestHandler.Key != 0 || !s.hasCPUSamples {
		return
	}
	for i := range steps {
		step := &steps[i]
		if step.Kind != critpath.CPU || step.G != r.G {
			continue
		}
		gen := s.Win.Gens[s.Win.GenIndex(step.Start)]
		for _, k := range gen.SamplesIn(step.G, step.Start, step.End) {
			id := gen.Samples[k].Stack
			s.offerHandler(s.namer.HandlerOf(id), id)
		}
	}
}

// nameByTimeoutHandler looks for an HTTP request's handler on a goroutine that http.TimeoutHandler started for the request, on
// its path or, after a timeout, outside of it, and offers it (offerHandler).
func (s *Stage) nameByTimeoutHandler(r *request.Request, steps []critpath.Step) {
	if r.Kind != request.HTTP1 && r.Kind != request.HTTP2 {
		return
	}
	checkedG, startedByRequest := uint64(0), false
	for i := range steps {
		step := &steps[i]
		if step.G == r.G || step.Stack == 0 {
			continue
		}
		h := *s.namer.HandlerOf(step.Stack)
		if !h.IsTimeoutGoroutine || h.Key == 0 || h.Rank+timeoutHandlerRank < s.bestHandler.Rank {
			continue
		}
		if step.G != checkedG {
			b, ok := s.Win.Gens[s.Win.GenIndex(step.Start)].BirthOf(step.G)
			checkedG, startedByRequest = step.G, ok && b.Creator == r.G && b.Time >= r.Start
		}
		if startedByRequest {
			h.Rank += timeoutHandlerRank
			s.offerHandler(&h, step.Stack)
		}
	}
	s.nameTimedOutHandler(r)
}

// nameTimedOutHandler offers the handler of a request that http.TimeoutHandler answered after its timeout. The handler still
// runs on another goroutine, and is not on the request's path.
func (s *Stage) nameTimedOutHandler(r *request.Request) {
	if s.bestHandler.Key == 0 || !s.Sites.RolesOf(s.bestHandler.Frame).Has(knowledge.TimeoutHandler) {
		return
	}
	isTimeoutGoroutine := func(start tracefmt.StackID) bool {
		frames := s.Syms.Stack(start)
		return len(frames) > 0 && s.Sites.RolesOf(frames[0]).Has(knowledge.TimeoutGoroutine)
	}
	for i := s.Win.GenIndex(r.Start); i <= s.Win.GenIndex(r.End); i++ {
		gen := s.Win.Gens[i]
		byCreator, ok := s.timeoutGoroutines[gen.Base]
		if !ok {
			byCreator = make(map[uint64][]timeline.Birth)
			all := gen.Births(isTimeoutGoroutine, nil)
			timeline.SortBirths(all)
			for _, b := range all {
				byCreator[b.Creator] = append(byCreator[b.Creator], b)
			}
			s.timeoutGoroutines[gen.Base] = byCreator
		}
		births := byCreator[r.G] // sorted by time
		first, _ := slices.BinarySearchFunc(births, r.Start, func(b timeline.Birth, t int64) int { return cmp.Compare(b.Time, t) })
		for _, b := range births[first:] {
			if b.Time >= r.End {
				break
			}
			s.spans = s.Win.SpansCoarse(b.G, b.Time, r.End, s.spans[:0])
			for _, sp := range s.spans {
				if h := *s.namer.HandlerOf(sp.Stack); sp.Origin != timeline.OriginCreated && h.IsTimeoutGoroutine && h.Key != 0 {
					h.Rank += timeoutHandlerRank
					s.offerHandler(&h, sp.Stack)
				}
			}
		}
	}
}

// timeoutHandlerRank ranks handlers that run under http.TimeoutHandler above handlers in front of it.
const timeoutHandlerRank = 1 << 16
