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
	sums    bool // a chain of sums, which does not know for which request the work was done that it waited for
	Latency int64
	Start   int64
	G       uint64

	nodes []node
	edges []critpath.Edge
	parts []part
	mix   []share
	rows  []row
	runs  int32

	unbuilt bool // wanted by a Sample, see Want
}

type node struct {
	time                int64 // since the request's start
	before              int32
	firstPart, lastPart int32
	firstEdge, lastEdge int32
}

// A part is an interval with one cause.
type part struct {
	place
	ns int64
	// whole is the length of the wait, timer's period or system call of which it
	// is a part; at least ns.
	whole int64
	// late is by how much a sleep was longer than others at the same place.
	late int64
	// run numbers the graph's computations from 1: the running time of one
	// goroutine, also if it lost its P in between. 0 for anything else.
	run    int32
	others bool  // other requests' work that this one waited for
	result bool  // of that, it may have been for the request: see critpath.GraphStep
	ticker bool  // the wait for a ticker, which is the same for all requests
	row    int32 // of a sleep: which of the graph's rows it is in, from 1
	held   bool  // of a sleep: another one of its row follows
	// mix[firstMix:lastMix] of the graph: for a wait for a P, what ran meanwhile.
	firstMix, lastMix int32
	key               int32   // in the model's places
	marked            float32 // the part of it that lies in mark phases
	// code says whether it lies in a candidate freeze: see settle.
	code cause.Code
}

// A place is what a change can address.
type place struct {
	cause cause.Cause
	site  tracefmt.FrameID
	stack tracefmt.StackID // of running time, if one was seen
	// near says that the stack is that of a neighbouring event: a function that it
	// calls may have run.
	near bool
}

// A share is a part of the time in which others ran.
type share struct {
	place
	of  float64
	key int32
}

// Bounds of what is kept and read.
const (
	maxParts  = 1500  // of a graph; one with more is kept as sums
	mixWindow = 200e3 // how much of a wait is read
	maxMixes  = 2     // a graph
)

// A Builder makes graphs. One goroutine may use it at a time.
type Builder struct {
	stage *path.Stage
	win   *timeline.Window
	syms  *tracefmt.Symbols
	class *cause.Classifier
	split func([]cause.Segment) []cause.Segment // at the borders of possible freezes
	cut   []cause.Segment

	runs  map[uint64]int32 // by goroutine: the computation in progress
	ran   int32
	mixes int
	one   []critpath.Step
}

// NewBuilder returns a Builder over a stage's window.
func NewBuilder(stage *path.Stage) *Builder {
	b := &Builder{stage: stage, win: stage.Win, syms: stage.Syms, class: cause.New(stage.Win, stage.Syms), runs: make(map[uint64]int32), one: make([]critpath.Step, 1)}
	b.class.Sites = stage.Sites
	b.split = func(segs []cause.Segment) []cause.Segment { return stage.SplitAtFreezes(&b.cut, segs) }
	return b
}

// Build returns the graph of what goroutine g did in [from, to). Where it would be too large, it is
// a chain of sums of the critical path, in which nothing runs in parallel.
func (b *Builder) Build(g uint64, from, to int64) *Graph {
	src := b.stage.Graph(g, from, to)
	if src == nil || len(src.Steps) > maxParts {
		return b.Chain(g, from, to, b.stage.Segments(g, from, to))
	}
	out := &Graph{Latency: to - from, Start: from, G: g}
	b.mixes = maxMixes
	b.fill(out, src)
	return out
}

func (b *Builder) fill(out *Graph, src *critpath.Graph) {
	clear(b.runs)
	b.ran = 0
	out.nodes = make([]node, 0, len(src.Nodes))
	used := 0
	for i := range src.Nodes {
		used += int(src.Nodes[i].EndEdge - src.Nodes[i].FirstEdge)
	}
	out.edges = make([]critpath.Edge, 0, used)
	for i := range src.Nodes {
		s := &src.Nodes[i]
		n := node{time: s.Time - out.Start, before: s.Predecessor, firstPart: int32(len(out.parts)), firstEdge: int32(len(out.edges))}
		for k := s.FirstStep; k < s.EndStep; k++ {
			b.step(out, &src.Steps[k])
		}
		n.lastPart = int32(len(out.parts))
		b.rows(out, out.parts[n.firstPart:], s)
		out.edges = append(out.edges, src.Edges[s.FirstEdge:s.EndEdge]...)
		n.lastEdge = int32(len(out.edges))
		out.nodes = append(out.nodes, n)
	}
	out.runs = b.ran
	out.parts = slices.Clip(out.parts)
}

func (b *Builder) step(out *Graph, s *critpath.GraphStep) {
	b.one[0] = s.Step
	b.one[0].FollowedWait = -1
	for _, seg := range b.split(b.class.Segments(b.one)) {
		b.part(out, &seg, s)
	}
}

