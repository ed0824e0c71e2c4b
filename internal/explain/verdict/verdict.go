// Package verdict says what the slow requests of a report's largest groups spent their time on: which band speaks for
// them, the causes summed up first and then divided by place, and the words for it. It is computed once, stands in the
// JSON, and is what every view prints.
package verdict

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// What is worth saying.
const (
	maxGroups = 3 // groups with a verdict

	maxCauses, leastCause          = 3, 0.10 // causes that are mentioned, for the first group
	maxFurtherCauses, leastFurther = 2, 0.20 // and for the others
	maxSites                       = 5       // places of a cause that are kept
	maxSaidSites                   = 3       // and those that are mentioned
	wholly                         = 0.995
)

// Of returns the verdicts on the groups with the most latency, in the report's order.
func Of(r *report.Report) []report.Verdict { return OfBand(r, "") }

// OfBand is Of for the named band, if a group has it, instead of the band that represents its slow requests.
func OfBand(r *report.Report, band report.BandName) []report.Verdict {
	out := []report.Verdict{}
	var all int64
	for i := range r.Groups {
		if r.Groups[i].Role == report.RoleRequests {
			all += r.Groups[i].TotalNS
		}
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		if g.Role != report.RoleRequests {
			break // no request waits for its latency
		}
		if len(out) == maxGroups {
			break
		}
		if len(out) > 0 && float64(g.TotalNS) < scale.Little*float64(all) && !hung(r, g) {
			continue
		}
		if hangs := hung(r, g); g.Count > 0 || hangs {
			out = append(out, ofGroup(r, g, band, len(out) == 0, hangs))
		}
	}
	return out
}

// Causes returns what the requests of a band spent their time on: summed by who works, in the order in which they are mentioned.
func Causes(r *report.Report, g *report.Group, b *report.Band) []report.VerdictCause {
	list, first := queues(r, g)
	return spreadLast(withoutCPU(sums(b, list, first), r, b))
}

// hung reports whether requests of a group hang that were still running at the end of the trace: whether a finding above low says
// so. A request that waits for an event that may come at any time is normal.
func hung(r *report.Report, g *report.Group) bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Code == report.RuleHung && f.Group == g.ID && f.Severity.Loud()
	})
}

func ofGroup(r *report.Report, g *report.Group, band report.BandName, first, hung bool) report.Verdict {
	b := g.Tail()
	if named := g.Band(band); named != nil {
		b = named
	}
	v := report.Verdict{Group: g.ID, Band: b.Band, Requests: b.Count, Causes: Causes(r, g, b), Open: open(g, hung)}
	for i := range v.Causes {
		c := &v.Causes[i]
		nameHolder(c, r, g)
		for k := range c.Sites {
			_, asked := Beyond(c.Sites[k].Via)
			c.Sites[k].In = asks(r, g, asked)
		}
	}
	v.Lead, v.Range = lead(g, b)
	most, least := maxCauses, leastCause
	if !first {
		most, least = maxFurtherCauses, leastFurther
	}
	said := []string{}
	for i := range v.Causes {
		c := &v.Causes[i]
		c.Text = Join(Spell(c, wide))
		c.Said = c.Cause != report.CauseOther && len(said) < most && (c.Share >= least || len(said) == 0)
		if c.Said {
			said = append(said, words.PercentOr0(c.Share)+" "+c.Text)
		}
	}
	name := names.GroupName(g, wide)
	switch {
	case len(said) == 0:
		v.Text = name + ": no request ended in the trace"
	default:
		v.Text = v.Lead + " " + name + " " + v.Range + " spent " + strings.Join(said, "; ")
	}
	if v.Held = held(r); v.Held != "" {
		v.Text += "; " + v.Held
	}
	if v.Open != nil && v.Open.Late {
		v.Text += "; " + v.Open.Text
	}
	return v
}

// open says how many requests of a group have not ended.
func open(g *report.Group, hung bool) *report.VerdictOpen {
	if g.Open.Count == 0 {
		return nil
	}
	o := &report.VerdictOpen{Count: g.Open.Count, OldestNS: g.Open.OldestNS, Site: g.Open.Site, Late: hung}
	o.Text = words.Count(g.Open.Count, "request", "requests") + " still running at the end of the trace, the oldest for " + words.Duration(g.Open.OldestNS)
	if at := names.Place(g.Open.Site, wide); at != "" {
		o.Text += " in " + at
		if lead, fn, pos := names.CalledFrom(g.Open.Site, wide); fn+pos != "" {
			o.Text += ", " + lead + strings.TrimSpace(fn+" "+pos)
		}
	}
	return o
}

