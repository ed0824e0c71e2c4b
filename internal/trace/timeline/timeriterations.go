package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// TimerIterations are successive iterations of a loop, each from the end of a wait to the begin of the next one. No goroutine ended
// the waits, the trace names no stack of the wakes, the iterations end at one stack, for one reason, and no event is in the runs.
type TimerIterations struct {
	Stack  tracefmt.StackID
	Reason tracefmt.StringID
	List   []TimerIteration
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
		last   record // the end of the last iteration
		others int
	)
	k, hi := g.slotBase[d], g.slotBase[d+1]
	for preloaded := k; k+1 < hi; {
		if k >= preloaded {
			preloaded = min(k+recordsAhead, hi)
			iterations.loaded = g.preloadRuns(g.slots[k:preloaded])
		}
		wake, start, end, ok := g.timerIterationAt(k)
		n := len(iterations.List)
		if ok && end.stack() != 0 && wake < end.time() && (n == 0 || end.stack() == last.stack() && end.peer() == last.peer() && last.time() < wake) {
			iterations.List = append(iterations.List, TimerIteration{g.Base + wake, g.Base + start, g.Base + end.time()})
			last, k = end, k+2
			continue
		}
		if others++; n >= minTimerIterations || others > maxOtherPieces {
			break
		}
		iterations.List, iterations.AtStart = iterations.List[:0], iterations.AtStart && g.record(g.slots[k].rec).hasTrait(repeatsState)
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
	iterations.Stack, iterations.Reason = g.stack(last.stack()), g.str(last.peer())
}

// timerIterationAt returns the times of the wake and the start, and the record of the end, of an iteration that begins with the piece at slot
// k: a wake without a waker, and a run without an event before its end in a wait. Without ok end is the zero record.
func (g *Gen) timerIterationAt(k uint32) (wake, start int64, end record, ok bool) {
	wakeSlot, run := &g.slots[k], &g.slots[k+1]
	if wakeSlot.ownerBits != noWaker || run.rec == 0 || tracefmt.EventType(g.record(run.rec).kind()) != tracefmt.EvGoStart {
		return 0, 0, record{}, false
	}
	if _, end = g.next(run.rec); tracefmt.EventType(end.kind()) != tracefmt.EvGoBlock {
		return 0, 0, record{}, false
	}
	return g.slotTime(wakeSlot), g.slotTime(run), end, true
}

// preloadRuns is preloadRecords without wakes by timers, whose slots suffice.
func (g *Gen) preloadRuns(slots []slot) (sum uint64) {
	for i := range slots {
		if slots[i].ownerBits != noWaker {
			sum += g.slabs[slots[i].rec>>slabBits].words[slots[i].rec&slabMask]
		}
	}
	return sum
}
