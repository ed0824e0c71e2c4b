package finding

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// connOpens describes the connections that requests open at the routes of a candidate.
type connOpens struct {
	share    float64          // of the time of all waits of these routes
	requests int64            // that open one
	advice   string           // how to keep connections open
	changes  []predict.Change // without the opening
}

// connOpensOf adds up how long requests open connections at the lines of a candidate's routes. A line counts once, also if it
// has several routes, as for a handshake and for the answer. The number of requests is that of the line with the most.
func (a *attribution) connOpensOf(cand *candidate) connOpens {
	out := connOpens{changes: []predict.Change{}}
	var openNS, totalNS, longestNS int64
	for route, calls := range a.peerCallsOf(cand) {
		openNS, totalNS, out.requests = openNS+calls.ConnOpenNS, totalNS+calls.TotalNS, max(out.requests, calls.ConnOpenRequests)
		if calls.ConnOpenNS > 0 {
			out.changes = append(out.changes, predict.Reuse(predict.SiteText(route.Site, report.CauseNetwork)))
		}
		if calls.ConnOpenNS <= longestNS {
			continue
		}
		if longestNS = calls.ConnOpenNS; 2*calls.EarlyCloses > calls.ConnOpenRequests && calls.CloseSite != nil && calls.CloseSite.Module == "" {
			out.advice = textOf("phrase read-to-end", "site", calls.CloseSite)
			continue
		}
		out.advice = a.in.reuseAdviceOf(stdPool(calls.ConnOpenFunc))
		for k := range route.via {
			out.advice = cmp.Or(out.advice, a.in.reuseAdviceOf(stdPool(route.via[k].Call)))
		}
		if l := adviserAt(func(l *library) string { return l.reuseAdvice }, route.sites()...); l != nil && out.advice == "" {
			out.advice = l.fix(l.reuseAdvice)
		}
	}
	if openNS > 0 {
		out.share = float64(openNS) / float64(totalNS)
	}
	return out
}

// peerCallsOf iterates over the calls at the lines of a candidate's routes, each once, with its route.
func (a *attribution) peerCallsOf(cand *candidate) iter.Seq2[*causeRoute, *queues.PeerCalls] {
	return func(yield func(*causeRoute, *queues.PeerCalls) bool) {
		countedCalls := map[*queues.PeerCalls]bool{}
		for route := range each(cand.routes) {
			calls := a.peerCallsAt(route)
			if calls == nil || countedCalls[calls] {
				continue
			}
			if countedCalls[calls] = true; !yield(route, calls) {
				return
			}
		}
	}
}

// reuseAdviceOf returns how to keep connections of a pool open. Where the service makes or closes pools in the time of the trace, no limit of a
// pool keeps them. Where on average less than one request is under way, the number of idle connections that the pool keeps unless set is
// enough: it closes them for another reason.
func (in *Input) reuseAdviceOf(pool *library) string {
	if in.HasFunction != nil && slices.ContainsFunc(strings.Fields(pool.renewals), in.HasFunction) {
		return pool.renewAdvice
	}
	if pool.expiryAdvice != "" && in.totalRequestNS() < in.Report.Input.DurationNS {
		return pool.expiryAdvice
	}
	return pool.reuseAdvice
}

// concernsMost reports whether a number of requests is at least half of the group's, and at least threshold.MedianSample.
func (a *attribution) concernsMost(requests int) bool {
	return requests >= threshold.MedianSample && float64(requests) >= threshold.HalfShare*float64(a.group.Count)
}

