package hostjoin

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// Bounds on lists in a report.
const (
	maxHostSockets         = 20
	maxWaits               = 20
	maxRetransmissionTimes = 20
)

// maxGapShare is the largest share of poll gaps, in poll gaps and network waits together, at which the network can be cleared:
// a longer gap may hide that an answer arrived earlier.
const maxGapShare = 0.1

// addNetwork sets h.Network: the retransmissions on the process's connections, the slow requests that waited during them, and
// the verdict whether the network lost segments.
func (v *view) addNetwork(h *report.Host, rep *report.Report) {
	n := &h.Network
	n.Sockets, n.Requests, n.Evidence = []report.HostSocket{}, []report.HostWait{}, []report.Evidence{}
	n.AllRetransmitted = v.totalGrowth(v.stepsOf(v.s.Points, false, func(x *host.Sample) *int64 { return x.Retransmitted }))
	n.Connections = v.s.MaxConnections
	var events []host.Event
	for _, e := range v.s.Events {
		if e.Poll+v.offset < v.from || e.PreviousPoll+v.offset > v.to {
			continue
		}
		events = append(events, e)
		n.OutOfOrder += e.OutOfOrder
		n.Needless += e.Spurious
		if e.Peer {
			n.PeerRetransmitted += e.Retransmitted
			continue
		}
		n.Retransmitted += e.Retransmitted
	}
	v.addSockets(n, events)
	n.Peers = peersOf(v.s)
	v.addDelayedRequests(n, events, rep)
	network, gaps := networkShares(rep)
	if n.Verdict, n.Text = v.networkVerdict(n, network, gaps); n.Needless > 0 {
		n.Text += "; " + segmentsText(n.Needless, "was", "were") + " retransmitted needlessly, as the other end reports: nothing was lost, an acknowledgement was late"
	}
	add := func(text string, value float64, unit string) {
		n.Evidence = append(n.Evidence, report.Evidence{Text: text, Value: value, Unit: unit})
	}
	if n.Needless > 0 {
		add("retransmitted segments that had arrived", float64(n.Needless), "segments")
	}
	if v.s.SocketPolls > 0 {
		add("segments retransmitted on the process's connections", float64(n.Retransmitted), "segments")
		add("segments that arrived out of order", float64(n.OutOfOrder), "segments")
	}
	if n.AllRetransmitted != nil {
		add("segments retransmitted in the whole network namespace", float64(*n.AllRetransmitted), "segments")
	}
	add("network's share of the slow requests' time", network, "share")
	add("poll gaps' share of it", gaps, "share")
}

// networkShares returns the share of network waits in the slow requests of the group in which this share is largest, and the
// share of poll gaps in the same group.
func networkShares(rep *report.Report) (network, gaps float64) {
	for i := range rep.Groups {
		b := rep.Groups[i].Tail()
		if b == nil {
			continue
		}
		groupNetwork, groupGaps := 0.0, 0.0
		for _, c := range b.Causes {
			switch c.Cause {
			case report.CauseNetwork:
				groupNetwork += c.Share
			case report.CauseSchedPoll:
				groupGaps += c.Share
			}
		}
		if groupNetwork > network {
			network, gaps = groupNetwork, groupGaps
		}
	}
	return network, gaps
}

