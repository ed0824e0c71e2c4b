package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// An observedPeer is what the kernel's events show of the processes at the other end of a candidate's waits.
type observedPeer struct {
	states  []report.PeerState // the largest first; shares of the waits
	divided float64            // share of the waits that they divide
	waiting float64            // share in which the peer was kept from working
}

// observedPeerOf adds up the states of peers over the causes of a candidate's routes, each cause once.
func observedPeerOf(cand *candidate) (out observedPeer) {
	var rows []*report.Cause
	var totalNS int64
	for i := range cand.routes {
		row := cand.routes[i].Cause
		if slices.Contains(rows, row) {
			continue
		}
		rows, totalNS = append(rows, row), totalNS+row.TotalNS
		for _, x := range row.PeerStates {
			out.states = report.AddPeerState(out.states, x)
		}
	}
	out.states = names.MergePeerDetails(out.states)
	for x := range each(out.states) {
		x.Share = min(1, float64(x.TotalNS)/float64(max(1, totalNS)))
		out.divided += x.Share
		switch x.State {
		case report.PeerCPUWait, report.PeerThrottled, report.PeerStopped, report.PeerDisk, report.PeerLock, report.PeerTimer, report.PeerProcess:
			out.waiting += x.Share
		}
	}
	return out
}

// isKnown reports whether the states explain the waits.
func (p *observedPeer) isKnown() bool { return p.divided >= threshold.MostShare }

// peerFixes are the texts of what to do about the state in which a peer spends most of the time; others have that of PeerOther.
var peerFixes = map[report.PeerStateName]textKey{
	report.PeerRunning: "fix peer-computes", report.PeerCPUWait: "fix peer-without-cpu", report.PeerThrottled: "fix peer-throttled", report.PeerDisk: "fix peer-disk",
	report.PeerLock: "fix peer-lock", report.PeerTimer: "fix peer-timer", report.PeerNetwork: "fix peer-network", report.PeerProcess: "fix peer-process", report.PeerOther: "fix peer-asleep",
	report.PeerOnTheWay: "fix peer-way", report.PeerArrived: "fix peer-arrived",
}

// rewriteForObservedPeer rewrites a verdict on waits of which it is known what the peer did: its title, its fix and the first of its
// evidence. It returns false, and changes nothing, for others.
func (w *peerWait) rewriteForObservedPeer(v *Verdict) bool {
	p := observedPeerOf(w.cand)
	if !p.isKnown() {
		return false
	}
	first := &p.states[0]
	v.Title = textOf("title slow-peer", "awaited", textOf("phrase awaited-at", "awaited", names.PeerDoing(p.states[:1]), "site", v.Site))
	key, ok := peerFixes[first.State]
	switch {
	case first.Unread:
		key = "fix peer-busy"
	case !ok:
		key = "fix peer-asleep"
	case first.State == report.PeerCPUWait && first.Detail == "":
		key = "fix peer-without-cpu-any"
	}
	v.Fix = textOf(key, "peer", first.Process, "detail", first.Detail, "doing", names.PeerState(first))
	if !w.callsOnce {
		v.Fix = textOf("fix peer-and-less", "fix", v.Fix)
	}
	var evidence []report.Evidence
	for x := range each(p.states) {
		if x.Share >= threshold.MinorShare {
			evidence = append(evidence, evidenceOf("evidence peer-state", x.Share, "share", "peer", x.Process, "doing", names.PeerState(x)))
		}
	}
	v.prependEvidence(evidence...)
	v.Confidence = max(v.Confidence, 0.95)
	if p.waiting < threshold.HalfShare {
		v.MaxSeverityByAll = report.SeverityLow // it works on the answer: no evidence that it can be faster
	}
	return true
}
