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

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

const evidenceTable = "internal/acceptance/testdata/evidence.txt"

// evidenceExamples is how many recordings show the same kind of evidence in the golden file.
const evidenceExamples = 3

// variableWords are the words of evidence that differ from recording to recording: numbers, functions, files, addresses.
var variableWords = regexp.MustCompile(`\S*[0-9./:]\S*`)

// TestEvidence compares the evidence of findings with evidenceTable, up to evidenceExamples recordings of each kind: rules
// compute these numbers by themselves, and no truth about a recording contains them. Who changes a rule reads in the
// difference what its findings say now, and writes the file with -update.
func TestEvidence(t *testing.T) {
	kinds := map[string][]string{} // rule and text without its variable words -> examples
	add := func(name string, rep *report.Report) {
		seen := map[string]bool{}
		for i := range rep.Findings {
			f := &rep.Findings[i]
			for _, e := range f.Evidence {
				kind := string(f.Code) + " " + variableWords.ReplaceAllString(e.Text, "_")
				if !seen[kind] && len(kinds[kind]) < evidenceExamples {
					seen[kind] = true
					kinds[kind] = append(kinds[kind], fmt.Sprintf("%s  %s  (%s)\n", f.Code, names.Evidence(e.Text, e), name))
				}
			}
		}
	}
	for _, name := range testprog.Services(t) {
		add(name, explainService(t, name))
	}
	dir, corpus := testprog.Corpus(t)
	for _, name := range corpus {
		add(name, explainFile(t, testprog.FieldRecording(t, dir, name)))
	}
	cases := must.Have(filepath.Glob(testprog.Dir + "/cases/*.trace" + testprog.Packed))(t)
	for _, file := range cases {
		name := strings.TrimSuffix(filepath.Base(file), testprog.Packed)
		add(name, explainFile(t, testprog.Recording(t, "cases/"+name)))
	}
	var lines []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		lines = append(lines, kinds[kind]...)
	}
	if *update {
		must.Do(t, os.WriteFile(evidenceTable, []byte(strings.Join(lines, "")), 0o666))
	}
	old := slices.Collect(strings.Lines(string(must.Have(os.ReadFile(evidenceTable))(t))))
	isIn := func(list []string) func(string) bool { return func(s string) bool { return slices.Contains(list, s) } }
	if was, is := slices.DeleteFunc(slices.Clone(old), isIn(lines)), slices.DeleteFunc(slices.Clone(lines), isIn(old)); len(was)+len(is) > 0 {
		t.Errorf("%d lines of %s are not what findings say now; %d are new (-update writes them)\nwas %.2000q\nis  %.2000q", len(was), evidenceTable, len(is), was, is)
	}
}
