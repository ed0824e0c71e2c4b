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
func (g *Gen) Loads(end, step int64) ([]Load, int64) {
	if end <= g.Base || step <= 0 {
		return nil, step
	}
	for (end-g.Base)/step >= maxLoads {
		step *= 2
	}
	g.movesOnce.Do(g.countMoves)
	if m := &g.moves; step%m.step == 0 && end-g.Base >= m.listedFrom {
		return m.loads(g.Base, end, step), step
	}
	var m moveCounts
	m.count(g, step, end-g.Base, 0)
	return m.loads(g.Base, end, step), step
}

// A move is what an event does to the numbers of goroutines in the states.
type move uint8

const (
	noMove             move = iota
	moveStart               // ready to running
	moveReady               // to ready: woken, born
	moveHalt                // from running: waits, ends
	moveYield               // running to ready
	moveEnterCall           // running to a call
	moveLeaveCall           // a call to running
	moveLeaveCallReady      // a call to ready: came back without a P
	moveToRunning           // to running
	moveToCall              // to a call
	moveFromCall            // from a call
	numMoves
	// The others are no moves at their own time.
	moveStatus
	moveLink
	moveEnd
)

// deltas are what a move does to the numbers running, ready, in a call.
var deltas = [numMoves][3]int64{
	moveStart: {+1, -1, 0}, moveReady: {0, +1, 0}, moveHalt: {-1, 0, 0}, moveYield: {-1, +1, 0}, moveEnterCall: {-1, 0, +1}, moveLeaveCall: {+1, 0, -1},
	moveLeaveCallReady: {0, +1, -1}, moveToRunning: {+1, 0, 0}, moveToCall: {0, 0, +1}, moveFromCall: {0, 0, -1},
}

// moveTable are the moves of a generation, counted when they are first asked for.
type moveTable struct {
	movesOnce sync.Once
	moves     moveCounts
}

func (t *moveTable) reset() {
	*t = moveTable{moves: moveCounts{bins: t.moves.bins[:0], listed: t.moves.listed[:0]}}
}

// moveCounts are the moves of a generation by step. Times are since its base.
type moveCounts struct {
	step   int64
	leadIn int64 // how much of the first step lies before the base
	bins   []bin
	// Those from late on are told one by one: where the generation ends is known when the next one begins, and the two may overlap.
	// None are told if they were too many.
	listedFrom int64
	listed     []timedMove
}

// A bin adds up the moves in one step: what they do to the numbers of goroutines, and that times how long after the step's start.
type bin struct{ count, time [3]int64 }

type timedMove struct {
	t    int64
	move move
}

const (
	// fineStep divides the steps that are asked for.
	fineStep = 2e6
	// listedTail is how much of a generation may lie behind the start of the next one, in most traces.
	listedTail = 20e6
	// maxListedMoves bounds the moves in that, whatever times a trace claims.
	maxListedMoves = 1 << 16
)

func (g *Gen) countMoves() {
	step := int64(fineStep)
	for (g.End-g.Base)/step >= maxLoads {
		step *= 2
	}
	g.moves.count(g, step, max(0, g.End-g.Base-listedTail), maxListedMoves)
}

// count counts the moves by step until late, and lists those from there on if they are at most so many.
func (m *moveCounts) count(g *Gen, step, listedFrom int64, maxListed int) {
	m.step, m.leadIn, m.listedFrom = step, g.Base%step, listedFrom
	n := int((listedFrom + m.leadIn + step - 1) / step)
	m.bins = resize(m.bins, n)
	clear(m.bins)
	for _, s := range g.streams {
		if s.index[0] < s.index[1] {
			m.countStream(g, g.index[s.index[0]].rec, maxListed)
		}
	}
	if len(m.listed) > maxListed {
		m.listedFrom, m.listed = math.MaxInt64, nil
	}
}

