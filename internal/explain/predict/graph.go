package predict

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Graph is one request of the sample: what its end depended on, with the
// cause and site of every part.
type Graph struct {
	isChain bool // a chain of sums, which does not know for which request the work was done that it waited for
	Latency int64
	Start   int64
	G       uint64

	nodes          []node
	edges          []critpath.Edge
	intervals      []interval
	runShares      []runShare
	pauseSequences []pauseSequence
	computations   int32

	needsBuild bool // wanted by a Sample, see Want
}

type node struct {
	time                       int64 // since the request's start
	predecessor                int32
	firstInterval, endInterval int32
	firstEdge, endEdge         int32
}

// A part is an interval with one cause.
type interval struct {
	target
	ns int64
	// fullNS is the length of the wait, timer's period or system call of which it
	// is a part; at least ns.
	fullNS int64
	// lateNS is by how much a sleep was longer than others at the same place.
	lateNS int64
	// computation numbers the graph's computations from 1: the running time of one
	// goroutine, also if it lost its P in between. 0 for anything else.
	computation    int32
	otherWork      bool  // other requests' work that this one waited for
	deliversResult bool  // of that, it may have been for the request: see critpath.GraphStep
	endsWithTick   bool  // the wait for a ticker, which is the same for all requests
	sequence       int32 // of a sleep: which of the graph's rows it is in, from 1
	hasNextPause   bool  // of a sleep: another one of its row follows
	// mix[firstShare:endShare] of the graph: for a wait for a P, what ran meanwhile.
	firstShare, endShare int32
	targetID             int32   // in the model's places
	markShare            float32 // the part of it that lies in mark phases
	// code says whether it lies in a candidate freeze: see settle.
	code cause.Code
}

// A place is what a change can address.
type target struct {
	cause cause.Cause
	site  tracefmt.FrameID
	stack tracefmt.StackID // of running time, if one was seen
	// stackIsNear says that the stack is that of a neighbouring event: a function that it
	// calls may have run.
	stackIsNear bool
}

// A share is a part of the time in which others ran.
type runShare struct {
	target
	share    float64
	targetID int32
}

// Bounds of what is kept and read.
const (
	maxIntervals   = 1500  // of a graph; one with more is kept as sums
	runShareWindow = 200e3 // how much of a wait is read
	maxSharedWaits = 2     // a graph
)

// A Builder makes graphs. One goroutine may use it at a time.
type Builder struct {
	stage        *path.Stage
	win          *timeline.Window
	syms         *tracefmt.Symbols
	classifier   *cause.Classifier
	split        func([]cause.Segment) []cause.Segment // at the borders of possible freezes
	splitScratch []cause.Segment

	computationByG  map[uint64]int32 // by goroutine: the computation in progress
	lastComputation int32
	sharedWaitsLeft int
	stepScratch     []critpath.Step
}

// NewBuilder returns a Builder over a stage's window.
func NewBuilder(stage *path.Stage) *Builder {
	b := &Builder{stage: stage, win: stage.Win, syms: stage.Syms, classifier: cause.New(stage.Win, stage.Syms), computationByG: make(map[uint64]int32), stepScratch: make([]critpath.Step, 1)}
	b.classifier.Sites = stage.Sites
	b.split = func(segs []cause.Segment) []cause.Segment { return stage.SplitAtFreezes(&b.splitScratch, segs) }
	return b
}

// Build returns the graph of what goroutine g did in [from, to). Where it would be too large, it is
// a chain of sums of the critical path, in which nothing runs in parallel.
func (b *Builder) Build(g uint64, from, to int64) *Graph {
	src := b.stage.Graph(g, from, to)
	if src == nil || len(src.Steps) > maxIntervals {
		return b.Chain(g, from, to, b.stage.Segments(g, from, to))
	}
	out := &Graph{Latency: to - from, Start: from, G: g}
	b.sharedWaitsLeft = maxSharedWaits
	b.addNodes(out, src)
	return out
}

func (b *Builder) addNodes(out *Graph, src *critpath.Graph) {
	clear(b.computationByG)
	b.lastComputation = 0
	out.nodes = make([]node, 0, len(src.Nodes))
	edgeCount := 0
	for i := range src.Nodes {
		edgeCount += int(src.Nodes[i].EndEdge - src.Nodes[i].FirstEdge)
	}
	out.edges = make([]critpath.Edge, 0, edgeCount)
	for i := range src.Nodes {
		sourceNode := &src.Nodes[i]
		newNode := node{time: sourceNode.Time - out.Start, predecessor: sourceNode.Predecessor, firstInterval: int32(len(out.intervals)), firstEdge: int32(len(out.edges))}
		for k := sourceNode.FirstStep; k < sourceNode.EndStep; k++ {
			b.addStep(out, &src.Steps[k])
		}
		newNode.endInterval = int32(len(out.intervals))
		b.addPauseSequences(out, out.intervals[newNode.firstInterval:], sourceNode)
		out.edges = append(out.edges, src.Edges[sourceNode.FirstEdge:sourceNode.EndEdge]...)
		newNode.endEdge = int32(len(out.edges))
		out.nodes = append(out.nodes, newNode)
	}
	out.computations = b.lastComputation
	out.intervals = slices.Clip(out.intervals)
}

