package finding

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkSlowPeer is WL2005, slow-peer: requests wait for another process to answer (peerVerdict), to read their bodies (flowVerdict) or to
// send the parts of a stream.
// On a busy machine its confidence is lower if the verdict is about the time of answers.
func checkSlowPeer(attr *attribution, cand *candidate) Verdict {
	if cand.causeSite.cause == streamCause {
		return streamVerdict(attr, cand, &cand.routes[0])
	}
	if cand.causeSite.cause == flowCause {
		return flowVerdict(attr, cand)
	}
	v := peerVerdict(attr, cand)
	if v.Title == "" {
		return v
	}
	if n, isKnown := attr.in.OutlierMoments[attr.group.ID]; isKnown && n < attr.group.Band(report.BandOutliers).Count {
		v.addEvidence(evidenceOf("evidence outlier-moments", n, "count"))
	}
	v.addEvidence(networkEvidence(attr.in.Report.Host)...)
	if n, hasOtherLoad := measureOtherLoad(attr.in); hasOtherLoad && v.isAnswerTime {
		if v.Confidence >= threshold.HalfShare { // else its own doubt is the larger one
			v.Doubt, v.DoubtedBy = textOf("phrase doubt-machine", "share", words.Percent(n.waitShare)), report.RuleBusyMachine
		}
		v.Confidence *= 1 - n.waitShare
		if v.Confidence < threshold.HalfShare {
			v.Fix = textOf("fix record-free-machine", "fix", v.Fix)
		}
		v.addEvidence(evidenceOf("evidence peer-without-cpu", n.waitShare, "share"))
	}
	return v
}

// A peerWait is a candidate that waits for a peer, with the facts that decide what its verdict says.
type peerWait struct {
	*attribution
	cand    *candidate
	top     *causeRoute       // its heaviest route
	calls   *queues.PeerCalls // made there; zero if that is not known
	opens   connOpens
	sharing *library // by which requests wait for calls that others began; nil if they do not
	// What the requests wait for, how to avoid that, and the text of the prediction that the service keeps it; "" if it cannot.
	awaited, fix string
	reuseText    textKey

	// Each request makes one call, several at the same time, or several one after the other. isLimited: its goroutines make all of them,
	// but each several in turn. isUnanswered: most wait in vain.
	callsOnce, isParallel, isLimited, isSequential, isUnanswered bool
	// isAnswer: it is no opening, handshake, nor name server. maybeClient: perhaps it is the client's. isUnknownPeer: it is not known whose.
	isAnswer, maybeClient, isUnknownPeer bool
}

// newPeerWait returns the facts about a candidate.
func newPeerWait(attr *attribution, cand *candidate) *peerWait {
	top := cand.heaviestRoute(report.CauseNetwork)
	w := &peerWait{attribution: attr, cand: cand, top: top, calls: cmp.Or(attr.peerCallsAt(top), &queues.PeerCalls{}), opens: attr.connOpensOf(cand), sharing: cand.sharingLibrary()}
	calls := w.calls
	w.callsOnce = 2*max(calls.Calls, calls.TotalCalls) < 3*calls.Requests && float64(calls.AnswerNS) >= threshold.MostShare*float64(calls.TotalNS)
	w.isUnanswered = 2*calls.UnansweredNS >= calls.AnswerNS && calls.Unanswered >= threshold.SmallSample
	w.isParallel = calls.FanOut > 0 && calls.FanOut >= 2*calls.Requests
	w.isLimited = w.isParallel && 2*calls.FanOutCalls >= 3*calls.FanOut && 2*calls.FanOutNS >= 3*calls.AnswerNS
	w.describe()
	w.maybeClient = w.isAnswer && attr.mayBeClient(top.Cause, top.via)
	w.isUnknownPeer = w.isAnswer && !w.maybeClient
	w.isSequential = w.isUnknownPeer && calls.Calls >= threshold.Repeats*calls.Requests && calls.AnswerNS > 0 && !w.isParallel && attr.group.Peer == nil
	return w
}

// describe sets what the requests wait for, and the advice about it.
func (w *peerWait) describe() {
	switch call := knowledge.Of(w.top.Call); {
	case verdict.KindOf(w.top.Cause) == verdict.NameServer:
		w.awaited, w.fix, w.reuseText = textOf("phrase name-server"), textOf("fix name-server"), "phrase kept-address"
		if w.isUnanswered {
			w.fix = textOf("fix name-server-unanswered")
		}
	case call.Has(knowledge.ConnectionWrite):
		w.awaited, w.fix = textOf("phrase slow-reader"), textOf("fix slow-reader")
	case call.Has(knowledge.Dial):
		w.awaited, w.fix, w.reuseText = textOf("phrase connection-opening"), textOf("fix dial", "advice", stdPool(httpSlotFunc).reuseAdvice), "phrase kept-connections"
	case call.Has(knowledge.TLS):
		w.awaited, w.fix, w.reuseText = textOf("phrase tls-handshake"), textOf("fix tls-handshake"), "phrase kept-connections"
	case w.sharing != nil:
		w.awaited, w.fix, w.isAnswer = answerText(w.top), w.sharing.fix(w.sharing.shareAdvice), true
	default:
		w.awaited, w.fix, w.isAnswer = answerText(w.top), w.peerFix(), true
	}
}

// peerVerdict returns the verdict on a candidate that waits for a peer: what the requests wait for decides title and fix, unless one of
// peerRewrites knows more. It is empty if the report of another service has the finding.
func peerVerdict(attr *attribution, cand *candidate) Verdict {
	w := newPeerWait(attr, cand)
	v := w.generalVerdict()
	changes, predicted := slices.Clone(v.Changes), v.Predicted
	for _, rewrite := range peerRewrites {
		if rewrite(w, &v) {
			break
		}
	}
	if v.Predicted == predicted && !slices.Equal(v.Changes, changes) {
		v.Predicted = nil // it is that of the changes before
	}
	return v
}

// peerRewrites are tried in this order, until one knows what makes the requests late, or could be changed: waits on purpose, missing answers, delayed
// acknowledgements and openings, then calls that the service need not make, then what makes the answers of an unknown peer late.
var peerRewrites = []func(*peerWait, *Verdict) bool{
	(*peerWait).rewriteForBlockingCall, (*peerWait).rewriteForLostAnswers, (*peerWait).rewriteForUnanswered, (*peerWait).rewriteForAckDelays, (*peerWait).rewriteForSplitRequests,
	(*peerWait).rewriteForConnPerRequest, (*peerWait).rewriteForConnOpens, (*peerWait).rewriteForBlockedSender,
	(*peerWait).rewriteForConnChecks, (*peerWait).rewriteForPrepares, (*peerWait).rewriteForPeerSetUp, (*peerWait).rewriteForHedges, (*peerWait).rewriteForCacheLoads,
	(*peerWait).rewriteForDeadlocks, (*peerWait).rewriteForRepeats, (*peerWait).rewriteForReuse, (*peerWait).rewriteForKnownPeer,
	(*peerWait).rewriteForSharedCalls, (*peerWait).rewriteForHeldCalls, (*peerWait).rewriteForOwnWorker, (*peerWait).rewriteForOrderedAnswers,
	(*peerWait).rewriteForWindowRounds, (*peerWait).rewriteForLargeAnswers, (*peerWait).rewriteForUnevenCalls,
	(*peerWait).rewriteForLimitedCalls, (*peerWait).rewriteForSeveralCalls, (*peerWait).rewriteForSequentialCalls, (*peerWait).rewriteForTimeLimit, (*peerWait).rewriteForPeerLock,
	(*peerWait).rewriteForCallHolder, (*peerWait).rewriteForSerialAnswers, (*peerWait).rewriteForLoadDependence, (*peerWait).rewriteForAnswerTicks,
	(*peerWait).rewriteForParallelCalls, (*peerWait).rewriteForObservedPeer, (*peerWait).rewriteForFreshConns, (*peerWait).rewriteForOneAnswer,
}

// generalVerdict returns the verdict that only says what the requests wait for. It sets the words for a known peer.
func (w *peerWait) generalVerdict() Verdict {
	var peer knownPeer
	if w.group.Peer != nil && w.isAnswer {
		peer = describeKnownPeer(w.in.Report, w.group.Peer, w.fix)
		w.awaited, w.fix, w.isUnknownPeer = peer.awaited, peer.fix, w.isUnknownPeer && peer.isUncertain
	}
	gapShare, _ := gainWithout(w.group, isPollGap) // then data may have been present before a P polled
	confidence, doubt := 0.9, textOf("phrase doubt-poll-gaps", "share", words.Percent(gapShare))
	if w.maybeClient {
		w.awaited, w.fix, confidence, doubt = textOf("phrase maybe-client"), textOf("fix maybe-client"), 0.4, textOf("phrase doubt-client")
	}
	if loop := w.ownSubscriber(); loop != nil {
		name := words.FuncName(loop.Name)
		w.awaited, w.fix = textOf("phrase perhaps-own-peer", "peer", name), textOf("fix own-subscriber", "peer", name, "time", words.Brief(loop.MeanNS))
		confidence, doubt, w.isUnknownPeer = 0.45, textOf("phrase doubt-own-subscriber"), false
	}
	gain, delayEvidence := w.peerGain(w.cand)
	v := w.newVerdict(w.cand, w.top)
	v.Gain, v.Fact, v.Fix, v.Cause = gain, peer.isElsewhere, w.fix, report.CauseNetwork
	if w.group.Kind == report.KindLoop && knowledge.Has(w.top.Call, knowledge.ConnectionWrite) && len(w.top.via) == 0 {
		v.FixedSeverity = report.SeverityLow // requests that wait for a writer have another finding
	}
	v.Title = textOf("title slow-peer", "awaited", textOf("phrase awaited-at", "awaited", w.awaited, "site", v.Site))
	v.doubt(confidence*(1-min(0.5, gapShare)), doubt)
	w.addSlowMean(&v, "evidence slow-wait-on", w.cand, w.top, w.top.via)
	v.addEvidence(peer.evidence...)
	v.addEvidence(delayEvidence...)
	v.addEvidence(libraryCallEvidence(w.cand, w.top)...)
	if w.isUnknownPeer && w.sharing == nil {
		w.setUsualAnswer(&v)
	}
	return v
}

