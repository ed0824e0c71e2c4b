package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// TimerTurns are successive turns of a goroutine, each from the end of a wait to the begin of the next one. No goroutine ended the
// waits, all are at one stack, for one reason, with the same WakerStack, and no event is in the runs between them.
type TimerTurns struct {
	Stack, WakerStack tracefmt.StackID
	Reason            tracefmt.StringID
	List              []TimerTurn

	loaded uint64 // see Gen.preloadRecords
}

// A TimerTurn is one turn: the goroutine was woken at Wake, ran from Start and waited again from End.
type TimerTurn struct{ Wake, Start, End int64 }

const (
	minTimerTurns = 8
	// maxOtherPieces is how many other pieces of a goroutine TimerTurns reads before it returns none.
	maxOtherPieces = 6
)

// SetTimerTurns sets turns to the first succession of turns of goroutine id in the generation that are equal but for their times.
// The list is empty if there are few. The wait before the first turn began in the generation.
func (g *Gen) SetTimerTurns(id uint64, turns *TimerTurns) {
	turns.List = turns.List[:0]
	d := g.ids.lookup(id)
	if d == 0 || g.isIrregular(d) {
		return
	}
	var (
		first, last record // the wake of the first turn, and the begin of the last wait
		others      int
	)
	k, hi := g.slotBase[d], g.slotBase[d+1]
	for preloaded := k; k+1 < hi; {
		if k >= preloaded {
			preloaded = min(k+recordsAhead, hi)
			turns.loaded = g.preloadRecords(g.slots[k:preloaded])
		}
		wake, start, end, ok := g.timerTurnAt(k)
		if ok && last.word != 0 && end.stack() == last.stack() && end.peer() == last.peer() && end.stack() != 0 &&
			last.time() < wake.time() && wake.time() < end.time() && (len(turns.List) == 0 || wake.stack() == first.stack()) {
			if len(turns.List) == 0 {
				first = wake
			}
			turns.List = append(turns.List, TimerTurn{g.Base + wake.time(), g.Base + start.time(), g.Base + end.time()})
			last, k = end, k+2
			continue
		}
		if others++; len(turns.List) >= minTimerTurns || others > maxOtherPieces {
			break
		}
		if turns.List, last, k = turns.List[:0], end, k+1; ok {
			k++
		}
	}
	if n := len(turns.List); n > 0 && k < hi && g.Base+g.record(g.slots[k].rec).time() <= turns.List[n-1].End {
		turns.List = turns.List[:n-1] // the wait after it has no length
	}
	if len(turns.List) < minTimerTurns {
		turns.List = turns.List[:0]
		return
	}
	turns.Stack, turns.WakerStack, turns.Reason = g.stack(last.stack()), g.stack(first.stack()), g.str(last.peer())
}

// timerTurnAt returns the records of a turn that begins with the piece at slot k: a wake without a waker, and a run without an event
// before its end in a wait. Without ok end is the zero record.
func (g *Gen) timerTurnAt(k uint32) (wake, start, end record, ok bool) {
	wake, start = g.record(g.slots[k].rec), g.record(g.slots[k+1].rec)
	if g.slots[k].rec == 0 || g.slots[k+1].rec == 0 || tracefmt.EventType(wake.kind()) != tracefmt.EvGoUnblock || g.slots[k].creatorOrWaker() != 0 || tracefmt.EventType(start.kind()) != tracefmt.EvGoStart {
		return wake, start, record{}, false
	}
	if _, end = g.next(g.slots[k+1].rec); tracefmt.EventType(end.kind()) != tracefmt.EvGoBlock {
		return wake, start, record{}, false
	}
	return wake, start, end, true
}
