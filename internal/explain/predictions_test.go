package explain

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestAdviceFor: a goal is searched with the values of what findings advise, whatever their text is.
func TestAdviceFor(t *testing.T) {
	want := []predict.Change{predict.Slots("main.go:7", 5), predict.Remove(report.CauseSleep, "main.go:9")}
	finding := report.Finding{Group: "g", Severity: report.SeverityHigh}
	for _, change := range want {
		data := change.Data()
		data.Text = "in words"
		finding.Changes = append(finding.Changes, data)
	}
	other, info := finding, finding
	other.Group, info.Severity = "h", report.SeverityInfo
	got := adviceFor(&report.Group{ID: "g"}, []report.Finding{other, info, finding})
	check.True(t, len(got) == 1 && slices.Equal(got[0], want), "%+v, want only %+v", got, want)
}

func TestSubsets(t *testing.T) {
	got := subsets(0, 4, 2)
	want := [][]int{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}
	check.True(t, slices.EqualFunc(got, want, slices.Equal), "%v", got)
	for n, k := range map[int]int{3: 3, 8: 1} {
		if got := subsets(0, n, k); len(got) != map[int]int{3: 1, 8: 8}[n] {
			t.Errorf("%d of %d: %v", k, n, got)
		}
	}
	if got := subsets(0, 2, 3); len(got) != 0 {
		t.Errorf("three of two: %v", got)
	}
}

// TestLongestShare: requests make all their calls in one wait, or some while they hand over work and the others at the end. The longest of all
// remains. It is that of each request if half of them wait at another line.
func TestLongestShare(t *testing.T) {
	line, secondLine := &report.Site{Func: "main.ask", File: "main.go", Line: 7}, &report.Site{Func: "main.other", File: "main.go", Line: 9}
	for name, c := range map[string]struct {
		calls []queues.PeerCalls
		want  float64
	}{
		"one wait":      {[]queues.PeerCalls{{Site: line, Requests: 10, TotalNS: 900, LongestNS: 300}, {Site: secondLine, Requests: 10, TotalNS: 100, LongestNS: 100}}, 1. / 3},
		"two waits":     {[]queues.PeerCalls{{Site: line, Requests: 10, TotalNS: 600, LongestNS: 280}, {Site: line, Requests: 10, TotalNS: 300, LongestNS: 300}}, 1. / 3},
		"two halves":    {[]queues.PeerCalls{{Site: line, Requests: 5, TotalNS: 450, LongestNS: 150}, {Site: line, Requests: 5, TotalNS: 450, LongestNS: 150}}, 1. / 3},
		"one goroutine": {[]queues.PeerCalls{{Site: line, Requests: 10, AnswerNS: 900, LongestNS: 300}}, 1. / 3},
	} {
		check.Equal(t, longestShare(c.calls, &c.calls[0], &report.Group{Count: 10}), c.want, "%s", name)
	}
}
