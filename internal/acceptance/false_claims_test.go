package acceptance_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// A class is the quality of an answer; each recording has one.
type class int

const (
	classRight            class = iota // every judged part of the first answer is right, and there is no confident false claim
	classHalf                          // no confident false claim; either the first sentence or the first finding is right
	classWrong                         // neither is right, but there is no confident false claim
	classConfidentlyWrong              // a finding of severity high or medium is false, or the first sentence is false and has no hedge word
	classCount
)

func (c class) String() string {
	return [...]string{"right", "half right", "**wrong**", "**confidently wrong**"}[c]
}

// classOf classifies an answer by four inputs: whether its first sentence and its first finding are right (nil if the truth
// has neither), whether all judged parts are right, and the confident false claims.
func classOf(sentence, first *bool, all bool, untrue []string) class {
	isTrue := func(b *bool) bool { return b != nil && *b }
	switch {
	case len(untrue) > 0:
		return classConfidentlyWrong
	case all:
		return classRight
	case isTrue(sentence) || isTrue(first):
		return classHalf
	}
	return classWrong
}

// hedgeWord matches a word by which a sentence shows that it is uncertain.
var hedgeWord = regexp.MustCompile(`\b(perhaps|maybe|at most|seems?|probably|likely|may|might)\b`)

// hedgedPart matches a part of a sentence that begins with a hedge word.
var hedgedPart = regexp.MustCompile(`\b(perhaps|maybe|probably|likely)\b[^,;:(]*`)

// unhedgedText returns a text without its hedged parts.
func unhedgedText(text string) string { return hedgedPart.ReplaceAllString(text, "") }

// A claim is a statement of a report without a hedge.
type claim struct {
	code  report.RuleCode // of a finding; "" for the first sentence
	cause report.CauseName
	site  *report.Site
	text  string // the whole sentence, or the finding's title, fix and predicted change
}

// key returns the text that truths match: "CODE site < line of the service" or "sentence CAUSE site < line". Files are without
// directories.
func (c *claim) key() string {
	key := string(c.code)
	if c.code == "" {
		key = "sentence " + string(c.cause)
	}
	if c.site != nil {
		key += " " + shortSite(siteText(c.site))
		if ownLine := ownText(c.site); ownLine != siteText(c.site) {
			key += " < " + shortSite(ownLine)
		}
	}
	return key
}

// firstSentence returns the claim of the first cause in a group's verdict, nil if there is none or the sentence has a hedge
// word.
func firstSentence(rep *report.Report, g *report.Group) *claim {
	if g == nil {
		return nil
	}
	for i := range rep.Verdict {
		v := &rep.Verdict[i]
		if v.Group != g.ID || len(v.Causes) == 0 {
			continue
		}
		c := &v.Causes[0]
		if !c.InSentence || hedgeWord.MatchString(c.Text) {
			return nil
		}
		out := claim{text: v.Text}
		out.cause, out.site = workOf(c)
		return &out
	}
	return nil
}

// majorClaims returns the claims of findings of severity high and medium. On a machine that was made busy for the recording,
// WL1009 is no claim about the service.
func majorClaims(rep *report.Report, busyMachine bool) (out []claim) {
	for i := range rep.Findings {
		f := &rep.Findings[i]
		if f.Ignored != "" || !f.Severity.IsMajor() || busyMachine && f.Code == report.RuleBusyMachine {
			continue
		}
		text := f.Title + "; " + f.Fix
		if f.Predicted != nil {
			text += "; " + f.Predicted.Change
		}
		out = append(out, claim{code: f.Code, cause: f.Cause, site: f.Site, text: text})
	}
	return out
}

