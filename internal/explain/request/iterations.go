package request

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Two things make the turns from one idle wait to the next others than the pieces
// of work that were done. A worker that finds the next piece when it is done with
// one does not wait in between: several pieces are one turn. And some wakes bring no
// work: client-go's work queue wakes a worker also when the last item is done, which
// looks at the queue and waits again.

// iterationContent is what was seen inside of a turn.
type iterationContent struct {
	idleWait  tracefmt.StackID  // the wait that began it
	wakerFunc tracefmt.StringID // the function that ended that, 0 for none
	// hasWorked says that something was seen outside of the call that waits.
	hasWorked bool
	// waits are those inside of the turn, with when each was over and its
	// goroutine ran again; long says that there were too many.
	waits           []iterationWait
	hasTooManyWaits bool
	awaitsRun       bool // the last wait is over, but the goroutine has not run
	hasWritten      bool // to a connection
	// ownedFrame is the outermost function of the service's own that was seen.
	ownedFrame tracefmt.FrameID
}

type iterationWait struct {
	stack          tracefmt.StackID
	start, resumed int64
}

// maxIterationWaits bounds the waits of a turn that are kept.
const maxIterationWaits = 1 << 10

// endedIteration is a turn that has ended.
type endedIteration struct {
	start, end int64
	goroutine  uint64
	waitStack  tracefmt.StackID
	frame      tracefmt.FrameID // of the function that loops
	loopFunc   *loopFunc
	origin     *originStats
	iterationContent
	waitCycle string // see loops.cycle
}

// add takes note of a visit inside of a turn.
func (in *iterationContent) add(loops *loopFinder, f *Finder, obs *observation) {
	if !in.hasWorked {
		in.hasWorked = in.idleWait == 0 || loops.leavesWaitCall(f, in.idleWait, obs.stack)
	}
	if in.ownedFrame == 0 && !obs.isCreatorStack {
		in.ownedFrame = f.stackInfo(obs.stack).outerOwned
	}
	switch obs.state {
	case timeline.Syscall:
		in.hasWritten = in.hasWritten || f.stackInfo(obs.stack).isWrite
	case timeline.Running:
		if in.awaitsRun {
			in.waits[len(in.waits)-1].resumed = obs.start
			in.awaitsRun = false
		}
	case timeline.Waiting:
		switch obs.reason {
		case reasonOther, reasonSync:
			return // it may, or may not, have to wait there
		}
		wait := f.canonicalStack(obs.stack)
		if n := len(in.waits); n > 0 && in.waits[n-1].start == obs.start {
			return // seen with the generation before
		}
		if in.hasTooManyWaits = in.hasTooManyWaits || len(in.waits) == maxIterationWaits; in.hasTooManyWaits {
			in.waits = nil
			in.awaitsRun = false
			return
		}
		in.waits = append(in.waits, iterationWait{stack: wait, start: obs.start})
		in.awaitsRun = true
	}
}

// leavesWaitCall reports whether a stack leaves the call in which a goroutine waits for
// work: the innermost function that is not the standard library's. Where that is
// the service's own, its other lines are work.
func (l *loopFinder) leavesWaitCall(f *Finder, idle, id tracefmt.StackID) bool {
	if id == idle {
		return false
	}
	info := f.stackInfo(idle)
	wait, stack, callIndex := f.syms.Stack(idle), f.syms.Stack(id), info.innermostIndex
	if callIndex < 0 || len(stack) < len(wait)-callIndex {
		return true
	}
	stack = stack[len(stack)-(len(wait)-callIndex):]
	if !slices.Equal(stack[1:], wait[callIndex+1:]) {
		return true
	}
	a, b := f.syms.Frame(wait[callIndex]), f.syms.Frame(stack[0])
	return a.Func != b.Func || info.isInnermostOwned && a.Line != b.Line
}

// wakeStats counts what followed the wakes by one function.
type wakeStats struct {
	withWork    int // turns in which something was done
	withoutWork int // others
}

// finishIteration hands out a turn that has ended, as soon as it is known what pieces of work it is.
func (l *loopFinder) finishIteration(f *Finder, t endedIteration) {
	if t.loopFunc.isBusy {
		l.emitIteration(f, &t, t.start, t.end, 0) // no wake began it
		return
	}
	t.waitCycle = l.waitCycle(f, &t)
	t.loopFunc.cycles.add(t.waitCycle, len(t.waits))
	stats := t.loopFunc.wakers[t.wakerFunc]
	if t.hasWorked {
		stats.withWork++
	} else {
		stats.withoutWork++
	}
	t.loopFunc.wakers[t.wakerFunc] = stats
	if t.waitCycle == "" && (t.hasWorked || t.wakerFunc == 0) {
		l.emitIteration(f, &t, t.start, t.end, t.start)
	} else {
		*l.unclassified.extend() = t
	}
}

