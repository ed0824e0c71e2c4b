package export_test

import (
	"bufio"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// schema is Perfetto's published schema: fields by message and number, values by enumeration.
type schema struct {
	fields map[string]map[uint64]field
	enums  map[string]map[uint64]string
}

type field struct {
	name, typ string
	repeated  bool
}

func readSchema(t *testing.T, name string) *schema {
	t.Helper()
	f := must.Have(os.Open(name))(t)
	defer f.Close()
	s := &schema{fields: map[string]map[uint64]field{}, enums: map[string]map[uint64]string{}}
	var typeName string
	var enum bool
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "message" || words[0] == "enum":
			typeName, enum = words[1], words[0] == "enum"
			s.fields[typeName], s.enums[typeName] = map[uint64]field{}, map[uint64]string{}
		default:
			n := must.Have(strconv.ParseUint(words[0], 10, 64))(t)
			if enum {
				s.enums[typeName][n] = words[1]
				continue
			}
			x := field{name: words[1], typ: strings.TrimPrefix(strings.Join(words[2:], " "), "enum ")}
			if rest, ok := strings.CutSuffix(x.typ, " repeated"); ok {
				x.typ, x.repeated = rest, true
			} else if x.typ == "repeated" { // of a type that is not listed
				x.typ, x.repeated = "", true
			}
			s.fields[typeName][n] = x
		}
	}
	must.True(t, lines.Err() == nil && len(s.fields) != 0, "no schema: %v", lines.Err())
	return s
}

// decoded is a message: its fields in their order, each a uint64, float64, string or decoded.
type decoded []decodedField

type decodedField struct {
	name  string
	value any
}

func (d decoded) hasField(name string) bool { return d.one(name) != nil }

// all yields the messages of a repeated field.
func (d decoded) all(name string) iter.Seq[decoded] { return all[decoded](d, name) }

// all yields the values of a repeated field.
func all[T any](d decoded, name string) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, f := range d {
			if f.name == name && !yield(f.value.(T)) {
				return
			}
		}
	}
}

func (d decoded) uint(name string) uint64 {
	if v, ok := d.one(name).(uint64); ok {
		return v
	}
	return 0
}

func (d decoded) text(name string) string {
	v, _ := d.one(name).(string)
	return v
}

func (d decoded) msg(name string) decoded {
	v, _ := d.one(name).(decoded)
	return v
}

func (d decoded) one(name string) any {
	for _, f := range d {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// decode decodes a message. It returns an error for everything that the schema does not allow: unknown fields, other wire
// types, repetition, values that an enumeration does not have, text that is not UTF-8.
func (s *schema) decode(message string, b []byte) (decoded, error) {
	out := decoded{}
	field := s.fields[message]
	if field == nil {
		return nil, fmt.Errorf("the schema has no message %s", message)
	}
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%s: a key is cut off", message)
		}
		b = b[n:]
		f, ok := field[key>>3]
		if !ok {
			return nil, fmt.Errorf("%s has no field %d", message, key>>3)
		}
		if !f.repeated && out.hasField(f.name) {
			return nil, fmt.Errorf("%s.%s occurs twice", message, f.name)
		}
		v, rest, err := s.value(f, key&7, b)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", message, f.name, err)
		}
		out = append(out, decodedField{f.name, v})
		b = rest
	}
	return out, nil
}

func (s *schema) value(f field, wire uint64, b []byte) (any, []byte, error) {
	want := uint64(2)
	switch f.typ {
	case "uint64", "int64", "uint32", "int32", "bool":
		want = 0
	case "fixed64", "double":
		want = 1
	}
	enum := s.enums[f.typ]
	if len(enum) > 0 {
		want = 0
	}
	if wire != want {
		return nil, nil, fmt.Errorf("wire type %d, want %d", wire, want)
	}
	switch wire {
	case 0:
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, nil, fmt.Errorf("a number is cut off")
		}
		if len(enum) > 0 && f.name != "sequence_flags" && enum[v] == "" {
			return nil, nil, fmt.Errorf("%s has no value %d", f.typ, v)
		}
		return v, b[n:], nil
	case 1:
		if len(b) < 8 {
			return nil, nil, fmt.Errorf("a 64-bit value is cut off")
		}
		v := binary.LittleEndian.Uint64(b)
		if f.typ == "double" {
			return math.Float64frombits(v), b[8:], nil
		}
		return v, b[8:], nil
	}
	l, n := binary.Uvarint(b)
	if n <= 0 || uint64(len(b)-n) < l {
		return nil, nil, fmt.Errorf("bytes are cut off")
	}
	part, rest := b[n:n+int(l)], b[n+int(l):]
	switch f.typ {
	case "string":
		if !utf8.Valid(part) {
			return nil, nil, fmt.Errorf("%q is not UTF-8", part)
		}
		return string(part), rest, nil
	case "bytes":
		return string(part), rest, nil
	}
	m, err := s.decode(f.typ, part)
	return m, rest, err
}

// A shown is a Perfetto trace as its viewer shows it.
type shown struct {
	tracks   map[uint64]*writtenTrack
	flows    map[uint64]*[2]*writtenTrack
	flowAt   map[uint64]int64
	realtime uint64
	bytes    int
}

type writtenTrack struct {
	uuid     uint64
	name     string
	parent   uint64
	slices   []slice
	instants int
	counters [][2]int64
	doubles  []float64
	doubleAt []int64
	open     []int // indices of slices
	last     int64
}

