package finding

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// An answer is what findAll found in one input, and where a change of one part of that input changes it (inputparts_test.go).
type answer struct {
	text, titles string
	bounds       []string
}

// answers has, by test, those of a run, and those of the golden file.
var answers, goldenAnswers = map[*testing.T][]answer{}, map[*testing.T][]answer{}

// findAll returns Find's findings. In addition to what the test checks, it compares all that they say with testdata/TEST.txt. The file
// has them in the order of their texts: some tests have maps of inputs.
func findAll(t *testing.T, in *Input, rules []Rule) []report.Finding {
	t.Helper()
	found := Find(in, rules)
	addAnswer(t, found)
	return found
}

// findWithBounds is findAll, and also compares at which numbers the words of the findings change, for the first answer with new titles.
func findWithBounds(t *testing.T, in *Input, rules []Rule) []report.Finding {
	t.Helper()
	found := Find(in, rules)
	titles := titlesOf(found)
	isKnown := slices.ContainsFunc(answers[t], func(a answer) bool { return a.titles == titles })
	a := addAnswer(t, found)
	if a.titles = titles; isKnown {
		return found
	}
	words := func() []string {
		c := *in
		c.attributions, c.siteTimes = nil, nil
		return wordsOf(Find(&c, rules))
	}
	if *update {
		a.bounds = searchBounds(in, words)
		for _, other := range answers[t] {
			if other.text != a.text {
				a.bounds = slices.DeleteFunc(a.bounds, func(b string) bool { return slices.Contains(other.bounds, b) })
			}
		}
	} else if i := slices.IndexFunc(goldenAnswers[t], func(o answer) bool { return o.text == a.text }); i >= 0 {
		a.bounds = tryBounds(in, goldenAnswers[t][i].bounds, words)
	}
	return found
}

// addAnswer adds an answer to those of the test, which it compares with the golden file at the end, and returns it.
func addAnswer(t *testing.T, found []report.Finding) *answer {
	t.Helper()
	if answers[t] == nil {
		file := filepath.Join("testdata", t.Name()+".txt")
		goldenAnswers[t] = readAnswers(file)
		t.Cleanup(func() {
			must.Golden(t, *update, file, []byte(answersText(answers[t])))
			delete(answers, t)
		})
	}
	text := "no finding\n"
	if len(found) > 0 {
		text = strings.Join(wholeTexts(found), "")
	}
	i := slices.IndexFunc(answers[t], func(a answer) bool { return a.text == text })
	if i < 0 {
		i, answers[t] = len(answers[t]), append(answers[t], answer{text: text})
	}
	return &answers[t][i]
}

const boundLead = "        at "

// readAnswers returns the answers in a golden file; none if there is no such file.
func readAnswers(file string) (list []answer) {
	data, _ := os.ReadFile(file)
	for text := range strings.SplitSeq(string(data), "\n\n") {
		a := answer{}
		for line := range strings.Lines(text) {
			if bound, ok := strings.CutPrefix(line, boundLead); ok {
				a.bounds = append(a.bounds, strings.TrimSuffix(bound, "\n"))
			} else {
				a.text += strings.TrimSuffix(line, "\n") + "\n"
			}
		}
		list = append(list, a)
	}
	return list
}

func answersText(list []answer) string {
	var texts []string
	for _, a := range list {
		text := a.text
		for _, b := range a.bounds {
			text += boundLead + b + "\n"
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return strings.Join(texts, "\n")
}

// wholeTexts returns all that findings say: of each a line for each part, the first with its rule.
func wholeTexts(found []report.Finding) (lines []string) {
	for i := range found {
		f := &found[i]
		line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format+"\n", args...)) }
		line("%s %s: %s", f.Code, f.Severity, f.Title)
		line("    share: %.4g of group %q, cause %q at %s, confidence %.4g %s", f.Share, f.Group, f.Cause, siteText(f.Site), f.Confidence, f.Doubt)
		if d := f.Decided; d != nil {
			line("    decided by %s: %.4g of at least %g, %d ns of at least %d", d.Requests, d.Share, d.LeastShare, d.NS, d.LeastNS)
		}
		for _, e := range f.Evidence {
			line("    evidence: %s: %.6g %s", e.Text, e.Value, e.Unit)
		}
		line("    fix: %s", f.Fix)
		for _, c := range f.Changes {
			line("    change: %s", c.Text)
		}
		for _, p := range []*report.Predicted{f.Predicted, f.Combined} {
			if p != nil {
				line("    predicted: %s %s: p50 %d ns", p.Change, p.ChangeText, p.P50NS.Est)
			}
		}
		if q := f.Queue; q != nil {
			line("    queue: for %s, own time %d ns", q.For, q.OwnNS)
			for i := range q.Waits {
				line("    queue at: %s %s %s", q.Waits[i].Wait, siteText(q.Waits[i].Site), q.Waits[i].Call)
			}
		}
		for _, a := range f.AskedBy {
			line("    asked by: %s, %.4g, %d ns each", a.Name, a.Share, a.EachNS)
		}
	}
	return lines
}

var numbers = regexp.MustCompile(`[0-9][0-9.]*(e[+-]?[0-9]+)?( ?(ns|µs|ms|s|KiB|MiB|GiB|%)\b)?`)

// wordsOf returns the lines of wholeTexts without numbers, each after its rule.
func wordsOf(found []report.Finding) []string {
	var words []string
	code := ""
	for _, line := range wholeTexts(found) {
		line = strings.TrimSuffix(line, "\n")
		if part, ok := strings.CutPrefix(line, "    "); ok {
			words = append(words, code+" "+numbers.ReplaceAllString(part, "#"))
			continue
		}
		heading, title, _ := strings.Cut(line, ": ")
		code = heading[:len("WL1001")]
		words = append(words, heading, code+" title: "+numbers.ReplaceAllString(title, "#"))
	}
	return words
}

// titlesOf returns the titles of findings without numbers.
func titlesOf(found []report.Finding) string {
	titles := "titles:"
	for i := range found {
		titles += string(found[i].Code) + numbers.ReplaceAllString(found[i].Title, "#")
	}
	return titles
}
