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
	// Outliers says that the slow requests are report.BandOutliers; Beside is what those that are slow by percentiles lost
	// then, else what outliers did.
	Outliers bool
	Beside   Lost
}

// Lost is what some requests spent on something: the share of their time, and ns of each on average.
type Lost struct {
	Share float64
	NS    int64
}

// Thresholds of severity, the same for all rules: a fix must win this share of the slow requests' time, and so much of
// one slow request, on average. Below the lowest a rule's verdict is not shown at all.
// A few outliers must have lost more: what any machine does to one request in a thousand is no fault.
var thresholds = []struct {
	severity report.Severity
	share    float64
	ns       int64
	few      int64
}{
	{report.SeverityHigh, 0.30, 2e6, 100e6},
	{report.SeverityMedium, 0.10, 500e3, 50e6},
	{report.SeverityLow, 0.05, 100e3, 10e6},
}

// Severities explains the thresholds in words.
const Severities = `high: the fix would win at least 30 % of the slow requests' time and 2 ms of each; medium: 10 % and 500 us; low: 5 % and 100 us. ` +
	`Slow requests are those of band p99-max where it holds at least 10, else of p90-99, else all. Of a few outliers, fewer than 10 requests that were far slower than what is usual, it must be 100 ms, 50 ms, or 10 ms of each. Less than that is not reported, nor what only a few requests of a handler met that are known by it while most show none. ` +
	`info is for facts that weaken or explain other findings and for what is no fault.`

func severity(v *Verdict) report.Severity {
	if v.Fact {
		return report.SeverityInfo
	}
	return worse(v.Won.Slow().severity(v.Won.Outliers), v.Won.Beside.severity(!v.Won.Outliers))
}

// Slow is what slow requests lost.
func (w *Won) Slow() Lost { return Lost{w.SlowShare, w.SlowNS} }

// severity judges a loss, of outliers or of those that are slow by percentiles; "" is not worth reporting.
func (l Lost) severity(outliers bool) report.Severity {
	for _, t := range thresholds {
		least := t.ns
		if outliers {
			least = t.few
		}
		if l.Share >= t.share && l.NS >= least {
			return t.severity
		}
	}
	return ""
}

// worse returns the worse of two severities, either of which may be "".
func worse(a, b report.Severity) report.Severity {
	if a == "" || b != "" && rank(b) < rank(a) {
		return b
	}
	return a
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
		if b == nil {
			return 0, 0
		}
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
	of := func(b *report.Band) (l Lost) {
		ns := int64(0)
		if l.Share, ns = add(b); b != nil && b.Count > 0 {
			l.NS = ns / int64(b.Count)
		}
		return l
	}
	slow, beside := g.Tail(), g.Band(report.BandOutliers)
	if won.Outliers = slow == beside; won.Outliers {
		beside = g.TailByPercentile()
	}
	l := of(slow)
	won.SlowShare, won.SlowNS, won.Beside = l.Share, l.NS, of(beside)
	return share, won
}
