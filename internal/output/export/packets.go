package export

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"math"
	"strings"
)

// Field numbers of Perfetto's protos/perfetto/trace: trace.proto,
// trace_packet.proto, clock_snapshot.proto, track_event/track_event.proto,
// track_event/track_descriptor.proto, track_event/counter_descriptor.proto,
// track_event/debug_annotation.proto, interned_data/interned_data.proto. A test
// compares them with the published schema.
const (
	tracePacket = 1

	packetClockSnapshot = 6
	packetTimestamp     = 8
	packetSequence      = 10
	packetTrackEvent    = 11
	packetInterned      = 12
	packetFlags         = 13
	packetCompressed    = 50
	packetTrack         = 60

	snapshotClock  = 1
	clockID        = 1
	clockTimestamp = 2

	trackUUID        = 1
	trackName        = 2
	trackProcess     = 3
	trackParent      = 5
	trackCounter     = 8
	trackOrdering    = 11
	trackRank        = 12
	trackDescription = 14

	processID   = 1
	processName = 6

	counterUnit = 3

	eventCategoryID  = 3
	eventAnnotation  = 4
	eventType        = 9
	eventNameID      = 10
	eventTrack       = 11
	eventCategory    = 22
	eventName        = 23
	eventValue       = 30
	eventDouble      = 44
	eventFlow        = 47
	eventTerminating = 48

	annotationNameID   = 1
	annotationUint     = 3
	annotationString   = 6
	annotationName     = 10
	annotationStringID = 17

	internedCategories = 1
	internedNames      = 2
	internedKeys       = 3
	internedTexts      = 29
	entryID            = 1
	entryText          = 2
)

// Values of Perfetto's enumerations.
const (
	sliceBegin = 1
	sliceEnd   = 2
	instant    = 3
	counter    = 4

	stateCleared  = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	stateNeeded   = 2 // SEQ_NEEDS_INCREMENTAL_STATE
	chronological = 2 // ChildTracksOrdering CHRONOLOGICAL
	explicitOrder = 3 // ChildTracksOrdering EXPLICIT
	unitCount     = 2
	unitBytes     = 3
	clockRealtime = 1
	clockBoottime = 6
	sequence      = 1
)

// packets writes packets of a Perfetto trace, one by one. It writes each text once, and then refers to it by a number. Packets are
// compressed in blocks, as Perfetto's own service does.
type packets struct {
	out        *bufio.Writer
	block      message // packets that are not yet written
	compressor *zlib.Writer
	compressed bytes.Buffer
	flow       uint64
	shift      int64 // added to times

	categories, names, keys, texts interner
	interned                       message // interned by the current packet
	inner, middle, detail          message // buffers
}

// newPackets returns a writer of compressed Perfetto packets to w.
func newPackets(w io.Writer) *packets {
	compressor, err := zlib.NewWriterLevel(nil, zlib.BestSpeed)
	if err != nil {
		panic(err) // the level is wrong
	}
	return &packets{
		out: bufio.NewWriter(w), compressor: compressor,
		categories: interner{field: internedCategories}, names: interner{field: internedNames},
		keys: interner{field: internedKeys}, texts: interner{field: internedTexts},
	}
}

// maxInterned bounds the texts of one kind that have numbers; further texts are written each time.
const maxInterned = 1 << 16

type interner struct {
	field int
	ids   map[string]uint64
}

// idOf returns the number of a text. It adds the definition of a new one to interned. It is 0, and the text must be written itself, if there are
// maxInterned texts.
func (i *interner) idOf(text string, interned *message) uint64 {
	if id, ok := i.ids[text]; ok {
		return id
	}
	if len(i.ids) >= maxInterned {
		return 0
	}
	if i.ids == nil {
		i.ids = make(map[string]uint64)
	}
	id := uint64(len(i.ids) + 1)
	i.ids[text] = id
	var entry message
	entry.uint(entryID, id)
	entry.string(entryText, validUTF8(text))
	interned.bytes(i.field, entry)
	return id
}

