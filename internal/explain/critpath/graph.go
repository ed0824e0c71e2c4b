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
	maxParts          = 64
	maxItems          = 1500
	maxSiblings       = 32
	maxOriginSearches = 24  // searches for the origin of a goroutine's work
	originSearchSpans = 64  // spans read in one search
	minOriginSearchNS = 1e6 // a search reads at least so much time before the wait,
	originSearchWaits = 8   // or so many times the length of the wait
	maxTickerPeriodNS = 10e9
)

// A graphPart is the part of a goroutine's life that belongs to a graph.
type graphPart struct {
	g          uint64
	start, end int64
	// anchor is the beginning of the wait that this part ended, if the part is assumed to come after it.
	anchor instant
	// waitStack is the stack of that wait, and waitKind its kind.
	waitStack      tracefmt.StackID
	waitKind       WaitKind
	deliversResult bool
	hasOrigin      bool   // it begins where the request started the goroutine or gave it work
	creator        uint64 // the goroutine that created this one; 0 unless the part begins with the creation
	items          []partItem
	scannedUntil   int64    // waits that ended by then have been followed
	answers        []Answer // the answers for which its request waits
	answerDepth    int      // how many answers lead from the graph's request to its request
	cuts           []int64  // sorted times that need a node
	firstNode      int32    // the index of the node of the first cut
}

// contains reports whether an instant is in the part, its ends included.
func (p *graphPart) contains(point instant) bool {
	return p.g == point.g && p.start <= point.t && point.t <= p.end
}

// node returns the index of the node at one of the part's cuts.
func (p *graphPart) node(t int64) int32 {
	i, _ := slices.BinarySearch(p.cuts, t)
	return p.firstNode + int32(i)
}

// A partItem is a step of a part or, if waker is not 0, a wait that is followed.
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
	cost           int // the spans read so far, weighted
	originSearches int
	failed         bool
	graph          *Graph
	spanBuffer     []timeline.Span
}

// Graph returns the graph of what goroutine g did in [from, to), or nil if the graph would be too large or is
// inconsistent. Later calls do not change it.
func (w *Walker) Graph(g uint64, from, to int64) *Graph {
	w.steps, w.spans, w.frames, w.FollowedWaits = w.steps[:0], w.spans[:0], w.frames[:0], w.FollowedWaits[:0]
	builder := &graphBuilder{walker: w, rootG: g, start: from, end: to}
	builder.parts = append(builder.parts, &graphPart{g: g, start: from, end: to, hasOrigin: true, scannedUntil: from, answers: w.findAnswers(g, from)})
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

// addLink adds a link from goroutine from to goroutine to, both at t.
func (b *graphBuilder) addLink(from, to uint64, t int64) {
	b.links = append(b.links, link{from: instant{from, t}, to: instant{to, t}})
}

// isMember reports whether goroutine g worked for the request at t.
func (b *graphBuilder) isMember(g uint64, t int64) bool {
	if g == b.rootG {
		return t >= b.start
	}
	for _, part := range b.parts {
		if part.g == g && part.hasOrigin && part.start <= t && (part.creator != 0 || t <= part.end) {
			return true
		}
	}
	return false
}

// scanPart lists the items of a part, and adds the parts that its waits depend on.
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
		hooked := b.addWaker(wait.waker, part, wait)
		if hooked || wait.kind == WaitGroup {
			b.addSiblings(part, wait, hooked)
		}
	}
}

// listItems fills in the items of a part, in order of time.
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

// addLeaf adds an item without a waker from start to the cursor, and moves the cursor to start.
func (b *graphBuilder) addLeaf(part *graphPart, cursor *int64, start int64, step Step, fullLength int64) {
	if start >= *cursor {
		return
	}
	step.Start, step.End = start, *cursor
	*cursor = start
	part.items = append(part.items, partItem{step: step, fullLength: fullLength})
}

