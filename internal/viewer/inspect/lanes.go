package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Lane identifies a goroutine, a P, the threads that ran a goroutine, or a CPU.
type Lane struct {
	Kind LaneKind
	ID   uint64 // of the goroutine, the P or the CPU
}

// A LaneKind is the kind of a Lane.
type LaneKind uint8

// Kinds of lanes. The last two show the kernel's events and are empty without them.
const (
	GoroutineLane LaneKind = iota
	ProcLane
	ThreadLane
	CPULane
)

// A Tile requests the states of lanes in [From, To): as pieces if there are few, otherwise as sums by bucket.
type Tile struct {
	From, To int64 // ns from the trace's start
	Buckets  int
	Lanes    []Lane
	// Patience is the time after which no further generations are decoded; 0 is no limit. Strips.Missing lists
	// the missing intervals.
	Patience time.Duration
}

// Bounds of one tile.
const (
	MaxLanes   = 128
	MaxBuckets = 4096
)

// A Piece is an interval of a lane in one state. Consecutive pieces of a running goroutine that differ only in
// their stack are one.
type Piece struct {
	From, To int64
	State    timeline.State // a state of a live goroutine; Running for Ps; see laneState for others
	// G is the goroutine that ran, on the lane of a P, and the state of a thread, a threadstate.Kind, or of a peer, after those.
	G uint64
	// Reason and Site are the reason and the site of a goroutine's wait, or its last site. On the lane of a CPU Reason is the process
	// that had it, on that of a thread what had the CPU for which it waited, or the call in which it slept,
	// or a text of threadstate.ParsePeerState.
	Reason tracefmt.StringID
	Site   tracefmt.FrameID
}

// A Strip is the content of one lane in a tile.
type Strip struct {
	Lane   Lane
	Pieces []Piece
	// Sums replace the pieces if there are too many.
	Sums *Sums
}

// Sums are the ns in each state and bucket. Only the states of live goroutines have buckets.
type Sums [timeline.NotAlive][]int64

// Strips are the answer to a Tile.
type Strips struct {
	From, To int64
	BucketNS int64 // the last buckets may be shorter, or empty, because of To
	Strips   []Strip
	Missing  [][2]int64 // intervals that were not decoded in time
}

// cellWidth is the width of the cells in which long tiles are summed, in ns.
const cellWidth = 1 << 20

// Strips returns the content of the lanes of a tile, in the order of its lanes. It waits for a slot for long queries. A tile with too many lanes or
// buckets is an error; the part outside of the trace has no content.
func (t *Trace) Strips(ctx context.Context, tile Tile) (*Strips, error) {
	switch {
	case len(tile.Lanes) > MaxLanes:
		return nil, fmt.Errorf("at most %d lanes at a time", MaxLanes)
	case tile.Buckets < 1 || tile.Buckets > MaxBuckets:
		return nil, fmt.Errorf("between 1 and %d buckets", MaxBuckets)
	case tile.To <= tile.From:
		return nil, fmt.Errorf("the time asked for ends before it begins")
	}
	width := (tile.To - tile.From + int64(tile.Buckets) - 1) / int64(tile.Buckets)
	tile.From, tile.To = max(tile.From, 0), min(tile.To, t.index.speller.End-t.start+1)
	out := &Strips{From: tile.From, To: tile.To, BucketNS: width}
	if tile.To <= tile.From {
		for _, l := range tile.Lanes {
			out.Strips = append(out.Strips, Strip{Lane: l})
		}
		return out, nil
	}
	leave, err := t.acquireSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if out.BucketNS >= cellWidth {
		return out, t.coarseStrips(ctx, tile, out)
	}
	return out, t.fineStrips(ctx, tile, out)
}

// windowStride is the number of generations that are expanded together; the window has one more on each side.
const windowStride = maxWindow - 2

// fineStrips sets out.Strips to the pieces of the tile's lanes, or, for a lane with more pieces than buckets, to sums of them.
func (t *Trace) fineStrips(ctx context.Context, tile Tile, out *Strips) error {
	out.Strips = make([]Strip, len(tile.Lanes))
	for i, l := range tile.Lanes {
		out.Strips[i].Lane = l
	}
	sites := newSiteCache(t)
	defer sites.release()
	first, last := t.generationsIn(tile.From+t.start, tile.To+t.start)
	for i := first; i <= last; i += windowStride {
		// A window answers for the time of its generations, up to the begin of the next one.
		from, _ := t.extent(i)
		_, to := t.extent(min(i+windowStride-1, last))
		from, to = max(from, tile.From), min(to, tile.To)
		if from >= to {
			continue
		}
		// A tile of a part of a generation must not decode generations that it does not overlap: sixteen
		// of them for a millisecond do not even fit in the cache. Only one more on each side is needed,
		// for states that continue.
		win, err := t.window(ctx, max(i-1, 0), min(i+windowStride, last+1, len(t.index.gens)-1))
		if err != nil {
			return err
		}
		if err := t.addPieces(ctx, win, from+t.start, to+t.start, out.Strips, sites); err != nil {
			return err
		}
	}
	for i := range out.Strips {
		if s := &out.Strips[i]; len(s.Pieces) > tile.Buckets {
			s.sumUp(out, tile.Buckets)
		}
	}
	return nil
}

