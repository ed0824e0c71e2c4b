package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Trace answers queries about an indexed trace. Many goroutines may call its methods concurrently. All times in
// arguments and results are ns from the trace's start.
type Trace struct {
	index *Index
	src   io.ReaderAt
	size  int64
	start int64 // start of the trace on the trace's clock

	gens      *cache[int, *timeline.Gen] // decoded generations
	decoder   *timeline.Decoder
	redecoded atomic.Int64 // number of generations that were decoded again

	slots               chan struct{} // a slot for each concurrent long query
	spareSites          chan *siteCache
	cells               *cache[cellsKey, *laneCells]
	selections          *cache[Query, *selection]
	goroutineSelections *cache[GoroutineQuery, *goroutineSelection]
	// Results of searches through the whole trace.
	requestSearches   *cache[string, bitset]
	goroutineSearches *cache[string, bitset]
	functionSums      *cache[[2]int64, []FunctionSum]

	groupsOnce sync.Once
	groups     []int32 // see groupsOfGoroutines
}

// Limits of the caches. A selection of requests has 4 bytes for each row, one of goroutines 12, and a search 1
// bit.
const (
	keepSelections = 8
	keepLineups    = 3
	keepSearches   = 4
	maxCellBytes   = 96 << 20 // bytes
)

// errEmptyIndex is the error for an index without generations.
var errEmptyIndex = errors.New("the index is empty: the trace was not read to its end")

// Open combines an index with the unpacked bytes of the trace, src, from which it was filled. They must not change as long as the Trace is used.
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
	// At most one search through the whole trace runs at a time.
	t.goroutineSearches.makeSlot, t.functionSums.makeSlot = t.requestSearches.makeSlot, t.requestSearches.makeSlot
	for i := range x.gens {
		if g := x.decoded[i]; g != nil {
			t.gens.put(i, g)
		}
	}
	x.decoded = nil
	return t, nil
}

// generation returns the decoded generation with index i, from the cache or decoded again. It decodes one generation at a time, because decoding uses
// all processors.
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

// decode decodes one generation from the trace's bytes again, in the state with which the first reading reached it. It fails if the bytes have
// changed.
func (t *Trace) decode(info *genInfo) (*timeline.Gen, error) {
	header := make([]byte, 16)
	copy(header, fmt.Sprintf("go 1.%d trace", t.index.minor))
	// The reader continues to the start of the next generation: before Go 1.26 nothing else marks the end.
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

// overlap is how much later than the base of the next generation a generation's events may be (see package
// timeline).
const overlap = 20e6

// slack is the minimal time between the begin of the first generation of a window and the queried time.
const slack = 50e6

// generationsIn returns the indexes of the first and the last generation that may contain events in [from, to), on the trace's
// clock.
func (t *Trace) generationsIn(from, to int64) (first, last int) {
	gens := t.index.gens
	first = max(sort.Search(len(gens), func(i int) bool { return gens[i].base > from-slack })-1, 0)
	last = max(sort.Search(len(gens), func(i int) bool { return gens[i].base > to+overlap })-1, first)
	return first, last
}

// maxWindow bounds the number of generations that one query uses together.
const maxWindow = 16

// window returns a window of generations first to last (indexes, both included), at most the last maxWindow of them. It leaves out generations before
// a gap, because timelines cannot be joined over a gap.
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

// acquireSlot waits for one of the slots for long queries. The caller calls release after its query. The error is that of ctx,
// if it ends before.
func (t *Trace) acquireSlot(ctx context.Context) (release func(), err error) {
	select {
	case t.slots <- struct{}{}:
		return func() { <-t.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Facts describe the contents and the memory of an index.
type Facts struct {
	Requests        int   `json:"requests"`         // in the index
	RequestsSeen    int   `json:"requests_seen"`    // requests in the trace
	AtLeastNS       int64 `json:"at_least_ns"`      // shorter requests were left out; 0 if none were
	RequestBytes    int64 `json:"request_bytes"`    // memory of their columns
	Goroutines      int   `json:"goroutines"`       // in the index
	GoroutineBytes  int64 `json:"goroutine_bytes"`  // memory of their columns, about
	Generations     int   `json:"generations"`      //
	Decoded         int   `json:"decoded"`          // number of them in memory
	DecodedBytes    int64 `json:"decoded_bytes"`    //
	DecodedAgain    int   `json:"decoded_again"`    // number of times that one was decoded again
	GenerationBytes int64 `json:"generation_bytes"` // the limit of DecodedBytes
	Events          int64 `json:"events"`
	DurationNS      int64 `json:"duration_ns"`
	Procs           int   `json:"procs"`       // number of Ps that the trace names
	Annotations     int   `json:"annotations"` // number of regions and log messages
	// CPUs are those that the kernel's events name.
	CPUs []int32 `json:"cpus,omitempty"`
}

// Facts returns how much of the trace the index has, and what queries have read so far.
func (t *Trace) Facts() Facts {
	c, g := &t.index.requests, &t.index.goroutines
	f := Facts{
		Requests: c.rows(), RequestsSeen: c.total, AtLeastNS: c.minLatency,
		RequestBytes: c.bytes(),
		Goroutines:   g.rows(), GoroutineBytes: g.bytes(),
		Generations: len(t.index.gens), GenerationBytes: t.index.limits.Generations, Procs: int(t.index.procs), Annotations: len(t.index.annotations.list),
		DurationNS: t.index.speller.End - t.start, DecodedAgain: int(t.redecoded.Load()),
	}
	if threads := t.index.walkOptions.Threads; threads != nil {
		f.CPUs = threads.CPUs()
	}
	for i := range t.index.gens {
		f.Events += t.index.gens[i].events
	}
	t.gens.mu.Lock()
	f.Decoded, f.DecodedBytes = t.gens.order.Len(), t.gens.held
	t.gens.mu.Unlock()
	return f
}

// NameOf returns the name of the function with which a goroutine started; if that is unknown, the outermost function of its stack; 0 if neither is
// known.
func (t *Trace) NameOf(g uint64) tracefmt.StringID {
	if row, ok := t.index.goroutines.table.get(g); ok {
		return t.index.goroutines.name(row, &t.index.syms)
	}
	return 0
}

// Site returns the site of a frame, nil for none.
func (t *Trace) Site(f tracefmt.FrameID) *report.Site { return t.index.speller.Site(f) }

// String returns the text of a string id.
func (t *Trace) String(id tracefmt.StringID) string { return t.index.syms.String(id) }
