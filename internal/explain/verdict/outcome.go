package verdict

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// An Outcome is the conclusion of a report in one sentence: a change, a peer to ask, or that the service is well.
type Outcome struct {
	State State `json:"state"`
	// Result is the state as a heading of a few words.
	Result string `json:"result"`
	// Text gives the reason: in StateChange the latency of the requests and its largest cause, otherwise the examined requests.
	Text string `json:"text"`
	// Rules says how many rules found nothing, and how many could not judge; "" in StateChange.
	Rules string `json:"rules,omitempty"`
	// Heading is the heading of the findings.
	Heading string `json:"heading"`
	// Doubt is why the result is uncertain, in a clause; "" if it is not.
	Doubt string `json:"doubt,omitempty"`
	// Command is the command that records the missing data; "" if none is missing.
	Command string `json:"command,omitempty"`
	// Findings are the ids of the findings that are shown in full, the first to act on first.
	Findings []string `json:"findings,omitempty"`
	// Also is the id of the finding that took less of the requests' time, if other processes and a fault of the service compete.
	Also string `json:"also,omitempty"`
}

// A State is a kind of Outcome.
type State string

const (
	StateChange  State = "change"  // a finding of medium or high severity
	StatePeer    State = "peer"    // most of the time is another party's: a peer or the client
	StateMinor   State = "minor"   // a finding of low severity is about the largest cause
	StateHealthy State = "healthy" // no finding is about the largest cause
	StateUnclear State = "unclear" // the recording lacks the data that would explain the largest cause
)

// HasFault reports whether a finding is a reason to change the service. Otherwise no request is late.
func (s State) HasFault() bool { return s == StateChange || s == StateMinor }

// NewOutcome returns the outcome of a report with the given verdicts. It is nil if the report has no requests, or is of an earlier
// version, which does not say what its rules judged.
func NewOutcome(r *report.Report, verdicts []report.Verdict) *Outcome {
	if r.Judged == nil || len(r.Groups) == 0 {
		return nil
	}
	weighty, _ := SplitFindings(r, verdicts)
	o := &Outcome{State: StateHealthy, Result: "nothing to change", Heading: "What to change"}
	defer func() {
		switch {
		case o.State == StateUnclear:
			o.Heading = "What to do next"
		case o.State == StatePeer, len(weighty) > 0 && IsOfPeer(weighty[0]):
			o.Heading = "Whom to ask"
		}
	}()
	for i, f := range weighty {
		if o.Findings = append(o.Findings, f.ID); o.Also == "" && i > 0 && f.Code.OfMachine() != weighty[0].Code.OfMachine() {
			o.Also = f.ID
		}
	}
	isDoubtful := len(weighty) > 0 && weighty[0].Doubt != "" && weighty[0].Confidence < threshold.HalfShare
	if !isDoubtful && slices.ContainsFunc(weighty, func(f *report.Finding) bool { return f.Severity.IsMajor() }) {
		first := weighty[0]
		if o.State, o.Result = StateChange, "change this"; first.Code.OfMachine() {
			o.Result = "the machine is busy"
		}
		if o.Text = faultText(r, verdicts, first); unawaitedJobs(r)[first.Group] {
			o.Text = "the job " + o.Text
		}
		if IsOfPeer(first) {
			o.Result = "mostly a peer's time"
		}
		return o
	}
	if !slices.ContainsFunc(r.Groups, func(g report.Group) bool { return g.Count > 0 }) {
		return &Outcome{State: StateUnclear, Result: "nothing to judge", Text: "no request ended in the trace", Rules: rulesText(r.Judged, true), Command: r.Judged.Record}
	}
	var largest *report.VerdictCause // if it is most of the time
	if len(verdicts) > 0 && len(verdicts[0].Causes) > 0 && verdicts[0].Causes[0].Share >= 0.5 {
		largest = &verdicts[0].Causes[0]
	}
	intended := Intended(r, verdicts)
	isNetwork := largest != nil && largest.Cause == report.CauseNetwork && intended == nil
	if len(weighty) > 0 && (weighty[0].InService || weighty[0].Code != report.RuleSlowPeer && weighty[0].Code != report.RuleSlowClient) {
		o.State, o.Result = StateMinor, "nothing urgent"
	} else if len(weighty) > 0 || isNetwork {
		o.State, o.Result = StatePeer, "nothing to change here"
		if intended == nil && len(weighty) > 0 && weighty[0].Code == report.RuleSlowPeer || isNetwork && largest.Kind == "outbound" {
			o.Result = "the time is a peer's, nothing seen here explains it" // nor is it known to be the peer's fault
		}
	}
	if isDoubtful {
		o.State, o.Result, o.Doubt = StateUnclear, "uncertain", weighty[0].Doubt
		if weighty[0].DoubtedBy.OfMachine() {
			o.Result = "probably the peer"
		}
	}
	o.Text = examinedText(r)
	switch {
	case o.State != StateMinor && isNetwork:
		o.Text += ", " + words.Percent(largest.Share) + " " + shortCause(largest)
	case len(weighty) > 0 && weighty[0].Code == report.RuleSlowPeer && weighty[0].Share >= 0.5:
		o.Text += ", mostly a peer's answer"
	case intended != nil:
		o.Text += ", as intended: " + ShortTitle(intended.Title)
	case largest == nil || o.State == StateMinor:
	case o.State == StatePeer:
		o.Text += ", " + words.Percent(largest.Share) + " " + shortCause(largest)
	case largest.Cause != report.CauseCPU:
		if largest.EachNS >= leastNoticeable {
			o.Result = "nothing to change, if this is intended"
			o.Text += ", " + words.Percent(largest.Share) + " " + shortCause(largest) + "; otherwise shorten it there"
		}
	case len(largest.Sites) > 0 && len(largest.Sites[0].Via) > 0 && largest.Sites[0].Via[0].Wait == report.WaitLock && largest.Sites[0].Via[0].Site.OwnLine().Func != largest.Sites[0].Site.Func:
		// The requests themselves hardly compute.
		lock, work := largest.Sites[0].Via[0].Site.OwnLine(), largest.Sites[0].Site
		o.Result = "nothing urgent"
		o.Text += fmt.Sprintf("; %d requests wait %s for a lock at %s (%s) while its holder computes in %s", verdicts[0].Requests, words.Duration(largest.EachNS), names.SiteFunc(lock, siteColumns), names.Position(lock), names.SiteFunc(work, siteColumns))
	default:
		work := ""
		if g := r.Group(verdicts[0].Group); len(largest.Sites) > 0 && largest.Sites[0].Share >= 0.5 && g != nil && g.Named {
			work = " in " + names.SiteFunc(largest.Sites[0].Site, siteColumns)
		}
		blind := slices.IndexFunc(r.Judged.Blind, func(b report.Blind) bool { return b.Reason == report.BlindCPUSamples })
		if largest.EachNS >= leastNoticeable && blind >= 0 {
			o.State, o.Result = StateUnclear, "cannot tell which work"
			o.Command = r.Judged.Blind[blind].Record
			o.Text += ", " + words.Percent(largest.Share) + " computing" + work + "; on what is unknown (" + r.Judged.Blind[blind].Text + ")"
			break
		}
		o.Text += ", mostly computing: only less work" + work + " makes them faster"
	}
	o.Rules = rulesText(r.Judged, len(weighty) == 0)
	return o
}

