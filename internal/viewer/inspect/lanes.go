package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Lane names a goroutine, or a P.
type Lane struct {
	Proc bool
	ID   uint64
}

// A Tile asks for what lanes show in [From, To), as spans where they are few,
// else as sums by bucket.
type Tile struct {
	From, To int64 // ns from the trace's start
	Buckets  int
	Lanes    []Lane
	// Patience is how long to go on decoding generations that are not cached; 0
	// is no limit. What could not be had is told in Strips.Missing.
	Patience time.Duration
}

// Bounds of one tile.
const (
	MaxLanes   = 128
	MaxBuckets = 4096
)

// A Piece is one stretch of a lane. Neighbours in the same state that differ
// only in their stack are one.
type Piece struct {
	From, To int64
	State    timeline.State // of a goroutine that lives; for Ps Running
	// G is, on a P's lane, the goroutine that ran.
	G uint64
	// Reason and Site are why and where a goroutine waits, or where it was last.
	Reason tracefmt.StringID
	Site   tracefmt.FrameID
}

// A Strip is one lane of a tile.
type Strip struct {
	Lane   Lane
	Pieces []Piece
	// Sums stand for the pieces if these are too many.
	Sums *Sums
}

// Sums are the ns in each state in each bucket; only states of what lives have buckets.
type Sums [timeline.Gone][]int64

// Strips answer a Tile.
type Strips struct {
	From, To int64
	BucketNS int64 // the last buckets may be shorter, or empty: see To
	Strips   []Strip
	Missing  [][2]int64 // what was not decoded in time
}

// coarse is the width of the cells that sums over much time are made of.
const coarse = 1 << 20

// Strips returns what the lanes of a tile show.
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
	tile.From, tile.To = max(tile.From, 0), min(tile.To, t.x.sp.End-t.start+1)
	out := &Strips{From: tile.From, To: tile.To, BucketNS: width}
	if tile.To <= tile.From {
		for _, l := range tile.Lanes {
			out.Strips = append(out.Strips, Strip{Lane: l})
		}
		return out, nil
	}
	leave, err := t.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if out.BucketNS >= coarse {
		return out, t.coarseStrips(ctx, tile, out)
	}
	return out, t.fineStrips(ctx, tile, out)
}

// stride is how many generations are looked at together; the window has one
// more on either side.
const stride = maxWindow - 2

