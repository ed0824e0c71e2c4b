package timeline

import (
	"encoding/binary"
	"math/bits"
	"runtime"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A worker decodes threads' streams into columns of its own.
type worker struct {
	id    uint32
	gen   *Gen
	ids   *goids
	slabs *slabPool

	slab   *slab
	slabID uint32
	n      uint32 // next free offset in slab

	found
	count []tally // by dense goroutine
	told  []told
	open  bool // the last of told goes on
	pages [512]struct {
		key  uint64 // page number + 1
		page *goidPage
	}

	layout  layout  // of the records
	flags   []uint8 // by local stack id
	events  int64
	last    int64 // the last time, since the generation's base
	orphans int64 // events that need a goroutine or P where there is none
	late    int64 // times that do not fit
	unknown int64 // events of an unknown type: the rest of a batch is lost
	badType uint8
}

// found is what workers find beside the records of threads' streams.
type found struct {
	m      uint64 // the thread
	pieces pieceList
	procs  []ProcEvent
	heap   []HeapPoint
	user   []UserEvent
	marks  []Mark
	extra  []extraEvent
	nobody []nobodyWake
	index  []waypoint
	holds  []hold
	ranges []rangeEvent
	starts []goStart // start functions of created goroutines
}

// since returns what is found in a stream before which it was as much as in o.
func (f *found) since(o *found) found {
	return found{
		f.m, f.pieces.since(&o.pieces), f.procs[len(o.procs):], f.heap[len(o.heap):], f.user[len(o.user):], f.marks[len(o.marks):], f.extra[len(o.extra):],
		f.nobody[len(o.nobody):], f.index[len(o.index):], f.holds[len(o.holds):], f.ranges[len(o.ranges):], f.starts[len(o.starts):],
	}
}

// empty forgets what was found and keeps the memory for more.
func (f *found) empty() {
	*f = found{
		0, f.pieces, f.procs[:0], f.heap[:0], f.user[:0], f.marks[:0], f.extra[:0], f.nobody[:0], f.index[:0], f.holds[:0], f.ranges[:0], f.starts[:0],
	}
}

// tally counts a goroutine's pieces; if they are count and the highest
// sequence number is count-1, each has a place of its own.
type tally struct{ count, top uint32 }

type goStart struct{ g, stack uint32 }

func (w *worker) begin(g *Gen, flags []uint8, layout layout) {
	w.gen, w.ids, w.flags, w.layout = g, &g.ids, flags, layout
	w.slab, w.n, w.open = nil, 0, false
	if told := g.told[:cap(g.told)]; int(w.id) < len(told) {
		w.told = told[w.id][:0] // memory of an earlier generation
	}
	w.slabs.givePieces(&w.pieces)
	w.empty()
	clear(w.count)
	clear(w.pages[:])
	w.events, w.last, w.orphans, w.late, w.unknown = 0, 0, 0, 0, 0
}

// stream decodes batches of the thread m, in file order. It reports false
// if a batch is malformed.
func (w *worker) stream(src *tracefmt.Generation, batches []int32, sc tracefmt.Scale, base int64) bool {
	data, m := src.Data[:len(src.Data)+tracefmt.Pad], w.m
	var (
		cur    uint32 // dense goroutine that this thread runs
		curSeq uint32 // number of the piece that is its run
		curP   = noProc
		pSeq   uint32 // the last sequence number seen for curP
		flags  = w.flags
		nStack = uint64(len(flags))
		events int64
		num    [8]uint64 // an event's arguments; those that it has not are 0
		// Times are multiples of 1<<unit ns, and up to near they fit into records.
		unit = w.layout.unit
		near = min(int64(timeMax), int64(tickMost)<<unit-1)
		// The piece that is the run, and what a network wait is called.
		run     *piece
		network = w.gen.networkLocal
	)
	// A stream starts in the current slab, but never continues a former one:
	// the end mark of the last stream stands between them.
	for _, bi := range batches {
		// While the generation before is walked, its walkers go first: what they do at the end, one after the other, then has this beside it.
		runtime.Gosched()
		b := src.Batches[bi]
		w.room()
		words, slabID, n := &w.slab.words, w.slabID, w.n
		first, before := n, cur
		t := sc.NS(b.Time) - base
		far := uint64(0) // not 0: times do not fit into records any more
		if t > near {
			far = 1
			if t > timeMax {
				t = timeMax
				w.late++
			}
		}
		start := t
		i, end := b.Off, b.End
		for i < end {
			typ := data[i]
			args := argCounts[typ]
			if args == 0 {
				if w.unknown == 0 || typ < w.badType {
					w.badType = typ
				}
				w.unknown++
				i = end
				break
			}
			i = readNumbers(&num, data, i+1, int(args)-1)
			dt, x, y, z, u := num[0], num[1], num[2], num[3], num[4]
			if dt != 0 {
				if sc.Whole != 0 && dt < tracefmt.ExactUnits {
					t += int64(dt * sc.Whole)
				} else {
					t += sc.NS(dt)
				}
				if t > near {
					far = 1
					if t > timeMax {
						t = timeMax
						w.late++
					}
				}
			}
			events++
			if n-first >= waypointEvery {
				w.index = append(w.index, waypoint{start, ref(slabID | first), before})
				if slabSize-n < enough {
					w.n = n
					w.room()
					words, slabID, n = &w.slab.words, w.slabID, w.n
				}
				first, before, start = n, cur, t
			}
			a := uint64(t)>>(unit&63)<<tickShift | uint64(typ)<<kindShift
			at := ref(slabID | n)
			switch ev := tracefmt.EventType(typ); ev {
			case tracefmt.EvGoStart:
				cur, curSeq = w.dense(x), uint32(y)
				run = w.piece(cur, uint32(y), at, 0, t)
				words[n] = w.record(a, far, t, uint64(cur), 0)
				n++
			case tracefmt.EvGoUnblock:
				g := w.dense(x)
				w.piece(g, uint32(y), at, cur, t)
				if cur == 0 {
					w.nobody = append(w.nobody, nobodyWake{t, g, uint32(y)})
				} else if z < nStack && flags[z] != 0 {
					w.flagged(cur, flags[z], ev, t, run, uint32(z))
				}
				if curP != noProc {
					words[n] = w.record(a, far, t, 0, z)
				} else {
					words[n] = w.putWide(kind(typ), t, auxNoP, 0, uint32(z))
				}
				n++
			case tracefmt.EvGoBlock, tracefmt.EvGoStop:
				if cur == 0 {
					w.orphans++
					break
				}
				if y < nStack && flags[y] != 0 {
					w.flagged(cur, flags[y], ev, t, run, uint32(y))
				}
				words[n] = w.record(a, far, t, x, y)
				n++
				if x == network && ev == tracefmt.EvGoBlock {
					run.owner |= netBlock
				}
				cur = 0
			case tracefmt.EvGoSyscallBegin:
				if cur == 0 {
					w.orphans++
					break
				}
				if curP != noProc {
					pSeq = uint32(x)
				}
				if y < nStack && flags[y] != 0 {
					w.flagged(cur, flags[y], ev, t, run, uint32(y))
				}
				words[n] = w.record(a, far, t, 0, y)
				n++
			case tracefmt.EvGoSyscallEnd, tracefmt.EvGoSyscallEndBlocked, tracefmt.EvGoDestroy:
				if cur == 0 {
					w.orphans++
					break
				}
				words[n] = w.record(a, far, t, uint64(cur), 0)
				n++
				if ev != tracefmt.EvGoSyscallEnd {
					cur = 0
				}
			case tracefmt.EvGoCreate, tracefmt.EvGoCreateBlocked:
				g := w.dense(x)
				w.piece(g, 0, at, cur, t)
				w.starts = append(w.starts, goStart{g, uint32(y)})
				if z < nStack && flags[z] != 0 && cur != 0 {
					w.flagged(cur, flags[z], ev, t, run, uint32(z))
				}
				words[n] = w.record(a, far, t, uint64(g), z)
				n++
			case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack:
				g := w.dense(x)
				aux := z & auxStatus
				if z == tracefmt.GoRunning || z == tracefmt.GoSyscall && y == m {
					aux |= auxBinds
					cur, curSeq = g, 0
				}
				if p := w.piece(g, 0, at, 0, t); aux&auxBinds != 0 {
					run = p
				}
				if aux&auxBinds|u>>statusStack|far == 0 {
					words[n] = a | aux<<statusStack | u
				} else {
					words[n] = w.putWide(kind(typ), t, uint32(aux), g, uint32(u))
				}
				n++
			case tracefmt.EvGoCreateSyscall:
				cur, curSeq = w.dense(x), 0
				run = w.piece(cur, 0, at, 0, t)
				words[n] = w.record(a, far, t, uint64(cur), 0)
				n++
			case tracefmt.EvGoDestroySyscall:
				if cur == 0 {
					w.orphans++
					break
				}
				words[n] = w.record(a, far, t, uint64(cur), 0)
				n++
				cur = 0
				if curP != noProc {
					w.procs = append(w.procs, ProcEvent{base + t, m, curP, pSeq, ProcAbandoned})
					curP = noProc
					w.holds = append(w.holds, hold{ref(slabID | n), noProc})
				}
			case tracefmt.EvGoSwitch, tracefmt.EvGoSwitchDestroy:
				g := w.dense(x)
				if cur == 0 {
					w.orphans++
				} else {
					words[n] = w.record(a, far, t, uint64(g), 0)
					n++
				}
				run = w.piece(g, uint32(y), ref(slabID|n), 0, t)
				a = uint64(t)>>(unit&63)<<tickShift | uint64(kindSwitched)<<kindShift
				words[n] = w.record(a, far, t, uint64(cur), 0)
				n++
				cur, curSeq = g, uint32(y)
			case tracefmt.EvProcStart:
				curP, pSeq = uint32(x), uint32(y)
				w.procs = append(w.procs, ProcEvent{base + t, m, curP, pSeq, ProcTaken})
				w.holds = append(w.holds, hold{at, curP})
			case tracefmt.EvProcStop:
				if curP == noProc {
					w.orphans++
					break
				}
				w.procs = append(w.procs, ProcEvent{base + t, m, curP, pSeq, ProcLetGo})
				curP = noProc
				w.holds = append(w.holds, hold{at, noProc})
			case tracefmt.EvProcSteal:
				w.procs = append(w.procs, ProcEvent{base + t, m, uint32(x), uint32(y), ProcStolen})
				if z == m && uint32(x) == curP {
					curP = noProc // stolen from itself: acts like a stop
					w.holds = append(w.holds, hold{at, noProc})
				}
			case tracefmt.EvProcStatus:
				w.procs = append(w.procs, ProcEvent{base + t, m, uint32(x), 0, procStatus + ProcChange(y&7)})
				if y == tracefmt.ProcRunning || y == tracefmt.ProcSyscall {
					curP, pSeq = uint32(x), 0
					w.holds = append(w.holds, hold{at, curP})
				}
			case tracefmt.EvHeapAlloc, tracefmt.EvHeapGoal:
				w.heap = append(w.heap, HeapPoint{Time: base + t, Bytes: x, Goal: ev == tracefmt.EvHeapGoal})
			case tracefmt.EvGCMarkAssistActive:
				g := w.dense(x)
				w.extra = append(w.extra, extraEvent{t, g, at, ev, x, 0})
				words[n] = w.record(a, far, t, uint64(g), 0)
				n++
			case tracefmt.EvUserTaskBegin, tracefmt.EvUserTaskEnd, tracefmt.EvUserRegionBegin, tracefmt.EvUserRegionEnd, tracefmt.EvUserLog,
				tracefmt.EvSTWBegin, tracefmt.EvSTWEnd, tracefmt.EvProcsChange, tracefmt.EvGCActive, tracefmt.EvGCBegin, tracefmt.EvGCEnd,
				tracefmt.EvGCMarkAssistBegin, tracefmt.EvGCMarkAssistEnd, tracefmt.EvGCSweepBegin, tracefmt.EvGCSweepEnd:
				switch ev {
				case tracefmt.EvSTWBegin, tracefmt.EvSTWEnd:
					w.ranges = append(w.ranges, rangeEvent{g: cur, seq: curSeq, rec: at, typ: ev})
					w.extra = append(w.extra, extraEvent{t, cur, at, ev, x, y})
				case tracefmt.EvGCMarkAssistBegin, tracefmt.EvGCMarkAssistEnd:
					w.ranges = append(w.ranges, rangeEvent{g: cur, seq: curSeq, rec: at, typ: ev})
				case tracefmt.EvProcsChange, tracefmt.EvGCActive, tracefmt.EvGCBegin, tracefmt.EvGCEnd:
					w.extra = append(w.extra, extraEvent{t, cur, at, ev, x, y})
				case tracefmt.EvGCSweepBegin:
				case tracefmt.EvGCSweepEnd:
					w.gen.swept.Add(x)
				default:
					w.user = append(w.user, UserEvent{Time: base + t, g: cur, rec: at, typ: ev, arg: [3]uint64{x, y, z}})
				}
				stack := num[stackArgs[typ]&7]
				w.tellIf(cur, run, stack, t)
				words[n] = w.record(a, far, t, 0, stack)
				n++
			case tracefmt.EvGoLabel:
				w.extra = append(w.extra, extraEvent{t, cur, at, ev, x, 0})
			}
		}
		w.n = n
		if n > first {
			w.index = append(w.index, waypoint{start, ref(w.slabID | first), before})
		}
		w.last = max(w.last, t)
		if i > end {
			return false
		}
	}
	w.events += events
	if w.slab != nil {
		w.slab.words[w.n] = uint64(kindEnd) << kindShift
		w.n++
	}
	return true
}

// enough is the room in a slab that decoding goes on with: for the records until the next waypoint, of which an event makes two at
// most, and for a link or an end.
const enough = waypointEvery + 4

// room makes sure that there is enough of it.
func (w *worker) room() {
	if w.slab != nil && slabSize-w.n >= enough {
		return
	}
	slab, id := w.slabs.take(w.gen, w.id)
	slab.layout = w.layout
	if w.slab != nil {
		w.slab.words[w.n] = uint64(kindLink)<<kindShift | uint64(id<<slabBits|1)<<tickShift
	}
	w.slab, w.slabID, w.n = slab, id<<slabBits, 1
}

func (w *worker) piece(g, seq uint32, at ref, owner uint32, t int64) *piece {
	l := &w.pieces
	k := l.n % pieceChunk
	if k == 0 {
		l.chunks = append(l.chunks, w.slabs.takePieces())
	}
	l.n++
	p := &l.chunks[len(l.chunks)-1][k]
	*p = piece{g, seq, at, owner, whenOf(t)}
	if int(g) >= len(w.count) {
		w.growCount(g)
	}
	c := &w.count[g]
	c.count++
	if seq > c.top {
		c.top = seq
	}
	return p
}

func (w *worker) growCount(g uint32) {
	n := max(2*len(w.count), int(g)+1024)
	grown := make([]tally, n)
	copy(grown, w.count)
	w.count = grown
}

// readNumbers reads n numbers at b[i:], which has tracefmt.Pad readable bytes behind their end, into v, whose rest it clears. It
// returns where they end.
func readNumbers(v *[8]uint64, b []byte, i, n int) int {
	*v = [8]uint64{}
	for k := range n {
		switch c, d := b[i], b[i+1]; {
		case c < 0x80:
			v[k&7] = uint64(c)
			i++
		case d < 0x80:
			v[k&7] = uint64(c&0x7f) | uint64(d)<<7
			i += 2
		default:
			v[k&7], i = uvarintLong(b, i)
		}
	}
	return i
}

// uvarintLong takes eight bytes at once: the first byte without its high bit set ends the number; then three folds bring the
// groups of seven together.
func uvarintLong(b []byte, i int) (uint64, int) {
	v := binary.LittleEndian.Uint64(b[i:])
	stop := ^v & 0x8080808080808080
	if stop == 0 {
		return uvarintHuge(b, i)
	}
	n := bits.TrailingZeros64(stop)>>3 + 1
	v &= stop ^ (stop - 1)
	v = v&0x007f007f007f007f | v&0x7f007f007f007f00>>1
	v = v&0x00003fff00003fff | v&0x3fff00003fff0000>>2
	v = v&0x000000000fffffff | v&0x0fffffff00000000>>4
	return v, i + n
}

// uvarintHuge reads numbers of nine and ten bytes; one that is longer moves
// past every batch's end, which is seen there, but stays where five more
// numbers can be read without leaving the padding.
func uvarintHuge(b []byte, i int) (uint64, int) {
	v, n := binary.Uvarint(b[i:])
	if n <= 0 {
		return 0, len(b) - tracefmt.Pad + 8
	}
	return v, i + n
}

var argCounts, stackArgs = tracefmt.ArgCounts(), tracefmt.StackArgs()
