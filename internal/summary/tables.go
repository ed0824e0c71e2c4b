// Package summary adds up requests into groups: latencies, causes by latency,
// the slowest requests in full. It holds tables whose size depends on how
// many different things happened, not on how many requests there were.
package summary

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/internal/critpath"
	"github.com/whylate/whylate/internal/freeze"
	"github.com/whylate/whylate/internal/predict"
	"github.com/whylate/whylate/internal/request"
	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
)

// A groupKey tells groups apart.
type groupKey struct {
	kind request.Kind
	name tracefmt.StringID // task, region or handler; 0: not named
	path request.Path      // what all stacks of the request have in common below it
}

// causeKey tells causes apart.
type causeKey struct {
	cause   cause.Cause
	from    cause.From
	inbound bool
	freeze  freeze.Class // a candidate that it lies in: see Settle
	site    tracefmt.FrameID
	kind    tracefmt.StringID
	call    tracefmt.StringID
	via     int32 // in Tables.vias, or 0
}

// viaKey is a wait and the chain of waits before it.
type viaKey struct {
	parent int32
	wait   critpath.Wait
	site   tracefmt.FrameID
	call   tracefmt.StringID
}

type via struct {
	viaKey
	depth int
}

// maxVia bounds the chain of waits that causes are told apart by.
const maxVia = 6

type cell struct {
	ns       int64
	requests int64
}

// A group is what has been added up of one group.
type group struct {
	key      groupKey
	entry    tracefmt.FrameID // a frame of the handler, the smallest seen
	lat      histogram
	ready    histogram
	gap      histogram
	cells    cells
	slow     []*Slow
	sample   []*Slow // of any latency: see keepSample
	blocks   map[int64]*block
	block    *block // the one asked for last, number blockNo
	blockNo  int64
	cut      int
	parted   bool
	open     int
	oldest   int64 // start
	oldestG  uint64
	openSite tracefmt.FrameID
	graphs   predict.Sample
	multi    int // requests of which several stacks were seen: their path means something
	refs     []GroupRef
}

type block struct {
	lat    histogram
	causes [16]int64
	held   map[held]int64 // what lies in candidate freezes
}

// BlockNS is the length of the stretches that blocks sum up, at first; in a
// longer trace it doubles so that there are never more than maxBlocks.
const BlockNS = 250e6

// maxBlocks bounds the blocks of a group.
const maxBlocks = 256

// blockOf returns the number of the block in which time end lies.
func (t *Tables) blockOf(end int64) int64 {
	bi := end / BlockNS
	if t.blockMin == 0 || bi < t.blockMin {
		t.blockMin = bi
	}
	t.blockMax = max(t.blockMax, bi)
	t.fitBlocks()
	return bi >> t.blockShift
}

// fitBlocks makes blocks longer until they are few enough.
func (t *Tables) fitBlocks() {
	for t.blockMax>>t.blockShift-t.blockMin>>t.blockShift >= maxBlocks {
		t.coarsen()
	}
}

// coarsen doubles the blocks' length.
func (t *Tables) coarsen() {
	t.blockShift++
	for _, g := range t.groups {
		wide := make(map[int64]*block, len(g.blocks))
		for bi, b := range g.blocks {
			if w := wide[bi>>1]; w != nil {
				w.merge(b)
			} else {
				wide[bi>>1] = b
			}
		}
		g.blocks, g.block = wide, nil
	}
}

func newBlock() *block { return &block{lat: histogram{coarse: true}} }

func (b *block) merge(o *block) {
	b.lat.merge(&o.lat)
	for i, ns := range o.causes {
		b.causes[i] += ns
	}
	for h, ns := range o.held {
		b.hold(h, ns)
	}
}

func (b *block) hold(h held, ns int64) {
	if b.held == nil {
		b.held = make(map[held]int64)
	}
	b.held[h] += ns
}

// A Slow is one of a group's slowest requests, kept in full.
type Slow struct {
	Start, End int64
	G          uint64
	Segments   []cause.Segment
	Vias       [][]Via // by segment
	Detail     Detail
}

