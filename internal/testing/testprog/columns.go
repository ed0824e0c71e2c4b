package testprog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Half of a packed trace are times of events, between other arguments. So Pack first puts the same bytes in columns, one for each
// argument of each type of event; the column of a time also depends on the type of the event before. That makes the 363 recordings
// of November 2026 a fifth smaller.

// columnsMagic begins a recording in columns. No trace, zip file or text begins with it.
const columnsMagic = "\x00columns"

// A column is the number of a column: 256 times the number of an argument, from 1, plus the type of its events, or one of these.
type column int

const (
	otherColumn column = iota    // everything but events
	typeColumn                   // types of events
	timeColumn  column = 1 << 16 // to it are added 256 times the type of the event before, and the type
	columnCount        = 1 << 17
)

var argCounts = tracefmt.ArgCounts()

// A mover moves a recording into columns, or back.
type mover struct {
	data    []byte // the rest of the recording, or its beginning if it moves back
	pos     int    // number of moved bytes
	columns [][]byte
	back    bool // moves from columns to data
	failed  bool // the data are cut or no trace
}

// move moves n bytes of one column, and returns them.
func (m *mover) move(c column, n int) []byte {
	from, to := &m.data, &m.columns[c]
	if m.back {
		from, to = to, from
	}
	if m.failed || n < 0 || n > len(*from) {
		m.failed = true
		return []byte{0}
	}
	moved := (*from)[:n]
	*from, *to = (*from)[n:], append(*to, moved...)
	m.pos += n
	return moved
}

// moveNumber moves a varint.
func (m *mover) moveNumber(c column) uint64 {
	from := m.data
	if m.back {
		from = m.columns[c]
	}
	v, n := binary.Uvarint(from)
	m.failed = m.failed || n <= 0
	m.move(c, n)
	return v
}

// moveBatches moves batches of a trace until a position, and returns where the last whole batch ends.
func (m *mover) moveBatches(end int) (whole int) {
	for !m.failed && m.pos < end {
		whole = m.pos
		switch typ := tracefmt.EventType(m.move(otherColumn, 1)[0]); typ {
		case tracefmt.EvEndOfGeneration:
		case tracefmt.EvEventBatch:
			m.moveBatch(true)
		case tracefmt.EvExperimentalBatch:
			m.move(otherColumn, 1)
			m.moveBatch(false)
		default:
			m.failed = true
		}
	}
	if m.failed {
		return whole
	}
	return m.pos
}

// moveBatch moves the rest of a batch.
func (m *mover) moveBatch(hasEvents bool) {
	for range 3 {
		m.moveNumber(otherColumn)
	}
	size := m.moveNumber(otherColumn)
	end := m.pos + int(size&math.MaxUint32)
	if !hasEvents {
		m.move(otherColumn, end-m.pos)
	}
	var before column
	for !m.failed && m.pos < end {
		event := column(m.move(typeColumn, 1)[0])
		if argCounts[event] == 0 { // a table, or unknown
			m.move(otherColumn, end-m.pos)
			return
		}
		for i := range argCounts[event] - 1 {
			c := 256*column(i+1) + event
			if i == 0 {
				c = timeColumn + 256*before + event
			}
			m.moveNumber(c)
		}
		before = event
	}
	m.failed = m.failed || m.pos != end
}

// splitColumns returns a recording in columns; other data unchanged.
func splitColumns(data []byte) []byte {
	const header = "go 1.26 trace\x00\x00\x00"
	// In a bundle the trace is the first entry, uncompressed.
	start := bytes.Index(data[:min(len(data), 100)], []byte(header[:5]))
	if start < 0 || start+len(header) > len(data) {
		return data
	}
	start += len(header)
	end := len(data)
	var m mover
	for {
		m = mover{data: data, columns: make([][]byte, columnCount)}
		m.move(otherColumn, start)
		whole := m.moveBatches(end)
		if whole == end {
			break
		}
		end = whole
	}
	m.move(otherColumn, len(data)-end)
	out := []byte(columnsMagic)
	for _, n := range []int{start, end, len(data)} {
		out = binary.AppendUvarint(out, uint64(n))
	}
	for c, content := range m.columns {
		if len(content) > 0 {
			out = binary.AppendUvarint(out, uint64(c))
			out = binary.AppendUvarint(out, uint64(len(content)))
			out = append(out, content...)
		}
	}
	return out
}

// joinColumns returns the data that splitColumns was called with.
func joinColumns(packed []byte) ([]byte, error) {
	if !bytes.HasPrefix(packed, []byte(columnsMagic)) {
		return packed, nil
	}
	head := &mover{data: packed[len(columnsMagic):], columns: make([][]byte, columnCount)}
	m := &mover{columns: make([][]byte, columnCount), back: true}
	start, end, size := int(head.moveNumber(otherColumn)), int(head.moveNumber(otherColumn)), int(head.moveNumber(otherColumn))
	for !head.failed && len(head.data) > 0 {
		c, n := head.moveNumber(otherColumn)%columnCount, head.moveNumber(otherColumn)
		m.columns[c] = head.move(otherColumn, int(n))
	}
	m.move(otherColumn, start)
	m.moveBatches(end)
	m.move(otherColumn, size-end)
	if head.failed || m.failed {
		return nil, errors.New("a recording in columns is damaged")
	}
	return m.data, nil
}
