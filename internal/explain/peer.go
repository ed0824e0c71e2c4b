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

// peer finds what serves a group's waits for the network: a group
// of another process, if a recording of one was given, or one of this process.
func (e *engine) peer(g *report.Group, id path.GroupID, sp *spell.Speller) {
	if e.known != nil {
		if p, ok := e.known.peers[e.text(id)]; ok {
			at := make(map[string]path.GroupID)
			for of := range e.pass.Stages[0].IDs.GroupCount() {
				at[e.text(path.GroupID(of))] = path.GroupID(of)
			}
			own := p.Peer
			own.Group, own.FurtherGroups = at[p.serve[0]], nil
			for _, text := range p.serve[1:] {
				own.FurtherGroups = append(own.FurtherGroups, at[text])
			}
			if e.own(g, &own, sp); g.Peer != nil {
				g.Peer.Joined = p.Proven
			}
			return
		}
	}
	if r := e.opts.Peer; r != nil && r.Clock.IsKnown {
		if p, of, exact := e.peers.PeerIn(id, e.clock(), e.pass.Start, e.pass.End, r); of != nil {
			g.Peer = peerOf(&p, of.ID, of.Name)
			g.Peer.Spent = of.LargestCause
			if g.Peer.Recording = r.Name; !exact { // which part of the way took how long is by the clocks of two machines
				g.Peer.ThereNS, g.Peer.BackNS, g.Peer.UnseenNS = nil, nil, nil
				g.Peer.Confidence *= 0.8
			}
			return
		}
	}
	if e.known != nil {
		return // the first reading knew more: these waits are what is left between both halves
	}
	if p, ok := e.peers.PeerOf(id); ok {
		e.own(g, &p, sp)
	}
}

// own tells which groups of this process serve what a group waits for.
func (e *engine) own(g *report.Group, p *peers.Peer, sp *spell.Speller) {
	every := e.selected
	every.Name = nil // whoever serves a group has another name
	of, name, ok := e.groups.GroupTitle(p.Group, sp, every)
	if !ok {
		return
	}
	g.Peer = peerOf(p, of, name)
	for _, id := range p.FurtherGroups {
		if _, name, ok := e.groups.GroupTitle(id, sp, every); ok {
			g.Peer.Also = append(g.Peer.Also, name)
		}
	}
}

func peerOf(p *peers.Peer, id, name string) *report.Peer {
	mean := func(ns int64) *int64 {
		ns /= int64(p.Matched)
		return &ns
	}
	return &report.Peer{
		Group: id, Name: name, Waits: p.Waits, Held: p.Fitting, ByChance: p.ChanceShare, AsLong: p.EqualLength, Confidence: p.Confidence,
		WaitNS: p.WaitNS / int64(p.Waits), ServedNS: *mean(p.RequestNS), ThereNS: mean(p.ForwardNS), BackNS: mean(p.ReturnNS), UnseenNS: mean(p.UnreadNS), LateNS: *mean(p.RunDelayNS),
	}
}

// clock returns what other clocks showed at time 0 of the trace's.
func (e *engine) clock() peers.Clock {
	s, at := e.process.Clock()
	if s == nil {
		return peers.Clock{}
	}
	return peers.Clock{IsKnown: true, Mono: int64(s.Mono) - at, Wall: int64(s.UnixSec)*1e9 + int64(s.UnixNsec) - at}
}

// servedTo warns where a recording of a peer says nothing of this one.
func (e *engine) servedTo(rep *report.Report) {
	if e.unfollowed != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "peer", Text: "requests wait over the network for others of this process, but their paths end there, because following them needs a second reading of the trace: " + e.unfollowed.Error()})
	}
	r := e.opts.Peer
	if r == nil {
		return
	}
	for i := range rep.Groups {
		if p := rep.Groups[i].Peer; p != nil && p.Recording != "" {
			return
		}
	}
	text := fmt.Sprintf("no group of %s serves what requests here wait for: nearly each of those waits would contain one of its requests", r.Name)
	if own := e.clock(); !own.IsKnown || !r.Clock.IsKnown {
		text = fmt.Sprintf("%s cannot be compared with this recording: traces have the time of day from Go 1.25 on", r.Name)
	} else if both := peers.Overlap(own, e.pass.Start, e.pass.End, r); both < 100e6 {
		text = fmt.Sprintf("%s was recorded at another time: both run for %v; start both recordings at once", r.Name, time.Duration(both).Round(time.Millisecond))
	}
	rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "peer", Text: text})
}

// spent says of what is kept for another recording's Peer on what its time went: all requests', as its waits are all.
func (e *engine) spent(rep *report.Report) {
	if e.opts.Serves == nil {
		return
	}
	for _, v := range verdict.BandVerdicts(rep, report.BandAll) {
		for i := range e.opts.Serves.Groups {
			if g := &e.opts.Serves.Groups[i]; g.ID == v.Group && len(v.Causes) > 0 && v.Causes[0].Said {
				g.LargestCause = words.PercentOr0(v.Causes[0].Share) + " " + v.Causes[0].Text
			}
		}
	}
}

// serves fills what is kept for another recording's Peer.
func (e *engine) serves(rows []groups.Row) {
	out := e.opts.Serves
	if out == nil {
		return
	}
	*out = peers.Recording{Name: e.opts.Name, Clock: e.clock(), From: e.pass.Start, To: e.peers.KeptUntil(e.pass.End)}
	for _, row := range rows {
		out.Groups = append(out.Groups, e.peers.GroupRequests(row.PathGroup, row.Group.ID, row.Group.Name))
	}
}
