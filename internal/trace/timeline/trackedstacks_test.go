package timeline

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// overlapping returns the times at which spans begin while the generation before has later events: events there may be of either.
func overlapping(gens []*Gen, spans []Span) (starts []int64) {
	for i := range spans {
		start := spans[i].Start
		for k := 1; k < len(gens); k++ {
			if gens[k].Base <= start && start < gens[k-1].End {
				starts = append(starts, start)
			}
		}
	}
	return starts
}

// sampleStarts returns the times at which some of the spans begin.
func sampleStarts(rnd *rand.Rand, spans []Span) (starts []int64) {
	for range 8 {
		starts = append(starts, spans[rnd.IntN(len(spans))].Start)
	}
	return starts
}

// checkTrackedAndWakes compares MayHaveTrackedStack and LastWake with Spans around random times.
func checkTrackedAndWakes(t *testing.T, in *decoded) {
	t.Helper()
	if len(in.gens) == 0 {
		return
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	win := Window{Gens: in.gens}
	flags := classify(in.d.Symbols)
	for _, id := range goroutines(in.gens) {
		spans := win.Spans(id, BeforeTrace, math.MaxInt64, nil)
		if !inOrder(spans) {
			continue
		}
		for _, from := range slices.Concat(overlapping(in.gens, spans), sampleStarts(rnd, spans)) {
			if !inRange(from) {
				continue
			}
			from += rnd.Int64N(3) - 1
			to := from + rnd.Int64N(1e5)
			if !win.MayHaveTrackedStack(id, from, to) {
				for _, s := range win.Spans(id, from, to, nil) {
					// The span of a mark assist has the stack of the assist's begin, perhaps
					// long before.
					if s.Stack != 0 && !s.Assist && flags(s.Stack)&FlagTracked != 0 {
						t.Errorf("goroutine %d: from %d to %d there is no tracked stack, but the span from %[5]d to %[6]d has stack %[4]d", id, from, to, s.Stack, s.Start, s.End)
						return
					}
				}
			}
			var want Span
			for _, s := range spans {
				if s.State == Waiting && s.Woken && s.End <= to && s.End > from-1e6 {
					want = s
				}
			}
			wake, ok := win.LastWake(id, from-1e6, to)
			isKnown, isNetwork := wake.EndsNetworkWait || wake.EndsOtherWait, in.d.Symbols.String(want.Reason) == "network"
			if ok != (want.End != 0) || wake.Time != want.End || isKnown && (wake.EndsNetworkWait != isNetwork || wake.Waker != want.Waker) {
				t.Errorf("goroutine %d: LastWake until %d is %v, %v; want the end of %v", id, to, wake, ok, want)
				return
			}
		}
	}
}

// checkTrackedStacks compares TrackedStacks with Spans. For a whole life both show the same tracked stacks; for a
// part, TrackedStacks shows at least those of the spans inside the part.
func checkTrackedStacks(t *testing.T, in *decoded) {
	t.Helper()
	if len(in.gens) == 0 {
		return
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	win := Window{Gens: in.gens}
	flags := classify(in.d.Symbols)
	isTracked := make([]bool, in.d.Symbols.Stacks())
	for id := range isTracked {
		isTracked[id] = id != 0 && flags(tracefmt.StackID(id))&FlagTracked != 0
	}
	hasTracked := func(s *Span) bool { return s.Origin != OriginCreated && isTracked[s.Stack] }
	var got []tracefmt.StackID
	for _, id := range goroutines(in.gens) {
		spans := win.Spans(id, BeforeTrace, math.MaxInt64, nil)
		if !inOrder(spans) {
			continue
		}
		got = win.TrackedStacks(id, win.Start(), math.MaxInt64, got[:0])
		for _, stack := range got {
			if !slices.ContainsFunc(spans, func(s Span) bool { return hasTracked(&s) && s.Stack == stack }) {
				t.Errorf("goroutine %d: TrackedStacks has stack %d, which no span has", id, stack)
				return
			}
		}
		for _, from := range slices.Concat(overlapping(in.gens, spans), sampleStarts(rnd, spans), []int64{win.Start()}) {
			to := int64(math.MaxInt64)
			if b := spans[rnd.IntN(len(spans))]; inRange(b.End) && rnd.IntN(4) > 0 {
				to = b.End
			}
			if !inRange(from) {
				continue
			}
			got = win.TrackedStacks(id, from, to, got[:0])
			for i := range spans {
				// Spans of statuses and runnable spans have a stack from before the part.
				if s := &spans[i]; hasTracked(s) && s.Start >= from && s.End <= to && s.Origin != OriginStatus && s.State != Runnable && !s.Assist && !slices.Contains(got, s.Stack) {
					t.Errorf("goroutine %d: from %d to %d TrackedStacks lacks stack %d, of the span from %d to %d", id, from, to, s.Stack, s.Start, s.End)
					return
				}
			}
		}
	}
}
