package groups

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/workers"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Selection restricts which groups are reported. The zero value selects all.
type Selection struct {
	// Name, if not nil, must match a group's name.
	Name *regexp.Regexp
	// Wanted, if not nil, selects groups by kind and name.
	Wanted func(request.Kind, tracefmt.StringID) bool
}

// includes reports whether a group has requests and its kind and name are wanted. It does not compare Name.
func (s *Selection) includes(g *group) bool {
	return g != nil && g.requests() > 0 && (s.Wanted == nil || s.Wanted(g.key.Kind, g.key.Name))
}

// A Row is a group of the report without its slowest requests, which Sum does not store.
type Row struct {
	report.Group
	AllBands  []report.Band // Bands with all chains of waits of each cause, not only the MaxRoutes largest
	PathGroup path.GroupID  // id in package path
	// MedianNS is an estimate of the median latency, even if the group is too small for a percentile; 0 if no request ended.
	MedianNS int64
	kind     request.Kind
}

// GroupKey returns the key of a group.
func (s *Sum) GroupKey(id path.GroupID) path.GroupKey { return s.tables[0].stage.IDs.Group(id) }

// maxCauses bounds the causes of a band; the rest is one cause "other".
const maxCauses = 40

// ObserverRequests returns the number of requests that only observed the process itself, such as the one for the recorded
// trace.
func (s *Sum) ObserverRequests() int { return int(s.tables[0].observerRequests) }

// HasRequests reports whether there are requests of a wanted kind.
func (s *Sum) HasRequests(wanted func(request.Kind, tracefmt.StringID) bool) bool {
	return slices.ContainsFunc(s.tables[0].groups, func(g *group) bool {
		return g != nil && wanted(g.key.Kind, g.key.Name) && g.requests() > 0
	})
}