// A Via is a wait on the way to a segment.
type Via struct {
	Wait critpath.Wait
	Site tracefmt.FrameID
	Call tracefmt.StringID
}

// Detail is what happened around a slow request, for views.
type Detail struct {
	Lanes []Lane
	Wakes []Wake
}

// A Lane is a goroutine that took part.
type Lane struct {
	G     uint64
	Start tracefmt.StackID
	Spans []timeline.Span
}

// A Wake is an edge between lanes.
type Wake struct {
	Time     int64
	From, To uint64
	Site     tracefmt.FrameID
}

// Tables adds up requests. A worker has one of its own; Merge brings them
// together.
type Tables struct {
	// OnlyCauses leaves out what only rules and predictions read.
	OnlyCauses bool

	Slowest  int
	Observer int
	// Freezes knows the stretches that may be freezes; nil: there are none.
	Freezes *freeze.Detector
	// Froze, once it is known, says which of them are; Settle sets it.
	Froze func(freeze.Class) bool

	syms     *tracefmt.Symbols
	namer    *request.Namer
	namers   []*request.Namer // of all tables merged into these
	walker   *critpath.Walker
	class    *cause.Classifier
	graphs   *predict.Builder
	unbuilt  []*group        // with graphs that BuildGraphs has to build
	graphCut []cause.Segment // see splitTo
	win      *timeline.Window
	samples  bool // the window has CPU samples

	groups  map[groupKey]*group
	recent  [16]*group // a small cache in front of it, by name
	causes  map[causeKey]int32
	keys    []causeKey
	nearest [256]nearCause
	vias    map[viaKey]int32
	chains  []via
	ran     map[int32]map[tracefmt.FrameID]int64 // by cause of sched: what ran meanwhile
	ranRate uint64
	ranLeft int
	parts   map[uint64]*partial
	late    lates
	hubs    map[uint64]*hub                          // of all workers, in the first one's tables
	under   map[underKey]int64                       // running time that was seen, by every function it was under
	owners  map[tracefmt.StackID][]tracefmt.StringID // functions on a stack that a site can be in

	turns turns // who waited for whom at once: see Settle

	// scratch of one request
	best               request.Handler
	stack              tracefmt.StackID // the first that showed the handler
	several            bool             // another one was seen
	viaIDs             []int32
	sums               []sum
	blockMin, blockMax int64 // in units of BlockNS
	blockShift         uint
	sumAt              []int32 // by cause: index in sums + 1
	spanBuf            []timeline.Span
	cut                []cause.Segment                       // see split
	asides             map[int64]map[uint64][]timeline.Birth // by generation and creator: see timedOut

	each   func(*Whole)
	became map[groupKey]groupKey // what Refine made of the groups
	visit  func(*Visited)
	refs   GroupRef // the last one given
}

type sum struct {
	cause int32
	ns    int64
}

type partial struct {
	start    int64
	sums     map[int32]int64
	best     request.Handler
	segs     []cause.Segment
	vias     [][]Via
	gap, run int64
	cuts     []int64
}

// list returns the sums in order.
func (p *partial) list() []sum {
	out := make([]sum, 0, len(p.sums))
	for id, ns := range p.sums {
		out = append(out, sum{id, ns})
	}
	slices.SortFunc(out, func(a, b sum) int { return cmp.Compare(a.cause, b.cause) })
	return out
}

// New returns empty tables for requests of a window.
func New(win *timeline.Window, syms *tracefmt.Symbols, slowest int) *Tables {
	t := &Tables{
		Slowest: slowest,
		syms:    syms, win: win,
		namer:  request.NewNamer(syms),
		walker: critpath.New(win, syms),
		class:  cause.New(win, syms),
		graphs: predict.NewBuilder(win, syms),
		groups: make(map[groupKey]*group),
		causes: make(map[causeKey]int32),
		vias:   make(map[viaKey]int32),
		chains: []via{{}},
		ran:    make(map[int32]map[tracefmt.FrameID]int64),
		parts:  make(map[uint64]*partial),
		asides: make(map[int64]map[uint64][]timeline.Birth),
		under:  make(map[underKey]int64),
		owners: make(map[tracefmt.StackID][]tracefmt.StringID),
	}
	t.graphs.Split = func(segs []cause.Segment) []cause.Segment { return t.splitTo(&t.graphCut, segs) }
	t.namers = []*request.Namer{t.namer}
	t.walker.Own = func(id tracefmt.StackID) {
		t.named(t.namer.Of(id), id)
	}
	return t
}

