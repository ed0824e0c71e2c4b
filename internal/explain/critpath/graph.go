package critpath

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Graph is what the end of a request depends on. Predictions compute its times
// again with some parts shorter. The critical path alone is not enough for that:
// if it gets shorter, work that ran in parallel may become the last to end.
//
// A node happens when all that it depends on has happened: the node Before it on
// its goroutine plus the steps between, and its Edges. With every step as long as
// in the trace, each node happens when it did in the trace.
//
// What a wait depends on is found in two ways.
//
//   - A goroutine that the request started, or that works on what the request
//     handed to it, is followed back to that instant: it ran beside the
//     request's own.
//   - For any other goroutine (one that holds a lock, a worker still busy with an
//     earlier job), what it did during the wait is assumed to come after the
//     wait began, as on the critical path. Its steps are marked Others.
type Graph struct {
	Nodes []Node // each stands after those it depends on; the last is the end
	Edges []Edge
	Steps []GraphStep
}

// A Node is an instant in a goroutine's life.
type Node struct {
	Time   int64
	G      uint64
	Before int32 // the node from which Steps lead here, -1 for none
	// Steps[FirstStep:LastStep] and Edges[FirstEdge:LastEdge] of the graph.
	// A node without Before and Edges does not move.
	FirstStep, LastStep int32
	FirstEdge, LastEdge int32
}

// An Edge is a node that must have happened.
type Edge struct {
	From int32
	// Soft reports that the trace does not show the edge: the waiter had started
	// this goroutine, which ended earlier, and may have waited for it.
	Soft bool
}

// A GraphStep is a step of a graph.
type GraphStep struct {
	Step
	// Whole is the length of the wait, of the timer's period or of the system call
	// that the step is a part of; 0 if unknown.
	Whole int64
	// Others reports that it was other requests' work.
	Others bool
	// Result reports, for Others, that the request waited for the end of that work,
	// so that its last part may have been for the request itself.
	Result bool
	// Ticker reports that it ended with a ticker's tick, whose time does not depend on the request.
	Ticker bool
}

// Bounds of one graph. A request that exceeds them has no graph.
const (
	maxPieces   = 64
	maxItems    = 1500
	maxSiblings = 32
	maxHooks    = 24   // searches for what a goroutine had from the request
	hookSpans   = 64   // spans looked at in one of them
	hookLeast   = 1e6  // how far back, ns, at least
	hookTimes   = 8    // how far back, in lengths of the wait
	maxPeriod   = 10e9 // of a ticker
)

// A piece is an interval of a goroutine's life that belongs to a graph.
type piece struct {
	g      uint64
	lo, hi int64
	// anchor is the beginning of the wait of the waiter, for a piece assumed to come after that.
	anchor instant
	// waitStack is the stack of the wait that made it part of the graph.
	waitStack tracefmt.StackID
	result    bool
	hooked    bool // followed back to what it got from the request
	bornBy    uint64
	items     []item
	scanned   int64    // its waits have been followed up to here
	answers   []Answer // of the request that it works for; level is how many requests lie between it and the graph's
	level     int
	cuts      []int64 // instants that need a node, in order; first is the index of the first one's
	first     int32
}

func (p *piece) has(x instant) bool { return p.g == x.g && p.lo <= x.t && x.t <= p.hi }

// node returns the index of the node at one of a piece's cuts.
func (p *piece) node(t int64) int32 {
	i, _ := slices.BinarySearch(p.cuts, t)
	return p.first + int32(i)
}

// An item is a leaf of a piece or, if waker is not 0, a wait that is followed.
type item struct {
	step   Step
	whole  int64
	waker  uint64
	wait   WaitKind
	ticker bool
	asked  *Answer // of a wait for an answer: the request that gives it
}

// An instant in a goroutine's life.
type instant struct {
	g uint64
	t int64
}

func (i instant) compare(o instant) int { return cmp.Or(cmp.Compare(i.t, o.t), cmp.Compare(i.g, o.g)) }