func (b *Builder) addStep(out *Graph, s *critpath.GraphStep) {
	b.stepScratch[0] = s.Step
	b.stepScratch[0].FollowedWait = -1
	for _, seg := range b.split(b.classifier.Segments(b.stepScratch)) {
		b.addInterval(out, &seg, s)
	}
}

func (b *Builder) addInterval(out *Graph, seg *cause.Segment, src *critpath.GraphStep) {
	iv := interval{target: target{cause: seg.Code.Cause(), site: seg.Site}, ns: seg.End - seg.Start, otherWork: src.OtherWork && !src.EndsWithTick, deliversResult: src.DeliversResult && !src.EndsWithTick, endsWithTick: src.EndsWithTick, code: seg.Code}
	iv.fullNS = max(src.FullLength, iv.ns)
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
	}
	out.intervals = append(out.intervals, iv)
}

// addPauseSequences finds the rows of a node's parts.
func (b *Builder) addPauseSequences(out *Graph, intervals []interval, n *critpath.Node) {
	start := n.Time
	for i := range intervals {
		start -= intervals[i].ns
	}
	out.addPauseSequences(intervals, start, b.handoverChecker(n.G))
}

// handoverChecker returns a function that reports whether goroutine g handed work over in [from, to): started a goroutine, or woke one
// that was not waiting for a lock.
func (b *Builder) handoverChecker(g uint64) func(from, to int64) bool {
	return func(from, to int64) bool {
		found := false
		complete := b.win.Woke(g, from, to, func(_ uint64, stack tracefmt.StackID) bool {
			found = !slices.ContainsFunc(b.syms.Stack(stack), func(f tracefmt.FrameID) bool { return stdlib.IsMutex(b.syms.String(b.syms.Frame(f).Func)) })
			return !found
		})
		b.win.Children(g, from, to, func(uint64, int64) bool { found = true; return false })
		return found || !complete
	}
}

// isHandover reports whether an event that ended running time woke a goroutine:
// what comes after it is another piece of work. The innermost frame of such a
// call is the runtime's or package sync's.
func (b *Builder) isHandover(stack tracefmt.StackID) bool {
	frames := b.syms.Stack(stack)
	if len(frames) == 0 {
		return false
	}
	fn := b.syms.String(b.syms.Frame(frames[0]).Func)
	for _, prefix := range []string{"runtime.chan", "runtime.closechan", "runtime.selectgo", "sync.", "internal/sync."} {
		if strings.HasPrefix(fn, prefix) {
			return true
		}
	}
	return false
}

// Chain returns the graph of a request if only its path is known: one of sums by cause and site.
func (b *Builder) Chain(g uint64, from, to int64, segs []cause.Segment) *Graph {
	out := &Graph{Latency: to - from, Start: from, G: g}
	type chainKey struct {
		target
		code cause.Code
		row  int32
		held bool
	}
	indexByKey := make(map[chainKey]int)
	endNode := node{time: out.Latency}
	intervals := make([]interval, len(segs))
	for i := range segs {
		segment := &segs[i]
		intervals[i] = interval{target: target{cause: segment.Code.Cause(), site: segment.Site}, ns: segment.End - segment.Start}
	}
	if len(segs) > 0 {
		out.addPauseSequences(intervals, segs[0].Start, b.handoverChecker(out.G))
	}
	for i := range segs {
		segment := &segs[i]
		key := chainKey{target: intervals[i].target, code: segment.Code}
		if r := intervals[i].sequence; r > 0 && out.pauseSequences[r-1].pauses >= scale.Few {
			key.row, key.held = r, intervals[i].hasNextPause
		}
		if key.cause == cause.CPU {
			key.stack = segment.Stack
		}
		index, ok := indexByKey[key]
		if !ok {
			index = len(out.intervals)
			indexByKey[key] = index
			out.intervals = append(out.intervals, interval{target: key.target, code: key.code, sequence: key.row, hasNextPause: key.held})
		}
		out.intervals[index].ns += segment.End - segment.Start
		out.intervals[index].fullNS = max(out.intervals[index].fullNS, segment.End-segment.Start)
	}
	endNode.endInterval = int32(len(out.intervals))
	endNode.predecessor = 0
	out.isChain = true
	out.nodes = []node{{predecessor: -1}, endNode}
	return out
}

// addRunShares looks up what ran while a goroutine waited for a P.
func (b *Builder) addRunShares(out *Graph, iv *interval, seg *cause.Segment) {
	if seg.End-seg.Start < max(scale.Blink, out.Latency/20) || b.sharedWaitsLeft == 0 || len(b.win.Gens) == 0 {
		return
	}
	b.sharedWaitsLeft--
	from, to := path.SampleInterval(seg.Start, seg.End, runShareWindow)
	iv.firstShare = int32(len(out.runShares))
	total := 0.0
	gen := b.win.Gens[b.win.At(from)]
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
		ranTarget := target{cause: cause.CPU, site: b.classifier.Sites.SiteOf(stack), stack: stack}
		for i := int(iv.firstShare); i < len(out.runShares); i++ {
			if out.runShares[i].target == ranTarget {
				out.runShares[i].share += ns
				return
			}
		}
		out.runShares = append(out.runShares, runShare{target: ranTarget, share: ns})
	})
	for i := int(iv.firstShare); i < len(out.runShares); i++ {
		out.runShares[i].share /= total
	}
	iv.endShare = int32(len(out.runShares))
}
