package rows

import (
	"fmt"
	"math"

	"github.com/whylate/whylate/internal/explain/capacity"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// A Headroom is by how many times the load of the recorded process can grow until its first limit saturates.
type Headroom struct {
	Times, Low, High float64 // load at the limit, relative to the recorded load; 0 if it is not known
	Limit            string  // kind, function and line
	NotJudged        string  // limits that the recording does not show, and that may be lower
	Reason           string  // why Times is 0
}

// maxTimes bounds a headroom: a process that does nearly nothing has no limit worth a number.
const maxTimes = 1e6

// headroomOf returns the headroom of the recorded process. If the report does not show any, Times is 0 and Reason says why.
func headroomOf(rep *report.Report) (out Headroom) {
	c := rep.Capacity
	if c == nil || !(c.LoadPerS > 0) {
		return Headroom{Reason: "no client waits for a request"}
	}
	requests := math.Round(c.LoadPerS * float64(rep.Input.DurationNS) / 1e9)
	switch {
	case requests < threshold.MedianSample:
		return Headroom{Reason: fmt.Sprintf("too few requests (%.0f) in a recording", max(0, requests))}
	case c.ClosedClients > 0:
		return Headroom{Reason: "each client sends the next request when it has an answer, so the load cannot rise by itself"}
	case len(c.Limits) == 0:
		return Headroom{Reason: "no limit shows", NotJudged: CleanText(capacity.NotJudged(c), maxLimitBytes)}
	}
	first := &c.Limits[0]
	times := func(perSecond float64) float64 {
		if t := perSecond / c.LoadPerS; t > 0 {
			return min(t, maxTimes)
		}
		return 0
	}
	out = Headroom{Times: times(first.SaturatesPerS), Low: times(first.SaturatesLow), High: times(first.SaturatesHigh),
		Limit: CleanText(capacity.LimitName(first), maxLimitBytes), NotJudged: CleanText(capacity.NotJudged(c), maxLimitBytes)}
	if out.Times == 0 {
		out.Reason = "no limit shows"
	}
	return out
}
