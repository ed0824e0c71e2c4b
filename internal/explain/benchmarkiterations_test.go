package explain

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestIterations divides the runs of a report by a number and by the lines that benchmarks printed.
func TestIterations(t *testing.T) {
	const printed = "goos: linux\nBenchmarkSum-2 \t      40\t  34123456 ns/op\t 12 B/op\nBenchmarkSort/big-2  7  900 ns/op\nPASS\n"
	run := func(name string) *report.Group { return &report.Group{Kind: report.KindRun, Name: name, TotalNS: 4e6} }
	for _, c := range []struct {
		text  string
		group *report.Group
		want  report.Iterations
	}{
		{"40", run("main.main"), report.Iterations{Count: 40, EachNS: 1e5}},
		{"40", &report.Group{Kind: report.KindLoop, Name: "main.main"}, report.Iterations{}},
		{printed, run("example.org/x/sums.BenchmarkSum"), report.Iterations{Count: 40, EachNS: 34123456}},
		{printed, run("sums.BenchmarkSort.func1"), report.Iterations{Count: 7, EachNS: 900}},
		{printed, run("sums.BenchmarkSummary"), report.Iterations{}},
		{printed, run("main.main"), report.Iterations{}},
	} {
		list := must.Have(ParseIterations(c.text))(t)
		var got report.Iterations
		if it := (&Options{Iterations: list}).iterationsOf(c.group); it != nil {
			got = *it
		}
		check.Equal(t, got, c.want, "%s with %q", c.group.Name, c.text)
	}
	for _, text := range []string{"", "0", "-3", "many", "PASS"} {
		if _, err := ParseIterations(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
