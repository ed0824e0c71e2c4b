package export

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/whylate/whylate/report"
)

// Field numbers of Perfetto's protos/perfetto/trace: trace.proto,
// trace_packet.proto, clock_snapshot.proto, track_event/track_event.proto,
// track_event/track_descriptor.proto, track_event/counter_descriptor.proto,
// track_event/debug_annotation.proto.
const (
	tracePacket = 1

	packetClockSnapshot = 6
	packetTimestamp     = 8
	packetSequence      = 10
	packetTrackEvent    = 11
	packetFlags         = 13
	packetTrack         = 60

	snapshotClock  = 1
	clockID        = 1
	clockTimestamp = 2

	trackUUID     = 1
	trackName     = 2
	trackParent   = 5
	trackCounter  = 8
	trackOrdering = 11
	trackRank     = 12

	counterUnit = 3

	eventAnnotation  = 4
	eventType        = 9
	eventTrack       = 11
	eventCategory    = 22
	eventName        = 23
	eventValue       = 30
	eventFlow        = 47
	eventTerminating = 48

	annotationString = 6
	annotationName   = 10
)

// Values of Perfetto's enumerations.
const (
	sliceBegin = 1
	sliceEnd   = 2
	instant    = 3
	counter    = 4

	stateCleared    = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	explicitOrder   = 3 // ChildTracksOrdering EXPLICIT
	unitCount       = 2
	unitBytes       = 3
	clockRealtime   = 1
	clockBoottime   = 6
	sequence        = 1
	runtimeTrack    = 1 // uuids below firstRequest are the runtime's counters
	firstRequest    = 1 << 16
	tracksOfRequest = 1 << 12
)

// Perfetto writes the slow requests as a Perfetto trace: for each a track with
// its critical path and one for each goroutine, with its states; wakes are
// flows from the goroutine that woke to the one that was woken; heap, goal and
// GOMAXPROCS are counters. Packets are written one by one, in memory that does
// not grow with the report. Timestamps are nanoseconds from the trace's start;
// a clock snapshot ties them to wall-clock time if that is known.
func Perfetto(w io.Writer, r *report.Report) error {
	p := &packets{out: bufio.NewWriter(w)}
	var snapshot message
	if r.Input.Start != nil {
		for _, c := range [][2]uint64{{clockBoottime, 0}, {clockRealtime, uint64(max(0, r.Input.Start.UnixNano()))}} {
			var m message
			m.uint(clockID, c[0])
			m.uint(clockTimestamp, c[1])
			snapshot.bytes(snapshotClock, m)
		}
	}
	var first message
	if len(snapshot) > 0 {
		first.bytes(packetClockSnapshot, snapshot)
	}
	first.uint(packetFlags, stateCleared)
	p.packet(first)

	uuid := uint64(firstRequest)
	for i := range r.Groups {
		g := &r.Groups[i]
		for n := range g.Slowest {
			p.request(uuid, g, n)
			uuid += tracksOfRequest
		}
	}
	if s := r.Runtime.Series; s != nil {
		p.counter(runtimeTrack, "heap in use", unitBytes, s.HeapBytes)
		p.counter(runtimeTrack+1, "heap goal", unitBytes, s.GoalBytes)
		p.counter(runtimeTrack+2, "GOMAXPROCS", unitCount, s.GOMAXPROCS)
		p.stretches(runtimeTrack+3, "GC mark phases", "GC", s.GC)
		p.stretches(runtimeTrack+4, "stops of the world", "world stopped", s.STW)
	}
	if err := p.out.Flush(); err != nil {
		return fmt.Errorf("writing a Perfetto trace: %w", err)
	}
	return nil
}

// packets writes packets of a trace.
type packets struct {
	out  *bufio.Writer
	flow uint64
}

// packet completes a packet and writes it. A write error stays in the writer.
func (p *packets) packet(m message) {
	m.uint(packetSequence, sequence)
	var whole message
	whole.bytes(tracePacket, m)
	p.out.Write(whole)
}

func (p *packets) track(uuid, parent uint64, name string, rank int, more func(*message)) {
	var t message
	t.uint(trackUUID, uuid)
	t.string(trackName, name)
	if parent != 0 {
		t.uint(trackParent, parent)
		t.uint(trackRank, uint64(rank))
	}
	if more != nil {
		more(&t)
	}
	var m message
	m.bytes(packetTrack, t)
	p.packet(m)
}

