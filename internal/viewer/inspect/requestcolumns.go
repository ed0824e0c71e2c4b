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
	starts     numbers
	latencies  numbers
	goroutines numbers
	groups     column   // a groupRef until finish, then an index in ids
	details    texts    // see visit.detail
	gens       []genRow // which rows are of which generation, in order
	pieceEnds  map[int32][]int64

	settlement *cause.Settlement // of codes
	ids        []string          // of groups
	total      int               // all that there were
	minLatency int64             // shorter ones were left out
}

// A genRow says that rows from first on were walked when generation gen was the window's last.
type genRow struct{ first, gen int32 }

const (
	flagOpen = 1 << iota
	flagCut
	kindShift = 4
)

// A visit is a request as it was added up.
type addedRequest struct {
	group      groupRef
	kind       request.Kind
	start, end int64
	g          uint64
	// detail is a byte of flags and the sums, as code + 1 and ns as varints, ...; 0 ends them. Of what most time went to the ns are 0 if
	// they are what the others leave of the latency.
	detail    []byte
	pieceEnds []int64 // the borders at which a long request was cut to be walked
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
	sum, longest, longestCode := int64(0), int64(0), cause.Code(0)
	causes.EachCode(func(code cause.Code, ns int64) {
		if sum += ns; ns > longest {
			longest, longestCode = ns, code
		}
	})
	causes.EachCode(func(code cause.Code, ns int64) {
		switch {
		case code == longestCode && sum == latency:
			ns = 0
		case ns == 0:
			return
		}
		b = binary.AppendUvarint(b, uint64(code)+1)
		b = binary.AppendUvarint(b, uint64(ns))
	})
	return append(b, 0)
}

func compareAdded(a, b addedRequest) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.g, b.g), cmp.Compare(a.kind, b.kind))
}

func (c *requestColumns) init() {
	c.starts.relative, c.goroutines.relative = true, true
	c.pieceEnds = make(map[int32][]int64)
}

func (c *requestColumns) rows() int { return c.starts.length }

func (c *requestColumns) start(row int32) int64 { return c.starts.get(row) }

func (c *requestColumns) latency(row int32) int64 { return c.latencies.get(row) }

func (c *requestColumns) goroutine(row int32) uint64 { return uint64(c.goroutines.get(row)) }

func (c *requestColumns) group(row int32) int32 { return int32(*c.groups.cell(row)) }

func (c *requestColumns) flags(row int32) uint8 { return c.details.bytesFrom(row)[0] }

func (c *requestColumns) kind(row int32) request.Kind { return request.Kind(c.flags(row) >> kindShift) }

// gen returns the window's last generation when a row was walked.
func (c *requestColumns) gen(row int32) int32 {
	return c.gens[sort.Search(len(c.gens), func(i int) bool { return c.gens[i].first > row })-1].gen
}

func (c *requestColumns) add(v *addedRequest, gen int) {
	c.total++
	if v.end-v.start < c.minLatency {
		return
	}
	c.append(int32(gen), v.start, v.end-v.start, int64(v.g), uint32(v.group), v.detail, v.pieceEnds)
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
	c.goroutines.add(g)
	c.groups.add(group)
	if len(parts) > 0 {
		c.pieceEnds[row] = parts
	}
}

// eachCauseTime calls f for every sum of a row, with its settled cause; there may be
// several of one cause.
func (c *requestColumns) eachCauseTime(row int32, f func(k cause.Cause, ns int64)) {
	remainder, remainderCode := c.latency(row), cause.Code(0)
	for b := c.details.bytesFrom(row)[1:]; b[0] != 0; {
		code, n := binary.Uvarint(b)
		ns, m := binary.Uvarint(b[n:])
		b = b[n+m:]
		if ns == 0 {
			remainderCode = cause.Code(code)
			continue
		}
		remainder -= int64(ns)
		f(c.settlement[code-1], int64(ns))
	}
	if remainderCode != 0 {
		f(c.settlement[remainderCode-1], remainder)
	}
}

// detail returns what a visit's detail was.
func (c *requestColumns) detail(row int32) []byte {
	b := c.details.bytesFrom(row)
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

// causeTimes returns the ns of each cause of a row.
func (c *requestColumns) causeTimes(row int32) (ns [cause.Limit]int64) {
	c.eachCauseTime(row, func(k cause.Cause, v int64) { ns[k] += v })
	return ns
}

// causeTime returns the ns of one cause of a row.
func (c *requestColumns) causeTime(row int32, k cause.Cause) (ns int64) {
	c.eachCauseTime(row, func(rowCause cause.Cause, v int64) {
		if rowCause == k {
			ns += v
		}
	})
	return ns
}

// dropShortest leaves the shortest requests out if there are more than most: half of
// them, so that it need not be done often.
func (c *requestColumns) dropShortest(limit int) {
	if c.rows() <= limit {
		return
	}
	sorted := make([]int64, c.rows())
	for i := range sorted {
		sorted[i] = c.latency(int32(i))
	}
	slices.Sort(sorted)
	c.minLatency = sorted[len(sorted)-limit/2]
	c.filter(func(row int32) bool { return c.latency(row) >= c.minLatency })
}

// filter leaves out the rows that it is not told to keep. What was read is given back on the way: there need not be room for both.
func (c *requestColumns) filter(isKept func(row int32) bool) {
	out := requestColumns{settlement: c.settlement, ids: c.ids, total: c.total, minLatency: c.minLatency}
	out.init()
	for i := range int32(c.rows()) {
		if isKept(i) {
			out.append(c.gen(i), c.start(i), c.latency(i), c.goroutines.get(i), *c.groups.cell(i), c.detail(i), c.pieceEnds[i])
		}
		if i&chunkMask == chunkMask {
			k := i >> chunkBits
			c.starts.chunks[k], c.latencies.chunks[k], c.goroutines.chunks[k], c.groups.chunks[k] = nil, nil, nil, nil
			c.details.release(i)
		}
	}
	*c = out
}

// setGroups gives the rows the groups of the report, and leaves out those of
// groups that it does not have.
func (c *requestColumns) setGroups(buffers []*buffer, ts []path.Translation, ids map[path.GroupID]string, settled *cause.Settlement) {
	c.ids, c.settlement = slices.Compact(slices.Sorted(maps.Values(ids))), settled
	groupIndex := make(map[groupRef]int32)
	for i, b := range buffers {
		for from, to := range ts[i].Groups {
			if id, ok := ids[to]; ok {
				k, _ := slices.BinarySearch(c.ids, id)
				groupIndex[b.number<<refShift|groupRef(from)] = int32(k)
			}
		}
	}
	const noGroup = 1<<32 - 1
	rows, dropped := int32(c.rows()), 0
	for i := range rows {
		group := c.groups.cell(i)
		if k, ok := groupIndex[groupRef(*group)]; ok {
			*group = uint32(k)
		} else {
			*group = noGroup
			dropped++
		}
	}
	if dropped > 0 {
		c.total -= dropped
		c.filter(func(row int32) bool { return *c.groups.cell(row) != noGroup })
	}
}

// bytes is about what they take.
func (c *requestColumns) bytes() int64 {
	return c.starts.bytes() + c.latencies.bytes() + c.goroutines.bytes() + c.groups.bytes() + c.details.bytes()
}
