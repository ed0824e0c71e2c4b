package acceptance_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report/html"
	"github.com/whylate/whylate/report/text"
)

// samplePattern finds the sample answer in a README: from its first line to what only the demo prints.
var samplePattern = regexp.MustCompile("(?s)```\ndemo · .*?\n\nWhat is wrong")

// TestSamples compares the sample answers of README.md, its translation and docs/start.md with the answer for the recording of the demo from
// which they were made. With -update it writes those of README.md and README.zh-CN.md.
func TestSamples(t *testing.T) {
	rep := explainFile(t, "internal/acceptance/testdata/demo.trace.gz")
	rep.Input.Name = "demo"
	var out strings.Builder
	must.Do(t, text.Write(&out, rep, text.Options{Width: 100}))
	answer := strings.TrimRight(out.String(), "\n")

	want := "```\n" + answer + "\n\nWhat is wrong"
	for _, name := range []string{"README.md", "README.zh-CN.md"} {
		readme := string(must.Have(os.ReadFile(name))(t))
		if *update {
			readme = samplePattern.ReplaceAllLiteralString(readme, want)
			must.Do(t, os.WriteFile(name, []byte(readme), 0o644))
		}
		if got := samplePattern.FindString(readme); got != want {
			t.Errorf("%s (-update writes it) has\n%s\nwant\n%s", name, got, want)
		}
	}

	// The pages for beginners explain the answer part by part.
	for _, name := range []string{"docs/start.md", "docs/start.zh-CN.md"} {
		page := string(must.Have(os.ReadFile(name))(t))
		begin, end := strings.Index(page, "    demo · "), strings.Index(page, "    What is wrong")
		must.True(t, begin >= 0 && end >= begin, "%s has no sample answer", name)
		for line := range strings.Lines(page[begin:end]) {
			if line, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    "); ok && !strings.Contains(answer, line) {
				t.Errorf("%s has a line that is not in the answer: %q", name, line)
			}
		}
	}
}

// TestExamplePage compares the page of docs/example with the one that is written now for the recording of the demo. -update writes it.
func TestExamplePage(t *testing.T) {
	const file = "docs/example/demo.html"
	rep := explainFile(t, "internal/acceptance/testdata/demo.trace.gz", "--slowest", "1")
	rep.Input.Name = "demo.trace.gz"
	var page bytes.Buffer
	must.Do(t, html.Write(&page, rep, html.Options{Command: "whylate explain demo.trace.gz"}))
	if *update {
		must.Do(t, os.WriteFile(file, page.Bytes(), 0o666))
	}
	check.True(t, bytes.Equal(must.Have(os.ReadFile(file))(t), page.Bytes()), "%s is not the page of today: -update writes it", file)
}

// TestServicesSample compares the sample answer for several services in docs/start.md with the one for the recording of lab/shop.
func TestServicesSample(t *testing.T) {
	rep := explainFile(t, "audit="+testprog.Recording(t, "shop/audit.trace"), "stock="+testprog.Recording(t, "shop/stock.trace"))
	var answer strings.Builder
	must.Do(t, text.Write(&answer, rep, text.Options{Width: 100}))
	page := string(must.Have(os.ReadFile("docs/start.md"))(t))
	_, section, _ := strings.Cut(page, "## Several services")
	_, sample, _ := strings.Cut(section, "    why ")
	sample, _, _ = strings.Cut("why "+sample, "\n\n")
	sample = strings.ReplaceAll(sample, "\n    ", "\n")
	check.True(t, strings.Contains(sample, "in stock") && strings.Contains(answer.String(), sample),
		"docs/start.md has\n%s\nwhich is not in the answer\n%s", sample, answer.String())
}
