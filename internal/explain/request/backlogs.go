package request

import (
	"cmp"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Backlog is a queue of clients' messages in front of goroutines of one loop: the goroutines that read the clients' connections
// pass messages to one goroutine (a hub, an actor, the consumer of a broker's connection) through a buffered channel, or several
// goroutines read one socket.
//
// A message that finds the goroutine at work leaves no event. But each message that finds it idle wakes it. If nearly all
// messages wake it whenever it is idle, the others were queued until the goroutine had handled those before them.
type Backlog struct {
	Loop        tracefmt.StringID // name of the loop that handles the messages, on one goroutine
	MessageName tracefmt.StringID // name of the messages, 0 if a reader received them
	// Frame receives a message: a line of the loop, or the function that a library calls with it.
	Frame tracefmt.FrameID
	// Goroutines is how many goroutines handle messages. They are several only if they read one socket.
	Goroutines int
	Queued     int // messages that found the goroutine at work
	// HandlingNS is the mean time for which a goroutine handled a message.
	HandlingNS int64
	// Messages are in order of their arrival. If it is not known where the messages of a period of work begin, they take equally long.
	Messages []QueuedMessage
	WorkNS   int64 // time in which all goroutines were at work; if IsDivided, the mean time in which one was
	// IsDivided says that each goroutine has its own queue: event loops, between which the connections are divided.
	IsDivided bool
}

// A QueuedMessage is a message that a goroutine handled from Start to End.
type QueuedMessage struct{ Arrival, Start, End int64 }

// maxBacklogRecords bounds the messages and the periods of work that are stored.
const maxBacklogRecords = 1 << 16

// A workPeriod is the time from the wake of a loop's idle wait to the next idle wait.
type workPeriod struct {
	start, end  int64
	goroutine   uint64
	waker       uint64 // 0 if the period began before the trace
	origin      *originStats
	frame       tracefmt.FrameID // see Backlog.Frame; 0 if unknown
	isOpenAtEnd bool
	hasMessage  bool // a message began it
}

// A clientMessage is a message that a goroutine received from a client, or data that a reader received.
type clientMessage struct {
	start, end int64
	goroutine  uint64
	frame      tracefmt.FrameID // of the function that handles it
	isRead     bool             // by a reader
	hasWoken   bool             // the reader woke a goroutine with it
}

// A networkReader is a goroutine of a loop that receives data and passes it to another loop, as the goroutine that reads a message
// broker's connection does. Data that arrives while the other loop works wakes no goroutine.
type networkReader struct {
	isLibrary     bool // the loop is a library's
	received      []clientMessage
	receivedUntil int64   // ends of waits before it are stored
	wakes         []int64 // times at which it woke goroutines, in the current generation
}

// A backlogFinder stores the messages of clients and the periods of work of loops.
type backlogFinder struct {
	// messages has, from firstRead on, the iterations of the current generation that data from a client began.
	messages    chunkedList[clientMessage]
	firstRead   int
	periods     map[*originStats][]workPeriod
	periodCount int
	answers     map[uint64]int            // periods in which a loop wrote to a connection, by waker
	readers     map[uint64]*networkReader // those that began a period
	reads       map[*originStats][]readIteration
	units       chunkedList[workUnit]
}

// A workUnit is the part of a period of work in which one message was handled.
type workUnit struct {
	start, end int64
	goroutine  uint64
}

// A readIteration is an iteration of a loop that waits for data on a socket. isReady says that it did not wait.
type readIteration struct {
	start, end int64
	goroutine  uint64
	isReady    bool
	frame      tracefmt.FrameID
}

// addMessages stores the messages of clients in a generation: iterations that data from a client began, but not those of a library's
// readers, and the messages of WebSockets, which are among the requests.
func (b *backlogFinder) addMessages(list []Request) {
	b.messages.remove(b.firstRead, func(m *clientMessage) bool {
		reader := b.readers[m.goroutine]
		return reader != nil && reader.isLibrary
	})
	for i := range list {
		if r := &list[i]; r.Kind == WebSocket && r.Piece == WholeRequest && !r.CutAtStart && b.messages.length < maxBacklogRecords {
			*b.messages.append() = clientMessage{start: r.Start, end: r.End, goroutine: r.G, frame: r.RootFrame}
		}
	}
	b.firstRead = b.messages.length
}

// collectReceived stores, for each reader, the data that the reader received in a generation, and whether it woke a goroutine
// with that data.
func (l *loopSource) collectReceived(c *collector) {
	readers := l.backlogs.readers
	if len(readers) == 0 {
		return
	}
	for _, goroutine := range l.candidates {
		for obs := range goroutine.observations(skipIterations) {
			obs.skipsRepeated = true
			if reader := readers[obs.waker]; reader != nil && obs.state == timeline.Waiting {
				reader.wakes = append(reader.wakes, obs.end)
			}
		}
	}
	for _, goroutine := range l.candidates {
		if reader := readers[goroutine.id]; reader != nil {
			reader.collectReceived(l, c, goroutine)
		}
	}
}

// collectReceived stores what one reader received in a generation. Data is received at the end of a wait for the network, and
// passed on by the next wait.
func (r *networkReader) collectReceived(l *loopSource, c *collector, goroutine *loopGoroutine) {
	slices.Sort(r.wakes)
	var received clientMessage
	for obs := range goroutine.observations(nil) {
		obs.skipsRepeated = true
		if obs.state != timeline.Waiting || obs.stack == 0 {
			continue
		}
		if received.goroutine != 0 && len(r.received) < maxBacklogRecords {
			received.end = obs.start
			i, _ := slices.BinarySearch(r.wakes, received.start)
			received.hasWoken = i < len(r.wakes) && r.wakes[i] <= received.end
			r.received = append(r.received, received)
		}
		received = clientMessage{}
		if obs.reason == reasonNetwork && obs.woken && obs.end > r.receivedUntil {
			if loop, frame := l.loopFuncAt(c, goroutine, obs.stack); loop == nil || !loop.isIdleWaitServed || c.stackInfo(obs.stack).outerServiceFrame == 0 { // else requests are messages
				r.isLibrary = c.stackInfo(obs.stack).outerServiceFrame == 0
				received = clientMessage{start: obs.end, goroutine: goroutine.id, frame: frame, isRead: true}
			}
			r.receivedUntil = obs.end
		}
	}
	r.wakes = r.wakes[:0]
}

// isReader reports whether goroutine id may loop and was seen to wait for the network.
func (l *loopSource) isReader(id uint64) bool {
	g := l.goroutines[id]
	return g != nil && g.waitsForNetwork
}

// readerOf returns the goroutine that reads from the network and woke this loop's goroutine for an iteration; 0 if no such
// goroutine did.
func (l *loopSource) readerOf(iteration *iterationState) uint64 {
	if wait := &iteration.beginWait; wait.waker != 0 && wait.end == iteration.start && l.isReader(wait.waker) {
		return wait.waker
	}
	return 0
}

// receivedIn returns how often a reader received data in [from, to) without waking a goroutine: such data is handled in an
// iteration that is already running.
func (b *backlogFinder) receivedIn(reader uint64, from, to int64) (n int) {
	list := b.readers[reader].received
	i := sort.Search(len(list), func(i int) bool { return list[i].end >= from })
	for ; i < len(list) && list[i].end < to; i++ {
		n += 1 - intOf(list[i].hasWoken)
	}
	return n
}

// addWorkPeriod stores an iteration from its wake to end as a period of work, if a goroutine began it and its work may be
// messages of clients. It returns whether it did, and the goroutine that reads the messages (readerOf); past maxBacklogRecords
// periods it only records this goroutine.
func (l *loopSource) addWorkPeriod(
	c *collector, goroutine uint64, iteration *iterationState, end int64, loop *loopFunc, origin *originStats, waitStack tracefmt.StackID, frame tracefmt.FrameID,
) (reader uint64, isStored bool) {
	wait := &iteration.beginWait
	reader = l.readerOf(iteration)
	if !(l.isUnknownServer || reader != 0 || len(l.messages.readers)+l.backlogs.firstRead > 0) || loop.isBusy || end <= iteration.start || wait.end != 0 && (wait.waker == 0 || wait.end != iteration.start) {
		return reader, false
	}
	if reader != 0 {
		entry.GetOrAdd(l.backlogs.readers, reader)
	}
	if l.backlogs.periodCount >= maxBacklogRecords {
		return reader, false
	}
	if l.backlogs.periodCount++; iteration.hasWritten {
		l.backlogs.answers[wait.waker]++
	}
	l.backlogs.addPeriod(workPeriod{start: iteration.start, end: end, goroutine: goroutine, waker: wait.waker, origin: origin, frame: c.frameOf(waitStack, frame)})
	return reader, true
}

// addPeriod stores a period of work. Of a loop with several goroutines only the first periods are stored, which show that.
func (b *backlogFinder) addPeriod(p workPeriod) {
	if list := b.periods[p.origin]; len(list) == 0 || list[0].goroutine == list[len(list)-1].goroutine {
		b.periods[p.origin] = append(list, p)
	}
}

// frameOf returns the frame of a function on the stack of a wait, or any frame of the function if it is not on it.
func (c *collector) frameOf(wait tracefmt.StackID, function tracefmt.FrameID) tracefmt.FrameID {
	for _, frame := range c.syms.Stack(wait) {
		if c.syms.Frame(frame).Func == c.syms.Frame(function).Func {
			return frame
		}
	}
	return function
}

// Backlogs returns the queues of messages, ordered by the names of their loops: those between readers and one goroutine
// (newBacklog), then those in sockets that several goroutines read (readBacklog). Messages belong to a loop if at least half of
// its periods of work began with one. It uses up the stored records, so it may be called once, after Finish.
func (f *Finder) Backlogs() (out []Backlog) {
	b := &f.loops.backlogs
	byGoroutine, byName := make(map[uint64][]*clientMessage), make(map[tracefmt.StringID][]*clientMessage)
	// messageOf returns the message that a goroutine handled at t; nil if there was none.
	messageOf := func(goroutine uint64, t int64) *clientMessage {
		list := byGoroutine[goroutine]
		if i := sort.Search(len(list), func(i int) bool { return list[i].end >= t }); i < len(list) && list[i].start <= t {
			return list[i]
		}
		return nil
	}
	for _, g := range f.loops.goroutines {
		if it := g.iteration; it != nil && it.start != 0 && it.beginWait.waker != 0 && it.start < f.traceEnd {
			for _, unit := range f.loops.openUnits(&f.collector, g) {
				*b.units.append() = unit
			}
			b.addPeriod(workPeriod{start: it.start, end: f.traceEnd, goroutine: g.id, waker: it.beginWait.waker, origin: g.origin, isOpenAtEnd: true})
		}
	}
	for key, origin := range f.work.origins {
		periods := b.periods[origin]
		if len(periods) < threshold.SmallSample || periods[0].goroutine != periods[len(periods)-1].goroutine {
			continue
		}
		if len(byName) == 0 { // most programs have no such loop
			f.indexMessages(byGoroutine, byName)
		}
		slices.SortFunc(periods, func(x, y workPeriod) int { return cmp.Compare(x.start, y.start) })
		begun := make(map[*clientMessage]bool)
		counts, name := make(map[tracefmt.StringID]int), tracefmt.StringID(0)
		for i := range periods {
			if r := messageOf(periods[i].waker, periods[i].start); r != nil {
				begun[r], periods[i].hasMessage = true, true
				fn := f.syms.Frame(r.frame).Func
				if counts[fn]++; counts[fn] > counts[name] || counts[fn] == counts[name] && fn < name {
					name = fn
				}
			}
		}
		list := byName[name]
		if 2*counts[name] < len(periods) || !list[0].isRead && 2*b.answers[periods[0].goroutine] < len(periods) {
			continue
		}
		if backlog, ok := newBacklog(periods, list, begun, b.unitsOf(periods[0].goroutine)); ok {
			backlog.Loop, backlog.Frame = key.name, periods[len(periods)/2].frame
			if !list[0].isRead {
				backlog.MessageName = name
			}
			out = append(out, backlog)
		}
	}
	for key, origin := range f.work.origins {
		iterations := b.reads[origin]
		if len(iterations) < threshold.MedianSample {
			continue
		}
		areSeveral := slices.ContainsFunc(iterations, func(t readIteration) bool { return t.goroutine != iterations[0].goroutine })
		var backlog Backlog
		switch {
		case origin.sharesSocket || !areSeveral:
			backlog = readBacklog(iterations)
		case origin.isEventLoop:
			backlog = dividedBacklog(iterations)
		default:
			continue // each reads another socket
		}
		backlog.Loop, backlog.Frame = key.name, iterations[0].frame
		out = append(out, backlog)
	}
	slices.SortFunc(out, func(x, y Backlog) int { return cmp.Compare(x.Loop, y.Loop) })
	return out
}

// indexMessages fills maps of all messages by goroutine, and by the name of their function in order of their ends.
func (f *Finder) indexMessages(byGoroutine map[uint64][]*clientMessage, byName map[tracefmt.StringID][]*clientMessage) {
	b := &f.loops.backlogs
	for _, reader := range b.readers {
		for _, message := range reader.received {
			*b.messages.append() = message
		}
		reader.received = nil
	}
	for r := range b.messages.elements(0, b.messages.length) {
		byGoroutine[r.goroutine] = append(byGoroutine[r.goroutine], r)
		name := f.syms.Frame(r.frame).Func
		byName[name] = append(byName[name], r)
	}
	for _, list := range byName {
		slices.SortFunc(list, func(x, y *clientMessage) int { return cmp.Compare(x.end, y.end) })
	}
}

// openUnits returns, in order, the units of work that ended in the iteration in which a goroutine is at the end of the trace;
// nil if it is not known what its function waits for.
func (l *loopSource) openUnits(c *collector, goroutine *loopGoroutine) (units []workUnit) {
	it := goroutine.iteration
	t := endedIteration{start: it.start, end: c.traceEnd, goroutine: goroutine.id, reader: l.readerOf(it), iterationContent: it.iterationContent}
	if t.loopFunc, _ = l.loopFuncAt(c, goroutine, it.idleWait); t.loopFunc == nil || t.idleWait == 0 {
		return nil
	}
	t.waitCycle = l.waitCycle(c, &t)
	start := t.start
	for _, end := range t.unitEnds() {
		units, start = append(units, workUnit{start, end, t.goroutine}), end
	}
	return units
}

// unitsOf returns the units of work of a goroutine in order.
func (b *backlogFinder) unitsOf(goroutine uint64) (units []workUnit) {
	for unit := range b.units.elements(0, b.units.length) {
		if unit.goroutine == goroutine {
			units = append(units, *unit)
		}
	}
	slices.SortFunc(units, func(x, y workUnit) int { return cmp.Compare(x.start, y.start) })
	return units
}

// readBacklog estimates the queue in a socket from the iterations of the goroutines that read it. While all of them work,
// messages wait in the socket; a goroutine that finishes then reads the next one without a wait. The messages read without a wait
// in such an interval are assumed to have arrived at equal distances.
func readBacklog(iterations []readIteration) (b Backlog) {
	slices.SortFunc(iterations, func(x, y readIteration) int { return cmp.Compare(x.start, y.start) })
	busyUntil := make(map[uint64]int64)
	for i := range iterations {
		busyUntil[iterations[i].goroutine] = iterations[0].start - 1
		b.Messages = append(b.Messages, QueuedMessage{iterations[i].start, iterations[i].start, iterations[i].end})
	}
	b.Goroutines = len(busyUntil)
	busySince, free := iterations[0].start, iterations[0].start-1 // all are at work since busySince, until one is free
	var ready []int                                               // iterations of that interval
	endInterval := func() {
		for k, i := range ready {
			m, last := &b.Messages[i], iterations[ready[len(ready)-1]].start
			m.Arrival = min(m.Start, busySince+(last-busySince)*int64(k+1)/int64(len(ready)+1))
		}
		b.WorkNS += max(0, free-busySince)
		b.Queued += len(ready)
		ready = ready[:0]
	}
	for i := range iterations {
		iteration := &iterations[i]
		if iteration.start > free {
			endInterval()
			busySince = iteration.start
		} else if iteration.isReady {
			ready = append(ready, i)
		}
		wasFirstFree := busyUntil[iteration.goroutine] == free
		busyUntil[iteration.goroutine] = iteration.end
		if !wasFirstFree {
			continue // another goroutine is free before it, as before
		}
		free = iteration.end
		for _, until := range busyUntil {
			free = min(free, until)
		}
	}
	endInterval()
	b.finish()
	return b
}

// dividedBacklog adds the queues of event loops, each of which reads its own connections.
func dividedBacklog(iterations []readIteration) (b Backlog) {
	byLoop := make(map[uint64][]readIteration)
	for _, t := range iterations {
		byLoop[t.goroutine] = append(byLoop[t.goroutine], t)
	}
	for _, list := range byLoop {
		one := readBacklog(list)
		b.Messages, b.Queued, b.Goroutines = append(b.Messages, one.Messages...), b.Queued+one.Queued, b.Goroutines+1
		b.WorkNS += one.WorkNS
	}
	b.IsDivided, b.WorkNS = true, b.WorkNS/int64(b.Goroutines)
	slices.SortFunc(b.Messages, func(x, y QueuedMessage) int { return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.End, y.End)) })
	b.finish()
	return b
}

