package finding

import (
	"slices"

	"github.com/whylate/whylate/report"
)

// Won is what a fix would win, as far as the causes tell: what requests spent on what it takes away.
type Won struct {
	SlowShare float64 // of the time of the group's slow requests (see report.Group.Tail), 0..1
	SlowNS    int64   // for one slow request, on average
	TotalNS   int64   // for all requests of the trace: what findings are ordered by
}

// Thresholds of severity, the same for all rules: a fix must win this share of the slow requests' time, and so much of
// one slow request, on average. Below the lowest a rule's verdict is not shown at all.
var thresholds = []struct {
	severity report.Severity
	share    float64
	ns       int64
}{
	{report.SeverityHigh, 0.30, 2e6},
	{report.SeverityMedium, 0.10, 500e3},
	{report.SeverityLow, 0.05, 100e3},
}

// Severities explains the thresholds in words.
const Severities = `high: the fix would win at least 30 % of the slow requests' time and 2 ms of each; medium: 10 % and 500 us; low: 5 % and 100 us. ` +
	`Slow requests are those of band p99-max where it holds at least 10, else of p90-99, else all. Less than that is not reported, nor what only a few requests of a handler met that are known by it while most show none. ` +
	`info is for facts that weaken or explain other findings and for what is no fault.`

func severity(v *Verdict) report.Severity {
	if v.Fact {
		return report.SeverityInfo
	}
	for _, t := range thresholds {
		if v.Won.SlowShare >= t.share && v.Won.SlowNS >= t.ns {
			return t.severity
		}
	}
	return ""
}

func rank(s report.Severity) int { return slices.Index(report.Severities(), s) }

// Weigh adds up the causes of a group that match: their share of the group's time, and what a fix that takes them away
// altogether would win.
func Weigh(g *report.Group, match func(*report.Cause) bool) (share float64, won Won) {
	return weighPart(g, func(c *report.Cause) float64 {
		if match(c) {
			return 1
		}
		return 0
	})
}

// weighPart is Weigh for parts of causes.
func weighPart(g *report.Group, part func(*report.Cause) float64) (share float64, won Won) {
	if len(g.Bands) == 0 {
		return 0, Won{}
	}
	add := func(b *report.Band) (share float64, total int64) {
		for i := range b.Causes {
			c := &b.Causes[i]
			if p := part(c); p > 0 {
				share += p * c.Share
				total += int64(p * float64(c.TotalNS))
			}
		}
		return min(share, 1), total
	}
	share, won.TotalNS = add(g.All())
	slow := g.Tail()
	ns := int64(0)
	if won.SlowShare, ns = add(slow); slow.Count > 0 {
		won.SlowNS = ns / int64(slow.Count)
	}
	return share, won
}