// listWait adds the items of a wait.
func (b *graphBuilder) listWait(part *graphPart, frame *walkFrame, span *timeline.Span, start int64, cursor *int64) {
	walker := b.walker
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
	wait := partItem{step: verdict.step, waker: span.Waker, kind: verdict.kind}
	wait.step.Start, wait.step.End = start, *cursor
	*cursor = start
	part.items = append(part.items, wait)
}

// hasEvents reports whether the trace has events of goroutine g around t.
func (b *graphBuilder) hasEvents(g uint64, t int64) bool {
	window := b.walker.window
	for i := window.GenIndex(t); i >= max(window.GenIndex(t)-1, 0); i-- {
		if window.Gens[i].Knows(g) {
			return true
		}
	}
	return false
}

// tickerPeriod returns the period, in ns, of the ticker that ended the wait span, and true. The period is the time
// since a timer last ended a wait of this goroutine at the same place, if other wakes ended waits there since then.
// Otherwise tickerPeriod returns the length of span and false.
func (b *graphBuilder) tickerPeriod(g uint64, span *timeline.Span) (int64, bool) {
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

// listCreation adds the item for the time before the goroutine's first span.
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

// addWaker adds what the waker did until it ended a wait of the part. It reports whether that work was followed back
// to the request.
func (b *graphBuilder) addWaker(waker uint64, part *graphPart, wait *partItem) bool {
	waitStart, waitEnd := wait.step.Start, wait.step.End
	if waker == b.rootG {
		return true
	}
	if start, creator, ok := b.findOrigin(waker, part, wait.kind, waitStart, waitEnd, 0); ok {
		b.addPart(&graphPart{g: waker, start: start, end: waitEnd, hasOrigin: true, creator: creator, answers: part.answers, answerDepth: part.answerDepth})
		return true
	}
	b.addPart(&graphPart{g: waker, start: waitStart, end: waitEnd, anchor: instant{part.g, waitStart}, waitStack: wait.step.Stack, waitKind: wait.kind, deliversResult: (part.hasOrigin || part.deliversResult) && handsOverResult(wait.kind), answers: part.answers, answerDepth: part.answerDepth})
	return false
}

// handsOverResult reports whether a waker that ends such a wait hands over a result. Otherwise it only frees a lock
// or a slot.
func handsOverResult(kind WaitKind) bool {
	return kind != WaitLock && kind != WaitOnce && kind != WaitSend
}

// findOrigin finds the start of what goroutine g did until waitEnd: the instant at which a member of the request
// created it or woke it, or at which it last woke a member itself.
func (b *graphBuilder) findOrigin(g uint64, part *graphPart, kind WaitKind, waitStart, waitEnd int64, depth int) (start int64, creator uint64, ok bool) {
	latest := int64(-1)
	for _, existing := range b.parts {
		if existing.g == g && existing.hasOrigin && existing.start < waitEnd && (existing.creator != 0 || existing.end >= waitEnd) && existing.start > latest {
			latest, creator = existing.start, existing.creator
		}
	}
	if latest >= 0 {
		return latest, creator, true
	}
	if b.originSearches++; b.originSearches > maxOriginSearches || depth > 3 {
		return 0, 0, false
	}
	if birth, isBorn := b.walker.window.Born(g, waitEnd); isBorn && birth.Time >= b.start && birth.Creator != 0 {
		if b.isMember(birth.Creator, birth.Time) {
			b.addLink(birth.Creator, g, birth.Time)
			return birth.Time, birth.Creator, true
		}
	}
	if kind == WaitLock || kind == WaitOnce {
		return 0, 0, false // the order in which goroutines get a lock does not show for which request they work
	}
	// If it woke a member before, its work since then is for the request.
	for i := range b.links {
		if l := &b.links[i]; l.from.g == g && !l.soft && l.from.t < waitEnd && l.from.t <= waitStart+maxConditionCheckNS && l.from.t > latest && b.isMember(l.to.g, l.to.t) {
			latest = l.from.t
		}
	}
	searchStart := max(b.start, waitStart-originSearchWaits*(waitEnd-waitStart)-minOriginSearchNS, latest)
	wakeTime, waker := b.lastWake(g, searchStart, waitEnd)
	if latest >= 0 {
		// Its work for others in between ended before the request was sent.
		if sentAt, ok := b.requestSentAt(g, part, max(latest, wakeTime), waitStart); ok {
			b.addLink(part.g, g, sentAt)
			return sentAt, 0, true
		}
	}
	if wakeTime > latest {
		if waker == 0 {
			return 0, 0, false
		}
		if b.isMember(waker, wakeTime) {
			b.addLink(waker, g, wakeTime)
			return wakeTime, 0, true
		}
		if start, wakerCreator, ok := b.findOrigin(waker, part, WaitChan, min(waitStart, wakeTime), wakeTime, depth+1); ok {
			b.addPart(&graphPart{g: waker, start: start, end: wakeTime, hasOrigin: true, creator: wakerCreator, answers: part.answers, answerDepth: part.answerDepth})
			b.addLink(waker, g, wakeTime)
			return wakeTime, 0, true
		}
		// Another goroutine, which does not work for the request, woke it from idleness. If the request had sent its
		// work earlier, this goroutine would have begun earlier.
		return 0, 0, false
	}
	return latest, 0, latest >= 0
}

// requestSentAt returns when the waiter of the part sent the request that goroutine g answers: the start of its last
// run in [from, to) that woke or started a goroutine or made a system call, if g waited for the network at that time.
// Without it, predictions could not move a retry that follows a pause: g's work would seem to begin with the answer
// before.
func (b *graphBuilder) requestSentAt(g uint64, part *graphPart, from, to int64) (int64, bool) {
	if !part.hasOrigin {
		return 0, false
	}
	window := b.walker.window
	b.spanBuffer = window.Spans(part.g, from, to, b.spanBuffer[:0])
	b.cost += len(b.spanBuffer) / 8
	runStart := int64(-1)
	for i := len(b.spanBuffer) - 1; i >= 0 && runStart < 0; i-- {
		span := &b.spanBuffer[i]
		handedOver := span.State == timeline.Syscall
		if span.State == timeline.Running {
			window.EachWoken(part.g, max(span.Start, from), min(span.End, to), func(uint64, tracefmt.StackID) bool { handedOver = true; return false })
		}
		if handedOver {
			runStart = span.Start
		}
	}
	if runStart <= from || runStart < part.start {
		return 0, false
	}
	b.spanBuffer = window.Spans(g, runStart, runStart+1, b.spanBuffer[:0])
	for i := range b.spanBuffer {
		if span := &b.spanBuffer[i]; span.State == timeline.Waiting && span.Start < runStart && span.End > runStart {
			return runStart, b.walker.waitReason(span.Reason) == reasonNetwork && !b.walker.isClientWait(span.Stack)
		}
	}
	return 0, false
}

// lastWake returns the last time in [from, to) at which another goroutine or a client woke goroutine g, and that
// goroutine, 0 for a client. The time is -1 if there was no such wake.
func (b *graphBuilder) lastWake(g uint64, from, to int64) (wakeTime int64, waker uint64) {
	walker := b.walker
	walker.pushFrame(g, from, to, -1, false)
	defer walker.popFrame()
	frame := &walker.frames[len(walker.frames)-1]
	b.cost += frame.spanCount / 4
	for n := 0; frame.nextSpan >= frame.firstSpan && n < originSearchSpans; n++ {
		span := &walker.spans[frame.nextSpan]
		frame.nextSpan--
		if span.State != timeline.Waiting || span.End > to || span.End <= from {
			continue
		}
		if verdict := walker.judgeWait(frame, span, to); verdict.followWaker && (verdict.kind != WaitLock && verdict.kind != WaitOnce || verdict.step.Kind == Unknown) {
			return span.End, span.Waker
		} else if verdict.step.Inbound {
			return span.End, 0
		}
	}
	return -1, 0
}

// addPart adds a part to the graph, or extends an existing part that overlaps it.
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
	b.parts = append(b.parts, part)
}

