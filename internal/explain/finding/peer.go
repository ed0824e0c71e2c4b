package finding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkSlowPeer is WL2005, slow-peer.
func checkSlowPeer(attr *attribution, cand *candidate) Verdict {
	v, counted := peerVerdict(attr, cand)
	if n, known := attr.in.OutlierMoments[attr.group.ID]; known && n < attr.group.Band(report.BandOutliers).Count {
		v.addEvidence(measured("separate moments in which the far slower requests were open", n, "count"))
	}
	v.addEvidence(networkEvidence(attr.in.Report.Host)...)
	if n, busy := measureOtherLoad(attr.in); busy && !counted { // how often requests ask is so on any machine
		v.Confidence *= 1 - n.waitShare
		v.addEvidence(measured("share of runnable time in which the service's threads waited for a CPU (WL1009): answers may have lain unread meanwhile", n.waitShare, "share"))
	}
	return v
}

// peerVerdict returns what is said of a claim, and whether it holds on a busy machine as well: how often requests ask, or that no
// answer comes, does; how long answers take does not.
func peerVerdict(attr *attribution, cand *candidate) (Verdict, bool) {
	top := &cand.routes[0]
	what, fix := aPeersAnswer, "call the peer less often, for several things at once, or in parallel; or find out on the peer's side why it is slow"
	if l := libraryOfRoute(top); l != nil && l.peerAdvice != "" {
		fix = "in " + l.name + ": " + l.peerAdvice
	}
	switch call := top.Call; {
	case isDNS(call) || top.Site != nil && isDNS(top.Site.Func):
		what, fix = "a name server", "keep connections open so that names are looked up less often, or cache addresses; check why the name server is slow (search domains and ndots ask it several times)"
	case isWrite(call):
		what, fix = "a peer to read what is sent", "find out why the peer reads slowly; send less, limit the write (SetWriteDeadline), or give a slow reader a separate queue that may overflow"
	case strings.HasPrefix(call, "net.(*Dialer)."), strings.Contains(call, "dial"):
		what, fix = "a connection to be opened", "reuse connections ("+httpReuseAdvice+")"
	case strings.HasPrefix(call, "crypto/tls."):
		what, fix = "a TLS handshake", "reuse connections, or resume sessions (ClientSessionCache)"
	}
	asks := attr.asks(top)
	atOnce := asks != nil && asks.FanOut >= 2*asks.Requests
	answers := what == aPeersAnswer
	either := answers && attr.mayBeClient(top.Cause, top.via)
	row := asks
	if asks == nil || asks.Calls < scale.Several*asks.Requests || asks.AnswerNS == 0 || atOnce || !answers || attr.group.Peer != nil || either {
		row = nil // else there is better advice
	}
	elsewhere, own := false, []report.Evidence(nil)
	if attr.group.Peer != nil && answers {
		what, fix, own, elsewhere = ofItself(attr.in.Report, attr.group.Peer, fix)
	}
	sure := 0.9
	if either {
		what, sure = "the client's next message, or perhaps for a peer's answer,", 0.4
		fix = "nothing, if it is the client's connection: a wait for what the client sends when it chooses is not a request's latency"
	}
	won := attr.ofPeer(cand)
	if late := cand.readLate(attr.group.Tail()); late.NS*10 > cand.won.Slow.NS {
		own = append(own, measured("part of a slow request's time in which the reader of the answers ran late; the same is assumed for the sender", late.NS, "ns"))
		// The sender was probably as late, which the trace does not show.
		won.All = won.All.without(cand.readLate(attr.group.All()))
		won.Slow = won.Slow.without(late)
		won.Beside = won.Beside.without(cand.readLate(beside(attr.group)))
	}
	if lost := lostOnTheWay(attr.group, attr.in.Report.Host); lost > 0 && slices.ContainsFunc(attr.in.Report.Host.Network.Requests, func(w report.HostWait) bool {
		return w.Group == attr.group.ID && slices.ContainsFunc(cand.routes, func(p causeRoute) bool { return p.Site.Meets(w.Site) })
	}) {
		own = append(own, measured("share of the slowest requests' network waits that passed before a retransmission, which is not the peer's time (WL2008)", lost, "share"))
		less := func(l Lost) Lost { return l.without(l.times(lost)) }
		won.All, won.Slow, won.Beside = less(won.All), less(won.Slow), less(won.Beside)
	}
	v := attr.newVerdict(cand, top)
	v.Won, v.Fact, v.Fix, v.Cause = won, elsewhere, fix, report.CauseNetwork
	if attr.group.Kind == report.KindLoop && isWrite(top.Call) && len(top.via) == 0 {
		v.FixedSeverity = report.SeverityLow // requests that wait until a writer is done have a finding of their own
	}
	v.Title, v.Confidence = fmt.Sprintf("requests wait for %s at %s", what, place(v.Site)), sure*(1-min(0.5, weighGap(attr.group)))
	v.addEvidence(measured("mean wait per slow request, "+onWhose(top.via), cand.won.Slow.NS, "ns"), attr.requestCountEvidence(cand, top))
	v.addEvidence(own...)
	v.addEvidence(callEvidence(cand, top)...)
	switch {
	case !strings.HasPrefix(what, aPeersAnswer):
	case attr.group.Peer == nil && asks != nil && 2*asks.UnansweredNS >= asks.AnswerNS && asks.Unanswered >= scale.Few:
		sayUnanswered(&v, asks)
		v.Won = cand.won // none of it is what an answer takes
		return v, true
	case attr.group.Peer == nil && !either && asks != nil && asks.ConnOpenNS > 0 && float64(asks.ConnOpenNS) >= scale.Much*float64(asks.TotalNS):
		if atOnce {
			sayAtOnce(&v, asks)
		}
		return v, attr.sayOpens(&v, cand, asks)
	case row != nil:
		attr.sayInRow(&v, top, row)
		return v, true
	case atOnce && attr.group.Peer == nil:
		sayAtOnce(&v, asks)
	case attr.group.Count >= scale.Enough:
		v.MaxSeverityByAll = report.SeverityLow // slow requests wait for as long as all: nothing says that the peer could be faster
	}
	return v, false
}

