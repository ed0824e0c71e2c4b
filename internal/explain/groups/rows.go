package groups

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Selection says which groups are reported. The zero value is all.
type Selection struct {
	// Name, if not nil, must match a group's name.
	Name *regexp.Regexp
	// Wanted, if not nil, selects groups by kind and by what they are called.
	Wanted func(request.Kind, tracefmt.StringID) bool
}

// has reports whether a group that has requests is of a wanted kind.
func (s *Selection) has(g *group) bool {
	return g != nil && g.requests() > 0 && (s.Wanted == nil || s.Wanted(g.key.Kind, g.key.Name))
}

// A Row is a group of the report, without what Sum does not know: its slowest
// requests.
type Row struct {
	report.Group
	Of path.GroupID
	// MedianNS is an estimate of the median latency also of a group that is too
	// small for a percentile; 0 if no request ended.
	MedianNS int64
	kind     request.Kind
}

// Key returns what tells a group apart.
func (s *Sum) Key(id path.GroupID) path.GroupKey { return s.parts[0].stage.IDs.Group(id) }

// maxCauses bounds the rows of a band; the rest is one row "other".
const maxCauses = 40

// Observer returns how many requests looked at the process itself.
func (s *Sum) Observer() int { return int(s.parts[0].observer) }

// Has reports whether there are requests of a wanted kind.
func (s *Sum) Has(wanted func(request.Kind, tracefmt.StringID) bool) bool {
	return slices.ContainsFunc(s.parts[0].groups, func(g *group) bool {
		return g != nil && wanted(g.key.Kind, g.key.Name) && g.requests() > 0
	})
}