// named takes note of what a stack says about the request's handler.
func (t *Tables) named(h *request.Handler, id tracefmt.StackID) {
	switch {
	case h.Rank > t.best.Rank:
		was := t.best.Observer
		t.best, t.stack, t.several = *h, id, false
		t.best.Observer = h.Observer || was
	case h.Rank == t.best.Rank && h.Key == t.best.Key && h.Key != 0 && id != t.stack:
		t.best.Path = t.best.Path.Common(h.Path)
		t.several = true
	}
	if h.Observer {
		t.best.Observer = true
	}
}

// NextGeneration tells which requests come next: what ran while they waited
// for a P is looked up for a sample of them.
func (t *Tables) NextGeneration(reqs []request.Request) {
	t.ranRate = uint64(1 + len(reqs)/ranSample)
	t.samples = slices.ContainsFunc(t.win.Gens, func(g *timeline.Gen) bool { return len(g.Samples) > 0 })
	t.turns.next(reqs)
	t.namer.FindHome()
	clear(t.asides)
}

// ranSample is about how many requests of a generation are sampled, ranMost
// how many of the waits of one.
const (
	ranSample = 100
	ranMost   = 8
)

// sampled decides by the request itself, so that it does not depend on which
// worker has it.
func (t *Tables) sampled(r *request.Request) bool {
	return hash(uint64(r.Start)^r.G<<32)>>8%t.ranRate == 0
}

// Add walks a request and adds it up.
func (t *Tables) Add(r *request.Request) {
	if r.Cut && !r.Open {
		t.addCut(r)
		return
	}
	t.best, t.stack, t.several = request.Handler{}, 0, false
	t.ranLeft = 0
	if t.sampled(r) {
		t.ranLeft = ranMost
	}
	from := r.Start
	if r.Cut {
		from = max(from, t.win.Start()) // all that is left to be seen
	}
	steps := t.walker.Walk(r.G, from, r.End)
	var ready, gap int64 = -1, 0
	if r.Ready != 0 && r.Ready == r.Start && len(steps) > 0 && steps[0].Kind == critpath.Runnable {
		ready = 0
		for i := range steps {
			if steps[i].Kind != critpath.Runnable || steps[i].G != steps[0].G {
				break
			}
			ready = steps[i].End - r.Ready
		}
		if steps[0].ByPoll {
			gap = t.walker.PollGap(r.Ready)
		}
	}
	t.sampleNames(r, steps)
	t.asideNames(r, steps)
	if !t.OnlyCauses {
		t.addLates(r, steps)
	}
	segs := t.split(t.class.Segments(steps))
	t.internVias()
	if r.Part != request.Whole {
		t.addPart(r, segs, ready, gap)
		return
	}
	if t.best.Observer {
		t.Observer++
		return
	}
	t.sumUp(segs)
	g := t.group(r)
	if !r.Open && !t.OnlyCauses {
		t.addTurns(r, segs)
	}
	if r.Open {
		t.addOpen(g, r, segs)
		t.visited(g, r, from, t.sums, nil)
		t.clearSums()
		return
	}
	t.tell(g, r, r.Start, segs, func() [][]Via { return t.segVias(segs) })
	t.count(g, r, r.Start, ready, gap, nil)
	if !t.OnlyCauses && g.graphs.Want(r.Start, r.End, r.G) {
		t.unbuilt = append(t.unbuilt, g)
	}
	slow, sampled := t.keepSlow(g, r.End-r.Start), t.keepSample(g, sampleKey(r.Start, r.G))
	if slow || sampled {
		s := &Slow{Start: r.Start, End: r.End, G: r.G, Segments: slices.Clone(segs), Vias: t.segVias(segs), Detail: t.detail(r, steps)}
		if slow {
			t.addSlow(g, s)
		}
		if sampled {
			g.addSample(s)
		}
	}
}

