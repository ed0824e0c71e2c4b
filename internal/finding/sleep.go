package finding

import (
	"github.com/whylate/whylate/report"
)

func sleepRule() Rule {
	return Rule{
		Code: "WL2001", Name: "sleep",
		Summary: "requests wait for a sleep or a timer",
		Doc: Doc{
			Means: "Requests cannot end before a time.Sleep, a timer or a deadline somewhere on their critical path has run out, be it on their own goroutine or on another one that " +
				"they wait for. Nothing was computed meanwhile, so a CPU profile does not show it.",
			Measured: "Every stretch of a request's critical path in which the goroutine that it waits for sleeps has cause sleep, with the line that went to sleep and, in via, " +
				"the waits that lead there.",
			Before: "for !c.ready() {\n\ttime.Sleep(100 * time.Millisecond)\n}",
			After:  "<-c.readyC // closed by whoever makes it ready",
			Wrong: "Where the pause is what the caller asked for: a long poll, a rate limit that is meant, a back-off after a failure whose cause is elsewhere. " +
				"Ignore it then, with the reason.",
		},
		Run: sleeps,
	}
}

func sleeps(in *Input) []Verdict {
	var out []Verdict
	for i := range in.Report.Groups {
		g := &in.Report.Groups[i]
		for _, site := range sites(g, "sleep") {
			share, won := Weigh(g, func(c *report.Cause) bool { return c.Cause == "sleep" && same(c.Site, site) })
			out = append(out, Verdict{Won: won, Finding: report.Finding{
				Title: "requests sleep", Cause: "sleep", Site: site, Group: g.ID, Share: share, Confidence: 0.9,
				Evidence: []report.Evidence{{Text: "mean sleep of a slow request", Value: float64(won.SlowNS), Unit: "ns"}},
				Fix:      "wait for the event itself (a channel, a Cond) instead of looking again later, or make the pause shorter",
			}})
		}
	}
	return out
}

// sites returns the sites of a group's causes of one kind, the weightiest first.
func sites(g *report.Group, cause string) []*report.Site {
	var out []*report.Site
	for b := range g.Bands {
		for i := range g.Bands[b].Causes {
			c := &g.Bands[b].Causes[i]
			if c.Cause != cause || c.Site == nil {
				continue
			}
			known := false
			for _, s := range out {
				known = known || same(s, c.Site)
			}
			if !known {
				out = append(out, c.Site)
			}
		}
	}
	return out
}

func same(a, b *report.Site) bool { return a == b || a != nil && b != nil && *a == *b }