func (b *Builder) part(out *Graph, seg *cause.Segment, src *critpath.GraphStep) {
	p := part{place: place{cause: seg.Code.Cause(), site: seg.Site}, ns: seg.End - seg.Start, others: src.OtherWork && !src.EndsWithTick, result: src.DeliversResult && !src.EndsWithTick, ticker: src.EndsWithTick, code: seg.Code}
	p.whole = max(src.FullLength, p.ns)
	switch seg.Code.Cause() {
	case cause.CPU:
		if p.stack = seg.Stack; p.stack == 0 {
			p.near, p.stack = true, src.Stack
			if b.class.Sites.SiteOf(src.Stack) != seg.Site {
				p.stack = src.ResumeStack
			}
		}
		if b.runs[seg.G] == 0 {
			b.ran++
			b.runs[seg.G] = b.ran
		}
		p.run = b.runs[seg.G]
		if b.handsOver(src.Stack) {
			b.runs[seg.G] = 0
		}
	case cause.Sched, cause.SchedPoll:
		b.meanwhile(out, &p, seg)
	case cause.SchedWake, cause.STW, cause.GCAssist, cause.GCWait:
	default:
		b.runs[seg.G] = 0
	}
	out.parts = append(out.parts, p)
}

// rows finds the rows of a node's parts.
func (b *Builder) rows(out *Graph, parts []part, n *critpath.Node) {
	start := n.Time
	for i := range parts {
		start -= parts[i].ns
	}
	out.addRows(parts, start, b.gives(n.G))
}

// gives returns a function that reports whether goroutine g handed work over in [from, to): started a goroutine, or woke one
// that was not waiting for a lock.
func (b *Builder) gives(g uint64) func(from, to int64) bool {
	return func(from, to int64) bool {
		gave := false
		seen := b.win.Woke(g, from, to, func(_ uint64, stack tracefmt.StackID) bool {
			gave = !slices.ContainsFunc(b.syms.Stack(stack), func(f tracefmt.FrameID) bool { return stdlib.IsMutex(b.syms.String(b.syms.Frame(f).Func)) })
			return !gave
		})
		b.win.Children(g, from, to, func(uint64, int64) bool { gave = true; return false })
		return gave || !seen
	}
}

// handsOver reports whether an event that ended running time woke a goroutine:
// what comes after it is another piece of work. The innermost frame of such a
// call is the runtime's or package sync's.
func (b *Builder) handsOver(stack tracefmt.StackID) bool {
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
	type sum struct {
		place
		code cause.Code
		row  int32
		held bool
	}
	at := make(map[sum]int)
	last := node{time: out.Latency}
	steps := make([]part, len(segs))
	for i := range segs {
		s := &segs[i]
		steps[i] = part{place: place{cause: s.Code.Cause(), site: s.Site}, ns: s.End - s.Start}
	}
	if len(segs) > 0 {
		out.addRows(steps, segs[0].Start, b.gives(out.G))
	}
	for i := range segs {
		s := &segs[i]
		k := sum{place: steps[i].place, code: s.Code}
		if r := steps[i].row; r > 0 && out.rows[r-1].n >= scale.Few {
			k.row, k.held = r, steps[i].held
		}
		if k.cause == cause.CPU {
			k.stack = s.Stack
		}
		j, ok := at[k]
		if !ok {
			j = len(out.parts)
			at[k] = j
			out.parts = append(out.parts, part{place: k.place, code: k.code, row: k.row, held: k.held})
		}
		out.parts[j].ns += s.End - s.Start
		out.parts[j].whole = max(out.parts[j].whole, s.End-s.Start)
	}
	last.lastPart = int32(len(out.parts))
	last.before = 0
	out.sums = true
	out.nodes = []node{{before: -1}, last}
	return out
}

// meanwhile looks up what ran while a goroutine waited for a P.
func (b *Builder) meanwhile(out *Graph, p *part, seg *cause.Segment) {
	if seg.End-seg.Start < max(scale.Blink, out.Latency/20) || b.mixes == 0 || len(b.win.Gens) == 0 {
		return
	}
	b.mixes--
	from, to := path.SampleInterval(seg.Start, seg.End, mixWindow)
	p.firstMix = int32(len(out.mix))
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
		k := place{cause: cause.CPU, site: b.class.Sites.SiteOf(stack), stack: stack}
		for i := int(p.firstMix); i < len(out.mix); i++ {
			if out.mix[i].place == k {
				out.mix[i].of += ns
				return
			}
		}
		out.mix = append(out.mix, share{place: k, of: ns})
	})
	for i := int(p.firstMix); i < len(out.mix); i++ {
		out.mix[i].of /= total
	}
	p.lastMix = int32(len(out.mix))
}
