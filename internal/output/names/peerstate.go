package names

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// PeerDoing names the peer with the most time, and lists its states during most of a wait: "python3 (pid 7; 97% running)". There
// must be at least one state.
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

// MergePeerDetails returns a new list in which states that differ only in their details are one, with the detail that most of its time has or none,
// the longest first.
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

// peerWords says what a peer did, by state: without a detail, and with one.
var peerWords = map[report.PeerStateName][2]string{
	report.PeerRunning:   {"computing"},
	report.PeerCPUWait:   {"waiting for a CPU", "waiting for a CPU while %s ran"},
	report.PeerThrottled: {"held back by its CPU quota"},
	report.PeerStopped:   {"stopped"},
	report.PeerDisk:      {"waiting for a disk", "waiting for a disk in %s"},
	report.PeerLock:      {"waiting for a lock or another of its threads"},
	report.PeerTimer:     {"asleep until a timer"},
	report.PeerNetwork:   {"waiting for its own network"},
	report.PeerPipe:      {"waiting for a pipe"},
	report.PeerProcess:   {"waiting for another process", "waiting for %s"},
	report.PeerOther:     {"asleep in the kernel", "asleep in %s"},
	report.PeerOnTheWay:  {"on the way"},
	report.PeerArrived:   {"with the answer arrived and not yet read"},
}

// PeerState returns the activity of a peer in a state, such as "running", for a sentence about it.
func PeerState(x *report.PeerState) string {
	words, ok := peerWords[x.State]
	if !ok {
		words = peerWords[report.PeerOther]
	}
	text := words[0]
	if x.Detail != "" && words[1] != "" {
		text = fmt.Sprintf(words[1], termtext.Head(x.Detail, 60))
	}
	if x.Unread {
		text = "busy with other work first (" + text + ")"
	}
	return text
}
