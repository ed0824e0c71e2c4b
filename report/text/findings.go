package text

import (
	"regexp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Limits on what is said of findings.
const (
	maxEvidence = 3
	maxFolded   = 4
	maxLooked   = 200 // findings that are looked at: no report of ours has as many
	maxTitle    = 400 // columns
)

// findings says what to change: findings of weight in full, the others in a line.
func (p *page) findings() {
	weighty, others := p.byWeight()
	head := span{bold, "change"}
	for _, f := range weighty {
		p.line()
		p.finding(head, f)
		head = span{}
	}
	if len(others) > 0 {
		p.line()
		p.folded(othersHead(weighty), others)
	}
}

// othersHead is the heading of findings of less weight: with none of weight, there is nothing that must change.
func othersHead(weighty []*report.Finding) span {
	if len(weighty) > 0 {
		return span{dim, "also"}
	}
	return span{bold, "found"}
}

// byWeight returns the findings of weight, as many as are said in full, and the others.
func (p *page) byWeight() (weighty, others []*report.Finding) {
	all := p.r.Findings[:min(len(p.r.Findings), maxLooked)]
	for i := range all {
		switch f := &all[i]; {
		case f.Ignored != "" || p.sameBefore(i) >= 0: // said with the first one
		case f.Severity.IsMajor() && len(weighty) < maxFindings:
			weighty = append(weighty, f)
		default:
			others = append(others, f)
		}
	}
	if len(weighty) == 1 && weighty[0].Code.OfMachine() {
		if i := slices.IndexFunc(others, p.saidFirst); i >= 0 {
			weighty = []*report.Finding{others[i], weighty[0]}
			others = slices.Delete(others, i, i+1)
		}
	}
	return weighty, others
}

// saidFirst reports whether a low finding is about the cause in the first sentence: other processes are no fault of the service, but this is
// something that its authors can change.
func (p *page) saidFirst(f *report.Finding) bool {
	v := p.verdicts()
	return f.Severity == report.SeverityLow && len(v) > 0 && v[0].Group == f.Group && len(v[0].Causes) > 0 && v[0].Causes[0].Cause == f.Cause
}

// finding says in a few lines what is wrong, the evidence, what to do, and what that would win.
func (p *page) finding(head span, f *report.Finding) {
	st := names.SeverityStyle(f.Severity)
	title := []span{{st, "[" + termtext.Head(f.Severity, 10) + "]"}, {plain, " "}, {bold, p.sentence(f.Title)}}
	if len(p.r.Groups) > 1 {
		title = append(title, p.groupsOf(f)...)
	}
	p.paragraph(head, indent, title...)
	hang := indent + 4
	mark := func(s string) span { return span{dim, strings.Repeat(" ", indent) + s} }
	if at := place(f.Site, p.width-hang); at != nil && !strings.Contains(f.Title, names.Position(f.Site)) {
		p.paragraph(mark("at"), hang, append(at, after(", ", calledFrom(f.Site, p.width-hang))...)...)
	} else if at := calledFrom(f.Site, p.width-hang); at != nil && !strings.Contains(f.Title, names.Position(f.Site.OwnLine())) {
		p.paragraph(mark("at"), hang, at...)
	}
	if spans := p.evidence(f.Evidence); len(spans) > 0 {
		p.paragraph(mark(""), hang, spans...)
	}
	if f.Fix != "" {
		p.paragraph(mark("do"), hang, span{plain, p.sentence(f.Fix)})
	}
	p.paragraph(mark(""), hang, p.gain(f)...)
	for i := range f.AskedBy[:min(len(f.AskedBy), maxGroups)] {
		p.paragraph(mark(""), hang, p.askedBy(&f.AskedBy[i])...)
	}
	if f.Predicted != nil && f.Predicted.Check != nil {
		p.paragraph(mark(""), hang, checked(f.Predicted.Check)...)
	}
}

// sentence makes a rule's text fit for a paragraph.
func (p *page) sentence(s string) string { return breakable(termtext.Head(s, maxTitle), p.width/2) }

// sameBefore returns the first finding that says the same as the i-th, of another group, or -1.
func (p *page) sameBefore(i int) int {
	f := &p.r.Findings[i]
	return slices.IndexFunc(p.r.Findings[:i], func(o report.Finding) bool { return o.Ignored == "" && same(f, &o) })
}

// same reports whether two findings are one fault, seen in two groups.
func same(a, b *report.Finding) bool {
	return a.Code == b.Code && a.Title == b.Title && a.Site.Equal(b.Site)
}

// maxGroups is how many groups are named that one fault was found in.
const maxGroups = 2

// groupsOf names the groups that a fault was found in.
func (p *page) groupsOf(f *report.Finding) []span {
	var spans []span
	n := 0
	for i := range p.r.Findings[:min(len(p.r.Findings), maxLooked)] {
		o := &p.r.Findings[i]
		if o.Ignored != "" || !same(f, o) {
			continue
		}
		g := p.r.Group(o.Group)
		if g == nil {
			continue
		}
		if n++; n > maxGroups {
			continue
		}
		lead := ", in "
		if n > 1 {
			lead = ", "
		}
		spans = append(spans, span{dim, lead}, span{dim, names.GroupName(g, p.width-indent-6)})
	}
	if n > maxGroups {
		spans = append(spans, span{dim, " and " + words.Count(n-maxGroups, "more group", "more groups")})
	}
	return spans
}

// evidence writes the first facts behind a finding.
func (p *page) evidence(list []report.Evidence) []span {
	var spans []span
	for i, e := range list[:min(len(list), maxEvidence)] {
		if i > 0 {
			spans = append(spans, span{plain, "; "})
		}
		spans = append(spans, span{plain, p.sentence(e.Text) + ": "}, span{bold, names.Value(e)})
	}
	return spans
}

// gain says what a change would win, how sure that is, and where to read more.
func (p *page) gain(f *report.Finding) []span {
	spans := p.wins(f, false)
	if d := f.Decided; d != nil {
		spans = append(spans, span{plain, "severity " + termtext.Head(f.Severity, 10) + ": " + words.PercentOr0(d.Share) + " and " + words.Duration(d.NS) + decidedBy(d) + " (limits: " + words.PercentOr0(d.LeastShare) + ", " + words.Rough(d.LeastNS) + "); "})
	}
	return append(spans, span{dim, "whylate rules " + termtext.Head(f.Code, 12)})
}

// wins says what a change is predicted to win, and how sure that is; short, without the ranges of estimates.
func (p *page) wins(f *report.Finding, short bool) []span {
	var spans []span
	say := estimate
	if short {
		say = func(e report.Estimate) string {
			if e.Low == e.High {
				return words.Duration(e.Est)
			}
			return words.Rough(e.Est)
		}
	}
	if pr := f.Predicted; pr != nil {
		if pr.Change != "" {
			says := assumed(pr.Change)
			if pr.ChangeText != "" {
				says = termtext.Head(pr.ChangeText, 80)
			}
			if short {
				says = strings.Replace(says, "that time were ", "", 1)
			}
			if g := p.r.Group(f.Group); g != nil && g.Named && g.Kind.IsCall() {
				if none, all := p.r.CountWithoutHandler(); none > 0 { // fast ones of this handler may be among the others
					says += ", for " + words.Number(int64(g.Count)) + " of all " + words.Number(int64(all))
				}
			}
			spans = append(spans, span{plain, p.sentence(says) + ": "})
		}
		var p50, p99 *int64
		if g := p.r.Group(f.Group); g != nil {
			p50, p99 = g.LatencyNS.P50, g.LatencyNS.P99
		}
		if p50 == nil && pr.MaxNS != nil {
			spans = append(spans, span{plain, "max "}, moved(pr.WasMaxNS, *pr.MaxNS, say), span{plain, "; "})
		} else if onlyMax(pr) {
			spans = append(spans, span{plain, "p50 and p99 stay, max " + from(pr.WasMaxNS)}, span{green, say(*pr.MaxNS)}, span{plain, "; "})
		} else {
			spans = append(spans, span{plain, "p50 "}, moved(p50, pr.P50NS, say), span{plain, ", p99 "}, moved(p99, pr.P99NS, say), span{plain, "; "})
		}
	} else if f.Share > 0 {
		spans = append(spans, span{plain, words.Percent(f.Share) + " of the requests' time; "})
	}
	return append(spans, span{plain, "confidence " + words.PercentOr0(f.Confidence) + "; "})
}

// askedBy says what those lose to a fault who ask for its group over the network, and would win.
func (p *page) askedBy(a *report.AskedBy) []span {
	name := a.Name
	var p50, p99 *int64
	if g := p.r.Group(a.Group); g != nil {
		name, p50, p99 = names.GroupName(g, p.width-indent-6), g.LatencyNS.P50, g.LatencyNS.P99
	}
	spans := []span{{plain, "requests of " + name + " wait for this over the network: " + words.Percent(a.Share) + " of their time, " + words.Duration(a.EachNS) + " of each"}}
	if pr := a.Predicted; pr != nil {
		spans = append(spans, span{plain, "; with the same change p50 " + from(p50)}, span{green, estimate(pr.P50NS)}, span{plain, ", p99 " + from(p99)}, span{green, estimate(pr.P99NS)})
	}
	return spans
}

// decidedBy says of which requests a severity's numbers are.
func decidedBy(d *report.Decided) string {
	switch d.Requests {
	case report.DecidedByAll:
		return " of each request"
	case report.DecidedBySlow:
		return " of each slow request"
	}
	return " of each request of the other slow band"
}

// onlyMax reports whether a change is for a few requests, with which no percentile moves.
func onlyMax(p *report.Predicted) bool {
	return p.MaxNS != nil && p.WasMaxNS != nil && p.WasP99NS != nil && p.MaxNS.Est < *p.WasMaxNS && float64(p.P99NS.Est) > 0.99*float64(*p.WasP99NS)
}

// assumed says in words what change a prediction is for. Those written as for --what-if are about what the finding describes
// already: its own site, or all the places where requests wait.
func assumed(change string) string {
	said := ""
	for part := range strings.SplitSeq(change, ", ") {
		at := strings.LastIndexByte(part, '=')
		if at < 0 || !strings.Contains(part[:at], "@") {
			return "with " + change
		}
		words := inWords(part[:at], part[at+1:])
		if said != "" && said != words {
			return "with " + change
		}
		said = words
	}
	return said
}

func inWords(what, to string) string {
	switch {
	case strings.HasPrefix(what, "queue@") && to == "gone":
		return "if no request queued"
	case strings.HasPrefix(what, "queue@") && to == "50%":
		return "if that wait were halved"
	case to == "50%":
		return "if that time were halved"
	case to == "0%" || to == "0s" || to == "0" || to == "gone":
		return "without it"
	case strings.HasSuffix(to, "%") && strings.Contains(what, " from "):
		return "if its part were halved" // of a line that others wait for as well: see finding.halfOf
	case strings.HasSuffix(to, "%"):
		return "if it fell to " + to
	default:
		return "with " + to + " for each"
	}
}

// moved says what a change makes of a latency: a percentile that is as it was stays.
func moved(was *int64, e report.Estimate, say func(report.Estimate) string) span {
	if was != nil && e.Low == e.High && float64(e.Est) > 0.99*float64(*was) && float64(e.Est) < 1.01*float64(*was) {
		return span{plain, "stays " + words.Duration(*was)}
	}
	return span{green, from(was) + say(e)}
}

// from writes what a latency was before a change.
func from(ns *int64) string {
	if ns == nil {
		return ""
	}
	return words.Duration(*ns) + " → "
}

// A folded title may be longTitle long. One that is longer than shortTitle is shortened: the JSON has it all.
const (
	longTitle  = 200
	shortTitle = 120
)

var called = regexp.MustCompile(` \([^ ()]+:[0-9]+\), (called|reached) from `)

// inShort leaves the line of a dependency out of a long title that names its caller, rather than cut the title somewhere: the
// service's own line is what its reader can change.
func inShort(title string) string {
	if termtext.Width(title) <= shortTitle || len(title) > 10*longTitle {
		return title
	}
	return called.ReplaceAllString(title, ", $1 from ")
}

// folded lists findings of less weight by their titles.
func (p *page) folded(head span, list []*report.Finding) {
	var spans []span
	severity := report.Severity("")
	for i, f := range list[:min(len(list), maxFolded)] {
		if i > 0 {
			spans = append(spans, span{plain, "; "})
		}
		if f.Severity != severity {
			severity = f.Severity
			spans = append(spans, span{dim, termtext.Head(severity, 10) + ": "})
		}
		spans = append(spans, span{plain, breakable(termtext.Head(inShort(f.Title), longTitle), p.width/2) + " "}, span{dim, "(" + termtext.Head(f.Code, 12) + ")"})
	}
	if n := len(list) - maxFolded; n > 0 {
		spans = append(spans, span{dim, "; and " + words.Number(int64(n)) + " more in the JSON"})
	}
	p.paragraph(head, indent, spans...)
}