func (p *packets) event(at int64, typ, track uint64, more func(*message)) {
	var e message
	e.uint(eventType, typ)
	e.uint(eventTrack, track)
	if more != nil {
		more(&e)
	}
	var m message
	m.uint(packetTimestamp, uint64(max(0, at)))
	m.bytes(packetTrackEvent, e)
	p.packet(m)
}

func (p *packets) slice(from, length int64, track uint64, category, name string, notes ...[2]string) {
	p.event(from, sliceBegin, track, func(e *message) {
		e.string(eventCategory, category)
		e.string(eventName, name)
		for _, n := range notes {
			if n[1] == "" {
				continue
			}
			var a message
			a.string(annotationName, n[0])
			a.string(annotationString, n[1])
			e.bytes(eventAnnotation, a)
		}
	})
	p.event(from+length, sliceEnd, track, nil)
}

func (p *packets) request(uuid uint64, g *report.Group, n int) {
	r := &g.Slowest[n]
	p.track(uuid, 0, fmt.Sprintf("%s: slow request %d (%s)", g.Name, n+1, r.ID), 0, func(t *message) { t.uint(trackOrdering, explicitOrder) })
	p.slice(r.StartNS, r.LatencyNS, uuid, "request", g.Name, [2]string{"id", r.ID}, [2]string{"group", g.ID}, [2]string{"kind", g.Kind})
	path := uuid + 1
	p.track(path, uuid, "critical path", 0, nil)
	for i := range r.Segments {
		s := &r.Segments[i]
		p.slice(s.StartNS, s.DurationNS, path, "segment", s.Cause, [2]string{"site", siteText(s.Site)}, [2]string{"via", viaText(s.Via)}, [2]string{"kind", s.Kind},
			[2]string{"goroutine", fmt.Sprint(s.Goroutine)})
	}
	lanes := map[uint64]uint64{}
	for i := range r.Lanes {
		l := &r.Lanes[i]
		if i >= tracksOfRequest-2 {
			break
		}
		track := uuid + 2 + uint64(i)
		lanes[l.Goroutine] = track
		p.track(track, uuid, fmt.Sprintf("G%d %s", l.Goroutine, l.Name), i+1, nil)
		for _, s := range l.Spans {
			name := s.State
			if s.Reason != "" {
				name += " (" + s.Reason + ")"
			}
			p.slice(s.StartNS, s.DurationNS, track, "state", name, [2]string{"site", siteText(s.Site)})
		}
	}
	for _, w := range r.Wakes {
		from, okFrom := lanes[w.From]
		to, okTo := lanes[w.To]
		if !okFrom || !okTo {
			continue
		}
		p.flow++
		id := p.flow
		p.event(w.TimeNS, instant, from, func(e *message) {
			e.string(eventCategory, "wake")
			e.string(eventName, fmt.Sprintf("wakes G%d", w.To))
			e.fixed(eventFlow, id)
		})
		p.event(w.TimeNS, instant, to, func(e *message) {
			e.string(eventCategory, "wake")
			e.string(eventName, fmt.Sprintf("woken by G%d", w.From))
			e.fixed(eventTerminating, id)
		})
	}
}

func (p *packets) counter(uuid uint64, name string, unit uint64, points [][2]int64) {
	if len(points) == 0 {
		return
	}
	p.track(uuid, 0, name, 0, func(t *message) {
		var c message
		c.uint(counterUnit, unit)
		t.bytes(trackCounter, c)
	})
	for _, x := range points {
		p.event(x[0], counter, uuid, func(e *message) { e.uint(eventValue, uint64(x[1])) })
	}
}

func (p *packets) stretches(uuid uint64, track, name string, list [][2]int64) {
	if len(list) == 0 {
		return
	}
	p.track(uuid, 0, track, 0, nil)
	for _, x := range list {
		p.slice(x[0], x[1], uuid, "runtime", name)
	}
}

// A message is a protocol buffer under construction (wire format: varint 0,
// 64-bit 1, length-delimited 2).
type message []byte

func (m *message) key(field int, wire uint64) { *m = binary.AppendUvarint(*m, uint64(field)<<3|wire) }

func (m *message) uint(field int, v uint64) {
	m.key(field, 0)
	*m = binary.AppendUvarint(*m, v)
}

func (m *message) fixed(field int, v uint64) {
	m.key(field, 1)
	*m = binary.LittleEndian.AppendUint64(*m, v)
}

func (m *message) bytes(field int, b []byte) {
	m.key(field, 2)
	*m = binary.AppendUvarint(*m, uint64(len(b)))
	*m = append(*m, b...)
}

func (m *message) string(field int, s string) { m.bytes(field, []byte(s)) }