// A link says that what happened at one instant led to another one; soft is as for Edge.
type link struct {
	from, to instant
	soft     bool
}

type graphBuilder struct {
	walker         *Walker
	root           uint64
	from, to       int64
	pieces         []*piece
	links          []link
	cost           int
	originSearches int
	failed         bool
	graph          *Graph
	spanBuffer     []timeline.Span
}

// Graph returns the graph of what goroutine g was doing in [from, to), or nil if
// it would be too large or is inconsistent. Later calls do not change it.
func (w *Walker) Graph(g uint64, from, to int64) *Graph {
	w.steps, w.spans, w.frames, w.FollowedWaits = w.steps[:0], w.spans[:0], w.frames[:0], w.FollowedWaits[:0]
	b := &graphBuilder{walker: w, root: g, from: from, to: to}
	b.pieces = append(b.pieces, &piece{g: g, lo: from, hi: to, hooked: true, scanned: from, answers: w.findAnswers(g, from)})
	for i := 0; i < len(b.pieces) && !b.failed; i++ {
		for p := b.pieces[i]; p.scanned < p.hi && !b.failed; {
			b.scan(p)
		}
		// Earlier pieces may have grown.
		for j := 0; j < i && !b.failed; j++ {
			for p := b.pieces[j]; p.scanned < p.hi && !b.failed; {
				b.scan(p)
			}
		}
	}
	if b.failed {
		return nil
	}
	return b.assemble()
}

// link notes that what a goroutine did at t had an effect on another one.
func (b *graphBuilder) link(from, to uint64, t int64) {
	b.links = append(b.links, link{from: instant{from, t}, to: instant{to, t}})
}

// isMember reports whether goroutine g was working for the request at t.
func (b *graphBuilder) isMember(g uint64, t int64) bool {
	if g == b.root {
		return t >= b.from
	}
	for _, p := range b.pieces {
		if p.g == g && p.hooked && p.lo <= t && (p.bornBy != 0 || t <= p.hi) {
			return true
		}
	}
	return false
}

// scan lists the leaves and waits of a piece, and adds what its waits depend on
// to the graph.
func (b *graphBuilder) scan(p *piece) {
	known := p.scanned
	p.scanned = p.hi
	b.life(p)
	if b.failed {
		return // the graph is too large already, and the waits may be arbitrarily many
	}
	for i := range p.items {
		it := &p.items[i]
		if it.waker == 0 || it.step.End <= known {
			continue
		}
		b.link(it.waker, p.g, it.step.End)
		if it.asked != nil {
			b.addAnswer(p, it)
			continue
		}
		hooked := b.need(it.waker, p, it)
		if hooked || it.wait == WaitGroup {
			b.siblings(p, it, hooked)
		}
	}
}

// life lists the leaves and waits of a piece, in order.
func (b *graphBuilder) life(p *piece) {
	w := b.walker
	p.items = p.items[:0]
	w.steps = w.steps[:0]
	w.pushFrame(p.g, p.lo, p.hi, -1, false)
	f := &w.frames[len(w.frames)-1]
	f.answers, f.answerDepth = p.answers, p.level
	b.cost += f.spanCount
	hi := p.hi
	for hi > p.lo {
		if f.nextSpan < f.firstSpan {
			b.beginning(p, f, &hi)
			break
		}
		s := &w.spans[f.nextSpan]
		if s.End < hi {
			b.leaf(p, &hi, max(s.End, p.lo), Step{G: p.g, Kind: Unknown, FollowedWait: -1}, 0)
			continue
		}
		f.nextSpan--
		start := max(s.Start, p.lo)
		if start >= hi {
			continue
		}
		if s.State != timeline.Waiting {
			w.steps = w.steps[:0]
			end := hi
			w.emitSpan(f, s, start, &end)
			whole := int64(0)
			if s.State == timeline.Syscall {
				whole = wholeOf(s)
			}
			if len(w.steps) == 0 {
				b.leaf(p, &hi, start, Step{G: p.g, Kind: Unknown, FollowedWait: -1}, 0)
				continue
			}
			b.leaf(p, &hi, start, w.steps[0], whole)
			continue
		}
		b.wait(p, f, s, start, &hi)
	}
	w.popFrame()
	slices.Reverse(p.items)
	if b.cost > maxItems {
		b.failed = true
	}
}

