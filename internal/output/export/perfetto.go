package export

import (
	"fmt"
	"io"

	"github.com/whylate/whylate/report"
)

// Tracks that belong to no request or goroutine. The first are parents of the
// others.
const (
	runtimeTrack = iota + 1
	procsTrack
	goroutinesTrack
	requestsTrack
	heapTrack
	goalTrack
	gomaxprocsTrack
	gcTrack
	stwTrack
	runningTrack
	runnableTrack
	syscallTrack
	freezeTrack
	cpusTrack
)

// Numbers of other tracks begin here.
const (
	firstRequest    = 1 << 16 // of a report
	tracksOfRequest = 1 << 12
	firstOther      = 1 << 7 // of a trace; given in order, so that they are short
)

// Perfetto writes the slow requests of a report as a Perfetto trace. Each has a track with its critical path, and one track
// for each goroutine with its states. Wakes are flows from the waking goroutine to the woken one. Heap, goal and GOMAXPROCS
// are counters. Packets are written one by one, in memory that does not grow with the report. Timestamps are nanoseconds from
// the trace's start; a clock snapshot relates them to wall-clock time, if that is known.
func Perfetto(w io.Writer, r *report.Report) error {
	p := newPackets(w)
	p.writeHeader(wallStart(r))
	uuid := uint64(firstRequest)
	for i := range r.Groups {
		g := &r.Groups[i]
		for n := range g.Slowest {
			p.writeRequest(uuid, g, n)
			uuid += tracksOfRequest
		}
	}
	p.writeTrack(track{uuid: runtimeTrack, name: "runtime"})
	if s := r.Runtime.Series; s != nil {
		p.writeCounters(heapTrack, "heap in use", unitBytes, s.HeapBytes)
		p.writeCounters(goalTrack, "heap goal", unitBytes, s.GoalBytes)
		p.writeCounters(gomaxprocsTrack, "GOMAXPROCS", unitCount, s.GOMAXPROCS)
		p.writeIntervals(gcTrack, "GC mark phases", "GC", s.GC)
		p.writeIntervals(stwTrack, "stops of the world", "world stopped", s.STW)
		p.writeIntervals(freezeTrack, "freezes", "held back by the kernel", s.Freezes)
	}
	if err := p.flush(); err != nil {
		return fmt.Errorf("writing a Perfetto trace: %w", err)
	}
	return nil
}

// wallStart returns the wall clock time at which the trace began, in Unix ns; 0 if it is unknown.
func wallStart(r *report.Report) int64 {
	if r.Input.Start == nil {
		return 0
	}
	return max(0, r.Input.Start.UnixNano())
}

func (p *packets) writeRequest(uuid uint64, g *report.Group, n int) {
	r := &g.Slowest[n]
	p.writeTrack(track{uuid: uuid, name: fmt.Sprintf("%s: slow request %d (%s)", g.Name, n+1, r.ID), order: explicitOrder})
	p.writeSlice(r.StartNS, r.LatencyNS, uuid, "request", g.Name, note{key: "id", text: r.ID}, note{key: "group", text: g.ID}, note{key: "kind", text: string(g.Kind)})
	path := uuid + 1
	p.writeTrack(track{uuid: path, parent: uuid, name: "critical path"})
	p.writeSegments(r, path)
	lanes := map[uint64]uint64{}
	for i := range r.Lanes {
		l := &r.Lanes[i]
		if i >= tracksOfRequest-2-len(r.CPUs) {
			break
		}
		id := uuid + 2 + uint64(i)
		lanes[l.Goroutine] = id
		p.writeTrack(track{uuid: id, parent: uuid, name: fmt.Sprintf("G%d %s", l.Goroutine, l.Name), rank: i + 1})
		for _, s := range l.Spans {
			p.writeEvent(&event{time: s.StartNS, eventType: sliceBegin, track: id, category: "state", name: stateText(s.State, s.Reason), notes: []note{{key: "site", text: siteText(s.Site)}}})
			p.writeReportedThreads(l, s.StartNS, s.StartNS+s.DurationNS, id)
			p.endSlice(s.StartNS+s.DurationNS, id)
		}
		for _, time := range l.ArrivalsNS {
			p.writeArrival(time, id)
		}
	}
	p.writeReportedCPUs(r, uuid)
	for _, w := range r.Wakes {
		from, okFrom := lanes[w.From]
		to, okTo := lanes[w.To]
		if okFrom && okTo {
			p.writeWake(w.TimeNS, from, to, w.From, w.To)
		}
	}
}

func (p *packets) writeSegments(r *report.Request, track uint64) {
	for i := range r.Segments {
		s := &r.Segments[i]
		p.writeSlice(s.StartNS, s.DurationNS, track, "segment", string(s.Cause), note{key: "site", text: siteText(s.Site)}, note{key: "via", text: viaText(s.Via)},
			note{key: "kind", text: s.Kind}, note{key: "goroutine", number: s.Goroutine})
	}
}

// writeWake writes a wake as a flow between two instants.
func (p *packets) writeWake(time int64, from, to, waker, woken uint64) {
	p.flow++
	p.writeEvent(&event{time: time, eventType: instant, track: from, category: "wake", name: "wakes", notes: []note{{key: "goroutine", number: woken}}, flowStart: p.flow})
	p.writeEvent(&event{time: time, eventType: instant, track: to, category: "wake", name: "woken", notes: []note{{key: "goroutine", number: waker}}, flowEnd: p.flow})
}

func stateText(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + " (" + reason + ")"
}

func (p *packets) writeCounters(uuid uint64, name string, unit uint64, points [][2]int64) {
	if len(points) == 0 {
		return
	}
	p.writeTrack(track{uuid: uuid, parent: runtimeTrack, name: name, counter: unit})
	for _, x := range points {
		p.writeCounter(uuid, counterValue{time: x[0], integer: uint64(x[1]), isInteger: true})
	}
}

func (p *packets) writeIntervals(uuid uint64, title, name string, list [][2]int64) {
	if len(list) == 0 {
		return
	}
	p.writeTrack(track{uuid: uuid, parent: runtimeTrack, name: title})
	for _, x := range list {
		p.writeSlice(x[0], x[1], uuid, "runtime", name)
	}
}
