package predict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Graph is one request of the sample as a dependency graph: the events on which its end depends (nodes and edges), and
// between them intervals, each with one cause and site. Retiming the intervals gives the latency after a change.
type Graph struct {
	isChain bool // a chain of sums by cause and site, which does not show for which request a work was done
	Latency int64
	Start   int64
	G       uint64

	nodes          []node
	edges          []critpath.Edge
	intervals      []interval
	runShares      []runShare
	pauseSequences []pauseSequence
	computations   int32

	builder   *Builder // it is only reserved in a Sample, see Reserve, and this builds it; else nil
	key       uint64   // in a Sample, see sampleKey
	isPartial bool     // it depends on a wait that began before the trace, so it is unknown which one
}

// A node is an event of one goroutine, such as the end of a wait or the wake-up of another goroutine. The intervals since the
// node's predecessor, on the same goroutine, lead to it; edges come from nodes of other goroutines that it had to wait for.
type node struct {
	time                       int64 // since the request's start
	predecessor                int32
	firstInterval, endInterval int32
	firstEdge, endEdge         int32
	otherWork                  bool // interval.otherWork of its intervals
	endsDial                   bool // it ends a wait for a connection that the goroutine itself had begun to open, or for another idle one
}

// An interval is a part of the time between two nodes of a graph, with one cause.
type interval struct {
	target
	ns int64
	// fullNS is the length of the complete wait, timer period or system call, of which this is a part; at least ns.
	fullNS int64
	// lateNS is how much longer a sleep was than similar sleeps at its target.
	lateNS int64
	// computation numbers the graph's computations from 1: the running time of one goroutine, even if it loses its P in
	// between. 0 for other causes.
	computation    int32
	otherWork      bool  // work for other requests that this one waited for
	deliversResult bool  // of otherWork: it may have been for this request, see critpath.GraphStep
	endsWithTick   bool  // the wait for a ticker, which is the same for all requests
	sequence       int32 // of a sleep: index of the graph's pause sequence plus 1
	hasNextPause   bool  // of a sleep: another one of its sequence follows
	// runShares[firstShare:endShare] of the graph: for a wait for a P, what ran instead.
	firstShare, endShare int32
	targetID             int32   // index in the model's targets
	markShare            float32 // share of the interval that is inside of mark phases
	// code is the cause until resolvePending: it may depend on whether a candidate freeze was one.
	code cause.Code
}

// A target is a kind of time that a change can name: a cause, the source line where it is spent, and the waits that it ended.
type target struct {
	cause cause.Cause
	site  tracefmt.FrameID
	stack tracefmt.StackID // of running time, or of a wait, if a CPU sample or an event shows it and it is not only the standard library's
	// stackIsNear reports that the stack is that of an adjacent event: the code that ran may be a function that its function
	// calls.
	stackIsNear     bool
	opensConnection bool // part of opening a connection: name resolution, dialling, or a handshake
	waits           waitStacks
}

// waitStacks are stacks of nested waits that the work of another goroutine ended, the innermost wait first. Stacks with only
// standard-library frames are left out. If there are more, the last element is the outermost wait.
type waitStacks [4]tracefmt.StackID

// unknownWait is the stack of a wait for a lock or slot, or of one that is not known.
const unknownWait = ^tracefmt.StackID(0)

// isForLockOrSlot reports whether a wait is for a lock or slot, whose holder does not work for the waiter.
func isForLockOrSlot(kind critpath.WaitKind) bool {
	return kind == critpath.WaitLock || kind == critpath.WaitOnce || kind == critpath.WaitSend
}

// add returns a copy with a new innermost wait. If the array is full, the outermost wait is kept and the one before it is
// dropped.
func (w waitStacks) add(stack tracefmt.StackID) waitStacks {
	out, last := w, len(w)-1
	copy(out[1:], w[:last])
	if out[0] = stack; w[last] != 0 {
		out[last] = w[last]
	}
	return out
}

// A runShare is the share of a wait for a P in which code of one target ran on other goroutines.
type runShare struct {
	target
	share    float64
	targetID int32
}

// Bounds on what a graph stores.
const (
	maxIntervals   = 1500  // of a graph; a larger one becomes a chain
	runShareWindow = 200e3 // the length of the samples of a wait
	maxSharedWaits = 2     // of a graph
)