func wholeOf(s *timeline.Span) int64 {
	if s.Start == timeline.BeforeTrace {
		return 0
	}
	return s.End - s.Start
}

func (b *graphBuilder) leaf(p *piece, hi *int64, start int64, st Step, whole int64) {
	if start >= *hi {
		return
	}
	st.Start, st.End = start, *hi
	*hi = start
	p.items = append(p.items, item{step: st, whole: whole})
}

// wait lists a wait.
func (b *graphBuilder) wait(p *piece, f *walkFrame, s *timeline.Span, start int64, hi *int64) {
	w := b.walker
	v := w.judgeWait(f, s, *hi)
	whole := wholeOf(s)
	answer := f.matchAnswer(&v, start, *hi)
	if v.pollGapStart != 0 {
		gap := v.step
		gap.Kind = PollGap
		b.leaf(p, hi, max(v.pollGapStart, start), gap, 0)
	}
	if answer != nil {
		b.listAnswerWait(p, answer, &v, start, hi, whole)
		if start < *hi {
			f.nextSpan++ // the rest of it is read again: the way there
			return
		}
	}
	if v.mayBeFutile {
		start = w.mergeVainWaits(f, s, start, w.endedByBroadcast)
	}
	if v.endedByTimer {
		at := *s // the span moves
		start = w.mergeVainWaits(f, &at, start, endedByGoroutine)
		period, ticks := b.period(p.g, &at)
		b.leaf(p, hi, start, v.step, max(period, *hi-start))
		if n := len(p.items); n > 0 {
			p.items[n-1].ticker = ticks
		}
		return
	}
	if start >= *hi {
		return
	}
	if !v.followWaker || !b.isKnown(s.Waker, *hi) {
		b.leaf(p, hi, start, v.step, whole)
		return
	}
	it := item{step: v.step, waker: s.Waker, wait: v.kind}
	it.step.Start, it.step.End = start, *hi
	*hi = start
	p.items = append(p.items, it)
}

// isKnown reports whether the trace shows a goroutine at t.
func (b *graphBuilder) isKnown(g uint64, t int64) bool {
	win := b.walker.window
	for i := win.At(t); i >= max(win.At(t)-1, 0); i-- {
		if win.Gens[i].Knows(g) {
			return true
		}
	}
	return false
}

// period returns a ticker's period: the time between the timer that ended s and
// the previous timer that ended a wait of the same goroutine at the same place,
// if it waited elsewhere in between. Otherwise it returns the length of s, and
// false.
func (b *graphBuilder) period(g uint64, s *timeline.Span) (int64, bool) {
	w := b.walker
	length := wholeOf(s)
	for back := 2*length + 2e6; back <= maxPeriod; back *= 4 {
		b.spanBuffer = w.window.Spans(g, s.End-back, s.End, b.spanBuffer[:0])
		b.cost += len(b.spanBuffer) / 8
		others := false
		for i := len(b.spanBuffer) - 1; i >= 0; i-- {
			p := &b.spanBuffer[i]
			if p.State != timeline.Waiting || p.Stack != s.Stack || p.Start >= s.Start {
				continue
			}
			if p.Woken && p.Waker == 0 {
				if others {
					return s.End - p.End, true
				}
				return length, false
			}
			others = true
		}
		if !others || len(b.spanBuffer) > 4*hookSpans || s.End-back < w.window.Start() {
			break
		}
	}
	return length, false
}

