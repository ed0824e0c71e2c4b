package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sort"
	"sync/atomic"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Trace answers questions about a trace that has been indexed. All its
// methods may be called by many goroutines at once; times that they take and
// give are ns from the trace's start.
type Trace struct {
	index *Index
	src   io.ReaderAt
	size  int64
	start int64 // of the trace, on its own clock

	gens      *cache[int, *timeline.Gen] // decoded ones
	decoder   *timeline.Decoder
	redecoded atomic.Int64 // how often a generation was decoded again

	slots               chan struct{} // a place for each question that takes long
	spareSites          chan *siteCache
	cells               *cache[cellsKey, *laneCells]
	selections          *cache[Query, *selection]
	goroutineSelections *cache[GoroutineQuery, *goroutineSelection]
	// What a search through the whole trace found.
	requestSearches   *cache[string, bitset]
	goroutineSearches *cache[string, bitset]
	functionSums      *cache[[2]int64, []FunctionSum]
}

// What is remembered at most. A selection has 4 bytes a row, a lineup 12, and a search a bit.
const (
	keepSelections = 8
	keepLineups    = 3
	keepSearches   = 4
	maxCellBytes   = 96 << 20 // bytes
)

// errEmptyIndex is what there is without a single generation.
var errEmptyIndex = errors.New("the index is empty: the trace was not read to its end")

// Open joins an index with the trace's bytes: the same as were read when it
// was filled, unpacked. They must not change.
func Open(x *Index, src io.ReaderAt, size int64) (*Trace, error) {
	if len(x.gens) == 0 || x.master == nil {
		return nil, errEmptyIndex
	}
	t := &Trace{
		index: x, src: src, size: size, start: x.speller.Start,
		gens:    newCache[int](x.limits.Generations, (*timeline.Gen).Size),
		decoder: timeline.NewSingle(x.master, runtime.GOMAXPROCS(0)),
		slots:   make(chan struct{}, max(2, runtime.GOMAXPROCS(0))), spareSites: make(chan *siteCache, 4),
		cells:               newCache[cellsKey](maxCellBytes, (*laneCells).memory),
		selections:          newCache[Query](keepSelections, unitSize[*selection]),
		goroutineSelections: newCache[GoroutineQuery](keepLineups, unitSize[*goroutineSelection]),
		requestSearches:     newCache[string](keepSearches, unitSize[bitset]),
		goroutineSearches:   newCache[string](keepSearches, unitSize[bitset]),
		functionSums:        newCache[[2]int64](keepSearches, unitSize[[]FunctionSum]),
	}
	// One search through the whole trace at a time.
	t.goroutineSearches.makeSlot, t.functionSums.makeSlot = t.requestSearches.makeSlot, t.requestSearches.makeSlot
	for i := range x.gens {
		if g := x.decoded[i]; g != nil {
			t.gens.put(i, g)
		}
	}
	x.decoded = nil
	return t, nil
}

// generation returns a decoded generation. Others wait for theirs: decoding uses all processors by itself.
func (t *Trace) generation(ctx context.Context, i int) (*timeline.Gen, error) {
	return t.gens.getOrMake(ctx, i, func() (*timeline.Gen, error) {
		t.redecoded.Add(1)
		g, err := t.decode(&t.index.gens[i])
		if err != nil {
			return nil, fmt.Errorf("reading generation %d again: %w", t.index.gens[i].num, err)
		}
		return g, nil
	})
}

// decode reads one generation from the trace.
func (t *Trace) decode(info *genInfo) (*timeline.Gen, error) {
	header := make([]byte, 16)
	copy(header, fmt.Sprintf("go 1.%d trace", t.index.minor))
	// The reader goes on to the start of the next generation: before Go 1.26
	// nothing else marks the end.
	rest := io.NewSectionReader(t.src, info.offset, t.size-info.offset)
	rd, err := tracefmt.NewReader(io.MultiReader(bytes.NewReader(header), rest), tracefmt.Options{MaxGeneration: 1 << 40})
	if err != nil {
		return nil, err
	}
	src, err := rd.Next()
	if err != nil {
		return nil, err
	}
	if src.Num != info.num || src.Bytes != info.bytes {
		return nil, errors.New("the trace has changed since it was first read")
	}
	return t.decoder.DecodeAgain(src, info.resume)
}

