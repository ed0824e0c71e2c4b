package finding

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkComputing is WL1008, computes: requests spend their time on work of the service's start (checkRepeatedSetUp), or on other
// computing (checkComputes).
func checkComputing(in *Input, group *report.Group) []Verdict {
	setUp := checkRepeatedSetUp(in, group)
	return append(checkComputes(in, group, len(setUp) > 0), setUp...)
}

// checkComputes returns the verdict on requests that compute in the service's code or its dependencies, without work of the
// service's start if repeatsSetUp. It is a fault if slow requests compute far more than others. Otherwise computing may be the
// service's purpose: the verdict needs half of the group's time and a tenth of the trace's, and is at most low, or only a fact if
// samples do not show the line.
func checkComputes(in *Input, group *report.Group, repeatsSetUp bool) []Verdict {
	attr := in.attributionOf(group)
	isOwnRoute := func(c *report.Cause, via []report.Via) bool {
		return c.Cause == report.CauseCPU && attr.candidateKeyOf(c, via).code == "" && !(repeatsSetUp && isSetUp(c))
	}
	share, gain := gainWithoutRoutes(group, isOwnRoute)
	isOwn := func(c *report.Cause) bool {
		matching, all := routeTimes(c, isOwnRoute)
		return matching > 0 && 2*matching >= all
	}
	if share < 0.05 {
		return nil
	}
	heaviest := heaviestWork(group, isOwn)
	if heaviest == nil {
		return nil
	}
	site := heaviest.Site
	funcText, ownFunc := words.FuncName(site.Func), words.FuncName(site.OwnLine().Func)
	fix := textOf("fix computes", "function", ownFunc)
	title, allocatesTitle := textKey("title computes"), textKey("title computes-allocates")
	callee := &library{}
	if c := site.CalledFrom; c != nil {
		funcText = cmp.Or(words.FuncName(mainCallee(group, isOwn, c.Func)), funcText) + ", " + names.CallerLead(c) + words.FuncName(c.Func)
		title, allocatesTitle = "title computes-called", "title computes-called-allocates"
	} else if call := in.Process.SampledFuncs[site.Func].MainCall(); call != "" {
		funcText = textOf("phrase mostly-in-call", "function", funcText, "call", words.FuncName(call))
		if l := adviserAt(func(l *library) string { return l.lessAdvice }, &report.Site{Func: call}); l != nil {
			callee, fix = l, textOf("fix computes-less", "function", ownFunc, "advice", l.lessAdvice)
		}
		title, allocatesTitle = "title computes-called", "title computes-called-allocates"
	}
	v := Verdict{Gain: gain, Finding: report.Finding{
		Title: textOf(title, "function", funcText), Fix: fix, Cause: report.CauseCPU, Site: site, Group: group.ID, Share: share, Confidence: 0.8,
	}}
	if c := site.CalledFrom; c != nil && !c.OtherGoroutine {
		v.Changes = []predict.Change{predict.Remove(report.CauseCPU, c.Func)} // with all dependencies that it calls
	}
	if costly, isCost := costlyLibrary(group, isOwn); costly != nil {
		v.Site = heaviestWork(group, isCost).Site
		v.Title = costly.workTitle(v.Site)
		if lines := v.addCallLines(group, isCost); lines != "" {
			v.Title = textOf("title also-at", "title", v.Title, "site", lines)
		}
		v.Fix = costly.costAdvice
		v.Share, v.Gain = gainWithout(group, isCost)
		v.addSlowEvidence(evidenceOf("evidence computing", v.Gain.Slow.NS, "ns"))
		v.Changes = removalOf(group, isCost)
		v.scaleTo(costly.left)
		if v.Gain.Slow.Share < threshold.HalfShare {
			v.MaxSeverity = report.SeverityMedium
		}
		v.addGain(v.chargeCollections(in, group, isCost, 1-costly.left))
		return []Verdict{v}
	}
	v.addSlowEvidence(evidenceOf("evidence computing", gain.Slow.NS, "ns"))
	isPart := func(c *report.Cause) bool {
		return isOwn(c) && c.Site != nil && c.Site.OwnLine().Func == site.OwnLine().Func
	}
	v.addCallLines(group, isPart)
	if heaviest.SiteFrom == inferredSource {
		v.doubt(0.6, textOf("evidence line-inferred"))
		v.addEvidence(statementOf("evidence line-inferred"))
	}
	if library := libraryAt(site); library != nil && library.purpose != "" && knowledge.Has(site.Func, knowledge.DeliberateCost) {
		// Its caller cannot make it cheaper, and need not.
		v.Title, v.Fix, v.Fact, v.Changes = textOf("title computes-on-purpose", "function", funcText), library.purpose, true, []predict.Change{}
	} else if copies := func(c *report.Cause) bool {
		return c.Site != nil && isOwn(c) && knowledge.Has(c.Site.Func, knowledge.DataCopy)
	}; copies(heaviest) && sampledShare(group.All(), copies) >= threshold.HalfShare {
		// A copy is no service's purpose.
		v.Title, v.Fix = textOf("title computes-copies"), textOf("fix computes-copies", "function", ownFunc)
		v.Share, v.Gain = gainWithout(group, copies)
		v.addGain(v.chargeCollections(in, group, copies, 1))
	} else if extra, ok := measureExtra(group, isOwn); ok {
		v.Title = textOf("title computes-more", "function", funcText)
		// Larger requests compute more on any service.
		v.Gain.Slow.Share, v.Gain.Slow.NS, v.Gain.All, v.Gain.OtherTail, v.Gain.ThresholdFactor = extra.share, extra.ns, Loss{}, Loss{}, threshold.Repeats
		v.addEvidence(
			evidenceOf("evidence computing-beyond-mean", extra.ns, "ns"),
			evidenceOf("evidence computing-sampled", extra.sampledShare, "share"))
		allNS, _ := computingOf(group.All(), isPart)
		slowNS, _ := computingOf(group.Tail(), isPart)
		if ratio(allNS-slowNS, group.All().TotalNS()-group.Tail().TotalNS()) < threshold.HalfShare {
			// A cache that misses, or a request that asks for more: the others have no need of that work.
			v.Title, v.MaxSeverity = textOf("title computes-unusual", "function", funcText), report.SeverityLow
			if callee.lessAdvice == "" {
				v.Fix = textOf("fix computes-unusual", "function", ownFunc)
			}
		}
		if gain.Slow.NS < threshold.FarFactor*(gain.Slow.NS-extra.ns) {
			v.MaxSeverity = report.SeverityLow // other load of the machine's cores and caches makes the same work take twice as long
		}
		if callee.inputNote != "" {
			v.MaxSeverity = report.SeverityLow
			v.addEvidence(report.Evidence{Text: callee.inputNote})
		}
	} else if share < 0.5 || 10*group.TotalNS < in.totalRequestNS() {
		return nil // it neither makes requests slow nor is most of the service's work
	} else if group.Kind == report.KindRun {
		v.Title, v.Fix, v.MaxSeverity = textOf("title computes-in-run", "function", funcText), textOf("fix computes-in-run", "function", ownFunc), report.SeverityLow
		v.Changes = []predict.Change{} // it cannot go away
		if in.Report.Runtime.Sched.PsIdle >= threshold.HalfShare {
			v.Fix = textOf("fix computes-in-run-alone", "function", ownFunc)
		}
		v.addEvidence(evidenceOf("evidence ps-idle", in.Report.Runtime.Sched.PsIdle, "share"))
	} else if top := verdict.Causes(in.Report, group, group.Tail()); len(top) == 0 || top[0].Cause != report.CauseCPU || sampledShare(group.Tail(), isOwn) < threshold.HalfShare || !isOwnCode(site.OwnLine()) || in.UnawaitedGroups[group.ID] {
		if v.Fact = true; isStdSite(site.OwnLine()) {
			v.Fix, v.Changes = textOf("fix computes-std"), []predict.Change{}
		}
	} else {
		// Computing may be the service's purpose. But samples show that slow requests spend more on its own code than on
		// anything else.
		if collected, _ := v.chargeCollections(in, group, isPart, 1); collected > 0 {
			v.Title = textOf(allocatesTitle, "function", funcText)
		}
		v.chargeWaits(in, group, func(c *report.Cause) bool {
			return c.Cause == report.CauseCPU && c.Site.OwnLine().Func == site.OwnLine().Func
		})
		if readsFile := func(c *report.Cause) bool {
			return c.Cause == report.CauseSyscall && c.Site != nil && c.Site.Module == "" && c.Site.OwnLine().Func == site.OwnLine().Func && knowledge.Has(c.Call, knowledge.File) && !knowledge.Has(c.Call, knowledge.FileWrite) &&
				float64(c.Requests) >= threshold.NearlyAllShare*float64(group.Count)
		}; firstMatch(group.All().Causes, readsFile) != nil {
			v.Title, v.Fix = textOf("title computes-from-file", "function", funcText), textOf("fix computes-from-file", "function", ownFunc)
		}
		v.MaxSeverity, v.MinSeverity, v.Gain.All, v.Gain.OtherTail, v.Gain.ThresholdFactor = report.SeverityLow, report.SeverityInfo, Loss{}, Loss{}, threshold.Repeats
	}
	return []Verdict{v}
}

