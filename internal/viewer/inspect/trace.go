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
	x     *Index
	src   io.ReaderAt
	size  int64
	start int64 // of the trace, on its own clock

	gens    *recent[int, *timeline.Gen] // decoded ones
	decoder *timeline.Decoder
	again   atomic.Int64 // how often a generation was decoded again

	work       chan struct{} // a place for each question that takes long
	spareSites chan *siteCache
	shapes     *recent[shapeKey, *shape]
	selections *recent[Query, *selection]
	lineups    *recent[GoroutineQuery, *lineup]
	// What a search through the whole trace found.
	touches   *recent[string, bitset]
	stacks    *recent[string, bitset]
	functions *recent[[2]int64, []FunctionSum]
}

// What is remembered at most. A selection has 4 bytes a row, a lineup 12, and a search a bit.
const (
	keepSelections = 8
	keepLineups    = 3
	keepFound      = 4
	maxShapes      = 96 << 20 // bytes
)

// errNothing is what there is without a single generation.
var errNothing = errors.New("the index is empty: the trace was not read to its end")

// Open joins an index with the trace's bytes: the same as were read when it
// was filled, unpacked. They must not change.
func Open(x *Index, src io.ReaderAt, size int64) (*Trace, error) {
	if len(x.gens) == 0 || x.master == nil {
		return nil, errNothing
	}
	t := &Trace{
		x: x, src: src, size: size, start: x.sp.Start,
		gens:    newRecent[int](x.limits.Generations, (*timeline.Gen).Size),
		decoder: timeline.NewSingle(x.master, runtime.GOMAXPROCS(0)),
		work:    make(chan struct{}, max(2, runtime.GOMAXPROCS(0))), spareSites: make(chan *siteCache, 4),
		shapes:     newRecent[shapeKey](maxShapes, (*shape).size),
		selections: newRecent[Query](keepSelections, one[*selection]),
		lineups:    newRecent[GoroutineQuery](keepLineups, one[*lineup]),
		touches:    newRecent[string](keepFound, one[bitset]),
		stacks:     newRecent[string](keepFound, one[bitset]),
		functions:  newRecent[[2]int64](keepFound, one[[]FunctionSum]),
	}
	// One search through the whole trace at a time.
	t.stacks.making, t.functions.making = t.touches.making, t.touches.making
	for i := range x.gens {
		if g := x.keep[i]; g != nil {
			t.gens.put(i, g)
		}
	}
	x.keep = nil
	return t, nil
}

// gen returns a decoded generation. Others wait for theirs: decoding uses all processors by itself.
func (t *Trace) gen(ctx context.Context, i int) (*timeline.Gen, error) {
	return t.gens.of(ctx, i, func() (*timeline.Gen, error) {
		t.again.Add(1)
		g, err := t.decode(&t.x.gens[i])
		if err != nil {
			return nil, fmt.Errorf("reading generation %d again: %w", t.x.gens[i].num, err)
		}
		return g, nil
	})
}

// decode reads one generation from the trace.
func (t *Trace) decode(info *genInfo) (*timeline.Gen, error) {
	header := make([]byte, 16)
	copy(header, fmt.Sprintf("go 1.%d trace", t.x.minor))
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

// span returns the generations that hold what happened in [from, to), on the
// trace's clock.
func (t *Trace) span(from, to int64) (first, last int) {
	gens := t.x.gens
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
		if t.x.gens[i].afterGap {
			first = i
		}
	}
	gens := make([]*timeline.Gen, 0, last-first+1)
	for i := first; i <= last; i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		g, err := t.gen(ctx, i)
		if err != nil {
			return nil, err
		}
		gens = append(gens, g)
	}
	return timeline.NewWindow(gens, func(id uint64) (timeline.Span, bool) { return t.x.carry.at(first, id) }), nil
}

// enter waits for a place among the questions that take long.
func (t *Trace) enter(ctx context.Context) (leave func(), err error) {
	select {
	case t.work <- struct{}{}:
		return func() { <-t.work }, nil
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
	c, g := &t.x.reqs, &t.x.gos
	f := Facts{
		Requests: c.rows(), RequestsSeen: c.seen, AtLeastNS: c.atLeast,
		RequestBytes: c.bytes(),
		Goroutines:   g.rows(), GoroutineBytes: g.bytes(),
		Generations: len(t.x.gens), GenerationBytes: t.x.limits.Generations, Procs: int(t.x.procs),
		DurationNS: t.x.sp.End - t.start, DecodedAgain: int(t.again.Load()),
	}
	for i := range t.x.gens {
		f.Events += t.x.gens[i].events
	}
	t.gens.mu.Lock()
	f.Decoded, f.DecodedBytes = t.gens.list.Len(), t.gens.held
	t.gens.mu.Unlock()
	return f
}
