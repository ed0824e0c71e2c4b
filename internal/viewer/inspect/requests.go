package inspect

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
)

// requestColumns holds requests, a row each: 34 bytes, and about 4 for each
// cause that it has.
type requestColumns struct {
	start   []int64
	latency []int64
	g       []uint64
	group   []int32 // a groupRef until finish, then an index in ids
	gen     []int32 // the window's last generation when it was walked
	flags   []uint8
	at      []uint32 // of its causes in bytes
	bytes   []byte   // code + 1 and ns as varints, ...; 0 ends the row
	parts   map[int32][]int64

	settled *cause.Settlement // of codes
	ids     []string          // of groups
	seen    int               // all that there were
	atLeast int64             // shorter ones were left out
}

const (
	flagOpen = 1 << iota
	flagCut
	kindShift = 4
)

func compareVisits(a, b visit) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.g, b.g), cmp.Compare(a.kind, b.kind))
}

func (c *requestColumns) rows() int { return len(c.start) }

func (c *requestColumns) add(v *visit, gen int) {
	c.seen++
	lat := v.end - v.start
	if lat < c.atLeast || len(c.bytes) > 1<<32-1<<12 {
		return
	}
	row := int32(len(c.start))
	c.start = append(c.start, v.start)
	c.latency = append(c.latency, lat)
	c.g = append(c.g, v.g)
	c.group = append(c.group, int32(v.group))
	c.gen = append(c.gen, int32(gen))
	f := uint8(v.kind) << kindShift
	if v.open {
		f |= flagOpen
	}
	if v.cut {
		f |= flagCut
	}
	c.flags = append(c.flags, f)
	c.at = append(c.at, uint32(len(c.bytes)))
	v.causes.Each(func(code cause.Code, ns int64) {
		c.bytes = binary.AppendUvarint(c.bytes, uint64(code)+1)
		c.bytes = binary.AppendUvarint(c.bytes, uint64(ns))
	})
	c.bytes = append(c.bytes, 0)
	if v.parts != nil {
		if c.parts == nil {
			c.parts = make(map[int32][]int64)
		}
		c.parts[row] = v.parts
	}
}

// eachSum calls f for every sum of a row, with its settled cause; there may be
// several of one cause.
func (c *requestColumns) eachSum(row int32, f func(k cause.Cause, ns int64)) {
	for b := c.bytes[c.at[row]:]; b[0] != 0; {
		code, n := binary.Uvarint(b)
		ns, m := binary.Uvarint(b[n:])
		b = b[n+m:]
		f(c.settled[code-1], int64(ns))
	}
}

// causes returns the ns of each cause of a row.
func (c *requestColumns) causes(row int32) (ns [cause.Causes]int64) {
	c.eachSum(row, func(k cause.Cause, v int64) { ns[k] += v })
	return ns
}

// cause returns the ns of one cause of a row.
func (c *requestColumns) cause(row int32, k cause.Cause) (ns int64) {
	c.eachSum(row, func(of cause.Cause, v int64) {
		if of == k {
			ns += v
		}
	})
	return ns
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
	for i := range c.start {
		if c.latency[i] < least {
			continue
		}
		c.copyRow(&out, int32(i))
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
	for c.bytes[end] != 0 {
		for range 2 { // code and ns
			for c.bytes[end] >= 0x80 {
				end++
			}
			end++
		}
	}
	out.bytes = append(out.bytes, c.bytes[c.at[i]:end+1]...)
}

// finish gives the rows the groups of the report, and leaves out those of
// groups that it does not have.
func (c *requestColumns) finish(buffers []*buffer, ts []path.Translation, ids map[path.GroupID]string, settled *cause.Settlement) {
	c.ids = slices.Compact(slices.Sorted(maps.Values(ids)))
	at := make(map[groupRef]int32)
	for i, b := range buffers {
		for from, to := range ts[i].Groups {
			if id, ok := ids[to]; ok {
				k, _ := slices.BinarySearch(c.ids, id)
				at[b.number<<refShift|groupRef(from)] = int32(k)
			}
		}
	}
	var out requestColumns
	out.parts, out.atLeast, out.ids, out.settled = make(map[int32][]int64), c.atLeast, c.ids, settled
	for i := range c.start {
		if k, ok := at[groupRef(c.group[i])]; ok {
			c.group[i] = k
			c.copyRow(&out, int32(i))
		}
	}
	out.seen = c.seen - (c.rows() - out.rows())
	*c = out
}

func (c *requestColumns) kind(row int32) request.Kind { return request.Kind(c.flags[row] >> kindShift) }
