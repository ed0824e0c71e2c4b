package finding

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/whylate/whylate/report"
)

// checkRetransmissions is WL2008, retransmissions.
func checkRetransmissions(in *Input, g *report.Group) []Verdict {
	host := in.Report.Host
	if host == nil || host.Network.Verdict != report.NetworkLost {
		return nil
	}
	var waits []*report.HostWait
	requests := map[string]bool{}
	for k := range host.Network.Requests {
		if w := &host.Network.Requests[k]; w.Group == g.ID {
			waits = append(waits, w)
			requests[w.Request] = true
		}
	}
	if len(waits) == 0 || len(g.Slowest) == 0 {
		return nil
	}
	return []Verdict{retransmitVerdict(g, host, waits, min(1, float64(len(requests))/float64(len(g.Slowest))))}
}

// retransmitVerdict is the verdict on a group in which a share of the slowest requests waited during a retransmission:
// those in waits.
func retransmitVerdict(g *report.Group, host *report.Host, waits []*report.HostWait, affectedShare float64) Verdict {
	share, gain := weigh(g, isNetwork)
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
		Title: "the network loses segments " + remoteNames(waits), Cause: report.CauseNetwork, Site: waits[0].Site, Group: g.ID, Share: share, Confidence: 0.9,
		Evidence: []report.Evidence{
			measurement("segments retransmitted on the process's connections", n.Retransmitted, "segments"),
			measurement("mean length of the network waits in which that happened", meanNS, "ns"),
			measurement(fmt.Sprintf("share of the %d slowest requests that met it", len(g.Slowest)), affectedShare, "share"),
			measurement("chance that a wait of this length meets one by accident", chance, "share"),
		},
		Fix: "check the path, not the peer: queues and policers, interface errors (ip -s link), a wrong MTU, conntrack tables; until it is fixed, time out and retry early, or hedge",
	}}
	if areOnThisHost(waits) {
		v.Title = "segments " + remoteNames(waits) + " were retransmitted, although both ends are on this host"
		v.Fix = "check the process at the other end, on this host: its accept queue (ss -ltn) or a receive buffer may be full, a filter may drop packets, or it had no CPU"
	}
	if lostShare := retransmitWaitShare(g, host); lostShare > 0 {
		v.addEvidence(measurement("share of their network waits that passed before a retransmission; the answers came right after it", lostShare, "share"))
	} else if chance > 0.5 {
		v.Confidence = 0.7
	}
	for i := range n.Sockets {
		s := &n.Sockets[i]
		if s.Retransmitted == 0 || i == 3 {
			break
		}
		text := "retransmitted, " + s.Local + " -> " + s.Remote
		if len(s.WhenNS) > 0 {
			text += fmt.Sprintf(", first at %v", time.Duration(s.WhenNS[0]).Round(time.Millisecond))
		}
		v.addEvidence(measurement(text, s.Retransmitted, "segments"))
	}
	return v
}

// retransmitWaitShare returns the share of the slow requests' network waits that passed before a segment was
// retransmitted; 0 if chance can explain it. A slow peer answers at any time after a retransmission, but a lost query
// is answered right after it.
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
	for i := range host.Network.Requests {
		if w := &host.Network.Requests[i]; w.Group == g.ID {
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

// otherEnd returns the other end of a connection in a HostWait, and the direction of the segments: to it, or from it.
func otherEnd(connection string) (end, direction string) {
	if _, to, ok := strings.Cut(connection, " -> "); ok {
		return to, "to "
	}
	_, from, _ := strings.Cut(connection, " <- ")
	return from, "from "
}

// remoteNames names the other ends of the connections with losses.
func remoteNames(waits []*report.HostWait) string {
	var names []string
	isListed := map[string]bool{}
	for _, w := range waits {
		for _, s := range w.Sockets {
			if end, direction := otherEnd(s); end != "" && !isListed[end] {
				isListed[end] = true
				names = append(names, direction+end)
			}
		}
	}
	switch {
	case len(names) == 0:
		return "of its peers"
	case len(names) > 2:
		return fmt.Sprintf("%s and %d others", names[0], len(names)-1)
	}
	return strings.Join(names, " and ")
}

// areOnThisHost reports whether all other ends have loopback addresses: no network is between the ends.
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

// networkEvidence returns what host samples show for or against the network, for rules about a peer.
func networkEvidence(h *report.Host) []report.Evidence {
	if h == nil || h.Network.Verdict == report.NetworkUnknown || h.Network.Verdict == "" {
		return nil
	}
	text := "segments retransmitted on the process's connections in that time: the network is cleared"
	if h.Network.Verdict == report.NetworkLost {
		text = "segments retransmitted on the process's connections in that time: see WL2008"
	}
	return []report.Evidence{measurement(text, h.Network.Retransmitted+h.Network.PeerRetransmitted, "segments")}
}
