package timeline

import (
	"runtime"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// chain decodes the batches of one thread, in file order. It reports false
// if a batch is malformed.
func (w *worker) chain(no int32, m uint64, src *tracefmt.Generation, batches []int32, sc tracefmt.Scale, base int64) bool {
	data := src.Data[:len(src.Data)+tracefmt.Pad]
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
	w.chains = append(w.chains, w.streamStart(no))
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
					w.procs = append(w.procs, procEvent{t, curP, pSeq, procAbandon, m})
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
				w.procs = append(w.procs, procEvent{t, curP, pSeq, procStart, m})
				w.holds = append(w.holds, hold{at, curP})
			case tracefmt.EvProcStop:
				if curP == noProc {
					w.orphans++
					break
				}
				w.procs = append(w.procs, procEvent{t, curP, pSeq, procStop, m})
				curP = noProc
				w.holds = append(w.holds, hold{at, noProc})
			case tracefmt.EvProcSteal:
				w.procs = append(w.procs, procEvent{t, uint32(x), uint32(y), procSteal, m})
				if z == m && uint32(x) == curP {
					curP = noProc // stolen from itself: acts like a stop
					w.holds = append(w.holds, hold{at, noProc})
				}
			case tracefmt.EvProcStatus:
				ev := procEvent{t, uint32(x), 0, procStatus + uint8(y&7), m}
				if y == tracefmt.ProcRunning || y == tracefmt.ProcSyscall {
					curP, pSeq = uint32(x), 0
					w.holds = append(w.holds, hold{at, curP})
				}
				w.procs = append(w.procs, ev)
			case tracefmt.EvHeapAlloc, tracefmt.EvHeapGoal:
				w.heap = append(w.heap, HeapPoint{Time: base + t, Bytes: x, Goal: ev == tracefmt.EvHeapGoal})
			case tracefmt.EvUserTaskBegin, tracefmt.EvUserTaskEnd, tracefmt.EvUserRegionBegin, tracefmt.EvUserRegionEnd, tracefmt.EvUserLog:
				w.user = append(w.user, UserEvent{Time: base + t, g: cur, rec: at, typ: ev, arg: [3]uint64{x, y, z}})
				k := userStack(ev, y, z, u)
				w.tellIf(cur, run, k, t)
				words[n] = w.record(a, far, t, 0, k)
				n++
			case tracefmt.EvSTWBegin, tracefmt.EvSTWEnd:
				w.ranges = append(w.ranges, rangeEvent{g: cur, seq: curSeq, rec: at, typ: ev})
				w.extra = append(w.extra, extraEvent{t, cur, at, ev, x, y})
				w.tellIf(cur, run, y, t)
				words[n] = w.record(a, far, t, 0, y)
				n++
			case tracefmt.EvProcsChange, tracefmt.EvGCActive, tracefmt.EvGCBegin, tracefmt.EvGCEnd:
				w.extra = append(w.extra, extraEvent{t, cur, at, ev, x, y})
				w.tellIf(cur, run, y, t)
				words[n] = w.record(a, far, t, 0, y)
				n++
			case tracefmt.EvGCMarkAssistBegin, tracefmt.EvGCMarkAssistEnd:
				w.ranges = append(w.ranges, rangeEvent{g: cur, seq: curSeq, rec: at, typ: ev})
				w.tellIf(cur, run, x, t)
				words[n] = w.record(a, far, t, 0, x)
				n++
			case tracefmt.EvGCMarkAssistActive:
				g := w.dense(x)
				w.extra = append(w.extra, extraEvent{t, g, at, ev, x, 0})
				words[n] = w.record(a, far, t, uint64(g), 0)
				n++
			case tracefmt.EvGCSweepBegin:
				w.tellIf(cur, run, x, t)
				words[n] = w.record(a, far, t, 0, x)
				n++
			case tracefmt.EvGCSweepEnd:
				words[n] = w.record(a, far, t, 0, 0)
				n++
				w.gen.swept.Add(x)
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