// byName returns the only track of that name below parent.
func (s *shown) byName(parent uint64, name string) *writtenTrack {
	var found *writtenTrack
	for _, t := range s.tracks {
		if t.name == name && t.parent == parent {
			if found != nil {
				return nil
			}
			found = t
		}
	}
	return found
}

// unpacked decodes a trace whose packets are all in compressed blocks.
func unpacked(t *testing.T, s *schema, data []byte) (trace decoded) {
	t.Helper()
	for p := range must.Have(s.decode("Trace", data))(t).all("packet") {
		block := must.Have(zlib.NewReader(strings.NewReader(p.text("compressed_packets"))))(t)
		trace = append(trace, must.Have(s.decode("Trace", must.Have(io.ReadAll(block))(t)))(t)...)
	}
	return trace
}

// showPerfetto decodes a trace and collects its tracks. It checks that the slices of every track are in order of time and
// nested.
func showPerfetto(t *testing.T, data []byte) *shown {
	t.Helper()
	s := readSchema(t, "testdata/perfetto.schema")
	trace := unpacked(t, s, data)
	out := &shown{tracks: map[uint64]*writtenTrack{}, flows: map[uint64]*[2]*writtenTrack{}, flowAt: map[uint64]int64{}, bytes: len(data)}
	texts := map[string]map[uint64]string{}
	first := true
	for p := range trace.all("packet") {
		must.True(t, p.uint("trusted_packet_sequence_id") != 0, "a packet without a sequence")
		if flags := p.uint("sequence_flags"); (flags&1 != 0) != first {
			t.Fatalf("a packet has flags %d: the first one, and no other, clears what was before", flags)
		}
		first = false
		for _, f := range p.msg("interned_data") {
			if texts[f.name] == nil {
				texts[f.name] = map[uint64]string{}
			}
			d := f.value.(decoded)
			texts[f.name][d.uint("iid")] = d.text("name") + d.text("str")
		}
		if d := p.msg("track_descriptor"); d != nil {
			check.True(t, out.tracks[d.uint("uuid")] == nil, "track %d twice: %s", d.uint("uuid"), d.text("name"))
			out.tracks[d.uint("uuid")] = &writtenTrack{uuid: d.uint("uuid"), name: d.text("name"), parent: d.uint("parent_uuid")}
			if parent := d.uint("parent_uuid"); parent != 0 && out.tracks[parent] == nil {
				t.Errorf("track %s comes before its parent", d.text("name"))
			}
		}
		for c := range p.msg("clock_snapshot").all("clocks") {
			check.False(t, c.uint("clock_id") == 6 && c.uint("timestamp") != 0, "the trace's clock does not begin at 0")
			if c.uint("clock_id") == 1 {
				out.realtime = c.uint("timestamp")
			}
		}
		if e := p.msg("track_event"); e != nil {
			must.True(t, p.uint("sequence_flags")&2 != 0, "an event without the flag that it needs interned data")
			out.addEvent(t, e, int64(p.uint("timestamp")), texts)
		}
	}
	for _, tr := range out.tracks {
		check.True(t, len(tr.open) == 0, "%d slices of %s never end", len(tr.open), tr.name)
	}
	return out
}

func (s *shown) addEvent(t *testing.T, e decoded, time int64, texts map[string]map[uint64]string) {
	t.Helper()
	tr := s.tracks[e.uint("track_uuid")]
	must.True(t, tr != nil, "an event on track %d before the track", e.uint("track_uuid"))
	interned := func(kind string, id uint64) string {
		text, ok := texts[kind][id]
		must.True(t, ok, "number %d of %s was not given before", id, kind)
		return text
	}
	switch e.uint("type") {
	case 1: // TYPE_SLICE_BEGIN
		check.True(t, time >= tr.last, "%s: a slice begins at %d, after one at %d", tr.name, time, tr.last)
		tr.last = time
		x := slice{name: interned("event_names", e.uint("name_iid")), from: time, depth: len(tr.open), notes: map[string]string{}}
		for n := range e.all("debug_annotations") {
			v := fmt.Sprint(n.uint("uint_value"))
			if n.hasField("string_value_iid") {
				v = interned("debug_annotation_string_values", n.uint("string_value_iid"))
			}
			x.notes[interned("debug_annotation_names", n.uint("name_iid"))] = v
		}
		tr.open = append(tr.open, len(tr.slices))
		tr.slices = append(tr.slices, x)
	case 2: // TYPE_SLICE_END
		n := len(tr.open) - 1
		must.True(t, n >= 0, "an end without a begin on %s", tr.name)
		check.True(t, time >= tr.last, "%s: a slice ends at %d, after an event at %d", tr.name, time, tr.last)
		tr.last = time
		x := &tr.slices[tr.open[n]]
		x.len = time - x.from
		tr.open = tr.open[:n]
	case 3: // TYPE_INSTANT
		tr.instants++
		for i, key := range []string{"flow_ids", "terminating_flow_ids"} {
			for id := range all[uint64](e, key) {
				f := s.flows[id]
				if f == nil {
					f = new([2]*writtenTrack)
					s.flows[id] = f
				}
				f[i] = tr
				s.flowAt[id] = time
			}
		}
	case 4: // TYPE_COUNTER
		if v, ok := e.one("double_counter_value").(float64); ok {
			tr.doubles, tr.doubleAt = append(tr.doubles, v), append(tr.doubleAt, time)
		} else {
			tr.counters = append(tr.counters, [2]int64{time, int64(e.uint("counter_value"))})
		}
	default:
		t.Errorf("an event of type %d", e.uint("type"))
	}
}