// BuildGraphs builds the graphs of the requests that were added since the last
// call, as far as the sample holds them. It must be called while the window
// still has them all.
func (t *Tables) BuildGraphs() {
	for _, g := range t.unbuilt {
		g.graphs.Fill(func(start, end int64, id uint64) *predict.Graph {
			return t.graphs.Build(id, start, end, t.split(t.class.Segments(t.walker.Walk(id, start, end))))
		})
	}
	t.unbuilt = t.unbuilt[:0]
}

// sampleNames looks for the handler in CPU samples of the request's own goroutine if no event showed it: a request that
// computes and never waits may be on no other stack.
func (t *Tables) sampleNames(r *request.Request, steps []critpath.Step) {
	if t.best.Key != 0 || !t.samples {
		return
	}
	for i := range steps {
		s := &steps[i]
		if s.Kind != critpath.CPU || s.G != r.G {
			continue
		}
		g := t.win.Gens[t.win.At(s.Start)]
		for _, k := range g.SamplesIn(s.G, s.Start, s.End) {
			id := g.Samples[k].Stack
			t.named(t.namer.Of(id), id)
		}
	}
}

// asideNames looks for the handler in a goroutine of http.TimeoutHandler that
// the request started.
func (t *Tables) asideNames(r *request.Request, steps []critpath.Step) {
	if r.Kind != request.HTTP1 && r.Kind != request.HTTP2 {
		return
	}
	checked, mine := uint64(0), false
	for i := range steps {
		s := &steps[i]
		if s.G == r.G || s.Stack == 0 {
			continue
		}
		h := *t.namer.Of(s.Stack)
		if !h.Aside || h.Key == 0 || h.Rank+aside < t.best.Rank {
			continue
		}
		if s.G != checked {
			b, ok := t.win.Gens[t.win.At(s.Start)].BirthOf(s.G)
			checked, mine = s.G, ok && b.By == r.G && b.Time >= r.Start
		}
		if mine {
			h.Rank += aside
			t.named(&h, s.Stack)
		}
	}
	t.timedOut(r)
}

// timedOut looks for the handler of a request that http.TimeoutHandler answered
// itself: the handler still runs on a goroutine of its own, and is not on the
// request's path.
func (t *Tables) timedOut(r *request.Request) {
	if t.best.Key == 0 || t.syms.String(t.best.Key) != "net/http.(*timeoutHandler).ServeHTTP" {
		return
	}
	isAside := func(start tracefmt.StackID) bool {
		frames := t.syms.Stack(start)
		return len(frames) > 0 && t.syms.String(t.syms.Frame(frames[0]).Func) == "net/http.(*timeoutHandler).ServeHTTP.func1"
	}
	for i := t.win.At(r.Start); i <= t.win.At(r.End); i++ {
		g := t.win.Gens[i]
		born, ok := t.asides[g.Base]
		if !ok {
			born = make(map[uint64][]timeline.Birth)
			for _, b := range g.Births(isAside) {
				born[b.By] = append(born[b.By], b)
			}
			t.asides[g.Base] = born
		}
		for _, b := range born[r.G] {
			if b.Time < r.Start || b.Time >= r.End {
				continue
			}
			t.spanBuf = t.win.Spans(b.G, b.Time, r.End, t.spanBuf[:0])
			for _, s := range t.spanBuf {
				if h := *t.namer.Of(s.Stack); s.How != timeline.HowCreated && h.Aside && h.Key != 0 {
					h.Rank += aside
					t.named(&h, s.Stack)
				}
			}
		}
	}
}

// aside ranks what runs under a TimeoutHandler above what stands before it.
const aside = 1 << 16

