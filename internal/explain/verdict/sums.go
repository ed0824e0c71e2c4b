package verdict

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// sums adds up a band's time by who works, and each sum by place; the largest first, the rest of a sum last. Time in a queue for
// something and a request's own time at it are separate causes, but both together decide what comes first; of the two, the queue
// comes first if the first finding is about it.
func sums(b *report.Band, list []*report.Queue, line *report.Queue) []report.VerdictCause {
	var of [][]piece
	for _, p := range pieces(b, list) {
		k := slices.IndexFunc(of, func(have []piece) bool { return have[0].who == p.who })
		if k < 0 {
			k = len(of)
			of = append(of, nil)
		}
		of[k] = append(of[k], p)
	}
	out := []report.VerdictCause{}
	both := map[who]int64{}
	for _, list := range of {
		c := report.VerdictCause{Cause: list[0].cause, Kind: list[0].kind, Queue: list[0].queue, Sites: []report.VerdictSite{}}
		for i := range list {
			c.TotalNS += list[i].ns
			c.Share += list[i].share
		}
		if b.Count > 0 {
			c.EachNS = c.TotalNS / int64(b.Count)
		}
		c.Share = min(c.Share, 1)
		if c.Share < scale.Speck || c.TotalNS <= 0 {
			continue
		}
		both[bothOf(&c)] += c.TotalNS
		places(&c, list)
		c.Words = Words(&c)
		out = append(out, c)
	}
	slices.SortStableFunc(out, largest)
	first := 0
	for i := range out {
		c, f := &out[i], &out[first]
		mine, most := both[bothOf(c)], both[bothOf(f)]
		if last(c.Cause) == 0 && (mine > most || mine == most && line != nil && c.Queue == line && f.Queue != line) {
			first = i
		}
	}
	if len(out) == 0 {
		return out
	}
	return toFront(out, first)
}

// toFront puts one cause before those that are in front of it.
func toFront(list []report.VerdictCause, i int) []report.VerdictCause {
	c := list[i]
	copy(list[1:], list[:i])
	list[0] = c
	return list
}

// bothOf is what a queue for something and a request's own time at it have in common. All stops of the world are one, whatever
// stopped it.
func bothOf(c *report.VerdictCause) who {
	if c.Cause == report.CauseSTW {
		return who{cause: c.Cause}
	}
	return who{cause: c.Cause, kind: c.Kind}
}

// largest orders causes, the largest first; the sum of all others comes last.
func largest(a, b report.VerdictCause) int {
	return cmp.Or(last(a.Cause)-last(b.Cause), cmp.Compare(b.TotalNS, a.TotalNS))
}

func last(c report.CauseName) int {
	if c == report.CauseOther {
		return 1
	}
	return 0
}

// A placed is the sum for one place.
type placed struct {
	site   report.VerdictSite
	near   int64 // ns whose line is only inferred
	routes []report.Route
}

// places divides a cause by place, and fills in what its places have in common.
func places(c *report.VerdictCause, list []piece) {
	var all []placed
	ran, ranAt := map[report.SiteKey]float64{}, map[report.SiteKey]*report.Site{}
	for i := range list {
		of := &list[i]
		row := of.row
		if c.Cause == report.CauseSTW {
			if i == 0 {
				c.Kind = row.Kind
			} else if c.Kind != row.Kind {
				c.Kind = ""
			}
		}
		k := slices.IndexFunc(all, func(p placed) bool { return p.site.Kind == row.Kind && p.site.Site.Equal(row.Site) })
		if k < 0 {
			k = len(all)
			all = append(all, placed{site: report.VerdictSite{Site: row.Site, Kind: row.Kind, Via: []report.Via{}}})
		}
		p := &all[k]
		p.site.TotalNS += of.ns
		p.site.Share = min(p.site.Share+of.share, 1)
		if row.SiteFrom == "bracket" {
			p.near += of.ns
		}
		p.addRoutes(of.routes)
		for _, s := range row.RanMeanwhile {
			if s.Site != nil && c.TotalNS > 0 {
				ranAt[s.Site.Key()] = s.Site
				ran[s.Site.Key()] += s.Share * float64(of.ns) / float64(c.TotalNS)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(b.site.TotalNS, a.site.TotalNS) })
	for i := range all {
		if p := &all[i]; i < maxSites && (p.site.Share >= scale.Speck || i == 0) {
			p.way()
			p.site.Inferred = p.near > p.site.TotalNS/2
			c.Sites = append(c.Sites, p.site)
		}
	}
	for site, share := range ran {
		if share >= scale.Speck {
			c.RanMeanwhile = append(c.RanMeanwhile, report.Share{Site: ranAt[site], Share: min(share, 1)})
		}
	}
	slices.SortFunc(c.RanMeanwhile, func(a, b report.Share) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), a.Site.Compare(b.Site))
	})
	c.RanMeanwhile = c.RanMeanwhile[:min(len(c.RanMeanwhile), maxSites)]
}

func (p *placed) addRoutes(routes []report.Route) {
	for _, add := range routes {
		at := slices.IndexFunc(p.routes, func(have report.Route) bool {
			return slices.EqualFunc(have.Via, add.Via, func(a, b report.Via) bool { return a.Equal(&b) })
		})
		if at < 0 {
			p.routes = append(p.routes, add)
		} else {
			p.routes[at].TotalNS += add.TotalNS
		}
	}
}

// way picks the chain of waits with the most time, and its share.
func (p *placed) way() {
	var all, most int64
	for i := range p.routes {
		r := &p.routes[i]
		all += r.TotalNS
		if len(r.Via) > 0 && r.TotalNS > most {
			p.site.Via, most = r.Via, r.TotalNS
		}
	}
	if all > 0 && most > 0 {
		p.site.ViaPart = float64(most) / float64(all)
	}
}
