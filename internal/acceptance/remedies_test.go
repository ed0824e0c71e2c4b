package acceptance_test

import (
	"regexp"
	"testing"
	"unicode/utf8"

	"github.com/whylate/whylate/report"
)

// maxRemedy is how long a remedy may be, in characters: a person who was woken up reads it once.
const maxRemedy = 160

// siteInText is a function with its file and line in a text of a finding.
var siteInText = regexp.MustCompile(`\S+ \([^()\s]+:\d+[^()]*\)`)

// nestedCondition matches a sentence with a condition within the alternative of another one.
var nestedCondition = regexp.MustCompile(`(?i)\bif\b.*\b(else|otherwise)\b.*\bif\b`)

// TestRemediesAreShort checks the first sentence of each finding's advice: that it is no longer than maxRemedy, with each site counted
// as a short name, and that it nests no conditions.
func TestRemediesAreShort(t *testing.T) {
	seen := map[string]bool{}
	eachAnswer(t, func(name string, rep *report.Report) {
		for i := range rep.Findings {
			f := &rep.Findings[i]
			text := siteInText.ReplaceAllString(f.Remedy, "pkg.Func (file.go:1)")
			if n := utf8.RuneCountInString(text); (n > maxRemedy || nestedCondition.MatchString(text)) && !seen[text] {
				seen[text] = true
				t.Errorf("%s, %s: %d characters, or nested conditions: %s", name, f.Code, n, f.Remedy)
			}
		}
	})
}
