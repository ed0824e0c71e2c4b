package acceptance_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report/text"
)

// samplePattern finds the sample answer in README.md: from its first line to what only the demo prints.
var samplePattern = regexp.MustCompile("(?s)```\ndemo · .*?\n\nWhat is wrong")

// TestSamples compares the sample answers of README.md and docs/start.md with the answer for the recording of the demo from
// which they were made. With -update it writes the one of README.md.
func TestSamples(t *testing.T) {
	rep := explainFile(t, "internal/acceptance/testdata/demo.trace.gz")
	rep.Input.Name = "demo"
	var out strings.Builder
	must.Do(t, text.Write(&out, rep, text.Options{Width: 100}))
	answer := strings.TrimRight(out.String(), "\n")

	readme := string(must.Have(os.ReadFile("README.md"))(t))
	want := "```\n" + answer + "\n\nWhat is wrong"
	if *update {
		readme = samplePattern.ReplaceAllLiteralString(readme, want)
		must.Do(t, os.WriteFile("README.md", []byte(readme), 0o644))
	}
	if got := samplePattern.FindString(readme); got != want {
		t.Errorf("README.md (-update writes it) has\n%s\nwant\n%s", got, want)
	}

	// The page for beginners explains the answer part by part.
	page := string(must.Have(os.ReadFile("docs/start.md"))(t))
	begin, end := strings.Index(page, "    demo · "), strings.Index(page, "    What is wrong")
	if begin < 0 || end < begin {
		t.Fatal("docs/start.md has no sample answer")
	}
	for line := range strings.Lines(page[begin:end]) {
		if line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    "); ok && !strings.Contains(answer, line) {
			t.Errorf("docs/start.md has a line that is not in the answer: %q", line)
		}
	}
}