const aPeersAnswer = "a peer's answer"

// ofItself is about a peer that is perhaps this process itself, or one that was recorded beside it: what requests wait for, the advice,
// the evidence, and whether most of the wait is elsewhere, in requests of a group that has findings of its own.
func ofItself(r *report.Report, p *report.Peer, ask string) (what, fix string, evidence []report.Evidence, elsewhere bool) {
	name, wait, served := names.PeerNames(p), words.Brief(p.WaitNS), words.Brief(p.ServedNS)
	if p.Followed() {
		// What was done there is a finding of the requests that did it: this is the rest.
		return fmt.Sprintf("the round trip to this process's own %s over the network", name),
			fmt.Sprintf("call it without the network where possible: of each wait of %s it was served for %s", wait, served), nil, false
	}
	rest := fmt.Sprintf("which was served for %s of the %s of each wait; the rest is the way there and back, and waiting for a CPU on either side", served, wait)
	switch {
	case p.Recording != "":
		what, fix = fmt.Sprintf("%s in %s,", name, p.Recording), fmt.Sprintf("look at %s in %s, %s", name, p.Recording, rest)
	case p.Confidence < 0.8:
		// Only times fit: what is certain is the wait, and its own advice.
		what, fix = aPeersAnswer+", perhaps this process's own "+name+",", ask
		if r.Host == nil {
			fix += fmt.Sprintf(". The process's sockets show whether the peer is this process itself: run whylate record -o x.whylate %s on the service's host", traceURL(r))
		}
	default:
		what = "this process's own " + name + ","
		fix = fmt.Sprintf("look at %s in this report%s, %s. Call it without the network where possible", name, wentTo(r, p.Group), rest)
		elsewhere = r.Group(p.Group) != nil && 2*p.ServedNS >= p.WaitNS
	}
	evidence = []report.Evidence{
		measured(fmt.Sprintf("share of %d waits that contain one request of %s", p.Waits, name), float64(p.Held)/float64(max(p.Waits, 1)), "share"),
		measured("share of the same waits, shifted in time, that do", p.ByChance, "share"),
	}
	for _, part := range []struct {
		text string
		ns   *int64
	}{
		{"part of a wait before the request began there", p.ThereNS}, {"part of that in which it may have lain unread there", p.UnseenNS},
		{"part of a wait after the request had ended there", p.BackNS}, {"part of a wait's end in which the waiting goroutine had no P", &p.LateNS},
	} {
		if part.ns != nil && *part.ns > 0 {
			evidence = append(evidence, measured(part.text, *part.ns, "ns"))
		}
	}
	return what, fix, evidence, elsewhere
}

