package tracefmt

import (
	"errors"
	"fmt"
	"slices"
)

// LocalIDs maps the ids of one generation to those of a Symbols. Ids that the generation does not define map to 0.
type LocalIDs struct {
	dense   []uint32
	sparse  map[uint64]uint32
	empty   map[uint64]bool // ids defined as the empty string or stack
	defined int
}

// Get returns the id in the Symbols for id; 0 if the table does not define it.
func (l *LocalIDs) Get(id uint64) uint32 {
	if id < uint64(len(l.dense)) {
		return l.dense[id]
	}
	return l.sparse[id]
}

// Dense returns the mapped values of the ids 0, 1, 2, ... up to the first that is in the map.
func (l *LocalIDs) Dense() []uint32 { return l.dense }

// Any reports whether f returns true for any mapped value.
func (l *LocalIDs) Any(f func(v uint32) bool) bool {
	for _, v := range l.sparse {
		if f(v) {
			return true
		}
	}
	return slices.ContainsFunc(l.dense, f)
}

// Defines reports whether the generation defines id. 0, which means none, is always defined.
func (l *LocalIDs) Defines(id uint64) bool { return id == 0 || l.Get(id) != 0 || l.empty[id] }

// define maps the local id to v, an id of the Symbols. The runtime assigns dense ids from 1 on. Much larger ids are stored in a
// map, so that a hostile file cannot cause large allocations.
func (l *LocalIDs) define(id uint64, v uint32) {
	l.defined++
	if v == 0 {
		if l.empty == nil {
			l.empty = make(map[uint64]bool)
		}
		l.empty[id] = true
	}
	switch {
	case id < uint64(len(l.dense)):
		l.dense[id] = v
	case id < 4*uint64(l.defined)+1024:
		for uint64(len(l.dense)) <= id {
			l.dense = append(l.dense, l.sparse[uint64(len(l.dense))])
		}
		l.dense[id] = v
	default:
		if l.sparse == nil {
			l.sparse = make(map[uint64]uint32)
		}
		l.sparse[id] = v
	}
}

// Reset removes all ids and keeps memory for others.
func (l *LocalIDs) Reset() { *l = LocalIDs{dense: l.dense[:0]} }

// A Sample is one CPU profile sample. Its time is in clock units.
type Sample struct {
	Time    uint64
	M, P, G uint64
	Stack   StackID
}

// Tables are the tables of one generation, by its own ids.
type Tables struct {
	Strings LocalIDs // to StringID
	Stacks  LocalIDs // to StackID
	Samples []Sample

	frames []FrameID // reused by readStack
}

// Read reads the strings, stacks and CPU samples of generation g, and adds their entries to syms. t may be reused for another
// generation.
func (t *Tables) Read(g *Generation, syms *Symbols) error {
	t.Strings.Reset()
	t.Stacks.Reset()
	t.Samples = t.Samples[:0]
	for _, table := range []struct {
		batches, entries EventType
		entry            string
		read             func(c *cursor, syms *Symbols) error
	}{
		// Strings first: stacks refer to them.
		{EvStrings, EvString, "string", t.readString},
		{EvStacks, EvStack, "stack", t.readStack},
		{EvCPUSamples, EvCPUSample, "CPU sample", t.readSample},
	} {
		for c := range g.entries(table.batches) {
			if typ := c.nextType(); typ != table.entries {
				return fmt.Errorf("generation %d: %ss: a %s was expected, but there is an event of type %d", g.Num, table.entry, table.entry, typ)
			}
			if err := table.read(c, syms); err != nil {
				return fmt.Errorf("generation %d: %ss: %w", g.Num, table.entry, err)
			}
		}
	}
	return nil
}

var errCutTable = errors.New("a table's batch ends in the middle of an entry")

// readString reads one entry of a string table: its local id and text.
func (t *Tables) readString(c *cursor, syms *Symbols) error {
	id, size := c.nextUint(), c.nextUint()
	switch {
	case c.failed || size > uint64(len(c.data)-c.pos):
		return errCutTable
	case size > maxStringLength:
		return fmt.Errorf("a string claims %d bytes, more than the format allows (%d)", size, maxStringLength)
	}
	t.Strings.define(id, uint32(syms.internBytes(c.data[c.pos:c.pos+int(size)])))
	c.pos += int(size)
	return nil
}

// readStack reads one entry of a stack table: its local id and frames, whose strings must have been read. A stack with too many
// frames is an error.
func (t *Tables) readStack(c *cursor, syms *Symbols) error {
	id, count := c.nextUint(), c.nextUint()
	if count > maxFramesPerStack {
		return fmt.Errorf("a stack claims %d frames, more than the format allows (%d)", count, maxFramesPerStack)
	}
	t.frames = t.frames[:0]
	for range count {
		pc, fn, file, line := c.nextUint(), c.nextUint(), c.nextUint(), c.nextUint()
		t.frames = append(t.frames, syms.internFrame(Frame{
			PC: pc, Func: StringID(t.Strings.Get(fn)), File: StringID(t.Strings.Get(file)), Line: uint32(min(line, 1<<32-1)),
		}))
	}
	if c.failed {
		return errCutTable
	}
	t.Stacks.define(id, uint32(syms.internStack(t.frames)))
	return nil
}

// readSample appends one CPU sample to Samples, with its time in units of the trace's clock.
func (t *Tables) readSample(c *cursor, _ *Symbols) error {
	s := Sample{Time: c.nextUint(), M: c.nextUint(), P: c.nextUint(), G: c.nextUint(), Stack: StackID(t.Stacks.Get(c.nextUint()))}
	if c.failed {
		return errCutTable
	}
	t.Samples = append(t.Samples, s)
	return nil
}
