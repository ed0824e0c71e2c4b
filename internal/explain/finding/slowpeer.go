package finding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkSlowPeer is WL2005, slow-peer.
func checkSlowPeer(attr *attribution, cand *candidate) Verdict {
	v, holdsWhenBusy := peerVerdict(attr, cand)
	if n, isKnown := attr.in.OutlierMoments[attr.group.ID]; isKnown && n < attr.group.Band(report.BandOutliers).Count {
		v.addEvidence(measurement("separate moments in which the far slower requests were open", n, "count"))
	}
	v.addEvidence(networkEvidence(attr.in.Report.Host)...)
	if n, hasOtherLoad := measureOtherLoad(attr.in); hasOtherLoad && !holdsWhenBusy {
		v.Confidence *= 1 - n.waitShare
		v.addEvidence(measurement("share of runnable time in which the service's threads waited for a CPU (WL1009): answers may have lain unread meanwhile", n.waitShare, "share"))
	}
	return v
}

// peerVerdict returns the verdict on a candidate, and whether it holds on a busy machine as well. The number of calls
// and missing answers do not depend on the machine, but the time of answers does.
func peerVerdict(attr *attribution, cand *candidate) (Verdict, bool) {
	top := &cand.routes[0]
	awaited, fix := peerAnswer, "call the peer less often, for several things at once, or in parallel; or find out on the peer's side why it is slow"
	if l := libraryOfRoute(top); l != nil && l.peerAdvice != "" {
		fix = "in " + l.name + ": " + l.peerAdvice
	}
	switch call := top.Call; {
	case isDNS(call) || top.Site != nil && isDNS(top.Site.Func):
		awaited, fix = "a name server", "keep connections open so that names are looked up less often, or cache addresses; check why the name server is slow (search domains and ndots ask it several times)"
	case isConnWrite(call):
		awaited, fix = "a peer to read what is sent", "find out why the peer reads slowly; send less, limit the write (SetWriteDeadline), or give a slow reader a separate queue that may overflow"
	case strings.HasPrefix(call, "net.(*Dialer)."), strings.Contains(call, "dial"):
		awaited, fix = "a connection to be opened", "reuse connections ("+httpReuseAdvice+")"
	case strings.HasPrefix(call, "crypto/tls."):
		awaited, fix = "a TLS handshake", "reuse connections, or resume sessions (ClientSessionCache)"
	}
	calls := attr.peerCallsAt(top)
	isParallel := calls != nil && calls.FanOut >= 2*calls.Requests
	isAnswer := awaited == peerAnswer
	maybeClient := isAnswer && attr.mayBeClient(top.Cause, top.via)
	sequential := calls
	if calls == nil || calls.Calls < threshold.Repeats*calls.Requests || calls.AnswerNS == 0 || isParallel || !isAnswer || attr.group.Peer != nil || maybeClient {
		sequential = nil // other advice is better
	}
	isElsewhere, extraEvidence := false, []report.Evidence(nil)
	if attr.group.Peer != nil && isAnswer {
		awaited, fix, extraEvidence, isElsewhere = describeKnownPeer(attr.in.Report, attr.group.Peer, fix)
	}
	confidence := 0.9
	if maybeClient {
		awaited, confidence = "the client's next message, or perhaps for a peer's answer,", 0.4
		fix = "nothing, if it is the client's connection: a wait for what the client sends when it chooses is not a request's latency"
	}
	gain := attr.peerGain(cand)
	if delay := cand.readDelay(attr.group.Tail()); delay.NS*10 > cand.gain.Slow.NS {
		extraEvidence = append(extraEvidence, measurement("part of a slow request's time in which the reader of the answers ran late; the same is assumed for the sender", delay.NS, "ns"))
		// The trace does not show the sender, which was probably as late.
		gain.All = gain.All.minus(cand.readDelay(attr.group.All()))
		gain.Slow = gain.Slow.minus(delay)
		gain.OtherTail = gain.OtherTail.minus(cand.readDelay(otherTail(attr.group)))
	}
	if lostShare := retransmitWaitShare(attr.group, attr.in.Report.Host); lostShare > 0 && slices.ContainsFunc(attr.in.Report.Host.Network.Requests, func(w report.HostWait) bool {
		return w.Group == attr.group.ID && slices.ContainsFunc(cand.routes, func(p causeRoute) bool { return p.Site.Matches(w.Site) })
	}) {
		extraEvidence = append(extraEvidence, measurement("share of the slowest requests' network waits that passed before a retransmission, which is not the peer's time (WL2008)", lostShare, "share"))
		withoutLost := func(l Loss) Loss { return l.minus(l.scaled(lostShare)) }
		gain.All, gain.Slow, gain.OtherTail = withoutLost(gain.All), withoutLost(gain.Slow), withoutLost(gain.OtherTail)
	}
	v := attr.newVerdict(cand, top)
	v.Gain, v.Fact, v.Fix, v.Cause = gain, isElsewhere, fix, report.CauseNetwork
	if attr.group.Kind == report.KindLoop && isConnWrite(top.Call) && len(top.via) == 0 {
		v.FixedSeverity = report.SeverityLow // requests that wait for a writer have another finding
	}
	v.Title, v.Confidence = fmt.Sprintf("requests wait for %s at %s", awaited, siteText(v.Site)), confidence*(1-min(0.5, pollGapShare(attr.group)))
	v.addEvidence(measurement("mean wait per slow request, "+goroutineText(top.via), cand.gain.Slow.NS, "ns"), attr.requestCountEvidence(cand, top))
	v.addEvidence(extraEvidence...)
	v.addEvidence(callEvidence(cand, top)...)
	switch {
	case !strings.HasPrefix(awaited, peerAnswer):
	case attr.group.Peer == nil && calls != nil && 2*calls.UnansweredNS >= calls.AnswerNS && calls.Unanswered >= threshold.SmallSample:
		describeUnanswered(&v, calls)
		v.Gain = cand.gain // no part of it is the time of an answer
		return v, true
	case attr.group.Peer == nil && !maybeClient && calls != nil && calls.ConnOpenNS > 0 && float64(calls.ConnOpenNS) >= threshold.MajorShare*float64(calls.TotalNS):
		if isParallel {
			describeParallelCalls(&v, calls)
		}
		return v, attr.describeConnOpens(&v, cand, calls)
	case sequential != nil:
		attr.describeSequentialCalls(&v, top, sequential)
		return v, true
	case isParallel && attr.group.Peer == nil:
		describeParallelCalls(&v, calls)
	case attr.group.Count >= threshold.MedianSample:
		v.MaxSeverityByAll = report.SeverityLow // slow requests wait as long as others: no evidence that the peer can be faster
	}
	return v, false
}