// Rows returns the groups in order of total latency.
func (s *Sum) Rows(sp *spell.Speller, sel Selection) []Row {
	w := writer{table: s.parts[0], sp: sp, kinds: s.parts[0].under.byGroup()}
	w.sortRan()
	out := []Row{}
	for id, g := range w.groups {
		if _, _, ok := w.selected(&sel, g); !ok {
			continue
		}
		out = append(out, Row{Group: w.row(g), Of: path.GroupID(id), MedianNS: g.lat.quantile(0.5), kind: g.key.Kind})
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Names returns the names of all groups that are wanted, whatever they are called, with
// how many requests, those of the most time first.
func (s *Sum) Names(sp *spell.Speller, sel Selection) []Named {
	w := writer{table: s.parts[0], sp: sp}
	var out []Named
	ns := make(map[string]int64)
	for _, g := range w.groups {
		if !sel.has(g) {
			continue
		}
		_, name, _ := w.title(g)
		ns[name] += g.lat.sum
		out = append(out, Named{name, g.requests()})
	}
	slices.SortFunc(out, func(a, b Named) int {
		return cmp.Or(cmp.Compare(ns[b.Name], ns[a.Name]), cmp.Compare(a.Name, b.Name), cmp.Compare(b.Requests, a.Requests))
	})
	return out
}

// A Named is a group's name and the number of its requests.
type Named struct {
	Name     string
	Requests int64
}

// IDs returns the report's id of every group that is selected, by its id here.
func (s *Sum) IDs(sp *spell.Speller, sel Selection) map[path.GroupID]string {
	w := writer{table: s.parts[0], sp: sp}
	out := make(map[path.GroupID]string)
	for id, g := range w.groups {
		if kind, name, ok := w.selected(&sel, g); ok {
			out[path.GroupID(id)] = spell.GroupID(kind, name)
		}
	}
	return out
}

// Title returns the report's id and the name of one group, if it is selected.
func (s *Sum) Title(id path.GroupID, sp *spell.Speller, sel Selection) (of, name string, ok bool) {
	w := writer{table: s.parts[0], sp: sp}
	kind, name, ok := w.selected(&sel, w.groups[id])
	return spell.GroupID(kind, name), name, ok
}

// selected returns what a group is called, and whether it is selected.
func (w writer) selected(sel *Selection, g *group) (kind, name string, ok bool) {
	if !sel.has(g) {
		return "", "", false
	}
	kind, name, _ = w.title(g)
	return kind, name, sel.Name == nil || sel.Name.MatchString(name)
}

// A writer makes rows of a table.
type writer struct {
	*table
	sp    *spell.Speller
	leads map[tracefmt.StringID]tracefmt.FrameID // see ran.leads
	// ranBy is what ran during waits for a P, by cause and by whose they were, ranIDs are the causes.
	ranBy  map[path.CauseID]map[ranAt]map[tracefmt.FrameID]int64
	ranIDs []path.CauseID
	kinds  map[path.GroupID][]sampleKey // see under.byGroup
}

func (w writer) row(g *group) report.Group {
	kind, name, named := w.title(g)
	r := report.Group{
		ID:         spell.GroupID(kind, name),
		Kind:       report.Kind(kind),
		Name:       name,
		Named:      named,
		Count:      int(g.lat.n),
		Streaming:  g.parted,
		Entry:      w.sp.Site(g.entry),
		TotalNS:    g.lat.sum,
		CutAtStart: int(g.cut),
		Histogram:  [][2]int64{},
		Blocks:     []report.Block{},
		Slowest:    []report.Request{},
	}
	r.LatencyNS = latency(&g.lat)
	r.ReadyToRunNS, r.PollGapNS = quantiles(&g.ready), quantiles(&g.gap)
	r.Of = w.sp.Syms.String(g.of)
	if g.before.n > 0 {
		before := quantiles(&g.before)
		r.BeforeNS = &before
	}
	for status, n := range g.statuses {
		if r.Statuses == nil {
			r.Statuses = make(map[string]int)
		}
		r.Statuses[w.sp.Syms.String(status)] = int(n)
	}
	r.Histogram = pairs(&g.lat)
	for _, bi := range keysOf(g.blocks) {
		b := g.blocks[bi]
		length := int64(blockNS) << w.blockShift
		rb := report.Block{StartNS: bi*length - w.sp.Start, DurationNS: length, Count: int(b.lat.n), TotalNS: b.lat.sum, Histogram: pairs(&b.lat), Causes: map[report.CauseName]int64{}}
		if rb.StartNS < 0 {
			rb.DurationNS += rb.StartNS
			rb.StartNS = 0
		}
		for c, ns := range b.causes.ByCause(w.sp.Settled) {
			if ns != 0 {
				rb.Causes[spell.Cause(cause.Cause(c))] = ns
			}
		}
		r.Blocks = append(r.Blocks, rb)
	}
	r.Bands = w.bands(g)
	r.HistogramCauses = w.histogramCauses(g)
	r.Open = report.Open{Count: int(g.open)}
	if g.open > 0 {
		r.Open.OldestNS = w.sp.End - g.oldest
		r.Open.Site = w.sp.Site(g.openSite)
		r.Open.Waits = w.openWaits(g.opens, g.by.frame)
	}
	return r
}

// title returns what a group is called.
func (w writer) title(g *group) (kind, name string, named bool) {
	kind, name, named = g.key.Kind.String(), w.sp.Syms.String(g.key.Name), g.key.Name != 0
	if g.entry != 0 && g.key.Kind == request.GRPC {
		name = w.sp.Syms.String(w.sp.Syms.Frame(g.entry).Func)
	}
	if !named {
		name = "unseen " + report.Kind(kind).Protocol() + " handlers"
	}
	return kind, name, named
}

// pairs lists coarse buckets as [upper bound, count].
func pairs(h *histogram) [][2]int64 {
	sums := h.coarsened()
	out := [][2]int64{}
	for _, b := range keysOf(sums) {
		out = append(out, [2]int64{loglinear.Least(b+1, coarseBits), sums[b]})
	}
	return out
}

// histogramCauses are the nanoseconds of each cause in the buckets of pairs.
func (w writer) histogramCauses(g *group) map[report.CauseName][]int64 {
	at := map[int32]int{}
	for i, b := range keysOf(g.lat.coarsened()) {
		at[b] = i
	}
	out := map[report.CauseName][]int64{}
	g.cells.each(func(bucket, id int32, c *cell) {
		i, ok := at[bucket]
		if !ok || c.ns == 0 {
			return
		}
		name := spell.Cause(w.sp.Settled[w.stage.IDs.Cause(path.CauseID(id)).Code])
		if out[name] == nil {
			out[name] = make([]int64, len(at))
		}
		out[name][i] += c.ns
	})
	return out
}
