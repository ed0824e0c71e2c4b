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
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/report"
)

// A requestColumns holds one row of 20 bytes for each request, and about 4 bytes for each of its causes.
type requestColumns struct {
	starts     numbers
	latencies  numbers
	goroutines numbers
	groups     column   // a groupRef until setGroups, then an index in ids
	details    texts    // see addedRequest.detail
	gens       []genRow // the generation of each row
	pieceEnds  map[int32][]path.PieceEnd

	settlement *cause.Settlement // cause of each code
	ids        []string          // ids of the groups
	queues     [][]*report.Queue // by the number of the group and of the wait, nil where the wait is no queue
	total      int               // number of requests in the trace
	minLatency int64             // shorter requests were left out
}

// A genRow states that rows from first on were walked when generation gen was the last one of the window.
type genRow struct{ first, gen int32 }

const (
	flagOpen = 1 << iota
	flagCut
	kindShift = 4
)

// An addedRequest is a request that an Adder received.
type addedRequest struct {
	group      groupRef
	kind       request.Kind
	start, end int64
	g          uint64
	// detail is a byte of flags and the causes: for each timeKey, its number + 1 and ns as varints; 0 ends them. If the
	// causes add up to the latency, the ns of the largest one are 0, and derived from the others.
	detail    []byte
	pieceEnds []path.PieceEnd // where a long request was divided into pieces for walking
}

// A timeKey is a cause's code and, times codeLimit, the number of the first hand-over wait that led to it: see waitNumbers. Only at
// the end of the trace it is known which waits are queues.
type timeKey uint64

const codeLimit = timeKey(len(cause.Settlement{}))

// A keyTime is a request's time of one key.
type keyTime struct {
	key timeKey
	ns  int64
}

// addTime adds ns to the time of a key in a short list, and returns the list.
func addTime(times []keyTime, key timeKey, ns int64) []keyTime {
	for i := range times {
		if times[i].key == key {
			times[i].ns += ns
			return times
		}
	}
	return append(times, keyTime{key, ns})
}

// appendDetail appends the kind and flags of a request and its times by key to b, encoded as the comment at addedRequest.detail
// describes.
func appendDetail(b []byte, r *request.Request, latency int64, times []keyTime) []byte {
	f := uint8(r.Kind) << kindShift
	if r.Open {
		f |= flagOpen
	}
	if r.CutAtStart {
		f |= flagCut
	}
	b = append(b, f)
	sum, longest := int64(0), keyTime{}
	for _, t := range times {
		if sum += t.ns; t.ns > longest.ns {
			longest = t
		}
	}
	for _, t := range times {
		switch {
		case t.key == longest.key && sum == latency:
			t.ns = 0
		case t.ns == 0:
			continue
		}
		b = binary.AppendUvarint(b, uint64(t.key)+1)
		b = binary.AppendUvarint(b, uint64(t.ns))
	}
	return append(b, 0)
}

func compareAdded(a, b addedRequest) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.g, b.g), cmp.Compare(a.kind, b.kind))
}

func (c *requestColumns) init() {
	c.starts.relative, c.goroutines.relative = true, true
	c.pieceEnds = make(map[int32][]path.PieceEnd)
}

func (c *requestColumns) rows() int { return c.starts.length }

func (c *requestColumns) start(row int32) int64 { return c.starts.get(row) }

func (c *requestColumns) latency(row int32) int64 { return c.latencies.get(row) }

func (c *requestColumns) goroutine(row int32) uint64 { return uint64(c.goroutines.get(row)) }

func (c *requestColumns) group(row int32) int32 { return int32(*c.groups.cell(row)) }

func (c *requestColumns) flags(row int32) uint8 { return c.details.bytesFrom(row)[0] }

func (c *requestColumns) kind(row int32) request.Kind { return request.Kind(c.flags(row) >> kindShift) }

