package timeline

import (
	"math"
	"math/bits"
	"sync"
)

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
// pass over the records as they lie in memory, about 1 ns each; what it finds is
// kept for other steps and other ends.
func (g *Gen) Loads(until, step int64) ([]Load, int64) {
	if until <= g.Base || step <= 0 {
		return nil, step
	}
	for (until-g.Base)/step >= maxLoads {
		step *= 2
	}
	g.movesOnce.Do(g.countMoves)
	if m := &g.moves; step%m.step == 0 && until-g.Base >= m.late {
		return m.loads(g.Base, until, step), step
	}
	var m moves
	m.count(g, step, until-g.Base, 0)
	return m.loads(g.Base, until, step), step
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

// moveTable are the moves of a generation, counted when they are first asked for.
type moveTable struct {
	movesOnce sync.Once
	moves     moves
}

func (t *moveTable) reset() {
	*t = moveTable{moves: moves{bins: t.moves.bins[:0], last: t.moves.last[:0]}}
}

// moves are the moves of a generation by step. Times are since its base.
type moves struct {
	step int64
	lead int64 // how much of the first step lies before the base
	bins []bin
	// Those from late on are told one by one: where the generation ends is known when the next one begins, and the two may overlap.
	// None are told if they were too many.
	late int64
	last []lastMove
}

// A bin adds up the moves in one step: what they do to the numbers of goroutines, and that times how long after the step's start.
type bin struct{ count, time [3]int64 }

type lastMove struct {
	t    int64
	move move
}

const (
	// fineStep divides the steps that are asked for.
	fineStep = 2e6
	// tail is how much of a generation may lie behind the start of the next one, in most traces.
	tail = 20e6
	// mostLast bounds the moves in that, whatever times a trace claims.
	mostLast = 1 << 16
)

func (g *Gen) countMoves() {
	step := int64(fineStep)
	for (g.End-g.Base)/step >= maxLoads {
		step *= 2
	}
	g.moves.count(g, step, max(0, g.End-g.Base-tail), mostLast)
}

// count counts the moves by step until late, and lists those from there on if they are at most so many.
func (m *moves) count(g *Gen, step, late int64, most int) {
	m.step, m.lead, m.late = step, g.Base%step, late
	n := int((late + m.lead + step - 1) / step)
	m.bins = sized(m.bins, n)
	clear(m.bins)
	for _, s := range g.streams {
		if s.index[0] < s.index[1] {
			m.stream(g, g.index[s.index[0]].rec, most)
		}
	}
	if len(m.last) > most {
		m.late, m.last = math.MaxInt64, nil
	}
}

// stream adds the events of one thread.
func (m *moves) stream(g *Gen, at ref, mostLast int) {
	var (
		part, n  = g.slabs[at>>slabBits], at & slabMask
		unit     = part.layout.unit & 63
		step     stepKinds // what lies in the step of the last event: the next one's is mostly the same
		met      uint64    // kinds of events in it, a bit each
		lo, most uint64    // where it begins, and how long it lasts, in units of the clock
	)
	for {
		word := part.words[n&slabMask]
		n++
		k := word >> kindShift & kindMask
		if c := kinds[k].move; c < numMoves {
			t := word>>tickShift - lo
			if t >= most {
				if c == noMove {
					continue
				}
				step.flush(met, lo, unit)
				met, most = 0, 0
				r := record{word, part}
				since := r.time()
				if since >= m.late {
					m.tell(since, c, mostLast)
					continue
				}
				i := (since + m.lead) / m.step
				if _, ok := r.wide(); ok {
					m.bins[i].add(c, since-m.start(i))
					continue
				}
				step.bin, step.from = &m.bins[i], m.start(i)
				up := int64(1)<<unit - 1
				lo = uint64(step.from+up) >> unit
				most = min(uint64(min(m.start(i+1), m.late)+up)>>unit, tickMost) - lo
				t = word>>tickShift - lo
			}
			met |= 1 << k
			step.count[k]++
			step.time[k] += t
			continue
		}
		switch kinds[k].move {
		case aStatus:
			// It says what was so when the generation began.
			c := noMove
			switch statusState(record{word, part}.status()) {
			case Running:
				c = toRunning
			case Runnable:
				c = ready
			case Syscall:
				c = toCall
			}
			if len(m.bins) > 0 {
				m.bins[0].add(c, 0)
			} else {
				m.tell(0, c, mostLast)
			}
		case aLink:
			at = record{word, part}.link()
			part, n = g.slabs[at>>slabBits], at&slabMask
		default:
			step.flush(met, lo, unit)
			return
		}
	}
}

// tell lists a move, and no more than one beyond the most.
func (m *moves) tell(t int64, c move, most int) {
	if len(m.last) <= most {
		m.last = append(m.last, lastMove{t, c})
	}
}

// start returns when a step begins.
func (m *moves) start(i int64) int64 { return max(0, i*m.step-m.lead) }

// stepKinds are the events of one step by kind: what they mean is worked out once a step, not once an event.
type stepKinds struct {
	bin   *bin
	from  int64
	count [kindMask + 1]int64
	time  [kindMask + 1]uint64 // in units of the clock, since the step's first
}

// flush adds the kinds of events that were met to the step's bin.
func (s *stepKinds) flush(met, lo uint64, unit uint8) {
	for ; met != 0; met &= met - 1 {
		k := bits.TrailingZeros64(met) & kindMask
		c := s.count[k]
		t := int64(s.time[k]+uint64(c)*lo)<<(unit&63) - s.from*c
		for i, d := range deltas[kinds[k].move] {
			s.bin.count[i] += d * c
			s.bin.time[i] += d * t
		}
		s.count[k], s.time[k] = 0, 0
	}
}

func (b *bin) add(c move, t int64) {
	for i, d := range deltas[c] {
		b.count[i] += d
		b.time[i] += d * t
	}
}

// loads adds to each step's own moves what goes on from the steps before. step is a multiple of the moves' own.
func (m *moves) loads(base, until, step int64) []Load {
	lead := base % step
	end := until - base
	own := make([]bin, (end+lead+step-1)/step) // of each step; times are until its end
	for k := range m.bins {
		at := m.start(int64(k))
		if at >= end {
			break
		}
		i := (at + lead) / step
		to := min((i+1)*step-lead, end)
		for j, c := range m.bins[k].count {
			own[i].count[j] += c
			own[i].time[j] += c*(to-at) - m.bins[k].time[j]
		}
	}
	for _, e := range m.last {
		if e.t < end {
			i := (e.t + lead) / step
			own[i].add(e.move, min((i+1)*step-lead, end)-e.t)
		}
	}
	out := make([]Load, len(own))
	var n [3]int64
	for i := range out {
		width := min(int64(i+1)*step-lead, end) - max(int64(i)*step-lead, 0)
		sum := func(j int) int64 { return max(0, n[j]*width+own[i].time[j]) }
		out[i] = Load{sum(0), sum(1), sum(2)}
		for j := range n {
			n[j] += own[i].count[j]
		}
	}
	return out
}
