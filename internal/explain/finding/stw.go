package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/report"
)

func stopRule() Rule {
	return Rule{
		Code: report.RuleStoppedWorld, Name: "stopped-world",
		Summary: "requests stop because the world is stopped, for long or repeatedly",
		Doc: Doc{
			Means: "For some operations the runtime stops all goroutines: both ends of a collection, ReadMemStats, stacks of all goroutines, a heap dump, a " +
				"change of GOMAXPROCS. Requests wait until the last goroutine has stopped and the operation is done.",
			Measured: "A stop lasts from the request to stop to the restart; the trace names its kind and who asked for it. The part of it on requests' paths is " +
				"cause stw. In the longest stops of each second, the rule measures the time until the last goroutine had stopped, by whose run ended last: " +
				"that goroutine was slow to stop. Confidence is 0.95.",
			Before: "var m runtime.MemStats\nruntime.ReadMemStats(&m) // for each scrape, by each library",
			After:  "metrics.Read(samples) // runtime/metrics does not stop the world",
			Wrong:  "During a diagnosis: stacks of all goroutines, taken once.",
		},
		Run: func(in *Input) []Verdict {
			return in.eachGroup(func(g *report.Group) []Verdict {
				var out []Verdict
				seen := map[string]bool{}
				for b := range g.Bands {
					for i := range g.Bands[b].Causes {
						c := &g.Bands[b].Causes[i]
						if c.Cause != report.CauseSTW || seen[c.Kind] || isGCStop(c.Kind) && in.gcElsewhere() {
							continue
						}
						seen[c.Kind] = true
						out = append(out, stopVerdict(in, g, c.Kind))
					}
				}
				return out
			})
		},
	}
}

func stopVerdict(in *Input, g *report.Group, kind string) Verdict {
	share, won := Weigh(g, func(c *report.Cause) bool { return c.Cause == report.CauseSTW && c.Kind == kind })
	var all process.Stop
	var top *process.Stop
	for i := range in.Process.Stops {
		s := &in.Process.Stops[i]
		if s.Kind != kind {
			continue
		}
		if top == nil {
			top = s
		}
		all.Count += s.Count
		all.TotalNS += s.TotalNS
		all.MaxNS = max(all.MaxNS, s.MaxNS)
		all.LookedNS += s.LookedNS
		all.StoppingNS += s.StoppingNS
	}
	f := report.Finding{
		Title: fmt.Sprintf("requests stop while the world is stopped (%s)", kind), Cause: report.CauseSTW, Group: g.ID, Share: share, Confidence: 0.95,
		Evidence: []report.Evidence{
			{Text: "mean per slow request", Value: float64(won.SlowNS), Unit: "ns"},
			{Text: "stops", Value: float64(all.Count), Unit: "count"},
			{Text: "mean length of a stop", Value: float64(all.TotalNS) / float64(max(all.Count, 1)), Unit: "ns"},
			{Text: "longest stop", Value: float64(all.MaxNS), Unit: "ns"},
		},
	}
	slow := part1(all.StoppingNS, all.LookedNS)
	if all.LookedNS > 0 {
		f.Evidence = append(f.Evidence, report.Evidence{Text: "share of the longest stops before the last goroutine had stopped", Value: slow, Unit: "share"})
	}
	gc := isGCStop(kind)
	if top != nil {
		f.Site = top.Site
		for _, s := range top.Slow {
			if slow >= 0.2 && s.Share >= 0.1 && s.Site != nil {
				f.Evidence = append(f.Evidence, report.Evidence{Text: "part of that for what kept running at " + place(s.Site), Value: s.Share, Unit: "share"})
			}
		}
		if gc && slow >= 0.5 && len(top.Slow) > 0 && top.Slow[0].Site != nil {
			f.Site = top.Slow[0].Site
		}
	}
	switch {
	case kind == "read mem stats":
		f.Fix = "read what you need from runtime/metrics, which does not stop the world, or read it rarely"
	case strings.Contains(kind, "stack") || strings.Contains(kind, "goroutine"):
		f.Fix = "do not take the stacks of all goroutines while requests are served; runtime/metrics counts them"
	case kind == "GOMAXPROCS":
		f.Fix = "set GOMAXPROCS once"
	case gc && slow >= 0.5:
		f.Fix = "code that keeps running after the request to stop holds up all goroutines: split long copies and clears of memory, and calls that cannot be interrupted; a thread that the kernel or a quota held back looks the same (see WL4)"
	case gc:
		f.Fix = "collect less often: allocate less, or " + moreRoom(in.Process)
	default:
		f.Fix = "do it rarely, or while no requests are served"
	}
	return Verdict{Won: won, Finding: f, Changes: []predict.Change{predict.Half(report.CauseSTW, "")}}
}