// addCallLines adds evidence of the lines of one function of the service at which it calls the dependency of a verdict, with the share of the
// work below each. It returns those with much of it, without the verdict's own.
func (v *Verdict) addCallLines(group *report.Group, isWork func(*report.Cause) bool) (others string) {
	nsByLine, totalNS := map[string]int64{}, int64(0)
	for c := range each(group.All().Causes) {
		if isWork(c) && c.Site.Module != "" && c.Site.Module == v.Site.Module && c.Site.OwnLine().Func == v.Site.OwnLine().Func {
			nsByLine[names.Position(c.Site.OwnLine())] += c.TotalNS
			totalNS += c.TotalNS
		}
	}
	var shares, otherLines []string
	for _, line := range slices.SortedFunc(maps.Keys(nsByLine), func(a, b string) int { return cmp.Or(cmp.Compare(nsByLine[b], nsByLine[a]), strings.Compare(a, b)) }) {
		if share := ratio(nsByLine[line], totalNS); share >= threshold.MinorShare {
			shares = append(shares, line+" "+words.Percent(share))
			if share >= threshold.NoticeableShare && line != names.Position(v.Site.OwnLine()) {
				otherLines = append(otherLines, line)
			}
		}
	}
	if len(shares) > 1 {
		v.addEvidence(statementOf("evidence computing-lines", "lines", strings.Join(shares, ", ")))
	}
	return strings.Join(otherLines, ", ")
}