// A Builder creates the graphs of sampled requests from a window of the trace. It is not safe for concurrent use, except with uses of its
// stage's Sites and IDs.
type Builder struct {
	stage        *path.Stage
	win          *timeline.Window
	syms         *tracefmt.Symbols
	classifier   *cause.Classifier
	split        func([]cause.Segment) []cause.Segment // by the states of threads, and at the edges of candidate freezes
	splitScratch path.SplitBuffers

	computationByG  map[uint64]int32 // computation in progress of each goroutine
	lastComputation int32
	sharedWaitsLeft int
	stepScratch     []critpath.Step
	shareScratch    []runShare
	endedWaits      []endedWaits               // by node
	opensByCall     map[tracefmt.StringID]bool // memo of opensConnection
}

// NewBuilder returns a Builder for the window of a stage.
func NewBuilder(stage *path.Stage) *Builder {
	b := &Builder{
		stage: stage, win: stage.Win, syms: stage.Syms, classifier: cause.New(stage.Win, stage.Syms),
		computationByG: make(map[uint64]int32), stepScratch: make([]critpath.Step, 1),
		opensByCall: make(map[tracefmt.StringID]bool),
	}
	b.split = func(segs []cause.Segment) []cause.Segment { return stage.Split(&b.splitScratch, segs) }
	return b
}

// build builds a reserved graph.
func (g *Graph) build() {
	key := g.key
	*g = *g.builder.Build(g.G, g.Start, g.Start+g.Latency)
	g.key = key
}

// Build returns the graph of a request on goroutine g in [from, to). If the graph would have more than maxIntervals steps, it
// returns a chain of the critical path instead, see Chain.
func (b *Builder) Build(g uint64, from, to int64) *Graph {
	src := b.stage.Graph(g, from, to)
	if src == nil || len(src.Steps) > maxIntervals {
		segs := b.split(b.classifier.Segments(b.stage.Steps(g, from, to)))
		return b.Chain(g, from, to, segs, nil, b.stage.FollowedWaits())
	}
	out := &Graph{Latency: to - from, Start: from, G: g}
	b.sharedWaitsLeft = maxSharedWaits
	b.addNodes(out, src)
	return out
}

// addNodes converts the nodes, edges and steps of a critical-path graph and adds them to out.
func (b *Builder) addNodes(out *Graph, src *critpath.Graph) {
	clear(b.computationByG)
	b.lastComputation = 0
	out.nodes = make([]node, 0, len(src.Nodes))
	edgeCount := 0
	for i := range src.Nodes {
		edgeCount += int(src.Nodes[i].EndEdge - src.Nodes[i].FirstEdge)
	}
	out.edges, out.intervals = make([]critpath.Edge, 0, edgeCount), make([]interval, 0, len(src.Steps))
	for i := range src.Nodes {
		sourceNode := &src.Nodes[i]
		newNode := node{
			time: sourceNode.Time - out.Start, predecessor: sourceNode.Predecessor,
			firstInterval: int32(len(out.intervals)), firstEdge: int32(len(out.edges)), otherWork: sourceNode.OtherWork,
		}
		for k := sourceNode.FirstStep; k < sourceNode.EndStep; k++ {
			b.addStep(out, &src.Steps[k])
		}
		newNode.endInterval = int32(len(out.intervals))
		b.addPauseSequences(out, out.intervals[newNode.firstInterval:], sourceNode)
		newNode.endsDial = b.endsDial(out, src, sourceNode)
		out.edges = append(out.edges, src.Edges[sourceNode.FirstEdge:sourceNode.EndEdge]...)
		newNode.endEdge = int32(len(out.edges))
		out.nodes = append(out.nodes, newNode)
	}
	out.computations = b.lastComputation
	out.intervals = slices.Clip(out.intervals)
	b.setWaits(out, src)
}

// endsDial reports whether a node ends a wait for a connection that its goroutine had begun to open. Whether that connection or one
// that became idle ended the wait, it would not have waited with one that was kept.
func (b *Builder) endsDial(out *Graph, src *critpath.Graph, n *critpath.Node) (found bool) {
	for _, edge := range src.Edges[n.FirstEdge:n.EndEdge] {
		if edge.Wait == 0 || !b.classifier.Sites.HasRole(edge.Wait, knowledge.ConnectionWait) {
			continue
		}
		b.win.Children(n.G, out.Start, n.Time, func(child timeline.Birth) bool {
			found = b.classifier.Sites.HasRole(child.Start, knowledge.Connecting)
			return !found
		})
	}
	return found
}

