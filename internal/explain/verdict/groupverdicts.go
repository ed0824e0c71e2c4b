// Package verdict summarises what the slow requests of a report's largest groups spent their time on.
//
// It reads a report whose groups and findings are complete. For each of the largest groups it chooses the band of the
// slow requests, divides the band's rows by cause and by the queue that a finding names (divideRows), adds them up by
// cause and then by site (sumCauses), moves running time without a CPU to another cause (splitOffCPU), and writes one
// sentence for each cause (Describe) and one for the group. A verdict is computed once, is a part of the report, and
// is what all views print.
package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Bounds of a verdict.
const (
	maxGroups = 3 // groups with a verdict

	maxNamedCauses, minCauseShare    = 3, 0.10 // causes that the first group's sentence names
	maxNamedFurther, minFurtherShare = 2, 0.20 // and those of other groups
	maxSites                         = 5       // sites of a cause
	maxNamedSites                    = 3       // sites that a sentence names
)

// Verdicts returns the verdicts on the groups with the most latency, in the report's order. If the first finding is
// not about the first group, its group comes first: the sentence is about the first change.
func Verdicts(r *report.Report) []report.Verdict { return BandVerdicts(r, "") }

// BandVerdicts returns verdicts as Verdicts does, but on the named band of each group that has one; of other groups, on the slow
// requests.
func BandVerdicts(r *report.Report, band report.BandName) []report.Verdict {
	verdicts := []report.Verdict{}
	var allNS int64
	for i := range r.Groups {
		if r.Groups[i].Role == report.RoleRequests {
			allNS += r.Groups[i].TotalNS
		}
	}
	unawaited := unawaitedJobs(r)
	fault := firstFault(r, unawaited)
	for _, g := range groupsInOrder(r, fault, unawaited) {
		if len(verdicts) == maxGroups {
			break
		}
		if len(verdicts) > 0 && float64(g.TotalNS) < threshold.MinorShare*float64(allNS) && !hasHungRequests(r, g) {
			continue
		}
		if isHung := hasHungRequests(r, g); g.Count > 0 || isHung {
			verdicts = append(verdicts, groupVerdict(r, g, band, fault, len(verdicts) == 0, isHung))
		}
	}
	return verdicts
}

// groupsInOrder returns the groups that are requests, in the report's order, but those for which clients wait before loops and jobs, unless
// they have hardly any time, and jobs for which no client's request waits last. The group of the first fault comes first, unless it is such
// a job or that finding is also about the first of the others. Without a fault, a handler whose requests all take far longer comes before
// short requests that name none, because they never wait.
func groupsInOrder(r *report.Report, first *report.Finding, unawaited map[string]bool) (list []*report.Group) {
	var work, jobs []*report.Group
	for i := range r.Groups {
		switch g := &r.Groups[i]; {
		case g.Role != report.RoleRequests:
		case unawaited[g.ID]:
			jobs = append(jobs, g)
		case unawaited != nil && g.Kind.IsWork():
			work = append(work, g)
		default:
			list = append(list, g)
		}
	}
	moveToFront := func(isFirst func(*report.Group) bool) {
		if i := slices.IndexFunc(list, isFirst); i > 0 {
			entry.MoveUp(list, i, 0)
		}
	}
	moveToFront(func(g *report.Group) bool { return first == nil && isFarLonger(g, list[0]) })
	list = append(list, work...)
	moveToFront(func(g *report.Group) bool { return first != nil && first.Group == g.ID && !isAbout(r, first, list[0]) })
	return append(list, jobs...)
}

// isFarLonger reports whether the requests of a named group take far longer than those of another one, whose are short and unnamed.
func isFarLonger(g, short *report.Group) bool {
	median, most := g.LatencyNS.P50, cmp.Or(short.LatencyNS.P99, short.LatencyNS.Max)
	return g.Named && !short.Named && median != nil && most != nil && *median >= leastNoticeable &&
		*most < leastNoticeable && *median >= threshold.FarFactor**most
}