// heaviestWork returns the longest cause of the function that has the most time, among the causes of a group that match; nil if
// none does. Work in a dependency counts for the function of the service that calls it.
func heaviestWork(group *report.Group, match func(*report.Cause) bool) (most *report.Cause) {
	nsByFunc, heaviest := map[string]int64{}, map[string]*report.Cause{}
	mostNS := int64(0)
	for c := range each(group.All().Causes) {
		if c.Site != nil && match(c) {
			fn := c.Site.OwnLine().Func
			heaviest[fn] = cmp.Or(heaviest[fn], c)
			if nsByFunc[fn] += c.TotalNS; nsByFunc[fn] > mostNS {
				most, mostNS = heaviest[fn], nsByFunc[fn]
			}
		}
	}
	return most
}

// mainCallee returns the function of a dependency in which a function of the service computes for most of its time in causes that match;
// "" if there is none.
func mainCallee(group *report.Group, match func(*report.Cause) bool, caller string) string {
	nsByCallee, totalNS := map[string]int64{}, int64(0)
	for c := range each(group.All().Causes) {
		if c.Site != nil && match(c) && c.Site.OwnLine().Func == caller {
			totalNS += c.TotalNS
			if c.Site.CalledFrom != nil {
				nsByCallee[c.Site.CalledFrom.Calls] += c.TotalNS
			}
		}
	}
	for callee, ns := range nsByCallee {
		if float64(ns) > threshold.HalfShare*float64(totalNS) && !knowledge.Has(callee, knowledge.Stdlib) { // which only calls the dependency in turn
			return callee
		}
	}
	return ""
}