// endedWaits are the waits that the work before a node ended.
type endedWaits struct {
	stacks  waitStacks
	isKnown bool
}

// setWaits sets the waits of each interval on other goroutines: those that its work ended, and those that ended because it
// handed work to another goroutine, or started one, even for others. It goes backwards from the end of the request. Work of the
// holder of a lock or slot is marked with unknownWait, because a holder does not work for its waiters.
func (b *Builder) setWaits(out *Graph, src *critpath.Graph) {
	b.endedWaits = entry.Resize(b.endedWaits, len(out.nodes))
	waits := b.endedWaits
	clear(waits)
	for i := len(out.nodes) - 1; i >= 0; i-- {
		n, wait := &out.nodes[i], tracefmt.StackID(0)
		for _, edge := range out.edges[n.firstEdge:n.endEdge] {
			if edge.Wait != 0 && b.classifier.Sites.HasRole(edge.Wait, knowledge.NonStdlib) {
				wait = edge.Wait
			}
		}
		for _, edge := range out.edges[n.firstEdge:n.endEdge] {
			ended := endedWaits{isKnown: true}
			switch {
			case isForLockOrSlot(edge.WaitKind):
				out.isPartial = out.isPartial || edge.Wait == 0
				ended.stacks = ended.stacks.add(unknownWait)
			case edge.Wait == 0:
				isHandedOver := (!n.otherWork || edge.WaitKind == critpath.WaitCoroutine) && src.Nodes[edge.From].G != out.G
				if isHandedOver && n.predecessor >= 0 && wait != 0 { // one of several goroutines that the wait was for
					waits[edge.From] = endedWaits{waits[i].stacks.add(wait), true}
					continue
				}
				if from := &waits[edge.From]; isHandedOver && from.stacks == (waitStacks{}) {
					from.stacks = waits[i].stacks
				}
				continue
			default:
				if ended.stacks = waits[i].stacks; b.classifier.Sites.HasRole(edge.Wait, knowledge.NonStdlib) {
					ended.stacks = ended.stacks.add(edge.Wait)
				}
			}
			waits[edge.From] = ended
		}
		if p := n.predecessor; p >= 0 && !waits[p].isKnown && waits[i].stacks != (waitStacks{}) {
			waits[p] = waits[i]
		}
		for k := n.firstInterval; k < n.endInterval; k++ {
			out.intervals[k].setWaits(waits[i].stacks, b.syms)
		}
	}
}

// setWaits sets the waits that the target's work ended, if the target is itself a leaf wait or opens a connection. All work
// during the opening of a connection counts as part of it.
func (t *target) setWaits(waits waitStacks, syms *tracefmt.Symbols) {
	opens := slices.ContainsFunc(waits[:], syms.OpensConnection)
	if t.opensConnection = t.opensConnection || opens; t.opensConnection || isLeafWait(t.cause) {
		t.waits = waits
	}
}

// isLeafWait reports whether a cause is a wait that no goroutine of the process ends.
func isLeafWait(x cause.Cause) bool {
	return x == cause.Network || x == cause.Sleep || x == cause.Syscall
}

// addStep adds one step of a path as intervals with one cause each, divided by thread states and at the edges of candidate
// freezes.
func (b *Builder) addStep(out *Graph, s *critpath.GraphStep) {
	b.stepScratch[0] = s.Step
	b.stepScratch[0].FollowedWait = -1
	for _, seg := range b.split(b.classifier.Segments(b.stepScratch)) {
		b.addInterval(out, &seg, s)
	}
}