// sayUnanswered says what ended waits that mostly ended without an answer.
func sayUnanswered(v *Verdict, a *queues.PeerCalls) {
	v.Title = fmt.Sprintf("requests wait for a peer that does not answer, until a deadline passes, at %s", place(v.Site))
	v.Fix = "make that deadline shorter, or stop calling a peer that did not answer for a while (a circuit breaker), and find out why it does not answer"
	v.prependEvidence(
		measured("waits after which nothing was read: a deadline had passed, or the connection was closed", a.Unanswered, "count"),
		measured("their mean length", float64(a.UnansweredNS)/float64(a.Unanswered), "ns"))
}

// sayOpens says that a part of the wait is the opening of connections, which reuse would save. If most requests do it, that holds on
// any machine, and its time counts in full; it reports whether that is so.
func (a *attribution) sayOpens(v *Verdict, c *candidate, asks *queues.PeerCalls) bool {
	part := float64(asks.ConnOpenNS) / float64(asks.TotalNS)
	v.Title = strings.Replace(v.Title, "requests wait for ", fmt.Sprintf("requests open connections (%s of this wait), then wait for ", words.Percent(part)), 1)
	keep := stdPools[asks.ConnOpenFunc].reuseAdvice
	if keep == "" {
		keep = "have the pool keep more of them, or share one client"
	}
	rest := v.Fix
	v.Fix = keep + ", so that connections stay open for later requests"
	v.prependEvidence(
		measured("part of the wait in which connections are opened", part, "share"),
		measured("requests that open one", asks.ConnOpenRequests, "count"))
	if part < scale.Half {
		v.Fix += "; of the rest, " + rest
	}
	v.Share *= part
	if asks.ConnOpenRequests < scale.Enough || float64(asks.ConnOpenRequests) < scale.Half*float64(a.group.Count) {
		v.MaxSeverityByAll = report.SeverityLow
		return false
	}
	v.Won, v.MaxSeverity, v.Changes = c.won.times(part), "", []predict.Change{}
	v.Won.Times = scale.Far
	return true
}

// sayAtOnce says of calls in parallel that the slowest answer decides. Where none is far slower than the others, the peers take that
// long, and the service cannot change it.
func sayAtOnce(v *Verdict, a *queues.PeerCalls) {
	n := float64(a.FanOut) / float64(a.Requests)
	times := words.Figure(n)
	v.prependEvidence(
		measured("goroutines that ask at the same time, per request", n, "count"),
		measured("mean time of the last of them", float64(a.FanOutLastNS)/float64(a.Requests), "ns"),
		measured("mean time of the others", float64(a.FanOutOthersNS)/float64(a.Requests), "ns"))
	v.Title = fmt.Sprintf("requests wait for the last of %s answers that they ask for in parallel, at %s", times, place(v.Site))
	v.Fix = "find out why that peer is slow, or answer without it after a deadline"
	if a.FanOutLastNS < scale.Far*a.FanOutOthersNS {
		v.Fix = fmt.Sprintf("nothing here, unless the peers are slower than they should be: the calls already run in parallel, the last answer takes %s, and the others %s on average",
			words.Brief(a.FanOutLastNS/a.Requests), words.Brief(a.FanOutOthersNS/a.Requests))
		v.MaxSeverity, v.Changes = report.SeverityLow, []predict.Change{}
	}
}

