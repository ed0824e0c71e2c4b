package request

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// An iteration, from one idle wait to the next, need not be one unit of work. A worker that finds the next unit when it
// finishes one does not wait in between, so an iteration holds several units. And some wakes bring no work: client-go's
// work queue also wakes a worker when the last item is done; the worker checks the queue and waits again.

// iterationContent holds the observations within an iteration.
type iterationContent struct {
	idleWait  tracefmt.StackID  // the wait that began the iteration
	isReady   bool              // the goroutine did not wait there: its work was available
	wakerFunc tracefmt.StringID // the function that ended idleWait, 0 for none
	// hasWorked says that the goroutine was observed outside of the call that waits.
	hasWorked bool
	// waits are the waits within the iteration, with the time at which the goroutine ran again after each. They are nil
	// if hasTooManyWaits.
	waits           []iterationWait
	hasTooManyWaits bool
	awaitsRun       bool  // the last wait has ended, but the goroutine has not run
	hasWritten      bool  // to a connection
	nextRead        int64 // when a read began that may have returned more work
	// Of an event loop: it has read from a connection, and after that service code was observed elsewhere.
	hasRead, hasHandled bool
	// serviceFrame is the outermost service frame that was observed.
	serviceFrame tracefmt.FrameID
}

// An iterationWait is a wait within an iteration: its stack, when it began, and when the goroutine ran again.
type iterationWait struct {
	stack          tracefmt.StackID
	start, resumed int64
}

// newWaits returns an empty list with room for the waits of most iterations, which are too many for an allocation each.
func (l *loopSource) newWaits() []iterationWait {
	const capacity = 2
	if len(l.spareWaits) == 0 {
		l.spareWaits = make([]iterationWait, capacity*512)
	}
	waits := l.spareWaits[:0:capacity]
	l.spareWaits = l.spareWaits[capacity:]
	return waits
}

// maxIterationWaits bounds the waits of an iteration that are stored.
const maxIterationWaits = 1 << 10

// endedIteration is an iteration that has ended.
type endedIteration struct {
	start, end int64
	goroutine  uint64
	waitStack  tracefmt.StackID
	frame      tracefmt.FrameID // of the looping function
	loopFunc   *loopFunc
	origin     *originStats
	iterationContent
	waitCycle string // see loopSource.waitCycle
	reader    uint64 // the reader that began it, 0 if none did

	isWorkPeriod bool // it was stored as a workPeriod
}

// wokenAt returns when a wake began an iteration, 0 if none did.
func (t *endedIteration) wokenAt() int64 {
	if t.isReady {
		return 0
	}
	return t.start
}

// add records an observation within the iteration: whether the goroutine left the call in which it waits for work, its waits, and
// whether it wrote to a connection.
func (in *iterationContent) add(loops *loopSource, c *collector, obs *observation) {
	if !in.hasWorked {
		in.hasWorked = in.idleWait == 0 || loops.isOutsideWaitCall(c, in.idleWait, obs.stack)
	}
	if in.serviceFrame == 0 && !obs.isCreatorStack {
		in.serviceFrame = c.stackInfo(obs.stack).outerServiceFrame
	}
	if info := c.stackInfo(obs.stack); info.isRead {
		in.hasRead = true
	} else if in.hasRead && info.outerServiceFrame != 0 {
		in.hasHandled = true
	}
	switch obs.state {
	case timeline.Syscall:
		in.hasWritten = in.hasWritten || c.stackInfo(obs.stack).isWrite
	case timeline.Running:
		if in.awaitsRun {
			in.waits[len(in.waits)-1].resumed = obs.start
			in.awaitsRun = false
		}
	case timeline.Waiting:
		switch obs.reason {
		case reasonOther, reasonSync:
			return // whether the goroutine waits there depends on other goroutines
		}
		wait := c.canonicalStack(obs.stack)
		if n := len(in.waits); n > 0 && in.waits[n-1].start == obs.start {
			return // the generation before reported it too
		}
		if in.hasTooManyWaits = in.hasTooManyWaits || len(in.waits) == maxIterationWaits; in.hasTooManyWaits {
			in.waits = nil
			in.awaitsRun = false
			return
		}
		if in.waits == nil {
			in.waits = loops.newWaits()
		}
		in.waits = append(in.waits, iterationWait{stack: wait, start: obs.start})
		in.awaitsRun = true
	}
}

// isOutsideWaitCall reports whether stack id is outside of the call in which the goroutine waits for work at stack idle: then the
// goroutine works. The call is the innermost function outside of the standard library. If that function is service code, its
// other lines count as work.
func (l *loopSource) isOutsideWaitCall(c *collector, idle, id tracefmt.StackID) bool {
	if id == idle {
		return false
	}
	if l.readinessWaits[idle] {
		return !l.readinessWaits[id] // a library's function that waits may call the service itself
	}
	info := c.stackInfo(idle)
	slot := &info.comparedStacks[id%tracefmt.StackID(len(info.comparedStacks))]
	if slot.id != id {
		slot.id, slot.isOutside = id, l.leavesCall(c, info, idle, id)
	}
	return slot.isOutside
}

