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

func (c *cell) add(addend *cell) {
	c.ns += addend.ns
	c.requests += addend.requests
}

// A group is what has been added up of one group.
type group struct {
	key                path.GroupKey
	handlerFrame       tracefmt.FrameID // a frame of the handler, the smallest seen
	starter            starter
	latencies          histogram
	readyTimes         histogram
	pollGaps           histogram
	causeCells         cellTable[cell]
	spreads            cellTable[spread]
	spreadWeights      map[int32]float64 // by latency bucket: see spread
	sampleCounts       cellTable[cell]   // of CPU samples, how many: counted as requests
	blocks             map[int64]*block
	currentBlock       *block // the one asked for last, number currentBlockNumber
	currentBlockNumber int64
	cutAtStart         int64
	hasJoined          bool
	openCount          int64
	oldestStart        int64 // start
	oldestG            uint64
	oldestSite         tracefmt.FrameID
	openWaits          openWaits
	markKind           tracefmt.StringID           // what marked requests are of: http, grpc, job, message
	beforeMark         histogram                   // how long before their marks they reached the process
	statuses           map[tracefmt.StringID]int64 // how marked requests came out
	multiStack         int64                       // requests of which several stacks were seen: their path means something
}

// A starter is the line that started all goroutines of a group, 0 if there is no such one.
type starter struct {
	frame tracefmt.FrameID
	isSet bool
}

func (s *starter) add(next starter) {
	switch {
	case !next.isSet:
	case !s.isSet:
		*s = next
	case s.frame != next.frame:
		s.frame = 0
	}
}

func newGroup(k path.GroupKey) *group {
	return &group{key: k, blocks: make(map[int64]*block), openWaits: make(openWaits)}
}

// offerHandlerFrame takes note of a frame of the handler; 0 is none.
func (g *group) offerHandlerFrame(syms *tracefmt.Symbols, frame tracefmt.FrameID) {
	if frame != 0 && isPreferredFrame(syms, frame, g.handlerFrame, g.key.Name) {
		g.handlerFrame = frame
	}
}

// requests counts those of the group, the open ones among them.
func (g *group) requests() int64 { return g.latencies.count + g.openCount }

// A block sums up the requests that ended in one stretch of time.
type block struct {
	latencies histogram
	causes    cause.TimeByCode
}

// blockNS is the length of the stretches that blocks sum up, at first; in a
// longer trace it doubles so that there are never more than maxBlocks.
const blockNS = 250e6

// maxBlocks bounds the blocks of a group.
const maxBlocks = 256

// blockByNumber returns a block of a group by its number.
func (g *group) blockByNumber(number int64) *block {
	b := entry.In(g.blocks, number)
	b.latencies.coarse = true
	return b
}

func (b *block) merge(addend *block) {
	b.latencies.merge(&addend.latencies)
	b.causes.Merge(&addend.causes)
}

// A table is one worker's part of the groups.
type table struct {
	stage            *path.Stage
	groups           []*group // by path.GroupID; nil where nothing was added
	observerRequests int64
	concurrentRuns   concurrentRuns
	slowByGroup      map[path.GroupID]*slowRequests // of the generation that is being walked
	runSamples       runSamples
	traversals       traversals

	blockMin, blockMax int64 // in units of blockNS
	blockShift         uint
}

func newTable(s *path.Stage) *table {
	return &table{stage: s, concurrentRuns: make(concurrentRuns), slowByGroup: make(map[path.GroupID]*slowRequests), runSamples: newRunSamples(s), traversals: newTraversals(s)}
}

// Add implements pass.Adder.
func (t *table) Add(w *path.WalkResult) {
	if w.Form == path.CutAtStart {
		// Its handler may show all the same, but its latency is unknown.
		t.group(w).cutAtStart += w.Weight
		return
	}
	if w.Observer && w.Form != path.Piece {
		t.observerRequests += w.Weight
		return
	}
	if w.Form != path.Joined && w.Form != path.NotWalked {
		t.runSamples.add(w)
		t.traversals.add(w)
		t.addPWaits(w)
	}
	if w.Form == path.Piece {
		return
	}
	g := t.group(w)
	g.hasJoined = g.hasJoined || w.Form == path.Joined
	if w.Req.Open {
		g.addOpen(w)
		return
	}
	t.addEnded(g, w)
}

// groupByID returns the group of an id.
func (t *table) groupByID(id path.GroupID) *group {
	g := entry.At(&t.groups, id)
	if *g == nil {
		*g = newGroup(t.stage.IDs.Group(id))
	}
	return *g
}

func (t *table) group(w *path.WalkResult) *group {
	g := t.groupByID(w.Group)
	g.offerHandlerFrame(t.stage.Syms, w.HandlerFrame)
	g.starter.add(starter{w.Req.StarterFrame, true})
	if id := w.Req.Identity; id != nil {
		g.offerMarkKind(t.stage.Syms, id.MarkKind)
	}
	return g
}

