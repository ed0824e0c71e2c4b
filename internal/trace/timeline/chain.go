// Code generated from chain.go.in by internal/trace/timeline/casegen (go test ./internal/trace/timeline -run Generated -update); DO NOT EDIT.

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
		// Times are multiples of 1<<unit ns, and up to near they fit into records.
		unit   = w.layout.unit
		create = w.layout.stack[tracefmt.EvGoCreate] & 31
		near   = min(int64(timeMax), int64(tickMost)<<unit-1)
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
			i++
			var dt, x, y, z, u uint64
			if c := data[i]; c < 0x80 {
				dt = uint64(c)
				i++
			} else if d := data[i+1]; d < 0x80 {
				dt = uint64(c&0x7f) | uint64(d)<<7
				i += 2
			} else {
				dt, i = uvarintLong(data, i)
			}
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
			switch tracefmt.EventType(typ) {
			case tracefmt.EvGoStart:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				cur, curSeq = w.dense(x), uint32(y)
				run = w.piece(cur, uint32(y), at, 0, t)
				if uint64(cur)>>payloadBits|far == 0 {
					words[n] = a | uint64(cur)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(cur), uint32(0))
				}
				n++
			case tracefmt.EvGoUnblock:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					z = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					z = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					z, i = uvarintLong(data, i)
				}
				g := w.dense(x)
				w.piece(g, uint32(y), at, cur, t)
				if cur == 0 {
					w.nobody = append(w.nobody, nobodyWake{t, g, uint32(y), curP == noProc})
				} else if z < nStack && flags[z] != 0 {
					w.flagged(cur, flags[z], tracefmt.EventType(typ), t, run, uint32(z))
				}
				if curP != noProc {
					if z>>payloadBits|far == 0 {
						words[n] = a | uint64(z)
					} else {
						words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(z))
					}
					n++
				} else {
					words[n] = w.putWide(kind(typ), t, auxNoP, 0, uint32(z))
					n++
				}
			case tracefmt.EvGoBlock, tracefmt.EvGoStop:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				if cur == 0 {
					w.orphans++
					break
				}
				if y < nStack && flags[y] != 0 {
					w.flagged(cur, flags[y], tracefmt.EventType(typ), t, run, uint32(y))
				}
				if uint64(x)>>(payloadBits-reasonStack)|y>>reasonStack|far == 0 {
					words[n] = a | uint64(uint64(x)<<reasonStack|y)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(x), uint32(y))
				}
				n++
				if x == network && tracefmt.EventType(typ) == tracefmt.EvGoBlock {
					run.owner |= netBlock
				}
				cur = 0
			case tracefmt.EvGoSyscallBegin:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				if cur == 0 {
					w.orphans++
					break
				}
				if curP != noProc {
					pSeq = uint32(x)
				}
				if y < nStack && flags[y] != 0 {
					w.flagged(cur, flags[y], tracefmt.EventType(typ), t, run, uint32(y))
				}
				if y>>payloadBits|far == 0 {
					words[n] = a | uint64(y)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(y))
				}
				n++
			case tracefmt.EvGoSyscallEnd:
				if cur == 0 {
					w.orphans++
					break
				}
				if uint64(cur)>>payloadBits|far == 0 {
					words[n] = a | uint64(cur)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(cur), uint32(0))
				}
				n++
			case tracefmt.EvGoSyscallEndBlocked, tracefmt.EvGoDestroy:
				if cur == 0 {
					w.orphans++
					break
				}
				if uint64(cur)>>payloadBits|far == 0 {
					words[n] = a | uint64(cur)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(cur), uint32(0))
				}
				n++
				cur = 0
			case tracefmt.EvGoCreate, tracefmt.EvGoCreateBlocked:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					z = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					z = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					z, i = uvarintLong(data, i)
				}
				g := w.dense(x)
				w.piece(g, 0, at, cur, t)
				w.starts = append(w.starts, goStart{g, uint32(y)})
				if z < nStack && flags[z] != 0 && cur != 0 {
					w.flagged(cur, flags[z], tracefmt.EventType(typ), t, run, uint32(z))
				}
				if uint64(g)>>(payloadBits-create)|z>>create|far == 0 {
					words[n] = a | uint64(uint64(g)<<create|z)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(g), uint32(z))
				}
				n++
			case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					z = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					z = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					z, i = uvarintLong(data, i)
				}
				if args > 5 {
					if c := data[i]; c < 0x80 {
						u = uint64(c)
						i++
					} else if d := data[i+1]; d < 0x80 {
						u = uint64(c&0x7f) | uint64(d)<<7
						i += 2
					} else {
						u, i = uvarintLong(data, i)
					}
				}
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
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				cur, curSeq = w.dense(x), 0
				run = w.piece(cur, 0, at, 0, t)
				if uint64(cur)>>payloadBits|far == 0 {
					words[n] = a | uint64(cur)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(cur), uint32(0))
				}
				n++
			case tracefmt.EvGoDestroySyscall:
				if cur == 0 {
					w.orphans++
					break
				}
				if uint64(cur)>>payloadBits|far == 0 {
					words[n] = a | uint64(cur)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(cur), uint32(0))
				}
				n++
				cur = 0
				if curP != noProc {
					w.procs = append(w.procs, procEvent{t, curP, pSeq, procAbandon, m})
					curP = noProc
					w.holds = append(w.holds, hold{ref(slabID | n), noProc})
				}
			case tracefmt.EvGoSwitch, tracefmt.EvGoSwitchDestroy:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				g := w.dense(x)
				if cur == 0 {
					w.orphans++
				} else {
					if uint64(g)>>payloadBits|far == 0 {
						words[n] = a | uint64(g)
					} else {
						words[n] = w.putWide(kind(typ), t, 0, uint32(g), uint32(0))
					}
					n++
				}
				run = w.piece(g, uint32(y), ref(slabID|n), 0, t)
				typ, a = byte(kindSwitched), uint64(t)>>(unit&63)<<tickShift|uint64(kindSwitched)<<kindShift
				if uint64(cur)>>payloadBits|far == 0 {
					words[n] = a | uint64(cur)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(cur), uint32(0))
				}
				n++
				cur, curSeq = g, uint32(y)
			case tracefmt.EvProcStart:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
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
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					z = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					z = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					z, i = uvarintLong(data, i)
				}
				w.procs = append(w.procs, procEvent{t, uint32(x), uint32(y), procSteal, m})
				if z == m && uint32(x) == curP {
					curP = noProc // stolen from itself: acts like a stop
					w.holds = append(w.holds, hold{at, noProc})
				}
			case tracefmt.EvProcStatus:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				ev := procEvent{t, uint32(x), 0, procStatus + uint8(y&7), m}
				if y == tracefmt.ProcRunning || y == tracefmt.ProcSyscall {
					curP, pSeq = uint32(x), 0
					w.holds = append(w.holds, hold{at, curP})
				}
				w.procs = append(w.procs, ev)
			case tracefmt.EvHeapAlloc, tracefmt.EvHeapGoal:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				w.heap = append(w.heap, HeapPoint{Time: base + t, Bytes: x, Goal: tracefmt.EventType(typ) == tracefmt.EvHeapGoal})
			case tracefmt.EvUserTaskBegin, tracefmt.EvUserTaskEnd, tracefmt.EvUserRegionBegin, tracefmt.EvUserRegionEnd, tracefmt.EvUserLog:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				if args > 4 {
					if c := data[i]; c < 0x80 {
						z = uint64(c)
						i++
					} else if d := data[i+1]; d < 0x80 {
						z = uint64(c&0x7f) | uint64(d)<<7
						i += 2
					} else {
						z, i = uvarintLong(data, i)
					}
				}
				if args > 5 {
					if c := data[i]; c < 0x80 {
						u = uint64(c)
						i++
					} else if d := data[i+1]; d < 0x80 {
						u = uint64(c&0x7f) | uint64(d)<<7
						i += 2
					} else {
						u, i = uvarintLong(data, i)
					}
				}
				w.user = append(w.user, UserEvent{Time: base + t, g: cur, rec: at, typ: tracefmt.EventType(typ), arg: [3]uint64{x, y, z}})
				k := userStack(tracefmt.EventType(typ), y, z, u)
				if k < nStack && flags[k]&FlagTelling != 0 && cur != 0 {
					w.tell(run, uint32(k), t)
				}
				if k>>payloadBits|far == 0 {
					words[n] = a | uint64(k)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(k))
				}
				n++
			case tracefmt.EvSTWBegin:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				w.ranges = append(w.ranges, rangeEvent{g: cur, seq: curSeq, rec: at, typ: tracefmt.EventType(typ)})
				w.extra = append(w.extra, extraEvent{t, cur, at, tracefmt.EventType(typ), x, y})
				if k := y; k < nStack && flags[k]&FlagTelling != 0 && cur != 0 {
					w.tell(run, uint32(k), t)
				}
				if y>>payloadBits|far == 0 {
					words[n] = a | uint64(y)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(y))
				}
				n++
			case tracefmt.EvSTWEnd:
				w.ranges = append(w.ranges, rangeEvent{g: cur, seq: curSeq, rec: at, typ: tracefmt.EventType(typ)})
				w.extra = append(w.extra, extraEvent{t, cur, at, tracefmt.EventType(typ), x, 0})
				if far == 0 {
					words[n] = a
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(0))
				}
				n++
			case tracefmt.EvProcsChange:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				w.extra = append(w.extra, extraEvent{t, cur, at, tracefmt.EventType(typ), x, y})
				if k := y; k < nStack && flags[k]&FlagTelling != 0 && cur != 0 {
					w.tell(run, uint32(k), t)
				}
				if y>>payloadBits|far == 0 {
					words[n] = a | uint64(y)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(y))
				}
				n++
			case tracefmt.EvGCActive, tracefmt.EvGCBegin, tracefmt.EvGCEnd:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if args > 3 {
					if c := data[i]; c < 0x80 {
						y = uint64(c)
						i++
					} else if d := data[i+1]; d < 0x80 {
						y = uint64(c&0x7f) | uint64(d)<<7
						i += 2
					} else {
						y, i = uvarintLong(data, i)
					}
				}
				w.extra = append(w.extra, extraEvent{t, cur, at, tracefmt.EventType(typ), x, y})
				if k := y; k < nStack && flags[k]&FlagTelling != 0 && cur != 0 {
					w.tell(run, uint32(k), t)
				}
				if y>>payloadBits|far == 0 {
					words[n] = a | uint64(y)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(y))
				}
				n++
			case tracefmt.EvGCMarkAssistBegin:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				w.ranges = append(w.ranges, rangeEvent{g: cur, seq: curSeq, rec: at, typ: tracefmt.EventType(typ)})
				if k := x; k < nStack && flags[k]&FlagTelling != 0 && cur != 0 {
					w.tell(run, uint32(k), t)
				}
				if x>>payloadBits|far == 0 {
					words[n] = a | uint64(x)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(x))
				}
				n++
			case tracefmt.EvGCMarkAssistEnd:
				w.ranges = append(w.ranges, rangeEvent{g: cur, seq: curSeq, rec: at, typ: tracefmt.EventType(typ)})
				if far == 0 {
					words[n] = a
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(0))
				}
				n++
			case tracefmt.EvGCMarkAssistActive:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				g := w.dense(x)
				w.extra = append(w.extra, extraEvent{t, g, at, tracefmt.EventType(typ), x, 0})
				if uint64(g)>>payloadBits|far == 0 {
					words[n] = a | uint64(g)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(g), uint32(0))
				}
				n++
			case tracefmt.EvGCSweepBegin:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if k := x; k < nStack && flags[k]&FlagTelling != 0 && cur != 0 {
					w.tell(run, uint32(k), t)
				}
				if x>>payloadBits|far == 0 {
					words[n] = a | uint64(x)
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(x))
				}
				n++
			case tracefmt.EvGCSweepEnd:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				if c := data[i]; c < 0x80 {
					y = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					y = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					y, i = uvarintLong(data, i)
				}
				if far == 0 {
					words[n] = a
				} else {
					words[n] = w.putWide(kind(typ), t, 0, uint32(0), uint32(0))
				}
				n++
				w.gen.swept.Add(x)
				_ = y // of the swept bytes, those that were reclaimed
			case tracefmt.EvGoLabel:
				if c := data[i]; c < 0x80 {
					x = uint64(c)
					i++
				} else if d := data[i+1]; d < 0x80 {
					x = uint64(c&0x7f) | uint64(d)<<7
					i += 2
				} else {
					x, i = uvarintLong(data, i)
				}
				w.extra = append(w.extra, extraEvent{t, cur, at, tracefmt.EventType(typ), x, 0})
			default:
				for range args - 2 {
					if c := data[i]; c < 0x80 {
						x = uint64(c)
						i++
					} else if d := data[i+1]; d < 0x80 {
						x = uint64(c&0x7f) | uint64(d)<<7
						i += 2
					} else {
						x, i = uvarintLong(data, i)
					}
					_ = x // nobody asks
				}
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
