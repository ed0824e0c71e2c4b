package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/report"
)

// A gateway that calls a server in the same process waits for a request of that server, and its path continues there. That is
// one fault: it is reported for the group that serves, with its cost for the groups that call it.

// peerGroups returns the groups of this report whose requests answer the network calls of a group's requests. It returns nil if
// another process may answer them, or if one of these groups is not in the report.
func (in *Input) peerGroups(g *report.Group) (out []*report.Group) {
	if !g.Peer.Followed() {
		return nil
	}
	for _, name := range g.Peer.GroupNames() {
		i := slices.IndexFunc(in.Report.Groups, func(o report.Group) bool { return o.Name == name && (name != g.Peer.Name || o.ID == g.Peer.Group) })
		if i < 0 {
			return nil
		}
		out = append(out, &in.Report.Groups[i])
	}
	return out
}

// dependsOn reports whether requests of a group wait for requests of the group with this id, directly or through other groups.
// Groups may wait for each other.
func (in *Input) dependsOn(g *report.Group, id string) bool {
	reached := []*report.Group{g}
	for i := 0; i < len(reached); i++ {
		for _, peer := range in.peerGroups(reached[i]) {
			if peer.ID == id {
				return true
			}
			if !slices.Contains(reached, peer) {
				reached = append(reached, peer)
			}
		}
	}
	return false
}

// mergeCallers reports a fault of a group that others call over the network once, for the group that serves. It adds to each
// verdict the share and prediction of each calling group, and removes the verdicts of calling groups about the same rule and
// site.
func mergeCallers(in *Input, all []Verdict) (remaining []Verdict) {
	if !in.hasPeerGroups() {
		return all
	}
	for v := range each(all) {
		if v.Group == "" || v.Site == nil {
			continue
		}
		matches := in.routeMatcher(v)
		for group := range each(in.Report.Groups) {
			if group.ID == v.Group || !in.dependsOn(group, v.Group) {
				continue
			}
			share, gain := gainWithoutRoutes(group, func(c *report.Cause, via []report.Via) bool {
				inner, peerAnswers := verdict.AfterLastAnswer(via)
				return peerAnswers > 0 && matches(c, inner)
			})
			if share < threshold.NoiseShare {
				continue
			}
			caller := report.AskedBy{Group: group.ID, Name: group.Name, Share: share, EachNS: gain.TotalNS / int64(max(group.Count, 1))}
			caller.Predicted = in.predict(group.ID, v.Changes...)
			v.AskedBy = append(v.AskedBy, caller)
		}
	}
	reportedByPeer := make([]bool, len(all))
	for i := range all {
		v, group := &all[i], in.Report.Group(all[i].Group)
		for k := range all {
			other := &all[k]
			reportedByPeer[i] = reportedByPeer[i] || group != nil && v.Site != nil && !reportedByPeer[k] && other.Code == v.Code && other.Group != v.Group && other.Site != nil && other.Site.Key() == v.Site.Key() && in.dependsOn(group, other.Group)
		}
		if !reportedByPeer[i] {
			remaining = append(remaining, *v)
		}
	}
	return remaining
}

// hasPeerGroups reports whether requests of any group wait for requests of other groups of this process.
func (in *Input) hasPeerGroups() bool {
	return slices.ContainsFunc(in.Report.Groups, func(g report.Group) bool { return g.Peer.Followed() })
}

// routeMatcher returns a function that decides whether a route belongs to a verdict: to the candidate with most time of the
// verdict's rule, cause and site or, if there is no such candidate, to the cause at the site.
func (in *Input) routeMatcher(v *Verdict) func(c *report.Cause, via []report.Via) bool {
	isAtSite := func(c *report.Cause, via []report.Via) bool {
		s := nonStdSite(c, via)
		return s != nil && c.Cause == v.Cause && s.Key() == v.Site.Key()
	}
	g := in.Report.Group(v.Group)
	if g == nil {
		return isAtSite
	}
	attr := in.attributionOf(g)
	var mainKey candidateKey
	mostNS := int64(0)
	for c, r := range attr.routes(g.All()) {
		if key := attr.candidateKeyOf(c, r.Via); key.code == v.Code && r.TotalNS > mostNS && isAtSite(c, r.Via) {
			mainKey, mostNS = key, r.TotalNS
		}
	}
	if mostNS == 0 {
		return isAtSite
	}
	return func(c *report.Cause, via []report.Via) bool { return attr.candidateKeyOf(c, via) == mainKey }
}