// offerMarkKind takes note of what marked requests are of; of several the first by name.
func (g *group) offerMarkKind(syms *tracefmt.Symbols, kind tracefmt.StringID) {
	if kind != 0 && (g.markKind == 0 || syms.String(kind) < syms.String(g.markKind)) {
		g.markKind = kind
	}
}

func (g *group) addStatus(status tracefmt.StringID, n int64) {
	if g.statuses == nil {
		g.statuses = make(map[tracefmt.StringID]int64)
	}
	g.statuses[status] += n
}

// isPreferredFrame chooses the frame that stands for a group's entry, by content so
// that it does not depend on which request came first: another function than
// the key (a gRPC method rather than the code generated for it), then by name,
// then the first line.
func isPreferredFrame(syms *tracefmt.Symbols, a, b tracefmt.FrameID, key tracefmt.StringID) bool {
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
	return g.oldestStart == 0 || start < g.oldestStart || start == g.oldestStart && id < g.oldestG
}

func (g *group) addOpen(w *path.WalkResult) {
	g.openCount += w.Weight
	g.openWaits.add(w)
	if g.isOlder(w.Start, w.Req.G) {
		g.oldestStart, g.oldestG = w.Start, w.Req.G
		if n := len(w.Segments); n > 0 {
			g.oldestSite = w.Segments[n-1].Site
		}
	}
}

// addEnded adds the request's latency and sums to its group.
func (t *table) addEnded(g *group, w *path.WalkResult) {
	latency, requests := w.Latency(), w.CountedRequests()
	g.latencies.add(latency, requests)
	if w.HandlerSeenTwice {
		g.multiStack += requests
	}
	if w.ReadyNS >= 0 {
		g.readyTimes.add(w.ReadyNS, w.Weight)
		g.pollGaps.add(w.PollGapNS, w.Weight)
	}
	if id := w.Req.Identity; id != nil && id.MarkKind != 0 {
		if id.Status != 0 {
			g.addStatus(id.Status, requests)
		}
		if id.BeforeMark >= 0 {
			g.beforeMark.add(id.BeforeMark, requests)
		}
	}
	block := t.blockAtTime(g, w.Req.End)
	block.latencies.add(latency, requests)
	if w.Form == path.NotWalked {
		return
	}
	bucket := loglinear.Bucket(latency, coarseBits)
	if w.Weight > 1 {
		g.addSpread(bucket, w)
	}
	for _, s := range w.CauseTimes {
		ns := s.NS * w.Weight
		g.causeCells.getOrAdd(bucket, int32(s.Cause)).add(&cell{ns, w.Weight})
		block.causes.Add(t.stage.IDs.Cause(s.Cause).Code, ns)
	}
	t.runSamples.forEachSampled(w, func(i int, requests int64) {
		if w.Form == path.Whole {
			g.sampleCounts.getOrAdd(bucket, int32(w.CauseIDs[i])).requests += requests * w.Weight
		}
	})
}

// blockAtTime returns the block of a group in which a time lies.
func (t *table) blockAtTime(g *group, end int64) *block {
	number := end / blockNS
	if t.blockMin == 0 || number < t.blockMin {
		t.blockMin = number
	}
	t.blockMax = max(t.blockMax, number)
	t.fitBlocks()
	number >>= t.blockShift
	if g.currentBlock == nil || g.currentBlockNumber != number {
		g.currentBlock, g.currentBlockNumber = g.blockByNumber(number), number
	}
	return g.currentBlock
}

// fitBlocks makes blocks longer until they are few enough.
func (t *table) fitBlocks() {
	for t.blockMax>>t.blockShift-t.blockMin>>t.blockShift >= maxBlocks {
		t.doubleBlocks()
	}
}

// doubleBlocks doubles the blocks' length.
func (t *table) doubleBlocks() {
	t.blockShift++
	for _, g := range t.groups {
		if g == nil {
			continue
		}
		narrow := g.blocks
		g.blocks, g.currentBlock = make(map[int64]*block, len(narrow)), nil
		for bi, b := range narrow {
			g.blockByNumber(bi >> 1).merge(b)
		}
	}
}

// A Sum adds requests up into groups. It implements pass.Sum.
type Sum struct {
	tables []*table
}

// New returns a Sum to which nothing was added.
func New() *Sum { return new(Sum) }

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	t := newTable(stage)
	s.tables = append(s.tables, t)
	return t
}

// EndGeneration implements pass.Ender: now it is known which requests of the generation were the slow ones.
func (s *Sum) EndGeneration() { addSlowPWaits(s.tables) }