// Causes returns the causes of a band's time in the order in which the verdict lists them.
func Causes(r *report.Report, g *report.Group, b *report.Band) []report.VerdictCause {
	list, first := groupQueues(r, g)
	return demoteScatteredCPU(splitOffCPU(sumCauses(r, b, list, first), r, b))
}

// hasHungRequests reports whether a finding of medium or high severity says that open requests of a group hang.
func hasHungRequests(r *report.Report, g *report.Group) bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Code == report.RuleHung && f.Group == g.ID && f.Severity.IsMajor()
	})
}

// groupVerdict returns the verdict on the named band of a group, or on its slow requests if it has no such band. fault is the finding
// to act on first (firstFault). isFirst allows its sentence more causes; isHung says that open requests hang.
func groupVerdict(r *report.Report, g *report.Group, band report.BandName, fault *report.Finding, isFirst, isHung bool) report.Verdict {
	chosenBand, isOfMessages := g.Tail(), g.Backlog != nil
	if isOfMessages {
		chosenBand = handlingBand(g)
	}
	if named := g.Band(band); named != nil {
		chosenBand, isOfMessages = named, false
	}
	v := report.Verdict{Group: g.ID, Band: chosenBand.Band, Requests: chosenBand.Count, Causes: Causes(r, g, chosenBand), Open: openRequests(g, isHung)}
	for c := range entry.Each(v.Causes) {
		if g.Iterations != nil {
			c.EachNS = int64(c.Share * float64(g.Iterations.EachNS))
		}
		nameCause(c, r, g)
		for k := range c.Sites {
			if c.Service != "" {
				continue
			}
			_, calls := AfterLastAnswer(c.Sites[k].Via)
			c.Sites[k].In = answererNames(r, g, calls)
		}
	}
	v.Lead, v.Range = bandWords(g, chosenBand)
	if withoutHandler, all := r.CountWithoutHandler(); withoutHandler > 0 && g.Named && g.Kind.IsCall() {
		// These percentiles are not those of all requests.
		v.Range = fmt.Sprintf("%s, of %s of %s requests)", strings.TrimSuffix(v.Range, ")"), words.Number(int64(g.Count)), words.Number(int64(all)))
	}
	if isOfMessages {
		addBacklog(&v, g)
	} else if g.Saturated != nil {
		v.Range = strings.TrimSuffix(v.Range, ")") + " after a goroutine took each; how long it queued before is not in the trace)"
	}
	maxNamed, minShare := maxNamedCauses, minCauseShare
	if !isFirst {
		maxNamed, minShare = maxNamedFurther, minFurtherShare
	}
	texts := []string{}
	for c := range entry.Each(v.Causes) {
		c.Text = Join(Describe(c, siteColumns))
		c.InSentence = c.Cause != report.CauseOther && len(texts) < maxNamed && (c.Share >= minShare || len(texts) == 0)
		if c.InSentence {
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
	if ledByMachine := slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Code.OfMachine() && f.Ignored == "" && tookMore(&f, fault, []report.Verdict{v})
	}); !ledByMachine { // else the fault is not the first change
		v.Remark = cmp.Or(remarkOn(&v, fault), medianRemark(r, &v, fault))
	}
	if v.Remark != "" {
		v.Text += "; " + v.Remark
	}
	if v.Held = stopsText(r); v.Held != "" {
		v.Text += "; " + v.Held
	}
	if v.Open != nil && v.Open.Late {
		v.Text += "; " + v.Open.Text
	}
	return v
}

