package groups

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
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
type ran map[ranKey]int64

// A ranKey is a site that ran while requests waited.
type ranKey struct {
	ranAt
	site tracefmt.FrameID
}

// ranAt is whose waits, and for which cause.
type ranAt struct {
	group  path.GroupID // anyGroup for parts of long requests, and open ones
	bucket int32
	id     path.CauseID
}

func (r ran) merge(o ran, tr *path.Translation) {
	for k, ns := range o {
		if k.group != anyGroup {
			k.group = tr.Groups[k.group]
		}
		k.id = tr.Causes[k.id]
		r[k] += ns
	}
}

// A look is a wait for a P that is worth looking at.
type look struct {
	id       path.CauseID
	from, to int64
	g        uint64
}

func (t *table) look(l *look, at ranAt, weight int64) {
	at.id = l.id
	t.stage.EachConcurrentRun(l.from, l.to, l.g, func(site tracefmt.FrameID, ns int64) { t.ran[ranKey{at, site}] += ns * weight })
}

// lookAt looks up what ran while a request waited for a P, or takes note of it if
// it is one of the slowest so far.
func (t *table) lookAt(w *path.WalkResult) {
	if len(w.LongPWaits) == 0 {
		return
	}
	at := ranAt{group: anyGroup}
	if w.Form == path.Whole && !w.Req.Open {
		at = ranAt{group: w.Group, bucket: loglinear.Bucket(w.Latency(), coarseBits)}
	}
	if w.Sampled {
		for _, i := range w.LongPWaits {
			s := &w.Segments[i]
			t.look(&look{w.CauseIDs[i], s.Start, s.End, s.G}, at, w.Weight)
		}
		return
	}
	if at.group == anyGroup {
		return
	}
	entry.In(t.slow, w.Group).add(w, at)
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

func (l *slowest) add(w *path.WalkResult, at ranAt) {
	s := slow{latency: w.Latency(), start: w.Start, g: w.Req.G, weight: w.Weight, at: at}
	if len(l.list) < mostSlow {
		l.list = append(l.list, slow{})
		l.last = len(l.list) - 1
	} else if compareSlow(&s, &l.list[l.last]) > 0 {
		return
	}
	into := &l.list[l.last]
	s.waits = into.waits[:0]
	for _, i := range w.LongPWaits {
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
	for k, ns := range r {
		total[k.site] += ns
	}
	out := map[tracefmt.StringID]tracefmt.FrameID{}
	for f, ns := range total {
		fn := sp.Syms.Frame(f).Func
		if l, ok := out[fn]; !ok || ns > total[l] || ns == total[l] && sp.CompareFrames(f, l) < 0 {
			out[fn] = f
		}
	}
	return out
}

// sortRan sorts what ran during waits for a P by their causes and by whose they were.
func (w *writer) sortRan() {
	w.leads, w.ranBy = w.ran.leads(w.sp), make(map[path.CauseID]map[ranAt]map[tracefmt.FrameID]int64)
	for k, ns := range w.ran {
		if !w.waitsForP(k.id) {
			continue
		}
		if w.ranBy[k.id] == nil {
			w.ranBy[k.id] = make(map[ranAt]map[tracefmt.FrameID]int64)
		}
		if w.ranBy[k.id][k.ranAt] == nil {
			w.ranBy[k.id][k.ranAt] = make(map[tracefmt.FrameID]int64)
		}
		w.ranBy[k.id][k.ranAt][k.site] = ns
	}
	w.ranIDs = slices.Collect(maps.Keys(w.ranBy))
}

// ranMeanwhile returns what ran while a group's requests of some latencies waited
// for one of some causes: what was seen at each latency counts by how long such
// requests waited. Where none of them was looked at (a request has more waits than
// are), the same requests' other waits speak for them, then others of the group, or
// at last other groups.
func (w writer) ranMeanwhile(g *group, ids []path.CauseID, in map[int32]bool) []report.Share {
	group := w.stage.IDs.GroupID(g.key)
	if !slices.ContainsFunc(ids, w.waitsForP) {
		return w.sp.Shares(nil)
	}
	m := map[tracefmt.FrameID]int64{}
	add := func(at ranAt, sites map[tracefmt.FrameID]int64) {
		total, waited := int64(0), int64(0)
		for _, ns := range sites {
			total += ns
		}
		if total == 0 {
			return
		}
		if at.group == group {
			if c := g.cells.of(at.bucket, int32(at.id)); c != nil {
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
	ofGroup := func(at ranAt) bool { return at.group == group }
	ofBand := func(at ranAt) bool { return at.group == group && in[at.bucket] }
	for _, try := range []struct {
		ids   []path.CauseID
		which func(ranAt) bool
	}{{ids, ofBand}, {w.ranIDs, ofBand}, {ids, ofGroup}, {ids, func(ranAt) bool { return true }}} {
		for _, id := range try.ids {
			for at, sites := range w.ranBy[id] {
				if try.which(at) {
					add(at, sites)
				}
			}
		}
		if len(m) > 0 {
			break
		}
	}
	return w.sp.Shares(m)
}

// waitsForP reports whether a cause is a wait for a P, and no freeze.
func (w writer) waitsForP(id path.CauseID) bool {
	return w.sp.Settled[w.stage.IDs.Cause(id).Code] == cause.Sched
}