// mayBeClient reports whether a wait for the network may be one for a client's next message: in a process that accepts connections for
// a protocol of its own, on the goroutine's own path in the service's code, or where turns of a loop begin.
func (a *attribution) mayBeClient(c *report.Cause, via []report.Via) bool {
	if !a.in.AcceptsConnections || c.Cause != report.CauseNetwork || c.Site == nil || c.Site.Module != "" || isStdSite(c.Site) {
		return false
	}
	return a.group.Kind == report.KindGoroutine && len(via) == 0 || slices.ContainsFunc(a.in.Report.Groups, func(g report.Group) bool {
		return g.Kind == report.KindLoop && g.Entry != nil && g.Entry.LineKey() == c.Site.LineKey()
	})
}

// asks returns how requests ask from the line of a part, nil if that was not seen.
func (a *attribution) asks(p *causeRoute) *queues.PeerCalls {
	var via *report.Site
	if v, _ := verdict.AfterLastAnswer(p.via); len(v) > 0 {
		via = v[0].Site
	}
	return firstMatch(a.in.PeerCalls[a.group.ID], func(a *queues.PeerCalls) bool {
		return a.Site.Meets(p.Site) && (a.Via == nil) == (via == nil) && a.Via.Meets(via)
	})
}

// sayInRow says that requests ask for one thing after the other, and what asking once would win, and asking for all at once.
func (a *attribution) sayInRow(v *Verdict, top *causeRoute, row *queues.PeerCalls) {
	n := float64(row.Calls) / float64(row.Requests)
	times := words.Figure(n)
	v.Title = fmt.Sprintf("requests ask a peer %s times one after the other, at %s", times, place(v.Site))
	v.Fix = "ask once for all of it (a join, a list of keys, a batch or a pipeline), or ask in parallel"
	if l := libraryOfRoute(top); l != nil && l.peerAdvice != "" {
		v.Fix = "ask once for all of it, or ask in parallel; in " + l.name + ": " + l.peerAdvice
	}
	v.prependEvidence(
		measured("sequential answers per request, asked for at one line", n, "count"),
		measured("mean wait for each", float64(row.AnswerNS)/float64(row.Calls), "ns"))
	v.Changes = nil
	// The reader of a shared connection waits for all lines that use it.
	part := 1.0
	if len(top.via) > 0 {
		part = a.lineOf(top.Site)
	}
	predicted := func(scale float64) *report.Predicted {
		return a.in.predict(a.group.ID, predict.Change{Cause: report.CauseNetwork, Site: predict.SiteText(top.Site, report.CauseNetwork), Relative: true, Scale: 1 - (1-scale)*part, Own: true})
	}
	if v.Predicted = predicted(1 / n); v.Predicted != nil {
		v.Predicted.Says = "with one call instead of " + times
	}
	if p := predicted(float64(row.LongestNS) / float64(row.AnswerNS)); p != nil {
		v.addEvidence(measured("p50 if all were asked for in parallel, each answer taking as long as the longest", p.P50NS.Est, "ns"))
	}
}

// lineOf returns which part of the group's waits for the network at a place belongs to the line that called it.
func (a *attribution) lineOf(s *report.Site) float64 {
	var line, all float64
	for i := range a.group.All().Causes {
		if c := &a.group.All().Causes[i]; c.Cause == report.CauseNetwork && c.Site != nil && c.Site.LineKey() == s.LineKey() {
			if all += c.Share; c.Site.Meets(s) {
				line += c.Share
			}
		}
	}
	if line == 0 {
		return 1
	}
	return line / all
}

// isWrite reports whether a call writes to a connection: it waits where the other end does not read.
func isWrite(call string) bool {
	return strings.HasPrefix(call, "net.(*") && strings.HasSuffix(call, ").Write") || call == "net.(*Buffers).WriteTo" || call == "crypto/tls.(*Conn).Write"
}

