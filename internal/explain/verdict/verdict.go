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

	maxNamedCauses, minCauseShare    = 3, 0.10 // causes that are mentioned, for the first group
	maxNamedFurther, minFurtherShare = 2, 0.20 // and for the others
	maxSites                         = 5       // places of a cause that are kept
	maxNamedSites                    = 3       // and those that are mentioned
	wholeShare                       = 0.995
)

// Verdicts returns the verdicts on the groups with the most latency, in the report's order.
func Verdicts(r *report.Report) []report.Verdict { return BandVerdicts(r, "") }

// BandVerdicts is Of for the named band, if a group has it, instead of the band that represents its slow requests.
func BandVerdicts(r *report.Report, band report.BandName) []report.Verdict {
	verdicts := []report.Verdict{}
	var allNS int64
	for i := range r.Groups {
		if r.Groups[i].Role == report.RoleRequests {
			allNS += r.Groups[i].TotalNS
		}
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		if g.Role != report.RoleRequests {
			break // no request waits for its latency
		}
		if len(verdicts) == maxGroups {
			break
		}
		if len(verdicts) > 0 && float64(g.TotalNS) < scale.Little*float64(allNS) && !hasHungRequests(r, g) {
			continue
		}
		if isHung := hasHungRequests(r, g); g.Count > 0 || isHung {
			verdicts = append(verdicts, groupVerdict(r, g, band, len(verdicts) == 0, isHung))
		}
	}
	return verdicts
}

// Causes returns what the requests of a band spent their time on: summed by who works, in the order in which they are mentioned.
func Causes(r *report.Report, g *report.Group, b *report.Band) []report.VerdictCause {
	list, first := groupQueues(r, g)
	return demoteScatteredCPU(splitOffCPU(sumCauses(b, list, first), r, b))
}

// hasHungRequests reports whether requests of a group hang that were still running at the end of the trace: whether a finding above low says
// so. A request that waits for an event that may come at any time is normal.
func hasHungRequests(r *report.Report, g *report.Group) bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Code == report.RuleHung && f.Group == g.ID && f.Severity.Loud()
	})
}

func groupVerdict(r *report.Report, g *report.Group, band report.BandName, isFirst, isHung bool) report.Verdict {
	b := g.Tail()
	if named := g.Band(band); named != nil {
		b = named
	}
	v := report.Verdict{Group: g.ID, Band: b.Band, Requests: b.Count, Causes: Causes(r, g, b), Open: openRequests(g, isHung)}
	for i := range v.Causes {
		c := &v.Causes[i]
		nameStopperOrPeer(c, r, g)
		for k := range c.Sites {
			_, hops := AfterLastAnswer(c.Sites[k].Via)
			c.Sites[k].In = answererNames(r, g, hops)
		}
	}
	v.Lead, v.Range = bandWords(g, b)
	maxNamed, minShare := maxNamedCauses, minCauseShare
	if !isFirst {
		maxNamed, minShare = maxNamedFurther, minFurtherShare
	}
	texts := []string{}
	for i := range v.Causes {
		c := &v.Causes[i]
		c.Text = Join(Describe(c, siteColumns))
		c.Said = c.Cause != report.CauseOther && len(texts) < maxNamed && (c.Share >= minShare || len(texts) == 0)
		if c.Said {
			texts = append(texts, words.PercentOr0(c.Share)+" "+c.Text)
		}
	}
	name := names.GroupName(g, siteColumns)
	switch {
	case len(texts) == 0:
		v.Text = name + ": no request ended in the trace"
	default:
		v.Text = v.Lead + " " + name + " " + v.Range + " spent " + strings.Join(texts, "; ")
	}
	if v.Held = stopsText(r); v.Held != "" {
		v.Text += "; " + v.Held
	}
	if v.Open != nil && v.Open.Late {
		v.Text += "; " + v.Open.Text
	}
	return v
}

