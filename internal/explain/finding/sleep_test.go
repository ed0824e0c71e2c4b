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
		{"time.Sleep", "main.get", "requests wait while their own goroutine polls at main.get (main.go:7) every 10ms for an event that comes after 50ms on average"},
		{"time.Sleep", "main.sleeps at", "requests wait while their own goroutine polls at main.sleeps at (main.go:7) every 10ms for an event that comes after 50ms on average"},
		{"runtime.selectgo", "main.get", "requests wait while their own goroutine waits for a timer or ticker at main.get (main.go:7) every 10ms for an event that comes after 50ms on average"},
	} {
		route := &causeRoute{Cause: &report.Cause{Cause: report.CauseSleep, Call: c.call, Site: &report.Site{Func: c.function, File: "/src/main.go", Line: 7}}}
		var v Verdict
		rewriteForPolling(&Input{}, &v, route, &predict.Pauses{IsPoll: true, Number: 5, EachNS: 10e6, TotalNS: 50e6})
		check.Equal(t, v.Title, c.want, "%s", c.call)
	}
}

// TestSleepAdvice: a pause that is no part of a poll is not called one.
func TestSleepAdvice(t *testing.T) {
	for _, c := range []struct {
		number float64
		want   string
	}{
		{1, "leave the pause out or shorten it: each request sleeps there once, for 5ms|; if it waits for an event, wait for that on a channel or sync.Cond"},
		{2.9, "leave the pauses out or shorten them: each request sleeps there 3 times, 5ms each|; if they wait for an event, wait for that on a channel or sync.Cond"},
	} {
		check.Equal(t, sleepAdvice(&predict.Pauses{Number: c.number, EachNS: 5e6}), c.want, "%g pauses", c.number)
	}
}