// IsOfPeer reports whether a finding is about the time of a peer's answers: whatever the service changes, each takes as long.
func IsOfPeer(f *report.Finding) bool {
	return f.Code == report.RuleSlowPeer && !f.InService && f.CallsAtOnce == 0 && !slices.ContainsFunc(f.Changes, func(c report.Change) bool { return c.Kind != report.ChangeTime })
}

// leastNoticeable is the time of a cause in a request, in ns, from which it deserves a word though no rule knows a change.
const leastNoticeable = 1_000_000

// faultText returns the latency of a finding's requests, the share of the slow ones' time that the finding is about, and its title. The
// verdict's words for that time may be those of another cause: each handshake waits for a peer, but the fault is that connections are not
// kept.
func faultText(r *report.Report, verdicts []report.Verdict, f *report.Finding) string {
	i := slices.IndexFunc(verdicts, func(v report.Verdict) bool { return v.Group == f.Group && len(v.Causes) > 0 })
	if i < 0 && len(verdicts) > 0 && r.Group(f.Group) == nil && len(verdicts[0].Causes) > 0 {
		i = 0 // a finding about the whole process
	}
	g := r.Group(f.Group)
	if i >= 0 {
		g = r.Group(verdicts[i].Group)
	}
	if g == nil {
		return ShortTitle(f.Title)
	}
	text := names.GroupName(g, siteColumns)
	switch l := g.SenderLatency(); {
	case l.P99 != nil:
		text += ", p99 " + words.Duration(*l.P99)
	case l.Max != nil:
		text += ", max " + words.Duration(*l.Max)
	}
	if f.Code.OfMachine() {
		return text + ": " + words.Percent(lossShare(f)) + " without a CPU, because other processes had it"
	}
	if i >= 0 {
		if share := shareOfFault(verdicts[i].Causes, f); share >= threshold.MinorShare {
			return text + ": " + words.Percent(share) + " because " + ShortTitle(f.Title)
		}
	}
	return text + ": " + ShortTitle(f.Title)
}