// openRequests says how many requests of a group have not ended.
func openRequests(g *report.Group, isHung bool) *report.VerdictOpen {
	if g.Open.Count == 0 {
		return nil
	}
	o := &report.VerdictOpen{Count: g.Open.Count, OldestNS: g.Open.OldestNS, Site: g.Open.Site, Late: isHung}
	o.Text = words.Count(g.Open.Count, "request", "requests") + " still running at the end of the trace, the oldest for " + words.Duration(g.Open.OldestNS)
	if place := names.Place(g.Open.Site, siteColumns); place != "" {
		o.Text += " in " + place
		if lead, fn, pos := names.CalledFrom(g.Open.Site, siteColumns); fn+pos != "" {
			o.Text += ", " + lead + strings.TrimSpace(fn+" "+pos)
		}
	}
	return o
}

// nameStopperOrPeer has a cause's words say who takes the time, where that is known: what stopped the process, or the peer. If the peer is
// named already, the way to the place is left out.
func nameStopperOrPeer(c *report.VerdictCause, r *report.Report, g *report.Group) {
	if s := r.Runtime.Stops; c.Cause == report.CauseThrottle && s != nil && s.By != "" && !r.Runtime.Throttle.Verdict.HeldBack() {
		c.Words = "stopped with the whole process"
	}
	if g.Peer == nil || c.Cause != report.CauseNetwork || c.Kind != "outbound" || c.Queue != nil {
		return
	}
	peerNames := names.PeerNames(g.Peer)
	switch {
	case g.Peer.Followed():
		c.Words = "on the way to this process's own " + peerNames + " and back, over the network"
	case g.Peer.Recording != "":
		c.Words = "waiting over the network for " + peerNames + " in " + termtext.Head(g.Peer.Recording, 80)
		if g.Peer.Spent != "" {
			c.Words += " (which spent " + termtext.Head(g.Peer.Spent, 200) + ")"
		}
	case g.Peer.Confidence < 0.8:
		c.Words = "waiting for a peer on the network, perhaps this process's own " + peerNames
	default:
		c.Words = "waiting over the network for this process's own " + peerNames
	}
}

// answererNames follows the groups that answer a group's requests that many times, and names the last one.
func answererNames(r *report.Report, g *report.Group, hops int) string {
	peerNames := ""
	for ; hops > 0 && g != nil && g.Peer.Followed(); hops-- {
		peerNames = names.PeerNames(g.Peer)
		g = r.Group(g.Peer.Group)
	}
	return peerNames
}

// stopsText says that the process did not run for some time, and how many requests that hit.
func stopsText(r *report.Report) string {
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

// siteColumns is the most columns for a place in text without line limits.
const siteColumns = 160

// bandWords says which requests a band holds, and how late they were.
func bandWords(g *report.Group, b *report.Band) (lead, latency string) {
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
		lead = BandText(b.Band) + " of"
	}
	return lead, LatencyRange(g, b)
}

// BandText says which requests a band holds.
func BandText(band report.BandName) string {
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

// LatencyRange says between which latencies the requests of a band lie.
func LatencyRange(g *report.Group, b *report.Band) string {
	maxNS := b.ToNS
	if m := g.LatencyNS.Max; m != nil && *m < maxNS {
		maxNS = *m
	}
	switch {
	case b.Band == report.BandOutliers && g.LatencyNS.P50 != nil:
		latencies := words.Duration(maxNS)
		if b.Count > 1 && words.Duration(b.FromNS) != latencies {
			latencies = words.Duration(b.FromNS) + " to " + latencies
		}
		return "(" + latencies + "; p50 " + words.Duration(*g.LatencyNS.P50) + ")"
	case b.Count == 1 && b.Band == report.Band99, b.FromNS >= maxNS && maxNS > 0:
		return "(" + words.Duration(maxNS) + ")"
	case (b.FromNS == 0 || b.Band == report.BandAll) && g.LatencyNS.P50 != nil:
		return "(p50 " + words.Duration(*g.LatencyNS.P50) + ", max " + words.Duration(maxNS) + ")"
	case b.FromNS == 0:
		return "(up to " + words.Duration(maxNS) + ")"
	}
	return "(" + words.Duration(b.FromNS) + " to " + words.Duration(maxNS) + ")"
}
