package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// AreaStacks are the stacks of an area of goroutines' lanes, as a flame graph needs them.
type AreaStacks struct {
	NS      int64        `json:"ns"`      // time of all states
	Samples int          `json:"samples"` // CPU samples that divide the running time; without any, each run counts for the stack of its end
	States  []*StackNode `json:"states"`  // by decreasing time
}

// A StackNode is a state, or a function below its caller, with the time of both and all below.
type StackNode struct {
	State    string       `json:"state,omitempty"`  // of the outermost nodes only
	Reason   string       `json:"reason,omitempty"` // of their waits
	Site     *report.Site `json:"site,omitempty"`   // of a call, nil for a state or if no stack is known
	NS       int64        `json:"ns"`
	Children []*StackNode `json:"children,omitempty"` // by decreasing time; their times may have a smaller sum
}

// Bounds of one answer. A node with a smaller part of the area's time than one in minShare would not be seen.
const (
	minShare      = 2000
	maxStackNodes = 4000
)

// stackKey is what the pieces have in common that are counted together.
type stackKey struct {
	state  timeline.State
	reason tracefmt.StringID
	stack  tracefmt.StackID
}

// AreaStacks sums up up to MaxLanes goroutines in [from, to), ns from the trace's start, by state, reason of a wait, and stack.
// The running time is divided by the CPU samples of these goroutines, if there are any: each represents the same time.
func (t *Trace) AreaStacks(ctx context.Context, from, to int64, goroutines []uint64) (*AreaStacks, error) {
	times := map[stackKey]int64{}
	goroutinesWithPieces := map[uint64]bool{}
	err := t.eachAreaPiece(ctx, from, to, goroutines, false, func(id uint64, p Piece, stack tracefmt.StackID) {
		times[stackKey{p.State, p.Reason, stack}] += p.To - p.From
		goroutinesWithPieces[id] = true
	})
	if err != nil {
		return nil, err
	}
	samples, err := t.samplesIn(ctx, max(from, 0), to, goroutinesWithPieces)
	if err != nil {
		return nil, err
	}
	out := &AreaStacks{Samples: len(samples)}
	if len(samples) > 0 {
		divideRunningTime(times, samples)
	}
	root := &StackNode{}
	for k, ns := range times {
		t.addStack(root, k, ns)
	}
	for smallest := root.NS / minShare; root.prune(smallest) > maxStackNodes; smallest = 2*smallest + 1 {
	}
	out.NS, out.States = root.NS, root.Children
	return out, nil
}

// samplesIn returns the stacks, one for each, of the goroutines' CPU samples in [from, to), ns from the trace's start.
func (t *Trace) samplesIn(ctx context.Context, from, to int64, goroutines map[uint64]bool) (stacks []tracefmt.StackID, err error) {
	first, last := t.generationsIn(from+t.start, to+t.start)
	for i := first; i <= last; i++ {
		g, err := t.generation(ctx, i)
		if err != nil {
			return nil, err
		}
		for id := range goroutines {
			for _, k := range g.SamplesIn(id, from+t.start, to+t.start) {
				stacks = append(stacks, g.Samples[k].Stack)
			}
		}
	}
	return stacks, nil
}

// divideRunningTime replaces, in times (ns by stack), the stacks of the running time by those of CPU samples, each with an equal part of the time.
func divideRunningTime(times map[stackKey]int64, samples []tracefmt.StackID) {
	running := int64(0)
	for k, ns := range times {
		if k.state == timeline.Running {
			running += ns
			delete(times, k)
		}
	}
	n := int64(len(samples))
	for i, stack := range samples {
		// The parts differ by 1 ns at most and add up to the running time.
		times[stackKey{state: timeline.Running, stack: stack}] += running*int64(i+1)/n - running*int64(i)/n
	}
}

// addStack adds the time of a stack below the node of its state, with the outermost function first.
func (t *Trace) addStack(root *StackNode, k stackKey, ns int64) {
	state, reason := k.state.String(), t.String(k.reason)
	root.NS += ns
	at := root.child(func(n *StackNode) bool { return n.State == state && n.Reason == reason }, StackNode{State: state, Reason: reason})
	at.NS += ns
	for _, frame := range slices.Backward(t.index.syms.Stack(k.stack)) {
		site := t.Site(frame)
		if site == nil {
			continue
		}
		at = at.child(func(n *StackNode) bool {
			return n.Site.Func == site.Func && n.Site.Line == site.Line && n.Site.File == site.File
		}, StackNode{Site: site})
		at.NS += ns
	}
}

// child returns the first child for which isWanted is true, or else adds a copy of other and returns that.
func (n *StackNode) child(isWanted func(*StackNode) bool, other StackNode) *StackNode {
	if i := slices.IndexFunc(n.Children, isWanted); i >= 0 {
		return n.Children[i]
	}
	n.Children = append(n.Children, &other)
	return &other
}

// prune removes, at all depths, nodes below n with less than smallest ns, sorts the others by decreasing time, and returns their number.
func (n *StackNode) prune(smallest int64) (nodes int) {
	n.Children = slices.DeleteFunc(n.Children, func(c *StackNode) bool { return c.NS < smallest })
	slices.SortFunc(n.Children, func(a, b *StackNode) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.State+a.Reason, b.State+b.Reason), cmp.Compare(a.name(), b.name()))
	})
	for _, c := range n.Children {
		nodes += 1 + c.prune(smallest)
	}
	return nodes
}

// name returns the function and line of a call, "" for a state.
func (n *StackNode) name() string {
	if n.Site == nil {
		return ""
	}
	return fmt.Sprintf("%s %s %d", n.Site.Func, n.Site.File, n.Site.Line)
}