// wentTo says in brackets on what the slow requests of a group spent most of
// their time; "" if that is not known.
func wentTo(r *report.Report, id string) string {
	g := r.Group(id)
	if g == nil {
		return ""
	}
	for k := range g.Tail().Causes {
		if c := &g.Tail().Causes[k]; c.Site != nil && c.Share >= 0.2 { // the largest comes first
			return fmt.Sprintf(" (%s of its slow requests' time is %s at %s)", words.Percent(c.Share), c.Cause, place(c.Site))
		}
	}
	return ""
}

// readLate returns what requests of a band lost because the goroutine that reads answers for them, where this claim's waits are, was
// ready to run, or had its message, and did not run. A request on its own goroutine sends before it waits. Otherwise another goroutine
// sends for it, which queues for the same Ps, and the peer is not asked until that runs.
func (c *candidate) readLate(b *report.Band) Lost {
	if b == nil || b.Count == 0 {
		return Lost{}
	}
	share, ns := 0.0, int64(0)
	for i := range b.Causes {
		late := &b.Causes[i]
		if !isSched(late) || late.Site == nil || !slices.ContainsFunc(c.routes, func(p causeRoute) bool { return len(p.via) > 0 && p.Site.Meets(late.Site) }) {
			continue
		}
		mine, all := routeTimes(late, func(_ *report.Cause, via []report.Via) bool { return len(via) > 0 })
		if all > 0 {
			share += late.Share * float64(mine) / float64(all)
			ns += int64(float64(late.TotalNS) * float64(mine) / float64(all))
		}
	}
	return Lost{Share: share, NS: ns / int64(b.Count)}
}

// ofPeer is what a fix would win of waiting for a peer. Where most requests wait for it, only what slow ones wait beyond the mean of
// those that waited counts: that mean is what an answer always takes. Where few wait, it is usual not to wait. Answers that were late
// at the same time were late once: the peer, or the machine, stood still. Outliers of a few such moments are few, however many requests
// met them.
func (a *attribution) ofPeer(cand *candidate) Won {
	w := cand.won
	usual := int64(0)
	for i := range cand.routes {
		if p := &cand.routes[i]; p.Requests > 0 && float64(p.Requests) >= scale.Half*float64(a.group.Count) {
			usual = max(usual, p.TotalNS/int64(p.Requests))
		}
	}
	beyond := func(l Lost) Lost {
		if l.NS > 0 {
			l.Share *= float64(max(0, l.NS-usual)) / float64(l.NS)
		}
		l.NS = max(0, l.NS-usual)
		return l
	}
	w.Slow, w.Beside = beyond(w.Slow), beyond(w.Beside)
	if n, known := a.in.OutlierMoments[a.group.ID]; known && areFew(n, a.group.Count) {
		if a.group.Tail().Band == report.BandOutliers {
			w.Slow.Few = true
		} else {
			w.Beside.Few = true
		}
	}
	w.Times = scale.Far
	return w
}

// weighGap is the share of a group's time in which data may have been there
// before any P polled.
func weighGap(g *report.Group) float64 {
	share, _ := weigh(g, isPollGap)
	return share
}

// callEvidence names the library functions at either end of a wait.
func callEvidence(cand *candidate, p *causeRoute) []report.Evidence {
	var out []report.Evidence
	if s := cand.slowRoute(p); s != nil {
		p = s
	}
	if call := inCall(p.Call); call != "" {
		out = append(out, measured("in "+call+": mean latency of those requests", float64(p.TotalNS)/float64(max(p.Requests, 1)), "ns"))
	}
	return out
}

func isDNS(fn string) bool {
	return strings.HasPrefix(fn, "net.(*Resolver).") || strings.HasPrefix(fn, "net.cgoLookup") || strings.HasPrefix(fn, "net._C") || strings.HasPrefix(fn, "net.Lookup") ||
		strings.HasPrefix(fn, "net.doBlockingWithCtx")
}
