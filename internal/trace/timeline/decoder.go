package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/workers"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Decoder converts the generations of a trace to Gens. It reads the next generation while the caller uses the last one, and
// decodes it with several workers. Its results do not depend on the number of workers.
type Decoder struct {
	Symbols *tracefmt.Symbols
	// Classify, if not nil, returns the flags of a stack. Events with a flagged stack become Marks. It is
	// called once for each stack.
	Classify func(tracefmt.StackID) uint8
	// KeepsGenerations keeps the generations that Next returns, until Rewind is called without it.
	KeepsGenerations bool

	kept, repeated     []*Gen // the generations that Next has returned, and those to return again
	reader             *tracefmt.Reader
	tables             tracefmt.Tables
	workers            []*worker
	pool               slabPool
	spareGens          []*Gen
	globalFlags        []uint8 // for each stack of the symbols
	localFlags         []uint8 // for each stack of the generation
	hasTracked         bool    // one of globalFlags has FlagTracked
	nextIsFirst        bool
	reads              chan readResult
	generationReleased chan struct{} // the generation received from reads is no longer needed
	quit               chan struct{}
	finalErr           error
	threadLists        []threadLists   // of each thread
	stoppingWorld      map[uint64]bool // goroutines that stop the world as the last decoded generation ends

	// Orphans, LateTimes and Unknown count irregular events of all generations: events that refer to a
	// goroutine or P which the stream did not introduce, times beyond timeMax, and event types that this
	// package does not know.
	Orphans           int64
	LateTimes         int64
	Unknown           int64
	lowestUnknownType uint8 // the lowest of the unknown types
}

type readResult struct {
	gen *tracefmt.Generation
	err error
}

// NewDecoder returns a Decoder of the generations that rd reads, and starts to read the first one. The caller must call Close.
func NewDecoder(rd *tracefmt.Reader, workers int) *Decoder {
	d := newDecoder(workers)
	d.Symbols = tracefmt.NewSymbols()
	d.reader, d.nextIsFirst = rd, true
	// Only one generation is read in advance: its bytes take a third of the memory of the decoded generation,
	// and reading them takes a fiftieth of the time.
	d.reads, d.generationReleased, d.quit = make(chan readResult), make(chan struct{}, 1), make(chan struct{})
	go func() {
		for {
			g, err := rd.Next()
			select {
			case d.reads <- readResult{g, err}:
			case <-d.quit:
				return
			}
			if err != nil {
				return
			}
			select {
			case <-d.generationReleased:
			case <-d.quit:
				return
			}
		}
	}()
	return d
}

const maxWorkers = 1 << 12

// newDecoder returns a Decoder without a reader.
func newDecoder(workers int) *Decoder {
	d := &Decoder{}
	for i := range min(max(workers, 1), maxWorkers) {
		d.workers = append(d.workers, &worker{id: uint32(i), slabs: &d.pool})
	}
	return d
}

// Close ends the reading in advance. It does not interrupt a Read of the source; the caller must close the source
// for that.
func (d *Decoder) Close() {
	select {
	case <-d.quit:
	default:
		close(d.quit)
	}
}

// Next returns the next generation. At the end of the trace the error is io.EOF; for a truncated or damaged trace it is a
// *tracefmt.Error with the details; after a cancellation it is the cause of ctx. For a generation that was skipped because of
// its size, both results are nil.
func (d *Decoder) Next(ctx context.Context) (*Gen, error) {
	if len(d.repeated) > 0 && ctx.Err() == nil {
		g := d.repeated[0]
		d.repeated = d.repeated[1:]
		return g, nil
	}
	d.finalErr = cmp.Or(d.finalErr, context.Cause(ctx))
	if d.finalErr != nil {
		return nil, d.finalErr
	}
	var read readResult
	select {
	case read = <-d.reads:
		d.finalErr = read.err
	case <-ctx.Done():
		d.finalErr = context.Cause(ctx)
	case <-d.quit:
		d.finalErr = errors.New("reading a trace goes on after it was closed")
	}
	if d.finalErr != nil {
		d.workers, d.spareGens = nil, nil // no generation needs memory anymore
		d.pool.drop()
		return nil, d.finalErr
	}
	if read.gen.Skipped {
		d.release(read.gen)
		d.nextIsFirst = false
		d.keep(nil)
		return nil, nil
	}
	g, err := d.decode(read.gen)
	if err != nil && tracefmt.KindOf(err) == 0 {
		err = &tracefmt.Error{Kind: tracefmt.Damaged, Offset: read.gen.Offset, Text: "damaged trace: " + err.Error()}
	}
	d.finalErr = err
	if err == nil {
		d.keep(g)
	}
	return g, err
}

// release returns the bytes of a generation, which then is decoded, to its reader, which reads the next one.
func (d *Decoder) release(src *tracefmt.Generation) {
	src.Release()
	if d.reads != nil {
		d.generationReleased <- struct{}{}
	}
}

// keep keeps a generation for Rewind; nil represents one that was skipped.
func (d *Decoder) keep(g *Gen) {
	if d.KeepsGenerations {
		d.kept = append(d.kept, g)
	}
}

// Rewind makes Next return the kept generations again, before those that it has not decoded yet. They must not have been recycled.
// Symbols keeps what later generations added.
func (d *Decoder) Rewind() {
	d.repeated = d.kept
	if !d.KeepsGenerations {
		d.kept = nil
	}
}

// Recycle returns the memory of a generation for reuse; the caller must not use g afterwards.
func (d *Decoder) Recycle(g *Gen) {
	d.pool.returnSlabs(g)
	d.spareGens = append(d.spareGens, g)
}

