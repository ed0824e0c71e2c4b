package finding

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestReadThresholds checks that limits that are set replace the defaults, and that nonsensical limits are errors.
func TestReadThresholds(t *testing.T) {
	got, err := ReadThresholds(strings.NewReader("# ours\n\nhigh share=50% slow=20ms\nlow few=20ms all=500us\n"), "t")
	want := Thresholds()
	want[0].Share, want[0].SlowNS, want[2].RareNS, want[2].AllNS = 0.5, 20e6, 20e6, 500e3
	check.True(t, err == nil && len(got) == 3 && got[0] == want[0] && got[1] == want[1] && got[2] == want[2],
		"%+v, %v, want %+v", got, err, want)
	for _, c := range []struct{ text, want string }{
		{"loud share=1%", "t:1: want a severity"},
		{"high", "t:1: want a severity"},
		{"\nhigh share=0.3", "t:2: \"share=0.3\": a share is a percentage"},
		{"high share=NaN%", "a share is a percentage"},
		{"high slow=10", "want share=20%"},
		{"high slow=-1ms", "want share=20%"},
		{"high p99=1ms", "want share=20%"},
		{"high slow=1ms", "high asks for less than medium"},
		{"high share=100.1%", "a share is a percentage"},
		{"high share=-0.1%", "a share is a percentage"},
		// A limit may equal that of the next lower severity.
		{"high share=10%", ""}, {"high share=9.9%", "high asks for less than medium"},
		{"high all=1ms", ""}, {"high all=999999ns", "high asks for less than medium"},
		{"high slow=3ms", ""}, {"high slow=2999999ns", "high asks for less than medium"},
		{"high few=50ms", ""}, {"high few=49999999ns", "high asks for less than medium"},
		{"medium share=5% all=250us slow=1ms few=10ms", ""}, {"medium few=9ms", "medium asks for less than low"},
		{"low share=0% all=0s slow=0s few=0s", ""}, {"high share=100%", ""},
	} {
		if _, err := ReadThresholds(strings.NewReader(c.text), "t"); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}

// TestDecidedBy checks that a finding contains the threshold that decided its severity, and that other thresholds
// change it.
func TestDecidedBy(t *testing.T) {
	in := &Input{Report: oneGroup(report.Cause{Cause: "sleep", Call: "time.Sleep", Site: site("poll@3"), TotalNS: ms(2000)}), Process: &process.Stats{}}
	f := findAll(t, in, rulesWithPrefix("WL2001"))[0]
	if d := f.Decided; f.Severity != report.SeverityHigh || d == nil || *d != (report.Decided{Requests: report.DecidedBySlow, Share: 1, LeastShare: 0.3, NS: ms(20), LeastNS: ms(10)}) {
		t.Errorf("%s by %+v", f.Severity, d)
	}
	in.Thresholds = Thresholds()
	in.Thresholds[0].SlowNS, in.Thresholds[0].AllNS = ms(50), ms(50)
	f = findAll(t, in, rulesWithPrefix("WL2001"))[0]
	if d := f.Decided; f.Severity != report.SeverityMedium || d == nil || d.LeastNS != ms(3) {
		t.Errorf("with higher thresholds: %s by %+v", f.Severity, d)
	}
}
