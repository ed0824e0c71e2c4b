package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkRepeatedSetUp is a part of WL1008: requests compute what a service could compute once, at its start, such as templates that
// they parse. CPU samples must show it, in several requests: the first one may do what a sync.Once leaves to it.
func checkRepeatedSetUp(in *Input, group *report.Group) []Verdict {
	attr := in.attributionOf(group)
	share, gain := gainWithoutRoutes(group, func(c *report.Cause, via []report.Via) bool {
		code := attr.candidateKeyOf(c, via).code
		return isSetUp(c) && (code == "" || code == report.RuleBlockingSyscall && len(via) == 0)
	})
	var call *report.Cause // the longest call of set-up; of its first use, if there is no other
	samples, requests, changes := setUpSamples(group), 0, []predict.Change{}
	for c := range each(group.All().Causes) {
		if !isSetUp(c) {
			continue
		}
		requests = max(requests, c.Requests)
		if call == nil || call.Cause != report.CauseCPU || knowledge.Has(call.Site.Func, knowledge.FirstUse) && knowledge.Has(c.Site.Func, knowledge.SetUp) {
			call = c
		}
		if change := predict.Remove(c.Cause, predict.SiteText(c.Site, c.Cause)); len(changes) < maxChangeSites && !slices.Contains(changes, change) {
			changes = append(changes, change)
		}
	}
	// A program's run contains its start.
	if group.Kind == report.KindRun || share < threshold.NoticeableShare || samples < threshold.SmallSample || requests < threshold.SmallSample {
		return nil
	}
	if median := group.LatencyNS.P50; samples < threshold.MedianSample && median != nil && gain.TotalNS > int64(group.Count)**median {
		return nil // the median request has no time for the mean set-up: perhaps only the first requests do it
	}
	adviser := adviserAt(func(l *library) string { return l.setUpAdvice }, call.Site)
	if adviser == nil {
		adviser = &library{setUpAdvice: textOf("phrase set-up-once", "function", words.FuncName(call.Site.Func))}
	}
	if adviser.costlyCalls != "" && !isCalled(call.Site, adviser.costlyCalls) {
		return nil
	}
	v := Verdict{Gain: gain, Changes: changes, Finding: report.Finding{
		Title: textOf("title set-up", "site", call.Site), Fix: textOf("fix set-up", "advice", adviser.setUpAdvice, "site", call.Site.OwnLine()),
		Cause: report.CauseCPU, Site: call.Site, Group: group.ID, Share: share, Confidence: 0.9,
	}}
	if adviser.costlyWork != "" {
		v.Title = adviser.workTitle(call.Site)
	}
	v.addGain(v.chargeCollections(in, group, isSetUp, 1))
	v.addGain(v.chargeWaits(in, group, isSetUp))
	if share >= threshold.HalfShare {
		v.MinSeverity = report.SeverityMedium
	}
	v.addSlowEvidence(evidenceOf("evidence set-up", gain.Slow.NS, "ns"))
	v.addEvidence(evidenceOf("evidence set-up-samples", float64(samples), "count"))
	if samples < threshold.MedianSample {
		v.doubt(0.6, textOf("phrase few-set-up-samples", "samples", samples))
	}
	return []Verdict{v}
}

// isSetUp reports whether a cause is computing that belongs to a service's start, or a system call in it, such as of a file that it reads.
func isSetUp(c *report.Cause) bool {
	return (c.Cause == report.CauseCPU || c.Cause == report.CauseSyscall) && c.Site != nil && knowledge.Of(c.Site.Func).BelongsToStart()
}

// setUpSamples returns the number of CPU samples that show work of the service's start in requests of a group.
func setUpSamples(group *report.Group) (n int) {
	for c := range each(group.All().Causes) {
		if isSetUp(c) {
			n += c.Samples
		}
	}
	return n
}

// isCalled reports whether the function that the service called at a site begins with one of the prefixes, which are separated by spaces.
func isCalled(site *report.Site, prefixes string) bool {
	return site.CalledFrom != nil && hasFunction([]*report.Site{{Func: site.CalledFrom.Calls}}, prefixes)
}
