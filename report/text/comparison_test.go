package text_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// TestComparison: a table has a line for each of several equally slow groups, in place of their own verdicts.
func TestComparison(t *testing.T) {
	r := &report.Report{Findings: []report.Finding{{ID: "1", Code: report.RuleSleep, Severity: report.SeverityInfo, Group: "a"}, {ID: "2", Code: report.RuleSleep, Severity: report.SeverityLow, Group: "b"}}}
	for _, name := range []string{"a", "b", "c"} {
		ns := int64(len(r.Groups)+5) * 1e6
		latency := report.Latency{P50: &ns, Max: &ns}
		r.Groups = append(r.Groups, report.Group{ID: name, Name: "main." + name, Named: true, Kind: report.KindHTTP1, Count: 100, TotalNS: 100 * ns, LatencyNS: latency, Bands: []report.Band{{Band: report.BandAll, Count: 100, ToNS: ns,
			Causes: []report.Cause{{Cause: report.CauseSleep, Site: &report.Site{Func: "main." + name, File: "main.go", Line: 7}, TotalNS: 100 * ns, Share: 1, Requests: 100}}}}})
	}
	var out strings.Builder
	must.Do(t, text.Write(&out, r, text.Options{Width: 100}))
	check.Equal(t, strings.Count(out.String(), "spent on average"), 1, "%s", out.String())
	check.True(t, strings.Contains(out.String(), `
         groups  requests        p50        p99  most of the slow ones                       change
         main.a       100     5.00ms max 5.00ms  100% asleep at main.go:7                    -
         main.b       100     6.00ms max 6.00ms  100% asleep at main.go:7                    WL2001
         main.c       100     7.00ms max 7.00ms  100% asleep at main.go:7                    -
`), "%s", out.String())
}