// newGen returns an empty Gen, in recycled memory if there is some.
func (d *Decoder) newGen() *Gen {
	n := len(d.spareGens)
	if n == 0 {
		return new(Gen)
	}
	g := d.spareGens[n-1]
	d.spareGens = d.spareGens[:n-1]
	g.reset()
	return g
}

// decode decodes one generation: its tables, the streams of all threads (on all workers), and then the index of pieces and the
// lists of other events. It releases the generation's bytes, and returns an error if they are damaged or visibly incomplete.
func (d *Decoder) decode(src *tracefmt.Generation) (*Gen, error) {
	g := d.newGen()
	d.tables.Strings, d.tables.Stacks = g.strings, g.stacks // to reuse their memory
	err := d.tables.Read(src, d.Symbols)
	g.strings, g.stacks = d.tables.Strings, d.tables.Stacks
	if err != nil {
		return nil, err
	}
	g.ids.reset(src.Bytes)
	g.Num, g.Bytes, g.Offset, g.First = src.Num, src.Bytes, src.Offset, d.nextIsFirst
	d.nextIsFirst = false
	sc := tracefmt.NewScale(src.Freq)
	g.Base = sc.NS(src.MinTime)
	g.End = g.Base // raised below to the time of the last event
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
	networkIDs := 0
	g.strings.Any(func(v uint32) bool {
		if v == uint32(g.network) {
			networkIDs++
		}
		return false
	})
	if networkIDs == 0 || networkIDs == 1 && g.networkLocal != math.MaxUint64 {
		g.otherWait = otherWaitBit
	}
	flags, layout := d.classify(g), newLayout(sc, len(g.stacks.Dense()))

	threads := groupByThread(src)
	d.threadLists = make([]threadLists, len(threads))
	var next atomic.Int32
	var malformed atomic.Bool
	d.onEachWorker(func(w *worker) {
		w.beginGeneration(g, flags, layout)
		for !malformed.Load() {
			k := int(next.Add(1)) - 1
			if k >= len(threads) {
				return
			}
			before := w.threadLists
			w.m = threads[k].m
			if !w.decodeStream(src, threads[k].batches, sc, g.Base) {
				malformed.Store(true)
			}
			d.threadLists[k] = w.threadLists.addedSince(&before)
		}
	})
	if malformed.Load() {
		// Counters stay unchanged: how many events the other workers decoded depends on their number.
		d.Recycle(g)
		return nil, fmt.Errorf("generation %d: an event runs over the end of its batch", src.Num)
	}
	g.tracked = entry.Resize(g.tracked, len(d.workers))
	late, orphans := int64(0), int64(0)
	for _, w := range d.workers {
		g.tracked[w.id], w.tracked = w.tracked, nil
		g.Events += w.events
		g.End = max(g.End, g.Base+w.last)
		orphans += w.orphans
		late += w.lateTimes
		if w.unknownTypes > 0 && (d.Unknown == 0 || w.lowestUnknownType < d.lowestUnknownType) {
			d.lowestUnknownType = w.lowestUnknownType
		}
		d.Unknown += w.unknownTypes
	}
	g.ids.seal()
	if src.Unmarked {
		err = d.tables.CheckDefined(src)
	}
	d.release(src) // pieces need as much memory
	d.placePieces(g)
	if src.Unmarked {
		if err = cmp.Or(err, d.checkComplete(g, orphans)); err != nil {
			d.Recycle(g)
			return nil, &tracefmt.Error{Kind: tracefmt.Truncated, Offset: src.Offset + src.Bytes, Text: "the trace is cut: its last generation is not whole", Err: err}
		}
	}
	d.gatherLists(g, sc)
	d.threadLists = nil
	for _, w := range d.workers {
		w.pieces = pieceList{} // they have most of the decoder's memory, and until the next generation other work can use it
	}
	d.Orphans += orphans
	d.LateTimes += late
	return g, nil
}

// UnknownType returns the lowest event type that occurred but is not known, if there is one.
func (d *Decoder) UnknownType() (uint8, bool) { return d.lowestUnknownType, d.Unknown > 0 }

// classify returns the flags of the generation's stacks by their local ids, from Classify; nil without it.
func (d *Decoder) classify(g *Gen) []uint8 {
	d.localFlags = d.localFlags[:0]
	if d.Classify == nil {
		return nil
	}
	for len(d.globalFlags) < d.Symbols.Stacks() {
		flags := d.Classify(tracefmt.StackID(len(d.globalFlags)))
		d.hasTracked = d.hasTracked || flags&FlagTracked != 0
		d.globalFlags = append(d.globalFlags, flags)
	}
	g.mayHaveTracked = d.hasTracked
	for _, id := range g.stacks.Dense() {
		d.localFlags = append(d.localFlags, d.globalFlags[id])
	}
	return d.localFlags
}

// A thread lists the batches of one thread in file order.
type thread struct {
	m       uint64
	batches []int32
	bytes   int
}

// groupByThread returns the threads with their batches. The thread with the most bytes comes first, so that all workers end at
// about the same time.
func groupByThread(src *tracefmt.Generation) []thread {
	var threads []thread
	threadIndex := make(map[uint64]int)
	for i := range src.Batches {
		b := &src.Batches[i]
		k, ok := threadIndex[b.M]
		if !ok {
			k = len(threads)
			threadIndex[b.M] = k
			threads = append(threads, thread{m: b.M})
		}
		threads[k].batches = append(threads[k].batches, int32(i))
		threads[k].bytes += len(b.Data)
	}
	slices.SortStableFunc(threads, func(a, b thread) int { return cmp.Compare(b.bytes, a.bytes) })
	return threads
}

// onEachWorker calls f for each worker, concurrently, and waits for all calls.
func (d *Decoder) onEachWorker(f func(*worker)) {
	workers.Share(len(d.workers), len(d.workers), 1, func(_, i, _ int) { f(d.workers[i]) })
}
