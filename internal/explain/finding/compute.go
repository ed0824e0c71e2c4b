package finding

import (
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// checkComputes is WL1008, computes.
func checkComputes(in *Input, g *report.Group) []Verdict {
	cl := in.attributionOf(g)
	own := func(c *report.Cause, via []report.Via) bool {
		return c.Cause == report.CauseCPU && cl.keyOf(c, via).code == ""
	}
	share, won := weighRoutes(g, own)
	mine := func(c *report.Cause) bool { return mostly(c, own) }
	if share < 0.05 {
		return nil
	}
	site, most, inferred := (*report.Site)(nil), int64(0), false
	byFunc, heaviest := map[string]int64{}, map[string]*report.Cause{}
	for k := range g.All().Causes {
		if c := &g.All().Causes[k]; mine(c) && c.Site != nil {
			fn := c.Site.Own().Func // what a dependency computes is the doing of the line that calls it
			if heaviest[fn] == nil {
				heaviest[fn] = c
			}
			if byFunc[fn] += c.TotalNS; byFunc[fn] > most {
				site, most, inferred = heaviest[fn].Site, byFunc[fn], heaviest[fn].SiteFrom == "bracket"
			}
		}
	}
	if site == nil {
		return nil
	}
	what, computes := short(site.Func), " computes"
	if c := site.CalledFrom; c != nil {
		what, computes = what+", "+names.Lead(c)+short(c.Func), ", computes"
	}
	v := Verdict{Won: won, Finding: report.Finding{
		Title: what + computes, Cause: report.CauseCPU, Site: site, Group: g.ID, Share: share, Confidence: 0.8,
		Evidence: []report.Evidence{measured("mean computing per slow request", won.Slow.NS, "ns")},
		Fix:      "make it cheaper (whylate export --to pprof shows where), limit what one request may ask for, or compute it in advance",
	}}
	if inferred {
		v.Confidence = 0.6
		v.say(report.Evidence{Text: "the line is inferred from the events around it: no CPU samples show what ran"})
	}
	if in.mostBytesAt() && in.Allocs.Sites[0].Site.Equal(site) {
		v.say(measured("share of the bytes allocated at "+in.allocating(), part1(in.Allocs.Sites[0].Bytes, in.Allocs.Bytes), "share"))
	}
	if extra, ok := computesMore(g, mine); ok {
		v.Title = "slow requests compute more than others, in " + what
		v.Won.Slow.Share, v.Won.Slow.NS, v.Won.All, v.Won.Beside = extra.share, extra.ns, Lost{}, Lost{}
		v.say(
			measured("computing beyond that of a mean request", extra.ns, "ns"),
			measured("share of the slow requests' computing that CPU samples cover", extra.sampled, "share"))
	} else if share < 0.5 || 10*g.TotalNS < in.total() {
		return nil // neither what makes it slow nor what the service mostly does
	} else if top := verdict.Causes(in.Report, g, g.Tail()); len(top) == 0 || top[0].Cause != report.CauseCPU || sampled(g.Tail(), mine) < scale.Half || site.Own().Module != "" || isStdSite(site.Own()) || in.Unawaited[g.ID] {
		v.Fact = true
	} else {
		// It may be what the service is for; but slow requests were seen to spend more on code of its own than on anything else.
		v.Most, v.Least, v.Won.All, v.Won.Beside, v.Won.Times = report.SeverityLow, report.SeverityInfo, Lost{}, Lost{}, scale.Several
	}
	return []Verdict{v}
}

// total is the time of all requests.
func (in *Input) total() (ns int64) {
	for i := range in.Report.Groups {
		ns += in.Report.Groups[i].TotalNS
	}
	return ns
}

// mostly reports whether most of the ways to a cause match.
func mostly(c *report.Cause, match func(*report.Cause, []report.Via) bool) bool {
	yes, all := routeTimes(c, match)
	return yes > 0 && 2*yes >= all
}

type extra struct {
	ns      int64   // that a slow request computes more than the mean of all
	share   float64 // of the slow requests' time
	sampled float64 // share of the slow requests' computing that CPU samples stand for
}

// computesMore reports whether slow requests are slow because they compute more.
func computesMore(g *report.Group, mine func(*report.Cause) bool) (extra, bool) {
	slow := g.Tail()
	if slow == g.All() || slow.Count == 0 || g.LatencyNS.P50 == nil || g.Count == 0 {
		return extra{}, false
	}
	sum := func(b *report.Band) (cpu, all int64) {
		for i := range b.Causes {
			c := &b.Causes[i]
			all += c.TotalNS
			if mine(c) {
				cpu += c.TotalNS
			}
		}
		return cpu, all
	}
	cpu, all := sum(slow)
	allCPU, _ := sum(g.All())
	latency := all / int64(slow.Count)
	e := extra{ns: cpu/int64(slow.Count) - allCPU/int64(g.Count), sampled: sampled(slow, mine)}
	if all > 0 {
		e.share = float64(e.ns) / float64(latency)
	}
	return e, latency >= 2**g.LatencyNS.P50 && 2*e.ns >= latency-*g.LatencyNS.P50 && e.sampled >= 0.5
}

// sampled returns for which share of a band's computing CPU samples stand.
func sampled(b *report.Band, mine func(*report.Cause) bool) float64 {
	var cpu, samples int64
	for i := range b.Causes {
		if c := &b.Causes[i]; mine(c) {
			cpu, samples = cpu+c.TotalNS, samples+int64(c.Samples)
		}
	}
	return part1(samples*report.SampleNS, cpu)
}