const peerAnswer = "a peer's answer"

// describeKnownPeer describes a peer that may be this process itself, or that has another recording. It returns what
// requests wait for, the advice, evidence, and whether most of the wait belongs to requests of a group that has other
// findings.
func describeKnownPeer(r *report.Report, peer *report.Peer, peerAdvice string) (awaited, fix string, evidence []report.Evidence, isElsewhere bool) {
	name, waitText, servedText := names.PeerNames(peer), words.Brief(peer.WaitNS), words.Brief(peer.ServedNS)
	if peer.Followed() {
		// The work there has findings of its requests: this is the rest.
		return fmt.Sprintf("the round trip to this process's own %s over the network", name),
			fmt.Sprintf("call it without the network where possible: of each wait of %s it was served for %s", waitText, servedText), nil, false
	}
	restText := fmt.Sprintf("which was served for %s of the %s of each wait; the rest is the way there and back, and waiting for a CPU on either side", servedText, waitText)
	switch {
	case peer.Recording != "":
		awaited, fix = fmt.Sprintf("%s in %s,", name, peer.Recording), fmt.Sprintf("look at %s in %s, %s", name, peer.Recording, restText)
	case peer.Confidence < 0.8:
		// Only the times fit: the wait and its usual advice are certain.
		awaited, fix = peerAnswer+", perhaps this process's own "+name+",", peerAdvice
		if r.Host == nil {
			fix += fmt.Sprintf(". The process's sockets show whether the peer is this process itself: run whylate record -o x.whylate %s on the service's host", traceURL(r))
		}
	default:
		awaited = "this process's own " + name + ","
		fix = fmt.Sprintf("look at %s in this report%s, %s. Call it without the network where possible", name, largestCauseText(r, peer.Group), restText)
		isElsewhere = r.Group(peer.Group) != nil && 2*peer.ServedNS >= peer.WaitNS
	}
	evidence = []report.Evidence{
		measurement(fmt.Sprintf("share of %d waits that contain one request of %s", peer.Waits, name), float64(peer.Held)/float64(max(peer.Waits, 1)), "share"),
		measurement("share of the same waits, shifted in time, that do", peer.ByChance, "share"),
	}
	for _, part := range []struct {
		text string
		ns   *int64
	}{
		{"part of a wait before the request began there", peer.ThereNS}, {"part of that in which it may have lain unread there", peer.UnseenNS},
		{"part of a wait after the request had ended there", peer.BackNS}, {"part of a wait's end in which the waiting goroutine had no P", &peer.LateNS},
	} {
		if part.ns != nil && *part.ns > 0 {
			evidence = append(evidence, measurement(part.text, *part.ns, "ns"))
		}
	}
	return awaited, fix, evidence, isElsewhere
}

