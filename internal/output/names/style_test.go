package names

import (
	"testing"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/report"
)

// TestStyles: on a terminal, lost time never has the style of computing time, and only the severity high is red.
func TestStyles(t *testing.T) {
	for _, c := range report.Causes() {
		if got := CauseStyle(c); (got == termtext.Green) != (c == report.CauseCPU) || got == termtext.Plain {
			t.Errorf("%s is shown as %q", c, got)
		}
	}
	for _, s := range report.Severities() {
		if got := SeverityStyle(s); (got == termtext.BoldRed) != (s == report.SeverityHigh) || (got == termtext.Dim) == s.IsMajor() {
			t.Errorf("%s is shown as %q", s, got)
		}
	}
}