// emitUnclassified hands out the other turns that ended in a generation, as pieces of work.
func (l *loopFinder) emitUnclassified(f *Finder) {
	for t := range l.unclassified.elements(0, l.unclassified.length) {
		if t.hasWorked || !t.loopFunc.isWorklessWaker(t.wakerFunc) {
			l.emitWorkUnits(f, t)
		}
	}
	l.unclassified.length = 0
}

// isWorklessWaker reports whether wakes by a function bring no work: what followed them
// never was any, while others brought some.
func (r *loopFunc) isWorklessWaker(waker tracefmt.StringID) bool {
	w := r.wakers[waker]
	if waker == 0 || w.withoutWork < scale.Few || 20*w.withWork > w.withoutWork {
		return false
	}
	for fn, o := range r.wakers {
		if fn != waker && o.withWork >= scale.Few && o.withWork > o.withoutWork {
			return true
		}
	}
	return false
}

// emitIteration hands out a turn, or a piece of one.
func (l *loopFinder) emitIteration(f *Finder, t *endedIteration, start, end, ready int64) {
	t.origin.inspected++
	t.origin.total++
	t.origin.emittedNS += end - start
	answersClient := t.loopFunc.isIdleWaitServed && t.hasWritten
	if t.loopFunc.emittedCount++; answersClient {
		t.loopFunc.clientCount++
	}
	f.emitted = append(f.emitted, Request{
		Kind: Loop, Start: start, wholeStart: start, End: end, G: t.goroutine, WokenAt: ready, EntryStack: t.waitStack, RootFrame: t.frame, AnswersClient: answersClient,
	})
}

// cycleStats counts turns by the waits that each piece of work has: by those of a turn
// that does not come to the same ones again.
type cycleStats struct {
	iterations int // that had any
	single     map[string]int
	repeated   map[string]int
}

// maxCycles bounds the kinds of work that are distinguished.
const maxCycles = 64

func (c *cycleStats) add(key string, waits int) {
	if key == "" {
		return
	}
	c.iterations++
	counts := c.single
	if len(key) < 4*waits {
		counts = c.repeated
	}
	if _, ok := counts[key]; ok || len(counts) < maxCycles {
		counts[key]++
	}
}

// isWorkUnit reports whether a turn that comes several times to the waits of key is
// several pieces of work: nearly all turns have just those, and many have them
// once.
func (c *cycleStats) isWorkUnit(key string) bool {
	return c.single[key] >= scale.Few && 10*(c.single[key]+c.repeated[key]) >= 9*c.iterations
}

// waitCycle returns the waits that a turn comes to repeatedly, until it ends: all,
// if it comes to none again. It is "" if that says nothing: of one wait alone it is
// not known whether a piece of work has it once (it may be a loop over what one
// piece holds, or a second try), nor of waits in a function that the one which
// waits for work calls.
func (l *loopFinder) waitCycle(f *Finder, t *endedIteration) string {
	n := len(t.waits)
	if t.hasTooManyWaits || n < 2 {
		return ""
	}
	key := make([]byte, 0, 4*n)
	for _, w := range t.waits {
		key = appendID(key, uint32(w.stack))
	}
	all := string(key)
	for d := 1; d <= n/2; d++ {
		if n%d == 0 && all == strings.Repeat(all[:4*d], n/d) {
			n = d
			break
		}
	}
	if n < 2 || !l.isCycleInLoop(f, t, n) {
		return ""
	}
	return all[:4*n]
}

func appendID(key []byte, id uint32) []byte { return binary.LittleEndian.AppendUint32(key, id) }

// isCycleInLoop reports whether the first n waits of a turn have their innermost common
// caller in the function that waits for work.
func (l *loopFinder) isCycleInLoop(f *Finder, t *endedIteration, n int) bool {
	wait, index := f.syms.Stack(t.idleWait), f.stackInfo(t.idleWait).innerOwnedIndex
	if index < 0 {
		return false
	}
	first := f.syms.Stack(t.waits[0].stack)
	common := len(first)
	for _, w := range t.waits[1:n] {
		o := f.syms.Stack(w.stack)
		k := 0
		for k < common && k < len(o) && f.syms.Frame(first[len(first)-1-k]).Func == f.syms.Frame(o[len(o)-1-k]).Func {
			k++
		}
		common = k
	}
	return common == len(wait)-index && f.syms.Frame(first[len(first)-common]).Func == f.syms.Frame(wait[index]).Func
}

// emitWorkUnits hands out the pieces of work that a turn consists of.
func (l *loopFinder) emitWorkUnits(f *Finder, t *endedIteration) {
	start, ready := t.start, t.start
	if key := t.waitCycle; key != "" && len(key) < 4*len(t.waits) && t.loopFunc.cycles.isWorkUnit(key) {
		n := len(key) / 4
		for boundary := n; boundary < len(t.waits); boundary += n {
			unitEnd := t.waits[boundary-1].resumed
			if unitEnd <= start || unitEnd >= t.end {
				continue
			}
			l.emitIteration(f, t, start, unitEnd, ready)
			start, ready = unitEnd, 0 // it was there: nothing began it
		}
	}
	l.emitIteration(f, t, start, t.end, ready)
}
