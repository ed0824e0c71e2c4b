package timeline

import (
	"math"
	"math/bits"
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
)

// A Load is the goroutine-time, in ns, spent in each state during one step. Divided by the length of the step, it
// is the mean number of goroutines in that state.
type Load struct{ Running, Runnable, Syscall int64 }

// maxLoads bounds the number of steps, for traces with wrong times.
const maxLoads = 1 << 16

// Loads returns the goroutine-time spent running, runnable and in system calls in each step from the generation's base to end.
// Steps begin at multiples of step (ns). It doubles step until there are at most maxLoads steps, and returns the step that it
// used.
//
// The order of events is not needed: an event that begins a state at t adds the time from t to end, an event that ends the
// state subtracts it. So one pass over the records in memory order suffices, at about 1 ns each. Its counts are stored and
// serve other steps and ends.
func (g *Gen) Loads(end, step int64) (loads []Load, usedStep int64) {
	if end <= g.Base || step <= 0 {
		return nil, step
	}
	for (end-g.Base)/step >= maxLoads {
		step *= 2
	}
	g.CountMoves()
	if m := &g.moves; step%m.step == 0 && end-g.Base >= m.listedFrom {
		return m.loads(g.Base, end, step), step
	}
	var m moveCounts
	m.count(g, step, end-g.Base, 0)
	return m.loads(g.Base, end, step), step
}

// A move is the change that an event makes to the numbers of goroutines in the states running, runnable and system call.
type move uint8

const (
	noMove             move = iota
	moveStart               // runnable to running
	moveReady               // to runnable: woken, created
	moveHalt                // from running: blocks, ends
	moveYield               // running to runnable
	moveEnterCall           // running to system call
	moveLeaveCall           // system call to running
	moveLeaveCallReady      // system call to runnable: returned without a P
	moveToRunning           // waiting or unknown to running
	moveToCall              // not alive or unknown to system call
	moveFromCall            // from system call
	numMoves
	// The kinds below change no number at their own time.
	moveStatus
	moveLink
	moveEnd
)

// deltas are the changes of a move to the numbers running, runnable and in system calls.
var deltas = [numMoves][3]int64{
	moveStart: {+1, -1, 0}, moveReady: {0, +1, 0}, moveHalt: {-1, 0, 0}, moveYield: {-1, +1, 0}, moveEnterCall: {-1, 0, +1}, moveLeaveCall: {+1, 0, -1},
	moveLeaveCallReady: {0, +1, -1}, moveToRunning: {+1, 0, 0}, moveToCall: {0, 0, +1}, moveFromCall: {0, 0, -1},
}

// A moveTable holds the moves of a generation, counted on the first use.
type moveTable struct {
	movesOnce sync.Once
	moves     moveCounts
}

func (t *moveTable) reset() {
	*t = moveTable{moves: moveCounts{bins: t.moves.bins[:0], listed: t.moves.listed[:0]}}
}

// moveCounts count the moves of a generation by step. Times are relative to the generation's base.
type moveCounts struct {
	step   int64
	leadIn int64 // part of the first step that is before the base
	bins   []bin
	// Moves at listedFrom and later are listed one by one: the end of a generation is only known when the next
	// one begins, and the two may overlap. listed is nil if there were too many.
	listedFrom int64
	listed     []timedMove
}

// A bin sums the moves in one step: their changes to the numbers, and these changes multiplied by the time since
// the step's start.
type bin struct{ count, time [3]int64 }

type timedMove struct {
	t    int64
	move move
}

const (
	// fineStep is the default step; the steps that callers request are multiples of it.
	fineStep = 2e6
	// listedTail is the longest overlap of a generation with the next one in most traces.
	listedTail = 20e6
	// maxListedMoves bounds the listed moves, for traces with wrong times.
	maxListedMoves = 1 << 16
)

// CountMoves does most of the work of Loads, before the end of the generation is known.
func (g *Gen) CountMoves() { g.movesOnce.Do(g.countMoves) }

// countMoves counts the moves of the generation, the changes of goroutines' states, by the default step, for Loads.
func (g *Gen) countMoves() {
	step := int64(fineStep)
	for (g.End-g.Base)/step >= maxLoads {
		step *= 2
	}
	g.moves.count(g, step, max(0, g.End-g.Base-listedTail), maxListedMoves)
}

// count counts the moves of a generation before listedFrom by step, and lists the later ones one by one, if there are at most
// maxListed.
func (m *moveCounts) count(g *Gen, step, listedFrom int64, maxListed int) {
	m.step, m.leadIn, m.listedFrom = step, g.Base%step, listedFrom
	n := int((listedFrom + m.leadIn + step - 1) / step)
	m.bins = entry.Resize(m.bins, n)
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

// countStream adds the moves of one thread's stream, which begins at rec. It is the inner loop of Loads: events of one step are
// first counted by kind.
func (m *moveCounts) countStream(g *Gen, rec ref, maxListed int) {
	var (
		slab, n               = g.slabs[rec>>slabBits], rec & slabMask
		unit                  = slab.layout.unit & 63
		step                  stepCounts // counts of the step of the last event; the next event is mostly in the same step
		seenKinds             uint64     // set of the kinds in step, one bit each
		stepBegin, stepLength uint64     // begin and length of the step in units of the clock
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
			// A status describes the state at the generation's begin.
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

// listMove appends a move to the list, which may grow to one more than maxListed.
func (m *moveCounts) listMove(t int64, c move, maxListed int) {
	if len(m.listed) <= maxListed {
		m.listed = append(m.listed, timedMove{t, c})
	}
}

// stepStart returns the begin of step i.
func (m *moveCounts) stepStart(i int64) int64 { return max(0, i*m.step-m.leadIn) }

// stepCounts count the events of one step by kind. Their meaning is evaluated once for each step, not for each
// event.
type stepCounts struct {
	bin   *bin
	from  int64
	count [kindMask + 1]int64
	time  [kindMask + 1]uint64 // sum of times since the step's begin, in units of the clock
}

// flush adds the counts of the kinds in seenKinds (a bit set) to the bin of the step, and clears them. Times are relative to
// stepBegin, in clock units of 1<<unit ns.
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

// add adds a move, a change of a goroutine's state, at time t (ns) after the step's start.
func (b *bin) add(c move, t int64) {
	for i, d := range deltas[c] {
		b.count[i] += d
		b.time[i] += d * t
	}
}

// loads converts the counts to a Load for each step from base to end. The goroutines whose state continues from earlier steps
// are included. step must be a multiple of the counted step.
func (m *moveCounts) loads(base, end, step int64) []Load {
	lead := base % step
	length := end - base
	stepMoves := make([]bin, (length+lead+step-1)/step) // of each step; times are relative to the step's end
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