// rewriteForConnOpens turns a verdict on a wait into one on the part of the wait that opens connections, which reuse would save. If most
// requests open a connection (concernsMost), the part counts in full and the verdict holds on a busy machine too. Otherwise the severity by
// the time of all requests is at most low; that by slow requests has no such limit. It returns false if that part is small.
func (w *peerWait) rewriteForConnOpens(v *Verdict) bool {
	opens := &w.opens
	if w.group.Peer != nil || w.maybeClient || opens.share < threshold.MajorShare || !w.isAnswer && opens.share >= threshold.NearlyAllShare {
		return false
	}
	awaited := textOf("phrase awaited-at", "awaited", answerText(w.top), "site", v.Site)
	if w.isParallel {
		awaited = w.describeLastAnswer(v)
		// http.DefaultMaxIdleConnsPerHost is 2.
		if n := (w.calls.FanOut + w.calls.Requests - 1) / w.calls.Requests; n > 2 && opens.advice != "" && opens.advice == stdPool(httpSlotFunc).reuseAdvice {
			opens.advice = textOf("phrase keep-parallel-connections", "n", n)
		}
	}
	v.Title = textOf("title open-connections", "awaited", awaited)
	v.prependEvidence(
		evidenceOf("evidence connection-openings", opens.share, "share"),
		evidenceOf("evidence connection-openers", opens.requests, "count"))
	fix := textOf("fix open-connections", "advice", cmp.Or(opens.advice, textOf("phrase reuse-connections")))
	if opens.share < threshold.HalfShare {
		fix = textOf("fix open-connections-and-rest", "fix", fix, "rest", v.Fix)
	}
	v.Fix, v.Changes = fix, opens.changes
	v.Share *= opens.share
	if !w.concernsMost(int(opens.requests)) {
		v.MaxSeverityByAll, v.isAnswerTime = report.SeverityLow, true
		return true
	}
	v.Gain, v.MaxSeverity = w.cand.gain.scaled(opens.share), ""
	w.predictKept(v)
	return true
}

// rewriteForFreshConns rewrites a verdict on answers of which each comes on a connection that was opened for it. Opening takes little of the time,
// but the peer may set up a session for each connection. It returns false for other answers.
func (w *peerWait) rewriteForFreshConns(v *Verdict) bool {
	if w.group.Peer != nil || w.maybeClient || w.calls.TotalCalls == 0 || !w.concernsMost(int(w.opens.requests)) || float64(w.opens.requests) < threshold.MostShare*float64(w.calls.TotalCalls) {
		return false
	}
	v.Title = textOf("title fresh-connections", "awaited", textOf("phrase awaited-at", "awaited", answerText(w.top), "site", v.Site))
	v.Fix = textOf("fix fresh-connections", "advice", cmp.Or(w.opens.advice, textOf("phrase reuse-connections")), "peer", w.in.peerText(w.top))
	v.prependEvidence(evidenceOf("evidence connection-openers", w.opens.requests, "count"))
	v.doubt(0.5, textOf("phrase doubt-fresh-connections"))
	v.Gain, v.Changes, v.MaxSeverity, v.InService = w.cand.gain, []predict.Change{}, report.SeverityMedium, true
	return true
}

// rewriteForConnPerRequest rewrites a verdict of a group whose requests mostly open one connection each on goroutines of a
// library, and which spends threshold.MajorShare of its time on that. It returns false, and changes nothing, for other groups.
func (w *peerWait) rewriteForConnPerRequest(v *Verdict) bool {
	opens := w.in.ConnOpens[w.group.ID]
	if w.group.Peer != nil || w.maybeClient || w.opens.requests == 0 || opens.Site == nil || !w.concernsMost(int(opens.Count)) {
		return false
	}
	share, meanNS := float64(opens.NS)/float64(opens.TotalNS), opens.NS/opens.Requests
	library := libraryAt(opens.Wait, opens.Site)
	if share < threshold.MajorShare || library == nil || library.reuseAdvice == "" {
		return false
	}
	v.Site, v.Share = opens.Site.OwnLine(), share
	v.Title = textOf("title connection-per-request", "site", v.Site)
	v.Fix = library.fix(library.reuseAdvice)
	v.prependEvidence(
		evidenceOf("evidence connection-time", meanNS, "ns"),
		evidenceOf("evidence connection-openers", opens.Count, "count"))
	v.Gain = Gain{All: Loss{Share: share, NS: meanNS}, TotalNS: int64(share * float64(w.group.TotalNS))}
	// Other lines create the connection and close it, so the change is one of the whole handler.
	v.Changes = []predict.Change{predict.Reuse(cmp.Or(w.group.Entry, opens.Wait.OwnLine()).Func)}
	w.predictKept(v)
	return true
}

// predictKept adds to a verdict on openings the waits for a P while other requests compute in their handshakes, and predicts it.
func (w *peerWait) predictKept(v *Verdict) {
	v.addGain(v.chargeWaits(w.in, w.group, func(c *report.Cause) bool { return isHandshake(c.Site) }))
	w.predictAs(v, "phrase kept-connections")
}

// isHandshake reports whether a site is in a TLS handshake.
func isHandshake(s *report.Site) bool {
	return s != nil && knowledge.Has(s.Func, knowledge.TLSHandshake)
}