// beginning handles the time of a piece before its goroutine's first span.
func (b *graphBuilder) beginning(p *piece, f *walkFrame, hi *int64) {
	first := timeline.Span{}
	if f.spanCount > 0 {
		first = b.walker.spans[f.firstSpan]
	}
	if f.spanCount == 0 || first.How != timeline.HowCreated || first.Start <= p.lo {
		b.leaf(p, hi, p.lo, Step{G: p.g, Kind: Unknown, FollowedWait: -1}, 0)
		return
	}
	if first.Peer == 0 {
		// A timer's function, which no goroutine created.
		st := Step{G: p.g, Kind: Sleep, Beginning: timeline.HowCreated, Stack: b.walker.window.StartOf(p.g, first.Start), FollowedWait: -1}
		if p.waitStack != 0 && b.walker.traitsOf(st.Stack)&notStdlib == 0 {
			st.Stack = p.waitStack
		}
		b.leaf(p, hi, p.lo, st, 0)
		return
	}
	it := item{step: Step{G: p.g, Kind: Chan, FollowedWait: -1}, waker: first.Peer, wait: WaitCoroutine}
	it.step.Start, it.step.End = p.lo, *hi
	*hi = p.lo
	p.items = append(p.items, it)
}

// need adds what the waker did until it ended a wait of piece p to the graph,
// and reports whether that was followed back to the request.
func (b *graphBuilder) need(waker uint64, p *piece, it *item) bool {
	ws, we := it.step.Start, it.step.End
	if waker == b.root {
		return true
	}
	if lo, by, ok := b.hook(waker, p, it.wait, ws, we, 0); ok {
		b.add(&piece{g: waker, lo: lo, hi: we, hooked: true, bornBy: by, answers: p.answers, level: p.level})
		return true
	}
	b.add(&piece{g: waker, lo: ws, hi: we, anchor: instant{p.g, ws}, waitStack: it.step.Stack, result: (p.hooked || p.result) && brings(it.wait), answers: p.answers, level: p.level})
	return false
}

// brings reports whether the waker that ends such a wait hands over a result,
// rather than frees a place.
func brings(w WaitKind) bool { return w != WaitLock && w != WaitOnce && w != WaitSend }

// hook finds the instant at which goroutine g began what it did until we: when
// a member of the request created or woke it, or when it woke a member itself.
func (b *graphBuilder) hook(g uint64, p *piece, wait WaitKind, ws, we int64, depth int) (lo int64, bornBy uint64, ok bool) {
	best := int64(-1)
	for _, q := range b.pieces {
		if q.g == g && q.hooked && q.lo < we && (q.bornBy != 0 || q.hi >= we) && q.lo > best {
			best, bornBy = q.lo, q.bornBy
		}
	}
	if best >= 0 {
		return best, bornBy, true
	}
	if b.originSearches++; b.originSearches > maxHooks || depth > 3 {
		return 0, 0, false
	}
	if birth, born := b.walker.window.Born(g, we); born && birth.Time >= b.from && birth.By != 0 {
		if b.isMember(birth.By, birth.Time) {
			b.link(birth.By, g, birth.Time)
			return birth.Time, birth.By, true
		}
	}
	if wait == WaitLock || wait == WaitOnce {
		return 0, 0, false // the order of a lock's holders does not say for which request they worked
	}
	// It woke a member: from then on it works on what it got from that.
	for i := range b.links {
		if l := &b.links[i]; l.from.g == g && !l.soft && l.from.t < we && l.from.t <= ws+maxConditionCheckNS && l.from.t > best && b.isMember(l.to.g, l.to.t) {
			best = l.from.t
		}
	}
	from := max(b.from, ws-hookTimes*(we-ws)-hookLeast, best)
	at, by := b.wokenBy(g, from, we)
	if at > best {
		if by == 0 {
			return 0, 0, false
		}
		if b.isMember(by, at) {
			b.link(by, g, at)
			return at, 0, true
		}
		if lo, born, ok := b.hook(by, p, WaitChan, min(ws, at), at, depth+1); ok {
			b.add(&piece{g: by, lo: lo, hi: at, hooked: true, bornBy: born, answers: p.answers, level: p.level})
			b.link(by, g, at)
			return at, 0, true
		}
		// It was idle until a goroutine that is not the request's woke it. If the
		// request had asked earlier, it would have begun earlier.
		return 0, 0, false
	}
	if at, ok := b.asked(g, p, best, ws); ok {
		b.link(p.g, g, at)
		return at, 0, true
	}
	return best, 0, best >= 0
}