// addInterval adds a segment as an interval, with the stack that identifies its target and the computation (uninterrupted
// running time of a goroutine) to which it belongs. src is the step from which the segment was cut.
func (b *Builder) addInterval(out *Graph, seg *cause.Segment, src *critpath.GraphStep) {
	iv := interval{
		target: target{cause: seg.Code.Cause(), site: seg.Site, opensConnection: src.OpensConnection(b.syms) || b.opensConnection(seg)}, ns: seg.End - seg.Start,
		otherWork: src.OtherWork && !src.EndsWithTick, deliversResult: src.DeliversResult && !src.EndsWithTick,
		endsWithTick: src.EndsWithTick, code: seg.Code,
	}
	iv.fullNS = max(src.FullLength, iv.ns)
	out.isPartial = out.isPartial || src.Kind == critpath.Unknown && src.Beginning == timeline.OriginStatus
	switch seg.Code.Cause() {
	case cause.CPU:
		if iv.stack = seg.Stack; iv.stack == 0 {
			iv.stackIsNear, iv.stack = true, src.Stack
			if b.classifier.Sites.SiteOf(src.Stack) != seg.Site {
				iv.stack = src.ResumeStack
			}
		}
		if b.computationByG[seg.G] == 0 {
			b.lastComputation++
			b.computationByG[seg.G] = b.lastComputation
		}
		iv.computation = b.computationByG[seg.G]
		if b.isHandover(src.Stack) {
			b.computationByG[seg.G] = 0
		}
	case cause.Sched, cause.SchedPoll:
		b.addRunShares(out, &iv, seg)
	case cause.SchedWake, cause.STW, cause.GCAssist, cause.GCWait:
	default:
		b.computationByG[seg.G] = 0
		if isLeafWait(seg.Code.Cause()) && b.classifier.Sites.HasRole(src.Stack, knowledge.NonStdlib) {
			iv.stack = src.Stack
		}
	}
	out.intervals = append(out.intervals, iv)
}

// opensConnection reports whether a segment is a network wait or system call in a function that opens connections, by its role.
func (b *Builder) opensConnection(seg *cause.Segment) bool {
	x := seg.Code.Cause()
	return seg.Call != 0 && (x == cause.Network || x == cause.Syscall) &&
		entry.GetOrMake(b.opensByCall, seg.Call, func() bool { return knowledge.OpensConnection(b.syms.String(seg.Call)) })
}

// addPauseSequences finds sequences of sleeps (see pauseSequence) among the intervals that lead to node n, and adds them to
// out.
func (b *Builder) addPauseSequences(out *Graph, intervals []interval, n *critpath.Node) {
	start := n.Time
	for i := range intervals {
		start -= intervals[i].ns
	}
	out.addPauseSequences(intervals, start, b.handoverChecker(n.G))
}

// handoverChecker returns a function that reports whether goroutine g handed work over in [from, to): it started a goroutine,
// or woke one that was not waiting for a mutex. It reports true if the wakes of that time are not completely known.
func (b *Builder) handoverChecker(g uint64) func(from, to int64) bool {
	return func(from, to int64) bool {
		found, complete := b.win.HasWoken(g, from, to, func(_ uint64, stack tracefmt.StackID) bool {
			return !b.classifier.Sites.HasRole(stack, knowledge.Mutex)
		})
		b.win.Children(g, from, to, func(timeline.Birth) bool { found = true; return false })
		return found || !complete
	}
}

// isHandover reports whether a stack's innermost frame hands work over (a send, a signal). Running time after it belongs to the
// next computation.
func (b *Builder) isHandover(stack tracefmt.StackID) bool {
	frames := b.syms.Stack(stack)
	return len(frames) > 0 && b.classifier.Sites.RolesOf(frames[0]).Has(knowledge.Handover)
}

