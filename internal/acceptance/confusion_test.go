package acceptance_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

var update = flag.Bool("update", false, "rewrite the tables in testdata and docs/internals/accuracy.md, and the known wrong answers, from the recordings; with WHYLATE_FULL=1 rates.md from live runs")

// confusionPage is the table that TestTruth writes with -update.
const confusionPage = "internal/acceptance/testdata/confusion.md"

// truthFindings has the findings expected of a service; lab/truth/catalog documents the fields.
type truthFindings struct {
	First       []string    `json:"first"`
	Crowded     []string    `json:"crowded"`
	Info        bool        `json:"info"`
	AlsoAllowed []string    `json:"beside"`
	Facts       []string    `json:"facts"`
	Sites       []truthSite `json:"sites"`
	AnyShare    bool        `json:"any_share"`
}

// judgeFindings compares a report's findings with those that the service is known to have. Findings about the scheduler depend
// on other processes of the machine, like shares, and a thread that the kernel holds back looks like computing: such errors
// are spoiled, not wrong.
func judgeFindings(rep *report.Report, o *outcome) judgement {
	want := o.Service.Findings
	if want == nil || o.Traced.Count == 0 {
		return judgement{}
	}
	var wrong, spoiled []error
	for i := range rep.Findings {
		f := &rep.Findings[i]
		if f.Severity == report.SeverityInfo || !want.Info && want.allowsFirst(string(f.Code), rep) || slices.Contains(want.AlsoAllowed, string(f.Code)) {
			continue
		}
		err := fmt.Errorf("finding %s is not expected", describeFinding(f))
		if strings.HasPrefix(string(f.Code), "WL1") || f.Cause == "cpu" {
			spoiled = append(spoiled, err)
		} else {
			wrong = append(wrong, err)
		}
	}
	for i := range rep.Findings {
		if f := &rep.Findings[i]; slices.Contains(certainFacts, string(f.Code)) && !slices.Contains(want.Facts, string(f.Code)) {
			wrong = append(wrong, fmt.Errorf("finding %s is not true of the service", describeFinding(f)))
		}
	}
	for _, code := range want.Facts {
		if !slices.ContainsFunc(rep.Findings, func(f report.Finding) bool { return string(f.Code) == code }) {
			spoiled = append(spoiled, fmt.Errorf("finding %s is missing", code))
		}
	}
	if len(want.First) > 0 {
		first := firstFinding(rep, want)
		switch {
		case first == nil:
			wrong = append(wrong, fmt.Errorf("no finding; want %v", want.First))
		case !want.allowsFirst(string(first.Code), rep):
			wrong = append(wrong, fmt.Errorf("the first finding is %s; want %v", describeFinding(first), want.First))
		default:
			w, s := judgeFirstFinding(rep, first, o)
			wrong, spoiled = append(wrong, w), append(spoiled, s)
		}
	}
	return judgement{errors.Join(wrong...), errors.Join(spoiled...)}
}

// allowsFirst reports whether a code is allowed for the first finding. Codes in Crowded are allowed only if threads waited for
// CPUs for a tenth of the busy time.
func (f *truthFindings) allowsFirst(code string, rep *report.Report) bool {
	if !slices.Contains(f.Crowded, code) {
		return slices.Contains(f.First, code)
	}
	if rep.Host == nil || rep.Host.Lost.RunDelayNS == nil || rep.Host.Lost.BusyNS == nil {
		return false
	}
	return float64(*rep.Host.Lost.RunDelayNS) >= 0.1*float64(*rep.Host.Lost.BusyNS)
}

// certainFacts are codes of severity info that do not depend on how the run went.
var certainFacts = []string{"WL5002", "WL5005", "WL5007", "WL5008"}

// firstFinding returns the first finding above info. If the expected finding has severity info, it returns the first with an
// expected code.
func firstFinding(rep *report.Report, want *truthFindings) *report.Finding {
	for i := range rep.Findings {
		f := &rep.Findings[i]
		if f.Severity != report.SeverityInfo && !want.Info || want.Info && slices.Contains(want.First, string(f.Code)) {
			return f
		}
	}
	return nil
}

func judgeFirstFinding(rep *report.Report, f *report.Finding, o *outcome) (wrong, spoiled error) {
	want, tr := o.Service.Findings, &o.Service.Truth
	sites := want.Sites
	if len(sites) == 0 {
		sites = append([]truthSite{tr.Site}, tr.OrSites...)
	}
	if !slices.ContainsFunc(sites, func(s truthSite) bool { return s.matches(f.Site) }) {
		wrong = fmt.Errorf("the first finding is %s, not at %v", describeFinding(f), sites)
	}
	g := slowGroup(rep, o)
	// With fewer than ten requests, the report lists loops and goroutines as well; a finding about one of those is equivalent.
	if g != nil && f.Group != "" && f.Group != g.ID && g.Count >= 10 {
		wrong = errors.Join(wrong, fmt.Errorf("the first finding, %s, is not about %s", describeFinding(f), g.Name))
	}
	if o.Share != nil && !want.AnyShare && g != nil && g.Count > 0 && o.Traced.MeanNS > 0 {
		// Requests that did not wait may show no handler and be in another group. So the fault's share of all requests' time,
		// as the client measured it, is right as well.
		shareOfClientTime := f.Share * float64(g.TotalNS) / (float64(o.Traced.MeanNS) * float64(o.Traced.Count))
		if math.Abs(f.Share-*o.Share) > 0.10 && math.Abs(shareOfClientTime-*o.Share) > 0.10 {
			spoiled = fmt.Errorf("%s has a share of %.3f (%.3f of the client's time), by the service's own clock it is %.3f", f.Code, f.Share, shareOfClientTime, *o.Share)
		}
	}
	return wrong, spoiled
}