// finish orders the messages by their arrival and computes the mean time for one.
func (b *Backlog) finish() {
	slices.SortStableFunc(b.Messages, func(x, y QueuedMessage) int { return cmp.Compare(x.Arrival, y.Arrival) })
	for _, m := range b.Messages {
		b.HandlingNS += m.End - m.Start
	}
	b.HandlingNS /= int64(max(len(b.Messages), 1))
}

// newBacklog estimates the queue in front of one goroutine from its periods and units of work, ordered by start, and the messages, ordered
// by end. begun has the messages that began a period. ok is false if many messages came while the goroutine was idle and did not
// wake it: then the messages do not go to this goroutine.
func newBacklog(periods []workPeriod, messages []*clientMessage, begun map[*clientMessage]bool, units []workUnit) (b Backlog, ok bool) {
	elsewhere, handled, handlingNS := 0, 0, int64(0)
	arrivals := make([][]int64, len(periods)) // by period
	next := sort.Search(len(messages), func(i int) bool { return messages[i].end >= periods[0].start })
	for i := range periods {
		p := &periods[i]
		if p.hasMessage {
			arrivals[i] = append(arrivals[i], p.start)
		}
		for ; next < len(messages) && messages[next].end <= p.end; next++ {
			switch r := messages[next]; {
			case begun[r], r.hasWoken:
			case r.end < p.start:
				elsewhere++
			default:
				arrivals[i] = append(arrivals[i], r.end)
				b.Queued++
			}
		}
		b.WorkNS += p.end - p.start
		if p.hasMessage && !p.isOpenAtEnd {
			handled, handlingNS = handled+len(arrivals[i]), handlingNS+p.end-p.start
		}
	}
	meanNS := handlingNS / int64(max(handled, 1))
	for i := range periods {
		p := &periods[i]
		first := sort.Search(len(units), func(k int) bool { return units[k].start >= p.start })
		end := first
		for end < len(units) && units[end].end <= p.end {
			end++
		}
		b.Messages = append(b.Messages, p.messages(arrivals[i], units[first:end], meanNS)...)
		units = units[end:]
	}
	b.Goroutines = 1
	b.finish()
	return b, handled > 0 && float64(elsewhere) <= threshold.NoticeableShare*float64(len(periods)+elsewhere)
}

