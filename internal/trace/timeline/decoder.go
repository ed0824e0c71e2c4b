package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Decoder turns the generations of a trace into Gens. It reads the next one
// when it has decoded one, with several workers; what it returns does not
// depend on their number.
type Decoder struct {
	Symbols *tracefmt.Symbols
	// Classify, if not nil, gives a stack flags; events with a flagged stack
	// become Marks. It is called once a stack.
	Classify func(tracefmt.StackID) uint8

	rd      *tracefmt.Reader
	tables  tracefmt.Tables
	workers []*worker
	pool    slabPool
	spare   []*Gen
	class   []uint8 // by global stack
	local   []uint8 // by local stack
	first   bool
	heads   []markHead
	ahead   chan readResult
	decoded chan struct{} // what was taken from ahead is not needed any more
	quit    chan struct{}
	done    error
	chains  chainIndex
	streams []found         // by chain
	stopped map[uint64]bool // goroutines that are stopping the world

	// What was noticed, over all generations.
	Orphans   int64
	LateTimes int64
	Irregular int64
	Unknown   int64
	badType   uint8 // the lowest unknown type met
	skips     int
}

type readResult struct {
	gen *tracefmt.Generation
	err error
}

// NewDecoder returns a decoder of what rd reads. Close must be called.
func NewDecoder(rd *tracefmt.Reader, workers int) *Decoder {
	d := newDecoder(workers)
	d.Symbols = tracefmt.NewSymbols()
	d.rd, d.first = rd, true
	// Bytes take as much room as a third of what is made of them, and to read them takes a fiftieth of the time.
	d.ahead, d.decoded, d.quit = make(chan readResult), make(chan struct{}, 1), make(chan struct{})
	go func() {
		for {
			g, err := rd.Next()
			select {
			case d.ahead <- readResult{g, err}:
			case <-d.quit:
				return
			}
			if err != nil {
				return
			}
			select {
			case <-d.decoded:
			case <-d.quit:
				return
			}
		}
	}()
	return d
}

const mostWorkers = 1 << 12

func newDecoder(workers int) *Decoder {
	d := &Decoder{}
	for i := range min(max(workers, 1), mostWorkers) {
		d.workers = append(d.workers, &worker{id: uint32(i), slabs: &d.pool})
	}
	return d
}

// Close stops reading. A Read of the source that is under way must be ended
// by closing the source.
func (d *Decoder) Close() {
	select {
	case <-d.quit:
	default:
		close(d.quit)
	}
}

// Next returns the next generation's timelines. At the end the error is
// io.EOF, or a *tracefmt.Error that says how the trace is cut or damaged.
// Generations that were skipped for their size come as nil without an error.
func (d *Decoder) Next() (*Gen, error) {
	if d.done != nil {
		return nil, d.done
	}
	select {
	case res, ok := <-d.ahead:
		return d.take(res, ok)
	case <-d.quit:
		return d.closed()
	}
}

func (d *Decoder) closed() (*Gen, error) {
	d.done = errors.New("reading a trace goes on after it was closed")
	return nil, d.done
}

// take decodes what was read ahead.
func (d *Decoder) take(res readResult, ok bool) (*Gen, error) {
	if !ok {
		return nil, fmt.Errorf("reading goes on after its end")
	}
	if res.err != nil {
		d.done = res.err
		return nil, res.err
	}
	defer func() {
		res.gen.Release()
		d.decoded <- struct{}{}
	}()
	if res.gen.Skipped {
		d.first = false
		d.skips++
		return nil, nil
	}
	g, err := d.decode(res.gen)
	if err != nil {
		if tracefmt.KindOf(err) == 0 {
			err = &tracefmt.Error{Kind: tracefmt.Damaged, Offset: res.gen.Offset, Text: "damaged trace: " + err.Error()}
		}
		d.done = err
		return nil, d.done
	}
	return g, nil
}

// Recycle hands a generation's memory back; it must not be used afterwards.
func (d *Decoder) Recycle(g *Gen) {
	d.pool.give(g)
	d.spare = append(d.spare, g)
}

// DropMarks takes the memory of a generation's marks for the next one, which may be decoded meanwhile. They must not be asked for again;
// EachMarked finds none.
func (d *Decoder) DropMarks(g *Gen) {
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	d.pool.marks, g.Marks = g.Marks, nil
	g.markBase = g.markBase[:0]
}

