package request

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A SaturatedLoop is a loop of consumers that always have a next message: they never wait for one, so no idle wait separates their
// iterations, and messages queue where no event shows them. What shows that they receive messages:
//
//   - A goroutine that passes messages to them is blocked, because the channel is full, and a receive by the loop wakes it. As long
//     as a sender is blocked, each receive wakes one.
//   - Their call of a library for the next message wakes a goroutine of that library, which fetches more.
//   - They read a client's connection without a wait.
//   - A goroutine of their library receives data and wakes none with it, and no other loop works all the time.
//   - They fetch each message from a library, and hardly wait longer than the fetch takes without a queue.
type SaturatedLoop struct {
	// Frame receives a message: a line of the loop, or the function that a library calls with it.
	Frame tracefmt.FrameID
	// Feeder is the start function of the goroutines that pass messages to the loop, 0 if there are none. BlockedNS is how long these
	// FeederCount goroutines were blocked in all.
	Feeder      tracefmt.StringID
	FeederCount int
	BlockedNS   int64
	Goroutines  int   // that handle messages at the same time
	EachNS      int64 // mean time for one message, FetchNS included
	FetchNS     int64 // mean wait for a message that the loop fetches from a library, 0 if it does not fetch each
}

// maxFetchWaits bounds the waits of a loop that are stored.
const maxFetchWaits = 1 << 12

// A receipt is the moment at which a loop received a message from a goroutine, or from one that it had waited for.
type receipt struct {
	time   int64
	stack  tracefmt.StackID // of the receive
	isRest bool             // the loop began to wait for a message
}

// receiptStats counts the receipts of a loop at one line.
type receiptStats struct {
	feederTimes
	count  int
	isCall bool // of a library, which may return several messages
	isRead bool // of a connection
}

// receiptLine returns the line of the service that receives a message by waking a goroutine, 0 if the wake is no receipt. isCall says
// that it calls a library, which may return several messages.
func (c *collector) receiptLine(woken *loopGoroutine, obs *observation) (frame tracefmt.FrameID, isCall bool) {
	switch info := c.stackInfo(obs.wakerStack); {
	case info.innerServiceFrame == 0:
		return 0, false
	case info.isFetch && woken.serviceFrame == 0 && (obs.reason == reasonReceive || obs.reason == reasonCond || obs.reason == reasonSend || obs.stack == 0):
		return info.innerServiceFrame, true
	case info.isInnermostService && endsSend(info, obs):
		return info.innerServiceFrame, false
	}
	return 0, false
}

// endsSend reports whether a wake ends a wait to send, by what its waker does.
func endsSend(waker *stackInfo, obs *observation) bool {
	return waker.isReceive && obs.reason != reasonCond && obs.reason != reasonSync || obs.reason == reasonSend && waker.isSelect
}

// countReceipt counts a wake by which a loop receives a message from the woken goroutine, or by which a job that ends lets the woken
// goroutine start the next.
func (l *loopSource) countReceipt(c *collector, g *timeline.Gen, woken *loopGoroutine, obs *observation) {
	if info := c.stackInfo(obs.wakerStack); obs.state != timeline.Waiting || !info.isFetch && !info.isReceive && !info.isSelect {
		return
	}
	receiver := l.goroutines[obs.waker]
	if receiver == nil || receiver.collector == nil {
		if _, _, _, kind := l.jobs.jobStateOf(g, obs.waker); kind != nil && endsSend(c.stackInfo(obs.wakerStack), obs) {
			kind.addFeeder(woken.id, obs, c.traceStart)
		}
		return
	}
	frame, isCall := c.receiptLine(woken, obs)
	if frame == 0 || receiver == woken {
		return
	}
	loop, _ := l.loopFuncAt(c, receiver, obs.wakerStack)
	if wokenLoop, _ := l.loopFuncAt(c, woken, obs.stack); loop == nil || loop == wokenLoop {
		return // a place of a semaphore
	}
	stats := loop.receiptsAt(frame)
	if !stats.addFeeder(woken.id, obs, c.traceStart) {
		return
	}
	stats.count++
	if stats.isCall = isCall; !isCall {
		receiver.receipts, receiver.canIterate = append(receiver.receipts, receipt{time: obs.end, stack: obs.wakerStack}), true
	}
}

