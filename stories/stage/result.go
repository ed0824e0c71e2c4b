package stage

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A Place is a finding: the rule's code and where. As what is expected, Code may be several with | between, and Site is a regular
// expression for the function or for file:line; both empty mean that nothing loud may be found: of medium or high severity. Only means that nothing loud may
// be found beside it.
type Place struct {
	Code report.RuleCode `json:"code"`
	Site string          `json:"site"`
	Only bool            `json:"only,omitempty"`
}

func (p Place) matchesCode(c report.RuleCode) bool {
	return slices.Contains(strings.Split(string(p.Code), "|"), string(c))
}

// An Arm is one way in which a story ran. Times are those of the clients' own clock.
type Arm struct {
	Name     string  `json:"name"`
	P50NS    int64   `json:"p50_ns"`
	P99NS    int64   `json:"p99_ns"`
	Requests int64   `json:"requests"`
	Finding  Place   `json:"finding"` // the first one
	Expected Place   `json:"expected"`
	Right    bool    `json:"right"`
	Share    float64 `json:"share"` // of the requests' time, as that finding says
	// Loud are the codes of all findings of medium or high severity, in the report's order.
	Loud    []report.RuleCode `json:"loud,omitempty"`
	Says    string            `json:"says"`              // the first paragraph of what plain "whylate explain" prints
	Counted string            `json:"counted,omitempty"` // what the kernel says of it
	// Report is the file of the report's page, if pages are kept.
	Report string `json:"report,omitempty"`
}

// A Result is what came of a story. Fields may be added, never renamed.
type Result struct {
	Story    string            `json:"story"`
	Date     string            `json:"date"`
	Short    bool              `json:"short,omitempty"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Arms     []Arm             `json:"arms"`
	// Predicted and Measured are the median after the fix, in ns: as whylate predicted it from the recording before, and as
	// the clients measured it then. 0: nothing is predicted.
	Predicted int64 `json:"predicted_p50_ns"`
	Measured  int64 `json:"measured_p50_ns"`
	// Factor is the median before by that after, Published that of the incident, as it was published.
	Factor    float64 `json:"factor"`
	Published float64 `json:"published_factor"`
	// Table is more that was measured, as aligned text.
	Table  string  `json:"table,omitempty"`
	Charts []Chart `json:"charts,omitempty"`
	// Pictures are files beside the page.
	Pictures []Picture `json:"pictures,omitempty"`
	// Notes say what differs from what was published, and why.
	Notes []string `json:"notes,omitempty"`
}

// A Picture is an SVG file in the folder of the pages.
type Picture struct {
	Title string `json:"title"`
	File  string `json:"file"`
}

// Machine describes where a story ran.
func Machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d CPUs, %s/%s, Linux %s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, strings.TrimSpace(string(kernel)), runtime.Version())
}

// Judge explains a recording and makes an arm of it: whether its first finding is the expected one.
func (s *Stage) Judge(ctx context.Context, name, file string, expected Place) (Arm, error) {
	e, err := s.Explain(ctx, file)
	if err != nil {
		return Arm{}, err
	}
	a, err := judgeArm(name, e, expected)
	if s.keep != "" {
		a.Report = filepath.Base(pageOf(file))
	}
	return a, err
}

func judgeArm(name string, e *Explained, expected Place) (Arm, error) {
	a := Arm{Name: name, Expected: expected, Says: firstParagraph(e.Text)}
	f := e.Report.Foremost()
	if f != nil {
		a.Finding.Code, a.Share = f.Code, f.Share
		if s := f.Site; s != nil {
			a.Finding.Site = fmt.Sprintf("%s %s:%d", s.Func, filepath.Base(s.File), s.Line)
		}
	}
	for _, f := range e.Report.Findings {
		if f.Ignored == "" && f.Severity.IsMajor() {
			a.Loud = append(a.Loud, f.Code)
		}
	}
	site, err := regexp.Compile(expected.Site)
	if err != nil {
		return a, fmt.Errorf("what is expected of the arm %s: %w", name, err)
	}
	if a.Right = expected.matchesCode(a.Finding.Code) && site.MatchString(a.Finding.Site); expected.Code == "" {
		a.Right = f == nil || f.Severity == report.SeverityLow
	}
	if expected.Only {
		for _, loud := range a.Loud {
			if !expected.matchesCode(loud) && !loud.OfMachine() {
				a.Right = false
			}
		}
	}
	return a, nil
}

// Evidence returns the fact of a finding whose text contains some words.
func Evidence(f *report.Finding, words string) (float64, bool) {
	for _, e := range f.Evidence {
		if strings.Contains(e.Text, words) {
			return e.Value, true
		}
	}
	return 0, false
}

// firstParagraph is the first paragraph of a text after its heading.
func firstParagraph(text string) string {
	paragraphs := strings.SplitN(strings.TrimSpace(text), "\n\n", 3)
	return paragraphs[min(1, len(paragraphs)-1)]
}

// Arm returns an arm by its name; nil if it was not run.
func (r *Result) Arm(name string) *Arm {
	i := slices.IndexFunc(r.Arms, func(a Arm) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Arms[i]
}

// Compare sets what was measured after the fix, and the factor, by of: what of an arm was published. It does nothing where not
// both arms were run.
func (r *Result) Compare(before, after string, percentile func(*Arm) int64) {
	b, a := r.Arm(before), r.Arm(after)
	if b == nil || a == nil {
		return
	}
	r.Measured, r.Factor = a.P50NS, float64(percentile(b))/float64(percentile(a))
}

// P50 and P99 are for Compare.
func P50(a *Arm) int64 { return a.P50NS }

// P99 is the 99th percentile of an arm.
func P99(a *Arm) int64 { return a.P99NS }

// Measure takes what the load's clients measured.
func (a *Arm) Measure(l *load.Result) {
	a.P50NS, a.P99NS, a.Requests = l.Intended.P50, l.Intended.P99, l.Requests
}

// WriteText prints a result: what was published, what was measured, what the tool said and predicted.
func (r *Result) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "\n%s on %s\n\n", r.Story, r.Machine)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "arm\trequests\tp50\tp99\tfirst finding\t")
	for _, a := range r.Arms {
		mark := "right"
		if !a.Right {
			mark = fmt.Sprintf("WRONG, expected %s %s", orDefault(string(a.Expected.Code), "none"), a.Expected.Site)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s %s\t%s\n", a.Name, a.Requests, words.Duration(a.P50NS), words.Duration(a.P99NS), orDefault(string(a.Finding.Code), "none"), a.Finding.Site, mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if r.Factor > 0 {
		fmt.Fprintf(w, "before / after: %.3g times here, %.3g as published\n", r.Factor, r.Published)
	}
	if r.Predicted > 0 {
		fmt.Fprintf(w, "the fix: p50 of %s predicted, %s measured\n", words.Duration(r.Predicted), words.Duration(r.Measured))
	}
	if r.Table != "" {
		fmt.Fprintf(w, "\n%s", r.Table)
	}
	for _, a := range r.Arms {
		fmt.Fprintln(w)
		if a.Counted != "" {
			fmt.Fprintf(w, "%s: %s\n", a.Name, a.Counted)
		}
		fmt.Fprintf(w, "%s: whylate says\n%s\n", a.Name, indent(a.Says))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "\n%s\n", n)
	}
	return nil
}

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }
