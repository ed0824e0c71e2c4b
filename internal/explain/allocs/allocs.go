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
	// Caller is the function that called the site's for most of the bytes; its Func is "" if none did that is not the
	// standard library's.
	Caller report.Site
}

// ErrEmpty is returned for a reader that holds nothing: no profile was recorded.
var ErrEmpty = errors.New("the recording has no allocation profile")

// ErrFewSamples is returned for a profile of too few samples to say who allocates.
var ErrFewSamples = errors.New("the allocation profile has too few samples to show what allocates")

// maxProfileBytes bounds what is read.
const maxProfileBytes = 64 << 20

// maxSites bounds the sites that are kept.
const maxSites = 50

// Read reads a profile of allocations in pprof's format, gzipped or not. Negative samples, which a difference of two
// profiles may hold, count as nothing. The error is ErrEmpty where nothing was read, and
// ErrFewSamples where what was read is too little. site, if not nil, changes what sites are shown as.
func Read(input io.Reader, rewriteSite func(report.Site) report.Site) (*Profile, error) {
	data, err := io.ReadAll(io.LimitReader(input, maxProfileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the allocation profile: %w", err)
	}
	if len(data) > maxProfileBytes {
		return nil, fmt.Errorf("reading the allocation profile: it is larger than %d MiB", maxProfileBytes>>20)
	}
	if len(data) == 0 {
		return nil, ErrEmpty
	}
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		if data, err = gunzip(data, maxGunzipped); err != nil {
			return nil, fmt.Errorf("reading the allocation profile: %w", err)
		}
	}
	parsed, err := profile.ParseUncompressed(data)
	if err == nil {
		err = parsed.CheckValid()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the allocation profile: %w", err)
	}
	typeIndex := func(name string) int {
		return slices.IndexFunc(parsed.SampleType, func(t *profile.ValueType) bool { return t.Type == name })
	}
	bytesIndex, objectsIndex := typeIndex("alloc_space"), typeIndex("alloc_objects")
	if bytesIndex < 0 {
		return nil, errors.New("reading the allocation profile: it does not hold alloc_space")
	}
	out := &Profile{DurationNS: parsed.DurationNanos}
	if parsed.Period <= 1 || objectsIndex < 0 {
		out.Samples = -1
	}
	sites := map[report.Site]*Site{}
	callerBytes := map[[2]report.Site]int64{}
	rewrite := func(sample report.Site) report.Site {
		if rewriteSite != nil {
			return rewriteSite(sample)
		}
		return sample
	}
	for _, sample := range parsed.Sample {
		if bytesIndex >= len(sample.Value) || sample.Value[bytesIndex] <= 0 {
			continue
		}
		location, caller, call := allocationSite(sample)
		location = rewrite(location)
		entry := sites[location]
		if entry == nil {
			entry = &Site{Site: location, Call: call}
			sites[location] = entry
		}
		entry.Bytes += sample.Value[bytesIndex]
		if objectsIndex >= 0 && objectsIndex < len(sample.Value) {
			entry.Objects += max(0, sample.Value[objectsIndex])
			if out.Samples >= 0 {
				out.Samples += sampleCount(sample.Value[bytesIndex], sample.Value[objectsIndex], parsed.Period)
			}
		}
		out.Bytes += sample.Value[bytesIndex]
		if caller.Func != "" {
			callerBytes[[2]report.Site{location, rewrite(caller)}] += sample.Value[bytesIndex]
		}
	}
	// Of ten at one place, that place has more than two thirds of the bytes with 95 % confidence.
	if out.Samples >= 0 && out.Samples < 2*scale.Few {
		return nil, ErrFewSamples
	}
	maxBytes := map[report.Site]int64{}
	for k, n := range callerBytes {
		if entry := sites[k[0]]; n > maxBytes[k[0]] || n == maxBytes[k[0]] && compareSites(k[1], entry.Caller) < 0 {
			entry.Caller, maxBytes[k[0]] = k[1], n
		}
	}
	for _, entry := range sites {
		out.Sites = append(out.Sites, *entry)
	}
	slices.SortFunc(out.Sites, func(a, b Site) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), compareSites(a.Site, b.Site))
	})
	out.Sites = out.Sites[:min(len(out.Sites), maxSites)]
	return out, nil
}

// sampleCount returns how many samples stand for objects of together bytes: the runtime divides what it sampled by the probability to sample an
// object of that size (runtime/pprof, scaleHeapSample).
func sampleCount(bytes, objects, period int64) float64 {
	if objects <= 0 {
		return 0
	}
	return float64(objects) * -math.Expm1(-float64(bytes)/float64(objects)/float64(period))
}

// maxGunzipped bounds what a profile may unpack to: what is small may stand for very much.
const maxGunzipped = 256 << 20

func gunzip(data []byte, limit int64) ([]byte, error) {
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(zipped, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(out)) > limit {
		return nil, fmt.Errorf("it decompresses to more than %d MiB", limit>>20)
	}
	return out, nil
}

func compareSites(a, b report.Site) int {
	return cmp.Or(cmp.Compare(a.Func, b.Func), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
}

// allocationSite returns the innermost frame that is not the standard library's, the next such one of another function, and the
// function that the first called; the outermost frame where all are the standard library's.
func allocationSite(sample *profile.Sample) (site, caller report.Site, call string) {
	found := false
	for _, location := range sample.Location {
		for _, line := range location.Line {
			if line.Function == nil {
				continue
			}
			frame := report.Site{Func: line.Function.Name, File: line.Function.Filename, Line: int(line.Line)}
			std := stdlib.Is(frame.Func) && !strings.HasPrefix(frame.Func, "main.")
			switch {
			case found && !std && frame.Func != site.Func:
				return site, frame, call
			case found:
			case std:
				call, site = frame.Func, frame
			default:
				site, found = frame, true
			}
		}
	}
	return site, report.Site{}, call
}