func (t *Tables) addCut(r *request.Request) {
	// Its handler may show all the same, but its latency is unknown.
	t.best = request.Handler{}
	g := t.group(r)
	g.cut++
}

// isOlder reports whether an open request is older than the oldest known; of
// those that began before the trace it is the one on the first goroutine.
func (g *group) isOlder(start int64, id uint64) bool {
	return g.oldest == 0 || start < g.oldest || start == g.oldest && id < g.oldestG
}

func (t *Tables) addOpen(g *group, r *request.Request, segs []cause.Segment) {
	g.open++
	if g.isOlder(r.Start, r.G) {
		g.oldest, g.oldestG = r.Start, r.G
		if n := len(segs); n > 0 {
			g.openSite = segs[n-1].Site
		}
	}
}

// sumUp adds the segments up by cause, into sums.
func (t *Tables) sumUp(segs []cause.Segment) {
	for i := range segs {
		s := &segs[i]
		v := int32(0)
		if s.Via >= 0 {
			v = t.viaIDs[s.Via]
		}
		id := t.causeID(causeKey{s.Cause, s.From, s.Inbound, s.Freeze, s.Site, s.Kind, s.Call, v})
		ns := s.End - s.Start
		if k := t.sumAt[id]; k != 0 {
			t.sums[k-1].ns += ns
		} else {
			t.sums = append(t.sums, sum{id, ns})
			t.sumAt[id] = int32(len(t.sums))
		}
		if s.Stack != 0 {
			t.seenUnder(s.Stack, s.Site, ns)
		}
		if s.Cause == cause.Sched && ns > 20e3 && t.ranLeft > 0 {
			t.ranLeft--
			t.ranMeanwhile(id, s)
		}
	}
}

func (t *Tables) clearSums() {
	for _, s := range t.sums {
		t.sumAt[s.cause] = 0
	}
	t.sums = t.sums[:0]
}

func (t *Tables) causeID(k causeKey) int32 {
	// Most segments of one service have one of a few hundred causes.
	h := (uint64(k.site)<<32 | uint64(uint32(k.via))<<8 | uint64(k.cause)<<2 | uint64(k.from)) * 0x9e3779b97f4a7c15
	near := &t.nearest[h>>56]
	if near.ok && near.key == k {
		return near.id
	}
	id, ok := t.causes[k]
	if !ok {
		id = int32(len(t.keys))
		t.keys = append(t.keys, k)
		t.causes[k] = id
		t.sumAt = append(t.sumAt, 0)
	}
	*near = nearCause{k, id, true}
	return id
}

// nearCause is an entry of a small cache in front of the map of causes.
type nearCause struct {
	key causeKey
	id  int32
	ok  bool
}

func (t *Tables) internVias() {
	t.viaIDs = t.viaIDs[:0]
	for i := range t.walker.Vias {
		v := &t.walker.Vias[i]
		parent := int32(0)
		if v.Parent >= 0 {
			parent = t.viaIDs[v.Parent]
		}
		t.viaIDs = append(t.viaIDs, t.viaID(viaKey{parent, v.Wait, t.class.Sites.Of(v.Stack), t.class.Sites.Call(v.Stack)}))
	}
}

// viaID names a chain of waits; the same wait twice in a row counts once, and
// chains end at maxVia.
func (t *Tables) viaID(k viaKey) int32 {
	p := t.chains[k.parent]
	if k.parent != 0 && p.wait == k.wait && p.site == k.site && p.call == k.call || p.depth >= maxVia {
		return k.parent
	}
	id, ok := t.vias[k]
	if !ok {
		id = int32(len(t.chains))
		t.chains = append(t.chains, via{k, p.depth + 1})
		t.vias[k] = id
	}
	return id
}

func (t *Tables) ranMeanwhile(id int32, s *cause.Segment) {
	m := t.ran[id]
	if m == nil {
		m = make(map[tracefmt.FrameID]int64)
		t.ran[id] = m
	}
	t.eachRanMeanwhile(s.Start, s.End, s.G, func(site tracefmt.FrameID, ns int64) { m[site] += ns })
}