// feederTimes has the times for which goroutines that pass messages were blocked.
type feederTimes struct{ feeders map[uint64]*feederTime }

// feederTime is the time for which one goroutine was blocked, and the end of the last such wait.
type feederTime struct{ blockedNS, lastEnd int64 }

// addFeeder adds a wait of a goroutine that passes messages. It returns false if the generation before reported it, too.
func (t *feederTimes) addFeeder(id uint64, obs *observation, traceStart int64) bool {
	if t.feeders == nil {
		t.feeders = make(map[uint64]*feederTime)
	}
	feeder := entry.GetOrAdd(t.feeders, id)
	if obs.end <= feeder.lastEnd {
		return false
	}
	feeder.blockedNS, feeder.lastEnd = feeder.blockedNS+obs.end-max(obs.start, traceStart), obs.end
	return true
}

// blockedNS returns the time for which all feeders together were blocked.
func (t *feederTimes) blockedNS() (ns int64) {
	for _, feeder := range t.feeders {
		ns += feeder.blockedNS
	}
	return ns
}

// receiptsAt returns the statistics of a line at which the loop receives messages, created on first use.
func (r *loopFunc) receiptsAt(frame tracefmt.FrameID) *receiptStats {
	if r.receipts == nil {
		r.receipts = make(map[tracefmt.FrameID]*receiptStats)
	}
	return entry.GetOrAdd(r.receipts, frame)
}

// isAtLine reports whether the service's innermost line on a stack is that of a frame.
func (c *collector) isAtLine(id tracefmt.StackID, frame tracefmt.FrameID) bool {
	inner := c.stackInfo(id).innerServiceFrame
	return inner == frame || inner != 0 && c.syms.Frame(inner).Func == c.syms.Frame(frame).Func && c.syms.Frame(inner).Line == c.syms.Frame(frame).Line
}

// mainReceiptLine returns the line at which a loop receives most of its messages, nearly always without a wait; nil if there is none.
func (r *loopFunc) mainReceiptLine(c *collector) (main tracefmt.FrameID, stats *receiptStats) {
	for frame, s := range r.receipts {
		if stats == nil || cmp.Or(cmp.Compare(s.count, stats.count), cmp.Compare(main, frame)) > 0 {
			main, stats = frame, s
		}
	}
	if stats == nil || stats.count < threshold.SmallSample && !(stats.isCall && r.isAtWork()) {
		return 0, nil
	}
	waited := 0
	for id, w := range r.waits {
		if c.isAtLine(id, main) {
			waited += w.count
		}
	}
	if 10*waited > stats.count || stats.isRead && 2*r.ownWrites >= stats.count {
		return 0, nil // it rests, or answers each message
	}
	return main, stats
}

