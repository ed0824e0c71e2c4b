// Package allocs reads allocation profiles: which code caused garbage. An execution trace shows who pays for collecting
// it, not who made it.
package allocs

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// A Profile is what was allocated, by site.
type Profile struct {
	Bytes int64 // in all; scaled up from samples by the runtime
	// DurationNS is the time that it covers; 0 if it holds all since the process began, or does not say.
	DurationNS int64
	// Samples is how many the runtime took, about: each stands for half a megabyte, so a few name a place by chance. It is -1 where the
	// profile does not tell.
	Samples float64
	Sites   []Site // the most bytes first
}

// A Site is a place that allocates: the innermost one that is not the standard library's.
type Site struct {
	Site    report.Site
	Call    string // the function of the standard library that it called, if that one allocated
	Bytes   int64
	Objects int64
	// From is the function that called the site's for most of the bytes; its Func is "" if none did that is not the
	// standard library's.
	From report.Site
}

// ErrEmpty is returned for a reader that holds nothing: no profile was recorded.
var ErrEmpty = errors.New("the recording has no allocation profile")

// ErrFew is returned for a profile of too few samples to say who allocates.
var ErrFew = errors.New("the allocation profile has too few samples to show what allocates")

// maxProfile bounds what is read.
const maxProfile = 64 << 20

// maxSites bounds the sites that are kept.
const maxSites = 50

// Read reads a profile of allocations in pprof's format, gzipped or not. Negative samples, which a difference of two
// profiles may hold, count as nothing. The error is ErrEmpty where nothing was read, and
// ErrFew where what was read is too little. site, if not nil, changes what sites are shown as.
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
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		if data, err = unzip(data, maxUnzipped); err != nil {
			return nil, fmt.Errorf("reading the allocation profile: %w", err)
		}
	}
	p, err := profile.ParseUncompressed(data)
	if err == nil {
		err = p.CheckValid()
	}
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
	if p.Period <= 1 || objects < 0 {
		out.Samples = -1
	}
	at := map[report.Site]*Site{}
	from := map[[2]report.Site]int64{}
	shown := func(s report.Site) report.Site {
		if site != nil {
			return site(s)
		}
		return s
	}
	for _, s := range p.Sample {
		if space >= len(s.Value) || s.Value[space] <= 0 {
			continue
		}
		where, caller, call := siteOf(s)
		where = shown(where)
		e := at[where]
		if e == nil {
			e = &Site{Site: where, Call: call}
			at[where] = e
		}
		e.Bytes += s.Value[space]
		if objects >= 0 && objects < len(s.Value) {
			e.Objects += max(0, s.Value[objects])
			if out.Samples >= 0 {
				out.Samples += taken(s.Value[space], s.Value[objects], p.Period)
			}
		}
		out.Bytes += s.Value[space]
		if caller.Func != "" {
			from[[2]report.Site{where, shown(caller)}] += s.Value[space]
		}
	}
	// Of ten at one place, that place has more than two thirds of the bytes with 95 % confidence.
	if out.Samples >= 0 && out.Samples < 2*scale.Few {
		return nil, ErrFew
	}
	top := map[report.Site]int64{}
	for k, n := range from {
		if e := at[k[0]]; n > top[k[0]] || n == top[k[0]] && compare(k[1], e.From) < 0 {
			e.From, top[k[0]] = k[1], n
		}
	}
	for _, e := range at {
		out.Sites = append(out.Sites, *e)
	}
	slices.SortFunc(out.Sites, func(a, b Site) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), compare(a.Site, b.Site))
	})
	out.Sites = out.Sites[:min(len(out.Sites), maxSites)]
	return out, nil
}

// taken returns how many samples stand for objects of together bytes: the runtime divides what it sampled by the probability to sample an
// object of that size (runtime/pprof, scaleHeapSample).
func taken(bytes, objects, period int64) float64 {
	if objects <= 0 {
		return 0
	}
	return float64(objects) * -math.Expm1(-float64(bytes)/float64(objects)/float64(period))
}

// maxUnzipped bounds what a profile may unpack to: what is small may stand for very much.
const maxUnzipped = 256 << 20

func unzip(data []byte, most int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(z, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(out)) > most {
		return nil, fmt.Errorf("it decompresses to more than %d MiB", most>>20)
	}
	return out, nil
}

func compare(a, b report.Site) int {
	return cmp.Or(cmp.Compare(a.Func, b.Func), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}

// siteOf returns the innermost frame that is not the standard library's, the next such one of another function, and the
// function that the first called; the outermost frame where all are the standard library's.
func siteOf(s *profile.Sample) (site, caller report.Site, call string) {
	found := false
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function == nil {
				continue
			}
			at := report.Site{Func: line.Function.Name, File: line.Function.Filename, Line: int(line.Line)}
			std := stdlib.Is(at.Func) && !strings.HasPrefix(at.Func, "main.")
			switch {
			case found && !std && at.Func != site.Func:
				return site, at, call
			case found:
			case std:
				call, site = at.Func, at
			default:
				site, found = at, true
			}
		}
	}
	return site, report.Site{}, call
}