// describeUnanswered rewrites a verdict on waits that mostly ended without an answer.
func describeUnanswered(v *Verdict, calls *queues.PeerCalls) {
	v.Title = fmt.Sprintf("requests wait for a peer that does not answer, until a deadline passes, at %s", siteText(v.Site))
	v.Fix = "make that deadline shorter, or stop calling a peer that did not answer for a while (a circuit breaker), and find out why it does not answer"
	v.prependEvidence(
		measurement("waits after which nothing was read: a deadline had passed, or the connection was closed", calls.Unanswered, "count"),
		measurement("their mean length", float64(calls.UnansweredNS)/float64(calls.Unanswered), "ns"))
}

// describeConnOpens adds to a verdict that part of the wait opens connections, which reuse would save. If most
// requests open one, this holds on any machine and its time counts in full. It reports whether that is so.
func (a *attribution) describeConnOpens(v *Verdict, cand *candidate, calls *queues.PeerCalls) bool {
	openShare := float64(calls.ConnOpenNS) / float64(calls.TotalNS)
	v.Title = strings.Replace(v.Title, "requests wait for ", fmt.Sprintf("requests open connections (%s of this wait), then wait for ", words.Percent(openShare)), 1)
	reuseAdvice := stdPools[calls.ConnOpenFunc].reuseAdvice
	if reuseAdvice == "" {
		reuseAdvice = "have the pool keep more of them, or share one client"
	}
	otherFix := v.Fix
	v.Fix = reuseAdvice + ", so that connections stay open for later requests"
	v.prependEvidence(
		measurement("part of the wait in which connections are opened", openShare, "share"),
		measurement("requests that open one", calls.ConnOpenRequests, "count"))
	if openShare < threshold.HalfShare {
		v.Fix += "; of the rest, " + otherFix
	}
	v.Share *= openShare
	if calls.ConnOpenRequests < threshold.MedianSample || float64(calls.ConnOpenRequests) < threshold.HalfShare*float64(a.group.Count) {
		v.MaxSeverityByAll = report.SeverityLow
		return false
	}
	v.Gain, v.MaxSeverity, v.Changes = cand.gain.scaled(openShare), "", []predict.Change{}
	v.Gain.ThresholdFactor = threshold.FarFactor
	return true
}