// Rows returns the selected groups with all their figures, those with the most time first.
func (s *Sum) Rows(sp *spell.Speller, sel Selection) []Row {
	w := rowWriter{table: s.tables[0], sp: sp, samplesByGroup: s.tables[0].runSamples.byGroup()}
	w.indexConcurrentRuns()
	out := []Row{}
	for id, g := range w.groups {
		if _, _, ok := w.selectedTitle(&sel, g); !ok {
			continue
		}
		g.id = path.GroupID(id)
		out = append(out, Row{PathGroup: g.id, MedianNS: g.latencies.quantile(0.5), kind: g.key.Kind})
	}
	workers.Share(len(s.tables), len(out), 1, func(_, i, _ int) {
		row := &out[i]
		g := w.groups[row.PathGroup]
		row.Group, row.AllBands = w.row(g), w.bands(g)
		row.Bands = withMaxRoutes(row.AllBands)
	})
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// GroupNames returns the names and request numbers of all groups of wanted kinds, those with the most time first. It ignores
// sel.Name.
func (s *Sum) GroupNames(sp *spell.Speller, sel Selection) (out []NameCount) {
	w := rowWriter{table: s.tables[0], sp: sp}
	ns := make(map[string]int64)
	for _, g := range w.groups {
		if !sel.includes(g) {
			continue
		}
		_, name, _ := w.title(g)
		ns[name] += g.latencies.sum
		out = append(out, NameCount{name, g.requests()})
	}
	slices.SortFunc(out, func(a, b NameCount) int {
		return cmp.Or(cmp.Compare(ns[b.Name], ns[a.Name]), cmp.Compare(a.Name, b.Name), cmp.Compare(b.Requests, a.Requests))
	})
	return out
}

// A NameCount is a group's name and its number of requests.
type NameCount struct {
	Name     string
	Requests int64
}

// GroupIDs maps the ids of the selected groups in package path to their ids in the report.
func (s *Sum) GroupIDs(sp *spell.Speller, sel Selection) map[path.GroupID]string {
	w := rowWriter{table: s.tables[0], sp: sp}
	out := make(map[path.GroupID]string)
	for id, g := range w.groups {
		if kind, name, ok := w.selectedTitle(&sel, g); ok {
			out[path.GroupID(id)] = spell.GroupID(kind, name)
		}
	}
	return out
}

// GroupTitle returns the report's id and the name of one group, and whether it is selected.
func (s *Sum) GroupTitle(id path.GroupID, sp *spell.Speller, sel Selection) (groupID, name string, ok bool) {
	w := rowWriter{table: s.tables[0], sp: sp}
	kind, name, ok := w.selectedTitle(&sel, w.groups[id])
	return spell.GroupID(kind, name), name, ok
}

// selectedTitle returns the kind and the name of a group; ok reports whether sel selects it.
func (w rowWriter) selectedTitle(sel *Selection, g *group) (kind, name string, ok bool) {
	if !sel.includes(g) {
		return "", "", false
	}
	kind, name, _ = w.title(g)
	return kind, name, sel.Name == nil || sel.Name.MatchString(name)
}

// A rowWriter creates the rows of a report from a merged table.
type rowWriter struct {
	*table
	sp        *spell.Speller
	mainLines map[tracefmt.StringID]tracefmt.FrameID // see concurrentRuns.mainLines
	// runsByCause holds what ran during waits for a P, by cause and wait key, and pWaitCauses are the causes.
	runsByCause    map[path.CauseID]map[waitKey]map[tracefmt.FrameID]int64
	pWaitCauses    []path.CauseID
	samplesByGroup map[path.GroupID][]sampleKey // see runSamples.byGroup
}

// row returns a group of the report without bands: latencies, blocks of time, open requests.
func (w rowWriter) row(group *group) report.Group {
	kind, name, named := w.title(group)
	row := report.Group{
		ID:         spell.GroupID(kind, name),
		Kind:       report.Kind(kind),
		Name:       name,
		Named:      named,
		Count:      int(group.latencies.count),
		Streaming:  group.hasJoined && report.Kind(kind) != report.KindRun,
		Entry:      w.sp.Site(group.handlerFrame),
		TotalNS:    group.latencies.sum,
		CutAtStart: int(group.cutAtStart),
		Histogram:  [][2]int64{},
		Blocks:     []report.Block{},
		Slowest:    []report.Request{},
	}
	row.LatencyNS = latencyOf(&group.latencies)
	row.ReadyToRunNS, row.PollGapNS = quantiles(&group.readyTimes), quantiles(&group.pollGaps)
	row.WorkKind = w.sp.Syms.String(group.markKind)
	if group.beforeMark.count > 0 {
		before := quantiles(&group.beforeMark)
		row.BeforeNS = &before
	}
	for status, n := range group.statuses {
		entry.Put(&row.Statuses, w.sp.Syms.String(status), int(n))
	}
	row.Histogram = histogramPairs(&group.latencies)
	for _, bi := range sortedKeys(group.blocks) {
		b := group.blocks[bi]
		length := int64(blockNS) << w.blockShift
		blockRow := report.Block{
			StartNS: bi*length - w.sp.Start, DurationNS: length, Count: int(b.latencies.count), TotalNS: b.latencies.sum,
			Histogram: histogramPairs(&b.latencies), Causes: map[report.CauseName]int64{},
		}
		if blockRow.StartNS < 0 {
			blockRow.DurationNS += blockRow.StartNS
			blockRow.StartNS = 0
		}
		for c, ns := range b.causes.ByCause(w.sp.Settlement) {
			if ns != 0 {
				blockRow.Causes[spell.Cause(cause.Cause(c))] = ns
			}
		}
		row.Blocks = append(row.Blocks, blockRow)
	}
	row.HistogramCauses = w.histogramCauses(group, row.ID)
	row.Open = report.Open{Count: int(group.openCount)}
	if group.openCount > 0 {
		row.Open.OldestNS = w.sp.End - group.oldestStart
		row.Open.Site = w.sp.Site(group.oldestSite)
		row.Open.Waits = w.openWaitRows(group.openWaits, group.starter.frame)
	}
	return row
}

// title returns the kind and the name of a group. named is false if no handler is known; then the name is a placeholder.
func (w rowWriter) title(g *group) (kind, name string, named bool) {
	kind, name, named = g.key.Kind.String(), w.sp.Syms.String(g.key.Name), g.key.Name != 0
	if g.handlerFrame != 0 && g.key.Kind == request.GRPC {
		name = w.sp.Syms.String(w.sp.Syms.Frame(g.handlerFrame).Func)
	}
	if !named {
		name = report.Kind(kind).Protocol() + " handlers that the trace does not name"
	}
	return kind, name, named
}

// histogramPairs returns the coarse buckets of a histogram that are not empty as [exclusive upper bound in ns, count], in order.
func histogramPairs(h *histogram) [][2]int64 {
	out := [][2]int64{}
	for _, b := range h.coarseCounts() {
		out = append(out, [2]int64{loglinear.LowerBound(b.bucket+1, coarseBits), b.count})
	}
	return out
}
