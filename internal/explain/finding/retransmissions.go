package finding

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// checkRetransmissions is WL2008, retransmissions: host samples show that the network lost segments while the slowest requests of
// the group waited for it.
func checkRetransmissions(in *Input, g *report.Group) []Verdict {
	host := in.Report.Host
	if host == nil || host.Network.Verdict != report.NetworkLost {
		return nil
	}
	var waits []*report.HostWait
	requests := map[string]bool{}
	usualNS := usualNetworkWaitNS(g, host.Network.Requests)
	for w := range each(host.Network.Requests) {
		if w.Group == g.ID && 2*w.DurationNS > 3*usualNS {
			waits = append(waits, w)
			requests[w.Request] = true
		}
	}
	if len(waits) == 0 || len(g.Slowest) == 0 {
		return nil
	}
	return []Verdict{retransmitVerdict(g, host, waits, min(1, float64(len(requests))/float64(len(g.Slowest))))}
}

// usualNetworkWaitNS returns the median of the slowest requests' waits at the sites of waits that met no retransmission; 0 if there are few. A
// lost segment makes a wait longer than these are: one that is no longer met the retransmission of another connection by accident.
func usualNetworkWaitNS(g *report.Group, waits []report.HostWait) int64 {
	var usual []int64
	for r := range each(g.Slowest) {
		for s := range each(r.Segments) {
			isSite := func(w report.HostWait) bool { return s.Site.Equal(w.Site) }
			isDelayed := func(w report.HostWait) bool {
				return w.StartNS < s.StartNS+s.DurationNS && s.StartNS < w.StartNS+w.DurationNS
			}
			if s.Cause == report.CauseNetwork && s.Site != nil && slices.ContainsFunc(waits, isSite) && !slices.ContainsFunc(waits, isDelayed) {
				usual = append(usual, s.DurationNS)
			}
		}
	}
	if len(usual) < threshold.Repeats {
		return 0
	}
	slices.Sort(usual)
	return usual[len(usual)/2]
}

// retransmitVerdict returns the verdict on a group whose network waits in waits include a retransmission; affectedShare is the
// share of the slowest requests that have one. The loss is at most the mean wait times the number of retransmitted segments.
func retransmitVerdict(g *report.Group, host *report.Host, waits []*report.HostWait, affectedShare float64) Verdict {
	share, gain := gainWithout(g, isNetwork)
	n := &host.Network
	retransmitted, sumNS := n.Retransmitted+n.PeerRetransmitted, int64(0)
	for _, w := range waits {
		sumNS += w.DurationNS
	}
	meanNS := sumNS / int64(len(waits))
	// The loss is at most that of one retransmission times their number.
	if maxNS := float64(retransmitted) * float64(meanNS); maxNS < float64(gain.TotalNS) {
		share *= maxNS / float64(gain.TotalNS)
		gain.TotalNS = int64(maxNS)
	}
	gain.Slow, gain.All, gain.OtherTail = gain.Slow.scaled(affectedShare), gain.All.scaled(affectedShare), Loss{}
	// The probability that an unrelated retransmission falls within a wait of this length.
	chance := 1 - math.Exp(-float64(retransmitted)*float64(meanNS+2*host.IntervalNS)/float64(max(1, host.ToNS-host.FromNS)))
	v := Verdict{Gain: gain, Finding: report.Finding{
		Title: textOf("title retransmissions", "ends", remoteNames(waits)), Fix: textOf("fix retransmissions"), Cause: report.CauseNetwork, Site: waits[0].Site, Group: g.ID, Share: share, Confidence: 0.9,
		Evidence: []report.Evidence{
			evidenceOf("evidence retransmitted", n.Retransmitted, "segments"),
			evidenceOf("evidence retransmission-wait", meanNS, "ns"),
			evidenceOf("evidence retransmission-requests", affectedShare, "share", "n", len(g.Slowest)),
			evidenceOf("evidence retransmission-chance", chance, "share"),
		},
	}}
	if areOnThisHost(waits) {
		v.Title, v.Fix = textOf("title retransmissions-on-host", "ends", remoteNames(waits)), textOf("fix retransmissions-on-host")
	}
	if lostShare := retransmitWaitShare(g, host); lostShare > 0 {
		v.addEvidence(evidenceOf("evidence retransmission-answers", lostShare, "share"))
	} else if chance > 0.5 {
		v.Confidence = 0.7
	}
	for i := range n.Sockets {
		s := &n.Sockets[i]
		if s.Retransmitted == 0 || i == 3 {
			break
		}
		if len(s.WhenNS) > 0 {
			first := time.Duration(s.WhenNS[0]).Round(time.Millisecond)
			v.addEvidence(evidenceOf("evidence retransmitted-on-first", s.Retransmitted, "segments", "local", s.Local, "remote", s.Remote, "time", first))
		} else {
			v.addEvidence(evidenceOf("evidence retransmitted-on", s.Retransmitted, "segments", "local", s.Local, "remote", s.Remote))
		}
	}
	return v
}

