package summary

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/internal/predict"
	"github.com/whylate/whylate/internal/request"
	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
	"github.com/whylate/whylate/report"
)

// View says how tables are turned into a report.
type View struct {
	// Start is the instant from which the report's times count.
	Start int64
	End   int64
	// Group, if not nil, selects groups by name.
	Group *regexp.Regexp
	// Kinds, if not nil, selects groups by kind.
	Kinds func(request.Kind) bool
	// PathMap rewrites the beginnings of file names.
	PathMap [][2]string
	// Model, if not nil, is given the groups' samples.
	Model *predict.Model
}

// maxCauses bounds the rows of a band; the rest is one row "other".
const maxCauses = 40

// maxRan bounds what is listed as having run meanwhile.
const maxRan = 5

// Groups returns the groups in order of total latency.
func (t *Tables) Groups(v View) []report.Group {
	out := []report.Group{}
	for _, g := range t.groups {
		if v.Kinds != nil && !v.Kinds(g.key.kind) {
			continue
		}
		if g.lat.n == 0 && g.open == 0 {
			continue
		}
		r := t.groupReport(g, v)
		if v.Group != nil && !v.Group.MatchString(r.Name) {
			continue
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b report.Group) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Site spells a frame out.
func (t *Tables) Site(f tracefmt.FrameID, v View) *report.Site { return v.Site(t.syms, f) }

// Site spells a frame out; nil for none.
func (v View) Site(syms *tracefmt.Symbols, f tracefmt.FrameID) *report.Site {
	if f == 0 {
		return nil
	}
	fr := syms.Unwrapped(f)
	file := syms.String(fr.File)
	for _, m := range v.PathMap {
		if rest, ok := strings.CutPrefix(file, m[0]); ok {
			file = m[1] + rest
			break
		}
	}
	return &report.Site{Func: syms.String(fr.Func), File: file, Line: int(fr.Line)}
}

// StableID returns an id that depends on nothing but its parts.
func StableID(parts ...string) string {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

func (t *Tables) groupReport(g *group, v View) report.Group {
	kind, name, named := t.title(g)
	r := report.Group{
		ID:         StableID("group", kind, name),
		Kind:       report.Kind(kind),
		Name:       name,
		Named:      named,
		Count:      int(g.lat.n),
		Streaming:  g.parted,
		Entry:      t.Site(g.entry, v),
		TotalNS:    g.lat.sum,
		CutAtStart: g.cut,
		Histogram:  [][2]int64{},
		Blocks:     []report.Block{},
		Bands:      []report.Band{},
		Slowest:    []report.Request{},
	}
	r.LatencyNS = latency(&g.lat)
	if v.Model != nil && g.lat.n > 0 {
		v.Model.Group(r.ID, &g.graphs, r.LatencyNS.P50, r.LatencyNS.P99)
	}
	r.ReadyToRunNS, r.PollGapNS = quantiles(&g.ready), quantiles(&g.gap)
	r.Histogram = pairs(&g.lat)
	for _, bi := range keysOf(g.blocks) {
		b := g.blocks[bi]
		length := int64(BlockNS) << t.blockShift
		rb := report.Block{StartNS: bi*length - v.Start, DurationNS: length, Count: int(b.lat.n), TotalNS: b.lat.sum, Histogram: pairs(&b.lat), Causes: map[report.CauseName]int64{}}
		if rb.StartNS < 0 {
			rb.DurationNS += rb.StartNS
			rb.StartNS = 0
		}
		for c, ns := range b.causes {
			if ns != 0 {
				rb.Causes[causeName(cause.Cause(c))] = ns
			}
		}
		r.Blocks = append(r.Blocks, rb)
	}
	t.bands(g, &r, v)
	for _, s := range g.slow {
		r.Slowest = append(r.Slowest, t.slowReport(s, r.ID, v))
	}
	r.HistogramCauses = t.histogramCauses(g)
	if s := g.typical(); s != nil {
		typical := t.slowReport(s, r.ID, v)
		r.Typical = &typical
	}
	r.Open = report.Open{Count: g.open}
	if g.open > 0 {
		r.Open.OldestNS = v.End - g.oldest
		r.Open.Site = t.Site(g.openSite, v)
	}
	return r
}

// title returns what a group is called.
func (t *Tables) title(g *group) (kind, name string, named bool) {
	kind, name, named = g.key.kind.String(), t.syms.String(g.key.name), g.key.name != 0
	if g.entry != 0 && g.key.kind == request.GRPC {
		name = t.syms.String(t.syms.Frame(g.entry).Func)
	}
	if !named {
		name = "(" + kind + " requests that show no handler)"
	}
	return kind, name, named
}

func latency(h *histogram) report.Latency {
	var l report.Latency
	if h.n == 0 {
		return l
	}
	q := func(q float64) *int64 {
		if h.n < least(q) {
			return nil
		}
		v := h.quantile(q)
		return &v
	}
	mean, top := h.sum/h.n, h.max
	l.Mean, l.Max = &mean, &top
	l.P50, l.P90, l.P99, l.P999 = q(0.5), q(0.9), q(0.99), q(0.999)
	return l
}

func quantiles(h *histogram) report.Quantiles {
	l := latency(h)
	return report.Quantiles{P50: l.P50, P99: l.P99, Max: l.Max}
}

// pairs lists coarse buckets as [upper bound, count].
func pairs(h *histogram) [][2]int64 {
	sums := map[int32]int64{}
	h.each(func(b int32, c int64) {
		if !h.coarse {
			b = coarse(b)
		}
		sums[b] += c
	})
	out := [][2]int64{}
	for _, b := range keysOf(sums) {
		out = append(out, [2]int64{lowerBound(b+1, coarseBits), sums[b]})
	}
	return out
}

// bands divides the group's requests by latency. A coarse bucket belongs to
// the band in which the middle one of its requests lies, so a band's borders
// are exact to a bucket's width, 3 %.
func (t *Tables) bands(g *group, r *report.Group, v View) {
	counts := map[int32]int64{}
	g.lat.each(func(b int32, c int64) { counts[coarse(b)] += c })
	order := keysOf(counts)
	limits := []struct {
		name   report.BandName
		lo, hi float64
	}{{report.BandAll, 0, 1}, {report.Band5090, 0.5, 0.9}, {report.Band9099, 0.9, 0.99}, {report.Band99, 0.99, 1}}
	lines := map[rowKey]siteFrom{}
	for _, l := range limits {
		in := map[int32]bool{}
		band := report.Band{Band: l.name, Causes: []report.Cause{}}
		seen := int64(0)
		for i, b := range order {
			c := counts[b]
			mid := (float64(seen) + float64(c)/2) / float64(g.lat.n)
			seen += c
			top := i == len(order)-1 && l.hi == 1
			if mid < l.lo && !top || mid >= l.hi && !top {
				continue
			}
			if band.Count == 0 {
				band.FromNS = lowerBound(b, coarseBits)
			}
			band.ToNS = lowerBound(b+1, coarseBits)
			band.Count += int(c)
			in[b] = true
		}
		if band.Count > 0 {
			band.Causes = t.causeRows(g, in, band.Count, v, lines)
		}
		r.Bands = append(r.Bands, band)
	}
}

// A row of a band: one cause at one site, whichever waits led there.
type row struct {
	cell
	bySite map[siteFrom]int64
	byVia  map[int32]int64
	byCall map[tracefmt.StringID]int64
	ids    []int32
}

type rowKey struct {
	cause   cause.Cause
	inbound bool
	kind    tracefmt.StringID
	site    tracefmt.FrameID
	fn      tracefmt.StringID
}

type siteFrom struct {
	site tracefmt.FrameID
	from cause.From
}

// moveUnder gives running time that has no stack of its own to what was seen
// running under its function. Shares are kept whole: what one row loses others
// win.
func (t *Tables) moveUnder(rows map[rowKey]*row) {
	keys := make([]rowKey, 0, len(rows))
	for k := range rows {
		if k.cause == cause.CPU {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b rowKey) int { return cmp.Compare(t.syms.String(a.fn), t.syms.String(b.fn)) })
	for _, k := range keys {
		m := rows[k]
		var unseen int64
		for s, ns := range m.bySite {
			if s.from == cause.FromBracket {
				unseen += ns
			}
		}
		if unseen == 0 {
			continue
		}
		shares, total := t.shares(k.fn, unseen)
		byFn := map[tracefmt.StringID]int64{}
		lead := map[tracefmt.StringID]tracefmt.FrameID{}
		for f, sh := range shares {
			fn := t.syms.Frame(f).Func
			byFn[fn] += sh
			if l, ok := lead[fn]; !ok || sh > shares[l] || sh == shares[l] && t.compareFrames(f, l) < 0 {
				lead[fn] = f
			}
		}
		// What is rounded depends on the order.
		fns := slices.SortedFunc(maps.Keys(byFn), func(a, b tracefmt.StringID) int { return cmp.Compare(t.syms.String(a), t.syms.String(b)) })
		for _, fn := range fns {
			if fn == k.fn {
				continue
			}
			to := k
			to.fn = fn
			dst := rows[to]
			if dst == nil {
				dst = &row{bySite: map[siteFrom]int64{}, byVia: map[int32]int64{}, ids: m.ids}
				rows[to] = dst
			}
			part := int64(float64(byFn[fn]) / float64(total) * float64(unseen))
			t.move(m, dst, part, lead[fn])
		}
	}
	for k, m := range rows {
		if m.ns <= 0 {
			delete(rows, k)
		}
	}
}

// move takes ns of running time without a stack from one row to another.
func (t *Tables) move(from, to *row, ns int64, site tracefmt.FrameID) {
	if from.ns <= 0 || ns <= 0 {
		return
	}
	requests := int64(float64(from.requests) * float64(ns) / float64(from.ns))
	to.requests = max(to.requests, requests)
	left := ns
	sites := slices.SortedFunc(maps.Keys(from.bySite), func(a, b siteFrom) int {
		return cmp.Or(t.compareFrames(a.site, b.site), cmp.Compare(a.from, b.from))
	})
	for _, s := range sites {
		v := from.bySite[s]
		if s.from == cause.FromBracket {
			take := min(v, left)
			from.bySite[s] -= take
			left -= take
		}
	}
	to.bySite[siteFrom{site, cause.FromSample}] += ns
	frac := float64(ns) / float64(from.ns)
	for v, n := range from.byVia {
		part := int64(frac * float64(n))
		from.byVia[v] -= part
		to.byVia[v] += part
	}
	from.ns -= ns
	to.ns += ns
}

// compareFrames orders frames by what they say: their ids depend on who came
// first.
func (t *Tables) compareFrames(a, b tracefmt.FrameID) int {
	fa, fb := t.syms.Frame(a), t.syms.Frame(b)
	return cmp.Or(cmp.Compare(t.syms.String(fa.File), t.syms.String(fb.File)), cmp.Compare(fa.Line, fb.Line),
		cmp.Compare(t.syms.String(fa.Func), t.syms.String(fb.Func)))
}

// site returns the line on which most of the row's time was spent.
func (r *row) site(t *Tables) (tracefmt.FrameID, cause.From) {
	var best siteFrom
	top := int64(-1)
	for s, ns := range r.bySite {
		if ns > top || ns == top && cmp.Or(t.compareFrames(s.site, best.site), cmp.Compare(s.from, best.from)) < 0 {
			best, top = s, ns
		}
	}
	return best.site, best.from
}

// call returns the function that most of the row's time was spent in.
func (r *row) call(t *Tables) string {
	best, top := "", int64(0)
	for id, ns := range r.byCall {
		if fn := t.syms.String(id); ns > top || ns == top && fn < best {
			best, top = fn, ns
		}
	}
	return best
}

// maxRoutes bounds the routes listed for one cause.
const maxRoutes = 10

// routes returns the chain of waits that led to most of a row's time, and, if
// there are several, all of them with their times.
func (t *Tables) routes(byVia map[int32]int64, v View) ([]report.Via, []report.Route) {
	var list []report.Route
	for id, ns := range byVia {
		list = append(list, report.Route{Via: t.viaReport(t.chain(id), v), TotalNS: ns})
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
func (t *Tables) causeRows(g *group, in map[int32]bool, count int, v View, lines map[rowKey]siteFrom) []report.Cause {
	sums := map[int32]*cell{}
	var total int64
	g.cells.each(func(bucket, cause int32, c *cell) {
		if !in[bucket] {
			return
		}
		total += c.ns
		s := sums[cause]
		if s == nil {
			s = &cell{}
			sums[cause] = s
		}
		s.ns += c.ns
		s.requests += c.requests
	})
	merged := map[rowKey]*row{}
	for id, c := range sums {
		k := t.keys[id]
		rk := rowKey{cause: k.cause, inbound: k.inbound, kind: k.kind, site: k.site}
		if k.cause == cause.CPU || k.cause == cause.Throttle {
			// Where in a function the clock struck, or which event was next, says
			// little: running time belongs to the function.
			rk.site, rk.fn = 0, t.syms.Frame(k.site).Func
		}
		m := merged[rk]
		if m == nil {
			m = &row{bySite: map[siteFrom]int64{}, byVia: map[int32]int64{}, byCall: map[tracefmt.StringID]int64{}}
			merged[rk] = m
		}
		m.byCall[k.call] += c.ns
		m.ns += c.ns
		m.requests += c.requests
		m.bySite[siteFrom{k.site, k.from}] += c.ns
		m.byVia[k.via] += c.ns
		m.ids = append(m.ids, id)
	}
	t.moveUnder(merged)
	rows := make([]report.Cause, 0, len(merged))
	for rk, m := range merged {
		site, from := m.site(t)
		if rk.fn != 0 {
			line, ok := lines[rk]
			if !ok {
				line = siteFrom{site, from}
				lines[rk] = line
			}
			site = line.site
		}
		rc := report.Cause{
			Cause: causeName(rk.cause), Site: t.Site(site, v), SiteFrom: from.String(),
			TotalNS: m.ns, Requests: int(min(m.requests, int64(count))), RanMeanwhile: t.ranReport(m.ids, v), Kind: t.syms.String(rk.kind), Call: m.call(t),
		}
		rc.Via, rc.Routes = t.routes(m.byVia, v)
		if rk.cause == cause.Network {
			rc.Kind = "outbound"
			if rk.inbound {
				rc.Kind = "inbound"
			}
		}
		if total > 0 {
			rc.Share = float64(m.ns) / float64(total)
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
			other.Requests = max(other.Requests, r.Requests)
		}
		rows = append(rows[:maxCauses-1], other)
	}
	return rows
}

// rowText orders rows of equal time by what they say.
func rowText(c *report.Cause) string {
	return string(c.Cause) + siteText(c.Site) + c.SiteFrom + c.Kind + viaText(c.Via)
}

// causeName is the report's name of a cause.
func causeName(c cause.Cause) report.CauseName { return report.CauseName(c.String()) }

func siteText(s *report.Site) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(" %s %s:%d", s.Func, s.File, s.Line)
}

func (t *Tables) viaReport(vs []Via, v View) []report.Via {
	out := []report.Via{}
	for _, x := range vs {
		out = append(out, report.Via{Wait: report.WaitKind(x.Wait.String()), Site: t.Site(x.Site, v), Call: t.syms.String(x.Call)})
	}
	return out
}

func (t *Tables) ranReport(ids []int32, v View) []report.Share {
	m := map[tracefmt.FrameID]int64{}
	for _, id := range ids {
		for f, ns := range t.ran[id] {
			m[f] += ns
		}
	}
	return t.ranShares(m, v)
}

// ranShares returns which functions have the largest parts of a sum by site.
func (t *Tables) ranShares(m map[tracefmt.FrameID]int64, v View) []report.Share {
	if len(m) == 0 {
		return nil
	}
	type fn struct {
		f  tracefmt.FrameID
		ns int64
	}
	// By function: the lines of one function belong together.
	byFn := map[tracefmt.StringID]*fn{}
	var total int64
	for f, ns := range m {
		total += ns
		id := t.syms.Frame(f).Func
		e := byFn[id]
		if e == nil {
			e = &fn{f: f}
			byFn[id] = e
		}
		e.ns += ns
		if ns > m[e.f] || ns == m[e.f] && f < e.f {
			e.f = f
		}
	}
	var list []*fn
	for _, e := range byFn {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *fn) int {
		return cmp.Or(cmp.Compare(b.ns, a.ns), cmp.Compare(t.syms.String(t.syms.Frame(a.f).Func), t.syms.String(t.syms.Frame(b.f).Func)))
	})
	var out []report.Share
	for _, e := range list[:min(len(list), maxRan)] {
		if total > 0 {
			out = append(out, report.Share{Site: t.Site(e.f, v), Share: float64(e.ns) / float64(total)})
		}
	}
	return out
}

func (t *Tables) slowReport(s *Slow, group string, v View) report.Request {
	r := report.Request{
		ID:      RequestID(group, s.Start-v.Start, s.G),
		StartNS: s.Start - v.Start, LatencyNS: s.End - s.Start, Goroutine: s.G,
		Segments: make([]report.Segment, 0, min(len(s.Segments), maxSegments)+1),
	}
	for from, to := range stretches(s.Segments, maxSegments) {
		if to-from > 1 {
			r.Segments = append(r.Segments, t.joined(s, from, to, v))
		} else {
			r.Segments = append(r.Segments, t.segment(s, from, v))
		}
	}
	// Of a request over many generations only so many segments were kept.
	if n := len(s.Segments); n > 0 && s.Segments[n-1].End < s.End {
		last := s.Segments[n-1].End
		r.Segments = append(r.Segments, report.Segment{StartNS: last - v.Start, DurationNS: s.End - last, Goroutine: s.G, Cause: report.CauseUnknown, Via: []report.Via{}, Kind: "left out"})
	}
	for _, w := range s.Detail.Wakes {
		r.Wakes = append(r.Wakes, report.Wake{TimeNS: w.Time - v.Start, From: w.From, To: w.To, Site: t.Site(w.Site, v)})
	}
	for _, l := range s.Detail.Lanes {
		lane := report.Lane{Goroutine: l.G, Spans: []report.LaneSpan{}}
		if f := t.syms.Stack(l.Start); len(f) > 0 {
			lane.Name = t.syms.String(t.syms.Frame(f[0]).Func)
		}
		for _, sp := range l.Spans {
			a, b := max(sp.Start, s.Start), min(sp.End, s.End)
			if a >= b || sp.State == timeline.Gone {
				continue
			}
			if lane.Name == "" {
				if f := t.syms.Stack(sp.Stack); len(f) > 0 && sp.How != timeline.HowCreated {
					lane.Name = t.syms.String(t.syms.Frame(f[len(f)-1]).Func)
				}
			}
			ls := report.LaneSpan{StartNS: a - v.Start, DurationNS: b - a, State: sp.State.String(), Reason: t.syms.String(sp.Reason), Site: t.Site(t.class.Sites.Of(sp.Stack), v)}
			if n := len(lane.Spans); n > 0 {
				// A running stretch cut at events is one bar for the eye.
				if last := &lane.Spans[n-1]; last.State == ls.State && last.State == "running" && last.StartNS+last.DurationNS == ls.StartNS {
					last.DurationNS += ls.DurationNS
					continue
				}
			}
			lane.Spans = append(lane.Spans, ls)
		}
		r.Lanes = append(r.Lanes, lane)
	}
	return r
}

func (t *Tables) segment(s *Slow, i int, v View) report.Segment {
	g := &s.Segments[i]
	seg := report.Segment{StartNS: g.Start - v.Start, DurationNS: g.End - g.Start, Goroutine: g.G, Cause: causeName(g.Cause), Site: t.Site(g.Site, v), Via: t.viaReport(s.Vias[i], v), Kind: t.syms.String(g.Kind)}
	if g.Cause == cause.Network {
		seg.Kind = "outbound"
		if g.Inbound {
			seg.Kind = "inbound"
		}
	}
	return seg
}

// Has reports whether there are requests of a wanted kind.
func (t *Tables) Has(wanted func(request.Kind) bool) bool {
	for k, g := range t.groups {
		if wanted(k.kind) && (g.lat.n > 0 || g.open > 0) {
			return true
		}
	}
	return false
}

// Model returns a model that predicts for groups of a trace of some length in
// ns; see View.Model.
func (t *Tables) Model(duration int64) *predict.Model {
	return predict.NewModel(t.syms, duration, func(fn tracefmt.StringID) (map[tracefmt.FrameID]int64, int64) { return t.shares(fn, 0) })
}
