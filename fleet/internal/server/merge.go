package server

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/report"
)

// maxMergedReports bounds how many reports of a version are merged.
const maxMergedReports = 20

// readReport reads the stored report of the recording with an id. The error is fs.ErrNotExist if there is none.
func (s *Server) readReport(ctx context.Context, id string) (*report.Report, error) {
	f, err := s.Files.Open(ctx, raw.ReportName(id))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return report.ReadJSON(z) // ReadJSON bounds the unpacked size
}

// acquireReportSlot waits for one of two slots for handlers that hold reports, which are large, in memory. release may be called
// more than once.
func (s *Server) acquireReportSlot(ctx context.Context) (release func(), err error) {
	select {
	case s.reportSlots <- struct{}{}:
		return sync.OnceFunc(func() { <-s.reportSlots }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// mergeVersion returns the newest reports of a service's version in an environment ("" for any), merged into one. The error is
// status 404 if no report is kept.
func (s *Server) mergeVersion(ctx context.Context, service, version, environment string) (*report.Report, error) {
	release, err := s.acquireReportSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	list, err := s.Store.NewestRecordings(ctx, service, version, environment, maxMergedReports)
	if err != nil {
		return nil, err
	}
	merged := merger{groups: make(map[groupKey]*report.Group)}
	for _, r := range slices.Backward(list) {
		rep, err := s.readReport(ctx, r.ID)
		if errors.Is(err, fs.ErrNotExist) {
			continue // retention has removed it
		}
		if err != nil {
			return nil, fmt.Errorf("the report of %s: %w", r.ID, err)
		}
		merged.add(rep)
	}
	if merged.count == 0 {
		return nil, huma.Error404NotFound(fmt.Sprintf("no report of %s %s is kept", service, cmp.Or(version, "without a version")))
	}
	return merged.mergedReport(fmt.Sprintf("%s %s, %d recordings", service, version, merged.count)), nil
}

// Compare compares two versions (old and new) of a service in an environment, each by its merged reports.
func (s *Server) Compare(ctx context.Context, service, environment, old, new string) (*compare.Diff, error) {
	d, _, _, err := s.compareVersions(ctx, service, environment, old, new)
	return d, err
}

// compareVersions compares two versions (old and new) of a service in an environment, and also returns their merged reports,
// before and after.
func (s *Server) compareVersions(ctx context.Context, service, environment, old, new string) (d *compare.Diff, before, after *report.Report, err error) {
	if before, err = s.mergeVersion(ctx, service, old, environment); err != nil {
		return nil, nil, nil, err
	}
	if after, err = s.mergeVersion(ctx, service, new, environment); err != nil {
		return nil, nil, nil, err
	}
	return compare.Reports(before, after), before, after, nil
}

type groupKey struct {
	kind report.Kind
	name string
}

// A merger merges several reports into one: it adds up counts and times, and lines the recordings up one after the other on the
// time axis.
type merger struct {
	merged report.Report
	groups map[groupKey]*report.Group
	order  []groupKey
	count  int
}

// add merges a report that is newer than all before. It does not change newer, but may keep parts of it.
func (m *merger) add(newer *report.Report) {
	if m.count++; m.count == 1 {
		m.merged.Schema, m.merged.Input.Go, m.merged.Input.GOMAXPROCS, m.merged.Input.Start = newer.Schema, newer.Input.Go, newer.Input.GOMAXPROCS, newer.Input.Start
		m.merged.Runtime = newer.Runtime
	}
	begin := m.merged.Input.DurationNS
	m.merged.Input.DurationNS = rows.AddClamped(m.merged.Input.DurationNS, newer.Input.DurationNS)
	m.merged.Input.Bytes += newer.Input.Bytes
	m.merged.Input.Events += newer.Input.Events
	m.merged.Findings = newer.Findings // of the newest report; all groups that it names are in the merged one
	for i := range newer.Groups {
		added := &newer.Groups[i]
		key := groupKey{added.Kind, added.Name}
		group := m.groups[key]
		if group == nil {
			group = &report.Group{ID: added.ID, Name: added.Name, Named: added.Named, Kind: added.Kind, Role: added.Role, Entry: added.Entry,
				Bands: []report.Band{{Band: report.BandAll, ToNS: math.MaxInt64}, {Band: report.Band99, ToNS: math.MaxInt64}}}
			m.groups[key] = group
			m.order = append(m.order, key)
		}
		group.Count = int(rows.AddClamped(int64(group.Count), int64(added.Count)))
		group.TotalNS = rows.AddClamped(group.TotalNS, added.TotalNS)
		group.Open.Count += added.Open.Count
		group.Streaming = group.Streaming || added.Streaming
		group.Histogram = addBuckets(group.Histogram, added.Histogram)
		for _, b := range added.Blocks {
			b.StartNS += begin
			group.Blocks = append(group.Blocks, b)
		}
		addCauses(&group.Bands[0], added.All())
		if b := added.Band(report.Band99); b != nil {
			addCauses(&group.Bands[1], b)
		}
	}
}

// addBuckets returns the sum of two histograms, pairs of upper bound and count, in the order of bounds.
func addBuckets(a, b [][2]int64) [][2]int64 {
	sums := make(map[int64]int64)
	for _, list := range [][][2]int64{a, b} {
		for _, x := range list {
			sums[x[0]] = rows.AddClamped(sums[x[0]], x[1])
		}
	}
	out := make([][2]int64, 0, len(sums))
	for upper, n := range sums {
		out = append(out, [2]int64{upper, n})
	}
	slices.SortFunc(out, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	return out
}

// addCauses adds, to to, the number of requests and the causes of from; times of causes with equal name, kind and site add up.
func addCauses(to, from *report.Band) {
	to.Count = int(rows.AddClamped(int64(to.Count), int64(from.Count)))
	for _, c := range from.Causes {
		i := slices.IndexFunc(to.Causes, func(o report.Cause) bool {
			return o.Cause == c.Cause && o.Kind == c.Kind && o.Site.Key() == c.Site.Key()
		})
		if i < 0 {
			to.Causes = append(to.Causes, c)
			continue
		}
		to.Causes[i].TotalNS = rows.AddClamped(to.Causes[i].TotalNS, c.TotalNS)
	}
}

// mergedReport returns the merged report. Call it once, after the last add. A percentile is the upper bound of a histogram
// bucket, which is 3 % wide.
func (m *merger) mergedReport(name string) *report.Report {
	m.merged.Input.Name = name
	for _, key := range m.order {
		g := m.groups[key]
		percentile := func(share float64, minCount int) *int64 {
			cumulative := int64(0)
			for _, b := range g.Histogram {
				if cumulative = rows.AddClamped(cumulative, b[1]); g.Count >= minCount && float64(cumulative) >= share*float64(g.Count) {
					return &b[0]
				}
			}
			return nil
		}
		if g.Count > 0 {
			meanNS := g.TotalNS / int64(g.Count)
			g.LatencyNS = report.Latency{Mean: &meanNS, P50: percentile(0.5, 1), P90: percentile(0.9, 10), P99: percentile(0.99, 100), P999: percentile(0.999, 1000), Max: percentile(1, 1)}
		}
		g.Bands = slices.DeleteFunc(g.Bands, func(b report.Band) bool { return b.Count == 0 })
		for i := range g.Bands {
			b := &g.Bands[i]
			total := b.TotalNS()
			for j := range b.Causes {
				if total > 0 {
					b.Causes[j].Share = float64(b.Causes[j].TotalNS) / float64(total)
				}
			}
			slices.SortFunc(b.Causes, func(x, y report.Cause) int { return cmp.Compare(y.TotalNS, x.TotalNS) })
		}
		m.merged.Groups = append(m.merged.Groups, *g)
	}
	return &m.merged
}