// retransmitWaitShare returns the share of the slowest requests' network time that passed before the retransmission in that wait:
// the time that the lost segment cost. It is 0 if the probability is above 10 % that answers follow this many random
// retransmissions this closely. The answer to a lost query comes right after the retransmission, that of a slow peer at any time.
func retransmitWaitShare(g *report.Group, host *report.Host) float64 {
	if host == nil || host.Network.Verdict != report.NetworkLost {
		return 0
	}
	allNS, lostNS, restNS, count := int64(0), int64(0), int64(0), 0
	for i := range g.Slowest {
		for _, s := range g.Slowest[i].Segments {
			if s.Cause == report.CauseNetwork {
				allNS += s.DurationNS
			}
		}
	}
	for w := range each(host.Network.Requests) {
		if w.Group == g.ID {
			// The retransmission happened up to an interval before the sample: half of one on average, a whole one as a bound.
			lostNS += max(0, w.AgainNS-host.IntervalNS/2)
			restNS += w.DurationNS - w.AgainNS + host.IntervalNS
			count++
		}
	}
	// The probability that this many random retransmissions are each followed by an answer, within rest in total.
	x := float64(host.Network.Retransmitted+host.Network.PeerRetransmitted) * float64(restNS) / float64(max(1, host.ToNS-host.FromNS))
	chance, term := 1.0, math.Exp(-x)
	for n := range count {
		chance -= term
		term *= x / float64(n+1)
	}
	if count == 0 || chance > 0.1 {
		return 0
	}
	return min(1, float64(lostNS)/float64(max(1, allNS)))
}

// otherEnd returns the address of the other end of a connection in the form of a HostWait ("A -> B", "A <- B"), and the text for
// the direction of the lost segments.
func otherEnd(connection string) (end string, direction textKey) {
	if _, to, ok := strings.Cut(connection, " -> "); ok {
		return to, "phrase to-end"
	}
	_, from, _ := strings.Cut(connection, " <- ")
	return from, "phrase from-end"
}

// remoteNames returns a phrase for the other ends of the connections that lost segments: the first two, or the first and a
// number.
func remoteNames(waits []*report.HostWait) string {
	var names []string
	isListed := map[string]bool{}
	for _, w := range waits {
		for _, s := range w.Sockets {
			if end, direction := otherEnd(s); end != "" && !isListed[end] {
				isListed[end] = true
				names = append(names, textOf(direction, "end", end))
			}
		}
	}
	switch len(names) {
	case 0:
		return textOf("phrase ends-unknown")
	case 1:
		return names[0]
	case 2:
		return textOf("phrase two-ends", "first", names[0], "second", names[1])
	}
	return textOf("phrase many-ends", "first", names[0], "n", len(names)-1)
}

// areOnThisHost reports whether the other ends of all connections have loopback addresses, so that no network is between the
// ends. It returns false if no end is known.
func areOnThisHost(waits []*report.HostWait) bool {
	hasEnd := false
	for _, w := range waits {
		for _, s := range w.Sockets {
			end, _ := otherEnd(s)
			addr, err := netip.ParseAddrPort(end)
			if err != nil || !addr.Addr().Unmap().IsLoopback() {
				return false
			}
			hasEnd = true
		}
	}
	return hasEnd
}

// networkEvidence returns what host samples show about the network, for rules about a peer: that segments were lost, or that none
// were. It is empty if that is unknown.
func networkEvidence(h *report.Host) []report.Evidence {
	if h == nil || h.Network.Verdict == report.NetworkUnknown || h.Network.Verdict == "" {
		return nil
	}
	key := textKey("evidence network-cleared")
	if h.Network.Verdict == report.NetworkLost {
		key = "evidence network-loses"
	}
	return []report.Evidence{evidenceOf(key, h.Network.Retransmitted+h.Network.PeerRetransmitted, "segments")}
}
