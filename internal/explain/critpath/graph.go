package critpath

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Graph shows what the end of a request depends on. Predictions shorten some steps and compute the times again. The
// critical path alone is not enough for that: if it gets shorter, other work that ran concurrently may become the
// last to end.
//
// A node happens when everything that it depends on has happened: its predecessor on the same goroutine plus the
// steps between the two, and the nodes of its edges. With all steps as long as in the trace, every node happens at
// its time in the trace.
//
// A wait depends on the goroutine that ended it, in one of two ways.
//
//   - If the request started that goroutine, or handed it the work, the goroutine is followed back to that instant:
//     it ran concurrently with the request's own.
//   - For any other goroutine (the holder of a lock, a worker still busy with an earlier job), the graph assumes that
//     its work during the wait came after the wait began, as on the critical path. These steps are marked
//     OtherWork.
type Graph struct {
	Nodes []Node // in topological order; the last one is the end of the request
	Edges []Edge
	Steps []GraphStep
}

// A Node is an instant in the life of a goroutine.
type Node struct {
	Time        int64
	G           uint64
	Predecessor int32 // the node from which Steps lead here, -1 for none
	// The node has Steps[FirstStep:EndStep] and Edges[FirstEdge:EndEdge] of the graph. A node without Predecessor and
	// edges does not move.
	FirstStep, EndStep int32
	FirstEdge, EndEdge int32
	// OtherWork is GraphStep.OtherWork of the node's steps.
	OtherWork bool
}

// An Edge is a dependency of a node on another node.
type Edge struct {
	From int32
	// Wait is the stack of the wait that the other goroutine ended, and WaitKind its kind; 0 if the dependency is no wait.
	Wait     tracefmt.StackID
	WaitKind WaitKind
	// Soft reports that the trace does not prove the dependency: the waiter had started the goroutine, which ended
	// during the wait, so the waiter may have waited for it.
	Soft bool
}

// A GraphStep is a step of a graph.
type GraphStep struct {
	Step
	// FullLength is the length, in ns, of the whole wait, timer period or system call that the step is a part of; 0
	// if unknown.
	FullLength int64
	// OtherWork reports that the step was work for other requests.
	OtherWork bool
	// DeliversResult reports, for OtherWork, that the request waited for the end of that work. The last part of it
	// may have been for the request itself.
	DeliversResult bool
	// EndsWithTick reports that a ticker ended the step. The time of a tick does not depend on the request.
	EndsWithTick bool
}

// Bounds of one graph. A request that exceeds them has no graph.
const (
	maxParts          = 192
	maxItems          = 1500
	maxSiblings       = 32
	maxOriginSearches = 24  // searches for the origin of a goroutine's work
	originSearchSpans = 64  // spans read in one search
	minOriginSearchNS = 1e6 // a search reads at least so much time before the wait,
	originSearchWaits = 8   // or so many times the length of the wait
	maxTickerPeriodNS = 10e9
)

// A graphPart is the time of one goroutine that belongs to a graph.
type graphPart struct {
	g          uint64
	start, end int64
	// anchor is the beginning of the wait that this part ended, if the part's work is assumed to begin only then (see Graph).
	anchor instant
	// waitStack is the stack of that wait, and waitKind its kind.
	waitStack      tracefmt.StackID
	waitKind       WaitKind
	deliversResult bool
	hasOrigin      bool   // the part begins where the request started the goroutine or gave it work
	creator        uint64 // the goroutine that created this one; 0 unless the part begins with the creation
	items          []partItem
	scannedUntil   int64    // waits that ended by then have been followed
	answers        []Answer // the answers for which its request waits
	answerDepth    int      // nesting depth of answers from the graph's request to the part's request
	cuts           []int64  // sorted times that need a node
	firstNode      int32    // the index of the node of the first cut
}

// contains reports whether an instant of the part's goroutine is in the part, its start and end included.
func (p *graphPart) contains(point instant) bool {
	return p.g == point.g && p.start <= point.t && point.t <= p.end
}