// networkVerdict returns the verdict on the network and its reason in words. It clears the network only if every retransmission
// would be visible and no poll gap can hide an answer. network and gaps are shares of the slow requests' time.
func (v *view) networkVerdict(n *report.HostNetwork, network, gaps float64) (verdict report.NetworkVerdict, text string) {
	retransmitted := n.Retransmitted + n.PeerRetransmitted
	switch {
	case v.s.SocketPolls == 0:
		return report.NetworkUnknown, "the process's connections were not read"
	case retransmitted > 0 && len(n.Requests) > 0:
		w := &n.Requests[0]
		return report.NetworkLost, fmt.Sprintf("%s retransmitted on the process's connections, some while a slow request waited %v for the network",
			segmentsText(retransmitted, "was", "were"), time.Duration(w.DurationNS).Round(100*time.Microsecond))
	case retransmitted > 0 && network >= threshold.MinorShare:
		return report.NetworkUnknown, fmt.Sprintf("%s retransmitted on the process's connections, but not while the slowest requests waited for the network", segmentsText(retransmitted, "was", "were"))
	case retransmitted > 0:
		return report.NetworkUnknown, fmt.Sprintf("%s retransmitted on the process's connections; slow requests hardly waited for the network", segmentsText(retransmitted, "was", "were"))
	case n.AllRetransmitted == nil:
		return report.NetworkUnknown, "no connection that is still open retransmitted anything; closed ones were not read"
	case *n.AllRetransmitted > 0 && v.unseenRetransmissions() > 0:
		return report.NetworkUnknown, fmt.Sprintf("%s retransmitted in this network namespace, but on no connection of the process that was seen: another process's, or connections that closed too soon", segmentsText(*n.AllRetransmitted, "was", "were"))
	case n.OutOfOrder > 0:
		return report.NetworkUnknown, fmt.Sprintf("nothing that the process sent was lost, but %s out of order: the network may have lost what the other side sent", segmentsText(n.OutOfOrder, "arrived", "arrived"))
	case gaps > maxGapShare*(network+gaps):
		return report.NetworkUnknown, "nothing was retransmitted, but no P polled the network for part of the wait (poll gaps): the answer may have arrived earlier"
	case network < threshold.MinorShare:
		return report.NetworkCleared, "nothing was retransmitted or arrived out of order on the process's connections, and slow requests hardly waited for the network"
	}
	return report.NetworkCleared, "nothing was retransmitted or arrived out of order on the process's connections, and no poll gap hides anything: requests that waited for the network waited for the other side's answer"
}

// unseenRetransmissions returns the number of segments that were retransmitted in the network namespace while the process's
// connections could not be sampled: such a connection may have closed before the next sample.
func (v *view) unseenRetransmissions() int64 {
	from, to := v.enclosingSamples()
	return to.UnattributedRetransmits - from.UnattributedRetransmits
}

// segmentsText returns "1 segment" or "N segments" with a verb, of which both forms are given.
func segmentsText(n int64, singular, plural string) string {
	if n == 1 {
		return "1 segment " + singular
	}
	return fmt.Sprintf("%d segments %s", n, plural)
}

// addSockets lists up to maxHostSockets connections of the process, ordered by retransmissions, packets out of order, and the last
// round trip time.
func (v *view) addSockets(n *report.HostNetwork, events []host.Event) {
	type connSums struct {
		retransmitted, outOfOrder int64
		times                     []int64
	}
	sumsByConn := map[host.Ends]*connSums{}
	for _, e := range events {
		x := entry.GetOrAdd(sumsByConn, e.Ends)
		x.retransmitted += e.Retransmitted
		x.outOfOrder += e.OutOfOrder
		if e.Retransmitted > 0 && len(x.times) < maxRetransmissionTimes {
			x.times = append(x.times, max(0, v.traceTime(e.Poll)))
		}
	}
	for _, key := range sortedEnds(v.s) {
		c, x := v.s.Connections[key], entry.GetOrAdd(sumsByConn, key)
		if c.Peer && x.retransmitted == 0 {
			continue
		}
		n.Sockets = append(n.Sockets, report.HostSocket{
			Local: key.Local.String(), Remote: key.Remote.String(), State: c.Last.State, Peer: c.Peer, Retransmitted: x.retransmitted, OutOfOrder: x.outOfOrder,
			RTTNS: c.Last.RTTNS, MinRTTNS: c.Last.MinRTTNS, WhenNS: x.times,
		})
	}
	slices.SortStableFunc(n.Sockets, func(a, b report.HostSocket) int {
		return cmp.Or(cmp.Compare(b.Retransmitted, a.Retransmitted), cmp.Compare(b.OutOfOrder, a.OutOfOrder), cmp.Compare(b.RTTNS, a.RTTNS))
	})
	n.Sockets = n.Sockets[:min(len(n.Sockets), maxHostSockets)]
}

// peersOf returns the addresses to which the process opened connections, without its own; nil if that is not known.
func peersOf(s *host.Samples) (peers []string) {
	if s.ListenPorts == nil {
		return nil
	}
	for _, ends := range sortedEnds(s) {
		otherEnd := s.Connections[host.Ends{Local: ends.Remote, Remote: ends.Local}]
		if s.Connections[ends].Peer || s.ListenPorts[ends.Local.Port()] || otherEnd != nil && !otherEnd.Peer {
			continue
		}
		if remote := ends.Remote.String(); !slices.Contains(peers, remote) && len(peers) < maxHostSockets {
			peers = append(peers, remote)
		}
	}
	return peers
}