// shortCause returns a cause in words and the line of the service at which most of its time passes, with its share if that is a part
// of the cause's.
func shortCause(c *report.VerdictCause) string {
	line := causeLine(c)
	position := names.Position(line)
	if position == "" {
		return c.Words
	}
	at := " at " + names.SiteFunc(line, siteColumns) + " (" + position + ")"
	if c.Queue == nil && c.Sites[0].Share < 0.9*c.Share && len(c.Sites) > 1 {
		return c.Words + ", " + words.Percent(c.Sites[0].Share) + at
	}
	return c.Words + at
}

// examinedText returns how many requests were examined, and their latency: those of the server that handled most of them, else
// those of all groups.
func examinedText(r *report.Report) string {
	requests, latency, protocol, all := 0, report.Latency{}, "", 0
	for i := range r.Groups {
		all += r.Groups[i].Count
	}
	for i := range r.Servers {
		if s := &r.Servers[i]; s.Count > requests && 2*s.Count >= all { // else most of the work is elsewhere
			if requests, latency = s.Count, s.LatencyNS; s.Count < all {
				protocol = s.Kind.Protocol() + " "
			}
		}
	}
	groups, bound := "", ""
	if requests == 0 { // no server: of each group
		for i := range r.Groups {
			g := &r.Groups[i]
			p99 := g.SenderLatency().P99
			if len(r.Groups) > 1 { // the bound of several is the maximum of a group without a p99
				p99 = cmp.Or(p99, g.SenderLatency().Max)
			}
			if p99 != nil && (latency.P99 == nil || *p99 > *latency.P99) {
				latency.P99 = p99
			}
			if ns := g.SenderLatency().Max; ns != nil && (latency.Max == nil || *ns > *latency.Max) {
				latency.Max = ns
			}
		}
		if n := len(r.Groups); n > 1 {
			groups, bound = fmt.Sprintf(" of %d groups", n), "at most "
		}
	}
	text := names.CountAll(r.Groups) + groups
	if protocol != "" {
		text = words.Count(requests, protocol+"request", protocol+"requests")
	}
	switch runs := RunCount(r); {
	case runs > 0:
		text = words.Count(runs, "run", "runs") + " of " + words.Duration(r.Groups[0].TotalNS)
	case latency.P99 != nil:
		text += ", p99 " + bound + words.Duration(*latency.P99)
	case latency.Max != nil:
		text += ", max " + words.Duration(*latency.Max)
	}
	return text
}

// RunCount returns how many runs of programs and benchmarks a report has.
func RunCount(r *report.Report) (n int) {
	for i := range r.Groups {
		if r.Groups[i].Kind == report.KindRun {
			n += r.Groups[i].Count
		}
	}
	return n
}

// rulesText returns how many rules found nothing and how many could not judge; withFound adds those with findings that are no faults.
func rulesText(judged *report.Judged, withFound bool) string {
	text := fmt.Sprintf("%d of %s clear", len(judged.Clear), words.Count(judged.Rules, "rule", "rules"))
	if n := len(judged.Found); n > 0 && withFound {
		text += fmt.Sprintf(", %d with lesser facts", n)
	}
	if len(judged.Blind) > 0 {
		blind, reasons := 0, make([]string, len(judged.Blind))
		for i := range judged.Blind {
			blind += len(judged.Blind[i].Codes)
			reasons[i] = termtext.Head(judged.Blind[i].Text, 60)
		}
		text += fmt.Sprintf(", %d not judged (%s)", blind, strings.Join(reasons, ", "))
	}
	return text
}

