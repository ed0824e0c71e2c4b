package explain

import (
	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/peers"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/report"
)

// findPeer returns the groups of this process that serve a group's network waits, for the report; nil if none is known or they
// are not shown. In the second reading of a trace it is the peer that the first reading found.
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
	if r.selfWaits != nil {
		return nil // the first reading had more waits: those left here are between requests that it joined
	}
	if p, ok := r.peers.PeerOf(id); ok {
		return r.ownPeer(&p, shown, sp)
	}
	return nil
}

// ownPeer returns a peer as the report has it; nil if the report does not show the serving group.
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

// newReportPeer returns the numbers of a peer as means of one wait, with the id and name of the serving group.
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

// warnPeer adds a warning if in-process calls were found, but the trace could not be read again to follow them.
func (r *reading) warnPeer(rep *report.Report) {
	if r.rereadErr != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "peer", Text: "requests wait over the network for others of this process, but their paths end there, because following them needs a second reading of the trace: " + r.rereadErr.Error()})
	}
}