// costlyLibrary returns the library with the most of the slow requests' time in work for which rules/libraries.txt has a cheaper way, and
// which causes are that work; nil if none has threshold.MajorShare (or its least share). Only causes that match count.
func costlyLibrary(group *report.Group, match func(*report.Cause) bool) (costly *library, isCost func(*report.Cause) bool) {
	band, mostNS := group.Tail(), int64(0)
	for l := range each(libraries()) {
		if l.costAdvice == "" {
			continue
		}
		isWork := func(c *report.Cause) bool {
			return c.Site != nil && match(c) && hasFunction([]*report.Site{c.Site}, l.functions)
		}
		libraryNS, isCostly := int64(0), false
		for c := range each(band.Causes) {
			if isWork(c) {
				libraryNS += c.TotalNS
				isCostly = isCostly || l.costlyCalls == "" || hasFunction([]*report.Site{c.Site}, l.costlyCalls)
			}
		}
		if isCostly && libraryNS > mostNS && float64(libraryNS) >= cmp.Or(l.leastShare, threshold.MajorShare)*float64(band.TotalNS()) {
			costly, isCost, mostNS = l, isWork, libraryNS
		}
	}
	return costly, isCost
}

// workTitle returns the title of a finding about a library's costly work, with the line of the service that leads to a site.
func (l *library) workTitle(site *report.Site) string {
	if line := site.OwnLine(); isOwnCode(line) {
		return textOf("title computes-costly-at", "work", l.costlyWork, "site", line)
	}
	return textOf("title computes-costly", "work", l.costlyWork)
}

// removalOf returns changes that remove the computing of the causes of a group that match: by the package of a dependency and the
// function of the service that called it.
func removalOf(group *report.Group, match func(*report.Cause) bool) (changes []predict.Change) {
	for c := range each(group.All().Causes) {
		if c.Site == nil || !match(c) {
			continue
		}
		site := c.Site.Func
		if from := c.Site.CalledFrom; from != nil && !from.OtherGoroutine {
			site = predict.PackageText(site, from.Func)
		} else if !isOwnCode(c.Site) {
			site = predict.PackageText(site, "")
		}
		if change := predict.Remove(c.Cause, site); len(changes) < maxChangeSites && !slices.Contains(changes, change) {
			changes = append(changes, change)
		}
	}
	return changes
}

// chargeCollections adds to the changes of a verdict about computing the collections that its garbage causes, if the same code allocates
// half of the bytes or more and no setting is to blame. It returns their cost for requests: the code's share of the collector's time, without the part that remains
// with the work. isWork selects the computing.
func (v *Verdict) chargeCollections(in *Input, group *report.Group, isWork func(*report.Cause) bool, removedShare float64) (share float64, gain Gain) {
	allocShare := in.allocatedShare(group, isWork)
	saved := removedShare * allocShare
	share, gain = gainWithoutPart(group, func(c *report.Cause) float64 { return saved * collectorPart(c) })
	if allocShare < threshold.HalfShare || share < threshold.NoiseShare || isGoalLow(in.Process) {
		return 0, Gain{}
	}
	if v.Changes == nil {
		v.Changes = removalOf(group, isWork)
	}
	v.ChangeText = textOf("phrase change-gone-collections")
	v.Changes = append(v.Changes, predict.Change{Cause: report.FamilyGC, Relative: true, Scale: 1 - saved})
	return share, gain
}