// asked returns the beginning of the last run in [from, to) in which the waiter of piece p woke or started a goroutine or made a
// system call, if goroutine g was waiting for the network then: the request for this answer was sent there, not when g brought
// the answer before. Otherwise predictions could not move a retry that comes after a pause.
func (b *graphBuilder) asked(g uint64, p *piece, from, to int64) (int64, bool) {
	if from < 0 || !p.hooked {
		return 0, false
	}
	win := b.walker.window
	b.spanBuffer = win.Spans(p.g, from, to, b.spanBuffer[:0])
	b.cost += len(b.spanBuffer) / 8
	at := int64(-1)
	for i := len(b.spanBuffer) - 1; i >= 0 && at < 0; i-- {
		s := &b.spanBuffer[i]
		gave := s.State == timeline.Syscall
		if s.State == timeline.Running {
			win.Woke(p.g, max(s.Start, from), min(s.End, to), func(uint64, tracefmt.StackID) bool { gave = true; return false })
		}
		if gave {
			at = s.Start
		}
	}
	if at <= from || at < p.lo {
		return 0, false
	}
	b.spanBuffer = win.Spans(g, at, at+1, b.spanBuffer[:0])
	for i := range b.spanBuffer {
		if s := &b.spanBuffer[i]; s.State == timeline.Waiting && s.Start < at && s.End > at {
			return at, b.walker.waitReason(s.Reason) == reasonNetwork && b.walker.traitsOf(s.Stack)&waitsForClient == 0
		}
	}
	return 0, false
}

// wokenBy returns the last instant in [from, to) at which another goroutine woke
// goroutine g, or, with 0 for that goroutine, a client did.
func (b *graphBuilder) wokenBy(g uint64, from, to int64) (at int64, by uint64) {
	w := b.walker
	w.pushFrame(g, from, to, -1, false)
	defer w.popFrame()
	f := &w.frames[len(w.frames)-1]
	b.cost += f.spanCount / 4
	for n := 0; f.nextSpan >= f.firstSpan && n < hookSpans; n++ {
		s := &w.spans[f.nextSpan]
		f.nextSpan--
		if s.State != timeline.Waiting || s.End > to || s.End <= from {
			continue
		}
		if v := w.judgeWait(f, s, to); v.followWaker && (v.kind != WaitLock && v.kind != WaitOnce || v.step.Kind == Unknown) {
			return s.End, s.Waker
		} else if v.step.Inbound {
			return s.End, 0
		}
	}
	return -1, 0
}

// add puts a piece into the graph, or extends one that is already there.
func (b *graphBuilder) add(n *piece) {
	for _, q := range b.pieces {
		if q.g != n.g || n.lo > q.hi || q.lo > n.hi || q.hi == n.lo || n.hi == q.lo {
			continue
		}
		if n.lo < q.lo {
			// It has to be scanned again from its new beginning.
			q.lo, q.anchor, q.hooked, q.bornBy = n.lo, n.anchor, n.hooked, n.bornBy
			q.scanned = min(q.scanned, n.lo)
		}
		q.hooked = q.hooked || n.hooked
		q.hi = max(q.hi, n.hi)
		return
	}
	if len(b.pieces) >= maxPieces {
		b.failed = true
		return
	}
	n.scanned = n.lo
	b.pieces = append(b.pieces, n)
}

