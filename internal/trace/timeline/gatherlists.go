package timeline

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// gatherLists completes a decoded generation: it joins the lists of all threads, orders them by time, and translates local ids.
func (d *Decoder) gatherLists(g *Gen, sc tracefmt.Scale) {
	g.Heap = concat(g.Heap, d.threadLists, func(f *threadLists) []HeapPoint { return f.heap })
	g.User = concat(g.User, d.threadLists, func(f *threadLists) []UserEvent { return f.user })
	g.ProcEvents = concat(g.ProcEvents, d.threadLists, func(f *threadLists) []ProcEvent { return f.procs })
	extra := concat(nil, d.threadLists, func(f *threadLists) []extraEvent { return f.extra })
	g.streams = entry.Resize(g.streams, len(d.threadLists))
	for no, st := range d.threadLists {
		n, h := len(g.index), len(g.holds)
		g.index, g.holds = append(g.index, st.index...), append(g.holds, st.holds...)
		g.streams[no] = stream{
			m:     st.m,
			index: [2]int32{int32(n), int32(len(g.index))},
			holds: [2]int32{int32(h), int32(len(g.holds))},
		}
	}
	g.ProcEvents = dropStaleAbandons(g.ProcEvents)
	mergeSorted(g.Heap, func(a, b HeapPoint) bool {
		if a.Time == b.Time && a.Goal == b.Goal {
			return a.Bytes < b.Bytes
		}
		return a.Time < b.Time || a.Time == b.Time && b.Goal
	})
	for i := range g.User {
		g.resolveUser(&g.User[i])
	}
	slices.SortStableFunc(g.User, func(a, b UserEvent) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.G, b.G), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Task, b.Task))
	})
	slices.SortStableFunc(extra, func(a, b extraEvent) int {
		return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(g.ids.ids[a.g], g.ids.ids[b.g]), cmp.Compare(a.typ, b.typ), cmp.Compare(a.x, b.x))
	})
	d.gatherRanges(g)
	g.chainRanges()
	g.stwBefore = slices.Sorted(maps.Keys(d.stoppingWorld))
	if d.stoppingWorld == nil {
		d.stoppingWorld = make(map[uint64]bool)
	}
	open := map[uint32]int{} // goroutine that stops the world -> index in STW
	for _, e := range extra {
		t := g.Base + e.t
		switch e.typ {
		case tracefmt.EvSTWBegin:
			open[e.g] = len(g.STW)
			d.stoppingWorld[g.ids.ids[e.g]] = true
			g.STW = append(g.STW, STWRange{Start: t, Kind: g.str(uint32(e.x)), G: g.ids.ids[e.g], Stack: g.stack(uint32(e.y))})
		case tracefmt.EvSTWEnd:
			delete(d.stoppingWorld, g.ids.ids[e.g])
			if k, ok := open[e.g]; ok {
				g.STW[k].End = t
				delete(open, e.g)
			} else {
				g.STW = append(g.STW, STWRange{End: t, G: g.ids.ids[e.g]})
			}
		case tracefmt.EvProcsChange:
			if e.x == 0 {
				g.PsUnknown = true
				continue
			}
			g.Procs = append(g.Procs, ProcsChange{t, int(min(e.x, 1<<20)), g.stack(uint32(e.y))})
		case tracefmt.EvGCActive:
			g.GC = append(g.GC, GCEvent{Time: t, Begin: true, Active: true})
		case tracefmt.EvGCBegin:
			g.GC = append(g.GC, GCEvent{Time: t, Begin: true, Stack: g.stack(uint32(e.y))})
		case tracefmt.EvGCEnd:
			g.GC = append(g.GC, GCEvent{Time: t})
		case tracefmt.EvGoLabel:
			g.Labels = append(g.Labels, Label{t, g.ids.ids[e.g], g.str(uint32(e.x))})
		case tracefmt.EvGCMarkAssistActive:
			if g.assistBefore == nil {
				g.assistBefore = make(map[uint32]bool)
			}
			g.assistBefore[e.g] = true
		}
	}
	top := int64(0)
	for i := range g.STW {
		end := g.STW[i].End
		if end == 0 {
			end = 1<<63 - 1 // continues in the next generation
		}
		top = max(top, end)
		g.latestStopEnd = append(g.latestStopEnd, top)
	}
	for _, s := range d.tables.Samples {
		g.Samples = append(g.Samples, Sample{Time: sc.NS(s.Time), G: s.G, P: s.P, M: s.M, Stack: s.Stack})
	}
	slices.SortStableFunc(g.Samples, func(a, b Sample) int { return cmp.Compare(a.Time, b.Time) })
	d.gatherMarks(g)
}

// concat joins the lists that listOf selects from all threads, reusing the memory of list.
func concat[T any](list []T, streams []threadLists, listOf func(*threadLists) []T) []T {
	n := 0
	for i := range streams {
		n += len(listOf(&streams[i]))
	}
	list = entry.Resize(list, n)[:0]
	for i := range streams {
		list = append(list, listOf(&streams[i])...)
	}
	return list
}

// resolveUser sets the exported fields of an annotation of runtime/trace from its encoded arguments.
func (g *Gen) resolveUser(e *UserEvent) {
	e.G = g.ids.ids[e.g]
	e.Task = e.arg[0]
	e.Stack = g.stack(g.record(e.rec).stack())
	switch e.typ {
	case tracefmt.EvUserTaskBegin:
		e.Kind, e.Parent, e.Name = TaskBegin, e.arg[1], g.str(uint32(e.arg[2]))
	case tracefmt.EvUserTaskEnd:
		e.Kind = TaskEnd
	case tracefmt.EvUserRegionBegin:
		e.Kind, e.Name = RegionBegin, g.str(uint32(e.arg[1]))
	case tracefmt.EvUserRegionEnd:
		e.Kind, e.Name = RegionEnd, g.str(uint32(e.arg[1]))
	case tracefmt.EvUserLog:
		e.Kind, e.Name, e.Value = LogMessage, g.str(uint32(e.arg[1])), g.str(uint32(e.arg[2]))
	}
}