// rewriteForReuse rewrites a verdict on connections or addresses that the service can keep.
func (w *peerWait) rewriteForReuse(v *Verdict) bool {
	if w.reuseText == "" || !w.concernsMost(w.top.Requests) {
		return false
	}
	v.Gain, v.Changes = w.cand.gain, []predict.Change{predict.Reuse(predict.SiteText(w.top.Site, report.CauseNetwork))}
	w.predictAs(v, w.reuseText)
	return true
}

// rewriteForKnownPeer leaves the verdict as it is if the peer is known. If that is another service, whose report has the finding, it empties
// the verdict.
func (w *peerWait) rewriteForKnownPeer(v *Verdict) bool {
	if w.top.Cause.WayTo != "" && w.sharing == nil && !w.isSequential {
		*v = Verdict{}
		return true
	}
	v.isAnswerTime = !w.isUnknownPeer
	return !w.isUnknownPeer
}

// rewriteForSharedCalls rewrites a verdict on calls that other requests began.
func (w *peerWait) rewriteForSharedCalls(v *Verdict) bool {
	if w.sharing == nil {
		return false
	}
	v.Gain, v.ChangeText = w.cand.gain, textOf("phrase change-unshared")
	return true
}

// rewriteForOneAnswer rewrites a verdict on waits for one answer, of which only the time is known.
func (w *peerWait) rewriteForOneAnswer(v *Verdict) bool {
	v.isAnswerTime, v.isBestCase = true, v.ChangeText == ""
	if w.group.Count < threshold.MedianSample { // too few to distinguish slow ones
		v.Gain.All.IsRare, v.MaxSeverity = true, report.SeverityMedium
		v.Gain.Slow, v.Gain.OtherTail = v.Gain.All, Loss{}
		l := &w.group.LatencyNS
		areAlike := l.P50 != nil && l.Max != nil && *l.Max < 2**l.P50
		if areAlike || w.group.Open.Count > w.group.Count { // the latter are long polls, perhaps, which clients repeat
			v.MaxSeverity = report.SeverityLow
		}
		return true
	}
	if w.cand.gain.Slow.NS < 2*w.cand.usualNS(w.group) || w.waitAsLong() || w.haveUsualCalls() {
		v.MaxSeverity = report.SeverityLow // the peer's times differ, but none is out of the ordinary
	} else if v.MaxSeverity == "" && v.Share >= threshold.MostShare && w.hasOwnTimes() {
		v.MaxSeverity = report.SeverityMedium
		if fix, details, _ := strings.Cut(v.Fix, remedyEnd); v.ChangeText == "" && peerAdviceOf(w.top) == nil { // else the advice is another one
			v.Fix = textOf("fix own-times", "fix", fix) + remedyEnd + details
		}
	}
	v.isOneAnswer = true
	v.MaxSeverityByAll = report.SeverityLow // slow requests wait as long as others: no evidence that the peer can be faster
	return true
}

// waitAsLong reports whether slow requests wait for peers, at all lines together, less than twice as long as requests do on average: at one line for
// the beginning of an answer, and at another for its rest.
func (a *attribution) waitAsLong() bool {
	_, wait := gainWithout(a.group, isPeerWait)
	return wait.Slow.NS < 2*wait.All.NS
}

// haveUsualCalls reports whether fewer than half of all requests make the call, and each of them waits as long for its answer: they ask for what the
// others have no need of, as in front of a cache.
func (w *peerWait) haveUsualCalls() bool {
	callers, all := w.callersOfAll(w.calls.Requests)
	return w.callsOnce && callers > 0 && 2*callers < all && 2*w.cand.gain.Slow.NS*w.calls.Requests < 3*w.calls.AnswerNS || w.haveLongBodies()
}

// haveLongBodies reports whether at least a twentieth of all requests, but fewer than half, wait for the rest of an answer after its
// beginning, each of them as long: they ask for what comes in parts, as where a proxy passes several routes on.
func (w *peerWait) haveLongBodies() bool {
	return slices.ContainsFunc(w.cand.routes, func(r causeRoute) bool {
		n := float64(r.Requests)
		return knowledge.Has(r.Call, knowledge.ResponseBody) && n >= threshold.MinorShare*float64(w.group.Count) && 2*r.Requests < w.group.Count && 2*float64(w.cand.gain.Slow.NS)*n < 3*float64(r.TotalNS)
	})
}

// hasOwnTimes reports whether slow requests, which mostly wait for a peer and for whose lateness this process has no other reason, are the
// tail of the usual ones: no gap separates their latencies from those, and they are not late together. Then the times are the peer's own.
func (a *attribution) hasOwnTimes() bool {
	const leastGap = 1.5 // ratio of two successive latencies
	if n, isKnown := a.in.OutlierMoments[a.group.ID]; isKnown && 2*n <= a.group.Band(report.BandOutliers).Count {
		return false
	}
	fasterCount, isAfterGap := int64(0), false
	for i, bucket := range a.group.Histogram {
		if slowerCount := int64(a.group.Count) - fasterCount; i > 0 && 2*slowerCount <= int64(a.group.Count) && slowerCount >= threshold.SmallSample {
			isAfterGap = isAfterGap || float64(bucket[0]) >= leastGap*float64(a.group.Histogram[i-1][0])
		}
		fasterCount += bucket[1]
	}
	return len(a.group.Histogram) > 0 && !isAfterGap
}

// A MessageLoop is a loop that handles messages for requests: how many, and the mean time for one.
type MessageLoop struct {
	Name, StartFunc string
	Count           int
	MeanNS          int64
}

// ownSubscriber returns the loop of this process that perhaps answers the requests that wait in a library: the same library started it, it handles
// about as many messages in the service's code, and works on each for a large part of such a wait. nil if there is none. A loop in the library's
// own code, such as one that watches for cancelled calls, has no answer to give.
func (w *peerWait) ownSubscriber() *MessageLoop {
	top := w.top
	if !w.isUnknownPeer || top.Site == nil || top.Site.Module == "" || w.group.Peer != nil || w.ownWorker() != nil {
		return nil
	}
	library, _, _ := strings.Cut(top.Site.Func, ".(")
	meanNS := float64(top.TotalNS) / float64(max(top.Requests, 1))
	return firstMatch(w.in.MessageLoops, func(l *MessageLoop) bool {
		return strings.HasPrefix(l.StartFunc, library+".(") && !strings.HasPrefix(l.Name, library+".") && 2*l.Count >= top.Requests && float64(l.MeanNS) >= threshold.MajorShare*meanNS && float64(l.MeanNS) <= meanNS
	})
}

// raiseSecondAnswers raises to medium a verdict on waits for one answer, if it is a large part (20 % and 1 ms) of requests that
// also wait for a sequence of answers at another line. How long an answer should take is unknown, but the service could wait for
// both at the same time.
func raiseSecondAnswers(all []Verdict) {
	const leastShare, leastNS = 0.2, 1e6
	for v := range each(all) {
		if !v.isOneAnswer || v.Severity.IsMajor() || v.Gain.All.Share < leastShare || v.Gain.All.NS < leastNS {
			continue
		}
		first := firstMatch(all, func(o *Verdict) bool {
			return o.isSequence && o.Group == v.Group && o.Severity.IsMajor() && o.Site != nil && !o.Site.Equal(v.Site)
		})
		if first == nil {
			continue
		}
		v.Severity, v.Confidence = report.SeverityMedium, max(v.Confidence, first.Confidence)
		v.Decided = &report.Decided{Requests: report.DecidedByAll, Share: v.Gain.All.Share, LeastShare: leastShare, NS: v.Gain.All.NS, LeastNS: leastNS}
		v.Fix, v.Remedy = splitRemedy(textOf("fix second-answer", "site", first.Site.OwnLine()))
		if v.isBestCase = false; v.Predicted != nil {
			v.Predicted.ChangeText = textOf("phrase change-kept")
		}
	}
}