// siblings adds what else a wait of piece p may have waited for: goroutines that
// its own goroutine or the waker's creator had started, and that had ended by
// then. A WaitGroup certainly waits for them, other waits perhaps.
func (b *graphBuilder) siblings(p *piece, it *item, hooked bool) {
	maker, since := p.g, p.lo
	for _, q := range b.pieces {
		if q.g == it.waker && q.bornBy != 0 {
			maker = q.bornBy
		}
	}
	if !b.isMember(maker, it.step.End) {
		return
	}
	if maker != p.g {
		for _, q := range b.pieces {
			if q.g == maker && q.hooked {
				since = q.lo
			}
		}
	}
	type child struct {
		g          uint64
		born, died int64
	}
	var ended []child
	n := 0
	b.walker.window.Children(maker, max(since, b.from), it.step.End, func(g uint64, at int64) bool {
		if g != it.waker {
			if d, ok := b.walker.window.Death(g, at); ok && d <= it.step.End {
				ended = append(ended, child{g, at, d})
			}
		}
		n++
		return n < 16*maxSiblings
	})
	slices.SortFunc(ended, func(x, y child) int { return cmp.Or(cmp.Compare(y.died, x.died), cmp.Compare(x.g, y.g)) })
	for _, c := range ended[:min(len(ended), maxSiblings)] {
		b.link(maker, c.g, c.born)
		b.links = append(b.links, link{from: instant{c.g, c.died}, to: instant{p.g, it.step.End}, soft: it.wait != WaitGroup})
		b.add(&piece{g: c.g, lo: c.born, hi: c.died, hooked: true, bornBy: maker, answers: p.answers, level: p.level})
	}
}

// assemble makes nodes of the pieces.
func (b *graphBuilder) assemble() *Graph {
	slices.SortFunc(b.pieces[1:], func(x, y *piece) int { return cmp.Or(cmp.Compare(x.g, y.g), cmp.Compare(x.lo, y.lo)) })
	slices.SortFunc(b.links, func(x, y link) int {
		if c := cmp.Or(x.to.compare(y.to), x.from.compare(y.from)); c != 0 || x.soft == y.soft {
			return c
		} else if y.soft {
			return -1
		}
		return 1
	})
	b.links = slices.CompactFunc(b.links, func(x, y link) bool { return x.to == y.to && x.from == y.from }) // the soft one goes
	b.graph = &Graph{}
	b.cut()
	if !b.nodes() || !b.edges() || !b.order() || !b.graph.holds() {
		return nil
	}
	return b.graph
}

// cut finds the instants in each piece that other pieces refer to.
func (b *graphBuilder) cut() {
	at := func(x instant) {
		for _, p := range b.pieces {
			if p.has(x) {
				p.cuts = append(p.cuts, x.t)
			}
		}
	}
	for _, p := range b.pieces {
		p.cuts = append(p.cuts, p.lo, p.hi)
		if p.anchor.g != 0 {
			at(p.anchor)
		}
	}
	for _, l := range b.links {
		at(l.from)
		at(l.to)
	}
	for _, p := range b.pieces {
		slices.Sort(p.cuts)
		p.cuts = slices.Compact(p.cuts)
	}
}

// nodes makes a node of every cut, with the steps that lead to it.
func (b *graphBuilder) nodes() bool {
	for _, p := range b.pieces {
		p.first = int32(len(b.graph.Nodes))
		k := 0
		for j, t := range p.cuts {
			n := Node{Time: t, G: p.g, Before: -1, FirstStep: int32(len(b.graph.Steps))}
			if j > 0 {
				n.Before = int32(len(b.graph.Nodes) - 1)
				from := p.cuts[j-1]
				for k > 0 && p.items[k-1].step.End > from {
					k--
				}
				for ; k < len(p.items) && p.items[k].step.Start < t; k++ {
					it := &p.items[k]
					if it.waker != 0 || it.step.End <= from {
						continue
					}
					st := GraphStep{Step: it.step, Whole: it.whole, Others: !p.hooked, Result: p.result, Ticker: it.ticker}
					st.Start, st.End = max(st.Start, from), min(st.End, t)
					b.graph.Steps = append(b.graph.Steps, st)
				}
			}
			n.LastStep = int32(len(b.graph.Steps))
			b.graph.Nodes = append(b.graph.Nodes, n)
		}
	}
	return len(b.graph.Nodes) <= maxItems
}

