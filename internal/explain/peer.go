package explain

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/peers"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// findPeer sets the group that serves a group's network waits. It is in the recording of another process, if one was
// given, or in this process.
func (e *engine) findPeer(g *report.Group, id path.GroupID, sp *spell.Speller) {
	if e.selfWaits != nil {
		if p, ok := e.selfWaits.peersByText[e.groupText(id)]; ok {
			byText := make(map[string]path.GroupID)
			for peerGroup := range e.pass.Stages[0].IDs.GroupCount() {
				byText[e.groupText(path.GroupID(peerGroup))] = path.GroupID(peerGroup)
			}
			ownPeer := p.Peer
			ownPeer.Group, ownPeer.FurtherGroups = byText[p.serverTexts[0]], nil
			for _, text := range p.serverTexts[1:] {
				ownPeer.FurtherGroups = append(ownPeer.FurtherGroups, byText[text])
			}
			if e.setOwnPeer(g, &ownPeer, sp); g.Peer != nil {
				g.Peer.Joined = p.Proven
			}
			return
		}
	}
	if r := e.opts.PeerRecording; r != nil && r.Clock.IsKnown {
		if p, peerGroup, exact := e.peers.PeerIn(id, e.clockOffset(), e.pass.Start, e.pass.End, r); peerGroup != nil {
			g.Peer = newReportPeer(&p, peerGroup.ID, peerGroup.Name)
			g.Peer.Spent = peerGroup.LargestCause
			if g.Peer.Recording = r.Name; !exact { // the clocks of two machines are too inexact to divide the round trip
				g.Peer.ThereNS, g.Peer.BackNS, g.Peer.UnseenNS = nil, nil, nil
				g.Peer.Confidence *= 0.8
			}
			return
		}
	}
	if e.selfWaits != nil {
		return // the first reading had more waits: those left here are between requests that it joined
	}
	if p, ok := e.peers.PeerOf(id); ok {
		e.setOwnPeer(g, &p, sp)
	}
}

// setOwnPeer sets the groups of this process that serve a group's waits.
func (e *engine) setOwnPeer(g *report.Group, peer *peers.Peer, sp *spell.Speller) {
	allGroups := e.shownGroups
	allGroups.Name = nil // the serving group has another name than the selected ones
	groupID, name, ok := e.groups.GroupTitle(peer.Group, sp, allGroups)
	if !ok {
		return
	}
	g.Peer = newReportPeer(peer, groupID, name)
	for _, id := range peer.FurtherGroups {
		if _, name, ok := e.groups.GroupTitle(id, sp, allGroups); ok {
			g.Peer.MoreNames = append(g.Peer.MoreNames, name)
		}
	}
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
func (e *engine) clockOffset() peers.Clock {
	s, snapshotTime := e.process.Clock()
	if s == nil {
		return peers.Clock{}
	}
	wall := int64(s.UnixSec)*1e9 + int64(s.UnixNsec)
	return peers.Clock{IsKnown: true, Mono: int64(s.Mono) - snapshotTime, Wall: wall - snapshotTime}
}

// warnPeer warns if the recording of a peer explains no wait, or if paths in this process could not be followed.
func (e *engine) warnPeer(rep *report.Report) {
	if e.rereadErr != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "peer", Text: "requests wait over the network for others of this process, but their paths end there, because following them needs a second reading of the trace: " + e.rereadErr.Error()})
	}
	r := e.opts.PeerRecording
	if r == nil {
		return
	}
	for i := range rep.Groups {
		if p := rep.Groups[i].Peer; p != nil && p.Recording != "" {
			return
		}
	}
	text := fmt.Sprintf("no group of %s serves what requests here wait for: nearly each of those waits would contain one of its requests", r.Name)
	if ownClock := e.clockOffset(); !ownClock.IsKnown || !r.Clock.IsKnown {
		text = fmt.Sprintf("%s cannot be compared with this recording: traces have the time of day from Go 1.25 on", r.Name)
	} else if overlapNS := peers.Overlap(ownClock, e.pass.Start, e.pass.End, r); overlapNS < 100e6 {
		text = fmt.Sprintf("%s was recorded at another time: both run for %v; start both recordings at once", r.Name, time.Duration(overlapNS).Round(time.Millisecond))
	}
	rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "peer", Text: text})
}

// addServedVerdicts adds the main cause of each group's time to ServedRecording. It covers all requests, because the
// other process waits for all of them.
func (e *engine) addServedVerdicts(rep *report.Report) {
	if e.opts.ServedRecording == nil {
		return
	}
	for _, v := range verdict.BandVerdicts(rep, report.BandAll) {
		for i := range e.opts.ServedRecording.Groups {
			if g := &e.opts.ServedRecording.Groups[i]; g.ID == v.Group && len(v.Causes) > 0 && v.Causes[0].InSentence {
				g.LargestCause = words.PercentOr0(v.Causes[0].Share) + " " + v.Causes[0].Text
			}
		}
	}
}

// fillServed fills ServedRecording.
func (e *engine) fillServed(rows []groups.Row) {
	out := e.opts.ServedRecording
	if out == nil {
		return
	}
	*out = peers.Recording{Name: e.opts.Name, Clock: e.clockOffset(), From: e.pass.Start, To: e.peers.KeptUntil(e.pass.End)}
	for _, row := range rows {
		out.Groups = append(out.Groups, e.peers.GroupRequests(row.PathGroup, row.Group.ID, row.Group.Name))
	}
}