// messages returns the messages of a period in order of arrivals, the times at which they arrived. units are the known times in
// which one was handled, meanNS is how long it takes where neither they nor the period show it.
func (p *workPeriod) messages(arrivals []int64, units []workUnit, meanNS int64) (list []QueuedMessage) {
	n, start := len(arrivals), p.start
	switch {
	case n == 0:
		return nil
	case p.isOpenAtEnd: // those without a unit are not done
		for len(list) < min(n, len(units)) {
			unit := units[len(list)]
			list, start = append(list, QueuedMessage{min(arrivals[len(list)], unit.start), unit.start, unit.end}), unit.end
		}
	case len(units) > 1:
		if !p.hasMessage {
			units = units[max(0, len(units)-n):] // those before arrived before the trace
		}
		for i, unit := range units { // data may hold several messages, or none
			list = append(list, QueuedMessage{min(arrivals[i*n/len(units)], unit.start), unit.start, unit.end})
		}
		return list
	case p.hasMessage:
		meanNS = (p.end - p.start) / int64(n)
	default: // the last of its messages is done at the end
		start = p.end - int64(n)*meanNS
	}
	for _, arrival := range arrivals[len(list):] { // the beginning of each is not known
		start = max(arrival, start) + meanNS
		list = append(list, QueuedMessage{arrival, start - meanNS, start})
	}
	return list
}
