package inspect

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
)

// requestColumns holds requests, a row each: 20 bytes, and about 4 for each
// cause that it has.
type requestColumns struct {
	starts    numbers
	latencies numbers
	gs        numbers
	groups    column   // a groupRef until finish, then an index in ids
	details   texts    // see visit.detail
	gens      []genRow // which rows are of which generation, in order
	parts     map[int32][]int64

	settled *cause.Settlement // of codes
	ids     []string          // of groups
	seen    int               // all that there were
	atLeast int64             // shorter ones were left out
}

// A genRow says that rows from first on were walked when generation gen was the window's last.
type genRow struct{ first, gen int32 }

const (
	flagOpen = 1 << iota
	flagCut
	kindShift = 4
)

// A visit is a request as it was added up.
type visit struct {
	group      groupRef
	kind       request.Kind
	start, end int64
	g          uint64
	// detail is a byte of flags and the sums, as code + 1 and ns as varints, ...; 0 ends them. Of what most time went to the ns are 0 if
	// they are what the others leave of the latency.
	detail []byte
	parts  []int64 // the borders at which a long request was cut to be walked
}

// appendDetail appends what a visit's detail is.
func appendDetail(b []byte, r *request.Request, latency int64, causes *cause.TimeByCode) []byte {
	f := uint8(r.Kind) << kindShift
	if r.Open {
		f |= flagOpen
	}
	if r.CutAtStart {
		f |= flagCut
	}
	b = append(b, f)
	sum, most, of := int64(0), int64(0), cause.Code(0)
	causes.EachCode(func(code cause.Code, ns int64) {
		if sum += ns; ns > most {
			most, of = ns, code
		}
	})
	causes.EachCode(func(code cause.Code, ns int64) {
		switch {
		case code == of && sum == latency:
			ns = 0
		case ns == 0:
			return
		}
		b = binary.AppendUvarint(b, uint64(code)+1)
		b = binary.AppendUvarint(b, uint64(ns))
	})
	return append(b, 0)
}

func compareVisits(a, b visit) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.g, b.g), cmp.Compare(a.kind, b.kind))
}

func (c *requestColumns) init() {
	c.starts.relative, c.gs.relative = true, true
	c.parts = make(map[int32][]int64)
}

func (c *requestColumns) rows() int { return c.starts.n }

func (c *requestColumns) start(row int32) int64 { return c.starts.get(row) }

func (c *requestColumns) latency(row int32) int64 { return c.latencies.get(row) }

func (c *requestColumns) g(row int32) uint64 { return uint64(c.gs.get(row)) }

func (c *requestColumns) group(row int32) int32 { return int32(*c.groups.at(row)) }

func (c *requestColumns) flags(row int32) uint8 { return c.details.at(row)[0] }

func (c *requestColumns) kind(row int32) request.Kind { return request.Kind(c.flags(row) >> kindShift) }

// gen returns the window's last generation when a row was walked.
func (c *requestColumns) gen(row int32) int32 {
	return c.gens[sort.Search(len(c.gens), func(i int) bool { return c.gens[i].first > row })-1].gen
}

func (c *requestColumns) add(v *visit, gen int) {
	c.seen++
	if v.end-v.start < c.atLeast {
		return
	}
	c.append(int32(gen), v.start, v.end-v.start, int64(v.g), uint32(v.group), v.detail, v.parts)
}

func (c *requestColumns) append(gen int32, start, latency, g int64, group uint32, detail []byte, parts []int64) {
	if !c.details.add(detail) {
		return
	}
	row := int32(c.rows())
	if n := len(c.gens); n == 0 || c.gens[n-1].gen != gen {
		c.gens = append(c.gens, genRow{row, gen})
	}
	c.starts.add(start)
	c.latencies.add(latency)
	c.gs.add(g)
	c.groups.add(group)
	if len(parts) > 0 {
		c.parts[row] = parts
	}
}

// eachSum calls f for every sum of a row, with its settled cause; there may be
// several of one cause.
func (c *requestColumns) eachSum(row int32, f func(k cause.Cause, ns int64)) {
	left, rest := c.latency(row), cause.Code(0)
	for b := c.details.at(row)[1:]; b[0] != 0; {
		code, n := binary.Uvarint(b)
		ns, m := binary.Uvarint(b[n:])
		b = b[n+m:]
		if ns == 0 {
			rest = cause.Code(code)
			continue
		}
		left -= int64(ns)
		f(c.settled[code-1], int64(ns))
	}
	if rest != 0 {
		f(c.settled[rest-1], left)
	}
}

// detail returns what a visit's detail was.
func (c *requestColumns) detail(row int32) []byte {
	b := c.details.at(row)
	end := 1
	for b[end] != 0 {
		for range 2 { // code and ns
			for b[end] >= 0x80 {
				end++
			}
			end++
		}
	}
	return b[:end+1]
}

// causes returns the ns of each cause of a row.
func (c *requestColumns) causes(row int32) (ns [cause.Limit]int64) {
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
	sorted := make([]int64, c.rows())
	for i := range sorted {
		sorted[i] = c.latency(int32(i))
	}
	slices.Sort(sorted)
	c.atLeast = sorted[len(sorted)-most/2]
	c.keep(func(row int32) bool { return c.latency(row) >= c.atLeast })
}

// keep leaves out the rows that it is not told to keep. What was read is given back on the way: there need not be room for both.
func (c *requestColumns) keep(which func(row int32) bool) {
	out := requestColumns{settled: c.settled, ids: c.ids, seen: c.seen, atLeast: c.atLeast}
	out.init()
	for i := range int32(c.rows()) {
		if which(i) {
			out.append(c.gen(i), c.start(i), c.latency(i), c.gs.get(i), *c.groups.at(i), c.detail(i), c.parts[i])
		}
		if i&chunkMask == chunkMask {
			k := i >> chunkBits
			c.starts.chunks[k], c.latencies.chunks[k], c.gs.chunks[k], c.groups.chunks[k] = nil, nil, nil, nil
			c.details.release(i)
		}
	}
	*c = out
}

// finish gives the rows the groups of the report, and leaves out those of
// groups that it does not have.
func (c *requestColumns) finish(buffers []*buffer, ts []path.Translation, ids map[path.GroupID]string, settled *cause.Settlement) {
	c.ids, c.settled = slices.Compact(slices.Sorted(maps.Values(ids))), settled
	at := make(map[groupRef]int32)
	for i, b := range buffers {
		for from, to := range ts[i].Groups {
			if id, ok := ids[to]; ok {
				k, _ := slices.BinarySearch(c.ids, id)
				at[b.number<<refShift|groupRef(from)] = int32(k)
			}
		}
	}
	const none = 1<<32 - 1
	rows, left := int32(c.rows()), 0
	for i := range rows {
		group := c.groups.at(i)
		if k, ok := at[groupRef(*group)]; ok {
			*group = uint32(k)
		} else {
			*group = none
			left++
		}
	}
	if left > 0 {
		c.seen -= left
		c.keep(func(row int32) bool { return *c.groups.at(row) != none })
	}
}

// bytes is about what they take.
func (c *requestColumns) bytes() int64 {
	return c.starts.bytes() + c.latencies.bytes() + c.gs.bytes() + c.groups.bytes() + c.details.bytes()
}
