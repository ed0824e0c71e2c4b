package compare

import (
	"cmp"
	"fmt"

	"github.com/whylate/whylate/report"
)

// minLoadRatio is the smallest ratio of request rates that gives a warning about different loads.
const minLoadRatio = 1.5

// comparabilityWarnings returns the reasons why the two reports may not be comparable: an empty list, not nil, if there is none.
func comparabilityWarnings(old, new *report.Report) []report.Warning {
	list := []report.Warning{}
	warn := func(code, format string, args ...any) {
		list = append(list, report.Warning{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	if a, b := old.Input.Go, new.Input.Go; a != b {
		warn("different-go", "the traces are from different versions of Go, %s and %s: the runtime itself may have changed the result", orUnknown(a), orUnknown(b))
	}
	if a, b := old.Input.GOMAXPROCS, new.Input.GOMAXPROCS; a != b {
		warn("different-gomaxprocs", "GOMAXPROCS was %d and is %d: waits for a CPU and the collector's share change with it", a, b)
	}
	for _, side := range []struct {
		name string
		r    *report.Report
	}{{"old", old}, {"new", new}} {
		if side.r.Input.Truncated {
			warn("truncated", "the %s trace is cut: only its first %.3g s are compared", side.name, float64(side.r.Input.DurationNS)/1e9)
		}
	}
	if a, b := old.Runtime.Throttle.Verdict, new.Runtime.Throttle.Verdict; a != b && (a.HeldBack() || b.HeldBack()) {
		warn("different-throttling", "CPU throttling was %q and is %q", orUnknown(a), orUnknown(b))
	}
	a, b := requestRate(old), requestRate(new)
	if a > 0 && b > 0 && max(a/b, b/a) > minLoadRatio {
		warn("different-load", "the rate of requests was %.3g/s and is %.3g/s: latency depends on it", a, b)
	}
	if short := min(old.Input.DurationNS, new.Input.DurationNS); short < minBlocks*blockNS {
		warn("short", "a recording of %.2g s is too short for intervals: record at least %.2g s, better 10 s", float64(short)/1e9, minBlocks*blockNS/1e9)
	}
	return list
}

func orUnknown[S ~string](s S) S { return cmp.Or(s, "unknown") }

// requestRate returns how many requests of all groups ended per second; 0 if the duration is unknown.
func requestRate(r *report.Report) float64 {
	if r.Input.DurationNS <= 0 {
		return 0
	}
	return float64(inputOf(r).Requests) / (float64(r.Input.DurationNS) / 1e9)
}
