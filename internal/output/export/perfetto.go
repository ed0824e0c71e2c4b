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
	firstProcess    = 1 << 10 // of several services: that of each, and its runtime's
	tracksOfProcess = 1 << 5
	firstRequest    = 1 << 16 // of a report
	tracksOfRequest = 1 << 12
	firstCall       = 1 << 40 // calls that other services served
	firstOther      = 1 << 7  // of a trace; given in order, so that they are short
)

// Perfetto writes the slow requests of a report as a Perfetto trace. Each has a track with its critical path, and one track
// for each goroutine with its states. Wakes are flows from the waking goroutine to the woken one. Heap, goal and GOMAXPROCS
// are counters. Packets are written one by one, in memory that does not grow with the report. Timestamps are nanoseconds from
// the trace's start; a clock snapshot relates them to wall-clock time, if that is known.
func Perfetto(w io.Writer, r *report.Report) error {
	p := newPackets(w)
	services := servicesOf(r)
	first := int64(0) // when the first trace began
	for _, s := range services {
		first = min(first, s.startNS)
	}
	p.writeHeader(max(0, wallStart(r)+first))
	processes := make(map[string]uint64)
	for i, s := range services {
		if s.name != "" {
			processes[s.name] = firstProcess + uint64(i)*tracksOfProcess
			p.writeTrack(track{uuid: processes[s.name], name: s.name, process: i + 1})
		}
	}
	uuid, callUUID := uint64(firstRequest), uint64(firstCall)
	for k, s := range services {
		p.shift = s.startNS - first
		for i := range r.Groups {
			g := &r.Groups[i]
			if isKnown := processes[g.Service] != 0; isKnown && g.Service != s.name || !isKnown && k > 0 {
				continue
			}
			for n := range g.Slowest {
				p.writeRequest(uuid, processes[s.name], g, n)
				p.writeCalls(uuid+1, callUUID, processes, g, n)
				uuid += tracksOfRequest
				callUUID += uint64(len(g.Slowest[n].Segments))
			}
		}
		p.writeRuntime(processes[s.name], s.runtime)
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

// writeRuntime writes counters and intervals of the runtime. process is the track of the service, 0 if there is only one.
func (p *packets) writeRuntime(process uint64, r *report.Runtime) {
	p.writeTrack(track{uuid: process + runtimeTrack, parent: process, name: "runtime"})
	s := r.Series
	if s == nil {
		return
	}
	p.writeCounters(process, heapTrack, "heap in use", unitBytes, s.HeapBytes)
	p.writeCounters(process, goalTrack, "heap goal", unitBytes, s.GoalBytes)
	p.writeCounters(process, gomaxprocsTrack, "GOMAXPROCS", unitCount, s.GOMAXPROCS)
	p.writeIntervals(process, gcTrack, "GC mark phases", "GC", s.GC)
	p.writeIntervals(process, stwTrack, "stops of the world", "world stopped", s.STW)
	p.writeIntervals(process, freezeTrack, "freezes", "held back by the kernel", s.Freezes)
}

// writeCalls writes what other services did for the n-th slowest request of g on tracks from uuid on, each in its process, by the service's name.
// path is the track of the request's path.
func (p *packets) writeCalls(path, uuid uint64, processes map[string]uint64, g *report.Group, n int) {
	r := &g.Slowest[n]
	for i, c := range servedCalls(r) {
		process := processes[c.service]
		if process == 0 {
			continue
		}
		id := uuid + uint64(i)
		p.writeTrack(track{uuid: id, parent: process, name: fmt.Sprintf("for %s of %s: slow request %d (%s)", g.Name, g.Service, n+1, r.ID)})
		p.flow++
		p.writeEvent(&event{time: c.start, eventType: instant, track: path, category: "call", name: "calls " + c.service, flowStart: p.flow})
		p.writeEvent(&event{time: c.start, eventType: instant, track: id, category: "call", name: "called", flowEnd: p.flow})
		for _, k := range c.segments {
			s := &r.Segments[k]
			p.writeSlice(s.StartNS, s.DurationNS, id, "segment", string(s.Cause), note{key: "site", text: siteText(s.Site)}, note{key: "via", text: viaText(s.Via)},
				note{key: "kind", text: s.Kind}, note{key: "goroutine", number: s.ServiceGoroutine})
		}
	}
}

// writeRequest writes the n-th slowest request of g (from 0) on tracks from uuid on. process is the track of its service, 0 if there is only one.
func (p *packets) writeRequest(uuid, process uint64, g *report.Group, n int) {
	r := &g.Slowest[n]
	p.writeTrack(track{uuid: uuid, parent: process, name: fmt.Sprintf("%s: slow request %d (%s)", g.Name, n+1, r.ID), order: explicitOrder})
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

// writeSegments writes the segments of a request as slices of a track, with their causes as names.
func (p *packets) writeSegments(r *report.Request, track uint64) {
	for i := range r.Segments {
		s := &r.Segments[i]
		p.writeSlice(s.StartNS, s.DurationNS, track, "segment", string(s.Cause), note{key: "site", text: siteText(s.Site)}, note{key: "via", text: viaText(s.Via)},
			note{key: "kind", text: s.Kind}, note{key: "goroutine", number: s.Goroutine})
	}
}

// writeWake writes a wake as a flow (an arrow) from an instant on the waker's track to one on the woken goroutine's track.
// waker and woken are the ids of the goroutines; time is in ns since the start of the trace.
func (p *packets) writeWake(time int64, wakerTrack, wokenTrack, waker, woken uint64) {
	p.flow++
	p.writeEvent(&event{time: time, eventType: instant, track: wakerTrack, category: "wake", name: "wakes", notes: []note{{key: "goroutine", number: woken}}, flowStart: p.flow})
	p.writeEvent(&event{time: time, eventType: instant, track: wokenTrack, category: "wake", name: "woken", notes: []note{{key: "goroutine", number: waker}}, flowEnd: p.flow})
}

// stateText returns a state with its reason in brackets, if it has one.
func stateText(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + " (" + reason + ")"
}

// writeCounters writes a counter track from points of [time in ns, value]; nothing without points. Its id is process+number,
// its parent the process's runtime track.
func (p *packets) writeCounters(process, number uint64, name string, unit uint64, points [][2]int64) {
	if len(points) == 0 {
		return
	}
	uuid := process + number
	p.writeTrack(track{uuid: uuid, parent: process + runtimeTrack, name: name, counter: unit})
	for _, x := range points {
		p.writeCounter(uuid, counterValue{time: x[0], integer: uint64(x[1]), isInteger: true})
	}
}

// writeIntervals writes a track (title) with a slice (name) for each [start, length] in ns; nothing if the list is empty. Its
// id is process+number, its parent the process's runtime track.
func (p *packets) writeIntervals(process, number uint64, title, name string, list [][2]int64) {
	if len(list) == 0 {
		return
	}
	uuid := process + number
	p.writeTrack(track{uuid: uuid, parent: process + runtimeTrack, name: title})
	for _, x := range list {
		p.writeSlice(x[0], x[1], uuid, "runtime", name)
	}
}