// openRequests describes the requests of a group that are open at the end of the trace; nil if there are none. isHung says that a
// finding reports that they hang.
func openRequests(g *report.Group, isHung bool) *report.VerdictOpen {
	if g.Open.Count == 0 {
		return nil
	}
	o := &report.VerdictOpen{Count: g.Open.Count, OldestNS: g.Open.OldestNS, Site: g.Open.Site, Late: isHung}
	o.Text = names.CountRequests(g, g.Open.Count) + " still running at the end of the trace, the oldest for " + words.Duration(g.Open.OldestNS)
	if place := names.SiteText(g.Open.Site, siteColumns); place != "" {
		o.Text += " in " + place
		if lead, fn, pos := names.CallerParts(g.Open.Site, siteColumns); fn+pos != "" {
			o.Text += ", " + lead + strings.TrimSpace(fn+" "+pos)
		}
	}
	return o
}

// nameCause replaces the words of a cause where more is known: what stopped the whole process, why idle Ps did not help, that handlers
// of unknown name are included, or which peer the requests wait for.
func nameCause(cause *report.VerdictCause, r *report.Report, g *report.Group) {
	if s := r.Runtime.Stops; cause.Cause == report.CauseThrottle && s != nil && s.State != "" && !r.Runtime.Throttle.Verdict.HeldBack() {
		cause.Words = "stopped with the whole process"
	}
	if cause.Cause == report.CauseSchedWake && isMachineShared(r) {
		cause.Words = "ready to run, but its thread was woken late (other processes use the CPUs)"
	}
	if cause.Cause == report.CauseSchedWake && slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Code == report.RuleTooManyPs }) {
		cause.Words = "ready to run, but without a CPU (GOMAXPROCS is more than the CPUs)"
	}
	if len(cause.Sites) > 0 && cause.Cause == report.CauseCPU && !g.Named && g.Kind.IsCall() && cause.Sites[0].Site != nil && cause.Sites[0].Site.Does != "" {
		cause.Words += " (handlers included)" // a run without an event in between ends there
	}
	if cause.Service != "" || cause.WayTo != "" || g.Peer == nil || cause.Cause != report.CauseNetwork || cause.Kind != "outbound" || cause.Queue != nil {
		return
	}
	peerNames := names.PeerNames(g.Peer)
	switch {
	case g.Peer.Followed():
		cause.Words = "on the way to this process's own " + peerNames + " and back, over the network"
	case g.Peer.Recording != "": // the remaining time may be for another peer
	case g.Peer.Confidence < 0.8:
		cause.Words = "waiting for a peer on the network, perhaps this process's own " + peerNames
	default:
		cause.Words = "waiting over the network for this process's own " + peerNames
	}
}

// answererNames follows so many in-process calls from group g, and returns the names of the groups that answer the last one; ""
// if calls is 0.
func answererNames(r *report.Report, g *report.Group, calls int) (peerNames string) {
	for ; calls > 0 && g != nil && g.Peer.Followed(); calls-- {
		peerNames = names.PeerNames(g.Peer)
		g = r.Group(g.Peer.Group)
	}
	return peerNames
}

// stopsText describes for how long the process did not run and how many requests that concerned; "" unless a finding of medium or
// high severity reports it.
func stopsText(r *report.Report) string {
	s := r.Runtime.Stops
	if s == nil || !slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Code == report.RuleStopped && f.Severity.IsMajor() }) {
		return ""
	}
	text := "the process did not run for " + words.Duration(s.TotalNS) + " in " + words.Count(s.Count, "interval", "intervals")
	if s.State == "" {
		text = "perhaps " + text
	}
	return text + ": " + words.Count(s.After, "request", "requests") + " that arrived in that time waited before latency begins, " + words.Number(int64(s.During)) + " were in progress"
}

// siteColumns is the maximum width of a site in text without line limits.
const siteColumns = 160