// falseFieldClaims returns the confident claims of a report that contradict a field recording's truth.
func falseFieldClaims(rep *report.Report, f *testprog.FieldCase) (out []string) {
	tr := &f.Truth
	matches := func(re, text string) bool { return re == "" || regexp.MustCompile(re).MatchString(text) }
	isAllowed := func(c *claim) bool {
		return slices.ContainsFunc(tr.AllowedTexts, func(re string) bool { return regexp.MustCompile("^(?:" + re + ")").MatchString(c.key()) })
	}
	isAtTruth := func(c *claim) bool {
		if c.site == nil || tr.Site+tr.OwnSite+tr.Finding == "" {
			return true
		}
		return slices.ContainsFunc([]string{tr.Site, tr.OwnSite, tr.Finding}, func(re string) bool {
			return re != "" && (matches(re, siteText(c.site)) || matches(re, ownText(c.site)))
		})
	}
	for _, c := range majorClaims(rep, f.OtherLoad != "") {
		isRightCode := tr.Code != "" && matches("^("+tr.Code+")$", string(c.code))
		if !f.Healthy && tr.Code == "" && tr.Cause != "" { // the truth names no rule: then the cause decides
			isRightCode = matches("^("+tr.Cause+")$", string(c.cause))
		}
		if !(isRightCode && isAtTruth(&c)) && !isAllowed(&c) {
			out = append(out, c.key())
		}
	}
	if c := firstSentence(rep, fieldGroup(rep, tr.Group)); c != nil && tr.Cause != "" && !isAllowed(c) {
		if !matches("^("+tr.Cause+")$", string(c.cause)) || !isAtTruth(c) {
			out = append(out, c.key())
		}
	}
	out = append(out, impossiblePredictions(rep, tr)...)
	untrue, _ := judgeTopics(rep, fieldGroup(rep, tr.Group), "field/"+f.Name)
	out = append(out, untrue...)
	for _, v := range rep.Verdict {
		if v.Open != nil && v.Open.Late && f.Healthy {
			out = append(out, "late "+v.Open.Text)
		}
		if g := rep.Group(v.Group); tr.ForbiddenText != "" && g != nil && matches(tr.Group, g.Name) && matches(tr.ForbiddenText, unhedgedText(v.Text)) {
			out = append(out, "sentence: "+shortened(v.Text))
		}
	}
	if tr.ForbiddenText != "" {
		for _, c := range majorClaims(rep, false) {
			if matches(tr.ForbiddenText, unhedgedText(c.text)) {
				out = append(out, fmt.Sprintf("%s: %s", c.code, shortened(c.text)))
			}
		}
	}
	return out
}

// impossiblePredictions returns the predictions of major findings, for the group that the truth names, of a p50 that no change
// can reach.
func impossiblePredictions(rep *report.Report, tr *testprog.FieldTruth) (out []string) {
	g := fieldGroup(rep, tr.Group)
	if g == nil {
		return nil
	}
	check := func(f *report.Finding, group string, p *report.Predicted) {
		if group == g.ID && p != nil && p.P50NS.Est < int64(tr.MinP50) {
			out = append(out, fmt.Sprintf("%s promises a p50 of %v, and nothing below %v can be", f.Code, time.Duration(p.P50NS.Est), tr.MinP50))
		}
	}
	for i := range rep.Findings {
		f := &rep.Findings[i]
		if f.Ignored != "" || !f.Severity.IsMajor() {
			continue
		}
		check(f, f.Group, f.Predicted)
		for k := range f.AskedBy {
			check(f, f.AskedBy[k].Group, f.AskedBy[k].Predicted)
		}
	}
	return out
}