// gen returns the last generation of the window in which a row was walked.
func (c *requestColumns) gen(row int32) int32 {
	return c.gens[sort.Search(len(c.gens), func(i int) bool { return c.gens[i].first > row })-1].gen
}

// add counts a request, and adds a row for it unless it is shorter than minLatency. gen is the index of the generation in which it was walked.
func (c *requestColumns) add(v *addedRequest, gen int) {
	c.total++
	if v.end-v.start < c.minLatency {
		return
	}
	c.append(int32(gen), v.start, v.end-v.start, int64(v.g), uint32(v.group), v.detail, v.pieceEnds)
}

// append adds a row for a request that began at start, took latency (both in ns) and ran on goroutine g; gen is the last
// generation of the window in which it was walked. It adds none if its details have no room.
func (c *requestColumns) append(gen int32, start, latency, g int64, group uint32, detail []byte, pieceEnds []path.PieceEnd) {
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
	if len(pieceEnds) > 0 {
		c.pieceEnds[row] = pieceEnds
	}
}

// eachCauseTime calls f for each cause of a row and its time in ns; it may call f several times for one cause.
func (c *requestColumns) eachCauseTime(row int32, f func(k cause.Cause, ns int64)) {
	var waits []*report.Queue // by number
	if len(c.queues) > 0 {
		waits = c.queues[c.group(row)]
	}
	remainder, remainderKey := c.latency(row), timeKey(0)
	var queuedTimes []keyTime
	add := func(key timeKey, ns int64) {
		if wait := int(key / codeLimit); wait < len(waits) && waits[wait] != nil {
			queuedTimes = append(queuedTimes, keyTime{key, ns})
			return
		}
		f(c.settlement[key%codeLimit], ns)
	}
	for b := c.details.bytesFrom(row)[1:]; b[0] != 0; {
		number, n := binary.Uvarint(b)
		ns, m := binary.Uvarint(b[n:])
		b = b[n+m:]
		if ns == 0 {
			remainderKey = timeKey(number)
			continue
		}
		remainder -= int64(ns)
		add(timeKey(number-1), int64(ns))
	}
	if remainderKey != 0 {
		add(remainderKey-1, remainder)
	}
	eachQueuedTime(queuedTimes, waits, func(key timeKey, ownNS, queuedNS int64) {
		f(c.settlement[key%codeLimit], ownNS)
		f(cause.Queue, queuedNS)
	})
}

// eachQueuedTime calls f for each time of one request in a queue (waits has the queues by number), divided into the request's own service time and
// the time in the queue.
func eachQueuedTime(times []keyTime, waits []*report.Queue, f func(key timeKey, ownNS, queuedNS int64)) {
	for i := range times {
		q, sum := waits[times[i].key/codeLimit], int64(0)
		for k := range times {
			if waits[times[k].key/codeLimit] == q {
				sum += times[k].ns
			}
		}
		ownNS := spell.OwnPart(times[i].ns, q.OwnNS, 1, sum)
		f(times[i].key, ownNS, times[i].ns-ownNS)
	}
}

// detail returns the encoded detail of a row: see addedRequest.detail.
func (c *requestColumns) detail(row int32) []byte {
	b := c.details.bytesFrom(row)
	end := 1
	for b[end] != 0 {
		for range 2 { // skip code and ns
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

// dropShortest keeps only the limit/2 longest requests (more if several are equally long) if there are more than limit, so that it is rarely
// necessary. From then on add leaves out shorter ones.
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

// filter removes the rows for which isKept is false. It frees the old chunks on the way, because there need not be
// memory for both.
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

// setGroups replaces each row's groupRef by the index of the report's group in c.ids, and removes rows whose group is not in the report. ts
// translates the groups of each buffer to those of the report, ids has their ids, and settled the causes of times that were still open.
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

// bytes returns their approximate memory.
func (c *requestColumns) bytes() int64 {
	return c.starts.bytes() + c.latencies.bytes() + c.goroutines.bytes() + c.groups.bytes() + c.details.bytes()
}