func (t *Tables) group(r *request.Request) *group {
	k := groupKey{kind: r.Kind}
	frame := tracefmt.FrameID(0)
	switch r.Kind {
	case request.Task, request.Region:
		k.name = r.Name
	case request.Main:
		k.name = t.syms.Lookup("main.main")
	case request.Goroutine, request.Func, request.Loop:
		if frames := t.syms.Stack(r.Entry); len(frames) > 0 {
			frame = frames[len(frames)-1]
			if r.Root != 0 {
				frame = r.Root
			}
			if r.Kind == request.Func {
				frame = t.class.Sites.Of(r.Entry)
			}
			k.name = t.syms.Frame(frame).Func
		}
	default:
		k.name, frame, k.path = t.best.Key, t.best.Frame, t.best.Path
	}
	near := &t.recent[k.name%tracefmt.StringID(len(t.recent))]
	g := *near
	if g == nil || g.key != k {
		if g = t.groups[k]; g == nil {
			g = &group{key: k, blocks: make(map[int64]*block)}
			t.groups[k] = g
		}
		*near = g
	}
	if frame != 0 && t.better(frame, g.entry, k.name) {
		g.entry = frame
	}
	return g
}

// better chooses the frame that stands for a group's entry, by content so
// that it does not depend on which request came first: another function than
// the key (a gRPC method rather than the code generated for it), then by name,
// then the first line.
func (t *Tables) better(a, b tracefmt.FrameID, key tracefmt.StringID) bool {
	if b == 0 {
		return true
	}
	fa, fb := t.syms.Frame(a), t.syms.Frame(b)
	if fa.Func != fb.Func {
		if (fa.Func != key) != (fb.Func != key) {
			return fa.Func != key
		}
		return t.syms.String(fa.Func) < t.syms.String(fb.Func)
	}
	return fa.Line < fb.Line
}

// count adds the request's latency and sums to its group.
func (t *Tables) count(g *group, r *request.Request, start, ready, gap int64, parts []int64) {
	lat := r.End - start
	g.lat.add(lat)
	if t.several {
		g.multi++
	}
	if ready >= 0 {
		g.ready.add(ready)
		g.gap.add(gap)
	}
	bi := t.blockOf(r.End)
	b := g.block
	if b == nil || g.blockNo != bi {
		if b = g.blocks[bi]; b == nil {
			b = newBlock()
			g.blocks[bi] = b
		}
		g.block, g.blockNo = b, bi
	}
	b.lat.add(lat)
	bucket := bucketOf(lat, coarseBits)
	for _, s := range t.sums {
		c := g.cells.at(bucket, s.cause)
		c.ns += s.ns
		c.requests++
		if k := &t.keys[s.cause]; k.freeze == 0 {
			b.causes[k.cause] += s.ns
		} else {
			b.hold(held{k.freeze, k.cause}, s.ns)
		}
	}
	t.visited(g, r, start, t.sums, parts)
	t.clearSums()
}

// addPart adds a piece of a long request to what is known of it.
func (t *Tables) addPart(r *request.Request, segs []cause.Segment, ready, gap int64) {
	p := t.parts[r.Key]
	if p == nil {
		p = &partial{start: r.Start, sums: make(map[int32]int64), run: ready, gap: gap}
		t.parts[r.Key] = p
	}
	if t.best.Rank > p.best.Rank {
		p.best = t.best
	}
	p.best.Observer = p.best.Observer || t.best.Observer
	t.sumUp(segs)
	for _, s := range t.sums {
		p.sums[s.cause] += s.ns
	}
	t.clearSums()
	if len(p.segs) < maxParted {
		p.segs = append(p.segs, segs...)
		p.vias = append(p.vias, t.segVias(segs)...)
	}
	if r.Part == request.Middle {
		p.cuts = append(p.cuts, r.End)
		return
	}
	delete(t.parts, r.Key)
	t.best = p.best
	if p.best.Observer {
		t.Observer++
		return
	}
	g := t.group(r)
	g.parted = true
	if r.Open {
		whole := *r
		whole.Start = p.start
		t.addOpen(g, &whole, p.segs)
		t.visited(g, r, p.start, p.list(), p.cuts)
		return
	}
	t.sums = append(t.sums, p.list()...)
	t.tell(g, r, p.start, p.segs, func() [][]Via { return p.vias })
	t.count(g, r, p.start, p.run, p.gap, p.cuts)
	if !t.OnlyCauses && g.graphs.Count(p.start, r.End, r.G) {
		g.graphs.Add(t.graphs.Chain(r.G, p.start, r.End, p.segs))
	}
	if t.keepSlow(g, r.End-p.start) {
		t.addSlow(g, &Slow{Start: p.start, End: r.End, G: r.G, Segments: p.segs, Vias: p.vias})
	}
}