// node returns the index of the node at time t, which must be one of the part's cuts.
func (p *graphPart) node(t int64) int32 {
	i, _ := slices.BinarySearch(p.cuts, t)
	return p.firstNode + int32(i)
}

// A partItem is a step of a part or, if waker is not 0, a wait whose waker is followed.
type partItem struct {
	step         Step
	fullLength   int64
	waker        uint64
	kind         WaitKind
	endsWithTick bool
	answer       *Answer // the answer that ends the wait, or nil
}

// An instant is a time in the life of a goroutine.
type instant struct {
	g uint64
	t int64
}

func (i instant) compare(point instant) int {
	return cmp.Or(cmp.Compare(i.t, point.t), cmp.Compare(i.g, point.g))
}

// A link is a dependency between two instants. The other fields are those of Edge.
type link struct {
	from, to instant
	wait     tracefmt.StackID
	waitKind WaitKind
	soft     bool
}

// A graphBuilder collects the parts of a graph, and the links between them.
type graphBuilder struct {
	walker         *Walker
	rootG          uint64
	start, end     int64
	parts          []*graphPart
	links          []link
	cost           int // number of spans read so far, weighted; bounded by maxItems
	originSearches int
	failed         bool
	graph          Graph
	spanBuffer     []timeline.Span
	// Memory that all graphs use.
	edgesByNode [][]Edge
	positions   []int32
	sorted      []Node
	times       []int64
}

// Graph returns the dependency graph of what goroutine g did in [from, to). It returns nil if the graph would be too large, or
// if it does not reproduce the trace's times (isConsistent). It is valid until the next call.
func (w *Walker) Graph(g uint64, from, to int64) *Graph {
	w.steps, w.spans, w.frames, w.FollowedWaits, w.gapEnd = w.steps[:0], w.spans[:0], w.frames[:0], w.FollowedWaits[:0], 0
	builder := &w.graphBuilder
	builder.walker, builder.rootG, builder.start, builder.end, builder.parts, builder.links = w, g, from, to, builder.parts[:0], builder.links[:0]
	builder.cost, builder.originSearches, builder.failed = 0, 0, false
	builder.addPart(&graphPart{g: g, start: from, end: to, hasOrigin: true, answers: w.findAnswers(g, from)})
	for i := 0; i < len(builder.parts) && !builder.failed; i++ {
		for part := builder.parts[i]; part.scannedUntil < part.end && !builder.failed; {
			builder.scanPart(part)
		}
		// Earlier parts may have grown.
		for j := 0; j < i && !builder.failed; j++ {
			for part := builder.parts[j]; part.scannedUntil < part.end && !builder.failed; {
				builder.scanPart(part)
			}
		}
	}
	if builder.failed {
		return nil
	}
	return builder.assemble()
}

// addLink adds a dependency of goroutine to on goroutine from, both at time t.
func (b *graphBuilder) addLink(from, to uint64, t int64) {
	b.links = append(b.links, link{from: instant{from, t}, to: instant{to, t}})
}

// scanPart lists the items of a part (the time of one goroutine that belongs to the graph), and for each wait that it follows
// adds a link and the part of the goroutine that ended the wait.
func (b *graphBuilder) scanPart(part *graphPart) {
	scannedUntil := part.scannedUntil
	part.scannedUntil = part.end
	b.listItems(part)
	if b.failed {
		return // the graph is too large, and the number of waits has no bound
	}
	for i := range part.items {
		wait := &part.items[i]
		if wait.waker == 0 || wait.step.End <= scannedUntil {
			continue
		}
		b.links = append(b.links, link{
			from: instant{wait.waker, wait.step.End}, to: instant{part.g, wait.step.End}, wait: wait.step.Stack, waitKind: wait.kind,
		})
		if wait.answer != nil {
			b.addAnswer(part, wait)
			continue
		}
		if b.addWaker(wait.waker, part, wait) || wait.kind == WaitGroup {
			b.addSiblings(part, wait)
		}
	}
}