func describeFinding(f *report.Finding) string {
	s := fmt.Sprintf("%s %s %.3f", f.Code, f.Severity, f.Share)
	if f.Site != nil {
		s += fmt.Sprintf(" at %s:%d", f.Site.Func, f.Site.Line)
	}
	return s + fmt.Sprintf(" (%q)", f.Title)
}

// A confusionTable has a row for each service and a column for each rule; TestTruth fills it.
type confusionTable struct {
	rows map[string]confusionRow
}

type confusionRow struct {
	want  *truthFindings
	found map[report.RuleCode]report.Severity // worst severity by code
	first report.RuleCode                     // code of the first finding above info
}

func (c *confusionTable) add(o *outcome, rep *report.Report) {
	row := confusionRow{want: o.Service.Findings, found: map[report.RuleCode]report.Severity{}}
	for i := range rep.Findings {
		f := &rep.Findings[i]
		if row.found[f.Code] == "" {
			row.found[f.Code] = f.Severity
		}
		if row.first == "" && f.Severity != report.SeverityInfo {
			row.first = f.Code
		}
	}
	if c.rows == nil {
		c.rows = make(map[string]confusionRow)
	}
	c.rows[o.Service.Name] = row
}

const confusionHead = `# Which rule speaks about which service

Rows are the services of ` + "`lab/truth`" + `, each late for one known reason; columns are rules (` + "`whylate rules`" + ` explains them).
**!** is the first finding, + stands beside it, both above info; i is a finding of severity info; ? was found though it must not be, on a machine
that was not free; an empty cell is silence. *expected* names the codes of which one must come first; a row that expects none must
hold nothing but i. Services without an expectation are not in the table.

The test behind it is ` + "`TestTruth`" + ` (` + "`go test -run TestTruth ./internal/acceptance`" + `): it explains a recording of every service, which was loaded from another
process, and holds the findings, their sites and their shares against what the service itself measured. It fails where a rule speaks that must not,
where the first code or its site is wrong, where the share is off by more than 10 points, and where this page is not what it finds. What must be found is
stated in ` + "`lab/truth/catalog/findings*.go`" + `. ` + "`go test ./internal/acceptance -run TestTruth -update`" + ` writes the page. How often live runs of the same services are
right is in [rates.md](rates.md).
`

// page returns the table as Markdown.
func (c *confusionTable) page() string {
	rules := finding.All()
	var used []report.RuleCode
	for i := range rules {
		code := rules[i].Code
		for _, r := range c.rows {
			if r.want != nil && (r.found[code] != "" || slices.Contains(r.want.First, string(code)) || slices.Contains(r.want.Facts, string(code))) {
				used = append(used, code)
				break
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", confusionHead)
	b.WriteString("| service | expected |")
	for _, code := range used {
		fmt.Fprintf(&b, " %s |", strings.TrimPrefix(string(code), "WL"))
	}
	fmt.Fprintf(&b, "\n|---|---|%s\n", strings.Repeat("---|", len(used)))
	var names []string
	for name, r := range c.rows {
		if r.want != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		r := c.rows[name]
		expected := strings.Join(r.want.First, " ")
		switch {
		case expected == "":
			expected = "none"
		case r.want.Info:
			expected += " (info)"
		}
		fmt.Fprintf(&b, "| %s | %s |", name, expected)
		for _, code := range used {
			fmt.Fprintf(&b, " %s |", r.cell(code))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nColumns:")
	for i := range rules {
		if slices.Contains(used, rules[i].Code) {
			fmt.Fprintf(&b, "\n- WL%s %s", strings.TrimPrefix(string(rules[i].Code), "WL"), rules[i].Summary)
		}
	}
	b.WriteString("\n")
	return b.String()
}

func (r *confusionRow) cell(code report.RuleCode) string {
	switch severity := r.found[code]; {
	case severity == "":
		return " "
	case severity == report.SeverityInfo:
		return "i"
	case !slices.Contains(r.want.AlsoAllowed, string(code)) && (r.want.Info || !slices.Contains(r.want.First, string(code))):
		return "?"
	case code == r.first:
		return "**!**"
	}
	return "+"
}

// check compares the published table with the one found, or writes it with -update.
func (c *confusionTable) check(t *testing.T, wanted map[string]*truthFindings) {
	t.Helper()
	for name, want := range wanted {
		if _, judged := c.rows[name]; want != nil && !judged {
			return // only some of the tests run
		}
	}
	if *update {
		if err := os.WriteFile(confusionPage, []byte(c.page()), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	page := must.Have(os.ReadFile(confusionPage))(t)
	oldLines, newLines := strings.Split(string(page), "\n"), strings.Split(c.page(), "\n")
	for i := range max(len(oldLines), len(newLines)) {
		if i >= len(oldLines) || i >= len(newLines) || oldLines[i] != newLines[i] {
			t.Errorf("%s is not what the recordings show: go test ./internal/acceptance -run TestTruth -update\nwas %.200s\nis  %.200s", confusionPage, lineAt(oldLines, i), lineAt(newLines, i))
			return
		}
	}
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "nothing"
}
