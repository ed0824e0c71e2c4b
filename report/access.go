package report

import (
	"cmp"
	"slices"
	"strings"
)

// TailRequests is the smallest number of requests with which a band represents the slow ones: fewer may be an accident.
const TailRequests = 10

// Group returns the group with this id, or nil.
func (r *Report) Group(id string) *Group {
	for i := range r.Groups {
		if r.Groups[i].ID == id {
			return &r.Groups[i]
		}
	}
	return nil
}

// Foremost returns the first finding above info that is not ignored, or nil. That other processes use the machine's CPUs counts only if nothing else
// is found: that is usual if clients and servers share the machine with the service.
func (r *Report) Foremost() *Finding {
	var busy *Finding
	for i := range r.Findings {
		switch f := &r.Findings[i]; {
		case f.Ignored != "" || f.Severity == SeverityInfo:
		case f.Code.OfMachine():
			busy = f
		default:
			return f
		}
	}
	return busy
}

// Band returns the band of this name, or nil.
func (g *Group) Band(name BandName) *Band {
	for i := range g.Bands {
		if g.Bands[i].Band == name {
			return &g.Bands[i]
		}
	}
	return nil
}

// All returns the band of all requests. It is never nil: a group without bands gets an empty one.
func (g *Group) All() *Band {
	if b := g.Band(BandAll); b != nil {
		return b
	}
	return &Band{Band: BandAll}
}

// TotalNS returns the time of all requests of the band.
func (b *Band) TotalNS() (ns int64) {
	for i := range b.Causes {
		ns += b.Causes[i].TotalNS
	}
	return ns
}

// Find returns the row of a cause at a site, or nil. A nil site finds the row without a site.
func (b *Band) Find(cause CauseName, kind string, site *Site) *Cause {
	for i := range b.Causes {
		if c := &b.Causes[i]; c.Cause == cause && c.Kind == kind && c.Site.Equal(site) {
			return c
		}
	}
	return nil
}

// In reports whether the cause is the named one or one of the named family.
func (c *Cause) In(family CauseName) bool {
	return c.Cause == family || slices.Contains(Family(family), c.Cause)
}

// GroupNames returns the names of the groups that answer.
func (p *Peer) GroupNames() []string { return append([]string{p.Name}, p.MoreNames...) }

// Followed reports whether the paths of requests that wait for the peer continue in it: the peer is this process, and the evidence is
// certain.
func (p *Peer) Followed() bool { return p != nil && p.Recording == "" && p.Joined }

// AllRoutes returns the chains of waits that led to a cause, each with its time: Routes, or, without those, one with Via and the whole time. Routes
// may not list all chains.
func (c *Cause) AllRoutes() []Route {
	if len(c.Routes) == 0 {
		return []Route{{Via: c.Via, TotalNS: c.TotalNS, AheadWork: c.AheadWork}}
	}
	return c.Routes
}

// DivideAtServices returns the waits of a chain in the service of the group, and those in the last of the other services to which the chain leads;
// inner is nil if it leads to none. Both are parts of via. The waits in other services on the way are in neither.
func DivideAtServices(via []Via) (outer, inner []Via) {
	outer = via
	for i := range via {
		if via[i].Service != "" {
			if inner == nil {
				outer = via[:i]
			}
			inner = via[i+1:]
		}
	}
	return outer, inner
}

// A SiteKey identifies a Site, as a comparable value. The key of a nil site is the zero value.
type SiteKey struct {
	Func, File string
	Line       int
	From       Caller // zero: none
	Service    string // see Site
}

// LineKey returns the key of the line alone, without its caller; the zero key for nil.
func (s *Site) LineKey() SiteKey {
	if s == nil {
		return SiteKey{}
	}
	return SiteKey{Func: s.Func, File: s.File, Line: s.Line, Service: s.Service}
}

