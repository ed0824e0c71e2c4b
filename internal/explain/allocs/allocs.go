// Package allocs reads allocation profiles in pprof's format. The output is the sites that allocated most bytes. An
// execution trace shows which requests pay for garbage collection, but not which code allocates the garbage.
//
// A site is the innermost frame outside of the standard library. The runtime samples about every 512 kB, so a profile
// with few samples is refused (ErrFewSamples). The number of samples behind a value follows from the sampling
// probability (runtime/pprof, scaleHeapSample).
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

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// A Profile holds the allocated bytes by site.
type Profile struct {
	Bytes int64 // scaled up from samples by the runtime
	// Samples is the estimated number of samples, each of about half a megabyte. With few samples, the sites are
	// random. It is -1 if the profile does not show it.
	Samples float64
	Sites   []Site // the most bytes first
	Stacks  []Stack
}

// A Stack is a call path that allocates.
type Stack struct {
	Bytes      int64
	Func, Call string   // as in a Site
	Funcs      []string // from Func, without the standard library, up to the first one in no dependency (their files have a version)
}

// A Site is a line that allocates: the innermost one outside of the standard library.
type Site struct {
	Site  report.Site
	Call  string // the standard library's function that it called, if that one allocated
	Bytes int64
	// Caller is the function that called the site's for most of the bytes. Its Func is "" if only the standard library
	// did.
	Caller report.Site
}

// ErrEmpty is returned for an empty input: no profile was recorded.
var ErrEmpty = errors.New("the recording has no allocation profile")

// ErrFewSamples is returned for a profile with too few samples.
var ErrFewSamples = errors.New("the allocation profile has too few samples to show what allocates")

// maxProfileBytes bounds the input.
const maxProfileBytes = 64 << 20

// maxSites bounds the sites of a Profile.
const maxSites = 50

// Read reads an allocation profile in pprof's format, gzipped or not. Negative samples, which a difference of two profiles may hold, are
// ignored, as are those of the handlers that record the process. The error is ErrEmpty for an empty input and ErrFewSamples for too few
// samples. rewriteSite, if not nil, rewrites each site.
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
	out := new(Profile)
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
		if bytesIndex >= len(sample.Value) || sample.Value[bytesIndex] <= 0 || isOfObserver(sample) {
			continue
		}
		location, caller, call, funcs := allocationSite(sample)
		location = rewrite(location)
		entry.GetOrMake(sites, location, func() *Site { return &Site{Site: location, Call: call} }).Bytes += sample.Value[bytesIndex]
		out.Stacks = append(out.Stacks, Stack{sample.Value[bytesIndex], location.Func, call, funcs})
		if out.Samples >= 0 && objectsIndex < len(sample.Value) {
			out.Samples += sampleCount(sample.Value[bytesIndex], sample.Value[objectsIndex], parsed.Period)
		}
		out.Bytes += sample.Value[bytesIndex]
		if caller.Func != "" {
			callerBytes[[2]report.Site{location, rewrite(caller)}] += sample.Value[bytesIndex]
		}
	}
	// If ten samples are all at one site, it has more than two thirds of the bytes with 95 % confidence.
	if out.Samples >= 0 && out.Samples < 2*threshold.SmallSample {
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

// sampleCount returns how many samples the runtime took for objects with these total bytes. The runtime divides by the
// probability that it samples an object of that size (runtime/pprof, scaleHeapSample).
func sampleCount(bytes, objects, period int64) float64 {
	if objects <= 0 {
		return 0
	}
	return float64(objects) * -math.Expm1(-float64(bytes)/float64(objects)/float64(period))
}

// maxGunzipped bounds the decompressed profile, because a small input may expand very much.
const maxGunzipped = 256 << 20

// gunzip decompresses data. It returns an error if the result has more than limit bytes.
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

// isOfObserver reports whether a sample is that of a handler which records the process.
func isOfObserver(sample *profile.Sample) bool {
	return slices.ContainsFunc(sample.Location, func(l *profile.Location) bool {
		return slices.ContainsFunc(l.Line, func(line profile.Line) bool {
			return line.Function != nil && knowledge.Has(line.Function.Name, knowledge.Observer)
		})
	})
}

// allocationSite returns the innermost frame outside of the standard library, the next such frame of another function (the zero
// Site if there is none), and the function that the first one called. If all frames are of the standard library, site is the
// outermost one. funcs is as in Stack.
func allocationSite(sample *profile.Sample) (site, caller report.Site, call string, funcs []string) {
	found, isOwn := false, false
	for _, location := range sample.Location {
		for _, line := range location.Line {
			if line.Function == nil {
				continue
			}
			frame := report.Site{Func: line.Function.Name, File: line.Function.Filename, Line: int(line.Line)}
			std := stdlib.Contains(frame.Func) && !strings.HasPrefix(frame.Func, "main.")
			if !isOwn && !std {
				funcs, isOwn = append(funcs, frame.Func), !strings.Contains(frame.File, "@")
			}
			switch {
			case found && !std && frame.Func != site.Func && caller.Func == "":
				caller = frame
			case found:
			case std:
				call, site = frame.Func, frame
			default:
				site, found = frame, true
			}
		}
	}
	return site, caller, call, funcs
}