// listItems fills in the part's items: its steps and followed waits, in order of time. It reads the goroutine's spans backward
// as Walk does.
func (b *graphBuilder) listItems(part *graphPart) {
	walker := b.walker
	part.items = part.items[:0]
	walker.steps = walker.steps[:0]
	walker.pushFrame(part.g, part.start, part.end, -1, false)
	frame := &walker.frames[len(walker.frames)-1]
	frame.answers, frame.answerDepth = part.answers, part.answerDepth
	b.cost += frame.spanCount
	cursor := part.end
	for cursor > part.start {
		if frame.nextSpan < frame.firstSpan {
			b.listCreation(part, frame, &cursor)
			break
		}
		span := &walker.spans[frame.nextSpan]
		if span.End < cursor {
			b.addLeaf(part, &cursor, max(span.End, part.start), Step{G: part.g, Kind: Unknown, FollowedWait: -1}, 0)
			continue
		}
		frame.nextSpan--
		start := max(span.Start, part.start)
		if start >= cursor {
			continue
		}
		if span.State != timeline.Waiting {
			walker.steps = walker.steps[:0]
			end := cursor
			walker.emitSpan(frame, span, start, &end)
			fullLength := int64(0)
			if span.State == timeline.Syscall {
				fullLength = fullLengthOf(span)
			}
			if len(walker.steps) == 0 {
				b.addLeaf(part, &cursor, start, Step{G: part.g, Kind: Unknown, FollowedWait: -1}, 0)
				continue
			}
			b.addLeaf(part, &cursor, start, walker.steps[0], fullLength)
			continue
		}
		b.listWait(part, frame, span, start, &cursor)
	}
	walker.popFrame()
	slices.Reverse(part.items)
	if b.cost > maxItems {
		b.failed = true
	}
}

// fullLengthOf returns the length of a span, in ns; 0 if its beginning is unknown.
func fullLengthOf(span *timeline.Span) int64 {
	if span.Start == timeline.BeforeTrace {
		return 0
	}
	return span.End - span.Start
}

// addLeaf adds a step that depends on no other goroutine, from start to the cursor, and moves the cursor back to start.
// fullLength, in ns, becomes GraphStep.FullLength.
func (b *graphBuilder) addLeaf(part *graphPart, cursor *int64, start int64, step Step, fullLength int64) {
	if start >= *cursor {
		return
	}
	step.Start, step.End = start, *cursor
	*cursor = start
	part.items = append(part.items, partItem{step: step, fullLength: fullLength})
}