// describeParallelCalls rewrites a verdict on parallel calls, of which the slowest decides. If no answer is far slower
// than the others, all peers take that long, and the service cannot change it.
func describeParallelCalls(v *Verdict, calls *queues.PeerCalls) {
	n := float64(calls.FanOut) / float64(calls.Requests)
	times := words.Figure(n)
	v.prependEvidence(
		measurement("goroutines that ask at the same time, per request", n, "count"),
		measurement("mean time of the last of them", float64(calls.FanOutLastNS)/float64(calls.Requests), "ns"),
		measurement("mean time of the others", float64(calls.FanOutOthersNS)/float64(calls.Requests), "ns"))
	v.Title = fmt.Sprintf("requests wait for the last of %s answers that they ask for in parallel, at %s", times, siteText(v.Site))
	v.Fix = "find out why that peer is slow, or answer without it after a deadline"
	if calls.FanOutLastNS < threshold.FarFactor*calls.FanOutOthersNS {
		v.Fix = fmt.Sprintf("nothing here, unless the peers are slower than they should be: the calls already run in parallel, the last answer takes %s, and the others %s on average",
			words.Brief(calls.FanOutLastNS/calls.Requests), words.Brief(calls.FanOutOthersNS/calls.Requests))
		v.MaxSeverity, v.Changes = report.SeverityLow, []predict.Change{}
	}
}

// mayBeClient reports whether a network wait may be for a client's next message: in a process that accepts connections
// for an unknown protocol, on the goroutine's own path in the service's code, or where iterations of a loop begin.
func (a *attribution) mayBeClient(c *report.Cause, via []report.Via) bool {
	if !a.in.AcceptsConnections || c.Cause != report.CauseNetwork || c.Site == nil || c.Site.Module != "" || isStdSite(c.Site) {
		return false
	}
	return a.group.Kind == report.KindGoroutine && len(via) == 0 || slices.ContainsFunc(a.in.Report.Groups, func(g report.Group) bool {
		return g.Kind == report.KindLoop && g.Entry != nil && g.Entry.LineKey() == c.Site.LineKey()
	})
}

// peerCallsAt returns how requests call a peer from the line of a route; nil if that is unknown.
func (a *attribution) peerCallsAt(p *causeRoute) *queues.PeerCalls {
	var via *report.Site
	if v, _ := verdict.AfterLastAnswer(p.via); len(v) > 0 {
		via = v[0].Site
	}
	return firstMatch(a.in.PeerCalls[a.group.ID], func(a *queues.PeerCalls) bool {
		return a.Site.Matches(p.Site) && (a.Via == nil) == (via == nil) && a.Via.Matches(via)
	})
}

// describeSequentialCalls rewrites a verdict on sequential calls, with predictions for one call and for parallel
// calls.
func (a *attribution) describeSequentialCalls(v *Verdict, top *causeRoute, calls *queues.PeerCalls) {
	n := float64(calls.Calls) / float64(calls.Requests)
	times := words.Figure(n)
	v.Title = fmt.Sprintf("requests ask a peer %s times one after the other, at %s", times, siteText(v.Site))
	v.Fix = "ask once for all of it (a join, a list of keys, a batch or a pipeline), or ask in parallel"
	if l := libraryOfRoute(top); l != nil && l.peerAdvice != "" {
		v.Fix = "ask once for all of it, or ask in parallel; in " + l.name + ": " + l.peerAdvice
	}
	v.prependEvidence(
		measurement("sequential answers per request, asked for at one line", n, "count"),
		measurement("mean wait for each", float64(calls.AnswerNS)/float64(calls.Calls), "ns"))
	v.Changes = nil
	// The reader of a shared connection waits for the calls of all lines.
	lineShare := 1.0
	if len(top.via) > 0 {
		lineShare = a.callerShare(top.Site)
	}
	predicted := func(scale float64) *report.Predicted {
		return a.in.predict(a.group.ID, predict.Change{Cause: report.CauseNetwork, Site: predict.SiteText(top.Site, report.CauseNetwork), Relative: true, Scale: 1 - (1-scale)*lineShare, OwnWork: true})
	}
	if v.Predicted = predicted(1 / n); v.Predicted != nil {
		v.Predicted.ChangeText = "with one call instead of " + times
	}
	if p := predicted(float64(calls.LongestNS) / float64(calls.AnswerNS)); p != nil {
		v.addEvidence(measurement("p50 if all were asked for in parallel, each answer taking as long as the longest", p.P50NS.Est, "ns"))
	}
}