// overlap is how much later than the next one's beginning a generation's
// events may be (see package timeline).
const overlap = 20e6

// slack is how long before a time its generation should begin at least.
const slack = 50e6

// generationsIn returns the generations that hold what happened in [from, to), on the
// trace's clock.
func (t *Trace) generationsIn(from, to int64) (first, last int) {
	gens := t.index.gens
	first = max(sort.Search(len(gens), func(i int) bool { return gens[i].base > from-slack })-1, 0)
	last = max(sort.Search(len(gens), func(i int) bool { return gens[i].base > to+overlap })-1, first)
	return first, last
}

// maxWindow bounds how many generations one question may hold at once.
const maxWindow = 16

// window returns a window of generations first to last, less those before a
// gap: what was on its other side cannot be joined.
func (t *Trace) window(ctx context.Context, first, last int) (*timeline.Window, error) {
	first = max(first, last-maxWindow+1)
	for i := last; i > first; i-- {
		if t.index.gens[i].afterGap {
			first = i
		}
	}
	gens := make([]*timeline.Gen, 0, last-first+1)
	for i := first; i <= last; i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		g, err := t.generation(ctx, i)
		if err != nil {
			return nil, err
		}
		gens = append(gens, g)
	}
	return timeline.NewWindow(gens, func(id uint64) (timeline.Span, bool) { return t.index.carried.spanAt(first, id) }), nil
}

// acquireSlot waits for a place among the questions that take long.
func (t *Trace) acquireSlot(ctx context.Context) (release func(), err error) {
	select {
	case t.slots <- struct{}{}:
		return func() { <-t.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Facts describe what an index holds and costs.
type Facts struct {
	Requests        int   `json:"requests"`         // in the index
	RequestsSeen    int   `json:"requests_seen"`    // that there were
	AtLeastNS       int64 `json:"at_least_ns"`      // shorter ones were left out; 0: none
	RequestBytes    int64 `json:"request_bytes"`    // memory of their columns
	Goroutines      int   `json:"goroutines"`       // in the index
	GoroutineBytes  int64 `json:"goroutine_bytes"`  // memory of their columns, about
	Generations     int   `json:"generations"`      //
	Decoded         int   `json:"decoded"`          // of them, in memory
	DecodedBytes    int64 `json:"decoded_bytes"`    //
	DecodedAgain    int   `json:"decoded_again"`    // times that one was read from the file again
	GenerationBytes int64 `json:"generation_bytes"` // the limit of DecodedBytes
	Events          int64 `json:"events"`
	DurationNS      int64 `json:"duration_ns"`
	Procs           int   `json:"procs"` // Ps that the trace names
}

// Facts returns what the index holds now.
func (t *Trace) Facts() Facts {
	c, g := &t.index.requests, &t.index.goroutines
	f := Facts{
		Requests: c.rows(), RequestsSeen: c.total, AtLeastNS: c.minLatency,
		RequestBytes: c.bytes(),
		Goroutines:   g.rows(), GoroutineBytes: g.bytes(),
		Generations: len(t.index.gens), GenerationBytes: t.index.limits.Generations, Procs: int(t.index.procs),
		DurationNS: t.index.speller.End - t.start, DecodedAgain: int(t.redecoded.Load()),
	}
	for i := range t.index.gens {
		f.Events += t.index.gens[i].events
	}
	t.gens.mu.Lock()
	f.Decoded, f.DecodedBytes = t.gens.order.Len(), t.gens.held
	t.gens.mu.Unlock()
	return f
}
