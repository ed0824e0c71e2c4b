package timeline

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A worker decodes threads' streams into columns of its own.
type worker struct {
	id    uint32
	gen   *Gen
	ids   *goids
	slabs *slabPool

	slab   *slab
	slabID uint32
	n      uint32 // next free offset in slab

	pieces pieceList
	count  []tally // by dense goroutine
	procs  []procEvent
	heap   []HeapPoint
	user   []UserEvent
	marks  []Mark
	extra  []extraEvent
	nobody []nobodyWake
	index  []waypoint
	chains []streamStart
	holds  []hold
	ranges []rangeEvent
	starts []goStart // start functions of created goroutines
	told   []told
	open   bool // the last of told goes on
	pages  [512]struct {
		key  uint64 // page number + 1
		page *goidPage
	}

	layout  layout  // of the records
	flags   []uint8 // by local stack id
	events  int64
	last    int64 // the last time, since the generation's base
	orphans int64 // events that need a goroutine or P where there is none
	late    int64 // times that do not fit
	unknown int64 // events of an unknown type: the rest of a batch is lost
	badType uint8
}

// streamStart says where what a worker found in the stream of chain no begins
// in its lists.
type streamStart struct {
	no                                                                            int32
	pieces, procs, heap, user, marks, extra, nobody, index, holds, ranges, starts int
}

// streamStart returns the ends of the worker's lists.
func (w *worker) streamStart(no int32) streamStart {
	return streamStart{
		no: no, pieces: w.pieces.n, procs: len(w.procs), heap: len(w.heap), user: len(w.user), marks: len(w.marks), extra: len(w.extra),
		nobody: len(w.nobody), index: len(w.index), holds: len(w.holds), ranges: len(w.ranges), starts: len(w.starts),
	}
}

// tally counts a goroutine's pieces; if they are count and the highest
// sequence number is count-1, each has a place of its own.
type tally struct{ count, top uint32 }

type goStart struct{ g, stack uint32 }

// goidPage holds the dense ids of 256 neighbouring goroutine ids. Goroutine
// ids are nearly dense in a generation, so pages beat a map by far.
type goidPage [256]atomic.Uint32

type goids struct {
	mu    sync.Mutex
	pages map[uint64]*goidPage
	ids   []uint64 // by dense id; ids[0] is no goroutine
	spare []*goidPage
	// Ids that are not dense, which the runtime does not give, must not cost a
	// page each: beyond most pages, which follows from the bytes read, they go
	// to a map.
	most   int
	sparse map[uint64]uint32
	// Once all ids are given: the pages from number first on, without a map.
	first uint64
	row   []*goidPage
}

// seal prepares for lookups: where the pages are near each other, as they are
// but for the oldest goroutines, they are found by number.
func (t *goids) seal() {
	keys := slices.Sorted(maps.Keys(t.pages))
	// The longest tail of pages in which at least one number in four is used.
	i := 0
	for i < len(keys) && keys[len(keys)-1]-keys[i] > 4*uint64(len(keys)-i)+64 {
		i++
	}
	t.row = t.row[:0]
	if i == len(keys) {
		return
	}
	t.first = keys[i]
	for _, k := range keys[i:] {
		for uint64(len(t.row)) < k-t.first {
			t.row = append(t.row, nil)
		}
		t.row = append(t.row, t.pages[k])
	}
}

func (t *goids) reset(bytes int64) {
	t.most = 1024 + int(bytes/512)
	t.sparse = nil
	t.first, t.row = 0, t.row[:0]
	for _, p := range t.pages {
		clear(p[:])
		t.spare = append(t.spare, p)
	}
	clear(t.pages)
	if t.pages == nil {
		t.pages = make(map[uint64]*goidPage)
	}
	t.ids = append(t.ids[:0], 0)
	t.first, t.row = 0, t.row[:0]
}

func (t *goids) page(key uint64) *goidPage {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pages[key]
	if p == nil && len(t.pages) < t.most {
		if n := len(t.spare); n > 0 {
			p, t.spare = t.spare[n-1], t.spare[:n-1]
		} else {
			p = new(goidPage)
		}
		t.pages[key] = p
	}
	return p
}

func (t *goids) assign(p *goidPage, id uint64) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v := p[id&255].Load(); v != 0 {
		return v
	}
	v := uint32(len(t.ids))
	t.ids = append(t.ids, id)
	p[id&255].Store(v)
	return v
}

