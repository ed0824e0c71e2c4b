package finding

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestObservedPeer: two routes of one row count once, the states must explain the wait, and what to do follows from the largest.
func TestObservedPeer(t *testing.T) {
	const who = "python3 (pid 7)"
	row := &report.Cause{TotalNS: 100, PeerStates: []report.PeerState{
		{Process: who, State: report.PeerLock, TotalNS: 70, Share: 0.7}, {Process: who, State: report.PeerRunning, TotalNS: 20, Share: 0.2}}}
	p := observedPeerOf(&candidate{routes: []causeRoute{{Cause: row}, {Cause: row}}})
	check.True(t, p.isKnown() && p.divided > 0.89 && p.divided < 0.91 && p.waiting > 0.69 && p.waiting < 0.71, "%+v", p)
	unknown := observedPeerOf(&candidate{routes: []causeRoute{{Cause: row}, {Cause: &report.Cause{TotalNS: 100}}}})
	check.False(t, unknown.isKnown(), "%+v", unknown)
	for state, want := range map[report.PeerState]string{
		{State: report.PeerLock}: "find the lock", {State: report.PeerRunning}: "computes", {State: report.PeerCPUWait, Detail: "java"}: "java ran", {State: report.PeerCPUWait}: "others ran",
		{State: report.PeerDisk}: "disk", {State: report.PeerTimer}: "delay", {State: report.PeerNetwork}: "its own network", {State: report.PeerProcess, Detail: "another process of postgres"}: "another process of postgres",
		{State: report.PeerPipe}: "find out why", {State: report.PeerTimer, Unread: true}: "other work", {State: report.PeerThrottled}: "quota", {State: report.PeerOnTheWay}: "the network between",
	} {
		state.Process, state.TotalNS, state.Share = who, 90, 0.9
		v := Verdict{}
		answered := causeRoute{Cause: &report.Cause{TotalNS: 100, PeerStates: []report.PeerState{state}}}
		(&peerWait{cand: &candidate{routes: []causeRoute{answered}}, callsOnce: true}).rewriteForObservedPeer(&v)
		check.True(t, strings.Contains(v.Fix, want) && strings.Contains(v.Title, "python3 (pid 7; 90%") && len(v.Evidence) == 1, "%+v: %q, %q", state, v.Title, v.Fix)
	}
}
