package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/report"
)

// A trace has no URLs: a request shows its handler only if it waits. So a change that removes waits moves requests from the group of
// their handler to that of the requests without a handler, and both groups change though no request does. All requests of a server
// have no such bias: they are what its clients see.

// AllRequests returns, for each kind of calls of which a report has several groups, all requests of this kind as one group, without
// those that monitor the process. These groups have no id of a report's group, no slowest requests, and of the bands only that of all.
func AllRequests(r *report.Report) []report.Group {
	var out []report.Group
	for _, kind := range report.Kinds() {
		if members := membersOf(r, kind); len(members) > 1 {
			out = append(out, mergeGroups(kind, members))
		}
	}
	return out
}

// membersOf returns the groups of a kind of calls, in the report's order, without those of requests that monitor the process and those of streams;
// nil for other kinds.
func membersOf(r *report.Report, kind report.Kind) []*report.Group {
	var members []*report.Group
	for i := range r.Groups {
		if g := &r.Groups[i]; kind.IsCall() && g.Kind == kind && g.Role == report.RoleRequests && !g.Streaming {
			members = append(members, g)
		}
	}
	return members
}

// compareServers appends to d.Servers a comparison of all requests of each kind of which the reports have several groups. It sets, in moved, for each
// of these groups whether its numbers cannot be compared because requests moved between groups.
func (d *Diff) compareServers(old, new *report.Report, quiet bool, moved map[*report.Group]bool) {
	var pairs [][2][]*report.Group
	for _, kind := range report.Kinds() {
		a, b := membersOf(old, kind), membersOf(new, kind)
		if isOneServer(a, b) && (len(a)+len(b) > 2 || a[0].Name != b[0].Name) {
			pairs = append(pairs, [2][]*report.Group{a, b})
		}
	}
	for _, p := range pairs {
		kind := p[0][0].Kind
		a, b := mergeGroups(kind, p[0]), mergeGroups(kind, p[1])
		g := compareGroups(&a, &b, test{(1 - Confidence) / 2 / float64(len(pairs)), quiet})
		g.Members = memberChanges(p, &a, &b, moved)
		d.Servers = append(d.Servers, g)
	}
}

// isOneServer reports whether requests can have moved between the groups of two reports: they have a group in common, or some
// requests show no handler. Otherwise the reports may be of different programs.
func isOneServer(old, new []*report.Group) bool {
	return slices.ContainsFunc(old, func(a *report.Group) bool {
		return slices.ContainsFunc(new, func(b *report.Group) bool { return a.Name == b.Name || !a.Named || !b.Named })
	})
}

// memberChanges returns how the requests of a server are divided into groups in both reports (pair has the groups, old and new all requests), the
// largest change first, and sets in moved whether requests moved to or from a group.
func memberChanges(pair [2][]*report.Group, old, new *report.Group, moved map[*report.Group]bool) []Member {
	list := []Member{}
	indexes := map[string]int{}
	hasUnnamed := false
	for side, groups := range pair {
		for _, g := range groups {
			i, ok := indexes[g.Name]
			if !ok {
				i = len(list)
				indexes[g.Name] = i
				list = append(list, Member{ID: g.ID, Name: g.Name})
			}
			*[2]*int{&list[i].OldCount, &list[i].NewCount}[side] += g.Count
			hasUnnamed = hasUnnamed || !g.Named && g.Count > 0
		}
	}
	for i := range list {
		m := &list[i]
		a, b := float64(m.OldCount)/float64(max(old.Count, 1)), float64(m.NewCount)/float64(max(new.Count, 1))
		all := float64(m.OldCount+m.NewCount) / float64(max(old.Count+new.Count, 1))
		chance := math.Sqrt(all * (1 - all) * (1/float64(max(old.Count, 1)) + 1/float64(max(new.Count, 1))))
		m.Moved = hasUnnamed && math.Abs(a-b) > movedDeviations*chance && math.Abs(a-b) > movedPart*max(a, b)
	}
	for _, groups := range pair {
		for _, g := range groups {
			moved[g] = list[indexes[g.Name]].Moved
		}
	}
	slices.SortStableFunc(list, func(a, b Member) int {
		return cmp.Compare(abs(int64(b.OldCount-b.NewCount)), abs(int64(a.OldCount-a.NewCount)))
	})
	return list
}

const (
	// Requests moved to or from a group if its share of the server's requests changed by more standard deviations than chance explains,
	// and by more than a part of itself: percentiles of a group that lost a tenth of its requests are still comparable.
	movedDeviations = 4
	movedPart       = 0.1
)

