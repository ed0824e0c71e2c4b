package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// TimerIterations are successive iterations of a loop, each from the end of a wait to the begin of the next one. No goroutine ended
// the waits, the iterations end at one stack, for one reason, all wakes have the same WakerStack, and no event is in the runs.
type TimerIterations struct {
	Stack, WakerStack tracefmt.StackID
	Reason            tracefmt.StringID
	List              []TimerIteration
	// AtStart and AtEnd report that the goroutine did nothing else in the generation before and after the iterations.
	AtStart, AtEnd bool

	loaded uint64 // see Gen.preloadRecords
}

// A TimerIteration is one iteration: the goroutine was woken at Wake, ran from Start and waited again from End.
type TimerIteration struct{ Wake, Start, End int64 }

const (
	minTimerIterations = 8
	// maxOtherPieces is how many other pieces of a goroutine TimerIterations reads before it returns none.
	maxOtherPieces = 6
)

// SetTimerIterations sets iterations to the first succession of iterations of goroutine id in the generation that are equal but for
// their times. The list is empty if there are few.
func (g *Gen) SetTimerIterations(id uint64, iterations *TimerIterations) {
	iterations.List, iterations.AtStart = iterations.List[:0], true
	d := g.ids.lookup(id)
	if d == 0 || g.isIrregular(d) {
		return
	}
	var (
		first, last record // the wake of the first iteration, and the end of the last one
		others      int
	)
	k, hi := g.slotBase[d], g.slotBase[d+1]
	for preloaded := k; k+1 < hi; {
		if k >= preloaded {
			preloaded = min(k+recordsAhead, hi)
			iterations.loaded = g.preloadRecords(g.slots[k:preloaded])
		}
		wake, start, end, ok := g.timerIterationAt(k)
		n := len(iterations.List)
		if ok && end.stack() != 0 && wake.time() < end.time() &&
			(n == 0 || end.stack() == last.stack() && end.peer() == last.peer() && last.time() < wake.time() && wake.stack() == first.stack()) {
			if n == 0 {
				first = wake
			}
			iterations.List = append(iterations.List, TimerIteration{g.Base + wake.time(), g.Base + start.time(), g.Base + end.time()})
			last, k = end, k+2
			continue
		}
		if others++; n >= minTimerIterations || others > maxOtherPieces {
			break
		}
		iterations.List, iterations.AtStart = iterations.List[:0], iterations.AtStart && wake.hasTrait(repeatsState)
		if !ok || n == 0 {
			k++
		}
	}
	if n := len(iterations.List); n > 0 && k < hi && g.Base+g.record(g.slots[k].rec).time() <= iterations.List[n-1].End {
		iterations.List = iterations.List[:n-1] // the wait after it has no length
	}
	if iterations.AtEnd = k == hi; len(iterations.List) < minTimerIterations {
		iterations.List = iterations.List[:0]
		return
	}
	iterations.Stack, iterations.WakerStack, iterations.Reason = g.stack(last.stack()), g.stack(first.stack()), g.str(last.peer())
}

// timerIterationAt returns the records of an iteration that begins with the piece at slot k: a wake without a waker, and a run without an event
// before its end in a wait. Without ok end is the zero record.
func (g *Gen) timerIterationAt(k uint32) (wake, start, end record, ok bool) {
	wake, start = g.record(g.slots[k].rec), g.record(g.slots[k+1].rec)
	if g.slots[k].rec == 0 || g.slots[k+1].rec == 0 || tracefmt.EventType(wake.kind()) != tracefmt.EvGoUnblock || g.slots[k].creatorOrWaker() != 0 || tracefmt.EventType(start.kind()) != tracefmt.EvGoStart {
		return wake, start, record{}, false
	}
	if _, end = g.next(g.slots[k+1].rec); tracefmt.EventType(end.kind()) != tracefmt.EvGoBlock {
		return wake, start, record{}, false
	}
	return wake, start, end, true
}
