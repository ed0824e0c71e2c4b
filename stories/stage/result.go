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

// A Place is a finding: a rule's code and a site. In an expectation, Code may be several codes separated by |, and Site is a
// regular expression for the function or file:line. If both are empty, there must be no finding of medium or high severity.
// Only forbids further findings of these severities.
type Place struct {
	Code report.RuleCode `json:"code"`
	Site string          `json:"site"`
	Only bool            `json:"only,omitempty"`
}

func (p Place) matchesCode(c report.RuleCode) bool {
	return slices.Contains(strings.Split(string(p.Code), "|"), string(c))
}

// An Arm is one run of a story's service. Times are by the clients' clock.
type Arm struct {
	Name     string  `json:"name"`
	P50NS    int64   `json:"p50_ns"`
	P99NS    int64   `json:"p99_ns"`
	Requests int64   `json:"requests"`
	Finding  Place   `json:"finding"` // the first one
	Expected Place   `json:"expected"`
	Right    bool    `json:"right"`
	Share    float64 `json:"share"` // of the requests' time, by the finding
	// Loud are the codes of all findings of medium or high severity, in the report's order.
	Loud    []report.RuleCode `json:"loud,omitempty"`
	Says    string            `json:"says"`              // the first paragraph of the output of "whylate explain"
	Counted string            `json:"counted,omitempty"` // the kernel's counters
	// Report is the file of the report's page, if pages are written.
	Report string `json:"report,omitempty"`
}

// A Result is the outcome of a story. Fields may be added, never renamed.
type Result struct {
	Story    string            `json:"story"`
	Date     string            `json:"date"`
	Short    bool              `json:"short,omitempty"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	Arms     []Arm             `json:"arms"`
	// Predicted and Measured are the median after the fix, in ns: whylate's prediction from the recording before, and the
	// clients' measurement. 0: there is no prediction.
	Predicted int64 `json:"predicted_p50_ns"`
	Measured  int64 `json:"measured_p50_ns"`
	// Factor is the median before divided by the median after, Published the published factor of the incident.
	Factor    float64 `json:"factor"`
	Published float64 `json:"published_factor"`
	// Table has further measurements, as aligned text.
	Table string `json:"table,omitempty"`
	// Void is why the fault did not show on this machine, so that the arms prove nothing.
	Void   string  `json:"void,omitempty"`
	Charts []Chart `json:"charts,omitempty"`
	// Pictures are files in the directory of the page.
	Pictures []Picture `json:"pictures,omitempty"`
	// Notes explain the differences from the publication.
	Notes []string `json:"notes,omitempty"`
}

// A Picture is an SVG file in the directory of the pages.
type Picture struct {
	Title string `json:"title"`
	File  string `json:"file"`
}

// Machine describes where a story ran.
func Machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d CPUs, %s/%s, Linux %s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, strings.TrimSpace(string(kernel)), runtime.Version())
}

// Judge explains a recording and returns it as an arm, which is right if its first finding is the expected one.
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
		return a, fmt.Errorf("the expectation of the arm %s: %w", name, err)
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

// Evidence returns the value of a finding's evidence whose text contains some words.
func Evidence(f *report.Finding, words string) (float64, bool) {
	for _, e := range f.Evidence {
		if strings.Contains(e.Text, words) {
			return e.Value, true
		}
	}
	return 0, false
}

// firstParagraph returns the first paragraph of a text after its heading.
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

// Compare sets the measurement after the fix, and the factor by the published percentile. It does nothing if one of the arms
// was not run.
func (r *Result) Compare(before, after string, percentile func(*Arm) int64) {
	b, a := r.Arm(before), r.Arm(after)
	if b == nil || a == nil {
		return
	}
	r.Measured, r.Factor = a.P50NS, float64(percentile(b))/float64(percentile(a))
}

// P50 returns the median of an arm.
func P50(a *Arm) int64 { return a.P50NS }

// P99 returns the 99th percentile of an arm.
func P99(a *Arm) int64 { return a.P99NS }

// Measure sets the measurements of the load's clients.
func (a *Arm) Measure(l *load.Result) {
	a.P50NS, a.P99NS, a.Requests = l.Intended.P50, l.Intended.P99, l.Requests
}

// WriteText prints a result: the published and the measured figures, whylate's answers and predictions.
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
