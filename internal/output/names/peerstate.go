package names

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// PeerDoing names the peer with the most time, and lists its states during most of a wait: "python3 (pid 7; 97% running)".
func PeerDoing(states []report.PeerState) string {
	states = MergePeerDetails(states)
	first := &states[0]
	text := termtext.Head(first.Process, 60)
	open := " ("
	if rest, ok := strings.CutSuffix(text, ")"); ok {
		text, open = rest, "; "
	}
	const leastShare, maxStates = 0.1, 3
	stateList := ""
	for i := range states {
		x := &states[i]
		if i == maxStates || i > 0 && x.Share < leastShare {
			break
		}
		if stateList != "" {
			stateList += ", "
		}
		if x.Process != first.Process {
			stateList += termtext.Head(x.Process, 40) + " "
		}
		stateList += words.Percent(x.Share) + " " + PeerState(x)
	}
	return text + open + stateList + ")"
}

// MergePeerDetails returns states that differ only in their details as one, with the detail of most of it.
func MergePeerDetails(states []report.PeerState) []report.PeerState {
	var out []report.PeerState
	detailNS := []int64{} // of the detail of each
	for _, x := range states {
		i := slices.IndexFunc(out, func(y report.PeerState) bool {
			return y.Process == x.Process && y.State == x.State && y.Unread == x.Unread
		})
		if i < 0 {
			out, detailNS = append(out, x), append(detailNS, x.TotalNS)
			continue
		}
		out[i].TotalNS, out[i].Share = out[i].TotalNS+x.TotalNS, out[i].Share+x.Share
	}
	for i := range out {
		if 2*detailNS[i] < out[i].TotalNS {
			out[i].Detail = ""
		}
	}
	slices.SortStableFunc(out, func(a, b report.PeerState) int { return cmp.Compare(b.TotalNS, a.TotalNS) })
	return out
}

// PeerState says what a peer did, for a sentence about it.
func PeerState(x *report.PeerState) string {
	text := ""
	switch x.State {
	case report.PeerRunning:
		text = "computing"
	case report.PeerCPUWait:
		text = "waiting for a CPU"
		if x.Detail != "" {
			text += " while " + termtext.Head(x.Detail, 60) + " ran"
		}
	case report.PeerThrottled:
		text = "held back by its CPU quota"
	case report.PeerStopped:
		text = "stopped"
	case report.PeerDisk:
		text = "waiting for a disk"
		if x.Detail != "" {
			text += " in " + termtext.Head(x.Detail, 40)
		}
	case report.PeerLock:
		text = "waiting for a lock or another of its threads"
	case report.PeerTimer:
		text = "asleep until a timer"
	case report.PeerNetwork:
		text = "waiting for its own network"
	case report.PeerPipe:
		text = "waiting for a pipe"
	case report.PeerProcess:
		text = "waiting for " + termtext.Head(x.Detail, 60)
	case report.PeerOnTheWay:
		text = "on the way"
	case report.PeerArrived:
		text = "with the answer arrived and not yet read"
	default:
		text = "asleep in the kernel"
		if x.Detail != "" {
			text = "asleep in " + termtext.Head(x.Detail, 40)
		}
	}
	if x.Unread {
		text = "busy with other work first (" + text + ")"
	}
	return text
}
