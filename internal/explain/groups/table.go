// Package groups adds requests up into groups: latencies, and causes by latency
// and by time. Its tables' size depends on how many different things happened,
// not on how many requests there were.
package groups

import (
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

type cell struct {
	ns       int64
	requests int64
}

func (c *cell) add(o *cell) {
	c.ns += o.ns
	c.requests += o.requests
}

// A group is what has been added up of one group.
type group struct {
	key      path.GroupKey
	entry    tracefmt.FrameID // a frame of the handler, the smallest seen
	by       starter
	lat      histogram
	ready    histogram
	gap      histogram
	cells    cells[cell]
	spreads  cells[spread]
	weighed  map[int32]float64 // by latency bucket: see spread
	samples  cells[cell]       // of CPU samples, how many: counted as requests
	blocks   map[int64]*block
	block    *block // the one asked for last, number blockNo
	blockNo  int64
	cut      int64
	parted   bool
	open     int64
	oldest   int64 // start
	oldestG  uint64
	openSite tracefmt.FrameID
	opens    opens
	of       tracefmt.StringID           // what marked requests are of: http, grpc, job, message
	before   histogram                   // how long before their marks they reached the process
	statuses map[tracefmt.StringID]int64 // how marked requests came out
	multi    int64                       // requests of which several stacks were seen: their path means something
}

// A starter is the line that started all goroutines of a group, 0 if there is no such one.
type starter struct {
	frame tracefmt.FrameID
	known bool
}

func (s *starter) add(o starter) {
	switch {
	case !o.known:
	case !s.known:
		*s = o
	case s.frame != o.frame:
		s.frame = 0
	}
}

func newGroup(k path.GroupKey) *group {
	return &group{key: k, blocks: make(map[int64]*block), opens: make(opens)}
}

// enter takes note of a frame of the handler; 0 is none.
func (g *group) enter(syms *tracefmt.Symbols, f tracefmt.FrameID) {
	if f != 0 && better(syms, f, g.entry, g.key.Name) {
		g.entry = f
	}
}

// requests counts those of the group, the open ones among them.
func (g *group) requests() int64 { return g.lat.n + g.open }

// A block sums up the requests that ended in one stretch of time.
type block struct {
	lat    histogram
	causes cause.TimeByCode
}

// blockNS is the length of the stretches that blocks sum up, at first; in a
// longer trace it doubles so that there are never more than maxBlocks.
const blockNS = 250e6

// maxBlocks bounds the blocks of a group.
const maxBlocks = 256

// blockOf returns a block of a group by its number.
func (g *group) blockOf(no int64) *block {
	b := entry.In(g.blocks, no)
	b.lat.coarse = true
	return b
}

func (b *block) merge(o *block) {
	b.lat.merge(&o.lat)
	b.causes.Merge(&o.causes)
}

// A table is one worker's part of the groups.
type table struct {
	stage    *path.Stage
	groups   []*group // by path.GroupID; nil where nothing was added
	observer int64
	ran      ran
	slow     map[path.GroupID]*slowest // of the generation that is being walked
	under    under
	through  through

	blockMin, blockMax int64 // in units of blockNS
	blockShift         uint
}

func newTable(s *path.Stage) *table {
	return &table{stage: s, ran: make(ran), slow: make(map[path.GroupID]*slowest), under: newUnder(s), through: newThrough(s)}
}

// Add implements pass.Adder.
func (t *table) Add(w *path.WalkResult) {
	if w.Form == path.CutAtStart {
		// Its handler may show all the same, but its latency is unknown.
		t.group(w).cut += w.Weight
		return
	}
	if w.Observer && w.Form != path.Piece {
		t.observer += w.Weight
		return
	}
	if w.Form != path.Joined && w.Form != path.NotWalked {
		t.under.add(w)
		t.through.add(w)
		t.lookAt(w)
	}
	if w.Form == path.Piece {
		return
	}
	g := t.group(w)
	g.parted = g.parted || w.Form == path.Joined
	if w.Req.Open {
		g.addOpen(w)
		return
	}
	t.count(g, w)
}

// at returns the group of an id.
func (t *table) at(id path.GroupID) *group {
	g := entry.At(&t.groups, id)
	if *g == nil {
		*g = newGroup(t.stage.IDs.Group(id))
	}
	return *g
}

func (t *table) group(w *path.WalkResult) *group {
	g := t.at(w.Group)
	g.enter(t.stage.Syms, w.HandlerFrame)
	g.by.add(starter{w.Req.StarterFrame, true})
	if id := w.Req.Identity; id != nil {
		g.isOf(t.stage.Syms, id.MarkKind)
	}
	return g
}

// isOf takes note of what marked requests are of; of several the first by name.
func (g *group) isOf(syms *tracefmt.Symbols, of tracefmt.StringID) {
	if of != 0 && (g.of == 0 || syms.String(of) < syms.String(g.of)) {
		g.of = of
	}
}

func (g *group) cameOut(status tracefmt.StringID, n int64) {
	if g.statuses == nil {
		g.statuses = make(map[tracefmt.StringID]int64)
	}
	g.statuses[status] += n
}

// better chooses the frame that stands for a group's entry, by content so
// that it does not depend on which request came first: another function than
// the key (a gRPC method rather than the code generated for it), then by name,
// then the first line.
func better(syms *tracefmt.Symbols, a, b tracefmt.FrameID, key tracefmt.StringID) bool {
	if b == 0 {
		return true
	}
	fa, fb := syms.Frame(a), syms.Frame(b)
	if fa.Func != fb.Func {
		if (fa.Func != key) != (fb.Func != key) {
			return fa.Func != key
		}
		return syms.String(fa.Func) < syms.String(fb.Func)
	}
	return fa.Line < fb.Line
}

// isOlder reports whether an open request is older than the oldest known; of
// those that began before the trace it is the one on the first goroutine.
func (g *group) isOlder(start int64, id uint64) bool {
	return g.oldest == 0 || start < g.oldest || start == g.oldest && id < g.oldestG
}

func (g *group) addOpen(w *path.WalkResult) {
	g.open += w.Weight
	g.opens.add(w)
	if g.isOlder(w.Start, w.Req.G) {
		g.oldest, g.oldestG = w.Start, w.Req.G
		if n := len(w.Segments); n > 0 {
			g.openSite = w.Segments[n-1].Site
		}
	}
}

// count adds the request's latency and sums to its group.
func (t *table) count(g *group, w *path.WalkResult) {
	lat, n := w.Latency(), w.CountedRequests()
	g.lat.add(lat, n)
	if w.HandlerSeenTwice {
		g.multi += n
	}
	if w.ReadyNS >= 0 {
		g.ready.add(w.ReadyNS, w.Weight)
		g.gap.add(w.PollGapNS, w.Weight)
	}
	if id := w.Req.Identity; id != nil && id.MarkKind != 0 {
		if id.Status != 0 {
			g.cameOut(id.Status, n)
		}
		if id.BeforeMark >= 0 {
			g.before.add(id.BeforeMark, n)
		}
	}
	b := t.blockAt(g, w.Req.End)
	b.lat.add(lat, n)
	if w.Form == path.NotWalked {
		return
	}
	bucket := loglinear.Bucket(lat, coarseBits)
	if w.Weight > 1 {
		g.addSpread(bucket, w)
	}
	for _, s := range w.CauseTimes {
		ns := s.NS * w.Weight
		g.cells.at(bucket, int32(s.Cause)).add(&cell{ns, w.Weight})
		b.causes.Add(t.stage.IDs.Cause(s.Cause).Code, ns)
	}
	t.under.eachSampled(w, func(i int, n int64) {
		if w.Form == path.Whole {
			g.samples.at(bucket, int32(w.CauseIDs[i])).requests += n * w.Weight
		}
	})
}

// blockAt returns the block of a group in which a time lies.
func (t *table) blockAt(g *group, end int64) *block {
	bi := end / blockNS
	if t.blockMin == 0 || bi < t.blockMin {
		t.blockMin = bi
	}
	t.blockMax = max(t.blockMax, bi)
	t.fitBlocks()
	bi >>= t.blockShift
	if g.block == nil || g.blockNo != bi {
		g.block, g.blockNo = g.blockOf(bi), bi
	}
	return g.block
}

// fitBlocks makes blocks longer until they are few enough.
func (t *table) fitBlocks() {
	for t.blockMax>>t.blockShift-t.blockMin>>t.blockShift >= maxBlocks {
		t.coarsen()
	}
}

// coarsen doubles the blocks' length.
func (t *table) coarsen() {
	t.blockShift++
	for _, g := range t.groups {
		if g == nil {
			continue
		}
		narrow := g.blocks
		g.blocks, g.block = make(map[int64]*block, len(narrow)), nil
		for bi, b := range narrow {
			g.blockOf(bi >> 1).merge(b)
		}
	}
}

// A Sum adds requests up into groups. It implements pass.Sum.
type Sum struct {
	parts []*table
}

// New returns a Sum to which nothing was added.
func New() *Sum { return new(Sum) }

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	t := newTable(stage)
	s.parts = append(s.parts, t)
	return t
}

// EndGeneration implements pass.Ender: now it is known which requests of the generation were the slow ones.
func (s *Sum) EndGeneration() { lookAtSlow(s.parts) }
