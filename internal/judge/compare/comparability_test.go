package compare

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

func TestWarnings(t *testing.T) {
	base := func() *report.Report { return reportOf("a", report.Group{Count: 100}) }
	for code, change := range map[string]func(r *report.Report){
		"different-go":         func(r *report.Report) { r.Input.Go = "1.25" },
		"different-gomaxprocs": func(r *report.Report) { r.Input.GOMAXPROCS = 2 },
		"truncated":            func(r *report.Report) { r.Input.Truncated = true },
		"different-throttling": func(r *report.Report) { r.Runtime.Throttle.Verdict = "own" },
		"different-load":       func(r *report.Report) { r.Groups[0].Count = 200 },
		"":                     func(*report.Report) {},
	} {
		r := base()
		change(r)
		for _, d := range []*Diff{Reports(base(), r), Reports(r, base())} {
			var codes []string
			for _, w := range d.Warnings {
				codes = append(codes, w.Code)
			}
			check.Equal(t, strings.Join(codes, " "), code, "%q: warnings", code)
		}
	}
}
