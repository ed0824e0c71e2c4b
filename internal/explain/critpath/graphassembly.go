package critpath

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
)

// assemble converts the parts and links to a graph with nodes in topological order. It returns nil if that is not possible, or
// if the graph does not reproduce the trace's times.
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
	b.graph = Graph{b.graph.Nodes[:0], b.graph.Edges[:0], b.graph.Steps[:0]}
	b.collectCuts()
	if !b.buildNodes() || !b.buildEdges() || !b.sortNodes() {
		return nil
	}
	if b.times = entry.Resize(b.times, len(b.graph.Nodes)); !b.graph.isConsistent(b.times) {
		return nil
	}
	return &b.graph
}

// collectCuts sets the cuts of each part: the times that need a node, because links and anchors refer to them.
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

// buildNodes adds a node for every cut of every part, with the steps since the cut before. It returns false if there are too
// many.
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

// buildEdges converts links (dependencies between goroutines) and anchors (waits with which other work is assumed to begin) to
// edges between nodes. It returns false if an anchor has no node.
func (b *graphBuilder) buildEdges() bool {
	b.edgesByNode = entry.Resize(b.edgesByNode, len(b.graph.Nodes))
	edgesByNode := b.edgesByNode
	for i := range edgesByNode {
		edgesByNode[i] = edgesByNode[i][:0]
	}
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
		isUnlinked := len(edgesByNode[part.firstNode]) == 0 // it begins where an earlier part of the goroutine ended, which may have grown
		for _, earlier := range b.parts {
			if earlier.g != part.g || earlier == part || part.start <= b.start {
				continue
			}
			if _, isCut := slices.BinarySearch(earlier.cuts, part.start); earlier.end == part.start || isUnlinked && isCut && earlier.start < part.start {
				edgesByNode[part.firstNode] = append(edgesByNode[part.firstNode], Edge{From: earlier.node(part.start)})
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

// sortNodes sorts the nodes topologically, the request's end last, and drops those on which the end does not depend. It returns
// false if there is a cycle.
func (b *graphBuilder) sortNodes() bool {
	end := b.parts[0].node(b.parts[0].end)
	const onStack, done = -2, -1
	b.positions = entry.Resize(b.positions, len(b.graph.Nodes))
	position, sorted := b.positions, b.sorted[:0] // by node: 0 if not visited, onStack, or the position in sorted plus one
	clear(position)
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
	b.graph.Nodes, b.sorted = sorted, b.graph.Nodes
	return true
}

// isConsistent reports whether computing the graph with unchanged steps gives every node its time in the trace. It uses the memory of
// computed, which has an element for each node.
func (g *Graph) isConsistent(computed []int64) bool {
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
