package export

import (
	"cmp"
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate/report"
)

// Pprof writes the time on critical paths as a gzipped profile.
//
// A stack consists of the group, the waits between the request and the goroutine that spent the time, and the site of the
// cause. There is a sample type for each band: "all", which is the default, and "p50-90" and so on (go tool pprof
// -sample_index=p99-max). The bands have separate types because "all" contains the others. Labels are group, kind, band and
// cause (-tagfocus, -tagleaf=cause). Values are nanoseconds.
func Pprof(w io.Writer, r *report.Report) error {
	b := profileBuilder{p: &profile.Profile{DefaultSampleType: string(report.BandAll), DurationNanos: r.Input.DurationNS}, funcs: map[report.SiteKey]*profile.Function{}, locs: map[report.SiteKey]*profile.Location{}}
	if r.Input.Start != nil {
		b.p.TimeNanos = r.Input.Start.UnixNano()
	}
	bands := report.BandNames()
	for _, name := range bands {
		b.p.SampleType = append(b.p.SampleType, &profile.ValueType{Type: string(name), Unit: "nanoseconds"})
	}
	b.p.PeriodType, b.p.Period = &profile.ValueType{Type: "critical_path", Unit: "nanoseconds"}, 1
	b.p.Comments = []string{"time on the critical paths of requests, written by whylate from " + r.Input.Name}
	for i := range r.Groups {
		g := &r.Groups[i]
		for k := range g.Bands {
			band := &g.Bands[k]
			for index, name := range bands {
				if band.Band != name {
					continue
				}
				for j := range band.Causes {
					for _, route := range allRoutes(&band.Causes[j]) {
						b.addSample(g, band, index, &band.Causes[j], route)
					}
				}
			}
		}
	}
	if err := b.p.CheckValid(); err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	if err := b.p.Write(w); err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	return nil
}

type profileBuilder struct {
	p     *profile.Profile
	funcs map[report.SiteKey]*profile.Function
	locs  map[report.SiteKey]*profile.Location
}

// addSample adds a sample whose stack has the cause's site as its leaf, the route's waits above it, and the group as its root.
// The route's time is the value of the type with index sampleType; the other values are 0.
func (b *profileBuilder) addSample(g *report.Group, band *report.Band, sampleType int, c *report.Cause, route report.Route) {
	s := &profile.Sample{Value: make([]int64, len(b.p.SampleType)), Label: map[string][]string{
		"group": {g.Name}, "kind": {string(g.Kind)}, "band": {string(band.Band)}, "cause": {string(c.Cause)},
	}}
	if c.Kind != "" {
		s.Label["cause_kind"] = []string{c.Kind}
	}
	s.Value[sampleType] = route.TotalNS
	// The leaf comes first.
	add := func(site *report.Site, fallback string) {
		s.Location = append(s.Location, b.location(site, fallback))
		if site != nil && site.CalledFrom != nil {
			s.Location = append(s.Location, b.location(site.CalledFrom.Site(), ""))
		}
	}
	add(c.Site, "["+string(c.Cause)+"]")
	for i := len(route.Via) - 1; i >= 0; i-- {
		add(route.Via[i].Site, "["+string(route.Via[i].Wait)+"]")
	}
	root := &report.Site{Func: g.Name}
	if g.Entry != nil && g.Entry.Func == g.Name {
		root = g.Entry
	}
	s.Location = append(s.Location, b.location(root, ""))
	b.p.Sample = append(b.p.Sample, s)
}

// location returns the location of a site, the same one for equal sites. A site without a function has the name fallback.
func (b *profileBuilder) location(site *report.Site, fallback string) *profile.Location {
	var key report.SiteKey
	if site != nil {
		key = report.SiteKey{Func: site.Func, File: site.File, Line: site.Line}
	}
	key.Func = cmp.Or(key.Func, fallback)
	if l := b.locs[key]; l != nil {
		return l
	}
	fn := report.SiteKey{Func: key.Func, File: key.File}
	f := b.funcs[fn]
	if f == nil {
		f = &profile.Function{ID: uint64(len(b.p.Function) + 1), Name: key.Func, SystemName: key.Func, Filename: key.File}
		b.p.Function = append(b.p.Function, f)
		b.funcs[fn] = f
	}
	l := &profile.Location{ID: uint64(len(b.p.Location) + 1), Line: []profile.Line{{Function: f, Line: int64(key.Line)}}}
	b.p.Location = append(b.p.Location, l)
	b.locs[key] = l
	return l
}