// cachedFix returns the advice on waits for a peer that most requests ask once: fix, and what to check in a cache, if one ran.
// No event shows that a cache refuses or drops an entry.
func (w *peerWait) cachedFix(fix string) string {
	callers, all := w.callersOfAll(w.calls.Requests)
	share := float64(callers) / float64(max(1, all))
	if share < threshold.HalfShare {
		return fix
	}
	cache := firstMatch(libraries(), func(l *library) bool {
		return l.keepAdvice != "" && w.in.HasFunction != nil && w.in.HasFunction(l.functions)
	})
	if cache == nil {
		return fix
	}
	return textOf("fix maybe-cached", "library", cache.name, "share", words.Percent(share), "advice", cache.keepAdvice, "fix", fix)
}

// peerFix returns the advice on waits for a peer: fewer calls, unless requests make only one (callsOnce), or what its library offers.
func (w *peerWait) peerFix() string {
	peer, times := w.in.peerText(w.top), w.answerTimes(w.top)
	if l := peerAdviceOf(w.top); l != nil && w.callsOnce {
		return w.cachedFix(l.fix(cmp.Or(l.answerAdvice, l.peerAdvice)))
	} else if l != nil {
		return l.fix(l.peerAdvice)
	}
	if !w.callsOnce {
		return textOf("fix slow-peer", "peer", peer, "times", times)
	}
	if w.callsElsewhere(w.calls) {
		return textOf("fix asked-elsewhere", "peer", peer, "times", times)
	} else if n := w.parallelCallsNextTo(w.calls); n > 0 {
		return textOf("fix asked-beside-parallel", "peer", peer, "times", times, "n", math.Round(n))
	}
	return w.cachedFix(textOf("fix asked-once", "peer", peer, "times", times))
}

// answerNS returns the mean time that requests of a band wait for answers at a route's site; 0 if they do not.
func answerNS(band *report.Band, top *causeRoute) int64 {
	if band == nil {
		return 0
	}
	c := firstMatch(band.Causes, func(c *report.Cause) bool { return causeSiteOf(c) == causeSiteOf(top.Cause) && c.Site.Equal(top.Site) })
	if c == nil || c.Requests == 0 {
		return 0
	}
	return c.TotalNS / int64(c.Requests)
}

// answerTimes returns how long requests wait for a peer's answers at a route, usually and if they are slow, as a phrase in brackets.
func (a *attribution) answerTimes(top *causeRoute) string {
	usualNS, slowNS := cmp.Or(answerNS(a.group.Band(report.Band5090), top), answerNS(a.group.All(), top)), answerNS(a.group.Tail(), top)
	if usualNS == 0 {
		return ""
	} else if float64(slowNS) < (1+threshold.MajorShare)*float64(usualNS) {
		return textOf("phrase answer-time", "time", words.Brief(usualNS))
	}
	return textOf("phrase answer-times", "time", words.Brief(usualNS), "slow", words.Brief(slowNS))
}

// setUsualAnswer changes the prediction of a verdict on answers of which some take far longer than usual. It assumes that each
// answer takes the mean time of band p50-90, instead of none.
func (w *peerWait) setUsualAnswer(v *Verdict) {
	usualNS := answerNS(w.group.Band(report.Band5090), w.top)
	if usualNS == 0 || len(v.Changes) != 1 {
		return
	}
	if w.cand.gain.Slow.NS < threshold.FarFactor*usualNS || w.waitAsLong() || w.haveLongBodies() {
		return
	}
	change := v.Changes[0]
	change.Relative, change.To = false, time.Duration(usualNS).Round(10*time.Microsecond)
	goneGain, usualGain := w.in.predict(w.group.ID, v.Changes[0]), w.in.predict(w.group.ID, change)
	if goneGain == nil || usualGain == nil || usualGain.P99NS.Est-goneGain.P99NS.Est > threshold.FarFactor*usualNS {
		return // an answer is many waits, as for the reader of a shared connection: no wait has its usual time
	}
	if median := usualGain.WasP50NS; median != nil && *median <= usualNS {
		usualGain.P50NS = report.Estimate{Est: *median, Low: *median, High: *median} // the median request has no answer that takes longer
	}
	v.Changes, v.Predicted = []predict.Change{change}, usualGain
	v.ChangeText = textOf("phrase change-usual", "time", words.Brief(usualNS))
	v.Fix = textOf("fix late-answers", "peer", w.in.peerText(w.top), "time", words.Brief(usualNS))
	if counts := w.callCountsAt(w.top); counts != nil && counts.SlowCaller != nil && isOwnCode(counts.SlowCaller) {
		v.Fix, v.InService = textOf("fix late-answers-of-caller", "caller", counts.SlowCaller), true
		v.Title = textOf("title late-answers-of-caller", "title", v.Title, "caller", counts.SlowCaller)
	}
}

// protocolOf returns by which protocol requests ask a peer at a route, if a known library does; else "".
func protocolOf(p *causeRoute) string {
	if l := libraryOfRoute(p); l != nil && l.server != "" {
		return l.server
	}
	isHTTP := func(call string) bool {
		return knowledge.Has(call, knowledge.HTTP1RoundTrip) || knowledge.Has(call, knowledge.ResponseBody) || strings.HasPrefix(call, "net/http.")
	}
	if isHTTP(p.Call) || p.Site != nil && isHTTP(p.Site.Func) || slices.ContainsFunc(p.via, func(v report.Via) bool { return isHTTP(v.Call) }) {
		return "HTTP"
	}
	return ""
}

// answerText names what requests wait for at a route: a peer's answer and, if a known library asks for it, from what.
func answerText(p *causeRoute) string {
	if protocol := protocolOf(p); protocol != "" {
		return textOf("phrase peer-answer-of", "server", protocol)
	}
	return textOf("phrase peer-answer")
}

// peerText names the peer of a route: by the addresses to which the process has opened TCP connections, if these are few, else by its protocol and
// the line that asks it. If nothing but the trace was recorded, it says what shows the address.
func (in *Input) peerText(p *causeRoute) string {
	key, protocol, peers := textKey("phrase peer"), protocolOf(p), []string(nil)
	if protocol != "" {
		key = "phrase peer-of"
	}
	text := textOf(key, "server", protocol)
	if in.Report.Host != nil {
		peers = slices.Sorted(slices.Values(in.Report.Host.Network.Peers))
	}
	position := names.Position(nonStdSite(p.Cause, p.via).OwnLine())
	switch n := len(peers); {
	case n == 1:
		return textOf("phrase peer-known", "peer", text, "address", peers[0])
	case 1 < n && n <= 3:
		peers = in.withRoundTrips(peers)
		return textOf("phrase peers-known", "peer", text, "addresses", strings.Join(peers[:n-1], ", "), "last", peers[n-1])
	case position == "":
	case in.Report.Host == nil:
		return textOf("phrase peer-unrecorded", "peer", text, "position", position)
	default:
		return textOf("phrase peer-called", "peer", text, "position", position)
	}
	return text
}

// withRoundTrips adds to each address the mean of the kernel's smoothed round trips on its connections, where these are known: Linux
// acknowledges a request with its answer, for up to 40 ms, so a slow peer's round trips are long. The longest comes first.
func (in *Input) withRoundTrips(peers []string) []string {
	meanNS := func(peer string) (ns int64) {
		n := int64(0)
		for s := range each(in.Report.Host.Network.Sockets) {
			if s.Remote == peer && s.RTTNS > 0 {
				ns, n = ns+s.RTTNS, n+1
			}
		}
		return ns / max(n, 1)
	}
	if slices.ContainsFunc(peers, func(peer string) bool { return meanNS(peer) == 0 }) {
		return peers
	}
	slices.SortStableFunc(peers, func(a, b string) int { return cmp.Compare(meanNS(b), meanNS(a)) })
	texts, key := make([]string, len(peers)), textKey("phrase peer-round-trip")
	for i, peer := range peers {
		texts[i], key = textOf(key, "address", peer, "time", words.Brief(meanNS(peer))), "phrase next-round-trip"
	}
	return texts
}

// A knownPeer describes a peer that may be this process itself.
type knownPeer struct {
	awaited, fix string
	evidence     []report.Evidence
	isUncertain  bool // the peer may be another one
	isElsewhere  bool // most of the wait belongs to requests of a group that has other findings
}

