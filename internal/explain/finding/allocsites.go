package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/allocs"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// hasDominantAllocSite reports whether one site allocates half of the profile's bytes or more.
func (in *Input) hasDominantAllocSite() bool {
	p := in.Allocs
	return p != nil && len(p.Sites) > 0 && 2*p.Sites[0].Bytes >= p.Bytes
}

// allocatedShare returns the share of the allocated bytes that the code of a group's causes that match allocates: their functions with the
// libraries called there, and the packages of libraries with those below them.
func (in *Input) allocatedShare(group *report.Group, match func(*report.Cause) bool) float64 {
	if in.Allocs == nil {
		return 0
	}
	var code []string
	for c := range each(group.All().Causes) {
		if c.Site == nil || !match(c) {
			continue
		} else if code = append(code, c.Site.Func); !isOwnCode(c.Site) {
			code = append(code, stdlib.Package(c.Site.Func))
		}
	}
	isPart := func(fn string) bool {
		return slices.ContainsFunc(code, func(whole string) bool { return fn == whole || strings.HasPrefix(stdlib.Package(fn)+"/", whole+"/") })
	}
	bytes := int64(0)
	for s := range each(in.Allocs.Stacks) {
		if isPart(s.Func) || isPart(s.Call) || slices.ContainsFunc(s.Funcs, func(fn string) bool { return slices.Contains(code, fn) }) {
			bytes += s.Bytes
		}
	}
	return ratio(bytes, in.Allocs.Bytes)
}

// allocSiteText names a line that allocates, and the library function that allocates for it.
func allocSiteText(s *allocs.Site) string {
	if call := libraryCall(s.Call); call != "" && !knowledge.Has(call, knowledge.Runtime) {
		return textOf("phrase allocates-in-call", "site", &s.Site, "call", call)
	}
	return siteText(&s.Site)
}

// maxAllocSites bounds how many allocating sites the evidence lists.
const maxAllocSites = 5

// topAllocSite returns the line that allocates most bytes according to the allocation profile, and evidence about the first
// maxAllocSites lines that each have 2 % of the bytes or more. If no profile was recorded, it ranks lines by the time of GC
// assists instead: an assist is charged to a goroutine that allocates. The site is nil if there were no assists either.
func (in *Input) topAllocSite() (site *report.Site, evidence []report.Evidence) {
	var out []report.Evidence
	if profile := in.Allocs; profile != nil && len(profile.Sites) > 0 {
		for i := range profile.Sites[:min(len(profile.Sites), maxAllocSites)] {
			site := &profile.Sites[i]
			if share := float64(site.Bytes) / float64(profile.Bytes); share >= 0.02 {
				key := textKey("evidence allocated-bytes")
				if site.Caller.Func != "" {
					key = "evidence allocated-bytes-for"
				}
				out = append(out, evidenceOf(key, share, "share", "site", allocSiteText(site), "caller", &site.Caller))
			}
		}
		return &profile.Sites[0].Site, out
	}
	type sum struct {
		site *report.Site
		ns   int64
	}
	var sums []sum
	var total int64
	for g := range each(in.Report.Groups) {
		for c := range each(g.All().Causes) {
			if c.Cause != report.CauseGCAssist || c.Site == nil {
				continue
			}
			total += c.TotalNS
			entry.FindOrAppend(&sums, func(s sum) bool { return s.site.Equal(c.Site) }, sum{site: c.Site}).ns += c.TotalNS
		}
	}
	if len(sums) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(sums, func(a, b sum) int { return cmp.Compare(b.ns, a.ns) })
	for _, site := range sums[:min(len(sums), maxAllocSites)] {
		if share := ratio(site.ns, total); share >= 0.02 {
			out = append(out, evidenceOf("evidence assists-paid", share, "share", "site", site.site))
		}
	}
	return sums[0].site, out
}