// separateByWork chooses what separates the iterations of a loop that always has work: its receipts, if a sender is always blocked
// or the work has no waits, or the wait that its work has most often. It returns whether the loop has that.
func (r *loopFunc) separateByWork(c *collector, g *timeline.Gen) bool {
	main, stats := r.mainReceiptLine(c)
	if main == 0 && r.silentFeeder == 0 {
		return false
	}
	maxCount := 0
	var waits []tracefmt.StackID
	for id, w := range r.waits {
		if info := c.stackInfo(id); w.count >= threshold.SmallSample && !w.isSend && !info.isWrite && !info.isMutexWait && (main == 0 || !c.isAtLine(id, main)) {
			waits, maxCount = append(waits, id), max(maxCount, w.count)
		}
	}
	if stats != nil {
		r.isSeparatedByReceipts = !stats.isCall && !stats.isRead && (len(waits) == 0 || float64(stats.blockedNS()) > threshold.MostShare*float64(g.End-c.traceStart))
	}
	r.isBusy = r.isSeparatedByReceipts || len(waits) > 0
	if r.restWaits = make(map[tracefmt.StackID]bool); r.isSeparatedByReceipts || len(waits) == 0 {
		return r.isBusy
	}
	r.idleWait = slices.MinFunc(waits, func(a, b tracefmt.StackID) int {
		v, w, p, q := r.waits[a], r.waits[b], *c.stackInfo(a), c.stackInfo(b)
		return cmp.Or(intOf(4*v.count < maxCount)-intOf(4*w.count < maxCount), p.serviceDepth-q.serviceDepth, p.depth-q.depth, cmp.Compare(w.totalNS, v.totalNS), cmp.Compare(a, b))
	})
	for id := range r.waits {
		r.restWaits[id] = main != 0 && c.isAtLine(id, main)
	}
	return true
}

// followReceipts begins and ends the iterations of a goroutine that receives messages from blocked senders: an iteration is
// from one receipt to the next, or to a wait for a message.
func (l *loopSource) followReceipts(c *collector, g *timeline.Gen, goroutine *loopGoroutine, loop *loopFunc) {
	receipts, line := goroutine.receipts, c.stackInfo(goroutine.receipts[0].stack).innerServiceFrame
	for obs := range goroutine.observations(nil) {
		obs.skipsRepeated = true
		if obs.state == timeline.Waiting && obs.stack != 0 && c.isAtLine(obs.stack, line) {
			if receipts = append(receipts, receipt{obs.start, obs.stack, true}); obs.woken {
				receipts = append(receipts, receipt{obs.end, obs.stack, false})
			}
		}
	}
	slices.SortFunc(receipts, func(a, b receipt) int { return cmp.Compare(a.time, b.time) })
	for i, t := range receipts {
		origin := goroutine.origin
		if i == 0 {
			origin = l.originOf(c, g, goroutine, t.stack)
			if goroutine.iteration == nil {
				goroutine.iteration = new(iterationState)
			}
		}
		iteration := goroutine.iteration
		if iteration.start != 0 {
			l.endIteration(c, goroutine, t.time, t.stack, loop, origin)
		}
		if iteration.start, iteration.iterationContent = t.time, (iterationContent{}); t.isRest {
			iteration.start = 0
		}
	}
}

// findSilentFeeder finds the goroutines that read messages for the only loop that has no other source of work, and returns the
// loop, with silentFeeder set, or nil.
func (l *loopSource) findSilentFeeder(c *collector, g *timeline.Gen) (consumer *loopFunc) {
	for _, loop := range l.loopFuncs {
		if loop == nil || loop.isBenchmark || loop.idleWait != 0 && !loop.isBusy || loop.isSeparatedByReceipts || loop.silentFeeder != 0 || !loop.isAtWork() {
			continue
		}
		if main, _ := loop.mainReceiptLine(c); main != 0 {
			continue
		}
		if consumer != nil {
			return nil
		}
		consumer = loop
	}
	if consumer == nil {
		return nil
	}
	feeder, received := l.silentReader(c, g)
	if feeder == 0 || received < threshold.MedianSample || 4*received < consumer.maxCount() {
		return nil
	}
	consumer.silentFeeder = feeder
	return consumer
}

// isAtWork reports whether the goroutines of a loop only waited within their work: none of their waits is one for more work.
func (r *loopFunc) isAtWork() bool {
	if r.maxCount() < threshold.SmallSample {
		return false
	}
	for _, w := range r.waits {
		if w.rank == idleMost && !w.isLibraryDelay && 2*w.selfEndedCount < w.count && 50*w.count > r.maxCount() || w.isPause {
			return false
		}
	}
	return true
}

