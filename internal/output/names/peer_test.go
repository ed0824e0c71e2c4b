package names

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestPeerDoing: states that differ only in details are one, small ones are left out, and each state has its words.
func TestPeerDoing(t *testing.T) {
	const who = "python3 (pid 7)"
	for want, states := range map[string][]report.PeerState{
		"python3 (pid 7; 97% computing)":                                                                                       {{Process: who, State: report.PeerRunning, TotalNS: 97, Share: 0.97}, {Process: who, State: report.PeerTimer, TotalNS: 3, Share: 0.03}},
		"python3 (pid 7; 60% waiting for a CPU while java ran, 30% on the way)":                                                {{Process: who, State: report.PeerCPUWait, Detail: "java", TotalNS: 40, Share: 0.4}, {Process: who, State: report.PeerOnTheWay, TotalNS: 30, Share: 0.3}, {Process: who, State: report.PeerCPUWait, Detail: "go", TotalNS: 20, Share: 0.2}},
		"redis (20% busy with other work first (asleep until a timer))":                                                        {{Process: "redis", State: report.PeerTimer, Unread: true, TotalNS: 20, Share: 0.2}},
		"postgres (2 processes; 50% waiting for another process of postgres, python3 (pid 7) 40% waiting for a disk in fsync)": {{Process: "postgres (2 processes)", State: report.PeerProcess, Detail: "another process of postgres", TotalNS: 50, Share: 0.5}, {Process: who, State: report.PeerDisk, Detail: "fsync", TotalNS: 40, Share: 0.4}},
	} {
		check.Equal(t, PeerDoing(states), want, "%+v", states)
	}
	seen := map[string]bool{}
	for _, state := range []report.PeerStateName{report.PeerRunning, report.PeerCPUWait, report.PeerThrottled, report.PeerStopped, report.PeerDisk, report.PeerLock, report.PeerTimer, report.PeerNetwork, report.PeerPipe, report.PeerProcess, report.PeerOther, report.PeerOnTheWay, report.PeerArrived} {
		text := PeerState(&report.PeerState{State: state})
		check.False(t, text == "" || seen[text], "%s: %q", state, text)
		seen[text] = true
	}
}
