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
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/report"
)

// merged is how many reports of a version are compared.
const merged = 20

// report reads the report of a recording.
func (s *Server) report(ctx context.Context, id string) (*report.Report, error) {
	f, err := s.Raw.Open(ctx, raw.ReportName(id))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return report.ReadJSON(z) // which bounds what it unpacks to
}

// slot waits for one of the few that read reports, which are large. free gives it back, and may be called again.
func (s *Server) slot(ctx context.Context) (free func(), err error) {
	select {
	case s.reading <- struct{}{}:
		return sync.OnceFunc(func() { <-s.reading }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// version returns the newest reports of a version as one.
func (s *Server) version(ctx context.Context, service, version, environment string) (*report.Report, error) {
	free, err := s.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	list, err := s.Store.NewestRecordings(ctx, service, version, environment, merged)
	if err != nil {
		return nil, err
	}
	m := merger{of: make(map[groupKey]*report.Group)}
	for _, r := range slices.Backward(list) {
		rep, err := s.report(ctx, r.ID)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no longer kept
		}
		if err != nil {
			return nil, fmt.Errorf("the report of %s: %w", r.ID, err)
		}
		m.add(rep)
	}
	if m.n == 0 {
		return nil, huma.Error404NotFound(fmt.Sprintf("no report of %s %s is kept", service, cmp.Or(version, "without a version")))
	}
	return m.report(fmt.Sprintf("%s %s, %d recordings", service, version, m.n)), nil
}

// Compare compares two versions of a service.
func (s *Server) Compare(ctx context.Context, service, environment, old, new string) (*compare.Diff, error) {
	a, err := s.version(ctx, service, old, environment)
	if err != nil {
		return nil, err
	}
	b, err := s.version(ctx, service, new, environment)
	if err != nil {
		return nil, err
	}
	return compare.Reports(a, b), nil
}

type groupKey struct {
	kind report.Kind
	name string
}

// A merger makes one report of several: sums of what adds, one after the other in time.
type merger struct {
	out   report.Report
	of    map[groupKey]*report.Group
	order []groupKey
	n     int
}

func (m *merger) add(r *report.Report) {
	if m.n++; m.n == 1 {
		m.out.Schema, m.out.Input.Go, m.out.Input.GOMAXPROCS, m.out.Input.Start = r.Schema, r.Input.Go, r.Input.GOMAXPROCS, r.Input.Start
		m.out.Runtime = r.Runtime
	}
	begin := m.out.Input.DurationNS
	m.out.Input.DurationNS = rows.AddClamped(m.out.Input.DurationNS, r.Input.DurationNS)
	m.out.Input.Bytes += r.Input.Bytes
	m.out.Input.Events += r.Input.Events
	m.out.Findings = r.Findings // of the newest, whose groups are all here: an id is of kind and name
	for i := range r.Groups {
		g := &r.Groups[i]
		key := groupKey{g.Kind, g.Name}
		to := m.of[key]
		if to == nil {
			to = &report.Group{ID: g.ID, Name: g.Name, Named: g.Named, Kind: g.Kind, Role: g.Role, Entry: g.Entry,
				Bands: []report.Band{{Band: report.BandAll, ToNS: math.MaxInt64}, {Band: report.Band99, ToNS: math.MaxInt64}}}
			m.of[key] = to
			m.order = append(m.order, key)
		}
		to.Count = int(rows.AddClamped(int64(to.Count), int64(g.Count)))
		to.TotalNS = rows.AddClamped(to.TotalNS, g.TotalNS)
		to.Open.Count += g.Open.Count
		to.Streaming = to.Streaming || g.Streaming
		to.Histogram = addBuckets(to.Histogram, g.Histogram)
		for _, b := range g.Blocks {
			b.StartNS += begin
			to.Blocks = append(to.Blocks, b)
		}
		addCauses(&to.Bands[0], g.All())
		if b := g.Band(report.Band99); b != nil {
			addCauses(&to.Bands[1], b)
		}
	}
}

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

// report finishes: percentiles are upper bounds of buckets, 3 % wide.
func (m *merger) report(name string) *report.Report {
	m.out.Input.Name = name
	for _, key := range m.order {
		g := m.of[key]
		at := func(part float64, least int) *int64 {
			upto := int64(0)
			for _, b := range g.Histogram {
				if upto = rows.AddClamped(upto, b[1]); g.Count >= least && float64(upto) >= part*float64(g.Count) {
					return &b[0]
				}
			}
			return nil
		}
		if g.Count > 0 {
			mean := g.TotalNS / int64(g.Count)
			g.LatencyNS = report.Latency{Mean: &mean, P50: at(0.5, 1), P90: at(0.9, 10), P99: at(0.99, 100), P999: at(0.999, 1000), Max: at(1, 1)}
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
		m.out.Groups = append(m.out.Groups, *g)
	}
	return &m.out
}

// stepOf divides a range into at most 150 intervals.
func stepOf(in store.Selection) time.Duration {
	for _, step := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour} {
		if in.To.Sub(in.From) <= 150*step {
			return step
		}
	}
	return 24 * time.Hour
}