// maxCount returns how often the loop's most frequent wait recurred.
func (r *loopFunc) maxCount() (n int) {
	for _, w := range r.waits {
		n = max(n, w.count)
	}
	return n
}

// silentReader returns the start function of goroutines that do nothing but read from the network and wake no goroutine with what
// they read, and how often they did; 0 if there is none or more than one such function.
func (l *loopSource) silentReader(c *collector, g *timeline.Gen) (startFunc tracefmt.StringID, received int) {
	readers := make(map[uint64]*readerStats)
	for _, goroutine := range l.candidates {
		if !goroutine.waitsForNetwork {
			continue
		}
		stats := readerStats{}
		for obs := range goroutine.observations(nil) {
			switch {
			case obs.stack == 0:
			case obs.state == timeline.Syscall && c.stackInfo(obs.stack).isWrite:
				stats.writes++
			case obs.state != timeline.Waiting:
			case obs.reason == reasonNetwork && !c.stackInfo(obs.stack).isWrite:
				stats.startFunc = c.stackInfo(obs.stack).startFunc
				stats.reads++
			case obs.reason != reasonSync:
				stats.writes++ // it does something else
			}
			if 10*stats.writes > goroutine.endObservation-goroutine.firstObservation {
				break // more than it can have reads
			}
		}
		if stats.reads >= threshold.SmallSample && 10*stats.writes <= stats.reads {
			readers[goroutine.id] = &stats
		}
	}
	if len(readers) == 0 {
		return 0, 0
	}
	var buffer []timeline.Span
	g.EachStart(func(id uint64, _ tracefmt.StackID, _ int) {
		buffer = c.window.EachSpans(id, g.Base, g.End+1, buffer, func(spans []timeline.Span) bool {
			for i := range spans {
				if reader := readers[spans[i].Waker]; reader != nil && spans[i].State == timeline.Waiting {
					reader.wakes++
				}
			}
			return true
		})
	})
	for _, reader := range readers {
		switch {
		case 10*reader.wakes > reader.reads:
		case startFunc != 0 && startFunc != reader.startFunc:
			return 0, 0
		default:
			startFunc, received = reader.startFunc, received+reader.reads
		}
	}
	return startFunc, received
}

// readerStats counts what a goroutine that reads from the network did.
type readerStats struct {
	startFunc            tracefmt.StringID
	reads, writes, wakes int
}

// countSocketCall counts a read of a client's connection as a receipt, or a write to it.
func (l *loopSource) countSocketCall(c *collector, loop *loopFunc, goroutine *loopGoroutine, stack tracefmt.StackID) {
	info := c.stackInfo(stack)
	goroutine.readsConnection = goroutine.readsConnection || info.isRead
	switch {
	case info.isInLibrary || info.innerServiceFrame == 0 || !l.isUnknownServer:
	case info.isWrite:
		loop.ownWrites++
	case info.isRead:
		stats := loop.receiptsAt(info.innerServiceFrame)
		stats.count++
		stats.isRead = true
	}
}

// addBusy adds the time that a goroutine spent in an iteration of a loop that always has work. frame is the line that receives
// messages.
func (o *originStats) addBusy(loop *loopFunc, goroutine uint64, start, end int64, frame tracefmt.FrameID) {
	if o.consumers == nil {
		o.consumers, o.busySince = make(map[uint64]int64), start
	}
	o.busyLoop, o.busyFrame, o.busySince = loop, frame, min(o.busySince, start)
	o.consumers[goroutine] += end - start
}

// A fetchWait is a wait for a message that a loop fetches from a library, and the time since the wait before.
type fetchWait struct{ workNS, waitNS int64 }

// SaturatedLoop returns the loop or the jobs of a name if their consumers always have a next message, else nil. It may be called after
// the last generation only.
func (f *Finder) SaturatedLoop(kind Kind, name tracefmt.StringID) *SaturatedLoop {
	if f.saturated == nil {
		f.saturated = f.findSaturated()
	}
	return f.saturated[originKey{kind, name}]
}