// mergeGroups returns the requests of several groups of a kind as one group. It does not change the groups, but shares sites and wait chains with
// them.
func mergeGroups(kind report.Kind, groups []*report.Group) report.Group {
	all := report.Group{ID: "all-" + string(kind), Name: "all " + kind.Protocol() + " requests", Kind: kind, Named: true}
	histogram := map[int64]int64{}
	blocks := map[int64]*report.Block{}
	band := report.Band{Band: report.BandAll}
	rows := map[rowKey]int{}
	var maxNS int64
	for _, g := range groups {
		all.Count += g.Count
		all.TotalNS += g.TotalNS
		all.Open.Count += g.Open.Count
		if g.LatencyNS.Max != nil {
			maxNS = max(maxNS, *g.LatencyNS.Max)
		}
		if g.Open.OldestNS > all.Open.OldestNS {
			all.Open.OldestNS, all.Open.Site = g.Open.OldestNS, g.Open.Site
		}
		addPairs(histogram, g.Histogram)
		for i := range g.Blocks {
			mergeBlock(blocks, &g.Blocks[i])
		}
		from := g.All()
		band.Count += from.Count
		for i := range from.Causes {
			c := from.Causes[i]
			k := rowKey{c.Cause, c.Kind, c.Site.Key()}
			if row, ok := rows[k]; ok {
				into := &band.Causes[row]
				if c.TotalNS > into.TotalNS {
					into.Via, into.Routes = c.Via, c.Routes
				}
				into.TotalNS += c.TotalNS
				into.Requests += c.Requests
				continue
			}
			rows[k] = len(band.Causes)
			band.Causes = append(band.Causes, c)
		}
	}
	total := band.TotalNS()
	for i := range band.Causes {
		band.Causes[i].Share = float64(band.Causes[i].TotalNS) / float64(max(total, 1))
	}
	slices.SortStableFunc(band.Causes, func(a, b report.Cause) int { return cmp.Compare(b.TotalNS, a.TotalNS) })
	all.Histogram = sortedPairs(histogram)
	for _, b := range blocks {
		b.Histogram = sortedPairs(addPairs(map[int64]int64{}, b.Histogram))
		all.Blocks = append(all.Blocks, *b)
	}
	slices.SortFunc(all.Blocks, func(a, b report.Block) int { return cmp.Compare(a.StartNS, b.StartNS) })
	all.Bands = []report.Band{band}
	all.LatencyNS = latencyOf(&all, maxNS)
	return all
}

// A rowKey identifies a row of one report.
type rowKey struct {
	cause report.CauseName
	kind  string
	site  report.SiteKey
}

// mergeBlock adds the requests of a block to that of blocks, by start, with the same start; a new block is a copy. The histogram may then have
// several pairs for a bucket.
func mergeBlock(blocks map[int64]*report.Block, b *report.Block) {
	into := blocks[b.StartNS]
	if into == nil {
		into = &report.Block{StartNS: b.StartNS, DurationNS: b.DurationNS, Causes: map[report.CauseName]int64{}}
		blocks[b.StartNS] = into
	}
	into.Count += b.Count
	into.TotalNS += b.TotalNS
	into.Histogram = append(into.Histogram, b.Histogram...)
	for c, ns := range b.Causes {
		into.Causes[c] += ns
	}
}

// addPairs adds pairs of [key, number] to sums, by key, and returns sums.
func addPairs(sums map[int64]int64, pairs [][2]int64) map[int64]int64 {
	for _, p := range pairs {
		sums[p[0]] += p[1]
	}
	return sums
}

// sortedPairs returns the sums as [key, sum] by increasing key.
func sortedPairs(sums map[int64]int64) [][2]int64 {
	pairs := make([][2]int64, 0, len(sums))
	for upper, n := range sums {
		pairs = append(pairs, [2]int64{upper, n})
	}
	slices.SortFunc(pairs, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	return pairs
}

// latencyOf returns the latencies of merged requests by their histogram; maxNS is the longest. A percentile needs one request beyond it, the median
// five in all; without them it is nil.
func latencyOf(g *report.Group, maxNS int64) report.Latency {
	if g.Count <= 0 {
		return report.Latency{}
	}
	bounds, counts := make([]int64, len(g.Histogram)), make([]int64, len(g.Histogram))
	for i, p := range g.Histogram {
		bounds[i], counts[i] = p[0], p[1]
	}
	percentile := func(q float64, needed int) *int64 {
		if g.Count < needed {
			return nil
		}
		return new(min(int64(quantile(bounds, counts, q)), maxNS))
	}
	return report.Latency{
		Mean: new(g.TotalNS / int64(g.Count)), P50: percentile(0.5, 5), P90: percentile(0.9, 10), P99: percentile(0.99, 100), P999: percentile(0.999, 1000), Max: &maxNS,
	}
}
