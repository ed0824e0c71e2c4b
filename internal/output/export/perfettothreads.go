package export

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// SetThreads implements ThreadSink.
func (t *PerfettoTrace) SetThreads(threads *threadstate.Tracker) {
	t.threads, t.cpuTracks = threads, make(map[int32]*writtenTrack)
}

// writeCPUs writes which threads and processes had the CPUs from where the last call ended until end, ns on the trace's clock.
func (t *PerfettoTrace) writeCPUs(g *timeline.Gen, end int64) {
	if t.threads == nil {
		return
	}
	for _, number := range t.threads.CPUs() {
		shown := entry.GetOrAdd(t.cpuTracks, number)
		t.threads.EachOccupation(number, max(g.Base, t.start+shown.end), end, func(x threadstate.Occupation) {
			from, to, ok := t.clip(x.Start-t.start, x.End-t.start)
			if !ok {
				return
			}
			if shown.id == 0 {
				shown.id = t.newTrackID()
				t.p.writeTrack(track{uuid: shown.id, parent: cpusTrack, name: fmt.Sprintf("CPU %d", number), rank: int(number)})
			}
			t.p.writeSlice(from, to-from, shown.id, "cpu", t.syms.String(x.Name), note{key: "thread", number: x.Thread})
		})
		shown.end = max(shown.end, end-t.start)
	}
}

// writeThreadStates writes, within the open slice from from to to (the trace's clock, ns) of goroutine id, which runs or is in
// a system call, the states in which its thread had no CPU.
func (t *PerfettoTrace) writeThreadStates(id uint64, from, to int64, track *writtenTrack) {
	if t.threads == nil {
		return
	}
	t.threads.EachInterval(id, from, to, func(x threadstate.Interval) {
		start, end := max(x.Start-t.start, track.end), x.End-t.start
		if x.Kind == threadstate.OnCPU || start >= end {
			return
		}
		t.p.writeSlice(start, end-start, track.id, "thread", stateText(x.Kind.String(), t.syms.String(x.Name)))
		track.end = end
	})
}

// writeArrivals writes on a goroutine's track when bytes arrived that it read in [from, to), ns on the trace's clock.
func (t *PerfettoTrace) writeArrivals(id uint64, from, to int64) {
	track := t.goroutineTracks[id]
	if t.threads == nil || track == nil {
		return
	}
	var times []int64
	t.threads.EachArrival(id, from, to, func(time int64) { times = append(times, time-t.start) })
	slices.Sort(times)
	for _, time := range slices.Compact(times) {
		if _, _, ok := t.clip(time, time); ok {
			t.p.writeArrival(time, track.id)
		}
	}
}

func (p *packets) writeArrival(time int64, track uint64) {
	p.writeEvent(&event{time: time, eventType: instant, track: track, category: "arrival", name: "bytes arrived"})
}

// writeReportedThreads writes, within the open slice from from to to (ns since the trace's start) of a lane's span, the states
// in which the lane's threads had no CPU, and those of the peer for which it waits. track is the lane's.
func (p *packets) writeReportedThreads(l *report.Lane, from, to int64, track uint64) {
	for i := range l.Threads {
		x := &l.Threads[i]
		start, end := max(x.StartNS, from), min(x.StartNS+x.DurationNS, to)
		if x.State != report.ThreadOnCPU && start < end {
			p.writeSlice(start, end-start, track, "thread", stateText(string(x.State), x.Detail))
		}
	}
	for i := range l.Peers {
		x := &l.Peers[i]
		if start, end := max(x.StartNS, from), min(x.StartNS+x.DurationNS, to); start < end {
			p.writeSlice(start, end-start, track, "peer", x.Process+": "+x.Text)
		}
	}
}

// writeReportedCPUs writes a request's CPUs, each on a track below the request's.
func (p *packets) writeReportedCPUs(r *report.Request, request uint64) {
	for i := range r.CPUs {
		id := request + tracksOfRequest - 1 - uint64(i)
		p.writeTrack(track{uuid: id, parent: request, name: fmt.Sprintf("CPU %d", r.CPUs[i].CPU), rank: len(r.Lanes) + 1 + i})
		for _, x := range r.CPUs[i].Spans {
			p.writeSlice(x.StartNS, x.DurationNS, id, "cpu", x.Process)
		}
	}
}