func (d *Decoder) newGen() *Gen {
	n := len(d.spare)
	if n == 0 {
		return new(Gen)
	}
	g := d.spare[n-1]
	d.spare = d.spare[:n-1]
	g.reset()
	return g
}

func (d *Decoder) decode(src *tracefmt.Generation) (*Gen, error) {
	g := d.newGen()
	d.tables.Strings, d.tables.Stacks = g.strings, g.stacks // for their memory
	err := d.tables.Read(src, d.Symbols)
	g.strings, g.stacks = d.tables.Strings, d.tables.Stacks
	if err != nil {
		return nil, err
	}
	g.ids.reset(src.Bytes)
	g.Num, g.Bytes, g.Offset, g.First = src.Num, src.Bytes, src.Offset, d.first
	d.first = false
	sc := tracefmt.NewScale(src.Freq)
	g.Base = sc.NS(src.MinTime)
	g.End = g.Base
	if src.HasSnapshot {
		s := src.Snapshot
		g.Snapshot = &s
		g.SnapshotTime = sc.NS(s.Time)
	}
	g.network = d.Symbols.Intern("network")
	g.networkLocal = math.MaxUint64
	if k := slices.Index(g.strings.Dense(), uint32(g.network)); k >= 0 {
		g.networkLocal = uint64(k)
	}
	flags, layout := d.classify(g), newLayout(sc, len(g.stacks.Dense()))

	d.chains.build(src)
	var nextChain atomic.Int32
	var bad atomic.Bool
	d.parallel(func(w *worker) {
		w.begin(g, flags, layout)
		for {
			k := int(nextChain.Add(1)) - 1
			if k >= len(d.chains.chains) || bad.Load() {
				return
			}
			c := &d.chains.chains[k]
			if !w.chain(int32(k), c.m, src, d.chains.batches[c.from:c.to], sc, g.Base) {
				bad.Store(true)
			}
		}
	})
	if bad.Load() {
		// Nothing is counted: how far the others came depends on the workers.
		d.Recycle(g)
		return nil, fmt.Errorf("generation %d: an event runs over the end of its batch", src.Num)
	}
	g.told = sized(g.told, len(d.workers))
	for _, w := range d.workers {
		g.told[w.id], w.told = w.told, nil
		g.Events += w.events
		g.orphans += w.orphans
		g.lateTimes += w.late
		if w.unknown > 0 && (d.Unknown == 0 || w.badType < d.badType) {
			d.badType = w.badType
		}
		d.Unknown += w.unknown
	}
	g.ids.seal()
	d.order()
	d.place(g)
	if src.Unmarked {
		if err := d.incomplete(src, g); err != nil {
			d.Recycle(g)
			return nil, &tracefmt.Error{Kind: tracefmt.Truncated, Offset: src.Offset + src.Bytes, Text: "the trace is cut: its last generation is not whole", Err: err}
		}
	}
	d.gather(g, sc)
	d.Orphans += g.orphans
	d.LateTimes += g.lateTimes
	d.Irregular += int64(len(g.irregular))
	return g, nil
}

// incomplete returns an error if a generation that nothing marks as whole
// visibly lacks something: a string or stack, or a thread's stream, so that a
// number is missing in a goroutine's life or the status of a P.
func (d *Decoder) incomplete(src *tracefmt.Generation, g *Gen) error {
	if err := d.tables.Missing(src); err != nil {
		return err
	}
	if g.orphans > 0 {
		return fmt.Errorf("%d events speak of a goroutine or P that was not introduced", g.orphans)
	}
	// Of several that lack something the lowest is named, so that the text does
	// not depend on the workers.
	known := make(map[uint32]bool)
	for _, w := range d.workers {
		for _, e := range w.procs {
			known[e.p] = known[e.p] || e.kind >= procStatus
		}
	}
	lacking := uint64(math.MaxUint64)
	for p, ok := range known {
		if !ok {
			lacking = min(lacking, uint64(p))
		}
	}
	if lacking != math.MaxUint64 {
		return fmt.Errorf("the status of P %d is missing", lacking)
	}
	// Goroutines whose numbers are dense have everything.
	seen := make(map[[2]uint32]bool)
	count, top := make(map[uint32]uint32), make(map[uint32]uint32)
	for _, w := range d.workers {
		for p := range w.pieces.from(0, w.pieces.n) {
			if key := [2]uint32{p.g, p.seq}; g.isIrregular(p.g) && !seen[key] {
				seen[key] = true
				count[p.g]++
				top[p.g] = max(top[p.g], p.seq)
			}
		}
	}
	for d, n := range count {
		if top[d] != n-1 {
			lacking = min(lacking, g.ids.ids[d])
		}
	}
	if lacking != math.MaxUint64 {
		return fmt.Errorf("a part of goroutine %d's life is missing", lacking)
	}
	return nil
}