// leavesCall is isOutsideWaitCall for two different stacks; info describes idle.
func (l *loopSource) leavesCall(c *collector, info *stackInfo, idle, id tracefmt.StackID) bool {
	wait, stack, callIndex := c.syms.Stack(idle), c.syms.Stack(id), info.innermostIndex
	if callIndex < 0 || len(stack) < len(wait)-callIndex {
		return true
	}
	stack = stack[len(stack)-(len(wait)-callIndex):]
	if !slices.Equal(stack[1:], wait[callIndex+1:]) {
		return true
	}
	a, b := c.syms.Frame(wait[callIndex]), c.syms.Frame(stack[0])
	return a.Func != b.Func || info.isInnermostService && a.Line != b.Line
}

// wakeStats counts the iterations that wakes by one function began.
type wakeStats struct {
	withWork    int // iterations that did something
	withoutWork int // the others
}

// finishIteration counts an ended iteration. It emits the iteration at once if it is certainly one unit of work. Otherwise it
// stores the iteration in unclassified until all iterations of the generation are counted (emitUnclassified).
func (l *loopSource) finishIteration(c *collector, t *endedIteration) {
	if t.loopFunc.isBusy {
		l.emitIteration(c, t, t.start, t.end, 0) // no wake began it
		return
	}
	t.waitCycle = l.waitCycle(c, t)
	t.loopFunc.cycles.add(t.waitCycle, len(t.waits))
	if stats := entry.GetOrAdd(t.loopFunc.wakers, t.wakerFunc); t.hasWorked {
		stats.withWork++
	} else {
		stats.withoutWork++
	}
	if t.waitCycle == "" && t.reader == 0 && (t.hasWorked || t.wakerFunc == 0) {
		l.emitIteration(c, t, t.start, t.end, t.wokenAt())
	} else {
		*l.unclassified.append() = *t
	}
}

// emitUnclassified divides the generation's unclassified iterations into units of work and emits these. It drops iterations
// without work if their waker brings none.
func (l *loopSource) emitUnclassified(c *collector) {
	for t := range l.unclassified.elements(0, l.unclassified.length) {
		if t.reader != 0 && !t.hasTooManyWaits {
			t.loopFunc.reading.received += 1 + l.backlogs.receivedIn(t.reader, t.start, t.end)
			t.loopFunc.reading.repeats += len(t.repeatedWaits(false))
			t.loopFunc.reading.separateRepeats += len(t.repeatedWaits(true))
		}
	}
	last, isWorkless := &endedIteration{}, false // most iterations have the waker of the one before
	for t := range l.unclassified.elements(0, l.unclassified.length) {
		if t.loopFunc != last.loopFunc || t.wakerFunc != last.wakerFunc {
			last, isWorkless = t, t.loopFunc.isWorklessWaker(t.wakerFunc)
		}
		if t.hasWorked || !isWorkless && !c.stackInfo(t.idleWait).isFDReadLock {
			l.emitWorkUnits(c, t)
		}
	}
	l.unclassified.reset()
}

// isWorklessWaker reports whether wakes by a function bring no work: at most one in 20 iterations after such a wake worked, and
// most iterations after wakes by another function did.
func (r *loopFunc) isWorklessWaker(waker tracefmt.StringID) bool {
	w := r.wakers[waker]
	if waker == 0 || w == nil || w.withoutWork < threshold.SmallSample || 20*w.withWork > w.withoutWork {
		return false
	}
	for fn, o := range r.wakers {
		if fn != waker && o.withWork >= threshold.SmallSample && o.withWork > o.withoutWork {
			return true
		}
	}
	return false
}

// emitIteration emits the part of an iteration from start to end: all of it, or one unit of work. ready is when a wake began the
// part, 0 if none did.
func (l *loopSource) emitIteration(c *collector, t *endedIteration, start, end, ready int64) {
	t.origin.inspected++
	t.origin.total++
	t.origin.emittedNS += end - start
	t.origin.observedNS += end - start
	readsClient := t.loopFunc.isIdleWaitServed
	answersClient := readsClient && t.hasWritten
	if t.loopFunc.emittedCount++; answersClient {
		t.loopFunc.clientCount++
	}
	if t.isWorkPeriod && l.backlogs.units.length < maxBacklogRecords {
		*l.backlogs.units.append() = workUnit{start, end, t.goroutine}
	}
	if l.work.drops(c, t.waitStack) {
		return
	}
	if readsClient && l.backlogs.messages.length < maxBacklogRecords {
		*l.backlogs.messages.append() = clientMessage{start: start, end: end, goroutine: t.goroutine, frame: t.frame}
	}
	c.series.add(seriesKey{Loop, ready != 0, readsClient, answersClient, t.waitStack, t.frame, 0}, start, end, t.goroutine)
}

// cycleStats counts iterations by their waitCycle: separately those that go through the cycle once and repeatedly.
type cycleStats struct {
	iterations int // that have a cycle
	single     map[string]int
	repeated   map[string]int
}