// describeKnownPeer returns words and evidence for a group of this process that answers another one. Other recordings are not yet known to rules.
// peerAdvice is the advice for an unknown peer, for a match that is uncertain.
func describeKnownPeer(r *report.Report, peer *report.Peer, peerAdvice string) (out knownPeer) {
	name, waitText, servedText := names.PeerNames(peer), words.Brief(peer.WaitNS), words.Brief(peer.ServedNS)
	if peer.Followed() {
		// The work there has findings of its requests: this is the rest.
		return knownPeer{awaited: textOf("phrase own-round-trip", "peer", name), fix: textOf("fix own-round-trip", "wait", waitText, "served", servedText)}
	}
	restText := textOf("phrase served-for", "served", servedText, "wait", waitText)
	switch {
	case peer.Confidence < 0.8:
		// Only the times fit: the wait and its usual advice are certain.
		out.awaited, out.fix, out.isUncertain = textOf("phrase perhaps-own-peer", "peer", name), peerAdvice, true
		if r.Host == nil {
			out.fix = textOf("fix perhaps-own-peer", "fix", peerAdvice, "url", traceURL(r))
		}
	default:
		out.awaited, out.fix = textOf("phrase own-peer", "peer", name), textOf("fix own-peer", "peer", name, "rest", restText)
		if c := largestCause(r, peer.Group); c != nil {
			out.fix = textOf("fix own-peer-cause", "peer", name, "share", words.Percent(c.Share), "cause", c.Cause, "site", c.Site, "rest", restText)
		}
		out.isElsewhere = r.Group(peer.Group) != nil && 2*peer.ServedNS >= peer.WaitNS
	}
	out.evidence = []report.Evidence{
		evidenceOf("evidence peer-waits", float64(peer.Held)/float64(max(peer.Waits, 1)), "share", "n", peer.Waits, "peer", name),
		evidenceOf("evidence peer-waits-by-chance", peer.ByChance, "share"),
	}
	for _, part := range []struct {
		key textKey
		ns  *int64
	}{
		{"evidence peer-before", peer.ThereNS}, {"evidence peer-unread", peer.UnseenNS}, {"evidence peer-after", peer.BackNS}, {"evidence peer-late", &peer.LateNS},
	} {
		if part.ns != nil && *part.ns > 0 {
			out.evidence = append(out.evidence, evidenceOf(part.key, *part.ns, "ns"))
		}
	}
	return out
}

// rewriteForLostAnswers rewrites a verdict on calls that nearly all get an answer, the others when a deadline has passed and they are sent
// again, as over UDP. The change is a deadline of ten usual answers: hardly an answer that comes takes longer.
func (w *peerWait) rewriteForLostAnswers(v *Verdict) bool {
	const usualAnswers = 10
	if !w.isUnknownPeer || w.group.Peer != nil {
		return false
	}
	var all queues.PeerCalls // of all groups
	for _, group := range w.in.PeerCalls {
		for c := range each(group) {
			if c.Site.Equal(w.calls.Site) {
				all.TotalCalls, all.TotalNS, all.Resent = all.TotalCalls+c.TotalCalls, all.TotalNS+c.TotalNS, all.Resent+c.Resent
				all.Unanswered, all.UnansweredNS = all.Unanswered+c.Unanswered, all.UnansweredNS+c.UnansweredNS
			}
		}
	}
	if all.Resent < threshold.Repeats || 2*all.Resent < all.Unanswered || ratio(all.Unanswered, all.TotalCalls) > threshold.MajorShare {
		return false
	}
	deadlineNS, usualNS := all.UnansweredNS/all.Unanswered, (all.TotalNS-all.UnansweredNS)/(all.TotalCalls-all.Unanswered)
	deadline, limit := words.Brief(deadlineNS), words.Brief(usualAnswers*usualNS)
	v.Title = textOf("title lost-answers", "site", v.Site, "deadline", deadline)
	v.prependEvidence(evidenceOf("evidence lost-answers", all.Resent, "count", "n", all.TotalCalls))
	if v.InService = deadlineNS > threshold.FarFactor*usualAnswers*usualNS; !v.InService {
		v.Fix, v.MaxSeverity = textOf("fix lost-answers", "peer", w.in.peerText(w.top), "time", words.Brief(usualNS)), report.SeverityLow
		return true
	}
	v.Fix = textOf("fix lost-answers-late", "time", words.Brief(usualNS), "deadline", deadline, "limit", limit)
	if l := libraryOfRoute(w.top); l != nil && l.retryAdvice != "" {
		v.Fix = l.fix(strings.NewReplacer("{length}", deadline, "{shorter}", limit).Replace(l.retryAdvice))
	}
	v.Gain = w.cand.gain
	v.shortenTo(time.Duration(usualAnswers*usualNS), textOf("phrase change-lost", "limit", limit))
	return true
}

// rewriteForUnanswered rewrites a verdict on waits that mostly ended without an answer.
func (w *peerWait) rewriteForUnanswered(v *Verdict) bool {
	if !w.isUnanswered || w.group.Peer != nil || !w.isUnknownPeer && (w.isAnswer || !knowledge.Has(w.top.Call, knowledge.Dial)) {
		return false
	}
	v.Gain = w.cand.gain // no part of it is the time of an answer
	v.Title, v.Fix = textOf("title unanswered", "site", v.Site), textOf("fix unanswered")
	v.prependEvidence(
		evidenceOf("evidence unanswered", w.calls.Unanswered, "count"),
		evidenceOf("evidence unanswered-length", float64(w.calls.UnansweredNS)/float64(w.calls.Unanswered), "ns"))
	return true
}

// rewriteForAckDelays rewrites a verdict on waits for the rest of an answer that the peer's kernel holds back until this kernel
// has acknowledged the first part (Nagle's algorithm and delayed acknowledgements). Such waits are all about equally long,
// whatever the peer does.
func (w *peerWait) rewriteForAckDelays(v *Verdict) bool {
	if w.group.Peer != nil || !w.calls.DelaysAcks() {
		return false
	}
	meanNS := w.calls.AckDelayNS / w.calls.AckDelays
	v.Title, v.Fix = textOf("title ack-delay", "mean", words.Brief(meanNS), "site", v.Site), textOf("fix ack-delay")
	v.prependEvidence(
		evidenceOf("evidence ack-delays", w.calls.AckDelays, "count", "n", w.calls.LaterParts),
		evidenceOf("evidence ack-delay-length", meanNS, "ns"))
	v.Confidence *= 0.9                                                                 // no event shows the acknowledgement: the length fits
	v.Gain = w.cand.gain.scaled(float64(w.calls.AckDelayNS) / float64(w.calls.TotalNS)) // the rest is the time of the peer
	v.Changes = []predict.Change{predict.Remove(report.CauseNetwork, predict.SiteText(w.cand.routes[0].Site, report.CauseNetwork))}
	return true
}

// rewriteForSplitRequests rewrites a verdict on calls whose request is written in two parts, of which this kernel perhaps holds the second
// one back. The trace does not show TCP_NODELAY, which Go sets on each connection.
func (w *peerWait) rewriteForSplitRequests(v *Verdict) bool {
	if w.group.Peer != nil || !w.calls.SplitsRequests() {
		return false
	}
	meanNS := w.calls.SplitDelayNS / w.calls.SplitDelays
	v.Title, v.Fix, v.InService = textOf("title split-request", "mean", words.Brief(meanNS), "site", v.Site), textOf("fix split-request"), true
	v.prependEvidence(
		evidenceOf("evidence split-requests", w.calls.SplitDelays, "count", "n", w.calls.SplitCalls),
		evidenceOf("evidence ack-delay-length", meanNS, "ns"))
	v.doubt(0.6, textOf("phrase doubt-split-request"))
	remainingNS := max(0, meanNS-queues.UsualAckDelayNS)
	v.Gain = w.cand.gain.scaled(1 - float64(remainingNS)/float64(meanNS))
	v.shortenTo(time.Duration(remainingNS).Round(100*time.Microsecond), textOf("phrase change-unsplit", "time", words.Brief(remainingNS)))
	return true
}

// rewriteForLoadDependence rewrites a verdict on a peer whose answers take far longer the more calls are under way: the calls wait for each
// other. The change is that an answer takes as long as with few calls.
func (w *peerWait) rewriteForLoadDependence(v *Verdict) bool {
	load := &w.calls.LoadDependence
	if load.CallsAtOnce == 0 {
		return false
	}
	usualTime := words.Brief(load.UnloadedNS)
	v.CallsAtOnce, v.isAnswerTime = load.CallsAtOnce, true
	v.Title = textOf("title load-dependent-peer", "n", load.CallsAtOnce, "loaded", words.Brief(load.LoadedNS), "unloaded", usualTime, "site", v.Site)
	v.Fix = textOf("fix load-dependent-peer", "peer", w.in.peerText(&w.cand.routes[0]))
	v.Gain = w.cand.gain.scaled(1 - float64(load.UnloadedNS)/float64(load.LoadedNS))
	v.shortenTo(time.Duration(load.UnloadedNS).Round(10*time.Microsecond), textOf("phrase change-unloaded", "time", usualTime))
	return true
}

// rewriteForSerialAnswers rewrites a verdict on calls that the peer answers one at a time. The change is that each takes as long as one that
// finds no other under way.
func (w *peerWait) rewriteForSerialAnswers(v *Verdict) bool {
	serial := &w.calls.Serial
	if serial.CallsAtOnce == 0 {
		return false
	}
	serviceTime := words.Brief(serial.ServiceNS)
	v.CallsAtOnce, v.isAnswerTime = serial.CallsAtOnce, true
	v.Title = textOf("title serial-peer", "time", serviceTime, "site", v.Site)
	v.Fix = textOf("fix serial-peer", "peer", w.in.peerText(&w.cand.routes[0]))
	v.prependEvidence(evidenceOf("evidence serial-wait", serial.QueuedNS, "ns", "n", serial.CallsAtOnce))
	v.Gain = w.cand.gain.beyond(serial.ServiceNS)
	v.shortenTo(time.Duration(serial.ServiceNS).Round(10*time.Microsecond), textOf("phrase change-unloaded", "time", serviceTime))
	return true
}