// addSiblings adds further goroutines that a wait of the part may have waited for: those that its own goroutine or
// the waker's creator had started, and that ended before the wait did. A WaitGroup certainly waited for them, other
// waits possibly.
func (b *graphBuilder) addSiblings(part *graphPart, wait *partItem, hasOrigin bool) {
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
	b.walker.window.Children(creator, max(start, b.start), wait.step.End, func(g uint64, bornAt int64) bool {
		if g != wait.waker {
			if death, ok := b.walker.window.Death(g, bornAt); ok && death <= wait.step.End {
				ended = append(ended, child{g, bornAt, death})
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

// assemble turns the parts and links into a graph, or returns nil if that is not possible.
func (b *graphBuilder) assemble() *Graph {
	slices.SortFunc(b.parts[1:], func(x, y *graphPart) int { return cmp.Or(cmp.Compare(x.g, y.g), cmp.Compare(x.start, y.start)) })
	// Of several links between the same instants, the first remains: one that is not soft, with its wait.
	rank := func(l link) int {
		switch {
		case l.soft:
			return 2
		case l.wait == 0:
			return 1
		}
		return 0
	}
	slices.SortFunc(b.links, func(x, y link) int {
		return cmp.Or(x.to.compare(y.to), x.from.compare(y.from), cmp.Compare(rank(x), rank(y)))
	})
	b.links = slices.CompactFunc(b.links, func(x, y link) bool { return x.to == y.to && x.from == y.from })
	b.graph = &Graph{}
	b.collectCuts()
	if !b.buildNodes() || !b.buildEdges() || !b.sortNodes() || !b.graph.isConsistent() {
		return nil
	}
	return b.graph
}

// collectCuts collects, for each part, the times to which links and anchors refer.
func (b *graphBuilder) collectCuts() {
	addCut := func(point instant) {
		for _, part := range b.parts {
			if part.contains(point) {
				part.cuts = append(part.cuts, point.t)
			}
		}
	}
	for _, part := range b.parts {
		part.cuts = append(part.cuts, part.start, part.end)
		if part.anchor.g != 0 {
			addCut(part.anchor)
		}
	}
	for _, l := range b.links {
		addCut(l.from)
		addCut(l.to)
	}
	for _, part := range b.parts {
		slices.Sort(part.cuts)
		part.cuts = slices.Compact(part.cuts)
	}
}

// buildNodes adds a node for every cut, with the steps that lead to it. It reports false if there are too many.
func (b *graphBuilder) buildNodes() bool {
	for _, part := range b.parts {
		part.firstNode = int32(len(b.graph.Nodes))
		firstItem := 0
		for j, t := range part.cuts {
			node := Node{Time: t, G: part.g, OtherWork: !part.hasOrigin, Predecessor: -1, FirstStep: int32(len(b.graph.Steps))}
			if j > 0 {
				node.Predecessor = int32(len(b.graph.Nodes) - 1)
				from := part.cuts[j-1]
				for firstItem > 0 && part.items[firstItem-1].step.End > from {
					firstItem--
				}
				for ; firstItem < len(part.items) && part.items[firstItem].step.Start < t; firstItem++ {
					item := &part.items[firstItem]
					if item.waker != 0 || item.step.End <= from {
						continue
					}
					step := GraphStep{Step: item.step, FullLength: item.fullLength, OtherWork: !part.hasOrigin, DeliversResult: part.deliversResult, EndsWithTick: item.endsWithTick}
					step.Start, step.End = max(step.Start, from), min(step.End, t)
					b.graph.Steps = append(b.graph.Steps, step)
				}
			}
			node.EndStep = int32(len(b.graph.Steps))
			b.graph.Nodes = append(b.graph.Nodes, node)
		}
	}
	return len(b.graph.Nodes) <= maxItems
}

// nodeAt returns the node at an instant, or -1. If two parts meet there, the part that ends there has the node.
func (b *graphBuilder) nodeAt(point instant) int32 {
	node := int32(-1)
	for _, part := range b.parts {
		if part.contains(point) && (node < 0 || part.end == point.t) {
			node = part.node(point.t)
		}
	}
	return node
}

// buildEdges turns links and anchors into edges. It reports false if an anchor has no node.
func (b *graphBuilder) buildEdges() bool {
	edgesByNode := make([][]Edge, len(b.graph.Nodes))
	for _, l := range b.links {
		from := b.nodeAt(l.from)
		if from < 0 {
			continue
		}
		for _, part := range b.parts {
			if !part.contains(l.to) {
				continue
			}
			to := part.node(l.to.t)
			if to == from || to == part.firstNode && part.anchor.g != 0 {
				continue // what came before the anchor has no effect
			}
			edgesByNode[to] = append(edgesByNode[to], Edge{From: from, Wait: l.wait, WaitKind: l.waitKind, Soft: l.soft})
		}
	}
	for _, part := range b.parts {
		if part.anchor.g != 0 {
			anchor := b.nodeAt(part.anchor)
			if anchor < 0 {
				return false
			}
			edgesByNode[part.firstNode] = append(edgesByNode[part.firstNode], Edge{From: anchor})
		}
		for _, earlier := range b.parts {
			if earlier.g == part.g && earlier.end == part.start && earlier != part && part.start > b.start {
				edgesByNode[part.firstNode] = append(edgesByNode[part.firstNode], Edge{From: earlier.node(earlier.end)})
			}
		}
	}
	for i := range b.graph.Nodes {
		n := &b.graph.Nodes[i]
		n.FirstEdge = int32(len(b.graph.Edges))
		b.graph.Edges = append(b.graph.Edges, edgesByNode[i]...)
		n.EndEdge = int32(len(b.graph.Edges))
	}
	return true
}

// sortNodes sorts the nodes topologically, the end last, and drops those on which the end does not depend. It reports
// false for a cycle.
func (b *graphBuilder) sortNodes() bool {
	end := b.parts[0].node(b.parts[0].end)
	const onStack, done = -2, -1
	position := make([]int32, len(b.graph.Nodes)) // by node: 0 if not visited, onStack, or the position in sorted plus one
	var sorted []Node
	type visit struct {
		n    int32
		next int32
	}
	stack := []visit{{end, -1}}
	position[end] = onStack
	for len(stack) > 0 {
		v := &stack[len(stack)-1]
		n := &b.graph.Nodes[v.n]
		dependency := int32(-1)
		if v.next == -1 {
			dependency = n.Predecessor
		} else if n.FirstEdge+v.next < n.EndEdge {
			dependency = b.graph.Edges[n.FirstEdge+v.next].From
		} else {
			sorted = append(sorted, *n)
			position[v.n] = int32(len(sorted))
			stack = stack[:len(stack)-1]
			continue
		}
		v.next++
		if dependency < 0 {
			continue
		}
		if position[dependency] == onStack {
			return false
		}
		if position[dependency] == 0 {
			position[dependency] = onStack
			stack = append(stack, visit{dependency, -1})
		}
	}
	for i := range sorted {
		n := &sorted[i]
		if n.Predecessor >= 0 {
			n.Predecessor = position[n.Predecessor] - 1
		}
	}
	for i := range b.graph.Edges {
		if e := &b.graph.Edges[i]; position[e.From] > 0 {
			e.From = position[e.From] - 1
		}
	}
	b.graph.Nodes = sorted
	return true
}

// isConsistent reports whether every node happens at its time in the trace as long as no step changes.
func (g *Graph) isConsistent() bool {
	computed := make([]int64, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		t := int64(-1 << 62)
		if n.Predecessor < 0 && n.FirstEdge == n.EndEdge {
			t = n.Time
		}
		if n.Predecessor >= 0 {
			t = computed[n.Predecessor]
			for _, s := range g.Steps[n.FirstStep:n.EndStep] {
				t += s.End - s.Start
			}
		}
		for _, e := range g.Edges[n.FirstEdge:n.EndEdge] {
			t = max(t, computed[e.From])
		}
		if t != n.Time {
			return false
		}
		computed[i] = t
	}
	return true
}