// addPieces appends the content of the strips' lanes in [from, to), on the trace's clock, to the strips; without sites if sites is nil.
func (t *Trace) addPieces(ctx context.Context, win *timeline.Window, from, to int64, strips []Strip, sites *siteCache) error {
	procs := make(map[uint64]*Strip)
	var spans []timeline.Span
	for i := range strips {
		s := &strips[i]
		switch s.Lane.Kind {
		case ProcLane:
			procs[s.Lane.ID] = s
			continue
		case ThreadLane, CPULane:
			t.addKernelPieces(s, win, from, to)
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		spans = win.Spans(s.Lane.ID, from, to, spans[:0])
		for k := range spans {
			if p, ok := sites.pieceOf(&spans[k], from, to); ok {
				s.addPiece(p, t.start)
			}
		}
	}
	if len(procs) == 0 {
		return nil
	}
	runs := make(map[*Strip][]Piece)
	win.EachRun(from, to, func(r timeline.Run) {
		if s := procs[uint64(r.P)]; s != nil && r.P != timeline.NoP {
			runs[s] = append(runs[s], Piece{From: r.From, To: r.To, State: timeline.Running, G: r.G, Site: sites.siteOf(r.Stack)})
		}
	})
	for s, list := range runs {
		slices.SortFunc(list, func(a, b Piece) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
		for _, p := range list {
			s.addPiece(p, t.start)
		}
	}
	return nil
}

// addPiece appends a piece on the trace's clock, whose start is given, or extends the last one: events divide runs, and the borders of generations
// divide all pieces.
func (s *Strip) addPiece(p Piece, start int64) {
	p.From, p.To = p.From-start, p.To-start
	if n := len(s.Pieces); n > 0 {
		l := &s.Pieces[n-1]
		if l.To == p.From && l.State == p.State && l.G == p.G && (l.State == timeline.Running && s.Lane.Kind == GoroutineLane || l.Site == p.Site && l.Reason == p.Reason) {
			l.To = p.To
			if p.Site != 0 {
				l.Site = p.Site
			}
			return
		}
	}
	s.Pieces = append(s.Pieces, p)
}

// sumUp replaces the strip's pieces by sums over the buckets of out.
func (s *Strip) sumUp(out *Strips, buckets int) {
	s.Sums = newSums(buckets)
	for _, p := range s.Pieces {
		spread(s.Sums[p.State], out.From, out.BucketNS, max(p.From, out.From), min(p.To, out.To))
	}
	s.Pieces = nil
}

// newSums returns sums of 0 ns for each state and bucket.
func newSums(buckets int) *Sums {
	s := new(Sums)
	for k := timeline.Running; k <= timeline.Syscall; k++ {
		s[k] = make([]int64, buckets)
	}
	return s
}

// spread adds the ns of the interval [a, b) to the sums of the buckets that it overlaps. The first bucket begins at from; each has this width (ns).
func spread(sums []int64, from, width, a, b int64) {
	for a < b {
		k := (a - from) / width
		if k >= int64(len(sums)) {
			return
		}
		end := min(b, from+(k+1)*width)
		sums[k] += end - a
		a = end
	}
}

// coarseStrips sets out.Strips to sums of the cells of each generation, cached or computed. Once it has taken tile.Patience, it leaves out
// generations whose cells are not cached, and adds their times to out.Missing.
func (t *Trace) coarseStrips(ctx context.Context, tile Tile, out *Strips) error {
	out.Strips = make([]Strip, len(tile.Lanes))
	for i, l := range tile.Lanes {
		out.Strips[i] = Strip{Lane: l, Sums: newSums(tile.Buckets)}
	}
	began := time.Now()
	first, last := t.generationsIn(tile.From+t.start, tile.To+t.start)
	for i := first; i <= last; i++ {
		from, to := t.extent(i)
		if to <= tile.From || from >= tile.To {
			continue
		}
		if tile.Patience > 0 && time.Since(began) > tile.Patience && !t.hasCells(i, tile.Lanes) {
			out.Missing = append(out.Missing, [2]int64{max(from, tile.From), min(to, tile.To)})
			continue
		}
		shapes, err := t.cellsOf(ctx, i, tile.Lanes)
		if err != nil {
			return err
		}
		for k, sh := range shapes {
			sh.addTo(out.Strips[k].Sums, out)
		}
	}
	return nil
}

// extent returns the interval of the generation with index i, up to the begin of the next one, in ns from the trace's start.
func (t *Trace) extent(i int) (from, to int64) {
	gens := t.index.gens
	from, to = gens[i].base-t.start, t.index.speller.End-t.start+1
	if i+1 < len(gens) {
		to = gens[i+1].base - t.start
	}
	if i == 0 {
		from = 0
	}
	return from, to
}