// listWait adds the items of a wait, which span contains and the part needs from start to the cursor, and moves the cursor back
// to start. The decisions are those of Walker.followWait: a followed wait has a waker, any other wait is a leaf.
func (b *graphBuilder) listWait(part *graphPart, frame *walkFrame, span *timeline.Span, start int64, cursor *int64) {
	walker := b.walker
	sender, heldUntil := walker.heldUpSender(part.g, span, start, *cursor)
	if sender != 0 && heldUntil == *cursor {
		b.listFollowed(part, start, cursor, partItem{step: Step{G: part.g, Kind: Chan, Stack: span.Stack, FollowedWait: -1}, waker: sender, kind: WaitSelect})
		return
	}
	verdict := walker.judgeWait(frame, span, *cursor)
	fullLength := fullLengthOf(span)
	answer := frame.matchAnswer(&verdict, start, *cursor)
	if verdict.pollGapStart != 0 {
		gap := verdict.step
		gap.Kind = PollGap
		b.addLeaf(part, cursor, max(verdict.pollGapStart, start), gap, 0)
	}
	if part.anchor.g != 0 && part.waitKind == WaitLock && walker.rolesOf(part.waitStack).Has(knowledge.File) && walker.endsEarlierRequest(span, &verdict) {
		step := Step{G: part.anchor.g, Kind: Lock, Stack: part.waitStack, FollowedWait: -1}
		for i := len(part.items) - 1; i >= 0; i-- {
			if held := &part.items[i].step; walker.isCallOnFile(part.waitStack, held) {
				step.G, step.Kind, step.Stack = held.G, held.Kind, held.Stack
				break
			}
		}
		b.addLeaf(part, cursor, part.start, step, 0)
		return
	}
	if answer != nil {
		b.listAnswerWait(part, answer, &verdict, start, cursor, fullLength)
		if start < *cursor {
			frame.nextSpan++ // the rest of it is read again: the way there
			return
		}
	}
	if verdict.mayBeFutile {
		start = walker.mergeVainWaits(frame, span, start, walker.endedByBroadcast)
	}
	if verdict.endedByTimer {
		lastWait := *span // the span moves
		start = walker.mergeVainWaits(frame, &lastWait, start, endedByGoroutine)
		period, isTicker := b.tickerPeriod(part.g, &lastWait)
		b.addLeaf(part, cursor, start, verdict.step, max(period, *cursor-start))
		if n := len(part.items); n > 0 {
			part.items[n-1].endsWithTick = isTicker
		}
		return
	}
	if start >= *cursor {
		return
	}
	if !verdict.followWaker || !b.hasEvents(span.Waker, *cursor) {
		b.addLeaf(part, cursor, start, verdict.step, fullLength)
		return
	}
	if sender != 0 {
		start = heldUntil
		frame.nextSpan++ // the rest of it is read again
	}
	b.listFollowed(part, start, cursor, partItem{step: verdict.step, waker: span.Waker, kind: verdict.kind})
}

// listFollowed adds a wait whose waker is followed, from start to the cursor, and moves the cursor back to start.
func (b *graphBuilder) listFollowed(part *graphPart, start int64, cursor *int64, wait partItem) {
	wait.step.Start, wait.step.End = start, *cursor
	*cursor = start
	part.items = append(part.items, wait)
}

// hasEvents reports whether goroutine g has events in the generation of time t or the one before.
func (b *graphBuilder) hasEvents(g uint64, t int64) bool {
	window := b.walker.window
	for i := window.GenIndex(t); i >= max(window.GenIndex(t)-1, 0); i-- {
		if window.Gens[i].Knows(g) {
			return true
		}
	}
	return false
}

// tickerPeriod returns the period in ns of the ticker that ended the wait span, and true: the time since a timer last ended a
// wait of goroutine g with this stack, if other goroutines ended such waits in between. Otherwise it was a plain timer, and the
// result is the length of span and false.
func (b *graphBuilder) tickerPeriod(g uint64, span *timeline.Span) (periodNS int64, isTicker bool) {
	walker := b.walker
	length := fullLengthOf(span)
	for searchNS := 2*length + 2e6; searchNS <= maxTickerPeriodNS; searchNS *= 4 {
		b.spanBuffer = walker.window.Spans(g, span.End-searchNS, span.End, b.spanBuffer[:0])
		b.cost += len(b.spanBuffer) / 8
		otherWakes := false
		for i := len(b.spanBuffer) - 1; i >= 0; i-- {
			previous := &b.spanBuffer[i]
			if previous.State != timeline.Waiting || previous.Stack != span.Stack || previous.Start >= span.Start {
				continue
			}
			if previous.Woken && previous.Waker == 0 {
				if otherWakes {
					return span.End - previous.End, true
				}
				return length, false
			}
			otherWakes = true
		}
		if !otherWakes || len(b.spanBuffer) > 4*originSearchSpans || span.End-searchNS < walker.window.Start() {
			break
		}
	}
	return length, false
}

