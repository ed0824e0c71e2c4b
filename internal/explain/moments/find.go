package moments

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// What makes stretches worth telling.
const (
	most = 5 // stretches
)

// Find returns the moments of a group with this id.
func (s *Sum) Find(id path.GroupID, g *report.Group, ids *path.IDs, sp *spell.Speller) []report.Moment {
	k := s.of(id)
	if g.Role != report.RoleRequests || g.Count < scale.Many || g.LatencyNS.P50 == nil || k == nil || k.over {
		return nil
	}
	found := stretches(k, g, sp.End-sp.Start)
	_, of := k.slowest(g)
	var out []report.Moment
	for _, f := range found {
		m := report.Moment{
			Group: g.ID, StartNS: f[0].start - sp.Start, EndNS: f[len(f)-1].start - sp.Start, Slow: int(weights(f)), Of: int(of), ShareOfSlow: float64(weights(f)) / float64(of), With: []report.MomentEvent{},
		}
		for _, r := range f {
			m.UntilNS = max(m.UntilNS, r.end-sp.Start)
		}
		m.Cause, m.CauseShare = mostly(f, ids, sp)
		out = append(out, m)
	}
	return out
}

// stretches returns the slowest requests of those stretches that are worth telling, in order of time.
func stretches(k *kept, g *report.Group, durationNS int64) [][]slow {
	k.cut()
	list, of := k.slowest(g)
	if of < scale.Enough/2 {
		return nil
	}
	slices.SortFunc(list, func(a, b slow) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g)) })
	var found [][]slow
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[j].start-list[j-1].start <= scale.Slice {
			j++
		}
		if weights(list[i:j]) > scale.Several {
			found = append(found, list[i:j])
		}
		i = j
	}
	slices.SortStableFunc(found, func(a, b []slow) int { return cmp.Compare(weights(b), weights(a)) })
	found = found[:min(len(found), most)]
	var in, began, ns int64
	for _, f := range found {
		in += weights(f)
		ns += f[len(f)-1].start - f[0].start
		began += k.beganIn(f[0].start, f[len(f)-1].start)
	}
	part := float64(in) / float64(of)
	if part < scale.Much || float64(ns) > scale.Little*float64(durationNS) || part < scale.Far*float64(began)/float64(g.Count) {
		return nil
	}
	slices.SortFunc(found, func(a, b []slow) int { return cmp.Compare(a[0].start, b[0].start) })
	return found
}

// slowest returns the slowest requests that are looked at, and how many they stand for.
func (k *kept) slowest(g *report.Group) (list []slow, of int64) {
	n := max(int64(scale.Enough), int64(g.Count/100))
	for _, r := range k.slow {
		if of >= n || r.end-r.start < scale.Far**g.LatencyNS.P50 {
			break
		}
		list = append(list, r)
		of += r.weight
	}
	return list, of
}

// Apart returns in how many stretches of time apart from each other the requests of a group that took at least so long were
// open, as far as they are among those that are kept; 0 if none is. Requests that are open at the same time were late once.
func (s *Sum) Apart(id path.GroupID, leastNS int64) (n int) {
	return s.of(id).apart(leastNS)
}

func (k *kept) apart(leastNS int64) (n int) {
	if k == nil {
		return 0
	}
	list := slices.DeleteFunc(slices.Clone(k.slow), func(r slow) bool { return r.end-r.start < leastNS })
	slices.SortFunc(list, func(a, b slow) int { return cmp.Compare(a.start, b.start) })
	until := int64(0)
	for i, r := range list {
		if i == 0 || r.start > until {
			n++
		}
		until = max(until, r.end)
	}
	return n
}

func weights(list []slow) (n int64) {
	for i := range list {
		n += list[i].weight
	}
	return n
}

// beganIn counts the requests that began from one time to another, a little more than those.
func (k *kept) beganIn(from, to int64) (n int64) {
	for at := from / scale.Slice; at <= to/scale.Slice; at++ {
		n += k.began[at]
	}
	return n
}

// mostly returns the cause on which most of these requests spent most of their time, and their share.
func mostly(list []slow, ids *path.IDs, sp *spell.Speller) (report.CauseName, float64) {
	sums := map[cause.Cause]int64{}
	for _, r := range list {
		sums[ids.Cause(r.cause).WithSettledCause(sp.Settled).Code.Cause()] += r.weight
	}
	best, top := cause.Cause(0), int64(-1)
	for c, n := range sums {
		if n > top || n == top && c < best {
			best, top = c, n
		}
	}
	return spell.Cause(best), float64(top) / float64(weights(list))
}

// Tell fills in what happened in moments: in the stretches themselves, and until their last request ended.
func Tell(list []report.Moment, series *report.Series, herds []process.Flock, durationNS int64) {
	for i := range list {
		m := &list[i]
		if series != nil {
			for _, e := range []struct {
				what   report.MomentKind
				ranges [][2]int64
			}{{report.MomentGC, series.GC}, {report.MomentSTW, series.STW}, {report.MomentFreeze, series.Freezes}} {
				m.With = append(m.With, covering(m, e.what, e.ranges, durationNS)...)
			}
		}
		for k := range herds {
			// A herd holds up who comes while it runs.
			if h := &herds[k]; h.FromNS <= m.EndNS && h.ToNS >= m.StartNS {
				m.With = append(m.With, report.MomentEvent{Kind: report.MomentHerd, StartNS: h.FromNS, DurationNS: h.ToNS - h.FromNS, Count: h.N, Site: h.Site, Text: words.Number(int64(h.N)) + " goroutines of " + words.FuncName(h.Start) + " woke at once"})
			}
		}
		m.Text = text(m)
	}
}

// covering returns an event of a kind that covers much of a moment.
func covering(m *report.Moment, what report.MomentKind, ranges [][2]int64, durationNS int64) []report.MomentEvent {
	from, to := m.StartNS, max(m.UntilNS, m.StartNS+1)
	var in, all, first, last int64
	n := 0
	for _, r := range ranges {
		all += r[1]
		if d := min(r[0]+r[1], to) - max(r[0], from); d > 0 {
			in += d
			if n == 0 {
				first = r[0]
			}
			last = r[0] + r[1]
			n++
		}
	}
	cover := float64(in) / float64(to-from)
	if n == 0 || cover < scale.Some || cover < 2*float64(all)/float64(max(durationNS, 1)) {
		return nil
	}
	said := map[report.MomentKind]string{report.MomentGC: "garbage was collected", report.MomentSTW: "the world was stopped", report.MomentFreeze: "the kernel held the process back"}[what]
	return []report.MomentEvent{{Kind: what, StartNS: first, DurationNS: last - first, Count: n, Text: said + " for " + words.Duration(in) + " of it"}}
}

func text(m *report.Moment) string {
	s := words.Count(m.Slow, "of the slowest requests begins", "of the slowest requests begin") + " within " + words.Duration(max(m.EndNS-m.StartNS, 1)) + " from " + words.Duration(m.StartNS) + " on"
	for i := range m.With {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		s += sep + m.With[i].Text
	}
	return s
}
