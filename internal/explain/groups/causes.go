package groups

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A row of a band: one cause at one site, whichever waits led there.
type row struct {
	cell
	samples  int64
	variance float64
	bySite   map[siteFrom]int64
	byVia    map[path.ChainID]int64
	byCall   map[tracefmt.StringID]int64
	ids      []path.CauseID
}

type rowKey struct {
	cause   cause.Cause
	inbound bool
	kind    tracefmt.StringID
	site    tracefmt.FrameID
	fn      tracefmt.StringID
	// own is the line of the service's own that led to a site of others, ownFn its
	// function for running time.
	own   tracefmt.FrameID
	ownFn tracefmt.StringID
}

type siteFrom struct {
	site tracefmt.FrameID
	from cause.SiteSource
	own  tracefmt.FrameID // see rowKey
}

// site returns the line on which most of the row's time was spent.
func (r *row) site(sp *spell.Speller) siteFrom {
	var best siteFrom
	top := int64(-1)
	for s, ns := range r.bySite {
		if ns > top || ns == top && cmp.Or(sp.CompareFrames(s.site, best.site), cmp.Compare(s.from, best.from), sp.CompareFrames(s.own, best.own)) < 0 {
			best, top = s, ns
		}
	}
	return best
}

// call returns the function that most of the row's time was spent in.
func (r *row) call(sp *spell.Speller) string {
	best, top := "", int64(0)
	for id, ns := range r.byCall {
		if fn := sp.Syms.String(id); ns > top || ns == top && fn < best {
			best, top = fn, ns
		}
	}
	return best
}

// maxRoutes bounds the routes listed for one cause.
const maxRoutes = 10

// routes returns the chain of waits that led to most of a row's time, and, if
// there are several, all of them with their times.
func (w writer) routes(byVia map[path.ChainID]int64) ([]report.Via, []report.Route) {
	var list []report.Route
	for id, ns := range byVia {
		list = append(list, report.Route{Via: w.sp.Vias(w.stage.IDs.Chain(id)), TotalNS: ns})
	}
	slices.SortFunc(list, func(a, b report.Route) int {
		if c := cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), len(a.Via)-len(b.Via)); c != 0 {
			return c
		}
		return cmp.Compare(viaText(a.Via), viaText(b.Via))
	})
	first := list[0].Via
	if len(list) == 1 {
		return first, nil
	}
	return first, list[:min(len(list), maxRoutes)]
}

func viaText(vs []report.Via) string {
	s := ""
	for _, v := range vs {
		s += string(v.Wait) + siteText(v.Site) + v.Call
	}
	return s
}

// causeRows returns the causes of the requests in some buckets, the largest
// first. A row of running time stands for a whole function, so its line is
// chosen once for all bands, by the first that has the row: lines holds it.
// runs says what runs without a stack of their own are taken to be.
func (w writer) causeRows(g *group, in map[int32]bool, count int, runs shown, lines map[rowKey]siteFrom) []report.Cause {
	sums := map[int32]*cell{}
	var total int64
	g.cells.each(func(bucket, cause int32, c *cell) {
		if !in[bucket] {
			return
		}
		total += c.ns
		entry.In(sums, cause).add(c)
	})
	samples := map[int32]int64{}
	g.samples.each(func(bucket, cause int32, c *cell) {
		if in[bucket] {
			samples[cause] += c.requests
		}
	})
	variance := g.variances(in)
	merged := map[rowKey]*row{}
	add := func(id int32, k *path.CauseKey, at siteFrom, c cell) {
		rk := rowKey{cause: k.Code.Cause(), inbound: k.Inbound, kind: k.Kind}
		if rk.cause == cause.CPU || rk.cause == cause.Throttle {
			// Where in a function the clock struck, or which event was next, says
			// little: running time belongs to the function.
			at.own = w.sp.Own(at.site, nil, 0) // whoever waits for it, it computes
			rk.fn, rk.ownFn = w.sp.Syms.Frame(at.site).Func, w.sp.Syms.Frame(at.own).Func
		} else {
			at.own = w.sp.Own(at.site, w.stage.IDs.Chain(k.Chain), g.by.frame)
			rk.site, rk.own = at.site, at.own
		}
		m := merged[rk]
		if m == nil {
			m = &row{bySite: map[siteFrom]int64{}, byVia: map[path.ChainID]int64{}, byCall: map[tracefmt.StringID]int64{}}
			merged[rk] = m
		}
		m.byCall[k.Call] += c.ns
		m.cell.add(&c)
		if v := variance[id]; v > 0 {
			part := float64(c.ns) / float64(sums[id].ns)
			m.variance += part * part * v
		}
		m.bySite[at] += c.ns
		m.byVia[k.Chain] += c.ns
		m.ids = append(m.ids, path.CauseID(id))
		if at.from == cause.SiteFromSample {
			m.samples += samples[id]
			delete(samples, id)
		}
	}
	for id, c := range sums {
		k := w.stage.IDs.Cause(path.CauseID(id)).WithSettledCause(w.sp.Settled)
		runs.divide(path.CauseID(id), siteFrom{site: k.Site, from: k.SiteSource}, *c, func(at siteFrom, part cell) { add(id, &k, at, part) })
	}
	rows := make([]report.Cause, 0, len(merged))
	for rk, m := range merged {
		at := m.site(w.sp)
		from := at.from
		if rk.fn != 0 {
			line, ok := lines[rk]
			if !ok {
				line = at
				lines[rk] = line
			}
			at = line
		}
		rc := report.Cause{
			Cause: spell.Cause(rk.cause), SiteFrom: from.String(),
			TotalNS: m.ns, Requests: int(min(m.requests, int64(count))), Samples: int(m.samples), RanMeanwhile: w.ranMeanwhile(g, m.ids, in), Kind: w.sp.Kind(rk.cause, rk.kind, rk.inbound), Call: m.call(w.sp),
		}
		rc.Via, rc.Routes = w.routes(m.byVia)
		rc.Site = w.sp.SiteFor(at.site, at.own, rc.Via)
		if total > 0 {
			rc.Share, rc.ShareError = float64(m.ns)/float64(total), shareError(m.variance, total)
		}
		rows = append(rows, rc)
	}
	slices.SortFunc(rows, func(a, b report.Cause) int {
		if a.TotalNS != b.TotalNS {
			return cmp.Compare(b.TotalNS, a.TotalNS)
		}
		return cmp.Compare(rowText(&a), rowText(&b))
	})
	if len(rows) > maxCauses {
		other := report.Cause{Cause: report.CauseOther, Via: []report.Via{}}
		for _, r := range rows[maxCauses-1:] {
			other.TotalNS += r.TotalNS
			other.Share += r.Share
			other.ShareError = math.Hypot(other.ShareError, r.ShareError)
			other.Requests = max(other.Requests, r.Requests)
			other.Samples += r.Samples
		}
		other.ShareError = math.Round(other.ShareError*1e4) / 1e4
		rows = append(rows[:maxCauses-1], other)
	}
	return rows
}

// rowText orders rows of equal time by what they say.
func rowText(c *report.Cause) string {
	return string(c.Cause) + siteText(c.Site) + c.SiteFrom + c.Kind + viaText(c.Via)
}

func siteText(s *report.Site) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(" %s %s:%d", s.Func, s.File, s.Line) + siteText(s.CalledFrom.Site())
}
