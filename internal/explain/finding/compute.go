package finding

import (
	"fmt"

	"github.com/whylate/whylate/report"
)

func computeRule() Rule {
	return Rule{
		Code: report.RuleComputes, Name: "computes",
		Summary: "requests compute",
		Doc: Doc{
			Means: "The request spends its time running code on its critical path, not waiting. That is a service's job, so by itself it is a fact and no fault. " +
				"It is a fault where slow requests are slow because they compute much more than a typical one.",
			Measured: "Cause cpu on the critical path, outside of locks and queues, by the function that ran. It is a finding above info only if slow requests take " +
				"at least twice the median, computing makes up at least half of the difference, and CPU samples of 10 ms each cover at least half of that " +
				"computing: a thread that the kernel does not run looks the same but is not sampled.",
			Before: "for _, r := range rows { out = append(out, re.FindAllString(r, -1)...) } // some tenants have 100 times the rows",
			After:  "for _, r := range rows[:min(len(rows), page)] { ... }",
			Wrong: "Where the CPU is shared, running time includes what the kernel gave to other processes (WL4, WL5011). Without CPU samples, the function of a " +
				"short run is inferred from the events around it (site_from: bracket).",
		},
		Run: computes,
	}
}

func computes(in *Input) []Verdict {
	var out []Verdict
	total := int64(0)
	for i := range in.Report.Groups {
		total += in.Report.Groups[i].TotalNS
	}
	for i := range in.Report.Groups {
		g := &in.Report.Groups[i]
		cl := claimsOf(in, g)
		own := func(c *report.Cause, via []report.Via) bool {
			return c.Cause == report.CauseCPU && cl.of(c, via).code == ""
		}
		share, won := weighWays(g, own)
		mine := func(c *report.Cause) bool { return mostly(c, own) }
		if len(g.Bands) == 0 || share < 0.05 {
			continue
		}
		site, most, inferred := (*report.Site)(nil), int64(0), false
		byFunc := map[string]int64{}
		for k := range g.All().Causes {
			if c := &g.All().Causes[k]; mine(c) && c.Site != nil {
				byFunc[c.Site.Func] += c.TotalNS
				if ns := byFunc[c.Site.Func]; ns > most {
					site, most, inferred = c.Site, ns, c.SiteFrom == "bracket"
				}
			}
		}
		if site == nil {
			continue
		}
		v := Verdict{Won: won, Finding: report.Finding{
			Title: fmt.Sprintf("%s computes", short(site.Func)), Cause: report.CauseCPU, Site: site, Group: g.ID, Share: share, Confidence: 0.8,
			Evidence: []report.Evidence{{Text: "mean computing per slow request", Value: float64(won.SlowNS), Unit: "ns"}},
			Fix:      "make it cheaper (whylate export --to pprof shows where), limit what one request may ask for, or compute it in advance",
		}}
		if inferred {
			v.Confidence = 0.6
			v.Evidence = append(v.Evidence, report.Evidence{Text: "the line is inferred from the events around it: no CPU samples show what ran"})
		}
		if in.mostBytesAt() && in.Allocs.Sites[0].Site.Equal(site) {
			v.Evidence = append(v.Evidence, report.Evidence{Text: "share of the bytes allocated at " + in.allocating(), Value: part1(in.Allocs.Sites[0].Bytes, in.Allocs.Bytes), Unit: "share"})
		}
		if extra, ok := computesMore(g, mine); ok {
			v.Title = fmt.Sprintf("slow requests compute more than others, in %s", short(site.Func))
			v.Won.SlowNS = extra.ns
			v.Won.SlowShare, v.Won.All, v.Won.Beside = extra.share, Lost{}, Lost{}
			v.Evidence = append(v.Evidence,
				report.Evidence{Text: "more than a typical request, by", Value: float64(extra.ns), Unit: "ns"},
				report.Evidence{Text: "share of the slow requests' computing that CPU samples cover", Value: extra.sampled, Unit: "share"})
		} else if v.Fact = true; share < 0.5 || 10*g.TotalNS < total {
			continue // neither what makes it slow nor what the service mostly does
		}
		out = append(out, v)
	}
	return out
}

// mostly reports whether most of the ways to a cause match.
func mostly(c *report.Cause, match func(*report.Cause, []report.Via) bool) bool {
	yes, all := onRoutes(c, match)
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
	sum := func(b *report.Band) (cpu, sampled, all int64) {
		for i := range b.Causes {
			c := &b.Causes[i]
			all += c.TotalNS
			if mine(c) {
				cpu += c.TotalNS
				sampled += int64(c.Samples) * report.SampleNS
			}
		}
		return cpu, sampled, all
	}
	cpu, sampled, all := sum(slow)
	allCPU, _, _ := sum(g.All())
	latency := all / int64(slow.Count)
	e := extra{ns: cpu/int64(slow.Count) - allCPU/int64(g.Count)}
	if all > 0 {
		e.share = float64(e.ns) / float64(latency)
	}
	if cpu > 0 {
		e.sampled = min(float64(sampled)/float64(cpu), 1)
	}
	return e, latency >= 2**g.LatencyNS.P50 && 2*e.ns >= latency-*g.LatencyNS.P50 && e.sampled >= 0.5
}