// Key returns the key of the line and its caller; the zero key for nil.
func (s *Site) Key() SiteKey {
	k := s.LineKey()
	if s != nil && s.CalledFrom != nil {
		k.From = Caller{Func: s.CalledFrom.Func, File: s.CalledFrom.File, Line: s.CalledFrom.Line}
	}
	return k
}

// Site returns a site with this key, nil for the zero key. The site has no module.
func (k SiteKey) Site() *Site {
	if k == (SiteKey{}) {
		return nil
	}
	s := &Site{Func: k.Func, File: k.File, Line: k.Line, Service: k.Service}
	if k.From != (Caller{}) {
		s.CalledFrom = &k.From
	}
	return s
}

// Compare orders keys by file, line and function, then by their callers.
func (k SiteKey) Compare(o SiteKey) int {
	return cmp.Or(strings.Compare(k.File, o.File), cmp.Compare(k.Line, o.Line), strings.Compare(k.Func, o.Func),
		strings.Compare(k.From.File, o.From.File), cmp.Compare(k.From.Line, o.From.Line), strings.Compare(k.From.Func, o.From.Func), strings.Compare(k.Service, o.Service))
}

// Site returns the caller as a site; nil for nil.
func (c *Caller) Site() *Site {
	if c == nil {
		return nil
	}
	return &Site{Func: c.Func, File: c.File, Line: c.Line}
}

// OwnLine returns the line that the service's authors can change: the caller of the site, else the site itself; nil for nil.
func (s *Site) OwnLine() *Site {
	if s != nil && s.CalledFrom != nil {
		return s.CalledFrom.Site()
	}
	return s
}

// WaitedAt reports whether the caller of the site is the line of the wait v: this line waits for the site's code, it does not call it.
func (s *Site) WaitedAt(v *Via) bool {
	return s != nil && s.CalledFrom != nil && v.Site != nil && s.CalledFrom.Site().LineKey() == v.Site.LineKey()
}

// Equal reports whether both sites have the same line and the same caller, or are both nil.
func (s *Site) Equal(o *Site) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.Key() == o.Key()
}

// Matches reports whether both sites have the same line and, if both have a caller, the same caller. A site that was not seen on a
// request's path has no caller.
func (s *Site) Matches(o *Site) bool {
	if s == nil || o == nil || s.CalledFrom == nil || o.CalledFrom == nil {
		return s.LineKey() == o.LineKey()
	}
	return s.Key() == o.Key()
}

// Compare orders sites by file, line and function, then by their callers; nil comes first.
func (s *Site) Compare(o *Site) int {
	switch {
	case s == nil && o == nil:
		return 0
	case s == nil:
		return -1
	case o == nil:
		return 1
	}
	return s.Key().Compare(o.Key())
}

// Equal reports whether both are the same kind of wait at the same site. It does not compare Call.
func (v *Via) Equal(o *Via) bool { return v.Wait == o.Wait && v.Site.Equal(o.Site) }

// ShareError returns the largest error of a share of all groups and bands: see Cause.ShareError. It is 0 if all requests were followed.
func (r *Report) ShareError() float64 {
	largest := 0.0
	for i := range r.Groups {
		for k := range r.Groups[i].Bands {
			for j := range r.Groups[i].Bands[k].Causes {
				largest = max(largest, r.Groups[i].Bands[k].Causes[j].ShareError)
			}
		}
	}
	return largest
}

// CountWithoutHandler returns how many requests of servers have no known handler, and how many requests there are. It returns 0 for withoutHandler if
// these are all requests, or at most 5 % of them: then the groups of the others do not appear slower than they are.
func (r *Report) CountWithoutHandler() (withoutHandler, all int) {
	for i := range r.Groups {
		if g := &r.Groups[i]; g.Kind.IsCall() {
			if all += g.Count; !g.Named {
				withoutHandler += g.Count
			}
		}
	}
	if withoutHandler == all || float64(withoutHandler) <= 0.05*float64(all) {
		withoutHandler = 0
	}
	return withoutHandler, all
}