// callerShare returns the share of a calling line in the group's network waits at a site.
func (a *attribution) callerShare(s *report.Site) float64 {
	var line, all float64
	for i := range a.group.All().Causes {
		if c := &a.group.All().Causes[i]; c.Cause == report.CauseNetwork && c.Site != nil && c.Site.LineKey() == s.LineKey() {
			if all += c.Share; c.Site.Matches(s) {
				line += c.Share
			}
		}
	}
	if line == 0 {
		return 1
	}
	return line / all
}

// isConnWrite reports whether a call writes to a connection: it waits if the other end does not read.
func isConnWrite(call string) bool {
	return strings.HasPrefix(call, "net.(*") && strings.HasSuffix(call, ").Write") || call == "net.(*Buffers).WriteTo" || call == "crypto/tls.(*Conn).Write"
}

// largestCauseText returns, in brackets, the largest cause of a group's slow requests; "" if it is unknown.
func largestCauseText(r *report.Report, id string) string {
	g := r.Group(id)
	if g == nil {
		return ""
	}
	for k := range g.Tail().Causes {
		if c := &g.Tail().Causes[k]; c.Site != nil && c.Share >= 0.2 { // the largest comes first
			return fmt.Sprintf(" (%s of its slow requests' time is %s at %s)", words.Percent(c.Share), c.Cause, siteText(c.Site))
		}
	}
	return ""
}

// readDelay returns the loss of a band's requests because the goroutine that reads their answers was ready, or had its
// message, but did not run. A request on its own goroutine sends before it waits. Otherwise another goroutine sends,
// which queues for the same Ps, and the peer gets no query until it runs.
func (c *candidate) readDelay(band *report.Band) Loss {
	if band == nil || band.Count == 0 {
		return Loss{}
	}
	share, ns := 0.0, int64(0)
	for i := range band.Causes {
		delayed := &band.Causes[i]
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

// peerGain returns what a fix of waits for a peer can save. If most requests wait for it, only the time beyond their
// mean counts: the mean is the usual time of an answer. If few wait, no time is usual. Answers that are late at the
// same time have one reason, a pause of the peer or the machine. Outliers in a few such moments are rare, however many
// requests were open.
func (a *attribution) peerGain(cand *candidate) Gain {
	gain := cand.gain
	usualNS := int64(0)
	for i := range cand.routes {
		if p := &cand.routes[i]; p.Requests > 0 && float64(p.Requests) >= threshold.HalfShare*float64(a.group.Count) {
			usualNS = max(usualNS, p.TotalNS/int64(p.Requests))
		}
	}
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
	return gain
}

// pollGapShare returns the share of a group's time in which data may have been present before a P polled.
func pollGapShare(g *report.Group) float64 {
	share, _ := weigh(g, isPollGap)
	return share
}

// callEvidence returns the mean latency of the requests in the library function of a wait.
func callEvidence(cand *candidate, p *causeRoute) []report.Evidence {
	var out []report.Evidence
	if s := cand.slowRoute(p); s != nil {
		p = s
	}
	if call := libraryCall(p.Call); call != "" {
		out = append(out, measurement("in "+call+": mean latency of those requests", float64(p.TotalNS)/float64(max(p.Requests, 1)), "ns"))
	}
	return out
}

func isDNS(fn string) bool {
	return strings.HasPrefix(fn, "net.(*Resolver).") || strings.HasPrefix(fn, "net.cgoLookup") || strings.HasPrefix(fn, "net._C") || strings.HasPrefix(fn, "net.Lookup") ||
		strings.HasPrefix(fn, "net.doBlockingWithCtx")
}