// Chain returns the graph of a request of which only the critical path is known: a single node whose intervals are sums, one
// for each cause and site, so that nothing runs in parallel. segs are the path's segments, unlisted sums of further ones.
// followed are the waits that led to segs; nil if they are not known.
func (b *Builder) Chain(g uint64, from, to int64, segs, unlisted []cause.Segment, followed []critpath.FollowedWait) *Graph {
	out := &Graph{Latency: to - from, Start: from, G: g}
	type chainKey struct {
		target
		code cause.Code
		row  int32
		held bool
	}
	indexByKey := make(map[chainKey]int)
	add := func(key chainKey, ns, longestNS int64) {
		index, ok := indexByKey[key]
		if !ok {
			index = len(out.intervals)
			indexByKey[key] = index
			out.intervals = append(out.intervals, interval{target: key.target, code: key.code, sequence: key.row, hasNextPause: key.held})
		}
		out.intervals[index].ns += ns
		out.intervals[index].fullNS = max(out.intervals[index].fullNS, longestNS)
	}
	endNode := node{time: out.Latency}
	intervals := make([]interval, len(segs))
	for i := range segs {
		segment := &segs[i]
		intervals[i] = interval{target: target{cause: segment.Code.Cause(), site: segment.Site, opensConnection: b.opensConnection(segment)}, ns: segment.End - segment.Start}
		intervals[i].setWaits(b.waitsOf(segment, followed), b.syms)
	}
	if len(segs) > 0 {
		out.addPauseSequences(intervals, segs[0].Start, b.handoverChecker(out.G))
	}
	for i := range segs {
		segment := &segs[i]
		key := chainKey{target: intervals[i].target, code: segment.Code}
		if r := intervals[i].sequence; r > 0 && out.pauseSequences[r-1].pauses >= threshold.SmallSample {
			key.row, key.held = r, intervals[i].hasNextPause
		}
		if key.cause == cause.CPU {
			key.stack = segment.Stack
		}
		add(key, segment.End-segment.Start, segment.End-segment.Start)
	}
	for i := range unlisted {
		segment := &unlisted[i]
		key := chainKey{target: target{cause: segment.Code.Cause(), site: segment.Site, opensConnection: b.opensConnection(segment)}, code: segment.Code}
		if key.cause == cause.CPU {
			key.stack = segment.Stack
		}
		add(key, segment.End-segment.Start, 0)
	}
	endNode.endInterval = int32(len(out.intervals))
	endNode.predecessor = 0
	out.isChain = true
	out.nodes = []node{{predecessor: -1}, endNode}
	return out
}

// waitsOf returns the stacks of the waits through which a critical path reached a segment. A wait for a lock or slot ends the
// chain with unknownWait; so does an unknown chain (followed is nil).
func (b *Builder) waitsOf(segment *cause.Segment, followed []critpath.FollowedWait) (out waitStacks) {
	if followed == nil {
		return waitStacks{len(out) - 1: unknownWait}
	}
	var stacks []tracefmt.StackID // the innermost first
	for i := segment.FollowedWait; i >= 0; i = followed[i].Parent {
		if isForLockOrSlot(followed[i].Kind) {
			stacks = append(stacks, unknownWait)
			break
		}
		if b.classifier.Sites.HasRole(followed[i].Stack, knowledge.NonStdlib) {
			stacks = append(stacks, followed[i].Stack)
		}
	}
	for _, stack := range slices.Backward(stacks) {
		out = out.add(stack)
	}
	return out
}

// addRunShares records, for a long wait for a P, which targets ran on other goroutines during a sample of the wait, and their
// shares. At most maxSharedWaits waits of a graph get shares; short ones get none.
func (b *Builder) addRunShares(out *Graph, iv *interval, seg *cause.Segment) {
	if seg.End-seg.Start < max(threshold.ThreadWakeNS, out.Latency/20) || b.sharedWaitsLeft == 0 || len(b.win.Gens) == 0 {
		return
	}
	b.sharedWaitsLeft--
	from, to := path.SampleInterval(seg.Start, seg.End, runShareWindow)
	shares, total := b.shareScratch[:0], 0.0
	gen := b.win.Gens[b.win.GenIndex(from)]
	gen.EachRun(from, to, func(r timeline.Run) {
		if r.G == seg.G {
			return
		}
		stack := r.Stack
		if stack == 0 {
			if birth, ok := gen.BirthOf(r.G); ok {
				stack = birth.Start
			}
		}
		ns := float64(min(r.To, to) - max(r.From, from))
		total += ns
		for i := range shares {
			if shares[i].stack == stack {
				shares[i].share += ns
				return
			}
		}
		shares = append(shares, runShare{target: target{cause: cause.CPU, site: b.classifier.Sites.SiteOf(stack), stack: stack}, share: ns})
	})
	for i := range shares {
		shares[i].share /= total
	}
	iv.firstShare, b.shareScratch = int32(len(out.runShares)), shares
	out.runShares = append(out.runShares, shares...)
	iv.endShare = int32(len(out.runShares))
}