// bandWords returns the phrases for the requests of a band ("The slowest 1% of") and for their latencies.
func bandWords(g *report.Group, band *report.Band) (lead, latency string) {
	switch {
	case g.Kind == report.KindRun && band.Count == 1:
		return "The run of", runLength(g)
	case band.Band == report.BandOutliers && band.Count == 1:
		lead = "One far slower " + names.Request(g) + " of"
	case band.Band == report.BandOutliers:
		lead = words.Number(int64(band.Count)) + " far slower " + names.Requests(g) + " of"
	case band.Count == 1 && band.Band == report.Band99:
		lead = "The slowest " + names.Request(g) + " of"
	case band.Count == 1:
		lead = "One " + names.Request(g) + " of"
	case band.Band == report.Band99 && band.Count*20 > g.Count:
		lead = "The slowest " + names.Requests(g) + " of" // with equal latencies, p99 and above can be more than 1%
	default:
		lead = BandText(g, band.Band) + " of"
	}
	return lead, LatencyRange(g, band)
}

// SpentText returns the verb before a verdict's causes, whose times are means over requests.
func SpentText(v *report.Verdict, g *report.Group) string {
	if g.Kind == report.KindRun || v.Requests == 1 {
		return "spent"
	}
	return "spent on average"
}

// runLength returns how long a run took, and its iterations if their number is known, in parentheses.
func runLength(g *report.Group) string {
	text := words.Duration(g.TotalNS)
	if g.Iterations != nil {
		text += ", " + words.Count(g.Iterations.Count, "iteration", "iterations") + " of " + words.Duration(g.Iterations.EachNS)
	}
	return "(" + text + ")"
}

// BandText returns the phrase for the requests of a band, as the subject of a sentence.
func BandText(g *report.Group, band report.BandName) string {
	noun := names.Requests(g)
	switch band {
	case report.Band99:
		return "The slowest 1%"
	case report.Band9099:
		return "From p90 to p99, " + noun
	case report.BandOutliers:
		return "Far slower " + noun
	case report.Band5090:
		return "From p50 to p90, " + noun
	}
	return strings.ToUpper(noun[:1]) + noun[1:]
}

// LatencyRange returns the latencies of a band's requests, in parentheses. A band between percentiles consists of whole buckets
// of a histogram, so its bounds may be up to a bucket beyond the percentiles: the text has the percentiles themselves.
func LatencyRange(g *report.Group, band *report.Band) string {
	maxNS := band.ToNS
	if m := g.LatencyNS.Max; m != nil && *m < maxNS {
		maxNS = *m
	}
	minNS := band.FromNS
	switch l := &g.LatencyNS; {
	case band.Band == report.Band9099 && l.P90 != nil && l.P99 != nil:
		minNS, maxNS = *l.P90, *l.P99
	case band.Band == report.Band99 && l.P99 != nil:
		minNS = *l.P99
	}
	switch {
	case band.Band == report.BandOutliers && g.LatencyNS.P50 != nil:
		latencies := words.Duration(maxNS)
		if band.Count > 1 && words.Duration(minNS) != latencies {
			latencies = words.Duration(minNS) + " to " + latencies
		}
		return "(" + latencies + "; median of all " + words.Duration(*g.LatencyNS.P50) + ")"
	case band.Count == 1 && band.Band == report.Band99, minNS >= maxNS && maxNS > 0:
		return "(" + words.Duration(maxNS) + ")"
	case (minNS == 0 || band.Band == report.BandAll) && g.LatencyNS.P50 != nil:
		meanText := ""
		if ns := band.TotalNS() / int64(max(band.Count, 1)); band.Band == report.BandAll && ns > threshold.FarFactor**g.LatencyNS.P50 {
			meanText = ", mean " + words.Duration(ns)
		}
		slow := "max " + words.Duration(maxNS)
		if band.Band == report.BandAll && g.LatencyNS.P99 != nil {
			slow = "p99 " + words.Duration(*g.LatencyNS.P99) // as predictions
		}
		return "(p50 " + words.Duration(*g.LatencyNS.P50) + meanText + ", " + slow + ")"
	case minNS == 0:
		return "(up to " + words.Duration(maxNS) + ")"
	}
	return "(" + words.Duration(minNS) + " to " + words.Duration(maxNS) + ")"
}