// writeHeader begins a trace whose times count from the wall clock time start; 0 if that is unknown.
func (p *packets) writeHeader(start int64) {
	var first message
	if start > 0 {
		var snapshot message
		for _, c := range [][2]uint64{{clockBoottime, 0}, {clockRealtime, uint64(start)}} {
			var m message
			m.uint(clockID, c[0])
			m.uint(clockTimestamp, c[1])
			snapshot.bytes(snapshotClock, m)
		}
		first.bytes(packetClockSnapshot, snapshot)
	}
	first.uint(packetFlags, stateCleared)
	p.writePacket(first)
}

// blockBytes is the size of a block before it is compressed.
const blockBytes = 1 << 18

// writePacket completes a packet and adds it to the block, which it writes when it is full. The writer keeps a write error for flush.
func (p *packets) writePacket(m message) {
	m.uint(packetSequence, sequence)
	if p.block.bytes(tracePacket, m); len(p.block) >= blockBytes {
		p.writeBlock()
	}
}

// writeBlock writes the packets of the block as one compressed packet, and empties the block.
func (p *packets) writeBlock() {
	if len(p.block) == 0 {
		return
	}
	p.compressed.Reset()
	p.compressor.Reset(&p.compressed)
	p.compressor.Write(p.block)
	p.compressor.Close()
	var packet, outer message
	packet.bytes(packetCompressed, p.compressed.Bytes())
	outer.bytes(tracePacket, packet)
	p.out.Write(outer)
	p.block = p.block[:0]
}

// flush writes all packets.
func (p *packets) flush() error {
	p.writeBlock()
	return p.out.Flush()
}

// A track is a row of the viewer, with events or child tracks.
type track struct {
	uuid, parent uint64
	name         string
	description  string
	rank         int
	counter      uint64 // the unit of a counter, else 0
	order        uint64 // of its children
	process      int    // the number of a process, else 0
}

// writeTrack writes the description of a track: a process, a counter, or a row of slices.
func (p *packets) writeTrack(t track) {
	var m message
	m.uint(trackUUID, t.uuid)
	m.string(trackName, validUTF8(t.name))
	if t.process != 0 {
		var process message
		process.uint(processID, uint64(t.process))
		process.string(processName, validUTF8(t.name))
		m.bytes(trackProcess, process)
	}
	if t.parent != 0 {
		m.uint(trackParent, t.parent)
		m.uint(trackRank, uint64(t.rank))
	}
	if t.counter != 0 {
		var c message
		c.uint(counterUnit, t.counter)
		m.bytes(trackCounter, c)
	}
	if t.order != 0 {
		m.uint(trackOrdering, t.order)
	}
	if t.description != "" {
		m.string(trackDescription, t.description)
	}
	var packet message
	packet.bytes(packetTrack, m)
	p.writePacket(packet)
}

// A note is one of the details of an event.
type note struct {
	key, text string
	number    uint64 // if text is empty
}

// An event is the begin or end of a slice of a track, or an instant.
type event struct {
	time               int64
	eventType, track   uint64
	category, name     string
	notes              []note
	flowStart, flowEnd uint64 // a flow that leaves here, or arrives
}

// writeEvent writes an event on its track, with its notes and the ends of its flow.
func (p *packets) writeEvent(e *event) {
	m := p.inner[:0]
	m.uint(eventType, e.eventType)
	m.uint(eventTrack, e.track)
	if e.eventType != sliceEnd {
		p.addText(&m, &p.categories, e.category, eventCategoryID, eventCategory)
		p.addText(&m, &p.names, e.name, eventNameID, eventName)
	}
	for i := range e.notes {
		p.addNote(&m, &e.notes[i])
	}
	if e.flowStart != 0 {
		m.fixed(eventFlow, e.flowStart)
	}
	if e.flowEnd != 0 {
		m.fixed(eventTerminating, e.flowEnd)
	}
	p.inner = m
	p.writeTrackEvent(e.time)
}