// rewriteForAnswerTicks rewrites a verdict on answers that come only when a ticker of the peer fires. The change is that each comes when it
// is ready: a wait for the tick takes half a period on average, and the mean of n such waits differs from that with a standard deviation of a
// period / √(12 n), of which two bound the prediction. How far slow answers are from the mean is unknown: twice as far, at most.
func (w *peerWait) rewriteForAnswerTicks(v *Verdict) bool {
	periodNS := w.calls.TickPeriodNS
	if periodNS == 0 {
		return false
	}
	v.isAnswerTime = true
	readyNS := max(0, w.top.TotalNS/int64(max(w.top.Requests, 1))-periodNS/2)
	period, readyTime := words.Brief(periodNS), words.Brief(readyNS)
	v.Title, v.Fix = textOf("title ticked-peer", "period", period, "site", v.Site), textOf("fix ticked-peer", "peer", w.in.peerText(w.top), "period", period)
	if l := libraryOfRoute(w.top); l != nil && l.tickAdvice != "" {
		v.Fix, v.InService = l.fix(l.tickAdvice), true
	}
	v.prependEvidence(evidenceOf("evidence ticked-answers", periodNS, "ns"))
	v.doubt(0.8, textOf("phrase doubt-ticked-peer"))
	v.Gain = w.cand.gain.beyond(readyNS)
	v.shortenTo(time.Duration(readyNS).Round(100*time.Microsecond), textOf("phrase change-unticked", "time", readyTime))
	if v.Predicted = w.in.predict(w.group.ID, v.Changes...); v.Predicted != nil {
		marginNS := int64(2 * float64(periodNS) / math.Sqrt(12*float64(w.top.Requests)))
		v.Predicted.P50NS = report.Estimate{Est: readyNS, Low: max(0, readyNS-marginNS), High: readyNS + marginNS}
		v.Predicted.P99NS = report.Estimate{Est: readyNS, Low: v.Predicted.P50NS.Low, High: 2 * v.Predicted.P50NS.High}
	}
	return true
}

// rewriteForPeerLock rewrites a verdict on calls whose answers come when another request ends its transaction, as the change of that
// transaction. The answers then take as long as those that do not wait for a lock.
func (w *peerWait) rewriteForPeerLock(v *Verdict) bool {
	lock := w.calls.Lock
	if lock.Release == nil {
		lock = w.calls.LockAmong(w.callsOfOthers())
	}
	if lock.Release == nil {
		return false
	}
	v.Title = textOf("title row-lock", "site", v.Site, "release", lock.Release.OwnLine())
	v.Fix, v.InService = textOf("fix row-lock", "site", v.Site.OwnLine(), "release", lock.Release.OwnLine()), true
	v.prependEvidence(evidenceOf("evidence row-lock", lock.Waits, "count", "n", lock.Long))
	v.doubt(0.65, textOf("phrase doubt-row-lock"))
	if lock.Work != nil {
		v.Title = textOf("title row-lock-held", "site", v.Site, "release", lock.Release.OwnLine(), "work", lock.Work.OwnLine())
		v.Fix = textOf("fix row-lock-held", "site", v.Site.OwnLine(), "release", lock.Release.OwnLine(), "work", lock.Work.OwnLine())
		v.doubt(0.8, textOf("phrase doubt-row-lock")) // the lock's time is not the peer's own
	}
	v.Gain = w.cand.gain
	v.shortenTo(time.Duration(lock.AloneNS).Round(10*time.Microsecond), textOf("phrase change-unlocked", "time", words.Brief(lock.AloneNS)))
	return true
}

// rewriteForDeadlocks rewrites a verdict on calls of transactions that wait for each other's locks until the peer ends one of them. The answers
// then take at most as long as nearly all others, and no request pauses to do its transaction again.
func (w *peerWait) rewriteForDeadlocks(v *Verdict) bool {
	locks := &w.calls.Deadlocks
	if locks.Count == 0 || !w.isUnknownPeer {
		return false
	}
	v.Title = textOf("title deadlocks", "site", v.Site, "time", words.Brief(locks.WaitNS))
	v.Fix, v.InService = textOf("fix deadlocks", "pause", w.calls.Pause), true
	v.prependEvidence(evidenceOf("evidence deadlocks", locks.Count, "count"))
	v.doubt(0.75, textOf("phrase doubt-row-lock"))
	v.Gain = w.cand.gain.beyond(locks.OtherNS)
	v.shortenTo(time.Duration(locks.OtherNS).Round(10*time.Microsecond), textOf("phrase change-undeadlocked", "time", words.Brief(locks.OtherNS)))
	if w.calls.Pause != nil {
		v.Changes = append(v.Changes, predict.Remove(report.CauseSleep, predict.SiteText(w.calls.Pause, report.CauseSleep)))
	}
	return true
}

// callsOfOthers returns the calls of peers of other groups, and of goroutines that serve no requests.
func (a *attribution) callsOfOthers() []queues.PeerCalls {
	calls := slices.Clone(a.in.BackgroundCalls)
	for _, group := range slices.Sorted(maps.Keys(a.in.PeerCalls)) {
		if group != a.group.ID {
			calls = append(calls, a.in.PeerCalls[group]...)
		}
	}
	return calls
}

// rewriteForCallHolder rewrites a verdict on answers that are late while the peer works for another call of this process, as the change of
// that call. An answer then takes at most as long as nearly all to calls at other times. It returns false if there is no such call.
func (w *peerWait) rewriteForCallHolder(v *Verdict) bool {
	holder := w.calls.HolderAmong(w.callsOfOthers())
	if holder.Line == nil {
		return false
	}
	v.Title = textOf("title call-holder", "site", v.Site, "call", holder.Line)
	v.Fix, v.InService = textOf("fix call-holder", "call", holder.Line), true
	v.prependEvidence(
		evidenceOf("evidence held-answers", holder.During, "count", "n", holder.Late),
		evidenceOf("evidence held-by-chance", holder.UsualShare, "share"))
	v.doubt(0.8, textOf("phrase doubt-call-holder"))
	v.Gain = w.cand.gain.beyond(holder.UsualNS)
	v.shortenTo(time.Duration(holder.UsualNS).Round(10*time.Microsecond), textOf("phrase change-unheld", "time", words.Brief(holder.UsualNS)))
	return true
}

// rewriteForBlockedSender rewrites a verdict on a peer for which requests do not wait themselves: their messages lie behind others that a goroutine
// cannot hand over, because the receiver makes a call for each, or writes to a peer that reads slowly. It returns false if no wait chain shows that.
func (w *peerWait) rewriteForBlockedSender(v *Verdict) bool {
	if !w.isAnswer && !knowledge.Has(w.top.Call, knowledge.ConnectionWrite) || w.group.Peer != nil {
		return false
	}
	title, fix, sender := textKey("title blocked-sender"), textKey("fix blocked-sender"), (*report.Site)(nil)
	if !w.isAnswer {
		title, fix, sender = "title blocked-sender-of-writer", "fix blocked-sender-of-writer", w.blockedBroadcaster()
	} else if i := slices.IndexFunc(w.top.via, func(via report.Via) bool { return via.Wait == report.WaitChanSend }); i > 0 {
		sender = w.top.via[i].Site // if it is the first wait, the request itself sends: it queues for the receiver
	}
	if sender == nil {
		return false
	}
	receiver := nonStdSite(w.top.Cause, w.top.via).OwnLine()
	v.Title = textOf(title, "sender", sender, "receiver", receiver)
	v.Fix, v.InService, v.ChangeText = textOf(fix, "sender", sender, "receiver", receiver), true, textOf("phrase change-unblocked")
	return true
}

// blockedBroadcaster returns where a goroutine that requests wait for cannot hand a message to another one, which writes to a slow reader; nil if
// there is no such line. Other messages wait, too, if requests of any group reach that wait through one of their own.
func (w *peerWait) blockedBroadcaster() *report.Site {
	if len(w.top.via) == 0 {
		return nil
	}
	last := w.top.via[len(w.top.via)-1]
	if last.Wait != report.WaitSelect && last.Wait != report.WaitChanSend {
		return nil
	}
	for g := range each(w.in.Report.Groups) {
		for c, r := range w.in.attributionOf(g).routes(g.All()) {
			if n := len(r.Via); n >= 2 && causeSiteOf(c) == causeSiteOf(w.top.Cause) && r.Via[n-1].Site.Matches(last.Site) {
				return last.Site
			}
		}
	}
	return nil
}

