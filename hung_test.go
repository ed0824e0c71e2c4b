package whylate_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// TestHung: five requests of a route wait for a lock that is not given back, three of them since before the trace; two of many
// of another wait on a channel; and two clients watch a stream in which nothing happens, which is as it should be. Each is
// told as what it is, the largest harm first, and only those that hang are late. It would catch requests without a latency
// that nothing reports, and a quiet stream that alarms.
func TestHung(t *testing.T) {
	data, _ := testprog.Record(t, "hung")
	rep := explainBytes(t, data, whylate.Options{})
	type hang struct {
		severity report.Severity
		site     string
		line     int
		n        float64
	}
	var got []hang
	late := map[string]bool{}
	for i := range rep.Findings {
		if f := &rep.Findings[i]; f.Code == report.RuleHung {
			got = append(got, hang{f.Severity, f.Site.Func, f.Site.Line, evidenceOf(f, "requests that stood there when the trace ended")})
			if ns := evidenceOf(f, "in this very wait, the longest"); ns < 0.9*float64(rep.Input.DurationNS) {
				t.Errorf("%s: for %.0f ns only", f.Title, ns)
			}
		}
	}
	want := []hang{{report.SeverityHigh, "main.(*depot).transfer", 31, 5}, {report.SeverityMedium, "main.(*depot).item", 39, 2}, {report.SeverityInfo, "main.(*depot).watch", 47, 2}}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("hung are %+v, want %+v", got, want)
			break
		}
	}
	if rep.Findings[0].Code != report.RuleHung {
		t.Errorf("the first finding is %s", describeFinding(&rep.Findings[0]))
	}
	for _, v := range rep.Verdict {
		late[rep.Group(v.Group).Name] = v.Open != nil && v.Open.Late
	}
	if !late["main.(*depot).transfer"] || !late["main.(*depot).item"] || late["main.(*depot).watch"] {
		t.Errorf("late are %v", late)
	}
	var out bytes.Buffer
	must.Do(t, text.Write(&out, rep, text.Options{Width: 100}))
	if said := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(said, "5 requests hang: they stand waiting for a lock at main.(*depot).transfer (hung.go:31)") {
		t.Errorf("the text does not say who hangs:\n%s", out.String())
	}
}
