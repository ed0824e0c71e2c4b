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

// PeerProcess names the process of a peer: by its recording, or as "this process".
func PeerProcess(p *report.Peer) string {
	if p.Recording != "" {
		return "the process of " + p.Recording
	}
	return "this process"
}

// PeerNames returns the short names of a peer's groups, joined by "or".
func PeerNames(p *report.Peer) string {
	s := ""
	for i, n := range p.GroupNames() {
		if i > 0 {
			s += " or "
		}
		s += words.FuncName(n)
	}
	return s
}

// spentText returns a clause, with a space before it, about the cause on which such requests of the peer spent their time; "" if
// it is not known.
func spentText(p *report.Peer) string {
	if p.Spent == "" {
		return ""
	}
	return " (such requests spent " + termtext.Head(p.Spent, 200) + ")"
}

// asLongText returns a clause, with a space before it, if only requests as long as the waits were counted; else "".
func asLongText(p *report.Peer) string {
	if p.AsLong {
		return " that is as long"
	}
	return ""
}

// DescribePeer returns the rest of a sentence about the group that answers requests' waits for the network, from its verb on ("is
// this process: ..."): the evidence, and the parts of the waits.
func DescribePeer(p *report.Peer) string {
	sure := "is "
	if p.Confidence < 0.7 {
		sure = "may be "
	}
	s := sure + PeerProcess(p) + ": " + words.Number(int64(p.Held)) + " of " + words.Count(p.Waits, "wait", "waits") + " for the network contain one request of " + PeerNames(p) + asLongText(p) + " (by chance: " +
		words.PercentOr0(p.ByChance) + "). A wait takes " + words.Duration(p.WaitNS) + "; the request in it takes " + words.Duration(p.ServedNS) + spentText(p)
	if p.ThereNS != nil && p.BackNS != nil {
		s += "; it begins " + words.Duration(*p.ThereNS) + " after the wait"
		if p.UnseenNS != nil && *p.UnseenNS > 0 {
			s += " (up to " + words.Duration(*p.UnseenNS) + " of that unread at the server)"
		}
		s += " and ends " + words.Duration(*p.BackNS) + " before it"
	}
	if p.LateNS > 0 {
		s += ", for " + words.Duration(p.LateNS) + " of which the waiting goroutine had no P"
	}
	return s
}