// rewriteForOwnWorker rewrites a verdict on waits for answers that a loop of this process sends through a broker, one at a time. It returns
// false if there is no such loop.
func (w *peerWait) rewriteForOwnWorker(v *Verdict) bool {
	worker, fix := w.ownWorker(), textKey("fix own-worker")
	if worker == nil {
		return false
	}
	if worker.Goroutines > 1 {
		fix = "fix own-workers"
	}
	name, length := words.FuncName(worker.Name), words.Brief(worker.MeanNS)
	v.Title, v.InService = textOf("title own-worker", "worker", name, "time", length, "site", v.Site.OwnLine()), true
	v.Fix = textOf(fix, "worker", name, "n", worker.Goroutines)
	v.prependEvidence(evidenceOf("evidence own-worker", worker.AnswerShare, "share", "worker", name, "chance", words.Percent(worker.ChanceShare)))
	v.doubt(0.9*worker.AnswerShare, textOf("phrase doubt-own-worker"))
	// A wait consists of many reads of the connection, so no change of their length has the effect: without the wait, the message's own time remains.
	if v.Predicted = w.in.predict(w.group.ID, v.Changes...); v.Predicted != nil {
		v.Predicted.ChangeText = textOf("phrase change-own-message", "time", length)
		v.Predicted.Change = v.Predicted.ChangeText
		v.Predicted.P50NS = laterEstimate(v.Predicted.P50NS, worker.MeanNS, worker.MeanNS)
		for _, e := range []*report.Estimate{v.Predicted.P90NS, &v.Predicted.P99NS, v.Predicted.MaxNS} {
			if e != nil {
				*e = laterEstimate(*e, worker.MeanNS, worker.MaxNS)
			}
		}
	}
	v.Gain, v.Changes, v.ChangeText = w.cand.gain.beyond(worker.MeanNS), []predict.Change{}, ""
	v.Share = v.Gain.All.Share
	v.addEvidence(evidenceOf("evidence own-worker-queue", v.Gain.Slow.NS, "ns"))
	return true
}

// rewriteForBlockingCall makes a verdict a fact if the requests wait in a call that blocks by its definition until the peer has something.
// If they first ask the same peer for something else, it may be the result of that: then its sender is late.
func (w *peerWait) rewriteForBlockingCall(v *Verdict) bool {
	if 2*w.calls.BlockingNS <= w.calls.TotalNS || w.ownWorker() != nil {
		return false
	}
	asksBefore := slices.ContainsFunc(w.in.PeerCalls[w.group.ID], func(o queues.PeerCalls) bool {
		return 2*o.Requests > w.calls.Requests && o.BlockingNS == 0 && o.Site.Module == w.calls.Site.Module
	})
	if asksBefore && w.rewriteForAnswerTicks(v) {
		period := words.Brief(w.calls.TickPeriodNS)
		v.Title, v.Fix = textOf("title ticked-message", "period", period, "site", v.Site), textOf("fix ticked-message", "period", period)
		return true
	}
	if asksBefore {
		v.Title, v.Fix = textOf("title message", "site", v.Site), textOf("fix message")
		v.Changes, v.ChangeText, v.MaxSeverity = []predict.Change{}, "", report.SeverityMedium // the sender may be late on purpose
		return w.rewriteForOneAnswer(v)
	}
	v.Title, v.Fix = textOf("title blocking-call", "site", v.Site.OwnLine()), textOf("fix blocking-call")
	v.Fact, v.Changes, v.ChangeText = true, []predict.Change{}, ""
	return true
}

// rewriteForTimeLimit makes a verdict a fact if the requests wait for calls that end at an event of a peer, or at a limit that the service
// chose (BRPOP of Redis, a long poll): one request in ten ends at the same limit of a second or more, and others after any part of it. Answers
// of a peer that computes them do not. It returns false for other requests.
func (w *peerWait) rewriteForTimeLimit(v *Verdict) bool {
	l := &w.group.LatencyNS
	if v.Share < threshold.NearlyAllShare || l.P90 == nil || l.Max == nil || *l.Max < threshold.PatienceNS || float64(*l.P90) < (1-threshold.NoiseShare)*float64(*l.Max) {
		return false
	}
	earlier, partly := int64(0), int64(0)
	for _, bucket := range w.group.Histogram {
		if share := float64(bucket[0]) / float64(*l.Max); share < threshold.NearlyAllShare {
			earlier += bucket[1]
			partly += bucket[1] * int64(oneIf(share >= threshold.NoticeableShare))
		}
	}
	if ratio(earlier, int64(w.group.Count)) < threshold.MajorShare || ratio(partly, int64(w.group.Count)) < threshold.MinorShare || partly < threshold.SmallSample {
		return false
	}
	limit := words.Brief(*l.P90)
	v.Title = textOf("title time-limit", "site", v.Site.OwnLine(), "limit", limit)
	v.Fix, v.Fact, v.Changes = textOf("fix time-limit", "limit", limit), true, []predict.Change{}
	return true
}

// ownWorker returns the loop of this process that answers the requests, one message at a time; nil if there is none.
func (w *peerWait) ownWorker() *queues.OwnWorker {
	if service := w.in.serviceAt(w.top.Cause, w.top.via); service != nil {
		return service.Worker
	}
	return nil
}

// laterEstimate returns an estimate of a latency that becomes longer by usualNS, at most by mostNS.
func laterEstimate(e report.Estimate, usualNS, mostNS int64) report.Estimate {
	return report.Estimate{Est: e.Est + usualNS, Low: e.Low + usualNS, High: e.High + mostNS}
}

// rewriteForOrderedAnswers rewrites a verdict on calls that queue for each other on one connection, because its answers come in the order
// of the calls. It returns false if there is no such queue, or a library without advice about it reads the answers: a broker's messages
// may come in order for other reasons.
func (w *peerWait) rewriteForOrderedAnswers(v *Verdict) bool {
	service, fix := w.in.serviceAt(w.top.Cause, w.top.via), textOf("fix ordered-answers")
	if service == nil || service.AheadShare < threshold.MajorShare {
		return false
	}
	if l := libraryOfRoute(w.top); l != nil && l.orderAdvice != "" {
		fix = l.fix(l.orderAdvice)
	} else if !isOwnCode(w.top.Site) {
		return false
	}
	v.Title, v.Fix, v.InService = textOf("title ordered-answers", "site", v.Site), fix, true
	v.prependEvidence(evidenceOf("evidence ordered-answers", service.AheadShare, "share"))
	v.Gain = w.cand.gain.scaled(service.AheadShare)
	v.Changes, v.ChangeText = []predict.Change{predict.Remove(predict.Queue, predict.SiteText(v.Site.OwnLine(), ""))}, textOf("phrase change-unordered")
	return true
}

// rewriteForLargeAnswers rewrites a verdict on answers of which most of the time is that of their later parts, which follow at once: then an
// answer is large. Advice is known for some libraries; other peers may send a stream. It returns false if the answers are not large.
func (w *peerWait) rewriteForLargeAnswers(v *Verdict) bool {
	const leastParts, mostApartNS = 8, 500e3 // of an answer, and between two parts: a network's round trip, or the turn of another's answer, takes longer
	l := libraryOfRoute(w.top)
	if l == nil || l.largeAdvice == "" || w.calls.Calls == 0 || w.calls.Parts < leastParts*w.calls.Calls || w.calls.RestNS > mostApartNS*w.calls.Parts {
		return false
	}
	v.Title, v.InService = textOf("title large-answers", "n", words.Figure(math.Round(float64(w.calls.Parts)/float64(w.calls.Calls))+1), "site", v.Site), true
	v.Fix = l.fix(l.largeAdvice)
	v.prependEvidence(evidenceOf("evidence large-answers", float64(w.calls.RestNS)/float64(w.calls.Calls), "ns"))
	v.MaxSeverity = report.SeverityMedium
	v.doubt(0.7, textOf("phrase doubt-large-answers"))
	restShare := min(1, float64(w.calls.RestNS)/float64(w.calls.Calls)/float64(*w.group.LatencyNS.Mean))
	v.Share, v.Gain = gainWithoutPart(w.group, func(*report.Cause) float64 { return restShare })
	v.Changes, v.ChangeText = []predict.Change{}, ""
	return true
}

// predictAs sets the prediction of a verdict for its changes, whose condition is the text change.
func (a *attribution) predictAs(v *Verdict, change textKey) {
	if v.Predicted = a.in.predict(a.group.ID, v.Changes...); v.Predicted != nil {
		v.Predicted.ChangeText = textOf(change)
	}
}

// rewriteForParallelCalls rewrites a verdict on parallel calls, of which the slowest decides. It is at most low if they have a deadline already.
func (w *peerWait) rewriteForParallelCalls(v *Verdict) bool {
	if !w.isParallel || w.group.Peer != nil {
		return false
	}
	w.describeLastAnswer(v)
	if v.isAnswerTime = true; v.MaxSeverity != report.SeverityLow && w.endsAtDeadline() {
		v.Fix, v.MaxSeverity = textOf("fix last-answer-until-deadline"), report.SeverityLow
	}
	return true
}

// endsAtDeadline reports whether a deadline ends some of the waits at the line of the calls: they may take until then.
func (w *peerWait) endsAtDeadline() bool {
	return slices.ContainsFunc(w.group.All().Causes, func(c report.Cause) bool {
		return verdict.KindOf(&c) == verdict.Deadline && c.Site.OwnLine().Equal(w.top.ownLine())
	})
}

