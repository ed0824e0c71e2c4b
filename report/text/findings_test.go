package text

import (
	"testing"

	"github.com/whylate/whylate/report"
)

func TestDescribeChange(t *testing.T) {
	for change, want := range map[string]string{
		"network@x.F:1 from main.a:2=60%":                                  "if its part were halved",
		"network@x.F:1 from main.a:2=60%, network@x.G:9 from main.a:2=90%": "if its part were halved",
		"sleep@main.f:7=50%":                                               "if that time were halved",
		"sched@main.f:7=50%, sched@main.g=50%":                             "if that time were halved",
		"sched@=50%":                                                       "if that time were halved",
		"sleep@main.f:7=5ms":                                               "with 5ms for each",
		"gc@=gone":                                                         "without it",
		"queue@=50%":                                                       "if that wait were halved",
		"queue@main.f=gone":                                                "if no request queued",
		"sleep@main.f=5ms, sleep@main.g=50%":                               "with sleep@main.f=5ms, sleep@main.g=50%",
		"main.f=50%":                                                       "with main.f=50%",
	} {
		if got := describeChange(change); got != want {
			t.Errorf("%s: %q, want %q", change, got, want)
		}
	}
}

// TestShortenTitle: a long title keeps the complete line that its reader can change, so that titles that differ only in this line
// stay different. It detects a position that is cut in its middle.
func TestShortenTitle(t *testing.T) {
	const short = "requests wait while their own goroutine sleeps at main.load (main.go:5), called from main.get (main.go:9)"
	for title, want := range map[string]string{
		short: short,
		"requests wait while another goroutine syncs to disk in syscall.Fdatasync at fileutil.Fdatasync (sync_linux.go:33), called from wal.(*WAL).sync (wal.go:881)":                                   "requests wait while another goroutine syncs to disk in syscall.Fdatasync at fileutil.Fdatasync, called from wal.(*WAL).sync (wal.go:881)",
		"requests wait for a peer's answer at proto.(*Reader).PeekReplyType (reader.go:95), called from main.(*catalog).product (main.go:27), which the service itself calls repeatedly while it waits": "requests wait for a peer's answer at proto.(*Reader).PeekReplyType, called from main.(*catalog).product (main.go:27), which the service itself calls repeatedly while it waits",
	} {
		if got := shortenTitle(title); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestLatencyChange: a latency that a change does not affect stays as measured, with all its digits.
func TestLatencyChange(t *testing.T) {
	before := int64(8_900_000)
	for _, c := range []struct {
		before *int64
		e      report.Estimate
		want   string
	}{
		{&before, report.Estimate{Est: 8_890_000, Low: 8_890_000, High: 8_890_000}, "stays 8.90ms"},
		{&before, report.Estimate{Est: 4_000_000, Low: 4_000_000, High: 4_000_000}, "8.90ms → 4.00ms"},
		{&before, report.Estimate{Est: 8_890_000, Low: 5_000_000, High: 8_900_000}, "8.90ms → 8.9ms (5ms to 8.9ms)"},
		{nil, report.Estimate{Est: 4_000_000, Low: 4_000_000, High: 4_000_000}, "4.00ms"},
	} {
		if got := latencyChange(c.before, c.e, estimate).text; got != c.want {
			t.Errorf("%+v: %q, want %q", c.e, got, c.want)
		}
	}
}