// listCreation adds the item for the time from the frame's start to the cursor, before the goroutine's first span: a dependency
// on its creator, a timer's Sleep, or Unknown. It moves the cursor back to the item's start.
func (b *graphBuilder) listCreation(part *graphPart, frame *walkFrame, cursor *int64) {
	first := timeline.Span{}
	if frame.spanCount > 0 {
		first = b.walker.spans[frame.firstSpan]
	}
	if frame.spanCount == 0 || first.Origin != timeline.OriginCreated || first.Start <= part.start {
		b.addLeaf(part, cursor, part.start, Step{G: part.g, Kind: Unknown, FollowedWait: -1}, 0)
		return
	}
	if first.Peer == 0 {
		// No goroutine created it: it runs a timer's function.
		step := Step{G: part.g, Kind: Sleep, Beginning: timeline.OriginCreated, Stack: b.walker.window.StartOf(part.g, first.Start), FollowedWait: -1}
		if part.waitStack != 0 && !b.walker.rolesOf(step.Stack).Has(knowledge.NonStdlib) {
			step.Stack = part.waitStack
		}
		b.addLeaf(part, cursor, part.start, step, 0)
		return
	}
	creation := partItem{step: Step{G: part.g, Kind: Chan, FollowedWait: -1}, waker: first.Peer, kind: WaitCoroutine}
	creation.step.Start, creation.step.End = part.start, *cursor
	*cursor = part.start
	part.items = append(part.items, creation)
}

// addPart adds a part to the graph, or extends an existing part of the same goroutine that overlaps it. The graph fails if
// there are too many parts.
func (b *graphBuilder) addPart(part *graphPart) {
	for _, existing := range b.parts {
		if existing.g != part.g || part.start > existing.end || existing.start > part.end || existing.end == part.start || part.end == existing.start {
			continue
		}
		if part.start < existing.start {
			// Its new beginning has not been scanned.
			existing.start, existing.anchor, existing.hasOrigin, existing.creator = part.start, part.anchor, part.hasOrigin, part.creator
			existing.scannedUntil = min(existing.scannedUntil, part.start)
		}
		existing.hasOrigin = existing.hasOrigin || part.hasOrigin
		existing.end = max(existing.end, part.end)
		return
	}
	if len(b.parts) >= maxParts {
		b.failed = true
		return
	}
	part.scannedUntil = part.start
	if n := len(b.parts); n < cap(b.parts) {
		if earlier := b.parts[:n+1][n]; earlier != nil { // of another graph
			part.items, part.cuts = earlier.items[:0], earlier.cuts[:0]
		}
	}
	b.parts = append(b.parts, part)
}

// addSiblings adds further goroutines that a wait of the part may have waited for: those with the same creator as the waker (or
// created by the waiter) that ended before the wait did. For a WaitGroup their links are certain, for other waits soft.
func (b *graphBuilder) addSiblings(part *graphPart, wait *partItem) {
	creator, start := part.g, part.start
	for _, existing := range b.parts {
		if existing.g == wait.waker && existing.creator != 0 {
			creator = existing.creator
		}
	}
	if !b.isMember(creator, wait.step.End) {
		return
	}
	if creator != part.g {
		for _, existing := range b.parts {
			if existing.g == creator && existing.hasOrigin {
				start = existing.start
			}
		}
	}
	type child struct {
		g          uint64
		born, died int64
	}
	var ended []child
	visited := 0
	b.walker.window.Children(creator, max(start, b.start), wait.step.End, func(birth timeline.Birth) bool {
		if birth.G != wait.waker {
			if death, ok := b.walker.window.Death(birth.G, birth.Time); ok && death <= wait.step.End {
				ended = append(ended, child{birth.G, birth.Time, death})
			}
		}
		visited++
		return visited < 16*maxSiblings
	})
	slices.SortFunc(ended, func(x, y child) int { return cmp.Or(cmp.Compare(y.died, x.died), cmp.Compare(x.g, y.g)) })
	for _, c := range ended[:min(len(ended), maxSiblings)] {
		b.addLink(creator, c.g, c.born)
		b.links = append(b.links, link{from: instant{c.g, c.died}, to: instant{part.g, wait.step.End}, soft: wait.kind != WaitGroup})
		b.addPart(&graphPart{g: c.g, start: c.born, end: c.died, hasOrigin: true, creator: creator, answers: part.answers, answerDepth: part.answerDepth})
	}
}
