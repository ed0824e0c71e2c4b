package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/report"
)

// A gateway that calls its own server waits for what that does, and its path goes on there. That is one fault: it is
// reported at the group that serves, with what it costs the groups that ask.

// servedOf returns the groups that serve what requests of a group wait for, nil where that is another process, or not sure, or
// where they are not looked at.
func (in *Input) servedOf(g *report.Group) (out []*report.Group) {
	if !g.Peer.Followed() {
		return nil
	}
	for _, name := range g.Peer.Names() {
		i := slices.IndexFunc(in.Report.Groups, func(o report.Group) bool { return o.Name == name && (name != g.Peer.Name || o.ID == g.Peer.Group) })
		if i < 0 {
			return nil
		}
		out = append(out, &in.Report.Groups[i])
	}
	return out
}

// asks reports whether requests of a group wait for those of another one, also through a third. Groups may wait for each other.
func (in *Input) asks(g *report.Group, id string) bool {
	all := []*report.Group{g}
	for i := 0; i < len(all); i++ {
		for _, o := range in.servedOf(all[i]) {
			if o.ID == id {
				return true
			}
			if !slices.Contains(all, o) {
				all = append(all, o)
			}
		}
	}
	return false
}

// bothHalves adds to a finding what it costs the groups that wait for its group over the network, and drops their findings about the
// same.
func bothHalves(in *Input, all []Verdict) []Verdict {
	if !in.joined() {
		return all
	}
	for i := range all {
		v := &all[i]
		if v.Group == "" || v.Site == nil {
			continue
		}
		of := in.partsOf(v)
		for k := range in.Report.Groups {
			g := &in.Report.Groups[k]
			if g.ID == v.Group || !in.asks(g, v.Group) {
				continue
			}
			share, won := weighRoutes(g, func(c *report.Cause, via []report.Via) bool {
				inner, asked := verdict.AfterLastAnswer(via)
				return asked > 0 && of(c, inner)
			})
			if share < scale.Speck {
				continue
			}
			by := report.AskedBy{Group: g.ID, Name: g.Name, Share: share, EachNS: won.TotalNS / int64(max(g.Count, 1))}
			by.Predicted = in.predict(g.ID, v.Changes...)
			v.AskedBy = append(v.AskedBy, by)
		}
	}
	var out []Verdict
	told := make([]bool, len(all)) // by another one
	for i := range all {
		v, g := &all[i], in.Report.Group(all[i].Group)
		for k := range all {
			o := &all[k]
			told[i] = told[i] || g != nil && v.Site != nil && !told[k] && o.Code == v.Code && o.Group != v.Group && o.Site != nil && o.Site.Key() == v.Site.Key() && in.asks(g, o.Group)
		}
		if !told[i] {
			out = append(out, *v)
		}
	}
	return out
}

// joined reports whether requests of any group wait for others of the process.
func (in *Input) joined() bool {
	return slices.ContainsFunc(in.Report.Groups, func(g report.Group) bool { return g.Peer.Followed() })
}

// partsOf returns which ways to causes a finding is about: those of its site, or all that its owner has.
func (in *Input) partsOf(v *Verdict) func(c *report.Cause, via []report.Via) bool {
	at := func(c *report.Cause, via []report.Via) bool {
		s := nonStdSite(c, via)
		return s != nil && c.Cause == v.Cause && s.Key() == v.Site.Key()
	}
	g := in.Report.Group(v.Group)
	if g == nil {
		return at
	}
	cl := in.attributionOf(g)
	var its candidateKey
	most := int64(0)
	for c, r := range cl.routes(g.All()) {
		if o := cl.keyOf(c, r.Via); o.code == v.Code && r.TotalNS > most && at(c, r.Via) {
			its, most = o, r.TotalNS
		}
	}
	if most == 0 {
		return at
	}
	return func(c *report.Cause, via []report.Via) bool { return cl.keyOf(c, via) == its }
}
