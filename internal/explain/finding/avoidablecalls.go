package finding

import (
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// Calls that a service need not make: checks of connections, set-up that each request repeats, and second calls after a short delay.

// rewriteForConnChecks rewrites a verdict on calls of which a major part only checks a connection that other calls then use. It returns
// false, and changes nothing, for others.
func (w *peerWait) rewriteForConnChecks(v *Verdict) bool {
	asker := v.Site
	share := w.avoidableShare(w.cand, func(calls *queues.PeerCalls) (ns, requests int64) {
		if isOwnCode(calls.CheckSite) {
			asker = calls.CheckSite
		}
		return calls.CheckNS, calls.Checks
	})
	if share == 0 {
		return false
	}
	v.Title, v.InService = textOf("title connection-checks", "site", v.Site), true
	v.Fix = textOf("fix connection-checks", "asker", asker.OwnLine())
	v.prependEvidence(evidenceOf("evidence connection-checks", share, "share"))
	v.Gain, v.Share = w.cand.gain.scaled(share), v.Share*share
	v.scaleTo(1 - share)
	w.predictAs(v, "phrase change-unchecked")
	return true
}

// avoidableShare returns the share of certain calls, which most requests make, in the time of all calls of a candidate; 0 if it is no major
// part of it. part returns the time of these calls, and the number of requests that make them.
func (w *peerWait) avoidableShare(cand *candidate, part func(*queues.PeerCalls) (ns, requests int64)) float64 {
	var avoidableNS, totalNS, mostRequests int64
	for _, calls := range w.peerCallsOf(cand) {
		ns, requests := part(calls)
		avoidableNS, totalNS, mostRequests = avoidableNS+ns, totalNS+calls.TotalNS, max(mostRequests, requests)
	}
	share := float64(avoidableNS) / float64(max(1, totalNS))
	if share < threshold.MajorShare || !w.concernsMost(int(mostRequests)) || !w.isAnswer || w.maybeClient || w.group.Peer != nil {
		return 0
	}
	return share
}

// rewriteForPrepares rewrites a verdict on statements that requests have a database prepare before they execute them, with a round trip
// for each. It returns false, and changes nothing, for others. Of several lines, the first has the verdict, and that of the others becomes
// empty.
func (w *peerWait) rewriteForPrepares(v *Verdict) bool {
	prepares := func(calls *queues.PeerCalls) (ns, requests int64) { return calls.PrepareNS, calls.Prepares }
	if w.avoidableShare(w.cand, prepares) == 0 {
		return false
	}
	changes, lines, keys, shares := []predict.Change{}, []string(nil), []candidateKey(nil), 0.0
	for _, part := range w.candidates {
		if part.code != report.RuleSlowPeer {
			continue
		}
		share := w.avoidableShare(part, prepares)
		if share == 0 {
			continue
		}
		if len(keys) == 0 && part != w.cand {
			*v = Verdict{}
			return true
		}
		keys, shares = append(keys, part.candidateKey), shares+share
		lines = append(lines, names.Position(part.routes[0].nonStdSite().OwnLine()))
		for _, change := range w.withoutSite(&part.routes[0]) {
			change.Scale = 1 - share
			changes = append(changes, change)
		}
	}
	v.Title, v.Fix, v.InService = textOf("title prepares", "site", v.Site.OwnLine()), textOf("fix prepares"), true
	if l := adviserAt(func(l *library) string { return l.stmtAdvice }, w.top.sites()...); l != nil {
		v.Fix = l.fix(l.stmtAdvice)
	}
	v.Share, v.Gain = gainWithoutRoutes(w.group, func(c *report.Cause, via []report.Via) bool { return slices.Contains(keys, w.candidateKeyOf(c, via)) })
	v.Share, v.Gain = v.Share*shares/float64(len(keys)), v.Gain.scaled(shares/float64(len(keys)))
	v.prependEvidence(evidenceOf("evidence prepares", float64(v.Gain.TotalNS)/float64(max(1, w.group.Count)), "ns", "lines", strings.Join(lines, ", ")))
	v.Changes = changes
	w.predictAs(v, "phrase change-unprepared")
	return true
}

// rewriteForPeerSetUp rewrites a verdict on calls of a constructor (see knowledge.Constructor) or of other set-up in most requests: the service can keep the
// new object, with the answers that it asks for at its first use. It returns false, and changes nothing, for others. Of several lines, the
// first has the verdict, and that of the others becomes empty.
func (w *peerWait) rewriteForPeerSetUp(v *Verdict) bool {
	pkg := setUpPackage(w.cand)
	if pkg == "" || w.group.Kind == report.KindRun || !w.isAnswer || w.maybeClient || w.group.Peer != nil {
		return false
	}
	var first *candidate
	constructor, changes, keys := "", []predict.Change{}, []candidateKey(nil)
	for _, part := range w.candidates {
		if part.code != report.RuleSlowPeer || setUpPackage(part) != pkg || !w.concernsMost(part.routes[0].Requests) {
			continue
		}
		if name := constructorOf(&part.routes[0]); name != "" && first == nil {
			first, constructor = part, words.FuncName(name)
		}
		keys, changes = append(keys, part.candidateKey), append(changes, w.withoutSites(each(part.routes))...)
	}
	if first == nil || !slices.Contains(keys, w.cand.candidateKey) {
		return false
	}
	if w.cand != first {
		*v = Verdict{}
		return true
	}
	v.Title, v.InService = textOf("title peer-set-up", "constructor", constructor, "site", v.Site.OwnLine()), true
	v.Fix = textOf("fix peer-set-up", "constructor", constructor, "site", v.Site.OwnLine())
	if l := adviserAt(func(l *library) string { return l.setUpAdvice }, w.top.sites()...); l != nil {
		v.Fix = l.fix(l.setUpAdvice)
	}
	v.Share, v.Gain = gainWithoutRoutes(w.group, func(c *report.Cause, via []report.Via) bool {
		return slices.Contains(keys, w.candidateKeyOf(c, via))
	})
	v.prependEvidence(evidenceOf("evidence peer-set-up", float64(v.Gain.TotalNS)/float64(max(1, w.group.Count)), "ns"))
	v.Changes = changes
	w.predictAs(v, "phrase change-kept-object")
	return true
}

// setUpPackage returns the package of the constructor that a candidate's calls belong to, or of the object that it asks for at its first
// use; "" if they belong to none.
func setUpPackage(cand *candidate) string {
	fn := constructorOf(&cand.routes[0])
	for _, s := range cand.routes[0].sites() {
		if fn == "" && s != nil && knowledge.Has(s.Func, knowledge.FirstUse) {
			fn = s.Func
		}
	}
	return stdlib.Package(fn)
}

// constructorOf returns the library's constructor that the service calls on a route, or the function that does its set-up; "" if there is
// none.
func constructorOf(p *causeRoute) string {
	for _, s := range p.sites() {
		if s != nil && s.CalledFrom != nil && knowledge.Has(s.CalledFrom.Calls, knowledge.Constructor) {
			return s.CalledFrom.Calls
		}
		if s != nil && knowledge.Has(s.Func, knowledge.SetUp) {
			return s.Func
		}
	}
	return ""
}

// rewriteForHedges rewrites a verdict on calls that a major part of the requests makes again while the first one is under way: the delay
// is shorter than many answers take. It returns false, and changes nothing, for others. How long answers take without these calls is
// unknown, so nothing is predicted.
func (w *peerWait) rewriteForHedges(v *Verdict) bool {
	hedges := &w.calls.Hedges
	share := float64(hedges.Requests) / float64(max(1, w.calls.Requests))
	if hedges.Requests < threshold.MedianSample || share < threshold.MajorShare || !w.isAnswer || w.maybeClient {
		return false
	}
	delay, answer := words.Brief(hedges.DelayNS/hedges.Requests), words.Brief(hedges.AnswerNS/hedges.Requests)
	if line := hedges.Pause.OwnLine(); line.Matches(w.top.Site.OwnLine()) {
		v.Site = line // the other one is in a library that passes calls on
	}
	v.Title = textOf("title hedges", "share", words.Percent(share), "delay", delay, "answer", answer, "site", v.Site)
	v.Fix, v.InService, v.isAnswerTime = textOf("fix hedges", "delay", delay), true, true
	v.prependEvidence(evidenceOf("evidence hedges", 1+float64(hedges.Calls)/float64(hedges.Requests), "count"))
	v.Gain, v.Changes, v.ChangeText = w.cand.gain, []predict.Change{}, ""
	if v.MaxSeverity = report.SeverityLow; share >= threshold.HalfShare {
		v.MaxSeverity = report.SeverityMedium // a part of the time is that of the answers themselves
	}
	return true
}

// hedgedCall returns the cause of the call for whose answer requests wait at a site, until they make the same call again; nil if they make
// none there. The time is that of the answer.
func (a *attribution) hedgedCall(pause *report.Site) *report.Cause {
	calls := firstMatch(a.in.PeerCalls[a.group.ID], func(o *queues.PeerCalls) bool { return o.Hedges.Calls > 0 && o.Hedges.Pause.Matches(pause) })
	if calls == nil {
		return nil
	}
	return firstMatch(a.group.All().Causes, func(c *report.Cause) bool { return c.Cause == report.CauseNetwork && calls.Site.Matches(c.Site) })
}

// rewriteForRepeats rewrites a verdict on calls that some requests make again after a pause, and most make once: the first one does not
// suffice. It returns false, and changes nothing, for others. The change is one call in each request, without the pauses.
func (w *peerWait) rewriteForRepeats(v *Verdict) bool {
	if w.calls.RepeatRequests < threshold.SmallSample || float64(w.calls.RepeatRequests) > threshold.HalfShare*float64(w.calls.Requests) ||
		float64(w.calls.Repeats) < threshold.MostShare*float64(w.calls.Calls-w.calls.Requests) ||
		float64(w.calls.RepeatNS) < threshold.NoticeableShare*float64(w.calls.TotalNS) || !isOwnCode(w.calls.Pause) || !w.isAnswer || w.maybeClient {
		return false
	}
	callCount := 1 + float64(w.calls.Repeats)/float64(w.calls.RepeatRequests)
	share := words.Percent(float64(w.calls.RepeatRequests) / float64(w.calls.Requests))
	v.Title = textOf("title repeated-call", "share", share, "n", words.Figure(callCount), "site", v.Site)
	v.Fix = textOf("fix repeated-call", "pause", w.calls.Pause)
	if w.calls.Transaction != nil {
		v.Fix = textOf("fix call-in-transaction", "begin", w.calls.Transaction, "pause", w.calls.Pause)
	}
	v.prependEvidence(
		evidenceOf("evidence repeated-calls", callCount, "count"),
		evidenceOf("evidence repeating-requests", w.calls.RepeatRequests, "count", "n", w.calls.Requests))
	v.Gain = w.cand.gain.scaled(float64(w.calls.RepeatNS) / float64(w.calls.TotalNS))
	v.Gain.Slow = w.cand.gain.Slow.scaled(1 - 1/callCount)
	v.MaxSeverity = report.SeverityMedium // it may wait until something is done
	v.Changes = []predict.Change{
		predict.Calls(predict.SiteText(w.cand.routes[0].Site, report.CauseNetwork), 1),
		predict.Remove(report.CauseSleep, predict.SiteText(w.calls.Pause, report.CauseSleep)),
	}
	w.predictAs(v, "phrase change-one-call")
	return true
}

// callCountsAt returns how many calls the group's slow requests and others make from the service's line of a route; nil if that is not known.
func (a *attribution) callCountsAt(route *causeRoute) *queues.CallCounts {
	line := route.ownLine()
	return firstMatch(a.in.CallCounts[a.group.ID], func(c *queues.CallCounts) bool {
		return line != nil && c.Line == line.Line && c.File == line.File
	})
}

// rewriteForUnevenCalls rewrites a verdict on calls of which slow requests make far more than others, one after the other. It returns
// false, and changes nothing, if they do not. The change is that each request makes as many as the others.
func (w *peerWait) rewriteForUnevenCalls(v *Verdict) bool {
	counts := w.callCountsAt(w.top)
	if !counts.AreUneven() || w.isParallel || w.isSequential && counts.Drain == nil {
		return false
	}
	usual := max(1, math.Round(counts.UsualCalls))
	slowText, usualText := words.Figure(math.Round(counts.SlowCalls)), words.Figure(usual)
	v.Title, v.Fix, v.InService = textOf("title uneven-calls", "n", slowText, "site", v.Site, "usual", usualText), textOf("fix uneven-calls", "n", slowText), true
	v.isSequence = true
	if usual == 1 {
		v.Fix = textOf("fix repeats-of-one-call")
	}
	if l := libraryAt(counts.Drain); l != nil && l.drainAdvice != "" {
		v.Title = textOf("title drained-calls", "n", slowText, "site", v.Site, "usual", usualText, "library", l.name)
		v.Fix = l.fix(l.drainAdvice)
	}
	v.prependEvidence(
		evidenceOf("evidence slow-calls", counts.SlowCalls, "count"),
		evidenceOf("evidence usual-calls", counts.UsualCalls, "count"),
		evidenceOf("evidence sequential-wait", counts.CallNS, "ns"))
	v.Gain = w.cand.gain.scaled(1 - counts.UsualCalls/counts.SlowCalls)
	v.Changes = []predict.Change{predict.Calls(names.Position(w.cand.routes[0].ownLine()), int(usual))}
	w.predictAs(v, "phrase change-usual-calls")
	return true
}

// callersOfAll returns how many requests have n of the sampled calls, and the number of all requests that may be of the same handler: a request that does
// not wait, such as one that a cache answers, shows none.
func (w *peerWait) callersOfAll(n int64) (callers, all int) {
	all = w.group.Count
	for g := range each(w.in.Report.Groups) {
		if g.ID != w.group.ID && !g.Named && g.Kind == w.group.Kind {
			all += g.Count
		}
	}
	return int(math.Round(float64(w.cand.routes[0].Requests) * float64(n) / float64(max(1, w.calls.Requests)))), all
}

// rewriteForCacheLoads rewrites a verdict on calls that load what a cache does not hold, if at least half of all requests make them. It
// returns false, and changes nothing, for others.
func (w *peerWait) rewriteForCacheLoads(v *Verdict) bool {
	loads, all := w.callersOfAll(w.calls.CacheLoads)
	share := float64(loads) / float64(all)
	if loads < threshold.MedianSample || share < threshold.HalfShare {
		return false
	}
	v.Title = textOf("title cache-loads", "share", words.Percent(share), "site", v.Site)
	v.Fix = textOf("fix cache-loads", "cache", w.calls.Cache.OwnLine(), "share", words.Percent(share))
	v.prependEvidence(evidenceOf("evidence cache-loads", loads, "count", "n", all))
	v.Gain, v.InService, v.MaxSeverity = w.cand.gain, true, report.SeverityMedium // how often requests ask for the same is unknown
	w.predictAs(v, "phrase change-cached")
	if p := v.Predicted; p != nil && p.WasP99NS != nil { // a few requests still load
		p.P99NS.Est, p.P99NS.High = *p.WasP99NS, *p.WasP99NS
	}
	if p := v.Predicted; p != nil && p.MaxNS != nil && p.WasMaxNS != nil {
		p.MaxNS.Est, p.MaxNS.High = *p.WasMaxNS, *p.WasMaxNS
	}
	return true
}
