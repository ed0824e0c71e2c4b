package finding

import (
	"math"
	"net/netip"
	"time"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// flowCause replaces the cause of a candidate whose requests wait until the peer allows more bytes of their bodies.
const flowCause = report.CauseName("flow-control")

// flowVerdict returns the verdict on waits for the flow control of HTTP/2. A request that has sent nothing of its body waits for the
// connection, of which others have used what the peer allows: those that are woken together with it.
func flowVerdict(attr *attribution, cand *candidate) Verdict {
	top := &cand.routes[0]
	v := attr.newVerdict(cand, top)
	v.Changes = []predict.Change{predict.Remove(report.CauseNetwork, predict.SiteText(top.Site.LineKey().Site(), report.CauseNetwork))}
	v.Title, v.Fix, v.ChangeText = textOf("title flow-control", "site", v.Site), textOf("fix flow-control"), textOf("phrase change-no-flow-control")
	attr.addSlowMean(&v, "evidence slow-wait-on", cand, top, top.via)
	attr.rewriteForHeldFirst(&v, top, &heldBodyTexts)
	return v
}

// heldTexts are the texts about waits for flow control before any part of a body is sent: title and fix if the sender that uses up the window
// of the connection is unknown, titleBehind and fixBehind if it is known.
type heldTexts struct{ unsentEvidence, senderEvidence, title, fix, titleBehind, fixBehind textKey }

var (
	heldBodyTexts   = heldTexts{"evidence body-unsent", "evidence held-together", "title flow-control-of-connection", "fix flow-control-of-connection", "title flow-control-behind", "fix flow-control-behind"}
	heldAnswerTexts = heldTexts{"evidence answer-unsent", "evidence answers-held-together", "title answer-held", "fix answer-held", "title answer-held-behind", "fix answer-held-behind"}
)

// rewriteForHeldFirst rewrites a verdict on a body, or an answer, of which no part is sent until the other side allows more bytes: others have
// used up the window of its connection, and the service can send over another one, or less of them. It returns false if parts of it are
// sent before, for half of that time or more.
func (a *attribution) rewriteForHeldFirst(v *Verdict, top *causeRoute, texts *heldTexts) bool {
	held := firstMatch(a.in.HeldBodies, func(h *queues.HeldBody) bool {
		return len(top.via) > 0 && h.Site.Matches(top.via[0].Site) && h.FirstShare >= threshold.HalfShare
	})
	if held == nil {
		return false
	}
	v.InService = true
	v.addEvidence(evidenceOf(texts.unsentEvidence, held.FirstShare, "share"))
	if held.With == nil || held.WithShare < threshold.MajorShare {
		v.Title, v.Fix = textOf(texts.title, "site", v.Site), textOf(texts.fix)
		return true
	}
	v.addEvidence(evidenceOf(texts.senderEvidence, held.WithShare, "share", "with", held.With))
	v.Title, v.Fix = textOf(texts.titleBehind, "site", v.Site, "with", held.With), textOf(texts.fixBehind, "with", held.With)
	return true
}

// rewriteForHeldCalls rewrites a verdict on answers to calls whose bodies wait for the window of their connection, which another stream uses up.
// It returns false if they do not.
func (w *peerWait) rewriteForHeldCalls(v *Verdict) bool {
	held := &w.calls.Held
	if held.With == nil {
		return false
	}
	v.Title, v.Fix, v.InService = textOf("title flow-control-behind", "site", v.Site, "with", held.With), textOf("fix flow-control-behind", "with", held.With), true
	v.prependEvidence(evidenceOf("evidence held-calls", held.Share, "share", "with", held.With), evidenceOf("evidence held-calls-time", held.HeldNS, "ns"))
	v.doubt(0.85, textOf("phrase doubt-held-calls"))
	v.Gain = w.cand.gain.beyond(held.FreeNS)
	v.shortenTo(time.Duration(held.FreeNS).Round(10*time.Microsecond), textOf("phrase change-no-flow-control"))
	return true
}

// rewriteForWindowRounds rewrites a verdict on answers of which the window of HTTP/2 lets through a part in each round trip. The prediction is
// one round trip for each answer, which a wait for the header may contain. It returns false if they do not come like that, or no connection has so long a round trip.
func (w *peerWait) rewriteForWindowRounds(v *Verdict) bool {
	rounds := &w.calls.WindowRounds
	if rounds.PerCall < threshold.HalfShare {
		return false
	}
	tripNS, isKnown := w.in.longestRoundTrip()
	n, remainingShare := float64(w.cand.gain.All.NS)/float64(rounds.RoundNS)*float64(w.calls.Requests)/float64(w.calls.Calls), 0.0
	if rounds.OwnHeader {
		n++
	} else {
		remainingShare = 1 / n
	}
	if n < 2 || isKnown && 2*tripNS < rounds.RoundNS {
		return false
	}
	v.Title, v.Fix, v.InService = textOf("title window-rounds", "n", words.Figure(math.Round(n)), "time", words.Brief(rounds.RoundNS), "site", v.Site), textOf("fix window-rounds"), true
	if l := libraryOfRoute(w.top); l != nil && l.windowAdvice != "" {
		v.Fix = l.fix(l.windowAdvice)
	}
	v.prependEvidence(evidenceOf("evidence window-rounds", rounds.PerCall, "count"), evidenceOf("evidence window-round-trip", rounds.RoundNS, "ns"))
	if !isKnown {
		v.doubt(0.65, textOf("phrase doubt-window-rounds"))
	}
	v.Gain = w.cand.gain.scaled(1 - remainingShare)
	v.Share = v.Gain.All.Share
	v.scaleTo(remainingShare)
	v.ChangeText = textOf("phrase change-one-round")
	return true
}

// longestRoundTrip returns the longest of the shortest round trips to peers. It is not known without host samples, nor if a peer is on this
// host: behind it is perhaps another network.
func (in *Input) longestRoundTrip() (ns int64, isKnown bool) {
	if in.Report.Host == nil {
		return 0, false
	}
	for _, peer := range in.Report.Host.Network.Peers {
		s := firstMatch(in.Report.Host.Network.Sockets, func(s *report.HostSocket) bool { return s.Remote == peer && s.MinRTTNS > 0 })
		addr, err := netip.ParseAddrPort(peer)
		if s == nil || err != nil || addr.Addr().Unmap().IsLoopback() {
			return 0, false
		}
		ns = max(ns, s.MinRTTNS)
	}
	return ns, ns > 0
}
