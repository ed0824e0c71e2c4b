package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// Gain is the time that a fix saves, according to the causes: the time that requests spent on what the fix removes.
type Gain struct {
	// ThresholdFactor multiplies the thresholds if only a part of the loss can be saved; 0 means 1.
	ThresholdFactor int64
	All             Loss // of all requests of the group
	Slow            Loss // of its slow requests, see report.Group.Tail
	// OtherTail is the loss of the band that is not Slow: of the outliers if Slow is a percentile band, and of the
	// percentile band if Slow is the outliers.
	OtherTail Loss
	TotalNS   int64 // of all requests of the trace; verdicts are ordered by it
}

// Loss is the time that some requests spent on something: the share of their time, and the mean ns of each request.
type Loss struct {
	Share  float64
	NS     int64
	IsRare bool // the requests are so few that chance may explain the loss
}

// scaled returns the loss times a factor.
func (l Loss) scaled(factor float64) Loss {
	return Loss{l.Share * factor, int64(float64(l.NS) * factor), l.IsRare}
}

// minus returns the loss without the part o that has another reason; it is not negative.
func (l Loss) minus(o Loss) Loss {
	return Loss{max(0, l.Share-o.Share), max(0, l.NS-o.NS), l.IsRare}
}

// scaled returns the gain times a factor.
func (w Gain) scaled(factor float64) Gain {
	w.All, w.Slow, w.OtherTail, w.TotalNS = w.All.scaled(factor), w.Slow.scaled(factor), w.OtherTail.scaled(factor), int64(float64(w.TotalNS)*factor)
	return w
}

// plus returns the sum of two gains by different changes.
func (w Gain) plus(o Gain) Gain {
	sum := func(a, b Loss) Loss { return Loss{min(1, a.Share+b.Share), a.NS + b.NS, a.IsRare} }
	w.All, w.Slow, w.OtherTail, w.TotalNS = sum(w.All, o.All), sum(w.Slow, o.Slow), sum(w.OtherTail, o.OtherTail), w.TotalNS+o.TotalNS
	return w
}

// beyond returns the gain if each request still loses ns.
func (w Gain) beyond(ns int64) Gain {
	rest := func(l Loss) Loss { return l.scaled(float64(max(0, l.NS-ns)) / float64(max(l.NS, 1))) }
	w.All, w.Slow, w.OtherTail = rest(w.All), rest(w.Slow), rest(w.OtherTail)
	return w
}

// areTooRare reports whether the outliers of a group are so few that chance may explain them.
func areTooRare(outliers, all int) bool {
	return outliers < report.TailRequests/2 || outliers < report.TailRequests && 100*outliers < all
}

// otherTail returns the band of slow requests that is not group.Tail: the outliers, or the slow ones by percentile; nil if there
// is none.
func otherTail(g *report.Group) *report.Band {
	if out := g.Band(report.BandOutliers); out != g.Tail() {
		return out
	}
	return g.TailByPercentile()
}

// thresholds of severity, the same for all rules. A fix must save at least this share of the time and this much of
// each request, on average, either of all requests of the group, or of the slow ones by percentile, or of a few
// outliers. Slow requests must lose more than all, and outliers more than slow ones: a delay of one request in a
// hundred or a thousand occurs on any machine and is no fault of the service. A verdict below the lowest threshold is
// not reported.
var thresholds = []Threshold{
	{report.SeverityHigh, 0.30, 2e6, 10e6, 100e6},
	{report.SeverityMedium, 0.10, 1e6, 3e6, 50e6},
	{report.SeverityLow, 0.05, 250e3, 1e6, 10e6},
}

// Severities explains the thresholds to users.
const Severities = `high: the fix removes at least 30 % of the time and 2 ms of each request of the group, on average, or 30 % and 10 ms of each slow one; medium: 10 %, and 1 ms or 3 ms; low: 5 %, and 250 us or 1 ms. ` +
	`Slow requests are those of band p99-max where it holds at least 10, else of p90-99, else all; or the outliers, which are far slower than usual: if there are fewer than 5 of them, or fewer than 10 and 1 %, the limits are 100 ms, 50 ms and 10 ms of each. ` +
	`A finding with a confidence below 70 % is at most medium, below 50 % low. ` +
	`Smaller findings are not reported. Neither are findings of a handler that only a few requests name while most requests show none. ` +
	`info is for facts that weaken or explain other findings, and for what is no fault.`

// severity returns a verdict's severity, "" if it is not reported.
func (in *Input) severity(v *Verdict) report.Severity {
	s, _ := in.decideSeverity(v)
	return s
}

