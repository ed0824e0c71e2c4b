package finding

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestDescribePolling: a goroutine that sleeps polls; one that waits for a timer between its polls does both.
func TestDescribePolling(t *testing.T) {
	for _, c := range []struct{ call, function, want string }{
		{"time.Sleep", "main.get", "requests wait while their own goroutine polls at main.get (main.go:7) every 10ms for an event that comes after 50ms"},
		{"time.Sleep", "main.sleeps at", "requests wait while their own goroutine polls at main.sleeps at (main.go:7) every 10ms for an event that comes after 50ms"},
		{"runtime.selectgo", "main.get", "requests wait while their own goroutine waits for a timer or ticker at main.get (main.go:7) every 10ms for an event that comes after 50ms"},
	} {
		route := &causeRoute{Cause: &report.Cause{Cause: report.CauseSleep, Call: c.call, Site: &report.Site{Func: c.function, File: "/src/main.go", Line: 7}}}
		var v Verdict
		describePolling(&Input{}, &v, route, &predict.Poll{Pauses: 5, PauseNS: 10e6, TotalNS: 50e6})
		check.Equal(t, v.Title, c.want, "%s", c.call)
	}
}
