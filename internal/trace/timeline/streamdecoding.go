package timeline

import (
	"encoding/binary"
	"math/bits"
	"runtime"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A worker decodes the streams of threads into columns. Workers share only the slab pool and the table of
// goroutine ids.
type worker struct {
	id    uint32
	gen   *Gen
	ids   *goids
	slabs *slabPool

	slab     *slab
	slabID   uint32
	nextWord uint32 // offset of the next free word in slab

	threadLists
	tracked     []trackedStack
	trackedOpen bool // the next event of the run may extend the last element of tracked
	pageCache   [512]struct {
		key  uint64 // page number + 1; 0 is an unused entry
		page *goidPage
	}

	layout            layout  // of the records that it writes
	flags             []uint8 // for each stack of the generation
	events            int64
	last              int64 // time of the last event, since the generation's base
	orphans           int64 // events that refer to a goroutine or P that is not there
	lateTimes         int64 // times beyond timeMax
	unknownTypes      int64 // events of an unknown type; the rest of such a batch is skipped
	lowestUnknownType uint8
}

// threadLists are the lists that a worker fills from a thread's stream in addition to the records.
type threadLists struct {
	m      uint64 // the thread
	pieces pieceList
	procs  []ProcEvent
	heap   []HeapPoint
	user   []UserEvent
	marks  []Mark
	extra  []extraEvent
	index  []waypoint
	holds  []hold
	ranges []rangeEvent
}

// addedSince returns the elements that were added after the state before.
func (f *threadLists) addedSince(before *threadLists) threadLists {
	return threadLists{
		f.m, f.pieces.addedSince(&before.pieces), f.procs[len(before.procs):], f.heap[len(before.heap):], f.user[len(before.user):], f.marks[len(before.marks):], f.extra[len(before.extra):],
		f.index[len(before.index):], f.holds[len(before.holds):], f.ranges[len(before.ranges):],
	}
}

// reset empties all lists and keeps their memory, except that of pieces.
func (f *threadLists) reset() {
	*f = threadLists{
		0, pieceList{}, f.procs[:0], f.heap[:0], f.user[:0], f.marks[:0], f.extra[:0], f.index[:0], f.holds[:0], f.ranges[:0],
	}
}

// beginGeneration prepares the worker to decode streams of generation g. flags has the stack flags by local stack id, layout
// the format of records. Memory of the worker's last generation is reused.
func (w *worker) beginGeneration(g *Gen, flags []uint8, layout layout) {
	w.gen, w.ids, w.flags, w.layout = g, &g.ids, flags, layout
	w.slab, w.nextWord, w.trackedOpen = nil, 0, false
	if trackedMemory := g.tracked[:cap(g.tracked)]; int(w.id) < len(trackedMemory) {
		w.tracked = trackedMemory[w.id][:0] // reuse the memory of an earlier generation
	}
	w.reset()
	clear(w.pageCache[:])
	w.events, w.last, w.orphans, w.lateTimes, w.unknownTypes = 0, 0, 0, 0, 0
}

// decodeStream decodes the batches of thread w.m, in file order, into records, pieces and lists. It is the inner loop of
// reading a trace: one case for each type of event. Times are relative to base. It returns false if an event exceeds its batch.
func (w *worker) decodeStream(src *tracefmt.Generation, batches []int32, sc tracefmt.Scale, base int64) bool {
	m := w.m
	var (
		cur    uint32 // dense number of the goroutine that the thread runs; 0 for none
		curSeq uint32 // sequence number of the piece that is its run
		curP   = noProc
		pSeq   uint32 // the last sequence number of curP
		flags  = w.flags
		nStack = uint64(len(flags))
		events int64
		num    [8]uint64 // arguments of an event; arguments that the event does not have are 0
		// Times are multiples of 1<<unit ns; times up to fitsUntil fit into a record.
		unit      = w.layout.unit
		fitsUntil = min(int64(maxTime), int64(maxTick)<<unit-1)
		// run is the piece of the current run, network the local id of the reason "network".
		run       *piece
		network   = w.gen.networkLocal
		otherWait = w.gen.otherWait
	)
	// A stream begins in the current slab, but never continues an earlier stream: the kindEnd record of that
	// one is in between.
	for _, bi := range batches {
		// Readers of the previous generation have priority: the work at its end is sequential, and only
		// this decoding can use the other processors during that work.
		runtime.Gosched()
		b := src.Batches[bi]
		w.ensureRoom()
		words, slabID, n := &w.slab.words, w.slabID, w.nextWord
		first, before := n, cur
		t := sc.NS(b.Time) - base
		tooLate := uint64(0) // 1 once times no longer fit into records
		if t > fitsUntil {
			tooLate = 1
			if t > maxTime {
				t = maxTime
				w.lateTimes++
			}
		}
		start := t
		i, end, data := 0, len(b.Data), b.Data[:len(b.Data)+tracefmt.Pad]
		for i < end {
			typ := data[i]
			args := argCounts[typ]
			if args == 0 {
				if w.unknownTypes == 0 || typ < w.lowestUnknownType {
					w.lowestUnknownType = typ
				}
				w.unknownTypes++
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
				if t > fitsUntil {
					tooLate = 1
					if t > maxTime {
						t = maxTime
						w.lateTimes++
					}
				}
			}
			events++
			if n-first >= waypointEvery {
				w.index = append(w.index, waypoint{start, ref(slabID | first), before})
				if slabSize-n < minRoom {
					w.nextWord = n
					w.ensureRoom()
					words, slabID, n = &w.slab.words, w.slabID, w.nextWord
				}
				first, before, start = n, cur, t
			}
			head := uint64(t)>>(unit&63)<<tickShift | uint64(typ)<<kindShift
			rec := ref(slabID | n)
			switch ev := tracefmt.EventType(typ); ev {
			case tracefmt.EvGoStart:
				cur, curSeq = w.denseID(x), uint32(y)&seqMask
				run = w.addPiece(cur, curSeq, rec, 0)
				words[n] = w.encodeRecord(head, tooLate, t, uint64(cur), 0)
				n++
			case tracefmt.EvGoUnblock:
				g := w.denseID(x)
				waker := cur
				if cur == 0 {
					waker = noWaker | uint32(min(z, 1))
				}
				w.addPiece(g, uint32(y)&seqMask, rec, waker)
				if cur != 0 && z < nStack && flags[z] != 0 {
					w.storeFlagged(cur, flags[z], ev, t, run, uint32(z))
				}
				if curP == noProc {
					words[n] = w.putWide(kind(typ), t, auxNoP, g, uint32(z))
				} else if stackBits := w.layout.stackBits[typ&kindMask] & 31; g>>(payloadBits-stackBits) == 0 {
					words[n] = w.encodeRecord(head, tooLate, t, uint64(g), z)
				} else { // a record of three words for each wake would be too many; EachWoken does without g
					words[n] = w.encodeRecord(head, tooLate, t, 0, z)
				}
				n++
			case tracefmt.EvGoBlock, tracefmt.EvGoStop:
				if cur == 0 {
					w.orphans++
					break
				}
				if y < nStack && flags[y] != 0 {
					w.storeFlagged(cur, flags[y], ev, t, run, uint32(y))
				}
				words[n] = w.encodeRecord(head, tooLate, t, x, y)
				n++
				if ev == tracefmt.EvGoBlock {
					if x == network {
						run.ownerBits |= networkWaitBit
					} else {
						run.ownerBits |= otherWait
					}
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
					w.storeFlagged(cur, flags[y], ev, t, run, uint32(y))
				}
				words[n] = w.encodeRecord(head, tooLate, t, 0, y)
				n++
			case tracefmt.EvGoSyscallEnd, tracefmt.EvGoSyscallEndBlocked, tracefmt.EvGoDestroy:
				if cur == 0 {
					w.orphans++
					break
				}
				words[n] = w.encodeRecord(head, tooLate, t, uint64(cur), 0)
				n++
				if ev != tracefmt.EvGoSyscallEnd {
					cur = 0
				}
			case tracefmt.EvGoCreate, tracefmt.EvGoCreateBlocked:
				g := w.denseID(x)
				w.addPiece(g, createdBit|uint32(y), rec, cur)
				if z < nStack && flags[z] != 0 && cur != 0 {
					w.storeFlagged(cur, flags[z], ev, t, run, uint32(z))
				}
				words[n] = w.encodeRecord(head, tooLate, t, 0, z) // the piece shows which goroutine it is
				n++
			case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack:
				g := w.denseID(x)
				aux := z & auxStatus
				if z == tracefmt.GoRunning || z == tracefmt.GoSyscall && y == m {
					aux |= auxBinds
					cur, curSeq = g, 0
				}
				if p := w.addPiece(g, 0, rec, 0); aux&auxBinds != 0 {
					run = p
				}
				if aux&auxBinds|u>>statusStackBits|tooLate == 0 {
					words[n] = head | aux<<statusStackBits | u
				} else {
					words[n] = w.putWide(kind(typ), t, uint32(aux), g, uint32(u))
				}
				n++
			case tracefmt.EvGoCreateSyscall:
				cur, curSeq = w.denseID(x), 0
				run = w.addPiece(cur, 0, rec, 0)
				words[n] = w.encodeRecord(head, tooLate, t, uint64(cur), 0)
				n++
			case tracefmt.EvGoDestroySyscall:
				if cur == 0 {
					w.orphans++
					break
				}
				words[n] = w.encodeRecord(head, tooLate, t, uint64(cur), 0)
				n++
				cur = 0
				if curP != noProc {
					w.procs = append(w.procs, ProcEvent{base + t, m, curP, pSeq, ProcAbandoned})
					curP = noProc
					w.holds = append(w.holds, hold{ref(slabID | n), noProc})
				}
			case tracefmt.EvGoSwitch, tracefmt.EvGoSwitchDestroy:
				g := w.denseID(x)
				if cur == 0 {
					w.orphans++
				} else {
					words[n] = w.encodeRecord(head, tooLate, t, uint64(g), 0)
					n++
				}
				run = w.addPiece(g, uint32(y)&seqMask, ref(slabID|n), 0)
				head = uint64(t)>>(unit&63)<<tickShift | uint64(kindSwitched)<<kindShift
				words[n] = w.encodeRecord(head, tooLate, t, uint64(cur), 0)
				n++
				cur, curSeq = g, uint32(y)&seqMask
			case tracefmt.EvProcStart:
				curP, pSeq = uint32(x), uint32(y)
				w.procs = append(w.procs, ProcEvent{base + t, m, curP, pSeq, ProcTaken})
				w.holds = append(w.holds, hold{rec, curP})
			case tracefmt.EvProcStop:
				if curP == noProc {
					w.orphans++
					break
				}
				w.procs = append(w.procs, ProcEvent{base + t, m, curP, pSeq, ProcReleased})
				curP = noProc
				w.holds = append(w.holds, hold{rec, noProc})
			case tracefmt.EvProcSteal:
				w.procs = append(w.procs, ProcEvent{base + t, m, uint32(x), uint32(y), ProcStolen})
				if z == m && uint32(x) == curP {
					curP = noProc // a thread that steals its own P gives it up
					w.holds = append(w.holds, hold{rec, noProc})
				}
			case tracefmt.EvProcStatus:
				w.procs = append(w.procs, ProcEvent{base + t, m, uint32(x), 0, procStatus + ProcChange(y&7)})
				if y == tracefmt.ProcRunning || y == tracefmt.ProcSyscall {
					curP, pSeq = uint32(x), 0
					w.holds = append(w.holds, hold{rec, curP})
				}
			case tracefmt.EvHeapAlloc, tracefmt.EvHeapGoal:
				w.heap = append(w.heap, HeapPoint{Time: base + t, Bytes: x, Goal: ev == tracefmt.EvHeapGoal})
			case tracefmt.EvGCMarkAssistActive:
				g := w.denseID(x)
				w.extra = append(w.extra, extraEvent{t, g, rec, ev, x, 0})
				words[n] = w.encodeRecord(head, tooLate, t, uint64(g), 0)
				n++
			case tracefmt.EvUserTaskBegin, tracefmt.EvUserTaskEnd, tracefmt.EvUserRegionBegin, tracefmt.EvUserRegionEnd, tracefmt.EvUserLog,
				tracefmt.EvSTWBegin, tracefmt.EvSTWEnd, tracefmt.EvProcsChange, tracefmt.EvGCActive, tracefmt.EvGCBegin, tracefmt.EvGCEnd,
				tracefmt.EvGCMarkAssistBegin, tracefmt.EvGCMarkAssistEnd, tracefmt.EvGCSweepBegin, tracefmt.EvGCSweepEnd:
				switch ev {
				case tracefmt.EvSTWBegin, tracefmt.EvSTWEnd:
					w.ranges = append(w.ranges, rangeEvent{g: cur, seq: curSeq, rec: rec, typ: ev})
					w.extra = append(w.extra, extraEvent{t, cur, rec, ev, x, y})
				case tracefmt.EvGCMarkAssistBegin, tracefmt.EvGCMarkAssistEnd:
					w.ranges = append(w.ranges, rangeEvent{g: cur, seq: curSeq, rec: rec, typ: ev})
				case tracefmt.EvProcsChange, tracefmt.EvGCActive, tracefmt.EvGCBegin, tracefmt.EvGCEnd:
					w.extra = append(w.extra, extraEvent{t, cur, rec, ev, x, y})
				case tracefmt.EvGCSweepBegin:
				case tracefmt.EvGCSweepEnd:
					w.gen.swept.Add(x)
				default:
					w.user = append(w.user, UserEvent{Time: base + t, g: cur, rec: rec, typ: ev, arg: [3]uint64{x, y, z}})
				}
				stack := num[stackArgs[typ]&7]
				w.storeIfTracked(cur, run, stack, t)
				words[n] = w.encodeRecord(head, tooLate, t, 0, stack)
				n++
			case tracefmt.EvGoLabel:
				w.extra = append(w.extra, extraEvent{t, cur, rec, ev, x, 0})
			}
		}
		w.nextWord = n
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
		w.slab.words[w.nextWord] = uint64(kindEnd) << kindShift
		w.nextWord++
	}
	return true
}

// minRoom is the number of free words that a slab must have before decoding continues in it: for the records until
// the next waypoint, of which one event writes at most two, and for a link or an end.
const minRoom = waypointEvery + 4

// ensureRoom makes sure that the slab has minRoom free words; if not, it continues the stream in another slab, by a link.
func (w *worker) ensureRoom() {
	if w.slab != nil && slabSize-w.nextWord >= minRoom {
		return
	}
	slab, id := w.slabs.takeSlab(w.gen, w.id)
	slab.layout = w.layout
	if w.slab != nil {
		w.slab.words[w.nextWord] = uint64(kindLink)<<kindShift | uint64(id<<slabBits|1)<<tickShift
	}
	w.slab, w.slabID, w.nextWord = slab, id<<slabBits, 1
}

// addPiece adds a piece of goroutine number g (a run, or an event about it) with sequence number seq, and returns it, so that
// its owner bits can be completed during its run.
func (w *worker) addPiece(g, seq uint32, rec ref, ownerBits uint32) *piece {
	l := &w.pieces
	k := l.end % pieceChunk
	if k == 0 {
		l.chunks = append(l.chunks, new([pieceChunk]piece))
	}
	l.end++
	p := &l.chunks[len(l.chunks)-1][k]
	*p = piece{g, seq, rec, ownerBits}
	return p
}

// readNumbers reads n varints from b[i:] into v, and sets the rest of v to 0. It returns the index after the last one. b must
// have tracefmt.Pad readable bytes after the end of the batch.
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

// uvarintLong reads a varint at b[i:] with one load, if it has up to eight bytes: the first byte without its high bit ends the
// number, then three steps join the groups of seven bits. It returns the number and the index after it, as uvarintHuge does for a
// longer one. It reads eight bytes in any case, so b must end with padding.
func uvarintLong(b []byte, i int) (number uint64, next int) {
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

// uvarintHuge reads a varint of nine or ten bytes at b[i:]; b ends with tracefmt.Pad bytes of padding. For one that is longer or
// exceeds 64 bits it returns 0 and an index in the padding, where the caller detects the error after the batch, and from which
// five more varints can be read.
func uvarintHuge(b []byte, i int) (number uint64, next int) {
	v, n := binary.Uvarint(b[i:])
	if n <= 0 {
		return 0, len(b) - tracefmt.Pad + 8
	}
	return v, i + n
}

var argCounts, stackArgs = tracefmt.ArgCounts(), tracefmt.StackArgs()