// maxCycles bounds the number of cycles that are distinguished.
const maxCycles = 64

// add counts an iteration with the given cycle and number of waits: as one that goes through the cycle once, or several times. A
// key has four bytes for each wait of the cycle.
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

// isWorkUnit reports whether each pass through the cycle with a key is a unit of work: nine tenths of the iterations have this
// cycle, and threshold.SmallSample of them go through it once.
func (c *cycleStats) isWorkUnit(key string) bool {
	return c.single[key] >= threshold.SmallSample && 10*(c.single[key]+c.repeated[key]) >= 9*c.iterations
}

// waitCycle returns the sequence of wait stacks that an iteration repeats until it ends, or all of its waits if it repeats none,
// as four bytes a wait. It returns "" if the sequence does not show where a unit of work ends: for a single wait, which may be a
// loop within a unit or a retry, and for waits in a function that the looping function calls.
func (l *loopSource) waitCycle(c *collector, t *endedIteration) string {
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
	if n < 2 || !l.isCycleInLoop(c, t, n) {
		return ""
	}
	return all[:4*n]
}

// appendID appends an id to a key as four bytes.
func appendID(key []byte, id uint32) []byte { return binary.LittleEndian.AppendUint32(key, id) }

// isCycleInLoop reports whether an iteration's first n waits were made by the service's function that waits for work: whether their
// innermost common frame is that function, at the same depth. Then they are repetitions of the loop, not steps of one unit.
func (l *loopSource) isCycleInLoop(c *collector, t *endedIteration, n int) bool {
	wait, index := c.syms.Stack(t.idleWait), c.stackInfo(t.idleWait).innerServiceIndex
	if index < 0 {
		return false
	}
	first := c.syms.Stack(t.waits[0].stack)
	common := len(first)
	for _, w := range t.waits[1:n] {
		o := c.syms.Stack(w.stack)
		k := 0
		for k < common && k < len(o) && c.syms.Frame(first[len(first)-1-k]).Func == c.syms.Frame(o[len(o)-1-k]).Func {
			k++
		}
		common = k
	}
	return common == len(wait)-index && c.syms.Frame(first[len(first)-common]).Func == c.syms.Frame(wait[index]).Func
}

// readingStats counts, over the iterations that readers began, what the readers received and how often the first wait of an
// iteration was repeated: separateRepeats if several such waits in succession count once.
type readingStats struct{ received, repeats, separateRepeats int }

// unitStarts returns the indexes of those waits of an iteration with which the handling of a message begins; nil if that is
// unknown. Each message repeats the first message's waits, so the ratio of repeated waits to received messages gives the number
// of repeats for each message.
func (r *readingStats) unitStarts(t *endedIteration) (starts []int) {
	perMessage := 1
	areSeparate := 4*r.repeats > 5*r.received && 2*r.separateRepeats >= r.received && 4*r.separateRepeats <= 5*r.received
	if !areSeparate && r.repeats > 0 {
		perMessage = max(1, (r.repeats+r.received/2)/max(r.received, 1))
	}
	repeats := t.repeatedWaits(areSeparate)
	if len(repeats)%perMessage != 0 {
		return nil
	}
	for i := 0; i < len(repeats); i += perMessage {
		starts = append(starts, repeats[i])
	}
	return starts
}

// repeatedWaits returns the indexes of the waits at the stack of the first one. If areSeparate, several such waits in succession
// count once.
func (t *endedIteration) repeatedWaits(areSeparate bool) (indexes []int) {
	for i := range t.waits {
		if t.waits[i].stack == t.waits[0].stack && (i == 0 || !areSeparate || t.waits[i-1].stack != t.waits[0].stack) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// emitWorkUnits emits the units of work of an iteration: one for each pass through its cycle, one for each message of a reader,
// or the iteration as a whole.
func (l *loopSource) emitWorkUnits(c *collector, t *endedIteration) {
	start, ready := t.start, t.wokenAt()
	for _, unitEnd := range t.unitEnds() {
		l.emitIteration(c, t, start, unitEnd, ready)
		start, ready = unitEnd, 0 // the next unit was ready: no wake began it
	}
	l.emitIteration(c, t, start, t.end, ready)
}

// unitEnds returns the ends of all units of work of an iteration but the last.
func (t *endedIteration) unitEnds() (ends []int64) {
	last := t.start
	add := func(unitEnd int64) {
		if unitEnd > last && unitEnd < t.end {
			ends, last = append(ends, unitEnd), unitEnd
		}
	}
	switch key := t.waitCycle; {
	case key != "" && t.loopFunc.cycles.isWorkUnit(key):
		n := len(key) / 4
		for boundary := n; boundary < len(t.waits); boundary += n {
			add(t.waits[boundary-1].resumed)
		}
	case t.reader != 0:
		for _, i := range t.loopFunc.reading.unitStarts(t) {
			if i > 0 {
				add(t.waits[i-1].resumed)
			}
		}
	}
	return ends
}