// describeLastAnswer sets title, fix and evidence for parallel calls, and returns a phrase for the awaited answer. If no answer is far
// slower than the others, all peers take that long and the service cannot change it: the severity is at most low.
func (w *peerWait) describeLastAnswer(v *Verdict) (awaited string) {
	calls := w.calls
	n := float64(calls.FanOut) / float64(calls.Requests)
	v.prependEvidence(
		evidenceOf("evidence parallel-askers", n, "count"),
		evidenceOf("evidence last-answer", float64(calls.FanOutLastNS)/float64(calls.Requests), "ns"),
		evidenceOf("evidence other-answers", float64(calls.FanOutOthersNS)/float64(calls.Requests), "ns"))
	awaited = textOf("phrase last-answer", "n", words.Figure(n), "site", v.Site)
	v.Title, v.Fix = textOf("title slow-peer", "awaited", awaited), textOf("fix last-answer")
	if calls.FanOutLastNS < threshold.FarFactor*calls.FanOutOthersNS {
		v.Fix = textOf("fix parallel-answers", "peer", w.in.peerText(w.top), "last", words.Brief(calls.FanOutLastNS/calls.Requests), "others", words.Brief(calls.FanOutOthersNS/calls.Requests))
		v.MaxSeverity, v.Changes = report.SeverityLow, []predict.Change{}
	}
	return awaited
}

// mayBeClient reports whether a network wait may be for a client's next message: in a process that accepts connections
// for an unknown protocol, on the goroutine's own path in the service's code, or where iterations of a loop begin.
func (a *attribution) mayBeClient(c *report.Cause, via []report.Via) bool {
	if !a.in.AcceptsConnections || c.Cause != report.CauseNetwork || !isOwnCode(c.Site) {
		return false
	}
	return a.group.Kind == report.KindGoroutine && len(via) == 0 || slices.ContainsFunc(a.in.Report.Groups, func(g report.Group) bool {
		return g.Kind == report.KindLoop && g.Entry != nil && g.Entry.LineKey() == c.Site.LineKey()
	})
}

// peerCallsAt returns the facts about the calls that requests make to a peer at the line of a route; nil if there are none.
func (a *attribution) peerCallsAt(p *causeRoute) *queues.PeerCalls {
	var via *report.Site
	if v, _ := verdict.AfterLastAnswer(p.via); len(v) > 0 {
		via = v[0].Site
	}
	return firstMatch(a.in.PeerCalls[a.group.ID], func(a *queues.PeerCalls) bool {
		return a.Site.Matches(p.Site) && (a.Via == nil) == (via == nil) && a.Via.Matches(via)
	})
}

// callsElsewhere reports whether the requests that make certain calls also wait long for the answers to others, which are no later parts
// of the same answers.
func (a *attribution) callsElsewhere(calls *queues.PeerCalls) bool {
	return slices.ContainsFunc(a.in.PeerCalls[a.group.ID], func(o queues.PeerCalls) bool {
		return !o.Site.Matches(calls.Site) && 2*o.Requests >= calls.Requests && o.LaterParts < o.Calls && float64(o.AnswerNS) >= threshold.MajorShare*float64(o.AnswerNS+calls.AnswerNS)
	})
}

// parallelCallsNextTo returns how many calls requests make in parallel at the line of other calls, of which each request makes one; 0 if
// that is little of the time.
func (a *attribution) parallelCallsNextTo(calls *queues.PeerCalls) float64 {
	parallel := firstMatch(a.in.PeerCalls[a.group.ID], func(o *queues.PeerCalls) bool {
		return o != calls && o.Site.Matches(calls.Site) && o.FanOut >= 2*o.Requests && float64(o.AnswerNS) >= threshold.NoticeableShare*float64(calls.AnswerNS)
	})
	if parallel == nil {
		return 0
	}
	return float64(parallel.FanOut) / float64(parallel.Requests)
}

// rewriteForSequentialCalls rewrites a verdict on calls that requests make one after another. The prediction is one call in place
// of all; the evidence says what parallel calls would save. Of several lines of one loop, the one with the most time has the verdict, and that
// of each other one is emptied.
func (w *peerWait) rewriteForSequentialCalls(v *Verdict) bool {
	if !w.isSequential {
		return false
	}
	siblings := w.otherLinesOfLoop()
	if slices.ContainsFunc(siblings, func(o *queues.PeerCalls) bool { return compareAnswerTimes(o, w.calls) > 0 }) {
		*v = Verdict{}
		return true
	}
	v.isSequence = true
	top, n := &w.cand.routes[0], float64(w.calls.Calls)/float64(w.calls.Requests)
	site := predict.SiteText(top.Site, report.CauseNetwork)
	v.Fix = sequentialFix(top)
	v.prependEvidence(
		evidenceOf("evidence sequential-answers", n, "count"),
		evidenceOf("evidence sequential-wait", float64(w.calls.AnswerNS)/float64(w.calls.Calls), "ns"))
	v.Changes, v.Gain = []predict.Change{predict.Calls(site, 1)}, w.cand.gain.scaled((1-1/n)*w.calls.SequentialShare())
	for _, line := range siblings {
		perRequest := float64(line.Calls) / float64(line.Requests)
		share, gain := gainWithout(w.group, func(c *report.Cause) bool { return c.Cause == report.CauseNetwork && c.Site.Matches(line.Site) })
		v.addGain(share, gain.scaled((1-1/perRequest)*line.SequentialShare()))
		v.Changes, n = append(v.Changes, predict.Calls(predict.SiteText(line.Site, report.CauseNetwork), 1)), n+perRequest
		v.addEvidence(evidenceOf("evidence sequential-answers-too", perRequest, "count", "line", names.Position(line.Site.OwnLine())))
	}
	times := words.Figure(math.Round(n))
	v.Title = textOf("title sequential-calls", "n", times, "site", v.Site)
	if v.Predicted = w.in.predict(w.group.ID, v.Changes...); v.Predicted != nil {
		v.Predicted.ChangeText = textOf("phrase one-call", "n", times)
		if len(siblings) > 0 {
			v.Predicted.ChangeText = textOf("phrase one-call-for-line", "n", times)
		}
	}
	if len(siblings) > 0 {
		return true
	}
	if p := w.in.predict(w.group.ID, predict.Parallel(site)); p != nil {
		v.addEvidence(evidenceOf("evidence all-in-parallel", p.P50NS.Est, "ns"))
	}
	return true
}

// otherLinesOfLoop returns the calls at other lines of the same function of which requests make as many as at this one, or several for each: lines
// of one loop, or of a loop in another.
func (w *peerWait) otherLinesOfLoop() (siblings []*queues.PeerCalls) {
	from := w.calls.Site.CalledFrom
	if from == nil || w.calls.Via != nil {
		return nil
	}
	for o := range each(w.in.PeerCalls[w.group.ID]) {
		if c := o.Site.CalledFrom; o != w.calls && o.Via == nil && c != nil && c.Func == from.Func && c.Line != from.Line && o.FanOut == 0 && o.AnswerNS > 0 &&
			o.Calls >= threshold.Repeats*o.Requests {
			perOther := float64(max(o.Calls, w.calls.Calls)) / float64(min(o.Calls, w.calls.Calls))
			if math.Abs(perOther-math.Round(perOther)) <= threshold.NoticeableShare*perOther {
				siblings = append(siblings, o)
			}
		}
	}
	return siblings
}

// compareAnswerTimes orders calls by the time of their answers, and those with equal times by their lines.
func compareAnswerTimes(a, b *queues.PeerCalls) int {
	return cmp.Or(cmp.Compare(a.AnswerNS, b.AnswerNS), cmp.Compare(b.Site.OwnLine().Line, a.Site.OwnLine().Line))
}

// sequentialFix returns the advice about calls that requests make one after another.
func sequentialFix(top *causeRoute) string {
	if protocolOf(top) == "HTTP" {
		return textOf("fix sequential-http-calls")
	} else if l := seriesAdviceOf(top); l != nil {
		return textOf("fix sequential-calls-in-library", "library", l.name, "advice", cmp.Or(l.seriesAdvice, l.peerAdvice))
	} else if mover := streamMover(top); mover != "" {
		return textOf("fix sequential-pieces", "function", mover)
	}
	return textOf("fix sequential-calls")
}

// maxCallers is how many of the lines that call a function are named.
const maxCallers = 6