// findSaturated returns all saturated loops, not nil, and marks the origins of the goroutines that feed them.
func (f *Finder) findSaturated() map[originKey]*SaturatedLoop {
	out := make(map[originKey]*SaturatedLoop)
	for key, origin := range f.work.origins {
		if origin.inspected < threshold.SmallSample {
			continue
		}
		s := &SaturatedLoop{Goroutines: len(origin.consumers), Frame: origin.busyFrame}
		switch {
		case key.kind == Goroutine && f.describeLimited(s, origin), key.kind == Loop && origin.describeFetching(s), key.kind == Loop && f.describeBusy(s, origin):
			s.EachNS += origin.emittedNS / int64(origin.inspected)
			out[key] = s
		}
	}
	return out
}

// describeFetching sets s.FetchNS, which must be 0, and s.EachNS to the mean time that a loop waits for each message of a library,
// and reports whether there is always a next message: the waits beyond their median take a minor part of the loop's time. Where
// all waits take more than a minor part, at most half of the time, they must not depend on the work before them: messages that
// come at regular times are waited for less after longer work. With too few waits it returns false and sets nothing.
func (o *originStats) describeFetching(s *SaturatedLoop) bool {
	n := len(o.fetchWaits)
	if n < threshold.MedianSample {
		return false
	}
	waits, sumNS, idleNS := make([]int64, n), int64(0), int64(0)
	for i, wait := range o.fetchWaits {
		waits[i], sumNS, s.FetchNS = wait.waitNS, sumNS+wait.workNS+wait.waitNS, s.FetchNS+wait.waitNS
	}
	slices.Sort(waits)
	medianNS := waits[n/2]
	for _, waitNS := range waits {
		idleNS += max(0, waitNS-medianNS)
	}
	s.FetchNS /= int64(n)
	s.EachNS = s.FetchNS
	minorNS := int64(threshold.MinorShare * float64(sumNS))
	return idleNS <= minorNS && (medianNS*int64(n) <= minorNS || 2*medianNS*int64(n) <= sumNS && areIndependent(o.fetchWaits, waits[n-1-n/50]))
}

// areIndependent reports whether waits do not depend on the work before them: whether the slope of their regression is nearer to 0
// than to -1, by more than two standard errors. Very long work says nothing, because messages queue during it in any case; nor does
// work that always takes equally long. A few waits are longer than maxWaitNS.
func areIndependent(waits []fetchWait, maxWaitNS int64) bool {
	waits = slices.Clone(waits)
	slices.SortFunc(waits, func(a, b fetchWait) int { return cmp.Compare(a.workNS, b.workNS) })
	waits = waits[:len(waits)*4/5]
	n, meanWork, meanWait := float64(len(waits)), 0.0, 0.0
	for _, wait := range waits {
		meanWork, meanWait = meanWork+float64(wait.workNS)/n, meanWait+float64(min(wait.waitNS, maxWaitNS))/n
	}
	var covariance, workVariance, waitVariance float64
	for _, wait := range waits {
		x, y := float64(wait.workNS)-meanWork, float64(min(wait.waitNS, maxWaitNS))-meanWait
		covariance, workVariance, waitVariance = covariance+x*y/n, workVariance+x*x/n, waitVariance+y*y/n
	}
	slope, standardError := covariance/workVariance, math.Sqrt(waitVariance/workVariance/n)
	return workVariance > threshold.NoiseShare*threshold.NoiseShare*meanWork*meanWork && slope-2*standardError > -0.5
}