// nodeAt returns the node of an instant, preferably in the piece that ends there, or -1.
func (b *graphBuilder) nodeAt(x instant) int32 {
	at := int32(-1)
	for _, p := range b.pieces {
		if p.has(x) && (at < 0 || p.hi == x.t) {
			at = p.node(x.t)
		}
	}
	return at
}

// edges connects the nodes.
func (b *graphBuilder) edges() bool {
	into := make([][]Edge, len(b.graph.Nodes))
	for _, l := range b.links {
		from := b.nodeAt(l.from)
		if from < 0 {
			continue
		}
		for _, p := range b.pieces {
			if !p.has(l.to) {
				continue
			}
			to := p.node(l.to.t)
			if to == from || to == p.first && p.anchor.g != 0 {
				continue // what came before its anchor does not matter
			}
			into[to] = append(into[to], Edge{from, l.soft})
		}
	}
	for _, p := range b.pieces {
		if p.anchor.g != 0 {
			a := b.nodeAt(p.anchor)
			if a < 0 {
				return false
			}
			into[p.first] = append(into[p.first], Edge{From: a})
		}
		for _, q := range b.pieces {
			if q.g == p.g && q.hi == p.lo && q != p && p.lo > b.from {
				into[p.first] = append(into[p.first], Edge{From: q.node(q.hi)})
			}
		}
	}
	for i := range b.graph.Nodes {
		n := &b.graph.Nodes[i]
		n.FirstEdge = int32(len(b.graph.Edges))
		b.graph.Edges = append(b.graph.Edges, into[i]...)
		n.LastEdge = int32(len(b.graph.Edges))
	}
	return true
}

// order sorts the nodes topologically, the end last, and drops those that the end
// does not depend on. It reports false for a cycle.
func (b *graphBuilder) order() bool {
	end := b.pieces[0].node(b.pieces[0].hi)
	const seen, done = -2, -1
	place := make([]int32, len(b.graph.Nodes)) // 0: not seen; else done, and the place + 1
	var out []Node
	type visit struct {
		n    int32
		next int32
	}
	stack := []visit{{end, -1}}
	place[end] = seen
	for len(stack) > 0 {
		v := &stack[len(stack)-1]
		n := &b.graph.Nodes[v.n]
		dep := int32(-1)
		if v.next == -1 {
			dep = n.Before
		} else if n.FirstEdge+v.next < n.LastEdge {
			dep = b.graph.Edges[n.FirstEdge+v.next].From
		} else {
			out = append(out, *n)
			place[v.n] = int32(len(out))
			stack = stack[:len(stack)-1]
			continue
		}
		v.next++
		if dep < 0 {
			continue
		}
		if place[dep] == seen {
			return false
		}
		if place[dep] == 0 {
			place[dep] = seen
			stack = append(stack, visit{dep, -1})
		}
	}
	for i := range out {
		n := &out[i]
		if n.Before >= 0 {
			n.Before = place[n.Before] - 1
		}
	}
	for i := range b.graph.Edges {
		if e := &b.graph.Edges[i]; place[e.From] > 0 {
			e.From = place[e.From] - 1
		}
	}
	b.graph.Nodes = out
	return true
}

// holds reports whether every node happens when it did in the trace if nothing is changed.
func (g *Graph) holds() bool {
	at := make([]int64, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		t := int64(-1 << 62)
		if n.Before < 0 && n.FirstEdge == n.LastEdge {
			t = n.Time
		}
		if n.Before >= 0 {
			t = at[n.Before]
			for _, s := range g.Steps[n.FirstStep:n.LastStep] {
				t += s.End - s.Start
			}
		}
		for _, e := range g.Edges[n.FirstEdge:n.LastEdge] {
			t = max(t, at[e.From])
		}
		if t != n.Time {
			return false
		}
		at[i] = t
	}
	return true
}