// decideSeverity returns the severity of a verdict, and which requests and which threshold decided it. Slow requests, all
// requests, and the other band of slow requests are tried in this order, for the highest severity first. Below all thresholds it
// is v.MinSeverity, which is "" if the verdict is not reported. decided is nil if no threshold decided.
func (in *Input) decideSeverity(v *Verdict) (severity report.Severity, decided *report.Decided) {
	if v.Fact {
		return report.SeverityInfo, nil
	}
	if v.FixedSeverity != "" {
		return v.FixedSeverity, nil
	}
	list := in.Thresholds
	if list == nil {
		list = thresholds
	}
	for t := range each(list) {
		if v.MaxSeverity != "" && severityRank(t.Severity) < severityRank(v.MaxSeverity) {
			continue
		}
		factor := max(1, v.Gain.ThresholdFactor)
		minLoss := func(l Loss) int64 {
			if l.IsRare {
				return t.RareNS
			}
			return factor * t.SlowNS
		}
		for _, d := range []struct {
			decidedBy  report.DecidedBy
			loss       Loss
			minNS      int64
			isExcluded bool
		}{
			{report.DecidedBySlow, v.Gain.Slow, minLoss(v.Gain.Slow), false},
			{report.DecidedByAll, v.Gain.All, factor * t.AllNS, v.Gain.All.IsRare || v.MaxSeverityByAll != "" && severityRank(t.Severity) < severityRank(v.MaxSeverityByAll)},
			{report.DecidedByBeside, v.Gain.OtherTail, minLoss(v.Gain.OtherTail), false},
		} {
			if !d.isExcluded && d.loss.Share >= t.Share && d.loss.NS >= d.minNS {
				return t.Severity, &report.Decided{Requests: d.decidedBy, Share: d.loss.Share, LeastShare: t.Share, NS: d.loss.NS, LeastNS: d.minNS}
			}
		}
	}
	return v.MinSeverity, nil
}

// chargeLargestLoser turns a fact about the process into a finding about the group that loses most by it, if that group's loss
// reaches a threshold. part returns the share of a cause's time, 0 to 1, that the fact takes.
func (in *Input) chargeLargestLoser(v *Verdict, part func(*report.Cause) float64) {
	for g := range each(in.Report.Groups) {
		share, gain := gainWithoutPart(g, part)
		if gain.TotalNS > v.Gain.TotalNS && in.severity(&Verdict{Gain: gain}) != "" {
			v.Gain, v.Fact, v.Group, v.Share = gain, false, g.ID, share
		}
	}
}

// capSeverity lowers the severity to s if it is higher.
func (v *Verdict) capSeverity(s report.Severity) {
	if severityRank(v.Severity) < severityRank(s) {
		v.Severity, v.Decided = s, nil
	}
}

// sureConfidence is the least confidence of a finding of high severity, which a reader acts on without looking further.
const sureConfidence = 0.7

// capByConfidence lowers the severity of a verdict that is not sure enough.
func (v *Verdict) capByConfidence() {
	switch {
	case v.Confidence < threshold.HalfShare:
		v.capSeverity(report.SeverityLow) // it is more likely wrong than right
	case v.Confidence < sureConfidence:
		v.capSeverity(report.SeverityMedium)
	}
}

// severityRank returns the position of a severity in report.Severities: 0 is the most severe.
func severityRank(s report.Severity) int { return slices.Index(report.Severities(), s) }

// gainWithout returns what the requests of a group would save without the causes that match: the share of the time of all
// requests, and the gain by band.
func gainWithout(g *report.Group, match func(*report.Cause) bool) (share float64, gain Gain) {
	return gainWithoutPart(g, func(c *report.Cause) float64 { return oneIf(match(c)) })
}

// oneIf returns 1 if b is true, else 0.
func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// gainWithoutPart is gainWithout for parts of causes: part returns the share of a cause's time, 0 to 1, that goes away.
func gainWithoutPart(g *report.Group, part func(*report.Cause) float64) (share float64, gain Gain) {
	sum := func(b *report.Band) (share float64, total int64) {
		if b == nil {
			return 0, 0
		}
		for c := range each(b.Causes) {
			if p := part(c); p > 0 {
				share += p * c.Share
				total += int64(p * float64(c.TotalNS))
			}
		}
		return min(share, 1), total
	}
	share, gain.TotalNS = sum(g.All())
	gain.All = Loss{Share: share, NS: gain.TotalNS / int64(max(g.All().Count, 1))}
	bandLoss := func(b *report.Band) (l Loss) {
		ns := int64(0)
		if l.Share, ns = sum(b); b != nil && b.Count > 0 {
			l.NS = ns / int64(b.Count)
			l.IsRare = b.Band == report.BandOutliers && areTooRare(b.Count, g.Count)
		}
		return l
	}
	gain.Slow, gain.OtherTail = bandLoss(g.Tail()), bandLoss(otherTail(g))
	return share, gain
}
