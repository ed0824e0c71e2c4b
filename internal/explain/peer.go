package explain

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/peers"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// findPeer returns the group that serves a group's network waits, nil if none is known. It is in the recording of another
// process, if one was given, or in this process.
func (r *reading) findPeer(id path.GroupID, shown groups.Selection, sp *spell.Speller) *report.Peer {
	if r.selfWaits != nil {
		if p, ok := r.selfWaits.peersByText[r.groupText(id)]; ok {
			byText := make(map[string]path.GroupID)
			for peerGroup := range r.pass.Stages[0].IDs.GroupCount() {
				byText[r.groupText(path.GroupID(peerGroup))] = path.GroupID(peerGroup)
			}
			ownPeer := p.Peer
			ownPeer.Group, ownPeer.FurtherGroups = byText[p.serverTexts[0]], nil
			for _, text := range p.serverTexts[1:] {
				ownPeer.FurtherGroups = append(ownPeer.FurtherGroups, byText[text])
			}
			out := r.ownPeer(&ownPeer, shown, sp)
			if out != nil {
				out.Joined = p.Proven
			}
			return out
		}
	}
	if other := r.opts.PeerRecording; other != nil && other.Clock.IsKnown {
		if p, peerGroup, exact := r.peers.PeerIn(id, clockOffset(r.process), r.pass.Start, r.pass.End, other); peerGroup != nil {
			out := newReportPeer(&p, peerGroup.ID, peerGroup.Name)
			out.Spent = peerGroup.LargestCause
			if out.Recording = other.Name; !exact { // the clocks of two machines are too inexact to divide the round trip
				out.ThereNS, out.BackNS, out.UnseenNS = nil, nil, nil
				out.Confidence *= 0.8
			}
			return out
		}
	}
	if r.selfWaits != nil {
		return nil // the first reading had more waits: those left here are between requests that it joined
	}
	if p, ok := r.peers.PeerOf(id); ok {
		return r.ownPeer(&p, shown, sp)
	}
	return nil
}

// ownPeer returns the groups of this process that serve a group's waits, nil if they are not reported.
func (r *reading) ownPeer(peer *peers.Peer, shown groups.Selection, sp *spell.Speller) *report.Peer {
	shown.Name = nil // the serving group has another name than the selected ones
	groupID, name, ok := r.groups.GroupTitle(peer.Group, sp, shown)
	if !ok {
		return nil
	}
	out := newReportPeer(peer, groupID, name)
	for _, id := range peer.FurtherGroups {
		if _, name, ok := r.groups.GroupTitle(id, sp, shown); ok {
			out.MoreNames = append(out.MoreNames, name)
		}
	}
	return out
}

func newReportPeer(peer *peers.Peer, id, name string) *report.Peer {
	meanNS := func(ns int64) *int64 {
		ns /= int64(peer.Matched)
		return &ns
	}
	return &report.Peer{
		Group: id, Name: name, Waits: peer.Waits, Held: peer.Fitting, ByChance: peer.ChanceShare,
		AsLong: peer.EqualLength, Confidence: peer.Confidence,
		WaitNS: peer.WaitNS / int64(peer.Waits), ServedNS: *meanNS(peer.RequestNS), ThereNS: meanNS(peer.ForwardNS),
		BackNS: meanNS(peer.ReturnNS), UnseenNS: meanNS(peer.UnreadNS), LateNS: *meanNS(peer.RunDelayNS),
	}
}

// clockOffset returns the readings of the other clocks at time 0 of the trace's clock.
func clockOffset(process *process.Collector) peers.Clock {
	s, snapshotTime := process.Clock()
	if s == nil {
		return peers.Clock{}
	}
	wall := int64(s.UnixSec)*1e9 + int64(s.UnixNsec)
	return peers.Clock{IsKnown: true, Mono: int64(s.Mono) - snapshotTime, Wall: wall - snapshotTime}
}

// warnPeer warns if the recording of a peer explains no wait, or if paths in this process could not be followed.
func (r *reading) warnPeer(rep *report.Report) {
	if r.rereadErr != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "peer", Text: "requests wait over the network for others of this process, but their paths end there, because following them needs a second reading of the trace: " + r.rereadErr.Error()})
	}
	other := r.opts.PeerRecording
	if other == nil {
		return
	}
	for i := range rep.Groups {
		if p := rep.Groups[i].Peer; p != nil && p.Recording != "" {
			return
		}
	}
	text := fmt.Sprintf("no group of %s serves what requests here wait for: nearly each of those waits would contain one of its requests", other.Name)
	if ownClock := clockOffset(r.process); !ownClock.IsKnown || !other.Clock.IsKnown {
		text = fmt.Sprintf("%s cannot be compared with this recording: traces have the time of day from Go 1.25 on", other.Name)
	} else if overlapNS := peers.Overlap(ownClock, r.pass.Start, r.pass.End, other); overlapNS < 100e6 {
		text = fmt.Sprintf("%s was recorded at another time: both run for %v; start both recordings at once", other.Name, time.Duration(overlapNS).Round(time.Millisecond))
	}
	rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "peer", Text: text})
}

// fillServed fills a recording of the served requests. The main cause of each group's time covers all requests, because
// the other process waits for all of them.
func (r *reading) fillServed(out *peers.Recording, rep *report.Report, table *groupTable) {
	*out = peers.Recording{Name: r.opts.Name, Clock: clockOffset(r.process), From: r.pass.Start, To: r.peers.KeptUntil(r.pass.End)}
	for i := range table.groups {
		out.Groups = append(out.Groups, r.peers.GroupRequests(table.pathIDs[i], table.groups[i].ID, table.groups[i].Name))
	}
	for _, v := range verdict.BandVerdicts(rep, report.BandAll) {
		for i := range out.Groups {
			if g := &out.Groups[i]; g.ID == v.Group && len(v.Causes) > 0 && v.Causes[0].InSentence {
				g.LargestCause = words.PercentOr0(v.Causes[0].Share) + " " + v.Causes[0].Text
			}
		}
	}
}
