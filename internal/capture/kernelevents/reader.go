package kernelevents

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// ErrFormat is wrapped by errors about input that is not a valid file of a known version.
var ErrFormat = errors.New("not the kernel's events as " + Schema)

// A Reader reads the events of a file that is in memory, one block at a time.
type Reader struct {
	// Tables explain the numbers in events. HasTables is false if the recorder ended before it wrote them.
	Tables    Tables
	HasTables bool

	blocks   []block
	unpacker io.ReadCloser
	raw      []byte
	next     map[int32]int32
	lastTime int64 // of the block before
}

type block struct {
	rows, unpacked int
	packed         []byte
}

// NewReader checks the blocks' headers and reads the tables. An incomplete block at the end is ignored. The error wraps ErrFormat.
func NewReader(data []byte) (*Reader, error) {
	rest, ok := bytes.CutPrefix(data, []byte(Schema+"\n"))
	if !ok {
		family, _, _ := strings.Cut(Schema, "/")
		if bytes.HasPrefix(data, []byte(family+"/")) {
			return nil, fmt.Errorf("%w: they have a later version: use a newer whylate", ErrFormat)
		}
		return nil, fmt.Errorf("%w: the first line is another one", ErrFormat)
	}
	r := &Reader{unpacker: flate.NewReader(nil), next: map[int32]int32{}}
	total := 0
	for len(rest) >= headerBytes {
		kind := rest[0]
		rows, unpacked, packed := binary.LittleEndian.Uint32(rest[1:]), binary.LittleEndian.Uint32(rest[5:]), binary.LittleEndian.Uint32(rest[9:])
		rest = rest[headerBytes:]
		if uint64(packed) > uint64(len(rest)) {
			break
		}
		b := block{int(rows), int(unpacked), rest[:packed]}
		rest = rest[packed:]
		switch {
		case kind == eventBlock && (rows > BlockEvents || unpacked > maxBlock),
			kind == tableBlock && (rows > maxRows || unpacked > maxTables):
			return nil, fmt.Errorf("%w: a block claims %d rows and %d bytes", ErrFormat, rows, unpacked)
		case kind == eventBlock:
			if total += b.unpacked; total > MaxUnpacked {
				return nil, fmt.Errorf("%w: they unpack to more than %d MiB", ErrFormat, MaxUnpacked>>20)
			}
			r.blocks = append(r.blocks, b)
		case kind == tableBlock && r.HasTables:
			return nil, fmt.Errorf("%w: there are two blocks of tables", ErrFormat)
		case kind == tableBlock:
			r.HasTables = true
			if err := r.readTables(b); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// unpack returns the uncompressed bytes of a block. They are valid until the next call.
func (r *Reader) unpack(b block) ([]byte, error) {
	if err := r.unpacker.(flate.Resetter).Reset(bytes.NewReader(b.packed), nil); err != nil {
		return nil, err
	}
	// Deflate makes at most 1032 bytes of one.
	if b.unpacked > 1032*len(b.packed) {
		return nil, fmt.Errorf("%w: %d bytes cannot unpack to %d", ErrFormat, len(b.packed), b.unpacked)
	}
	if cap(r.raw) < b.unpacked {
		r.raw = make([]byte, b.unpacked)
	}
	r.raw = r.raw[:b.unpacked]
	if _, err := io.ReadFull(r.unpacker, r.raw); err != nil {
		return nil, fmt.Errorf("%w: unpacking a block: %w", ErrFormat, err)
	}
	return r.raw, nil
}

// readTables appends the rows of a block of tables to r.Tables.
func (r *Reader) readTables(b block) error {
	raw, err := r.unpack(b)
	if err != nil {
		return err
	}
	rows := 0
	for line := range bytes.Lines(raw) {
		if rows++; rows > maxRows {
			return fmt.Errorf("%w: the tables have more than %d rows", ErrFormat, maxRows)
		}
		var row row
		if err := json.Unmarshal(line, &row); err != nil {
			return fmt.Errorf("%w: reading the tables: %w", ErrFormat, err)
		}
		t := &r.Tables
		switch {
		case row.Recording != nil:
			x := row.Recording
			t.Start, t.End, t.PID, t.NSPID, t.CPUs = x.Start, x.End, x.PID, x.NSPID, x.CPUs
			t.ClockOffsetNS, t.IsThrottleExact, t.Calls = x.ClockOffsetNS, x.IsThrottleExact, x.Calls
		case row.Thread != nil:
			t.Threads = append(t.Threads, *row.Thread)
		case row.Stack != nil:
			s := *row.Stack
			s.Frames = slices.Clone(s.Frames[:min(len(s.Frames), maxFrames)])
			t.Stacks = append(t.Stacks, s)
		case row.Cgroup != nil:
			t.Cgroups = append(t.Cgroups, *row.Cgroup)
		case row.Socket != nil:
			t.Sockets = append(t.Sockets, *row.Socket)
		}
	}
	return nil
}

// Next returns the events of the next block, in order of time. It overwrites events and returns it, longer if necessary. After the last block the
// error is io.EOF. Of a damaged block (ErrFormat) it returns the events before the damage. It omits events of kinds that this version does not know.
func (r *Reader) Next(events []Event) ([]Event, error) {
	events = events[:0]
	if len(r.blocks) == 0 {
		return events, io.EOF
	}
	b := r.blocks[0]
	r.blocks = r.blocks[1:]
	raw, err := r.unpack(b)
	if err != nil {
		return events, err
	}
	columns, err := splitColumns(raw)
	if err != nil {
		return events, err
	}
	clear(r.next)
	var e Event
	for i := range b.rows {
		var v [columnCount]int64
		for k := range columns {
			x, n := binary.Varint(columns[k])
			if n <= 0 {
				return events, fmt.Errorf("%w: a column ends before the last row", ErrFormat)
			}
			v[k], columns[k] = x, columns[k][n:]
		}
		if v[0] < 0 || v[0] > math.MaxInt64-e.Time || !isInt32(v[2]) || v[2] < 0 || !isInt32(v[3]) {
			return events, fmt.Errorf("%w: an event has an impossible time, CPU or thread", ErrFormat)
		}
		if i == 0 && v[0] < r.lastTime {
			return events, fmt.Errorf("%w: the blocks are not in order of time", ErrFormat)
		}
		e = Event{Time: e.Time + v[0], CPU: int32(v[2]), Thread: int32(v[3]), A: v[4], B: v[5], C: v[6], D: v[7]}
		if v[1] <= 0 || v[1] >= int64(kindCount) {
			continue
		}
		e.Kind = Kind(v[1])
		if e.Kind == Switch {
			if !isInt32(e.A) || len(r.next) > maxRows {
				return events, fmt.Errorf("%w: a switch to an impossible thread", ErrFormat)
			}
			e.Thread += r.next[e.CPU]
			r.next[e.CPU] = int32(e.A)
		}
		events = append(events, e)
	}
	r.lastTime = e.Time
	return events, nil
}

func isInt32(v int64) bool { return v == int64(int32(v)) }

// splitColumns returns the columns of a block. It ignores columns that a later version added.
func splitColumns(raw []byte) (columns [columnCount][]byte, err error) {
	errColumns := fmt.Errorf("%w: a block's columns do not fit in it", ErrFormat)
	count, n := binary.Uvarint(raw)
	if n <= 0 || count < columnCount || count > 64 {
		return columns, errColumns
	}
	raw = raw[n:]
	var lengths [64]uint64
	for i := range count {
		if lengths[i], n = binary.Uvarint(raw); n <= 0 {
			return columns, errColumns
		}
		raw = raw[n:]
	}
	for i := range columns {
		if lengths[i] > uint64(len(raw)) {
			return columns, errColumns
		}
		columns[i], raw = raw[:lengths[i]], raw[lengths[i]:]
	}
	return columns, nil
}
