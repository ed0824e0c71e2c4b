package timeline

import "github.com/whylate/whylate/internal/tracefmt"

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
// pass over the records as they lie in memory, 2 to 3 ns each.
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

// A bin holds what the events in one step change: the number in each state,
// and their time from the event to the end of the step.
type bin struct {
	count [3]int64
	time  [3]int64
}

type adder struct {
	step, lead, end int64
	bins            []bin
	// The step that the last event lay in: the next one of the same thread
	// mostly does too, and a division costs as much as all the rest.
	from, to int64
	at       *bin
}

// delta is what an event does to the numbers running, runnable, in a call.
type delta [3]int64

var deltas = func() (c [256]delta) {
	for k, v := range map[tracefmt.EventType]delta{
		tracefmt.EvGoStart:             {+1, -1, 0},
		tracefmt.EvGoUnblock:           {0, +1, 0},
		tracefmt.EvGoBlock:             {-1, 0, 0},
		tracefmt.EvGoStop:              {-1, +1, 0},
		tracefmt.EvGoDestroy:           {-1, 0, 0},
		tracefmt.EvGoCreate:            {0, +1, 0},
		tracefmt.EvGoSyscallBegin:      {-1, 0, +1},
		tracefmt.EvGoSyscallEnd:        {+1, 0, -1},
		tracefmt.EvGoSyscallEndBlocked: {0, +1, -1},
		tracefmt.EvGoCreateSyscall:     {0, 0, +1},
		tracefmt.EvGoDestroySyscall:    {0, 0, -1},
		tracefmt.EvGoSwitch:            {-1, 0, 0},
		tracefmt.EvGoSwitchDestroy:     {-1, 0, 0},
	} {
		c[k] = v
	}
	c[kindSwitched] = delta{+1, 0, 0}
	return c
}()

// stream adds the events of one thread.
func (a *adder) stream(g *Gen, at ref) {
	part, n := g.slabs[at>>slabBits], at&slabMask
	for {
		r := part[n]
		n++
		k := r.kind()
		switch {
		case k == kindEnd:
			return
		case k == kindLink:
			at = ref(r.peer())
			part, n = g.slabs[at>>slabBits], at&slabMask
			continue
		case isStatus(r):
			// A status says what was so when the generation began.
			a.add(a.lead, statusDelta(r.aux()&auxStatus))
			continue
		}
		if c := deltas[k]; c != (delta{}) {
			a.add(min(r.time()+a.lead, a.end), c)
		}
	}
}

func statusDelta(status uint32) (c delta) {
	switch statusState(status) {
	case Running:
		c[0] = 1
	case Runnable:
		c[1] = 1
	case Syscall:
		c[2] = 1
	}
	return c
}

func (a *adder) add(t int64, c delta) {
	if t < a.from || t >= a.to {
		k := t / a.step
		if int(k) >= len(a.bins) {
			return // at the very end: nothing is left of it
		}
		a.from, a.to, a.at = k*a.step, min((k+1)*a.step, a.end), &a.bins[k]
	}
	b, left := a.at, a.to-t
	for i, n := range c {
		b.count[i] += n
		b.time[i] += n * left
	}
}

// loads adds to each step's own deltas what goes on from the steps before.
func (a *adder) loads() []Load {
	out := make([]Load, len(a.bins))
	var n [3]int64
	for k := range a.bins {
		b := &a.bins[k]
		from := max(int64(k)*a.step, a.lead)
		width := min(int64(k+1)*a.step, a.end) - from
		sum := func(i int) int64 { return max(0, n[i]*width+b.time[i]) }
		out[k] = Load{sum(0), sum(1), sum(2)}
		for i := range n {
			n[i] += b.count[i]
		}
	}
	return out
}