// addDelayedRequests lists the slow requests that waited for the network during a retransmission, the longest wait first. A
// lost segment was sent before it was retransmitted, so the interval between the two samples must overlap the wait.
func (v *view) addDelayedRequests(n *report.HostNetwork, events []host.Event, rep *report.Report) {
	// A local port with several connections serves clients. A retransmission to a client delays no wait for a peer.
	clientCount := map[netip.AddrPort]int{}
	for conn, c := range v.s.Connections {
		if !c.Peer {
			clientCount[conn.Local]++
		}
	}
	for g := range entry.Each(rep.Groups) {
		for r := range entry.Each(g.Slowest) {
			for _, seg := range r.Segments {
				if seg.Cause != report.CauseNetwork || seg.DurationNS < minWait {
					continue
				}
				w := report.HostWait{Group: g.ID, Request: r.ID, StartNS: seg.StartNS, DurationNS: seg.DurationNS, Site: seg.Site, Sockets: []string{}}
				for _, e := range events {
					from, to := v.traceTime(earliestTime(v.s, &e)), v.traceTime(e.Poll)
					if e.Retransmitted == 0 || seg.Kind == "outbound" && clientCount[ownEnd(&e)] > 1 || to < seg.StartNS || from > seg.StartNS+seg.DurationNS {
						continue
					}
					w.Retransmitted += e.Retransmitted
					w.AgainNS = max(w.AgainNS, min(to, seg.StartNS+seg.DurationNS)-seg.StartNS)
					if name := lossDirection(&e); !slices.Contains(w.Sockets, name) && len(w.Sockets) < maxHostSockets {
						w.Sockets = append(w.Sockets, name)
					}
				}
				if w.Retransmitted > 0 {
					n.Requests = append(n.Requests, w)
				}
			}
		}
	}
	slices.SortStableFunc(n.Requests, func(a, b report.HostWait) int { return cmp.Compare(b.DurationNS, a.DurationNS) })
	n.Requests = n.Requests[:min(len(n.Requests), maxWaits)]
}

// earliestTime returns the earliest time at which the events counted in a sample can have happened: that of the previous
// sample, which on a busy machine is more than an interval before. If samples are missing, the bound is maxLateIntervals.
func earliestTime(s *host.Samples, e *host.Event) int64 {
	interval := max(s.IntervalNS, 1)
	from := e.Poll - 2*interval
	if i, _ := slices.BinarySearchFunc(s.Points, e.Poll, func(x host.Sample, t int64) int { return cmp.Compare(x.MonoNS, t) }); i > 0 {
		from = min(from, max(s.Points[i-1].MonoNS, e.Poll-maxLateIntervals*interval))
	}
	return max(e.PreviousPoll, from)
}

// maxLateIntervals is the largest delay of a sample, in intervals. A longer gap means that samples are missing.
const maxLateIntervals = 10

// ownEnd returns the process's own end of an event's connection.
func ownEnd(e *host.Event) netip.AddrPort {
	if e.Peer {
		return e.Ends.Remote
	}
	return e.Ends.Local
}

// lossDirection returns the two ends of an event's connection, the process's own first, with an arrow in the direction
// of the lost segments.
func lossDirection(e *host.Event) string {
	if e.Peer { // the socket is the peer's, which sent the segments
		return e.Ends.Remote.String() + " <- " + e.Ends.Local.String()
	}
	return e.Ends.Local.String() + " -> " + e.Ends.Remote.String()
}

// minWait is the shortest wait that a lost segment can cause: Linux retransmits after 200 ms, or, for the last segment
// of a burst, after two round trips and at least about 2 ms (tail loss probe, RFC 8985).
const minWait = int64(2 * time.Millisecond)

// sortedEnds returns the connections in a deterministic order.
func sortedEnds(s *host.Samples) []host.Ends {
	return slices.SortedFunc(maps.Keys(s.Connections), func(a, b host.Ends) int {
		return cmp.Or(a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
	})
}
