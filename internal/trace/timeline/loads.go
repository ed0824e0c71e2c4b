package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// A Load is goroutine-time, in ns, that was spent in each state during one
// step of time: divided by the step's length it is the mean number of
// goroutines in that state.
type Load struct{ Running, Runnable, Syscall int64 }

// maxLoads bounds the steps that Loads returns, whatever times a trace claims.
const maxLoads = 1 << 16

// Loads adds up how many goroutines were running, ready to run and in system
// calls in each step of time from the generation's start to until. Steps begin
// at whole multiples of step; step is doubled until there are at most 65536 of
// them, and returned.
//
// No order of events is needed for that: one that begins a state at t adds the
// time from t to until, one that ends it takes that away again. So this is one
// pass over the records as they lie in memory, about 2 ns each.
func (g *Gen) Loads(until, step int64) ([]Load, int64) {
	if until <= g.Base || step <= 0 {
		return nil, step
	}
	for (until-g.Base)/step >= maxLoads {
		step *= 2
	}
	lead := g.Base % step // how much of the first step lies before the generation
	end := until - g.Base + lead
	a := adder{step: step, lead: lead, end: end, bins: make([]bin, (end+step-1)/step)}
	for _, s := range g.streams {
		if s.index[0] < s.index[1] {
			a.stream(g, g.index[s.index[0]].rec)
		}
	}
	return a.loads(), step
}

// A move is what an event does to the numbers of goroutines in the states.
type move uint8

const (
	noMove     move = iota
	start           // ready to running
	ready           // to ready: woken, born
	halt            // from running: waits, ends
	yield           // running to ready
	enter           // running to a call
	leave           // a call to running
	leaveReady      // a call to ready: came back without a P
	toRunning       // to running
	toCall          // to a call
	fromCall        // from a call
	numMoves
	// The others are no moves at their own time.
	aStatus
	aLink
	anEnd
)

// deltas are what a move does to the numbers running, ready, in a call.
var deltas = [numMoves][3]int64{
	start: {+1, -1, 0}, ready: {0, +1, 0}, halt: {-1, 0, 0}, yield: {-1, +1, 0}, enter: {-1, 0, +1}, leave: {+1, 0, -1},
	leaveReady: {0, +1, -1}, toRunning: {+1, 0, 0}, toCall: {0, 0, +1}, fromCall: {0, 0, -1},
}

var moveOf = func() (c [256]move) {
	for k, v := range map[tracefmt.EventType]move{
		tracefmt.EvGoStart: start, tracefmt.EvGoUnblock: ready, tracefmt.EvGoBlock: halt, tracefmt.EvGoStop: yield,
		tracefmt.EvGoDestroy: halt, tracefmt.EvGoCreate: ready, tracefmt.EvGoSyscallBegin: enter, tracefmt.EvGoSyscallEnd: leave,
		tracefmt.EvGoSyscallEndBlocked: leaveReady, tracefmt.EvGoCreateSyscall: toCall, tracefmt.EvGoDestroySyscall: fromCall,
		tracefmt.EvGoSwitch: halt, tracefmt.EvGoSwitchDestroy: halt, tracefmt.EvGoStatus: aStatus, tracefmt.EvGoStatusStack: aStatus,
	} {
		c[k] = v
	}
	c[kindSwitched], c[kindLink], c[kindEnd] = toRunning, aLink, anEnd
	return c
}()

// A bin counts the moves in one step, and adds up the times from them to the
// step's end. What they mean is worked out once a step, not once an event.
type bin struct {
	count, time [numMoves]int64
}

type adder struct {
	step, lead, end int64
	bins            []bin
	// The step that the last event lay in: the next one of the same thread
	// mostly does too, and a division costs as much as all the rest.
	from, to int64
	at       *bin
}

// stream adds the events of one thread.
func (a *adder) stream(g *Gen, at ref) {
	part, n := g.slabs[at>>slabBits], at&slabMask
	for {
		r := record{part.words[n], part}
		n++
		switch c := moveOf[r.kind()]; c {
		case noMove:
		case aStatus:
			// It says what was so when the generation began.
			switch statusState(r.aux() & auxStatus) {
			case Running:
				a.add(a.lead, toRunning)
			case Runnable:
				a.add(a.lead, ready)
			case Syscall:
				a.add(a.lead, toCall)
			}
		case aLink:
			at = r.link()
			part, n = g.slabs[at>>slabBits], at&slabMask
		case anEnd:
			return
		default:
			a.add(min(r.time()+a.lead, a.end), c)
		}
	}
}

func (a *adder) add(t int64, c move) {
	if t < a.from || t >= a.to {
		k := t / a.step
		if int(k) >= len(a.bins) {
			return // at the very end: nothing is left of it
		}
		a.from, a.to, a.at = k*a.step, min((k+1)*a.step, a.end), &a.bins[k]
	}
	a.at.count[c]++
	a.at.time[c] += a.to - t
}

// loads adds to each step's own deltas what goes on from the steps before.
func (a *adder) loads() []Load {
	out := make([]Load, len(a.bins))
	var n [3]int64
	for k := range a.bins {
		b := &a.bins[k]
		var count, time [3]int64
		for c, d := range deltas {
			for i := range d {
				count[i] += d[i] * b.count[c]
				time[i] += d[i] * b.time[c]
			}
		}
		from := max(int64(k)*a.step, a.lead)
		width := min(int64(k+1)*a.step, a.end) - from
		sum := func(i int) int64 { return max(0, n[i]*width+time[i]) }
		out[k] = Load{sum(0), sum(1), sum(2)}
		for i := range n {
			n[i] += count[i]
		}
	}
	return out
}
