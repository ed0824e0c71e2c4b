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
	h := in.Report.Host
	if h == nil || h.Network.Verdict != report.NetworkLost {
		return nil
	}
	var met []*report.HostWait
	requests := map[string]bool{}
	for k := range h.Network.Requests {
		if w := &h.Network.Requests[k]; w.Group == g.ID {
			met = append(met, w)
			requests[w.Request] = true
		}
	}
	if len(met) == 0 || len(g.Slowest) == 0 {
		return nil
	}
	return []Verdict{retransmitVerdict(g, h, met, min(1, float64(len(requests))/float64(len(g.Slowest))))}
}

// retransmitVerdict is about a group in which a part of the slowest requests
// met a retransmission, those in met.
func retransmitVerdict(g *report.Group, h *report.Host, met []*report.HostWait, part float64) Verdict {
	share, won := weigh(g, isNetwork)
	n := &h.Network
	again, sum := n.Retransmitted+n.PeerRetransmitted, int64(0)
	for _, w := range met {
		sum += w.DurationNS
	}
	mean := sum / int64(len(met))
	// No more than all that was sent again can have cost, at what one cost.
	if most := float64(again) * float64(mean); most < float64(won.TotalNS) {
		share *= most / float64(won.TotalNS)
		won.TotalNS = int64(most)
	}
	won.Slow, won.All, won.OtherTail = won.Slow.scaled(part), won.All.scaled(part), Loss{}
	// How likely a wait of this length would meet a retransmission that has nothing to do with it.
	chance := 1 - math.Exp(-float64(again)*float64(mean+2*h.IntervalNS)/float64(max(1, h.ToNS-h.FromNS)))
	v := Verdict{Gain: won, Finding: report.Finding{
		Title: "the network loses segments " + remotes(met), Cause: report.CauseNetwork, Site: met[0].Site, Group: g.ID, Share: share, Confidence: 0.9,
		Evidence: []report.Evidence{
			measured("segments retransmitted on the process's connections", n.Retransmitted, "segments"),
			measured("mean length of the network waits in which that happened", mean, "ns"),
			measured(fmt.Sprintf("share of the %d slowest requests that met it", len(g.Slowest)), part, "share"),
			measured("chance that a wait of this length meets one by accident", chance, "share"),
		},
		Fix: "check the path, not the peer: queues and policers, interface errors (ip -s link), a wrong MTU, conntrack tables; until it is fixed, time out and retry early, or hedge",
	}}
	if onThisHost(met) {
		v.Title = "segments " + remotes(met) + " were retransmitted, although both ends are on this host"
		v.Fix = "check the process at the other end, on this host: its accept queue (ss -ltn) or a receive buffer may be full, a filter may drop packets, or it had no CPU"
	}
	if explained := lostOnTheWay(g, h); explained > 0 {
		v.addEvidence(measured("share of their network waits that passed before a retransmission; the answers came right after it", explained, "share"))
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
		v.addEvidence(measured(text, s.Retransmitted, "segments"))
	}
	return v
}

// lostOnTheWay returns the share of the time for which slow requests of a group waited for the network that passed until a
// segment was sent again; 0 if that can be chance. A slow peer's answers come any time after a segment was sent again, those to
// a lost question as soon as the question is there.
func lostOnTheWay(g *report.Group, h *report.Host) float64 {
	if h == nil || h.Network.Verdict != report.NetworkLost {
		return 0
	}
	all, lost, rest, waits := int64(0), int64(0), int64(0), 0
	for i := range g.Slowest {
		for _, s := range g.Slowest[i].Segments {
			if s.Cause == report.CauseNetwork {
				all += s.DurationNS
			}
		}
	}
	for i := range h.Network.Requests {
		if w := &h.Network.Requests[i]; w.Group == g.ID {
			// It was sent again up to an interval before it was seen: half of one on average, and a whole one in doubt.
			lost += max(0, w.AgainNS-h.IntervalNS/2)
			rest += w.DurationNS - w.AgainNS + h.IntervalNS
			waits++
		}
	}
	// That so many times what was sent again at random is followed by an answer within rest, in all.
	x := float64(h.Network.Retransmitted+h.Network.PeerRetransmitted) * float64(rest) / float64(max(1, h.ToNS-h.FromNS))
	chance, term := 1.0, math.Exp(-x)
	for n := range waits {
		chance -= term
		term *= x / float64(n+1)
	}
	if waits == 0 || chance > 0.1 {
		return 0
	}
	return min(1, float64(lost)/float64(max(1, all)))
}

// otherEnd returns the other end of a connection as HostWait names it, and how the segments went: to it, or from it.
func otherEnd(connection string) (end, way string) {
	if _, to, ok := strings.Cut(connection, " -> "); ok {
		return to, "to "
	}
	_, from, _ := strings.Cut(connection, " <- ")
	return from, "from "
}

// remotes names the other ends of the sockets that lost most.
func remotes(met []*report.HostWait) string {
	var names []string
	seen := map[string]bool{}
	for _, w := range met {
		for _, s := range w.Sockets {
			if end, way := otherEnd(s); end != "" && !seen[end] {
				seen[end] = true
				names = append(names, way+end)
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

// onThisHost reports whether all other ends have loopback addresses: nothing is lost on the way there.
func onThisHost(met []*report.HostWait) bool {
	any := false
	for _, w := range met {
		for _, s := range w.Sockets {
			end, _ := otherEnd(s)
			addr, err := netip.ParseAddrPort(end)
			if err != nil || !addr.Addr().Unmap().IsLoopback() {
				return false
			}
			any = true
		}
	}
	return any
}

// networkEvidence is what host samples say for or against the network, for
// rules that blame a peer.
func networkEvidence(h *report.Host) []report.Evidence {
	if h == nil || h.Network.Verdict == report.NetworkUnknown || h.Network.Verdict == "" {
		return nil
	}
	text := "segments retransmitted on the process's connections in that time: the network is cleared"
	if h.Network.Verdict == report.NetworkLost {
		text = "segments retransmitted on the process's connections in that time: see WL2008"
	}
	return []report.Evidence{measured(text, h.Network.Retransmitted+h.Network.PeerRetransmitted, "segments")}
}
