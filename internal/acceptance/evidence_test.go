package acceptance_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

const (
	evidenceTable = "internal/acceptance/testdata/evidence.txt"
	findingsTable = "internal/acceptance/testdata/findings.txt"
	outcomesTable = "internal/acceptance/testdata/outcomes.txt"
)

// evidenceExamples is how many recordings show the same kind of text in the golden file.
const evidenceExamples = 3

// variableWords are the words of a text that differ from recording to recording: numbers, functions, files, addresses.
var variableWords = regexp.MustCompile(`\S*[0-9./:]\S*`)

// sitePath is the directory of a package in a site.
var sitePath = regexp.MustCompile(`[\w.-]+(/[\w.-]+)*/`)

// eachAnswer calls visit for the report of each recording with a truth, always in the same order.
func eachAnswer(t *testing.T, visit func(name string, rep *report.Report)) {
	t.Helper()
	for _, name := range testprog.Services(t) {
		visit(name, explainService(t, name))
	}
	dir, corpus := testprog.Corpus(t)
	for _, name := range corpus {
		visit(name, explainFile(t, testprog.FieldRecording(t, dir, name)))
	}
	for _, file := range must.Have(filepath.Glob(testprog.Dir + "/cases/*" + testprog.Packed))(t) {
		name := "cases/" + strings.TrimSuffix(filepath.Base(file), testprog.Packed)
		visit(name, explainFile(t, testprog.Recording(t, name)))
	}
}

// compareLines compares lines with those of a file, in any order, and writes the file with -update.
func compareLines(t *testing.T, file string, lines []string) {
	t.Helper()
	if *update {
		must.Do(t, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o666))
	}
	old := slices.Collect(strings.Lines(string(must.Have(os.ReadFile(file))(t))))
	isIn := func(list []string) func(string) bool { return func(s string) bool { return slices.Contains(list, s) } }
	if was, is := slices.DeleteFunc(slices.Clone(old), isIn(lines)), slices.DeleteFunc(slices.Clone(lines), isIn(old)); len(was)+len(is) > 0 {
		t.Errorf("%d lines of %s are not what findings say now; %d are new (-update writes them)\nwas %.2000q\nis  %.2000q", len(was), file, len(is), was, is)
	}
}

// TestFindings compares what decides about each finding with findingsTable: its severity and the numbers behind it, its place, what
// to change, and the prediction. A truth about a recording names most findings only by their rule.
func TestFindings(t *testing.T) {
	var lines []string
	eachAnswer(t, func(name string, rep *report.Report) {
		for i := range rep.Findings {
			f := &rep.Findings[i]
			line := fmt.Sprintf("%s  %s %s, %.0f%%, sure %.0f%%", name, f.Code, f.Severity, 100*f.Share, 100*f.Confidence)
			if d := f.Decided; d != nil {
				line += fmt.Sprintf(", %s %.0f%% of %.0f%%, %s of %s", d.Requests, 100*d.Share, 100*d.LeastShare, words.Brief(d.NS), words.Brief(d.LeastNS))
			}
			if g := rep.Group(f.Group); g != nil {
				line += " of " + words.FuncName(g.Name)
			}
			line += "; " + string(f.Cause)
			if s := f.Site; s != nil {
				line += fmt.Sprintf(" in %s:%d", words.FuncName(s.Func), s.Line)
				if c := s.CalledFrom; c != nil {
					line += fmt.Sprintf(" < %s:%d", words.FuncName(c.Func), c.Line)
				}
			}
			if f.Queue != nil {
				line += "; queue for " + f.Queue.For
			}
			for k := range f.Changes {
				line += "; " + sitePath.ReplaceAllString(f.Changes[k].Text, "")
			}
			for _, p := range []*report.Predicted{f.Predicted, f.Combined} {
				if p != nil {
					line += fmt.Sprintf("; %s, %s", words.Brief(p.P50NS.Est), words.Brief(p.P99NS.Est))
				}
			}
			for _, a := range f.AskedBy {
				line += fmt.Sprintf("; asked by %s %.0f%%", a.Name, 100*a.Share)
			}
			lines = append(lines, line+"\n")
		}
	})
	compareLines(t, findingsTable, lines)
}

// TestOutcomes compares the first sentence of each recording's page with outcomesTable, and the findings in their order of action.
func TestOutcomes(t *testing.T) {
	var lines []string
	eachAnswer(t, func(name string, rep *report.Report) {
		line := name + "  "
		if o := verdict.NewOutcome(rep, rep.Verdict); o != nil {
			line += string(o.State) + ": " + o.Result + ": " + o.Text
			for _, text := range []string{o.Rules, o.Command} {
				if text != "" {
					line += "; " + text
				}
			}
			for _, id := range o.Findings {
				i := slices.IndexFunc(rep.Findings, func(f report.Finding) bool { return f.ID == id })
				line += fmt.Sprintf("; %s: %s", rep.Findings[i].Code, rep.Findings[i].Remedy)
			}
		}
		lines = append(lines, line+"\n")
	})
	compareLines(t, outcomesTable, lines)
}

// TestPredictionIsOfTheChange: the prediction of a finding is that of the changes in its advice.
func TestPredictionIsOfTheChange(t *testing.T) {
	eachAnswer(t, func(name string, rep *report.Report) {
		for i := range rep.Findings {
			f := &rep.Findings[i]
			var changes []string
			for _, c := range f.Changes {
				changes = append(changes, c.Text)
			}
			if advised := strings.Join(changes, ", "); f.Predicted != nil && len(changes) > 0 && f.Predicted.Change != advised {
				t.Errorf("%s: %s advises %s, and the prediction is for %s", name, f.Code, advised, f.Predicted.Change)
			}
		}
	})
}

// TestEvidence compares the texts of findings with evidenceTable, up to evidenceExamples recordings of each kind: rules
// compute their numbers and choose their advice by themselves, and no truth about a recording contains them. Who changes a rule reads in
// the difference what its findings say now, and writes the file with -update.
func TestEvidence(t *testing.T) {
	kinds := map[string][]string{} // rule and text without its variable words -> examples
	eachAnswer(t, func(name string, rep *report.Report) {
		seen := map[string]bool{}
		add := func(code report.RuleCode, text, withValue string) {
			kind := string(code) + " " + variableWords.ReplaceAllString(text, "_")
			if text != "" && !seen[kind] && len(kinds[kind]) < evidenceExamples {
				seen[kind] = true
				kinds[kind] = append(kinds[kind], fmt.Sprintf("%s  %s  (%s)\n", code, withValue, name))
			}
		}
		for i := range rep.Findings {
			f := &rep.Findings[i]
			for _, e := range f.Evidence {
				add(f.Code, e.Text, names.Evidence(e.Text, e))
			}
			for _, text := range []string{f.Title, f.Fix, f.Doubt} {
				add(f.Code, text, text)
			}
		}
	})
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		lines = append(lines, kinds[kind]...)
	}
	compareLines(t, evidenceTable, lines)
}
