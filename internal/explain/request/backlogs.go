package request

import (
	"cmp"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Backlog is what the trace shows of a queue between goroutines that receive clients' messages and one goroutine that handles
// them and lets others answer: a hub, an actor. The queue is a buffered channel, so a message that finds the goroutine at work
// leaves no event. But each message that finds it idle wakes it. If nearly all messages do that whenever it is idle, the others
// queued: until the goroutine had done those before them.
type Backlog struct {
	Loop     tracefmt.StringID // name of the loop that handles the messages, on one goroutine
	Messages string            // name of the messages
	Count    int               // messages
	Queued   int               // those that found the goroutine at work
	// HandlingNS is the mean time for which the goroutine handled a message. It is estimated, as WaitsNS is: the messages of a
	// period of work take equally long.
	HandlingNS int64
	WaitsNS    []int64 // time in the queue of all messages, the shortest first
	WorkNS     int64   // time in which the goroutine was at work
}

// maxBacklogRecords bounds the messages and the periods of work that are stored.
const maxBacklogRecords = 1 << 16

// A workPeriod is the time from the wake of a loop's idle wait to the next idle wait.
type workPeriod struct {
	start, end  int64
	goroutine   uint64
	waker       uint64 // 0 if the period began before the trace
	origin      *originStats
	isOpenAtEnd bool
	hasWritten  bool // to a connection
	hasMessage  bool // a message began it
}

// A clientMessage is a message that a goroutine received from a client.
type clientMessage struct {
	start, end int64
	goroutine  uint64
	frame      tracefmt.FrameID // of the function that handles it
}

// A backlogFinder stores the messages of clients and the periods of work of loops.
type backlogFinder struct {
	messages []clientMessage
	periods  []workPeriod
}

// addMessages stores the messages of clients among requests.
func (b *backlogFinder) addMessages(list []Request) {
	for i := range list {
		r := &list[i]
		if (r.Kind == WebSocket || r.ReadsClient) && r.Piece == WholeRequest && !r.CutAtStart && len(b.messages) < maxBacklogRecords {
			b.messages = append(b.messages, clientMessage{r.Start, r.End, r.G, r.RootFrame})
		}
	}
}

// addWorkPeriod stores an iteration that another goroutine began, if there may be messages of clients.
func (l *loopSource) addWorkPeriod(goroutine uint64, iteration *iterationState, end int64, loop *loopFunc, origin *originStats) {
	wait := &iteration.beginWait
	if (l.isUnknownServer || len(l.messages.readers)+len(l.backlogs.messages) > 0) && !loop.isBusy && end > iteration.start && (wait.end == 0 || wait.waker != 0 && wait.end == iteration.start) && len(l.backlogs.periods) < maxBacklogRecords {
		l.backlogs.periods = append(l.backlogs.periods, workPeriod{start: iteration.start, end: end, goroutine: goroutine, waker: wait.waker, origin: origin, hasWritten: iteration.hasWritten})
	}
}

// Backlogs returns the queues of messages, by the names of their loops.
func (f *Finder) Backlogs() (out []Backlog) {
	b := &f.loops.backlogs
	if len(b.messages) == 0 {
		return nil
	}
	byGoroutine, byName := make(map[uint64][]*clientMessage), make(map[tracefmt.StringID][]*clientMessage)
	for i := range b.messages {
		r := &b.messages[i]
		byGoroutine[r.goroutine] = append(byGoroutine[r.goroutine], r)
		name := f.syms.Frame(r.frame).Func
		byName[name] = append(byName[name], r)
	}
	for _, list := range byName {
		slices.SortFunc(list, func(x, y *clientMessage) int { return cmp.Compare(x.end, y.end) })
	}
	// messageOf returns the message that a goroutine handled at t; nil if there was none.
	messageOf := func(goroutine uint64, t int64) *clientMessage {
		list := byGoroutine[goroutine]
		if i := sort.Search(len(list), func(i int) bool { return list[i].end >= t }); i < len(list) && list[i].start <= t {
			return list[i]
		}
		return nil
	}
	byOrigin, answers := make(map[*originStats][]workPeriod), make(map[uint64]int)
	for _, period := range b.periods {
		byOrigin[period.origin] = append(byOrigin[period.origin], period)
		if period.hasWritten {
			answers[period.waker]++
		}
	}
	for _, g := range f.loops.goroutines {
		if it := g.iteration; it != nil && it.start != 0 && it.beginWait.waker != 0 && it.start < f.traceEnd {
			byOrigin[g.origin] = append(byOrigin[g.origin], workPeriod{start: it.start, end: f.traceEnd, goroutine: g.id, waker: it.beginWait.waker, origin: g.origin, isOpenAtEnd: true})
		}
	}
	for key, origin := range f.work.origins {
		periods := byOrigin[origin]
		if len(periods) < threshold.SmallSample || slices.ContainsFunc(periods, func(p workPeriod) bool { return p.goroutine != periods[0].goroutine }) ||
			2*answers[periods[0].goroutine] < len(periods) {
			continue
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
		if 2*counts[name] < len(periods) {
			continue
		}
		if backlog, ok := newBacklog(periods, byName[name], begun); ok {
			backlog.Loop, backlog.Messages = key.name, f.syms.String(name)
			out = append(out, backlog)
		}
	}
	slices.SortFunc(out, func(x, y Backlog) int { return cmp.Compare(x.Loop, y.Loop) })
	return out
}

// newBacklog computes a backlog from the periods of work of one goroutine and the messages in order of their ends, and reports
// whether those messages go to that goroutine. begun are the messages that began a period.
func newBacklog(periods []workPeriod, messages []*clientMessage, begun map[*clientMessage]bool) (b Backlog, ok bool) {
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
			case begun[r]:
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
	b.HandlingNS = handlingNS / int64(max(handled, 1))
	for i := range periods {
		p, meanNS := &periods[i], b.HandlingNS
		first := p.start
		switch {
		case p.isOpenAtEnd:
		case p.hasMessage:
			meanNS = (p.end - p.start) / int64(len(arrivals[i]))
		default: // the last of its messages is done at the end
			first = p.end - int64(len(arrivals[i]))*meanNS
		}
		for k, t := range arrivals[i] {
			b.WaitsNS = append(b.WaitsNS, max(0, first+int64(k)*meanNS-t))
		}
	}
	slices.Sort(b.WaitsNS)
	b.Count = len(b.WaitsNS)
	return b, handled > 0 && float64(elsewhere) <= threshold.NoticeableShare*float64(len(periods)+elsewhere)
}
