package groups

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// ran is what ran while requests waited for a P. It is kept by latency as the
// causes are: what made slow requests wait is seldom what made others wait. About a
// fifty requests of a generation are looked at, and the slowest of each group.
type ran map[path.CauseID]map[ranAt]map[tracefmt.FrameID]int64

// ranAt is whose waits.
type ranAt struct {
	group  path.GroupID // anyGroup for parts of long requests, and open ones
	bucket int32
}

func (r ran) add(id path.CauseID, at ranAt, site tracefmt.FrameID, ns int64) {
	if r[id] == nil {
		r[id] = make(map[ranAt]map[tracefmt.FrameID]int64)
	}
	if r[id][at] == nil {
		r[id][at] = make(map[tracefmt.FrameID]int64)
	}
	r[id][at][site] += ns
}

func (r ran) each(f func(path.CauseID, ranAt, tracefmt.FrameID, int64)) {
	for id, byAt := range r {
		for at, sites := range byAt {
			for site, ns := range sites {
				f(id, at, site, ns)
			}
		}
	}
}

func (r ran) merge(o ran, tr *path.Translation) {
	o.each(func(id path.CauseID, at ranAt, site tracefmt.FrameID, ns int64) {
		if at.group != anyGroup {
			at.group = tr.Groups[at.group]
		}
		r.add(tr.Causes[id], at, site, ns)
	})
}

// regroup takes note of what groups became.
func (r *ran) regroup(became []path.GroupID) {
	old := *r
	*r = make(ran)
	old.each(func(id path.CauseID, at ranAt, site tracefmt.FrameID, ns int64) {
		if at.group != anyGroup {
			at.group = became[at.group]
		}
		r.add(id, at, site, ns)
	})
}

// A look is a wait for a P that is worth looking at.
type look struct {
	id       path.CauseID
	from, to int64
	g        uint64
}

func (t *table) look(l *look, at ranAt, weight int64) {
	t.stage.EachRanMeanwhile(l.from, l.to, l.g, func(site tracefmt.FrameID, ns int64) { t.ran.add(l.id, at, site, ns*weight) })
}

// lookAt looks up what ran while a request waited for a P, or takes note of it if
// it is one of the slowest so far.
func (t *table) lookAt(w *path.Walked) {
	if len(w.Looked) == 0 {
		return
	}
	at := ranAt{group: anyGroup}
	if w.Form == path.Whole && !w.Req.Open {
		at = ranAt{w.Group, loglinear.Bucket(w.Latency(), coarseBits)}
	}
	if w.Sampled {
		for _, i := range w.Looked {
			s := &w.Segments[i]
			t.look(&look{w.CauseIDs[i], s.Start, s.End, s.G}, at, w.Weight)
		}
		return
	}
	if at.group == anyGroup {
		return
	}
	l := t.slow[w.Group]
	if l == nil {
		l = new(slowest)
		t.slow[w.Group] = l
	}
	l.add(w, at)
}

// slowest are the slowest requests of a group in one generation that waited for a
// P.
type slowest struct {
	list []slow
	last int // index of the fastest of them
}

type slow struct {
	latency, start int64
	g              uint64
	weight         int64
	at             ranAt
	waits          []look
	table          *table
}

// Bounds of looking at slow requests: how many of one group, and of all groups
// together, in one generation; and the least part of a request that a wait is worth
// looking at for.
const (
	mostSlow    = 32
	mostSlowAll = 64
)

func compareSlow(a, b *slow) int {
	return cmp.Or(cmp.Compare(b.latency, a.latency), cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g))
}

func (l *slowest) add(w *path.Walked, at ranAt) {
	s := slow{latency: w.Latency(), start: w.Start, g: w.Req.G, weight: w.Weight, at: at}
	if len(l.list) < mostSlow {
		l.list = append(l.list, slow{})
		l.last = len(l.list) - 1
	} else if compareSlow(&s, &l.list[l.last]) > 0 {
		return
	}
	into := &l.list[l.last]
	s.waits = into.waits[:0]
	for _, i := range w.Looked {
		g := &w.Segments[i]
		if float64(g.End-g.Start) < scale.Little*float64(s.latency) {
			continue
		}
		s.waits = append(s.waits, look{w.CauseIDs[i], g.Start, g.End, g.G})
	}
	*into = s
	if len(l.list) == mostSlow {
		for i := range l.list {
			if compareSlow(&l.list[i], &l.list[l.last]) > 0 {
				l.last = i
			}
		}
	}
}