// maxParted bounds the segments kept of one long request.
const maxParted = 10000

func (t *Tables) segVias(segs []cause.Segment) [][]Via {
	out := make([][]Via, len(segs))
	for i := range segs {
		if segs[i].Via >= 0 {
			out[i] = t.chain(t.viaIDs[segs[i].Via])
		}
	}
	return out
}

// chain spells a chain of waits out, the request's own first.
func (t *Tables) chain(id int32) []Via {
	var out []Via
	for ; id != 0; id = t.chains[id].parent {
		out = append(out, Via{t.chains[id].wait, t.chains[id].site, t.chains[id].call})
	}
	slices.Reverse(out)
	return out
}

func (t *Tables) keepSlow(g *group, lat int64) bool {
	n := len(g.slow)
	return t.Slowest > 0 && (n < t.Slowest || lat >= g.slow[n-1].End-g.slow[n-1].Start)
}

func (t *Tables) addSlow(g *group, s *Slow) {
	g.slow = append(g.slow, s)
	slices.SortFunc(g.slow, slowCompare)
	if len(g.slow) > t.Slowest {
		g.slow = g.slow[:t.Slowest]
	}
}

func slowCompare(a, b *Slow) int {
	return cmp.Or(cmp.Compare(b.End-b.Start, a.End-a.Start), cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G))
}

// Bounds of what is kept around a slow request.
const (
	maxLanes     = 40
	maxLaneSpans = 400
)

// detail collects the lanes of a request's goroutines.
func (t *Tables) detail(r *request.Request, steps []critpath.Step) Detail {
	var d Detail
	at := map[uint64]bool{}
	add := func(g uint64) {
		if g == 0 || at[g] || len(d.Lanes) >= maxLanes {
			return
		}
		at[g] = true
		t.spanBuf = t.win.Spans(g, r.Start, r.End, t.spanBuf[:0])
		spans := slices.Clone(t.spanBuf[:min(len(t.spanBuf), maxLaneSpans)])
		lane := Lane{G: g, Spans: spans}
		for i := t.win.At(r.End); i >= 0 && lane.Start == 0; i-- {
			if b, ok := t.win.Gens[i].BirthOf(g); ok {
				lane.Start = b.Start
			}
		}
		d.Lanes = append(d.Lanes, lane)
		for _, s := range spans {
			if s.State == timeline.Waiting && s.Woken && s.End <= r.End && s.End > r.Start && s.Waker != 0 {
				d.Wakes = append(d.Wakes, Wake{s.End, s.Waker, g, t.class.Sites.Of(s.WakerStack)})
			}
			if s.How == timeline.HowCreated && s.Start > r.Start {
				d.Wakes = append(d.Wakes, Wake{s.Start, s.Peer, g, t.class.Sites.Of(s.Stack)})
			}
		}
	}
	add(r.G)
	for i := range steps {
		add(steps[i].G)
	}
	// Only edges between lanes can be drawn.
	d.Wakes = slices.DeleteFunc(d.Wakes, func(w Wake) bool { return !at[w.From] })
	slices.SortFunc(d.Wakes, func(a, b Wake) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.To, b.To)) })
	return d
}