func (t *Trace) fineStrips(ctx context.Context, tile Tile, out *Strips) error {
	out.Strips = make([]Strip, len(tile.Lanes))
	for i, l := range tile.Lanes {
		out.Strips[i].Lane = l
	}
	sites := newSiteCache(t)
	defer sites.done()
	first, last := t.span(tile.From+t.start, tile.To+t.start)
	for i := first; i <= last; i += stride {
		// Generations answer each for its own time, up to the next one's beginning.
		from, _ := t.extent(i)
		_, to := t.extent(min(i+stride-1, last))
		from, to = max(from, tile.From), min(to, tile.To)
		if from >= to {
			continue
		}
		// What a tile of a part of a generation shows must not decode what the tile does not touch: sixteen of them for a
		// millisecond do not stay in memory either. One is looked at beside, for what was before and goes on.
		win, err := t.window(ctx, max(i-1, 0), min(i+stride, last+1, len(t.x.gens)-1))
		if err != nil {
			return err
		}
		if err := t.pieces(ctx, win, from+t.start, to+t.start, out.Strips, sites); err != nil {
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

// pieces adds what lanes show in [from, to), on the trace's clock, without places if sites is nil.
func (t *Trace) pieces(ctx context.Context, win *timeline.Window, from, to int64, strips []Strip, sites *siteCache) error {
	procs := make(map[uint64]*Strip)
	var spans []timeline.Span
	for i := range strips {
		s := &strips[i]
		if s.Lane.Proc {
			procs[s.Lane.ID] = s
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		spans = win.Spans(s.Lane.ID, from, to, spans[:0])
		for k := range spans {
			if p, ok := sites.cut(&spans[k], from, to); ok {
				s.add(p, t.start)
			}
		}
	}
	if len(procs) == 0 {
		return nil
	}
	had := make(map[uint64]int)
	for id, s := range procs {
		had[id] = len(s.Pieces)
	}
	win.EachRun(from, to, func(r timeline.Run) {
		if s := procs[uint64(r.P)]; s != nil && r.P != timeline.NoP {
			s.Pieces = append(s.Pieces, Piece{From: r.From - t.start, To: r.To - t.start, State: timeline.Running, G: r.G, Site: sites.of(r.Stack)})
		}
	})
	for id, s := range procs {
		fresh := s.Pieces[had[id]:]
		slices.SortFunc(fresh, func(a, b Piece) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
		s.Pieces = s.Pieces[:had[id]]
		for _, p := range fresh {
			p.From, p.To = p.From+t.start, p.To+t.start
			s.add(p, t.start)
		}
	}
	return nil
}

// add appends a piece, or makes the last one longer: runs are cut at events,
// and everything where generations meet.
func (s *Strip) add(p Piece, start int64) {
	p.From, p.To = p.From-start, p.To-start
	if n := len(s.Pieces); n > 0 {
		l := &s.Pieces[n-1]
		if l.To == p.From && l.State == p.State && l.G == p.G && (l.State == timeline.Running && !s.Lane.Proc || l.Site == p.Site && l.Reason == p.Reason) {
			l.To = p.To
			if p.Site != 0 {
				l.Site = p.Site
			}
			return
		}
	}
	s.Pieces = append(s.Pieces, p)
}

// sumUp turns pieces into sums by bucket.
func (s *Strip) sumUp(out *Strips, buckets int) {
	s.Sums = newSums(buckets)
	for _, p := range s.Pieces {
		spread(s.Sums[p.State], out.From, out.BucketNS, max(p.From, out.From), min(p.To, out.To))
	}
	s.Pieces = nil
}

func newSums(buckets int) *Sums {
	s := new(Sums)
	for k := timeline.Running; k <= timeline.Syscall; k++ {
		s[k] = make([]int64, buckets)
	}
	return s
}

// spread adds [a, b) to the buckets that it lies in.
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

// coarseStrips adds up generation by generation, from cells that are kept.
func (t *Trace) coarseStrips(ctx context.Context, tile Tile, out *Strips) error {
	out.Strips = make([]Strip, len(tile.Lanes))
	for i, l := range tile.Lanes {
		out.Strips[i] = Strip{Lane: l, Sums: newSums(tile.Buckets)}
	}
	began := time.Now()
	first, last := t.span(tile.From+t.start, tile.To+t.start)
	for i := first; i <= last; i++ {
		from, to := t.extent(i)
		if to <= tile.From || from >= tile.To {
			continue
		}
		if tile.Patience > 0 && time.Since(began) > tile.Patience && !t.hasShapes(i, tile.Lanes) {
			out.Missing = append(out.Missing, [2]int64{max(from, tile.From), min(to, tile.To)})
			continue
		}
		shapes, err := t.shapesOf(ctx, i, tile.Lanes)
		if err != nil {
			return err
		}
		for k, sh := range shapes {
			sh.addTo(out.Strips[k].Sums, out)
		}
	}
	return nil
}

// extent returns the time that a generation answers for: up to the next one's
// beginning.
func (t *Trace) extent(i int) (from, to int64) {
	gens := t.x.gens
	from, to = gens[i].base-t.start, t.x.sp.End-t.start+1
	if i+1 < len(gens) {
		to = gens[i+1].base - t.start
	}
	if i == 0 {
		from = 0
	}
	return from, to
}

// NameOf returns the function that a goroutine started with, or the outermost
// that it was seen in; 0 if that is not known.
func (t *Trace) NameOf(g uint64) tracefmt.StringID {
	if row, ok := t.x.gos.rowsOf.get(g); ok {
		return t.x.gos.name(row, &t.x.syms)
	}
	return 0
}

// A Moment is what a lane shows at one instant, in full.
type Moment struct {
	Goroutine uint64        `json:"goroutine"`
	Name      string        `json:"name"`
	Proc      *uint32       `json:"proc,omitempty"`
	StartNS   int64         `json:"start_ns"` // -1: before the trace
	EndNS     int64         `json:"end_ns"`
	State     string        `json:"state"`
	Reason    string        `json:"reason,omitempty"`
	Stack     []report.Site `json:"stack"`
	StackOf   string        `json:"stack_of,omitempty"` // what the stack shows
	// Waker is the goroutine that ended the wait, or the wait before; 0 for
	// none: the poller, a timer.
	Waker      uint64        `json:"waker,omitempty"`
	WakerName  string        `json:"waker_name,omitempty"`
	WakerStack []report.Site `json:"waker_stack,omitempty"`
	Woken      bool          `json:"woken,omitempty"`
	Creator    uint64        `json:"creator,omitempty"`
	Assist     bool          `json:"assist,omitempty"`
	// Requests are those that the goroutine was the last to work on then.
	Requests []Row `json:"requests"`
}

// maxFrames bounds a stack in an answer.
const maxFrames = 128

// At returns what a lane shows at an instant, nil if nothing.
func (t *Trace) At(ctx context.Context, l Lane, at int64) (*Moment, error) {
	leave, err := t.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	abs := at + t.start
	first, last := t.span(abs, abs+1)
	win, err := t.window(ctx, first, last)
	if err != nil {
		return nil, err
	}
	m := &Moment{}
	g := l.ID
	if l.Proc {
		found := false
		win.EachRun(abs, abs+1, func(r timeline.Run) {
			if uint64(r.P) == l.ID && r.P != timeline.NoP {
				g, found = r.G, true
			}
		})
		if !found {
			return nil, nil
		}
		p := uint32(l.ID)
		m.Proc = &p
	}
	spans := win.Spans(g, abs, abs+1, nil)
	if len(spans) == 0 || spans[0].State == timeline.Gone {
		return nil, nil
	}
	s := spans[0]
	if s.State == timeline.Running {
		// The parts of one run are one for the eye.
		s = t.wholeRun(win, g, s)
	}
	m.Goroutine, m.Name = g, t.String(t.NameOf(g))
	m.StartNS, m.EndNS = s.Start-t.start, s.End-t.start
	if s.Start == timeline.BeforeTrace {
		m.StartNS = -1
	}
	m.State, m.Reason = s.State.String(), t.x.syms.String(s.Reason)
	m.Stack, m.StackOf = t.frames(s.Stack), stackOf(&s)
	m.Waker, m.Woken, m.Assist = s.Waker, s.Woken, s.Assist
	if s.Waker != 0 {
		m.WakerName, m.WakerStack = t.String(t.NameOf(s.Waker)), t.frames(s.WakerStack)
	}
	if s.How == timeline.HowCreated {
		m.Creator = s.Peer
	}
	m.Requests = t.requestsOf(g, abs)
	return m, nil
}

// wholeRun joins the parts around one at which a run was cut by events.
func (t *Trace) wholeRun(win *timeline.Window, g uint64, s timeline.Span) timeline.Span {
	const step = 64
	for range step {
		if s.How != timeline.HowPoint {
			break
		}
		before := win.Spans(g, s.Start-1, s.Start, nil)
		if len(before) == 0 || before[len(before)-1].State != timeline.Running {
			break
		}
		b := before[len(before)-1]
		s.Start, s.How = b.Start, b.How
	}
	for range step {
		after := win.Spans(g, s.End, s.End+1, nil)
		if len(after) == 0 || after[0].State != timeline.Running || after[0].How != timeline.HowPoint || after[0].End <= s.End {
			break
		}
		s.End, s.Stack = after[0].End, after[0].Stack
	}
	return s
}

// stackOf says what a span's stack is.
func stackOf(s *timeline.Span) string {
	switch {
	case s.Stack == 0:
		return ""
	case s.State == timeline.Running && s.Preempted:
		return "where it was when it had to stop"
	case s.State == timeline.Running:
		return "the event that ended this run"
	case s.State == timeline.Runnable && s.How == timeline.HowCreated:
		return "where it was created"
	case s.State == timeline.Runnable:
		return "where it was before"
	}
	return "where it is"
}

func (t *Trace) frames(id tracefmt.StackID) []report.Site {
	out := []report.Site{}
	for _, f := range t.x.syms.Stack(id) {
		if len(out) == maxFrames {
			break
		}
		out = append(out, *t.Site(f))
	}
	return out
}

// Site spells a frame out; nil for none.
func (t *Trace) Site(f tracefmt.FrameID) *report.Site { return t.x.sp.Site(f) }

// String returns the text of a string's id.
func (t *Trace) String(id tracefmt.StringID) string { return t.x.syms.String(id) }

// maxMeanwhile bounds the requests listed for one instant.
const maxMeanwhile = 5

// requestsOf returns requests that ended on a goroutine and were under way at
// an instant.
func (t *Trace) requestsOf(g uint64, abs int64) []Row {
	c := &t.x.reqs
	out := []Row{}
	for i := range int32(c.rows()) {
		if c.g(i) != g {
			continue
		}
		if start := c.start(i); start <= abs && abs < start+c.latency(i) {
			if out = append(out, t.row(i)); len(out) == maxMeanwhile {
				break
			}
		}
	}
	return out
}