// describeLimited sets what feeds jobs for messages from the network, and how many run at a time. It returns false unless the loop that
// starts them is nearly always blocked until one of them ends.
func (f *Finder) describeLimited(s *SaturatedLoop, origin *originStats) bool {
	if float64(origin.blockedNS()) < threshold.MostShare*float64(f.traceEnd-f.traceStart) || !f.addFeeders(s, &origin.feederTimes) {
		return false
	}
	s.Goroutines = int(math.Round(float64(origin.emittedNS) * float64(origin.total) / float64(origin.inspected) / float64(f.traceEnd-f.traceStart)))
	return s.Goroutines > 0
}

// describeBusy sets where the messages of a loop come from. It returns false unless its goroutines were in an iteration for nearly all
// of the trace. The first and the last iteration of each are not known.
func (f *Finder) describeBusy(s *SaturatedLoop, origin *originStats) bool {
	loop := origin.busyLoop
	if loop == nil || !loop.isBusy || loop.isBenchmark {
		return false
	}
	var ns int64
	for _, busyNS := range origin.consumers {
		ns += busyNS
	}
	n := int64(len(origin.consumers))
	ns += 2 * n * origin.emittedNS / int64(origin.inspected)
	seenNS := f.traceEnd - origin.busySince
	if 2*seenNS < f.traceEnd-f.traceStart || float64(ns) < (1-threshold.MinorShare)*float64(n*seenNS) {
		return false
	}
	switch main, stats := loop.mainReceiptLine(&f.collector); {
	case main == 0:
		s.Feeder = loop.silentFeeder
		// No event shows that the loop receives the feeder's messages: a library that has both shows it. A reader of the service may only count.
		library := modules.Package(f.syms.String(origin.startFunc))
		return s.Feeder != 0 && modules.Package(f.syms.String(s.Feeder)) == library && modules.Package(f.syms.String(f.syms.Frame(s.Frame).Func)) != library
	case stats.isRead:
		s.Frame = main
		return true
	default:
		s.Frame = main
		return f.addFeeders(s, &stats.feederTimes)
	}
}

// addFeeders adds the goroutines that pass messages. It returns false if they do not read them from the network.
func (f *Finder) addFeeders(s *SaturatedLoop, times *feederTimes) (isFed bool) {
	longestNS := int64(-1)
	s.BlockedNS = times.blockedNS()
	for id, feeder := range times.feeders {
		g := f.loops.goroutines[id]
		if g == nil {
			continue
		}
		isFed = isFed || f.loops.isFedFromNetwork(&f.collector, g, 0)
		if s.FeederCount++; feeder.blockedNS > longestNS || feeder.blockedNS == longestNS && g.startFunc < s.Feeder {
			s.Feeder, longestNS = g.startFunc, feeder.blockedNS
		}
	}
	for id := range times.feeders {
		if g := f.loops.goroutines[id]; isFed && g != nil && g.origin != nil {
			g.origin.isFeeder = true
		}
	}
	return isFed
}

// maxFeederSteps bounds the loops through which messages pass.
const maxFeederSteps = 4

// isFedFromNetwork reports whether a goroutine reads what it passes on from the network: itself, by another goroutine of its
// library, or by those whose messages it receives, at most maxFeederSteps of them in a row. steps is how many precede this one.
func (l *loopSource) isFedFromNetwork(c *collector, goroutine *loopGoroutine, steps int) bool {
	if goroutine.waitsForNetwork || goroutine.readsConnection {
		return true
	}
	if steps == maxFeederSteps {
		return false
	}
	if goroutine.serviceFrame == 0 {
		pkg := modules.Package(c.syms.String(goroutine.startFunc))
		for id := range c.syms.Stacks() {
			if info := c.stackInfo(tracefmt.StackID(id)); info.isRead && modules.Package(c.syms.String(info.startFunc)) == pkg {
				return true
			}
		}
	}
	loop := l.loopFuncs[goroutine.startFunc]
	if loop == nil {
		return false
	}
	for _, stats := range loop.receipts {
		for id := range stats.feeders {
			if g := l.goroutines[id]; g != nil && l.isFedFromNetwork(c, g, steps+1) {
				return true
			}
		}
	}
	return false
}
