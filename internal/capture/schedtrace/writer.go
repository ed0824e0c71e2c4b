package schedtrace

import (
	"bufio"
	"encoding/binary"
	"io"
	"slices"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// The format of Go 1.25 is the oldest with the wall clock in it.
const header = "go 1.25 trace\x00\x00\x00"

// The trace's clock has the unit of the runtime's on Linux.
const (
	unit      = 64 // nanoseconds
	frequency = 1e9 / unit
)

const generation = 1

// batchSize is the format's limit for the events of a batch, without room for one more event.
const batchSize = 64<<10 - 64

// Limits of the format.
const (
	maxString = 1 << 10
	maxFrames = 128
)

// A batch is the content of one batch and its header.
type batch struct {
	thread uint64
	ticks  uint64 // of its start
	last   uint64 // of its last event
	data   []byte
}

// add appends an event at a time (ns) to the batches of a thread. An event that is earlier than the thread's last one gets the
// time of that.
func (w *writer) add(t *thread, time int64, event tracefmt.EventType, args ...uint64) {
	ticks := max(uint64(time)/unit, t.lastTicks)
	b := t.batch
	if b == nil || len(b.data) > batchSize {
		b = &batch{thread: t.id, ticks: ticks, last: ticks}
		t.batch = b
		w.batches = append(w.batches, b)
	}
	b.data = append(b.data, byte(event))
	b.data = binary.AppendUvarint(b.data, ticks-b.last)
	for _, a := range args {
		b.data = binary.AppendUvarint(b.data, a)
	}
	b.last, t.lastTicks = ticks, ticks
}

// stringID returns the id of a text in the table of strings, to which it adds a new one, cut to maxString bytes; 0 for "".
func (w *writer) stringID(s string) uint64 {
	if s = s[:min(len(s), maxString)]; s == "" {
		return 0
	}
	id, ok := w.stringIDs[s]
	if !ok {
		id = uint64(len(w.strings) + 1)
		w.stringIDs[s] = id
		w.strings = append(w.strings, s)
	}
	return id
}

// stackID returns the id in the trace of the recording's stack with an index, and marks it as used; 0 if there is none or it has no frames.
func (w *writer) stackID(index int) uint64 {
	if index <= 0 || index >= len(w.recording.Stacks) || len(w.recording.Stacks[index]) == 0 {
		return 0
	}
	w.usedStacks[index] = true
	return uint64(index)
}

// write writes the trace: the clock, the initial states, the events, and the tables of samples, stacks and strings.
func (w *writer) write(out io.Writer) error {
	b := bufio.NewWriter(out)
	b.WriteString(header)
	w.writeSync(b)
	for _, first := range w.initialBatches() {
		writeBatch(b, first)
	}
	for _, batch := range w.batches {
		writeBatch(b, batch)
	}
	w.writeSamples(b)
	w.writeStacks(b)
	w.writeStrings(b)
	return b.Flush()
}

// writeBatch writes a batch of a thread's events with its header.
func writeBatch(b *bufio.Writer, batch *batch) {
	h := []byte{byte(tracefmt.EvEventBatch)}
	for _, v := range []uint64{generation, batch.thread, batch.ticks, uint64(len(batch.data))} {
		h = binary.AppendUvarint(h, v)
	}
	b.Write(h)
	b.Write(batch.data)
}

// writeTable writes the entries of a table, each encoded, in batches.
func (w *writer) writeTable(b *bufio.Writer, kind tracefmt.EventType, entries [][]byte) {
	var data []byte
	flush := func() {
		if len(data) > 0 {
			writeBatch(b, &batch{thread: tracefmt.NoM, ticks: uint64(w.recording.Start) / unit, data: append([]byte{byte(kind)}, data...)})
		}
		data = nil
	}
	for _, e := range entries {
		if len(data)+len(e) > batchSize {
			flush()
		}
		data = append(data, e...)
	}
	flush()
}

// writeStrings writes the table of strings, with ids from 1.
func (w *writer) writeStrings(b *bufio.Writer) {
	var entries [][]byte
	for i, s := range w.strings {
		e := binary.AppendUvarint([]byte{byte(tracefmt.EvString)}, uint64(i+1))
		entries = append(entries, append(binary.AppendUvarint(e, uint64(len(s))), s...))
	}
	w.writeTable(b, tracefmt.EvStrings, entries)
}

// writeStacks writes the table of the stacks that events use, each with at most maxFrames frames. An id is the stack's index in
// the recording.
func (w *writer) writeStacks(b *bufio.Writer) {
	var entries [][]byte
	for i, stack := range w.recording.Stacks {
		if !w.usedStacks[i] {
			continue
		}
		stack = stack[:min(len(stack), maxFrames)]
		e := binary.AppendUvarint([]byte{byte(tracefmt.EvStack)}, uint64(i))
		e = binary.AppendUvarint(e, uint64(len(stack)))
		for _, f := range stack {
			for _, v := range []uint64{f.PC, w.stringID(f.Func), w.stringID(f.File), uint64(f.Line)} {
				e = binary.AppendUvarint(e, v)
			}
		}
		entries = append(entries, e)
	}
	w.writeTable(b, tracefmt.EvStacks, entries)
}

// writeSamples writes the table of CPU samples: the recording's events of kind Sample that have a stack.
func (w *writer) writeSamples(b *bufio.Writer) {
	var entries [][]byte
	for _, e := range w.recording.Events {
		if e.Kind != Sample {
			continue
		}
		if stack := w.stackID(e.Stack); stack != 0 {
			entry := []byte{byte(tracefmt.EvCPUSample)}
			for _, v := range []uint64{uint64(e.Time) / unit, e.Thread, ^uint64(0), e.G, stack} {
				entry = binary.AppendUvarint(entry, v)
			}
			entries = append(entries, entry)
		}
	}
	w.writeTable(b, tracefmt.EvCPUSamples, entries)
}

// writeSync writes the clock's frequency, and the wall clock at the start.
func (w *writer) writeSync(b *bufio.Writer) {
	r := w.recording
	data := []byte{byte(tracefmt.EvSync), byte(tracefmt.EvFrequency)}
	data = binary.AppendUvarint(data, frequency)
	data = append(data, byte(tracefmt.EvClockSnapshot))
	for _, v := range []uint64{0, uint64(r.Start), uint64(r.Wall.Unix()), uint64(r.Wall.Nanosecond())} {
		data = binary.AppendUvarint(data, v)
	}
	writeBatch(b, &batch{thread: tracefmt.NoM, ticks: uint64(r.Start) / unit, data: data})
}

// initialBatches returns batches with the states at the start: of Ps and of goroutines that no event created. It is nil without events.
func (w *writer) initialBatches() []*batch {
	if len(w.batches) == 0 {
		return nil
	}
	first := &writer{recording: w.recording}
	t := &thread{id: w.batches[0].thread}
	for id := range w.procs {
		first.add(t, w.recording.Start, tracefmt.EvProcStatus, uint64(id), tracefmt.ProcIdle)
	}
	existing := slices.SortedFunc(slices.Values(w.existing), func(a, b existingGoroutine) int { return int(a.id) - int(b.id) })
	for _, g := range existing {
		first.add(t, w.recording.Start, tracefmt.EvGoStatus, g.id, tracefmt.NoM, g.status)
	}
	return first.batches
}