// chargeWaits adds to the changes of a verdict about computing the waits for a P while other requests do the same, if that is half of what
// ran or more. It returns their cost for requests.
func (v *Verdict) chargeWaits(in *Input, group *report.Group, isWork func(*report.Cause) bool) (share float64, gain Gain) {
	wait, ranShare := runQueueWaitOf(in, group), 0.0
	for o := range each(wait.occupants) {
		ranShare += o.share * oneIf(isWork(&report.Cause{Cause: report.CauseCPU, Site: o.site}))
	}
	if !(ranShare >= threshold.HalfShare) || wait.share < threshold.NoiseShare || len(wait.hubs) > 0 { // not a number if nothing is known to have run
		return 0, Gain{}
	}
	if v.Changes == nil {
		v.Changes = removalOf(group, isWork)
	}
	v.ChangeText = textOf("phrase change-gone-waits")
	v.Changes = append(v.Changes, predict.Change{Cause: report.CauseSched, Relative: true, Scale: 1 - ranShare})
	return ranShare * wait.share, wait.gain.scaled(ranShare)
}

// addGain adds time that another part of the fix saves.
func (v *Verdict) addGain(share float64, gain Gain) {
	v.Share, v.Gain = min(1, v.Share+share), v.Gain.plus(gain)
}

// totalRequestNS returns the time of all requests of all groups.
func (in *Input) totalRequestNS() (ns int64) {
	for i := range in.Report.Groups {
		ns += in.Report.Groups[i].TotalNS
	}
	return ns
}

// An extraComputing is how much more slow requests compute than others.
type extraComputing struct {
	ns           int64   // mean computing of a slow request less that of any request
	share        float64 // ns as a share of a slow request's latency
	sampledShare float64 // share of the slow requests' computing that CPU samples cover
}

// measureExtra returns how much more slow requests compute than the mean request; isOwn selects the causes that count as
// computing. It returns false unless that makes them slow: they take at least twice the median latency, and computing is at
// least half of the excess. CPU samples must cover half of their computing, and must be as many more: without a CPU, which other processes
// have, a request seems to compute.
func measureExtra(group *report.Group, isOwn func(*report.Cause) bool) (result extraComputing, ok bool) {
	slow := group.Tail()
	if slow == group.All() || slow.Count == 0 || group.LatencyNS.P50 == nil || group.Count == 0 {
		return extraComputing{}, false
	}
	cpu, samples := computingOf(slow, isOwn)
	allCPU, allSamples := computingOf(group.All(), isOwn)
	latency := slow.TotalNS() / int64(slow.Count)
	extra := extraComputing{ns: cpu/int64(slow.Count) - allCPU/int64(group.Count), sampledShare: ratio(samples*report.SampleNS, cpu)}
	if latency > 0 {
		extra.share = float64(extra.ns) / float64(latency)
	}
	// Samples come at random moments: the standard deviation of their number is that of a Poisson distribution.
	mostSamples := float64(samples) + math.Sqrt(float64(samples))
	mostNS := (mostSamples/float64(slow.Count) - float64(allSamples)/float64(group.Count)) * float64(allCPU) / float64(max(allSamples, 1))
	excess := latency - *group.LatencyNS.P50
	return extra, excess >= *group.LatencyNS.P50 && 2*extra.ns >= excess && 2*mostNS >= float64(excess) && extra.sampledShare >= 0.5
}

// computingOf returns the time of a band's causes for which isOwn holds, and the number of CPU samples in it.
func computingOf(b *report.Band, isOwn func(*report.Cause) bool) (ns, samples int64) {
	for c := range each(b.Causes) {
		if isOwn(c) {
			ns, samples = ns+c.TotalNS, samples+int64(c.Samples)
		}
	}
	return ns, samples
}

// sampledShare returns the time of CPU samples as a share of the time of a band's causes for which isOwn holds.
func sampledShare(b *report.Band, isOwn func(*report.Cause) bool) float64 {
	ns, samples := computingOf(b, isOwn)
	return ratio(samples*report.SampleNS, ns)
}
