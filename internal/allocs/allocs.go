// Package allocs reads allocation profiles: which code caused garbage. An execution trace shows who pays for collecting
// it, not who made it.
package allocs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate/internal/stdlib"
	"github.com/whylate/whylate/report"
)

// A Profile is what was allocated, by site.
type Profile struct {
	Bytes int64 // in all; scaled up from samples by the runtime
	// DurationNS is the time that it covers; 0 if it holds all since the process began, or does not say.
	DurationNS int64
	Sites      []Site // the most bytes first
}

// A Site is a place that allocates: the innermost one that is not the standard library's.
type Site struct {
	Site    report.Site
	Call    string // the function of the standard library that it called, if that one allocated
	Bytes   int64
	Objects int64
}

// ErrEmpty is returned for a reader that holds nothing: no profile was recorded.
var ErrEmpty = errors.New("there is no allocation profile")

// maxProfile bounds what is read.
const maxProfile = 64 << 20

// maxSites bounds the sites that are kept.
const maxSites = 50

// Read reads a profile of allocations in pprof's format, gzipped or not. Negative samples, which a difference of two
// profiles may hold, count as nothing. The error is ErrEmpty where nothing was read. site, if not nil, changes what sites are shown as.
func Read(r io.Reader, site func(report.Site) report.Site) (*Profile, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the allocation profile: %w", err)
	}
	if len(data) > maxProfile {
		return nil, fmt.Errorf("reading the allocation profile: it is larger than %d MiB", maxProfile>>20)
	}
	if len(data) == 0 {
		return nil, ErrEmpty
	}
	p, err := profile.ParseData(data)
	if err != nil {
		return nil, fmt.Errorf("reading the allocation profile: %w", err)
	}
	index := func(name string) int {
		return slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == name })
	}
	space, objects := index("alloc_space"), index("alloc_objects")
	if space < 0 {
		return nil, errors.New("reading the allocation profile: it does not hold alloc_space")
	}
	out := &Profile{DurationNS: p.DurationNanos}
	at := map[report.Site]*Site{}
	for _, s := range p.Sample {
		if space >= len(s.Value) || s.Value[space] <= 0 {
			continue
		}
		where, call := siteOf(s)
		if site != nil {
			where = site(where)
		}
		e := at[where]
		if e == nil {
			e = &Site{Site: where, Call: call}
			at[where] = e
		}
		e.Bytes += s.Value[space]
		if objects >= 0 && objects < len(s.Value) {
			e.Objects += max(0, s.Value[objects])
		}
		out.Bytes += s.Value[space]
	}
	for _, e := range at {
		out.Sites = append(out.Sites, *e)
	}
	slices.SortFunc(out.Sites, func(a, b Site) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Site.Func, b.Site.Func), cmp.Compare(a.Site.File, b.Site.File), cmp.Compare(a.Site.Line, b.Site.Line))
	})
	out.Sites = out.Sites[:min(len(out.Sites), maxSites)]
	return out, nil
}

// siteOf returns the innermost frame that is not the standard library's, and the function that it called; the outermost
// frame where all are.
func siteOf(s *profile.Sample) (site report.Site, call string) {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function == nil {
				continue
			}
			site = report.Site{Func: line.Function.Name, File: line.Function.Filename, Line: int(line.Line)}
			if !stdlib.Is(site.Func) || len(site.Func) > 5 && site.Func[:5] == "main." {
				return site, call
			}
			call = site.Func
		}
	}
	return site, call
}