// lookAtSlow looks at the slowest requests that the workers' tables took note of:
// which they are does not depend on who walked them.
func lookAtSlow(tables []*table) {
	all := map[path.GroupKey][]slow{}
	for _, t := range tables {
		for id, l := range t.slow {
			key := t.stage.IDs.Group(id)
			for _, s := range l.list {
				s.table = t
				all[key] = append(all[key], s)
			}
		}
		clear(t.slow)
	}
	mine := make(map[*table][]slow)
	for _, list := range all {
		slices.SortFunc(list, func(a, b slow) int { return compareSlow(&a, &b) })
		for _, s := range list[:min(len(list), mostSlow, max(mostSlowAll/len(all), 4))] {
			mine[s.table] = append(mine[s.table], s)
		}
	}
	// Each worker looks at those that it walked itself.
	var wg sync.WaitGroup
	for t, list := range mine {
		wg.Go(func() {
			for i := range list {
				for k := range list[i].waits {
					t.look(&list[i].waits[k], list[i].at, list[i].weight)
				}
			}
		})
	}
	wg.Wait()
}

// leads returns, for each function that ran meanwhile, the line of it that ran most:
// a function is named the same wherever it is.
func (r ran) leads(sp *spell.Speller) map[tracefmt.StringID]tracefmt.FrameID {
	total := map[tracefmt.FrameID]int64{}
	r.each(func(_ path.CauseID, _ ranAt, f tracefmt.FrameID, ns int64) { total[f] += ns })
	out := map[tracefmt.StringID]tracefmt.FrameID{}
	for f, ns := range total {
		fn := sp.Syms.Frame(f).Func
		if l, ok := out[fn]; !ok || ns > total[l] || ns == total[l] && sp.CompareFrames(f, l) < 0 {
			out[fn] = f
		}
	}
	return out
}

// ranMeanwhile returns what ran while a group's requests of some latencies waited
// for one of some causes: what was seen at each latency counts by how long such
// requests waited. Where none of them was looked at (a request has more waits than
// are), the same requests' other waits speak for them, then others of the group, or
// at last other groups.
func (w writer) ranMeanwhile(g *group, ids []path.CauseID, in map[int32]bool) []report.Share {
	group := w.stage.IDs.ID(g.key)
	sched := func(id path.CauseID) bool { // and no freeze
		return w.sp.Settled[w.stage.IDs.Cause(id).Code] == cause.Sched
	}
	if !slices.ContainsFunc(ids, sched) {
		return w.sp.Shares(nil)
	}
	m := map[tracefmt.FrameID]int64{}
	add := func(id path.CauseID, which func(ranAt) bool) {
		for at, sites := range w.ran[id] {
			if !which(at) {
				continue
			}
			total, waited := int64(0), int64(0)
			for _, ns := range sites {
				total += ns
			}
			if total == 0 {
				continue
			}
			if at.group == group {
				if c := g.cells.of(at.bucket, int32(id)); c != nil {
					waited = c.ns
				}
			}
			if waited == 0 {
				waited = total
			}
			for f, ns := range sites {
				m[w.leads[w.sp.Syms.Frame(f).Func]] += int64(float64(ns) / float64(total) * float64(waited))
			}
		}
	}
	band := func(at ranAt) bool { return at.group == group && in[at.bucket] }
	for _, c := range []struct {
		others bool // waits elsewhere
		which  func(ranAt) bool
	}{{false, band}, {true, band}, {false, func(at ranAt) bool { return at.group == group }}, {false, func(ranAt) bool { return true }}} {
		if c.others {
			for id := range w.ran {
				if sched(id) {
					add(id, c.which)
				}
			}
		} else {
			for _, id := range ids {
				if sched(id) {
					add(id, c.which)
				}
			}
		}
		if len(m) > 0 {
			break
		}
	}
	return w.sp.Shares(m)
}
