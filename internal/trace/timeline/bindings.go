package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// A Binding is an interval in which a goroutine was bound to a thread: it ran there, or was in a system call.
type Binding struct {
	From, To int64
	G        uint64
	M        uint64 // the thread
	// Began and Ended report that the event that bound the goroutine, or unbound it, is in the generation.
	Began, Ended bool
}

// EachBinding calls f for each interval in which a goroutine was bound to a thread, thread by thread, in order of time. A
// binding that began before the generation starts at its first event here; one that does not end here ends with the generation.
func (g *Gen) EachBinding(f func(Binding)) {
	for k := range g.streams {
		s := &g.streams[k]
		waypoints := g.index[s.index[0]:s.index[1]]
		if len(waypoints) == 0 {
			continue
		}
		var b Binding
		end := func(t int64, ended bool) {
			if b.G != 0 && t > b.From {
				b.To, b.Ended = t, ended
				f(b)
			}
			b = Binding{M: s.m}
		}
		end(0, false)
		begin := func(peer uint32, t int64, began bool) {
			if id := g.ids.ids[peer]; id != b.G {
				end(t, true)
				b.G, b.From, b.Began = id, t, began
			}
		}
		for rec, r := waypoints[0].rec, g.record(waypoints[0].rec); ; rec, r = g.next(rec) {
			if r.kind() == kindLink {
				rec = r.link()
				r = g.record(rec)
			}
			if r.kind() == kindEnd {
				end(g.End, false)
				break
			}
			t := g.Base + r.time()
			switch tracefmt.EventType(r.kind()) {
			case tracefmt.EvGoStart, tracefmt.EvGoCreateSyscall:
				begin(r.peer(), t, true)
			case tracefmt.EventType(kindSwitched):
				begin(g.switchedTo(rec), t, true)
			case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack:
				if r.binds() {
					begin(r.peer(), t, false)
				}
			case tracefmt.EvGoSyscallEnd:
				begin(r.peer(), t, true)
			default:
				if r.hasTrait(leavesThread) {
					end(t, true)
				}
			}
		}
	}
}
