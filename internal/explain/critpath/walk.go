// Package critpath finds what a request really waited for: its critical path.
//
// A request's path is walked backwards from its end on the goroutine that
// ended it. Where that goroutine waited, the walk goes on in the goroutine that
// woke it, but only within the time of that wait, and so on; where a goroutine
// was born within the time, the walk goes on in its creator. Every instant of
// the request is emitted exactly once, so the steps add up to its latency.
//
// The bound is what keeps the walk from wandering through locks into other
// requests (Giraldeau and Dagenais, "Wait Analysis of Distributed Systems
// Using Kernel Tracing", IEEE TPDS 2016, describe it for processes in the
// kernel).
//
// A recorded waker is not always the cause; see [Walker] for the rules.
package critpath

import (
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Kind says what a step is.
type Kind uint8

// A Step is a stretch of a critical path in one state of one goroutine.
type Step struct {
	Start, End int64
	G          uint64
	Kind       Kind
	How        timeline.How
	// Stack is where: see timeline.Span.
	Stack tracefmt.StackID
	// Before is, for running time, the stack of the event before it on the same
	// goroutine: where it resumed. 0: not known.
	Before tracefmt.StackID
	Reason tracefmt.StringID
	// Via is the index in Vias of the wait that led here, or -1.
	Via int32
	// Inbound says that a network wait is for the client of a request.
	Inbound bool
	// Preempted says that Stack is where a CPU step was at its end, not just
	// where the next event came from.
	Preempted bool
	// ByPoll says that a Runnable step began with a wake by the poller: where
	// nobody had polled for a while, the data may have been there since then.
	ByPoll bool
	// Timer is, for a Sleep that a timer's function of the standard library
	// ended (a context's deadline), where that function starts; 0 otherwise.
	Timer tracefmt.StackID
}

// A Via is a wait that the walk followed to its waker.
type Via struct {
	Wait   Wait
	Stack  tracefmt.StackID
	Parent int32 // the via before, nearer to the request, or -1
	// G waited from From to To, also where the walk needs only a part of that; Waker ended it.
	G, Waker uint64
	From, To int64
}

// Wait names a kind of wait that the walk follows.
type Wait uint8

// Waits.
const (
	WaitOther Wait = iota
	WaitLock
	WaitGroup
	WaitCond
	WaitOnce
	WaitChan
	WaitSend
	WaitSelect
	WaitCoroutine
	WaitPoll // a network wait ended by a deadline or a close
	WaitPeer // a network wait for the answer of the process itself: see Answer
)

var waitNames = [...]string{"wait", "lock", "waitgroup", "cond", "once", "chan", "chan send", "select", "coroutine", "network", "peer"}

func (w Wait) String() string { return waitNames[w] }

// maxSteps bounds one walk. It is by steps, not by depth: chains through a
// lock that all connections share are rightly 60 deep.
const maxSteps = 1 << 18

// maxDeep bounds how many waits within waits are followed: where ten thousand goroutines queue for one place, each of them
// waited for all who came before it. What is left is told as the wait in that queue.
const maxDeep = 256

// A Walker walks. It keeps its buffers from walk to walk; one goroutine may
// use it at a time, several Walkers may read one window together.
//
// Which wakers are believed (facts measured on real traces, see DESIGN 5):
//
//   - sync, channel, select and Cond waits: the goroutine that made the wake.
//     A select or receive woken by nobody is a timer's.
//   - sync waits with gcStart, gcMarkDone or stopTheWorld on their stack are
//     the runtime's own, not locks.
//   - network waits: nobody, unless the waker's stack is in internal/poll (a
//     deadline passed on, a close). A goroutine that restarts the world polls
//     the network by the way and shows as waker of strangers.
//   - a goroutine that nobody created is a timer's function: the time before
//     its birth is sleep; if the function is the standard library's (a context's
//     deadline), where it is waited for.
//   - who gives up a place of a pool that is handed to any of those who wait may have come after the waiter: what it did
//     before it wanted a place itself is not on the path.
//   - a Cond's waiter that a Broadcast woke, that finds nothing done and waits
//     again, was not meant: only the last wake counts. (A lock's waiter that was
//     woken and lost had a holder to wait for each time, and a Signal means
//     one: those waits are followed one by one.)
//   - so it is where a goroutine that serves several was woken by later arrivals, which it kept, and a timer in the same
//     select ended its last wait there: the timer ran meanwhile, and the arrivals held nobody up.
type Walker struct {
	// Vias of the last walk.
	Vias []Via
	// Hops counts the wakers followed in the last walk, Cut says that it was
	// given up for its length.
	Hops int
	Cut  bool
	// Own is called, if not nil, for every span of the request's own goroutine:
	// their stacks name the request.
	Own func(stack tracefmt.StackID)
	// Answers, if not nil, returns which requests of this process a request waits
	// for over the network, by its goroutine and its start.
	Answers func(g uint64, start int64) []Answer
	// Clients, if not nil, says of more waits for the network that a client of the process ends them.
	Clients func(wait tracefmt.StackID) bool

	win     *timeline.Window
	syms    *tracefmt.Symbols
	cache   []bits // by stack
	fns     []bits // by function
	spans   []timeline.Span
	frames  []frame
	steps   []Step
	reasons []reasonClass // by string
}

type frame struct {
	g     uint64
	a     int64 // the walk ends here
	lo    int   // spans[lo:idx+1] are still to be looked at
	idx   int
	n     int // how many spans it began with
	via   int32
	own   bool
	place tracefmt.StackID // of the wait that was dealt with last, the next one in time
	// for the request whose work this is: what it waits for here, and at which level it was itself asked for
	answers []Answer
	level   int
}

// New returns a Walker over a window.
func New(win *timeline.Window, syms *tracefmt.Symbols) *Walker {
	return &Walker{win: win, syms: syms}
}

type reasonClass uint8

const (
	reasonUnseen reasonClass = iota
	reasonOther
	reasonNetwork
	reasonSelect
	reasonRecv
	reasonSend
	reasonCond
	reasonSync
	reasonSleep
	reasonForever
	reasonAssist
	reasonGC
	reasonSwitch
)

func classOfReason(s string) reasonClass {
	switch s {
	case "network":
		return reasonNetwork
	case "select":
		return reasonSelect
	case "chan receive":
		return reasonRecv
	case "chan send":
		return reasonSend
	case "sync.(*Cond).Wait":
		return reasonCond
	case "sync":
		return reasonSync
	case "sleep":
		return reasonSleep
	case "forever":
		return reasonForever
	case "GC mark assist wait for work":
		return reasonAssist
	case "GC background sweeper wait", "wait until GC ends", "GC weak to strong wait", "system goroutine wait", "preempted":
		return reasonGC
	case "":
		return reasonSwitch
	}
	return reasonOther
}

func (w *Walker) reason(id tracefmt.StringID) reasonClass {
	for int(id) >= len(w.reasons) {
		w.reasons = append(w.reasons, reasonUnseen)
	}
	if w.reasons[id] == reasonUnseen {
		w.reasons[id] = classOfReason(w.syms.String(id))
	}
	return w.reasons[id]
}

// Walk returns the critical path of what goroutine g was doing from from to
// to: steps in order of time that cover it without gap or overlap. The slice
// is valid until the next call.
func (w *Walker) Walk(g uint64, from, to int64) []Step {
	w.steps, w.spans, w.frames, w.Vias = w.steps[:0], w.spans[:0], w.frames[:0], w.Vias[:0]
	w.Hops, w.Cut = 0, false
	if to <= from {
		return nil
	}
	hi := to
	w.push(g, from, hi, -1, true)
	w.frames[0].answers = w.answersOf(g, from)
	for n := 0; len(w.frames) > 0; n++ {
		if n > maxSteps {
			w.Cut = true
			w.emit(&hi, from, Step{Kind: Unknown, Via: -1})
			break
		}
		f := &w.frames[len(w.frames)-1]
		if hi <= f.a {
			w.pop()
			continue
		}
		if f.idx < f.lo {
			if first := f.lo; f.n > 0 && w.spans[first].How == timeline.HowCreated && w.spans[first].Start > f.a {
				w.creator(*f, w.spans[first], &hi)
				continue
			}
			w.emit(&hi, f.a, Step{G: f.g, Kind: Unknown, Via: f.via})
			w.pop()
			continue
		}
		s := &w.spans[f.idx]
		if s.End < hi {
			w.emit(&hi, max(s.End, f.a), Step{G: f.g, Kind: Unknown, Via: f.via})
			continue
		}
		f.idx--
		start := max(s.Start, f.a)
		if f.own && w.Own != nil && s.Stack != 0 && s.How != timeline.HowCreated && start < hi {
			w.Own(s.Stack)
		}
		if start < hi {
			if s.State == timeline.Waiting && w.follow(f, s, start, &hi) {
				continue // f is not valid any more
			}
			f = &w.frames[len(w.frames)-1]
			s = &w.spans[f.idx+1]
			if s.State != timeline.Waiting {
				w.leaf(f, s, start, &hi)
			}
		}
	}
	slices.Reverse(w.steps)
	return w.steps
}

// creator goes on in the goroutine that made the one of frame f.
func (w *Walker) creator(f frame, first timeline.Span, hi *int64) {
	w.pop()
	if first.Peer == 0 {
		// Nobody: a timer's function. The time before its birth is the timer's.
		st := Step{G: f.g, Kind: Sleep, How: timeline.HowCreated, Stack: w.win.StartOf(f.g, first.Start), Via: f.via}
		if n := len(w.frames); n > 0 && f.via >= 0 && w.bits(st.Stack)&foreign == 0 {
			v := w.Vias[f.via]
			st.Timer = st.Stack
			st.G, st.Stack, st.Via = w.frames[n-1].g, v.Stack, v.Parent
		}
		w.emit(hi, f.a, st)
		return
	}
	// What made it may serve others as well: a connection, a dispatcher.
	w.push(first.Peer, f.a, *hi, f.via, false)
	w.inherit(f)
}

func (w *Walker) push(g uint64, a, hi int64, via int32, own bool) {
	lo := len(w.spans)
	w.spans = w.win.SpansCoarse(g, a, hi, w.spans)
	w.frames = append(w.frames, frame{g: g, a: a, lo: lo, idx: len(w.spans) - 1, n: len(w.spans) - lo, via: via, own: own})
}

func (w *Walker) pop() {
	f := w.frames[len(w.frames)-1]
	w.spans = w.spans[:f.lo]
	w.frames = w.frames[:len(w.frames)-1]
}

func (w *Walker) emit(hi *int64, start int64, s Step) {
	if start >= *hi {
		return
	}
	s.Start, s.End = start, *hi
	*hi = start
	w.steps = append(w.steps, s)
}

// leaf emits a span that is not a wait. The step is filled in where it stands:
// it is most of the steps.
func (w *Walker) leaf(f *frame, s *timeline.Span, start int64, hi *int64) {
	if start >= *hi {
		return
	}
	w.steps = append(w.steps, Step{})
	st := &w.steps[len(w.steps)-1]
	st.Start, st.End = start, *hi
	*hi = start
	st.G, st.How, st.Stack, st.Reason, st.Via = f.g, s.How, s.Stack, s.Reason, f.via
	switch s.State {
	case timeline.Running:
		st.Kind, st.Preempted = CPU, s.Preempted
		if f.idx >= f.lo {
			if before := &w.spans[f.idx]; before.How != timeline.HowCreated {
				st.Before = before.Stack
			}
		}
		switch {
		case s.Assist:
			st.Kind = Assist
		case s.InSTW:
			st.Kind = StopWorld
		}
	case timeline.Runnable:
		st.Kind = Runnable
		st.ByPoll = s.How == timeline.HowUnblocked && s.Waker == 0 && w.reason(s.Reason) == reasonNetwork && w.unseen(s.Start, s.WakeNoP) > 0
		if s.Assist {
			st.Kind = Assist
		}
	case timeline.Syscall:
		st.Kind = Syscall
	}
}

// follow deals with a wait: it goes on in the waker and reports true, or
// emits the wait itself.
func (w *Walker) follow(f *frame, s *timeline.Span, start int64, hi *int64) bool {
	v := w.judge(f, s, *hi)
	answer := f.answer(&v, start, *hi)
	if v.gap != 0 {
		gap := v.step
		gap.Kind = PollGap
		w.emit(hi, max(v.gap, start), gap)
	}
	if answer != nil && w.peer(f, s, start, hi, &v, answer) {
		return true
	}
	again := f.place == s.Stack
	f.place = s.Stack
	if v.futile {
		start = w.inVain(f, s, start, w.isBroadcast)
	} else if v.ticked && !f.own && !again {
		start = w.inVain(f, s, start, isOthers)
	}
	if !v.followed || len(w.frames) >= maxDeep {
		w.emit(hi, start, v.step)
		return false
	}
	via := f.via
	if via >= 0 && w.overtook(w.Vias[via].Stack, s.Stack) {
		start = f.a
	}
	if v.wait != WaitCoroutine {
		via = int32(len(w.Vias))
		w.Vias = append(w.Vias, Via{Wait: v.wait, Stack: s.Stack, Parent: f.via, G: f.g, Waker: s.Waker, From: min(s.Start, start), To: s.End})
	}
	of := *f
	if !w.enter(s.Waker, start, *hi, via) {
		w.emit(hi, start, v.step) // the wait stays the leaf it is
		return false
	}
	w.inherit(of)
	return true
}

// enter goes on in the goroutine that ended a wait. It reports false if nothing is known of that.
func (w *Walker) enter(g uint64, a, hi int64, via int32) bool {
	before := len(w.spans)
	w.push(g, a, hi, via, false)
	if len(w.spans) == before {
		w.pop()
		return false
	}
	w.Hops++
	return true
}

// overtook reports whether who ended a wait for a place of a pool had waited for one itself, and had it, though it may have
// come later, because places are handed to any of those who wait. What it did before that wait held nobody up: the place was
// then with who gave it to it.
func (w *Walker) overtook(waited, its tracefmt.StackID) bool {
	return w.bits(waited)&w.bits(its)&anyPlace != 0
}

// A verdict says what a wait was.
type verdict struct {
	step     Step  // what it is if it is not followed
	wait     Wait  // what it is if it is
	followed bool  // the waker is believed
	futile   bool  // the waits on the same Cond before it may have been for the same
	ticked   bool  // a timer ended it, beside which others may do so
	gap      int64 // nobody polled the network since; 0: not known, or somebody did
}

// judge decides whether a wait is followed. f.idx stands before the wait's
// span; hi is the end of what is looked at.
func (w *Walker) judge(f *frame, s *timeline.Span, hi int64) verdict {
	v := verdict{step: Step{G: f.g, How: s.How, Stack: s.Stack, Reason: s.Reason, Via: f.via}}
	st := &v.step
	ended := s.Woken && s.End <= hi
	b := w.bits(s.Stack)
	class := w.reason(s.Reason)
	if s.How == timeline.HowStatus && s.Reason == 0 {
		class = w.reasonByStack(s.Stack) // a status does not say why
	}
	switch class {
	case reasonSleep:
		st.Kind = Sleep
	case reasonAssist:
		st.Kind = Assist
	case reasonGC:
		st.Kind = GCWait
	case reasonForever:
		st.Kind = Chan
	case reasonNetwork:
		st.Kind, st.Inbound = Network, b&inbound != 0 || w.Clients != nil && w.Clients(s.Stack)
		if ended && s.Waker != 0 && w.bits(s.WakerStack)&(inPoll|restarts) == inPoll {
			v.wait = WaitPoll
		} else if ended && s.Waker == 0 {
			if gap := w.unseen(s.End, s.WakeNoP); gap > 0 && s.End-gap < hi {
				v.gap = s.End - gap
			}
		}
	case reasonSelect, reasonRecv:
		st.Kind, v.wait = Chan, WaitChan
		if class == reasonSelect {
			v.wait = WaitSelect
		}
		if ended && s.Waker == 0 {
			st.Kind, v.ticked = Sleep, true // a timer's channel
		}
	case reasonSend:
		st.Kind, v.wait = Chan, WaitSend
	case reasonCond:
		st.Kind, v.wait = Lock, WaitCond
		v.futile = ended && s.Waker != 0 && s.Waker != f.g
	case reasonSync:
		st.Kind, v.wait = Lock, WaitLock
		switch {
		case b&stopsSem != 0:
			st.Kind, v.wait = StopWorld, WaitOther
		case b&gcSem != 0:
			st.Kind, v.wait = GCWait, WaitOther
		case b&waitGroup != 0:
			v.wait = WaitGroup
		case b&once != 0:
			v.wait = WaitOnce
		}
	case reasonSwitch:
		st.Kind, v.wait = Chan, WaitCoroutine
	default:
		st.Kind = Unknown
		switch {
		case ended && s.Waker != 0:
			v.wait = WaitLock
		case ended && s.How == timeline.HowStatus:
			// It waited when the trace began, so neither why nor where is known.
			// One that reads from the poller first of all waited for that.
			if next := w.resumed(f); w.bits(next)&inPoll != 0 {
				st.Kind, st.Stack, st.Inbound = Network, next, w.bits(next)&inbound != 0
			}
		}
	}
	if s.Assist || b&inAssist != 0 {
		st.Kind, v.wait = Assist, WaitOther
	}
	v.followed = v.wait != WaitOther && ended && s.Waker != 0 && s.Waker != f.g
	return v
}

// resumed returns the stack of the first event after the wait that was just
// taken from f, 0 if that lies outside.
func (w *Walker) resumed(f *frame) tracefmt.StackID {
	for i := f.idx + 2; i < len(w.spans); i++ {
		if s := &w.spans[i]; s.State == timeline.Running {
			return s.Stack
		} else if s.State != timeline.Runnable {
			break
		}
	}
	return 0
}

// maxFutile is how long a Cond's waiter may look at its condition before it
// waits again for the wake to count as futile: it only compared something.
const maxFutile = 100e3

// inVain returns the start of the first of a row of waits at one place, of which s is the last: each of those before was
// ended by a wake that is vain, and its goroutine waited again. It takes those before s off the frame.
func (w *Walker) inVain(f *frame, s *timeline.Span, start int64, vain func(*timeline.Span) bool) int64 {
	resumed := s.Start // of the wait after this one
	for i := f.idx; i >= f.lo && start > f.a; i-- {
		p := &w.spans[i]
		switch {
		case p.State == timeline.Waiting && p.Stack == s.Stack && p.Reason == s.Reason && vain(p):
			start, resumed = max(p.Start, f.a), p.Start
			f.idx = i - 1
			continue
		case p.State == timeline.Running && resumed-p.Start <= maxFutile:
			continue
		case p.State == timeline.Runnable && p.How != timeline.HowCreated:
			resumed = p.Start
			continue
		case p.State == timeline.Waiting && w.bits(p.Stack)&(cond|mutex) == cond|mutex:
			resumed = p.Start // takes the lock again
			continue
		}
		break
	}
	return start
}

// isBroadcast reports whether a Broadcast ended a wait, which need not have been meant for who waited.
func (w *Walker) isBroadcast(s *timeline.Span) bool {
	return s.Waker != 0 && w.bits(s.WakerStack)&broadcast != 0
}

// isOthers reports whether somebody ended a wait that a timer could have ended as well: he gave something to be kept until then.
func isOthers(s *timeline.Span) bool { return s.Woken && s.Waker != 0 }

// reasonByStack tells why a goroutine waits from where it does: for those that
// were waiting before the trace began, of which only the stack is known.
func (w *Walker) reasonByStack(id tracefmt.StackID) reasonClass {
	for _, f := range w.syms.Stack(id) {
		switch w.syms.String(w.syms.Frame(f).Func) {
		case "internal/poll.runtime_pollWait":
			return reasonNetwork
		case "time.Sleep":
			return reasonSleep
		case "runtime.selectgo":
			return reasonSelect
		case "runtime.block":
			return reasonForever
		case "runtime.chanrecv", "runtime.chanrecv1", "runtime.chanrecv2":
			return reasonRecv
		case "runtime.chansend", "runtime.chansend1":
			return reasonSend
		case "sync.runtime_notifyListWait":
			return reasonCond
		case "sync.runtime_Semacquire", "sync.runtime_SemacquireMutex", "sync.runtime_SemacquireRWMutex",
			"sync.runtime_SemacquireRWMutexR", "sync.runtime_SemacquireWaitGroup", "internal/sync.runtime_SemacquireMutex":
			return reasonSync
		}
	}
	return reasonOther
}