// UnknownType returns an event type that was met but is not known, if any.
func (d *Decoder) UnknownType() (uint8, bool) { return d.badType, d.Unknown > 0 }

func (d *Decoder) classify(g *Gen) []uint8 {
	d.local = d.local[:0]
	if d.Classify == nil {
		return nil
	}
	for len(d.class) < d.Symbols.Stacks() {
		d.class = append(d.class, d.Classify(tracefmt.StackID(len(d.class))))
	}
	for _, id := range g.stacks.Dense() {
		d.local = append(d.local, d.class[id])
	}
	return d.local
}

func (w *worker) begin(g *Gen, flags []uint8, layout layout) {
	w.gen, w.ids, w.flags, w.layout = g, &g.ids, flags, layout
	w.slab, w.n, w.open = nil, 0, false
	if told := g.told[:cap(g.told)]; int(w.id) < len(told) {
		w.told = told[w.id][:0] // memory of an earlier generation
	}
	w.slabs.givePieces(&w.pieces)
	w.procs, w.heap = w.procs[:0], w.heap[:0]
	w.user, w.marks, w.extra, w.starts = w.user[:0], w.marks[:0], w.extra[:0], w.starts[:0]
	w.nobody, w.ranges = w.nobody[:0], w.ranges[:0]
	w.index, w.chains, w.holds = w.index[:0], w.chains[:0], w.holds[:0]
	clear(w.count)
	clear(w.pages[:])
	w.events, w.last, w.orphans, w.late, w.unknown = 0, 0, 0, 0, 0
}

// parallel runs f once a worker.
func (d *Decoder) parallel(f func(*worker)) {
	if len(d.workers) == 1 {
		f(d.workers[0])
		return
	}
	var wg sync.WaitGroup
	for _, w := range d.workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			f(w)
		}()
	}
	wg.Wait()
}

// A chain is a thread's batches in file order.
type chain struct {
	m        uint64
	from, to int32
	bytes    int
}

type chainIndex struct {
	chains  []chain
	batches []int32
	byM     map[uint64]int32
}

// build groups the batches by thread, largest thread first so that the
// workers end at about the same time.
func (c *chainIndex) build(src *tracefmt.Generation) {
	if c.byM == nil {
		c.byM = make(map[uint64]int32)
	}
	clear(c.byM)
	c.chains = c.chains[:0]
	for i := range src.Batches {
		b := &src.Batches[i]
		k, ok := c.byM[b.M]
		if !ok {
			k = int32(len(c.chains))
			c.byM[b.M] = k
			c.chains = append(c.chains, chain{m: b.M})
		}
		c.chains[k].to++
		c.chains[k].bytes += b.End - b.Off
	}
	n := int32(0)
	for k := range c.chains {
		ch := &c.chains[k]
		ch.from, n = n, n+ch.to
		ch.to = ch.from
	}
	c.batches = sized(c.batches, int(n))
	for i := range src.Batches {
		ch := &c.chains[c.byM[src.Batches[i].M]]
		c.batches[ch.to] = int32(i)
		ch.to++
	}
	slices.SortStableFunc(c.chains, func(a, b chain) int { return cmp.Compare(b.bytes, a.bytes) })
}

// found is where what was found in one stream stands: in the worker's lists.
type found struct {
	w        *worker
	from, to streamStart
}