// rewriteForSeveralCalls rewrites a verdict on calls from several lines through the same function, that requests make one after another:
// different ones over HTTP, or also several from one line (isSequential). It returns false, and changes nothing, if they are too few, or
// if most of their time is that of one line. Whether a call needs the answer to one of another line cannot be seen: perhaps only those of
// each line can be made at the same time.
func (w *peerWait) rewriteForSeveralCalls(v *Verdict) bool {
	top, n := &w.cand.routes[0], float64(w.calls.TotalCalls)/float64(max(1, w.calls.Requests))
	if n < threshold.Repeats-threshold.NoticeableShare || w.calls.SequentialShare() > threshold.HalfShare || protocolOf(top) != "HTTP" && !w.isSequential || w.group.Peer != nil || w.isParallel {
		return false
	}
	times := words.Figure(math.Round(n))
	v.Title, v.Fix = textOf("title several-calls", "n", times, "site", v.Site), sequentialFix(top)
	v.isSequence, v.InService = true, true
	var lines []string
	for _, caller := range w.calls.Callers[:min(len(w.calls.Callers), maxCallers)] {
		lines = append(lines, names.Position(caller))
	}
	v.prependEvidence(
		evidenceOf("evidence several-answers", n, "count", "lines", strings.Join(lines, ", ")),
		evidenceOf("evidence sequential-wait", float64(w.calls.TotalNS)/float64(w.calls.TotalCalls), "ns"))
	v.doubt(0.75, textOf("phrase doubt-several-calls"))
	if !w.isSequential {
		v.Fix, v.MaxSeverity, v.Confidence = textOf("fix several-calls"), report.SeverityLow, 0.6
	}
	if w.isSequential && w.calls.Via != nil && isOwnCode(w.top.ownLine()) && !slices.ContainsFunc(w.calls.Callers, isOwnCode) {
		// One line of the service makes all calls, whose answers a library reads at several. Sending and reading belong to a call.
		v.Title, v.Site = textOf("title sequential-calls", "n", times, "site", w.top.ownLine()), w.top.ownLine()
		v.Gain = w.cand.gain.scaled(1 - 1/n)
		v.Changes = []predict.Change{{Site: predict.SiteText(v.Site, ""), Relative: true, Scale: math.Round(100/n) / 100, OwnWork: true}}
		if v.Predicted = w.in.predict(w.group.ID, v.Changes...); v.Predicted != nil {
			v.Predicted.ChangeText = textOf("phrase one-call", "n", times)
		}
		return true
	}
	goneByLine := 1 - float64(w.calls.LongestOfStacksNS)/float64(w.calls.TotalNS)
	if share := w.changeToParallel(v); v.Predicted != nil {
		for was, e := range map[*int64]*report.Estimate{v.Predicted.WasP50NS: &v.Predicted.P50NS, v.Predicted.WasP99NS: &v.Predicted.P99NS, v.Predicted.WasMaxNS: v.Predicted.MaxNS} {
			if was != nil && e != nil {
				e.High = max(e.High, *was-int64(float64(*was-e.Low)*goneByLine/max(share, 1e-9)))
			}
		}
	}
	return true
}

// changeToParallel sets the change that requests make all calls at the same time, and its gain. It returns the share of the waits that
// go away.
func (w *peerWait) changeToParallel(v *Verdict) (share float64) {
	share = 1 - float64(w.calls.LongestNS)/float64(w.calls.TotalNS)
	v.Changes, v.Gain = []predict.Change{predict.Parallel(predict.SiteText(w.top.Site, report.CauseNetwork))}, w.cand.gain.scaled(share)
	w.predictAs(v, "phrase change-parallel")
	return share
}

// rewriteForLimitedCalls rewrites a verdict on calls that requests make on several goroutines, as many as a limit allows: each makes several
// one after the other.
func (w *peerWait) rewriteForLimitedCalls(v *Verdict) bool {
	if !w.isLimited || w.group.Peer != nil {
		return false
	}
	calls := w.calls
	all, perGoroutine := words.Figure(math.Round(float64(calls.FanOutCalls)/float64(calls.Requests))), math.Round(float64(calls.FanOutCalls)/float64(calls.FanOut))
	v.Title = textOf("title limited-calls", "n", all, "goroutines", words.Figure(math.Round(float64(calls.FanOut)/float64(calls.Requests))), "each", words.Figure(perGoroutine), "site", v.Site)
	v.Fix, v.isSequence, v.InService = textOf("fix limited-calls", "n", all), true, true
	if l := adviserAt(func(l *library) string { return l.fanOutAdvice }, w.top.sites()...); l != nil {
		v.Fix = l.fix(strings.ReplaceAll(l.fanOutAdvice, "{n}", all))
	}
	v.prependEvidence(evidenceOf("evidence sequential-wait", float64(calls.FanOutNS)/float64(calls.FanOutCalls), "ns"))
	if perGoroutine < threshold.Repeats {
		v.MaxSeverity = report.SeverityMedium
		v.doubt(0.75, textOf("phrase doubt-several-calls"))
	}
	w.changeToParallel(v)
	return true
}

// streamMover returns the function of package io that the service called on a route, such as io.ReadAll: it moves a stream in pieces, so
// several calls of a peer below it are for one thing. It returns "" if there is none.
func streamMover(p *causeRoute) string {
	for _, s := range p.sites() {
		if s != nil && s.CalledFrom != nil && strings.HasPrefix(s.CalledFrom.Calls, "io.") {
			return s.CalledFrom.Calls
		}
	}
	return ""
}

// largestCause returns the largest cause, with 20 % or more, of the slow requests of the group with an id; nil if there is none.
func largestCause(r *report.Report, id string) *report.Cause {
	g := r.Group(id)
	if g == nil {
		return nil
	}
	return firstMatch(g.Tail().Causes, func(c *report.Cause) bool { return c.Site != nil && c.Share >= 0.2 }) // the largest comes first
}

// readDelay returns the loss of a band's requests because the goroutine that reads their answers was ready but waited for a P.
// Only routes on other goroutines count: there another goroutine also sends, and it queues for the same Ps.
func (c *candidate) readDelay(band *report.Band) Loss {
	if band == nil || band.Count == 0 {
		return Loss{}
	}
	share, ns := 0.0, int64(0)
	for delayed := range each(band.Causes) {
		if !isSched(delayed) || delayed.Site == nil || !slices.ContainsFunc(c.routes, func(p causeRoute) bool { return len(p.via) > 0 && p.Site.Matches(delayed.Site) }) {
			continue
		}
		matchingNS, allNS := routeTimes(delayed, func(_ *report.Cause, via []report.Via) bool { return len(via) > 0 })
		if allNS > 0 {
			share += delayed.Share * float64(matchingNS) / float64(allNS)
			ns += int64(float64(delayed.TotalNS) * float64(matchingNS) / float64(allNS))
		}
	}
	return Loss{Share: share, NS: ns / int64(band.Count)}
}

// peerGain returns what a fix of waits for a peer can save. If at least half of the requests wait for it, only the time beyond
// the mean wait counts, because the mean is taken for the usual time of an answer. Outliers that fall into few separate moments
// are rare (a pause of the peer or the machine), however many requests were open. Delays that are not the peer's, a late reader and
// lost segments, do not count either and are returned as evidence.
func (a *attribution) peerGain(cand *candidate) (gain Gain, evidence []report.Evidence) {
	gain = cand.gain
	usualNS := cand.usualNS(a.group)
	excess := func(l Loss) Loss {
		if l.NS > 0 {
			l.Share *= float64(max(0, l.NS-usualNS)) / float64(l.NS)
		}
		l.NS = max(0, l.NS-usualNS)
		return l
	}
	gain.Slow, gain.OtherTail = excess(gain.Slow), excess(gain.OtherTail)
	if n, isKnown := a.in.OutlierMoments[a.group.ID]; isKnown && areTooRare(n, a.group.Count) {
		if a.group.Tail().Band == report.BandOutliers {
			gain.Slow.IsRare = true
		} else {
			gain.OtherTail.IsRare = true
		}
	}
	gain.ThresholdFactor = threshold.FarFactor
	if delay := cand.readDelay(a.group.Tail()); delay.NS*10 > cand.gain.Slow.NS {
		evidence = append(evidence, evidenceOf("evidence reader-late", delay.NS, "ns"))
		// The trace does not show the sender, which was probably as late.
		gain.All = gain.All.minus(cand.readDelay(a.group.All()))
		gain.Slow = gain.Slow.minus(delay)
		gain.OtherTail = gain.OtherTail.minus(cand.readDelay(otherTail(a.group)))
	}
	if lostShare := retransmitWaitShare(a.group, a.in.Report.Host); lostShare > 0 && slices.ContainsFunc(a.in.Report.Host.Network.Requests, func(w report.HostWait) bool {
		return w.Group == a.group.ID && slices.ContainsFunc(cand.routes, func(p causeRoute) bool { return p.Site.Matches(w.Site) })
	}) {
		evidence = append(evidence, evidenceOf("evidence peer-retransmission", lostShare, "share"))
		withoutLost := func(l Loss) Loss { return l.minus(l.scaled(lostShare)) }
		gain.All, gain.Slow, gain.OtherTail = withoutLost(gain.All), withoutLost(gain.Slow), withoutLost(gain.OtherTail)
	}
	return gain, evidence
}

// usualNS returns the mean time for which requests of the candidate's group wait, if at least half of them do; else 0.
func (c *candidate) usualNS(g *report.Group) (ns int64) {
	for p := range each(c.routes) {
		if p.Requests > 0 && float64(p.Requests) >= threshold.HalfShare*float64(g.Count) {
			ns = max(ns, p.TotalNS/int64(p.Requests))
		}
	}
	return ns
}

// libraryCallEvidence returns the mean time of the slow requests in the library function that waits, nothing if that function is
// not worth naming.
func libraryCallEvidence(cand *candidate, p *causeRoute) (out []report.Evidence) {
	if s := cand.slowRoute(p); s != nil {
		p = s
	}
	if call := libraryCall(p.Call); call != "" {
		out = append(out, evidenceOf("evidence in-call", float64(p.TotalNS)/float64(max(p.Requests, 1)), "ns", "call", call))
	}
	return out
}