// lookup returns the dense id of a goroutine, 0 if the generation has none.
// It must not run beside assign.
func (t *goids) lookup(id uint64) uint32 {
	if k := id>>8 - t.first; k < uint64(len(t.row)) {
		if p := t.row[k]; p != nil {
			return p[id&255].Load()
		}
	} else if p := t.pages[id>>8]; p != nil {
		return p[id&255].Load()
	}
	if t.sparse == nil {
		return 0
	}
	return t.sparse[id]
}

func (t *goids) assignSparse(id uint64) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.sparse[id]
	if v == 0 {
		if t.sparse == nil {
			t.sparse = make(map[uint64]uint32)
		}
		v = uint32(len(t.ids))
		t.ids = append(t.ids, id)
		t.sparse[id] = v
	}
	return v
}

func (w *worker) dense(id uint64) uint32 {
	if id == 0 {
		return 0
	}
	e := &w.pages[(id>>8)&511]
	if e.key != id>>8+1 {
		p := w.ids.page(id >> 8)
		if p == nil {
			return w.ids.assignSparse(id)
		}
		e.key, e.page = id>>8+1, p
	}
	if v := e.page[id&255].Load(); v != 0 {
		return v
	}
	return w.ids.assign(e.page, id)
}

// readNumbers reads n numbers at b[i:], which has tracefmt.Pad readable bytes behind their end, into v, whose rest it clears. It
// returns where they end.
func readNumbers(v *[8]uint64, b []byte, i, n int) int {
	*v = [8]uint64{}
	for k := range n {
		switch c, d := b[i], b[i+1]; {
		case c < 0x80:
			v[k&7] = uint64(c)
			i++
		case d < 0x80:
			v[k&7] = uint64(c&0x7f) | uint64(d)<<7
			i += 2
		default:
			v[k&7], i = uvarintLong(b, i)
		}
	}
	return i
}

// uvarintLong takes eight bytes at once: the first byte without its high bit set ends the number; then three folds bring the
// groups of seven together.
func uvarintLong(b []byte, i int) (uint64, int) {
	v := binary.LittleEndian.Uint64(b[i:])
	stop := ^v & 0x8080808080808080
	if stop == 0 {
		return uvarintHuge(b, i)
	}
	n := bits.TrailingZeros64(stop)>>3 + 1
	v &= stop ^ (stop - 1)
	v = v&0x007f007f007f007f | v&0x7f007f007f007f00>>1
	v = v&0x00003fff00003fff | v&0x3fff00003fff0000>>2
	v = v&0x000000000fffffff | v&0x0fffffff00000000>>4
	return v, i + n
}

// uvarintHuge reads numbers of nine and ten bytes; one that is longer moves
// past every batch's end, which is seen there, but stays where five more
// numbers can be read without leaving the padding.
func uvarintHuge(b []byte, i int) (uint64, int) {
	v, n := binary.Uvarint(b[i:])
	if n <= 0 {
		return 0, len(b) - tracefmt.Pad + 8
	}
	return v, i + n
}

var argCounts = tracefmt.ArgCounts()

// enough is the room in a slab that decoding goes on with: for the records until the next waypoint, of which an event makes two at
// most, and for a link or an end.
const enough = waypointEvery + 4

// room makes sure that there is enough of it.
func (w *worker) room() {
	if w.slab != nil && slabSize-w.n >= enough {
		return
	}
	slab, id := w.slabs.take(w.gen, w.id)
	slab.layout = w.layout
	if w.slab != nil {
		w.slab.words[w.n] = uint64(kindLink)<<kindShift | uint64(id<<slabBits|1)<<tickShift
	}
	w.slab, w.slabID, w.n = slab, id<<slabBits, 1
}

// userStack returns the second word of an annotation's record: its stack.
func userStack(t tracefmt.EventType, y, z, u uint64) uint64 {
	switch t {
	case tracefmt.EvUserTaskEnd:
		return y & 0xffffffff
	case tracefmt.EvUserRegionBegin, tracefmt.EvUserRegionEnd:
		return z & 0xffffffff
	}
	return u & 0xffffffff
}

func (w *worker) piece(g, seq uint32, at ref, owner uint32, t int64) *piece {
	l := &w.pieces
	k := l.n % pieceChunk
	if k == 0 {
		l.chunks = append(l.chunks, w.slabs.takePieces())
	}
	l.n++
	p := &l.chunks[len(l.chunks)-1][k]
	*p = piece{g, seq, at, owner, whenOf(t)}
	if int(g) >= len(w.count) {
		w.growCount(g)
	}
	c := &w.count[g]
	c.count++
	if seq > c.top {
		c.top = seq
	}
	return p
}

func (w *worker) growCount(g uint32) {
	n := max(2*len(w.count), int(g)+1024)
	grown := make([]tally, n)
	copy(grown, w.count)
	w.count = grown
}