// order lists the streams by chain. What is gathered in this order is the same
// whoever decoded which stream, in a damaged trace too, in which events that
// exclude each other say the same time or number.
func (d *Decoder) order() {
	n := len(d.chains.chains)
	d.streams = sized(d.streams, n)
	for _, w := range d.workers {
		for k, from := range w.chains {
			to := w.streamStart(0)
			if k+1 < len(w.chains) {
				to = w.chains[k+1]
			}
			d.streams[from.no] = found{w, from, to}
		}
	}
}

// place brings the pieces of each goroutine into order.
func (d *Decoder) place(g *Gen) {
	n := len(g.ids.ids)
	g.base = sized(g.base, n+1)
	g.starts = sized(g.starts, n)
	clear(g.starts)
	total := uint32(0)
	var odd []uint32 // goroutines whose pieces are not numbered 0..count-1
	for i := range n {
		var c tally
		for _, w := range d.workers {
			if i < len(w.count) {
				c.count += w.count[i].count
				c.top = max(c.top, w.count[i].top)
			}
		}
		g.base[i] = total
		total += c.count
		if c.count > 0 && c.top != c.count-1 {
			odd = append(odd, uint32(i))
		}
	}
	g.base[n] = total
	g.slots = sized(g.slots, int(total))
	isOdd := func(i uint32) bool { _, ok := slices.BinarySearch(odd, i); return ok }
	d.parallel(func(w *worker) {
		// Two workers never write one slot, except where a goroutine has a
		// number twice and another not at all; such slots are found below.
		k, of := int(w.id), len(d.workers)
		part := g.slots[len(g.slots)*k/of : len(g.slots)*(k+1)/of]
		clear(part)
	})
	d.parallel(func(w *worker) {
		if len(odd) == 0 {
			for p := range w.pieces.from(0, w.pieces.n) {
				g.slots[g.base[p.g]+p.seq] = slot{p.rec, p.owner, p.when}
			}
			return
		}
		for p := range w.pieces.from(0, w.pieces.n) {
			if at := g.base[p.g] + p.seq; at < g.base[p.g+1] && !isOdd(p.g) {
				g.slots[at] = slot{p.rec, p.owner, p.when}
			}
		}
	})
	for i := range n {
		for _, s := range g.slots[g.base[i]:g.base[i+1]] {
			if s.rec == 0 && (len(odd) == 0 || !isOdd(uint32(i))) {
				k, _ := slices.BinarySearch(odd, uint32(i))
				odd = slices.Insert(odd, k, uint32(i))
				break
			}
		}
	}
	g.irregular = odd
	if len(odd) > 0 {
		d.placeByTime(g, odd)
	}
	for _, st := range d.streams {
		for _, s := range st.w.starts[st.from.starts:st.to.starts] {
			g.starts[s.g] = s.stack
		}
	}
}

// placeByTime orders the pieces of goroutines whose numbers are not dense.
// That is so where an id comes back within one generation: callbacks from C
// threads reuse their goroutine, whose numbers then start again from 0
// (GoCreateSyscall ... GoDestroySyscall).
func (d *Decoder) placeByTime(g *Gen, odd []uint32) {
	byG := make(map[uint32][]piece, len(odd))
	for _, i := range odd {
		byG[i] = nil
	}
	for _, st := range d.streams {
		for p := range st.w.pieces.from(st.from.pieces, st.to.pieces) {
			if list, ok := byG[p.g]; ok {
				byG[p.g] = append(list, *p)
			}
		}
	}
	for i, list := range byG {
		// Stable: what one thread says at one time is in order.
		slices.SortStableFunc(list, func(a, b piece) int {
			return cmp.Or(cmp.Compare(g.record(a.rec).time(), g.record(b.rec).time()), cmp.Compare(a.seq, b.seq))
		})
		for k, p := range list {
			g.slots[g.base[i]+uint32(k)] = slot{p.rec, p.owner, p.when}
		}
	}
}

// NextContext is Next, but gives up waiting for bytes when ctx ends.
func (d *Decoder) NextContext(ctx context.Context) (*Gen, error) {
	if d.done == nil {
		select {
		case <-ctx.Done():
			d.done = context.Cause(ctx)
		default:
		}
	}
	if d.done != nil {
		return nil, d.done
	}
	select {
	case res, ok := <-d.ahead:
		return d.take(res, ok)
	case <-ctx.Done():
		d.done = context.Cause(ctx)
		return nil, d.done
	case <-d.quit:
		return d.closed()
	}
}