// Intended returns the finding that says of the first cause of the first verdict that it is no fault, such as a stream's pace; nil if
// there is none.
func Intended(r *report.Report, verdicts []report.Verdict) *report.Finding {
	if len(verdicts) == 0 || len(verdicts[0].Causes) == 0 {
		return nil
	}
	v := &verdicts[0]
	all := r.Findings[:min(len(r.Findings), MaxExamined)]
	i := slices.IndexFunc(all, func(f report.Finding) bool {
		isPurpose := f.Code == report.RuleComputes && f.Site != nil && knowledge.Has(f.Site.Func, knowledge.DeliberateCost)
		return f.Severity == report.SeverityInfo && f.Group == v.Group && isAboutCause(&f, &v.Causes[0]) && f.Share >= 0.5 && len(f.Changes) == 0 &&
			(f.Code == report.RuleSlowPeer || f.Code == report.RuleSleep || isPurpose) && f.Ignored == ""
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// Limits on findings.
const (
	MaxExamined = 200 // findings that are looked at: no report of ours has as many
	maxFaults   = 4   // major findings of the service that are shown in full
)

// SplitFindings returns the findings that are shown in full, which are major ones or one that matches the first verdict, and the others. It
// leaves out ignored ones and duplicates. Both are in the report's order, but of the first, those about jobs for which no request waits
// come after the others. One of the machine, which has no remedy in the service, comes first if other processes took more of the slow
// requests' time than the first fault did, else last.
func SplitFindings(r *report.Report, verdicts []report.Verdict) (weighty, lesser []*report.Finding) {
	all := r.Findings[:min(len(r.Findings), MaxExamined)]
	faults := 0
	for i := range all {
		switch f := &all[i]; {
		case f.Ignored != "" || hasEarlierDuplicate(all, i): // the first one names the groups of its duplicates
		case f.Severity.IsMajor() && (faults < maxFaults || f.Code.OfMachine()):
			if weighty = append(weighty, f); !f.Code.OfMachine() {
				faults++
			}
		default:
			lesser = append(lesser, f)
		}
	}
	if len(weighty) == 0 || len(weighty) == 1 && weighty[0].Code.OfMachine() {
		if i := slices.IndexFunc(lesser, func(f *report.Finding) bool { return matchesVerdict(f, verdicts) }); i >= 0 {
			weighty = slices.Insert(weighty, 0, lesser[i])
			lesser = slices.Delete(lesser, i, i+1)
		}
	}
	unawaited := unawaitedJobs(r)
	rank := func(f *report.Finding) int {
		switch {
		case f.Code.OfMachine() && tookMore(f, firstOfService(weighty), verdicts):
			return -1
		case f.Code.OfMachine():
			return 2
		case unawaited[f.Group]:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(weighty, func(a, b *report.Finding) int { return cmp.Compare(rank(a), rank(b)) })
	return weighty, lesser
}

// matchesVerdict reports whether a low finding is about the first cause of the first verdict, or the line of most of its time. It is shown
// in full if there is no major one, and precedes one about other processes: the service's authors can change this cause.
func matchesVerdict(f *report.Finding, verdicts []report.Verdict) bool {
	if f.Severity != report.SeverityLow || len(verdicts) == 0 || verdicts[0].Group != f.Group || len(verdicts[0].Causes) == 0 {
		return false
	}
	c := &verdicts[0].Causes[0]
	return isAboutCause(f, c) || c.AheadWork != nil && f.Queue != nil && c.AheadWork.Cause == f.Cause
}

// isAboutCause reports whether a finding is about a cause of a verdict, or the line at which requests spend most of its time.
func isAboutCause(f *report.Finding, c *report.VerdictCause) bool {
	isThere := len(c.Sites) > 0 && c.Sites[0].Share >= threshold.HalfShare && f.Site != nil &&
		(f.Site.Matches(c.Sites[0].Site) || len(c.Sites[0].Via) > 0 && f.Site.Matches(c.Sites[0].Via[0].Site))
	return isThere || c.Cause == f.Cause
}

// hasEarlierDuplicate reports whether a finding before the i-th is the same fault in another group.
func hasEarlierDuplicate(all []report.Finding, i int) bool {
	return slices.ContainsFunc(all[:i], func(o report.Finding) bool { return o.Ignored == "" && IsSameFault(&all[i], &o) })
}

// IsSameFault reports whether two findings are one fault, found in two groups: at the same place, or with the same change. Connections of one
// pool stay open by the same option, whichever lines open them.
func IsSameFault(a, b *report.Finding) bool {
	isReuse := func(c report.Change) bool { return c.Kind == report.ChangeReuse }
	return a.Code == b.Code && (sameTitle(a.Title, b.Title) && a.Site.Equal(b.Site) || len(a.Changes) > 0 && slices.Equal(a.Changes, b.Changes) ||
		a.Fix == b.Fix && slices.ContainsFunc(a.Changes, isReuse) && slices.ContainsFunc(b.Changes, isReuse))
}

// sameTitle reports whether two titles are equal apart from the noun for the requests of their groups.
func sameTitle(a, b string) bool {
	withoutNoun := func(title string) string {
		noun, predicate, _ := strings.Cut(title, " ")
		if slices.ContainsFunc(report.Kinds(), func(k report.Kind) bool { return k.RequestNoun()+"s" == noun }) {
			return predicate
		}
		return title
	}
	return withoutNoun(a) == withoutNoun(b)
}

var calleePosition = regexp.MustCompile(` \([^ ()]+:[0-9]+\), (called from|reached from|awaited at) `)

// ShortTitle removes the position of a dependency from a finding's title that has more than 120 columns and names its caller. It
// keeps the service's own line, which the reader can change.
func ShortTitle(title string) string {
	if n := termtext.Width(title); n <= 120 || n > 2000 {
		return title
	}
	return calleePosition.ReplaceAllString(title, ", $1 ")
}
