// Package groups aggregates requests by group: latencies, causes by latency, causes by time, and open requests.
//
// Input: walked requests of package path, one call of Add each, on several workers. Each worker has a table. Merge combines
// the tables and decides how finely handlers are distinguished (see refineHandlers). Output: the groups of a report (Rows),
// with their roles (SortByRole).
//
// The causes of a group are a matrix of sums: a coarse latency bucket by a cause (path.CauseID). Each band of latencies is a
// sum of rows of this matrix. Time without a stack is divided among sites only at the end, by what CPU samples and longer
// runs of the same kind showed (see siteShares). Memory grows with the number of different groups, causes and buckets, not
// with the number of requests. Requests have weights, because only a sample of the fast ones is walked; samplingerror.go
// computes the error that this causes. The result does not depend on which worker added which request.
package groups

import (
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A cell is the sum of one cause in one latency bucket.
type cell struct {
	ns       int64
	requests int64
}

// add adds the time and requests of another cell.
func (c *cell) add(addend *cell) {
	c.ns += addend.ns
	c.requests += addend.requests
}

// A group holds the sums of the requests of one group.
type group struct {
	key           path.GroupKey
	id            path.GroupID     // of the merged group, set by Sum.Rows
	handlerFrame  tracefmt.FrameID // a frame of the handler, see isPreferredFrame
	starter       starter
	latencies     histogram
	readyTimes    histogram // from when a request was ready to run until its goroutine ran
	pollGaps      histogram // upper bounds of the time from the arrival until a thread polled the network
	causeCells    cellTable[cell]
	spreads       cellTable[spread]
	spreadWeights map[int32]float64 // by latency bucket, see spread
	sampleCounts  cellTable[cell]   // CPU samples, in the field requests
	// by block number: time since the clock's zero, in units of the block length
	blocks             map[int64]*block
	currentBlock       *block // the last result of blockAtTime, with its number
	currentBlockNumber int64
	cutAtStart         int64            // requests that began before the trace
	hasJoined          bool             // some requests were joined from pieces
	openCount          int64            // requests that had not ended
	oldestStart        int64            // of the open requests
	oldestG            uint64           // its goroutine
	oldestSite         tracefmt.FrameID // where it waits
	openWaits          openWaits
	markKind           tracefmt.StringID           // kind of the marks: http, grpc, job, message
	beforeMark         histogram                   // time from a request's arrival in the process to its mark
	statuses           map[tracefmt.StringID]int64 // outcomes of marked requests
	multiStack         int64                       // requests with several stacks of the handler, so that these have meaningful common frames
}

// A starter is the source line that started the goroutines of all requests of a group; frame 0: there are several lines.
type starter struct {
	frame tracefmt.FrameID
	isSet bool
}

// add combines another starter: with a different line, frame becomes 0.
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

// offerHandlerFrame replaces the group's handler frame if the offered frame is preferred (isPreferredFrame). 0 is no frame.
func (g *group) offerHandlerFrame(syms *tracefmt.Symbols, frame tracefmt.FrameID) {
	if frame != 0 && frame != g.handlerFrame && isPreferredFrame(syms, frame, g.handlerFrame, g.key.Name) {
		g.handlerFrame = frame
	}
}

// requests returns the number of requests, including open ones.
func (g *group) requests() int64 { return g.latencies.count + g.openCount }

// A block holds the sums of the requests that ended in one interval of the trace.
type block struct {
	latencies histogram
	causes    cause.TimeByCode
}

// blockNS is the length of a block in short traces. It doubles until there are at most maxBlocks.
const blockNS = 250e6

const maxBlocks = 256

// blockByNumber returns a block, creating it on demand.
func (g *group) blockByNumber(number int64) *block {
	b := entry.GetOrAdd(g.blocks, number)
	b.latencies.coarse = true
	return b
}

// merge adds the requests of another block.
func (b *block) merge(addend *block) {
	b.latencies.merge(&addend.latencies)
	b.causes.Merge(&addend.causes)
}

// A table is one worker's part of a Sum.
type table struct {
	stage            *path.Stage
	groups           []*group // by path.GroupID; nil: nothing was added
	observerRequests int64
	concurrentRuns   concurrentRuns
	slowByGroup      map[path.GroupID]*sample.TopN[*slowRequest] // of the current generation
	runSamples       runSamples
	traversals       traversals

	blockMin, blockMax int64 // in units of blockNS
	blockShift         uint
}

// newTable returns an empty table for one worker, whose requests stage s walks.
func newTable(s *path.Stage) *table {
	return &table{
		stage: s, concurrentRuns: make(concurrentRuns), slowByGroup: make(map[path.GroupID]*sample.TopN[*slowRequest]),
		runSamples: newRunSamples(s), traversals: newTraversals(s),
	}
}

// Add adds a request, or a piece of one, to its group: open waits, latency and causes, depending on how much of it was walked.
// It implements path.Adder.
func (t *table) Add(w *path.WalkResult) {
	if w.Form == path.CutAtStart {
		// Its handler may be known, but its latency is not.
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

// groupByID returns a group, creating it on demand.
func (t *table) groupByID(id path.GroupID) *group {
	g := entry.GetOrGrow(&t.groups, id)
	if *g == nil {
		*g = newGroup(t.stage.IDs.Group(id))
	}
	return *g
}

// group returns the group of a request, creating it on demand, and updates the group's handler frame, starter and kind of mark
// by the request.
func (t *table) group(w *path.WalkResult) *group {
	g := t.groupByID(w.Group)
	g.offerHandlerFrame(t.stage.Syms, w.HandlerFrame)
	g.starter.add(starter{w.Req.StarterFrame, true})
	if id := w.Req.Identity; id != nil {
		g.offerMarkKind(t.stage.Syms, id.MarkKind)
	}
	return g
}

// offerMarkKind sets the kind of the group's marks; of several kinds the first by name.
func (g *group) offerMarkKind(syms *tracefmt.Symbols, kind tracefmt.StringID) {
	if kind != 0 && (g.markKind == 0 || syms.String(kind) < syms.String(g.markKind)) {
		g.markKind = kind
	}
}

// addStatus counts requests with an outcome.
func (g *group) addStatus(status tracefmt.StringID, n int64) {
	entry.Put(&g.statuses, status, g.statuses[status]+n)
}

// isPreferredFrame reports whether frame a is preferred to frame b as the handler frame of a group with this key. The order
// compares contents only, so that the result does not depend on the order of requests: a function other than the key (a gRPC
// method in place of the generated code), then the function's name, then the line.
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

// isOlder reports whether an open request is older than the oldest one so far. Requests that began before the trace are
// equally old; the lowest goroutine id decides.
func (g *group) isOlder(start int64, id uint64) bool {
	return g.oldestStart == 0 || start < g.oldestStart || start == g.oldestStart && id < g.oldestG
}

// addOpen adds a request that has not ended: where it waits, and since when.
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

// addEnded adds the latency, the outcome and, if its path was walked, the causes of a request that has ended.
func (t *table) addEnded(group *group, w *path.WalkResult) {
	requests := w.CountedRequests()
	if w.HandlerSeenTwice {
		group.multiStack += requests
	}
	if w.ReadyNS >= 0 {
		group.readyTimes.add(w.ReadyNS, w.Weight)
		group.pollGaps.add(w.PollGapNS, w.Weight)
	}
	if id := w.Req.Identity; id != nil && id.MarkKind != 0 {
		if id.Status != 0 {
			group.addStatus(id.Status, requests)
		}
		if id.BeforeMark >= 0 {
			group.beforeMark.add(id.BeforeMark, requests)
		}
	}
	if w.Form == path.NotWalked {
		for _, unit := range w.Units {
			group.latencies.add(unit.End-unit.Start, 1)
			t.blockAtTime(group, unit.End).latencies.add(unit.End-unit.Start, 1)
		}
		return
	}
	latency, block := w.Latency(), t.blockAtTime(group, w.Req.End)
	group.latencies.add(latency, requests)
	block.latencies.add(latency, requests)
	bucket := loglinear.Bucket(latency, coarseBits)
	if w.Weight > 1 {
		group.addSpread(bucket, w)
	}
	if w.SpreadWeights > 0 {
		group.addPieceSpreads(bucket, w)
	}
	for _, s := range w.CauseTimes {
		ns := s.NS * w.Weight
		group.causeCells.getOrAdd(bucket, int32(s.Cause)).add(&cell{ns, w.Weight})
		block.causes.Add(t.stage.CodeOf(t.stage.IDs.Cause(s.Cause)), ns)
	}
	t.runSamples.forEachSampled(w, func(i int, requests int64) {
		if w.Form == path.Whole {
			group.sampleCounts.getOrAdd(bucket, int32(w.CauseIDs[i])).requests += requests * w.Weight
		}
	})
}

// blockAtTime returns the group's block that contains time end, creating it on demand. Block lengths double if there would be
// too many.
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

// fitBlocks doubles the length of blocks until there are few enough.
func (t *table) fitBlocks() {
	for t.blockMax>>t.blockShift-t.blockMin>>t.blockShift >= maxBlocks {
		t.doubleBlocks()
	}
}

// doubleBlocks doubles the length of blocks, and merges pairs of blocks in all groups.
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

// A Sum aggregates requests by group. It implements pass.Sum.
type Sum struct {
	tables []*table
}

// New returns an empty Sum.
func New() *Sum { return new(Sum) }

// NewAdder implements pass.Sum: it returns an empty table for one worker, whose requests stage walks.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	t := newTable(stage)
	s.tables = append(s.tables, t)
	return t
}

// EndGeneration implements pass.GenerationEnder. Only now the slowest requests of the generation are known.
func (s *Sum) EndGeneration() { addSlowPWaits(s.tables) }