// writeTrackEvent writes the event in p.inner, at a time in ns from the trace's start, with the new texts in p.interned.
func (p *packets) writeTrackEvent(time int64) {
	packet := p.middle[:0]
	packet.uint(packetTimestamp, uint64(max(0, time+p.shift)))
	packet.bytes(packetTrackEvent, p.inner)
	packet.uint(packetFlags, stateNeeded)
	if len(p.interned) > 0 {
		packet.bytes(packetInterned, p.interned)
		p.interned = p.interned[:0]
	}
	p.middle = packet
	p.writePacket(packet)
}

// addText adds a text to a message: as an interned id in field number if the interner has room, else as a string in field.
func (p *packets) addText(m *message, in *interner, text string, number, field int) {
	if id := in.idOf(text, &p.interned); id != 0 {
		m.uint(number, id)
	} else {
		m.string(field, validUTF8(text))
	}
}

// addNote adds a note to the message of an event; nothing if it has neither text nor number.
func (p *packets) addNote(m *message, n *note) {
	if n.text == "" && n.number == 0 {
		return
	}
	p.detail = p.detail[:0]
	p.addText(&p.detail, &p.keys, n.key, annotationNameID, annotationName)
	if n.text == "" {
		p.detail.uint(annotationUint, n.number)
	} else {
		p.addText(&p.detail, &p.texts, n.text, annotationStringID, annotationString)
	}
	m.bytes(eventAnnotation, p.detail)
}

// writeSlice writes a slice of a track that begins at from and takes length, both in ns.
func (p *packets) writeSlice(from, length int64, track uint64, category, name string, notes ...note) {
	p.writeEvent(&event{time: from, eventType: sliceBegin, track: track, category: category, name: name, notes: notes})
	p.endSlice(from+length, track)
}

func (p *packets) endSlice(time int64, track uint64) {
	p.writeEvent(&event{time: time, eventType: sliceEnd, track: track})
}

// A counterValue is a counter's value from a time on.
type counterValue struct {
	time      int64
	integer   uint64
	double    float64
	isInteger bool // it is number
}

// writeCounter writes a counter's value.
func (p *packets) writeCounter(track uint64, v counterValue) {
	p.inner = p.inner[:0]
	p.inner.uint(eventType, counter)
	p.inner.uint(eventTrack, track)
	if v.isInteger {
		p.inner.uint(eventValue, v.integer)
	} else {
		p.inner.fixed(eventDouble, math.Float64bits(v.double))
	}
	p.writeTrackEvent(v.time)
}

// A message is a protocol buffer under construction (wire format: varint 0,
// 64-bit 1, length-delimited 2).
type message []byte

func (m *message) key(field int, wire uint64) { *m = binary.AppendUvarint(*m, uint64(field)<<3|wire) }

// uint adds a varint field.
func (m *message) uint(field int, v uint64) {
	m.key(field, 0)
	*m = binary.AppendUvarint(*m, v)
}

// fixed adds a field of 8 bytes.
func (m *message) fixed(field int, v uint64) {
	m.key(field, 1)
	*m = binary.LittleEndian.AppendUint64(*m, v)
}

// bytes adds a field of bytes, also for an encoded message.
func (m *message) bytes(field int, b []byte) {
	m.key(field, 2)
	*m = binary.AppendUvarint(*m, uint64(len(b)))
	*m = append(*m, b...)
}

func (m *message) string(field int, s string) {
	m.key(field, 2)
	*m = binary.AppendUvarint(*m, uint64(len(s)))
	*m = append(*m, s...)
}

// validUTF8 returns a text as protocol buffers require it: texts of a trace may have any bytes.
func validUTF8(text string) string { return strings.ToValidUTF8(text, "\ufffd") }
