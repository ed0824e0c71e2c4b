package detailed

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A CPULane is the timeline of a CPU: the processes that had it.
type CPULane struct {
	Number int32
	Spans  []threadstate.Occupation
}

// maxCPULanes bounds the CPUs that are shown for a request.
const maxCPULanes = 16

// addThreads adds to the request's lanes what the kernel's events tell: the states of their threads and of the peers that they
// wait for, and the times when data arrived for them; and to the request a lane for each CPU that these threads used. Beyond
// maxLaneSpans and maxCPULanes, the rest is left out. Without kernel events threads is nil.
func (r *Request) addThreads(threads *threadstate.Tracker) {
	if threads == nil {
		return
	}
	var numbers []int32
	for l := range entry.Each(r.Lanes) {
		threads.EachInterval(l.G, r.Start, r.End, func(x threadstate.Interval) {
			if n := len(l.Threads); n > 0 && l.Threads[n-1].Kind == x.Kind && l.Threads[n-1].Name == x.Name && l.Threads[n-1].End == x.Start {
				l.Threads[n-1].End = x.End
			} else if n < maxLaneSpans {
				l.Threads = append(l.Threads, x)
			}
		})
		threads.EachArrival(l.G, r.Start, r.End, func(time int64) {
			if time >= r.Start && len(l.Arrivals) < maxLaneSpans {
				l.Arrivals = append(l.Arrivals, time)
			}
		})
		for k := range l.Spans {
			threads.EachPeerStateIn(l.G, &l.Spans[k], r.Start, r.End, func(start, end int64, state tracefmt.StringID) {
				if n := len(l.Peers); n > 0 && l.Peers[n-1].state == state && l.Peers[n-1].end == start {
					l.Peers[n-1].end = end
				} else if n < maxLaneSpans {
					l.Peers = append(l.Peers, peerSpan{start, end, state})
				}
			})
		}
		slices.Sort(l.Arrivals)
		l.Arrivals = slices.Compact(l.Arrivals)
		threads.EachThreadCPU(l.G, r.Start, r.End, func(number int32) {
			if len(numbers) < maxCPULanes && !slices.Contains(numbers, number) {
				numbers = append(numbers, number)
			}
		})
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		lane := CPULane{Number: number}
		threads.EachOccupation(number, r.Start, r.End, func(x threadstate.Occupation) {
			if n := len(lane.Spans); n > 0 && lane.Spans[n-1].Name == x.Name && lane.Spans[n-1].End == x.Start {
				lane.Spans[n-1].End = x.End
			} else if n < maxLaneSpans {
				lane.Spans = append(lane.Spans, x)
			}
		})
		r.CPUs = append(r.CPUs, lane)
	}
}

// reportThreads adds a lane's thread states, arrivals and peers to its form in the report.
func (l *Lane) reportThreads(out *report.Lane, sp *spell.Speller) {
	for x := range entry.Each(l.Threads) {
		out.Threads = append(out.Threads, report.ThreadSpan{
			StartNS: x.Start - sp.Start, DurationNS: x.End - x.Start, State: report.ThreadState(x.Kind.String()), Detail: sp.Syms.String(x.Name),
		})
	}
	for _, x := range l.Peers {
		if state, ok := threadstate.ParsePeerState(sp.Syms.String(x.state)); ok {
			out.Peers = append(out.Peers, report.PeerSpan{
				StartNS: x.start - sp.Start, DurationNS: x.end - x.start, State: state.State, Process: state.Process, Text: names.PeerState(&state),
			})
		}
	}
	for _, time := range l.Arrivals {
		out.ArrivalsNS = append(out.ArrivalsNS, time-sp.Start)
	}
}

// reportCPUs adds the CPU lanes to the request's form in the report.
func (r *Request) reportCPUs(out *report.Request, sp *spell.Speller) {
	for i := range r.CPUs {
		lane := report.CPULane{CPU: int(r.CPUs[i].Number), Spans: []report.CPUSpan{}}
		for _, x := range r.CPUs[i].Spans {
			lane.Spans = append(lane.Spans, report.CPUSpan{StartNS: x.Start - sp.Start, DurationNS: x.End - x.Start, Process: sp.Syms.String(x.Name)})
		}
		out.CPUs = append(out.CPUs, lane)
	}
}