// countStream adds the events of one thread.
func (m *moveCounts) countStream(g *Gen, rec ref, maxListed int) {
	var (
		slab, n               = g.slabs[rec>>slabBits], rec & slabMask
		unit                  = slab.layout.unit & 63
		step                  stepCounts // what lies in the step of the last event: the next one's is mostly the same
		seenKinds             uint64     // kinds of events in it, a bit each
		stepBegin, stepLength uint64     // where it begins, and how long it lasts, in units of the clock
	)
	for {
		word := slab.words[n&slabMask]
		n++
		k := word >> kindShift & kindMask
		if c := kinds[k].move; c < numMoves {
			t := word>>tickShift - stepBegin
			if t >= stepLength {
				if c == noMove {
					continue
				}
				step.flush(seenKinds, stepBegin, unit)
				seenKinds, stepLength = 0, 0
				r := record{word, slab}
				sinceBase := r.time()
				if sinceBase >= m.listedFrom {
					m.listMove(sinceBase, c, maxListed)
					continue
				}
				i := (sinceBase + m.leadIn) / m.step
				if _, ok := r.wideIndex(); ok {
					m.bins[i].add(c, sinceBase-m.stepStart(i))
					continue
				}
				step.bin, step.from = &m.bins[i], m.stepStart(i)
				up := int64(1)<<unit - 1
				stepBegin = uint64(step.from+up) >> unit
				stepLength = min(uint64(min(m.stepStart(i+1), m.listedFrom)+up)>>unit, maxTick) - stepBegin
				t = word>>tickShift - stepBegin
			}
			seenKinds |= 1 << k
			step.count[k]++
			step.time[k] += t
			continue
		}
		switch kinds[k].move {
		case moveStatus:
			// It says what was so when the generation began.
			c := noMove
			switch statusState(record{word, slab}.status()) {
			case Running:
				c = moveToRunning
			case Runnable:
				c = moveReady
			case Syscall:
				c = moveToCall
			}
			if len(m.bins) > 0 {
				m.bins[0].add(c, 0)
			} else {
				m.listMove(0, c, maxListed)
			}
		case moveLink:
			rec = record{word, slab}.link()
			slab, n = g.slabs[rec>>slabBits], rec&slabMask
		default:
			step.flush(seenKinds, stepBegin, unit)
			return
		}
	}
}

// listMove lists a move, and no more than one beyond the most.
func (m *moveCounts) listMove(t int64, c move, maxListed int) {
	if len(m.listed) <= maxListed {
		m.listed = append(m.listed, timedMove{t, c})
	}
}

// stepStart returns when a step begins.
func (m *moveCounts) stepStart(i int64) int64 { return max(0, i*m.step-m.leadIn) }

// stepCounts are the events of one step by kind: what they mean is worked out once a step, not once an event.
type stepCounts struct {
	bin   *bin
	from  int64
	count [kindMask + 1]int64
	time  [kindMask + 1]uint64 // in units of the clock, since the step's first
}

// flush adds the kinds of events that were met to the step's bin.
func (s *stepCounts) flush(seenKinds, stepBegin uint64, unit uint8) {
	for ; seenKinds != 0; seenKinds &= seenKinds - 1 {
		k := bits.TrailingZeros64(seenKinds) & kindMask
		c := s.count[k]
		t := int64(s.time[k]+uint64(c)*stepBegin)<<(unit&63) - s.from*c
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
func (m *moveCounts) loads(base, end, step int64) []Load {
	lead := base % step
	length := end - base
	stepMoves := make([]bin, (length+lead+step-1)/step) // of each step; times are until its end
	for k := range m.bins {
		binStart := m.stepStart(int64(k))
		if binStart >= length {
			break
		}
		i := (binStart + lead) / step
		to := min((i+1)*step-lead, length)
		for j, c := range m.bins[k].count {
			stepMoves[i].count[j] += c
			stepMoves[i].time[j] += c*(to-binStart) - m.bins[k].time[j]
		}
	}
	for _, e := range m.listed {
		if e.t < length {
			i := (e.t + lead) / step
			stepMoves[i].add(e.move, min((i+1)*step-lead, length)-e.t)
		}
	}
	out := make([]Load, len(stepMoves))
	var n [3]int64
	for i := range out {
		width := min(int64(i+1)*step-lead, length) - max(int64(i)*step-lead, 0)
		sum := func(j int) int64 { return max(0, n[j]*width+stepMoves[i].time[j]) }
		out[i] = Load{sum(0), sum(1), sum(2)}
		for j := range n {
			n[j] += stepMoves[i].count[j]
		}
	}
	return out
}
