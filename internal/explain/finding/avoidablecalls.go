package finding

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Calls that a service need not make: checks of connections, set-up that each request repeats, and second calls after a short delay.

// rewriteForConnChecks rewrites a verdict on calls of which a major part only checks a connection that other calls then use. It returns
// false, and changes nothing, for others.
func (w *peerWait) rewriteForConnChecks(v *Verdict) bool {
	if !w.isUnknownPeer || w.group.Peer != nil {
		return false
	}
	var checkNS, totalNS, requests int64
	asker := v.Site
	for _, calls := range w.peerCallsOf(w.cand) {
		checkNS, totalNS, requests = checkNS+calls.CheckNS, totalNS+calls.TotalNS, max(requests, calls.Checks)
		if isOwnCode(calls.CheckSite) {
			asker = calls.CheckSite
		}
	}
	share := float64(checkNS) / float64(max(1, totalNS))
	if share < threshold.MajorShare || !w.concernsMost(int(requests)) {
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

// rewriteForPeerSetUp rewrites a verdict on calls of a constructor (see knowledge.Constructor) in most requests: the service can keep the
// new object, with the answers that it asks for at its first use. It returns false, and changes nothing, for others. Of several lines, the
// first has the verdict, and that of the others becomes empty.
func (w *peerWait) rewriteForPeerSetUp(v *Verdict) bool {
	pkg := setUpPackage(w.cand)
	if pkg == "" || w.group.Kind == report.KindRun || !w.isUnknownPeer || w.group.Peer != nil {
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
		keys, changes = append(keys, part.candidateKey), append(changes, w.withoutSite(&part.routes[0])...)
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
	path, name := "", fn
	if i := strings.LastIndexByte(fn, '/'); i >= 0 {
		path, name = fn[:i], fn[i:]
	}
	name, _, _ = strings.Cut(name, ".")
	return path + name
}

// constructorOf returns the library's constructor that the service calls on a route; "" if there is none.
func constructorOf(p *causeRoute) string {
	for _, s := range p.sites() {
		if s != nil && s.CalledFrom != nil && knowledge.Has(s.CalledFrom.Calls, knowledge.Constructor) {
			return s.CalledFrom.Calls
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
	v.Gain, v.Changes, v.Predicted, v.ChangeText = w.cand.gain, []predict.Change{}, nil, ""
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