// nameHolder has a cause's words say who takes the time, where that is known: what stopped the process, or the peer. If the peer is
// named already, the way to the place is left out.
func nameHolder(c *report.VerdictCause, r *report.Report, g *report.Group) {
	if s := r.Runtime.Stops; c.Cause == report.CauseThrottle && s != nil && s.By != "" && !r.Runtime.Throttle.Verdict.HeldBack() {
		c.Words = "stopped with the whole process"
	}
	if g.Peer == nil || c.Cause != report.CauseNetwork || c.Kind != "outbound" || c.Queue != nil {
		return
	}
	of := names.PeerNames(g.Peer)
	switch {
	case g.Peer.Followed():
		c.Words = "on the way to this process's own " + of + " and back, over the network"
	case g.Peer.Recording != "":
		c.Words = "waiting over the network for " + of + " in " + termtext.Head(g.Peer.Recording, 80)
		if g.Peer.Spent != "" {
			c.Words += " (which spent " + termtext.Head(g.Peer.Spent, 200) + ")"
		}
	case g.Peer.Confidence < 0.8:
		c.Words = "waiting for a peer on the network, perhaps this process's own " + of
	default:
		c.Words = "waiting over the network for this process's own " + of
	}
}

// asks follows the groups that answer a group's requests that many times, and names the last one.
func asks(r *report.Report, g *report.Group, times int) string {
	of := ""
	for ; times > 0 && g != nil && g.Peer.Followed(); times-- {
		of = names.PeerNames(g.Peer)
		g = r.Group(g.Peer.Group)
	}
	return of
}

// held says that the process did not run for some time, and how many requests that hit.
func held(r *report.Report) string {
	s := r.Runtime.Stops
	if s == nil || !slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Code == report.RuleStopped && f.Severity.Loud() }) {
		return ""
	}
	text := "the process did not run for " + words.Duration(s.TotalNS) + " in " + words.Count(s.Count, "interval", "intervals")
	if s.By == "" {
		text = "perhaps " + text
	}
	return text + ": " + words.Count(s.After, "request", "requests") + " that arrived in that time waited before latency begins, " + words.Number(int64(s.During)) + " were in progress"
}

// wide is the most columns for a place in text without line limits.
const wide = 160

// lead says which requests a band holds, and how late they were.
func lead(g *report.Group, b *report.Band) (lead, latency string) {
	switch {
	case b.Band == report.BandOutliers && b.Count == 1:
		lead = "One far slower request of"
	case b.Band == report.BandOutliers:
		lead = words.Number(int64(b.Count)) + " far slower requests of"
	case b.Count == 1 && b.Band == report.Band99:
		lead = "The slowest request of"
	case b.Count == 1:
		lead = "One request of"
	case b.Band == report.Band99 && b.Count*20 > g.Count:
		lead = "The slowest requests of" // equally slow ones can be more than a hundredth
	default:
		lead = Which(b.Band) + " of"
	}
	return lead, Range(g, b)
}

// Which says which requests a band holds.
func Which(band report.BandName) string {
	switch band {
	case report.Band99:
		return "The slowest 1%"
	case report.Band9099:
		return "From p90 to p99, requests"
	case report.BandOutliers:
		return "Far slower requests"
	case report.Band5090:
		return "From p50 to p90, requests"
	}
	return "Requests"
}

// Range says between which latencies the requests of a band lie.
func Range(g *report.Group, b *report.Band) string {
	last := b.ToNS
	if m := g.LatencyNS.Max; m != nil && *m < last {
		last = *m
	}
	switch {
	case b.Band == report.BandOutliers && g.LatencyNS.P50 != nil:
		of := words.Duration(last)
		if b.Count > 1 && words.Duration(b.FromNS) != of {
			of = words.Duration(b.FromNS) + " to " + of
		}
		return "(" + of + "; p50 " + words.Duration(*g.LatencyNS.P50) + ")"
	case b.Count == 1 && b.Band == report.Band99, b.FromNS >= last && last > 0:
		return "(" + words.Duration(last) + ")"
	case (b.FromNS == 0 || b.Band == report.BandAll) && g.LatencyNS.P50 != nil:
		return "(p50 " + words.Duration(*g.LatencyNS.P50) + ", max " + words.Duration(last) + ")"
	case b.FromNS == 0:
		return "(up to " + words.Duration(last) + ")"
	}
	return "(" + words.Duration(b.FromNS) + " to " + words.Duration(last) + ")"
}