// reportWords returns the verdict and the findings with evidence and fix as one text.
func reportWords(rep *report.Report) string {
	var b strings.Builder
	for i := range rep.Verdict {
		b.WriteString(rep.Verdict[i].Text + "\n")
	}
	for i := range rep.Findings {
		f := &rep.Findings[i]
		b.WriteString(f.Title + "; " + f.Fix)
		for _, e := range f.Evidence {
			b.WriteString("; " + e.Text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// classOfField classifies an answer by the problems that judgeField found.
func classOfField(wrong map[string]string, untrue []string) class {
	allRight := func(keys ...string) *bool {
		judged, right := false, true
		for _, k := range keys {
			problem, ok := wrong[k]
			judged, right = judged || ok, right && problem == ""
		}
		if !judged {
			return nil
		}
		return &right
	}
	everyPart := allRight(fieldAnswerKeys...)
	return classOf(allRight("cause", "site", "own"), allRight("code", "finding", "only", "says", "topics", "loud"), everyPart == nil || *everyPart, untrue)
}

// falseServiceClaims returns the confident claims of a report that contradict the catalog's truth about a service of
// lab/truth.
func falseServiceClaims(rep *report.Report, o *outcome) (out []string) {
	tr, want := &o.Service.Truth, o.Service.Findings
	if want != nil {
		for _, c := range majorClaims(rep, false) {
			first := want.allowsFirst(string(c.code), rep)
			switch {
			case slices.Contains(want.AlsoAllowed, string(c.code)):
			case !first:
				out = append(out, c.key())
			case !slices.ContainsFunc(allowedSites(o), func(s truthSite) bool { return s.matches(c.site) }):
				out = append(out, c.key())
			}
		}
	}
	g := slowGroup(rep, o)
	untrue, _ := judgeTopics(rep, g, "truth/"+o.Service.Name)
	out = append(out, untrue...)
	c := firstSentence(rep, g)
	if c == nil || tr.Cause == "" {
		return out
	}
	right := func(cause report.CauseName, site *report.Site) bool {
		return slices.Contains(append([]string{tr.Cause}, tr.OrCauses...), string(cause)) &&
			slices.ContainsFunc(append([]truthSite{tr.Site}, tr.OrSites...), func(s truthSite) bool { return s.matches(site) })
	}
	rows := workRows(g.Tail())
	if !right(c.cause, c.site) && !(tr.Unmeasured && slices.ContainsFunc(rows[:min(3, len(rows))], func(r report.Cause) bool { return right(r.Cause, r.Site) })) {
		out = append(out, c.key())
	}
	return out
}

// allowedSites returns the sites that are right for a finding about a service.
func allowedSites(o *outcome) []truthSite {
	sites, tr := o.Service.Findings.Sites, &o.Service.Truth
	if len(sites) == 0 {
		sites = append([]truthSite{tr.Site}, tr.OrSites...)
	}
	if tr.Second != nil {
		sites = append(slices.Clone(sites), *tr.Second)
	}
	return sites
}

// classOfService classifies an answer by the results of judgeCauses and judgeFindings, and returns its false claims.
func classOfService(rep *report.Report, o *outcome) (class, []string) {
	j, f, untrue := judgeCauses(rep, o), judgeFindings(rep, o), falseServiceClaims(rep, o)
	_, missing := judgeTopics(rep, slowGroup(rep, o), "truth/"+o.Service.Name)
	sentence, first := j.wrong == nil && j.spoiled == nil, f.wrong == nil && f.spoiled == nil && len(missing) == 0
	if o.Service.Findings == nil {
		first = sentence
	}
	return classOf(&sentence, &first, sentence && first, untrue), untrue
}

// A tally counts answers by class: a row of the first table of docs/internals/accuracy.md.
type tally [classCount]int

// row returns the counts of a set of recordings as a row of the table.
func (t *tally) row(set string) string {
	all := 0
	for _, n := range t {
		all += n
	}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d |", set, all, t[classRight], t[classHalf], t[classWrong], t[classConfidentlyWrong])
}

// The rows of the first table of docs/internals/accuracy.md.
const (
	setCorpus   = "corpus"
	setServices = "services of `lab/truth`"
)

// checkRow compares the row of a set in docs/internals/accuracy.md with the counts, or writes it with -update.
func (t *tally) checkRow(tb testing.TB, set string) {
	tb.Helper()
	old, err := os.ReadFile(accuracyPage)
	if errors.Is(err, fs.ErrNotExist) {
		return // the tree has only the tool's module
	} else if err != nil {
		tb.Fatal(err)
	}
	lines := strings.Split(string(old), "\n")
	index := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "| "+set+" | ") })
	row := t.row(set)
	switch {
	case index < 0:
		tb.Errorf("%s has no row of %q", accuracyPage, set)
	case lines[index] == row:
	case *update:
		lines[index] = row
		if err := os.WriteFile(accuracyPage, []byte(strings.Join(lines, "\n")), 0o666); err != nil {
			tb.Error(err)
		}
	case testfull.IsEnabled() && !tb.Failed():
		tb.Errorf("%s says %s; counted: %s; run the test again with -update", accuracyPage, lines[index], row)
	}
}

// TestFalseClaims: falseFieldClaims returns the confident claims that contradict the truth and no others; classOf classifies
// by them.
func TestFalseClaims(t *testing.T) {
	site := func(fn string) *report.Site { return &report.Site{Func: fn, File: "/src/main.go", Line: 7} }
	fault := testprog.FieldCase{Truth: testprog.FieldTruth{Group: "order", MinP50: 5e6, Cause: "sleep", Site: `main\.save`, Code: "WL2002", AllowedTexts: []string{`WL2003 main\.pool`}, ForbiddenText: `own main\.other`}}
	healthy := testprog.FieldCase{Healthy: true, Truth: testprog.FieldTruth{Group: "order"}}
	reportOf := func(cause report.CauseName, fn, text string, findings ...report.Finding) *report.Report {
		return &report.Report{
			Groups:   []report.Group{{ID: "g", Name: "main.order"}},
			Verdict:  []report.Verdict{{Group: "g", Text: text, Causes: []report.VerdictCause{{Cause: cause, InSentence: true, Text: text, Sites: []report.VerdictSite{{Site: site(fn)}}}}}},
			Findings: findings,
		}
	}
	findingAt := func(code report.RuleCode, s report.Severity, fn string) report.Finding {
		return report.Finding{Code: code, Severity: s, Site: site(fn), Title: "requests wait"}
	}
	predicting := func(ns int64) report.Finding {
		f := findingAt("WL2002", "high", "main.save")
		f.Group, f.Predicted = "g", &report.Predicted{P50NS: report.Estimate{Est: ns}}
		return f
	}
	for _, c := range []struct {
		name   string
		rep    *report.Report
		f      *testprog.FieldCase
		untrue int
	}{
		{"a right answer", reportOf("sleep", "main.save", "asleep", findingAt("WL2002", "high", "main.save")), &fault, 0},
		{"a second finding, false and medium", reportOf("sleep", "main.save", "asleep", findingAt("WL2002", "high", "main.save"), findingAt("WL2005", "medium", "main.ask")), &fault, 1},
		{"a second finding, false and low", reportOf("sleep", "main.save", "asleep", findingAt("WL2002", "high", "main.save"), findingAt("WL2005", "low", "main.ask")), &fault, 0},
		{"the right rule at a wrong site", reportOf("sleep", "main.save", "asleep", findingAt("WL2002", "high", "main.load")), &fault, 1},
		{"a rule and site that the truth allows", reportOf("sleep", "main.save", "asleep", findingAt("WL2003", "high", "main.pool")), &fault, 0},
		{"an allowed rule at another site", reportOf("sleep", "main.save", "asleep", findingAt("WL2003", "high", "main.queue")), &fault, 1},
		{"another first cause", reportOf("network", "main.save", "waiting for a peer"), &fault, 1},
		{"another first cause with a hedge word", reportOf("network", "main.save", "waiting for a peer, perhaps this process"), &fault, 0},
		{"the right cause at another site", reportOf("sleep", "main.load", "asleep"), &fault, 1},
		{"a text that the truth forbids", reportOf("sleep", "main.save", "asleep in its own main.other"), &fault, 1},
		{"a forbidden text after a hedge word", reportOf("sleep", "main.save", "asleep, perhaps in its own main.other"), &fault, 0},
		{"a prediction that a change can reach", reportOf("sleep", "main.save", "asleep", predicting(5e6)), &fault, 0},
		{"a prediction that no change can reach", reportOf("sleep", "main.save", "asleep", predicting(4e6)), &fault, 1},
		{"a healthy program without a finding", reportOf("network", "main.read", "waiting for the client"), &healthy, 0},
		{"a healthy program with a major finding", reportOf("network", "main.read", "waiting for the client", findingAt("WL2005", "medium", "main.read")), &healthy, 1},
	} {
		if got := falseFieldClaims(c.rep, c.f); len(got) != c.untrue {
			t.Errorf("%s: %d false claims, want %d: %q", c.name, len(got), c.untrue, got)
		}
	}
	yes, no := true, false
	for _, c := range []struct {
		sentence, first *bool
		all             bool
		untrue          []string
		want            class
	}{
		{&yes, &yes, true, nil, classRight},
		{&yes, &no, false, nil, classHalf},
		{&no, &no, false, nil, classWrong},
		{nil, &no, false, nil, classWrong},
		{&yes, &yes, true, []string{"x"}, classConfidentlyWrong},
	} {
		check.Equal(t, classOf(c.sentence, c.first, c.all, c.untrue), c.want, "%v", c)
	}
}
