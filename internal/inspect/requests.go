package inspect

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/internal/request"
	"github.com/whylate/whylate/internal/summary"
)

// requestColumns holds requests, a row each: 34 bytes, and about 4 for each
// cause that it has.
type requestColumns struct {
	start   []int64
	latency []int64
	g       []uint64
	group   []int32 // a summary.GroupRef until finish, then an index in ids, or -1
	gen     []int32 // the window's last generation when it was walked
	flags   []uint8
	at      []uint32 // of its causes in bytes
	bytes   []byte   // cause, ns as varint, ...; 0xff ends the row
	parts   map[int32][]int64
	held    map[int32][]summary.Held // until finish

	ids     []string // of groups
	seen    int      // all that there were
	atLeast int64    // shorter ones were left out
}

const (
	flagOpen = 1 << iota
	flagCut
	kindShift = 4
)

func compareVisited(a, b visited) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End), cmp.Compare(a.G, b.G), cmp.Compare(a.Kind, b.Kind))
}

func (c *requestColumns) rows() int { return len(c.start) }

func (c *requestColumns) add(v *visited, gen int) {
	c.seen++
	lat := v.End - v.Start
	if lat < c.atLeast || len(c.bytes) > 1<<32-1<<12 {
		return
	}
	row := int32(len(c.start))
	c.start = append(c.start, v.Start)
	c.latency = append(c.latency, lat)
	c.g = append(c.g, v.G)
	c.group = append(c.group, int32(v.Group))
	c.gen = append(c.gen, int32(gen))
	f := uint8(v.Kind) << kindShift
	if v.Open {
		f |= flagOpen
	}
	if v.Cut {
		f |= flagCut
	}
	c.flags = append(c.flags, f)
	c.at = append(c.at, uint32(len(c.bytes)))
	c.encode(&v.Causes)
	if v.Held != nil {
		if c.held == nil {
			c.held = make(map[int32][]summary.Held)
		}
		c.held[row] = v.Held
	}
	if v.parts != nil {
		if c.parts == nil {
			c.parts = make(map[int32][]int64)
		}
		c.parts[row] = v.parts
	}
}

// encode appends a row's causes to bytes.
func (c *requestColumns) encode(causes *[summary.Causes]int64) {
	for k, ns := range causes {
		if ns > 0 {
			c.bytes = append(c.bytes, byte(k))
			c.bytes = binary.AppendUvarint(c.bytes, uint64(ns))
		}
	}
	c.bytes = append(c.bytes, 0xff)
}

// causes returns the ns of each cause of a row.
func (c *requestColumns) causes(row int32) (ns [summary.Causes]int64) {
	for b := c.bytes[c.at[row]:]; b[0] != 0xff; {
		v, n := binary.Uvarint(b[1:])
		ns[b[0]] = int64(v)
		b = b[1+n:]
	}
	return ns
}

// cause returns the ns of one cause of a row.
func (c *requestColumns) cause(row int32, k cause.Cause) int64 {
	for b := c.bytes[c.at[row]:]; b[0] != 0xff; {
		v, n := binary.Uvarint(b[1:])
		if b[0] == byte(k) {
			return int64(v)
		}
		b = b[1+n:]
	}
	return 0
}

// fit leaves the shortest requests out if there are more than most: half of
// them, so that it need not be done often.
func (c *requestColumns) fit(most int) {
	if c.rows() <= most {
		return
	}
	sorted := slices.Sorted(slices.Values(c.latency))
	c.filter(sorted[len(sorted)-most/2])
}

// filter leaves out the requests that took less than least.
func (c *requestColumns) filter(least int64) {
	c.atLeast = least
	var out requestColumns
	out.parts, out.seen, out.atLeast, out.ids = make(map[int32][]int64), c.seen, least, c.ids
	out.held = make(map[int32][]summary.Held)
	for i := range c.start {
		if c.latency[i] < least {
			continue
		}
		c.copyRow(&out, int32(i))
		if h := c.held[int32(i)]; h != nil {
			out.held[int32(out.rows()-1)] = h
		}
	}
	*c = out
}

func (c *requestColumns) copyRow(out *requestColumns, i int32) {
	if p, ok := c.parts[i]; ok {
		out.parts[int32(len(out.start))] = p
	}
	out.start = append(out.start, c.start[i])
	out.latency = append(out.latency, c.latency[i])
	out.g = append(out.g, c.g[i])
	out.group = append(out.group, c.group[i])
	out.gen = append(out.gen, c.gen[i])
	out.flags = append(out.flags, c.flags[i])
	out.at = append(out.at, uint32(len(out.bytes)))
	end := c.at[i]
	for ; c.bytes[end] != 0xff; end++ {
		for end++; c.bytes[end] >= 0x80; end++ {
		}
	}
	out.bytes = append(out.bytes, c.bytes[c.at[i]:end+1]...)
}

// finish gives the rows the groups of the report, and leaves out those of
// groups that it does not have.
func (c *requestColumns) finish(t *summary.Tables, view summary.View) {
	at := make(map[summary.GroupRef]int32)
	byID := make(map[string]int32)
	t.EachRef(view, func(id string, refs []summary.GroupRef) {
		k, ok := byID[id]
		if !ok {
			k = int32(len(c.ids))
			byID[id] = k
			c.ids = append(c.ids, id)
		}
		for _, r := range refs {
			at[r] = k
		}
	})
	// Their order must not depend on a map's.
	order := slices.Clone(c.ids)
	slices.Sort(order)
	for r, k := range at {
		i, _ := slices.BinarySearch(order, c.ids[k])
		at[r] = int32(i)
	}
	c.ids = order
	var out requestColumns
	out.parts, out.atLeast, out.ids = make(map[int32][]int64), c.atLeast, c.ids
	for i := range c.start {
		k, ok := at[summary.GroupRef(c.group[i])]
		if !ok {
			continue
		}
		c.group[i] = k
		c.copyRow(&out, int32(i))
		if held := c.held[int32(i)]; held != nil {
			causes := c.causes(int32(i))
			for _, h := range held {
				causes[t.Settled(h)] += h.NS
			}
			out.bytes = out.bytes[:out.at[out.rows()-1]]
			out.encode(&causes)
		}
	}
	out.seen = c.seen - (c.rows() - out.rows())
	*c = out
}

func (c *requestColumns) kind(row int32) request.Kind { return request.Kind(c.flags[row] >> kindShift) }
