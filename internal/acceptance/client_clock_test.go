package acceptance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// A clientRecord holds the requests of the load generator, which runs in another process and timed each request by its own
// clock.
type clientRecord struct {
	Start    time.Time
	Requests []struct {
		Name  string
		Slow  bool
		Start int64  `json:"start_ns"`
		End   int64  `json:"end_ns"`
		Err   string `json:"err"`
	}
}

// judgedRequests explains the trace of a run of lab/truth. It returns the report of the middle of the trace and the latencies,
// by the client's clock, of the requests that ended there: trace and client both have all of these.
func judgedRequests(t *testing.T, rec *testprog.Recorded) (rep *report.Report, o *outcome, all, slow []int64) {
	t.Helper()
	o = outcomeOf(t, rec)
	var client clientRecord
	must.Do(t, json.Unmarshal(rec.Client, &client), "reading what the client saw")
	wholeReport := explainBytes(t, rec.Trace, whylate.Options{Slowest: -1})
	must.True(t, wholeReport.Input.Start != nil, "the report has no start time")
	const margin = 300e6
	from, to := int64(margin), wholeReport.Input.DurationNS-margin
	rep = explainBytes(t, rec.Trace, whylate.Options{Slowest: -1, From: time.Duration(from), To: time.Duration(to)})
	for _, r := range client.Requests {
		must.Equal(t, r.Err, "", "the client")
		if end := int64(client.Start.Add(time.Duration(r.End)).Sub(*wholeReport.Input.Start)); end < from || end >= to {
			continue
		}
		all = append(all, r.End-r.Start)
		if r.Slow {
			slow = append(slow, r.End-r.Start)
		}
	}
	slices.Sort(all)
	slices.Sort(slow)
	return rep, o, all, slow
}

func quantile(sorted []int64, q float64) float64 {
	return float64(sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)])
}

// TestWitness compares request counts and latencies with the client's, for servers whose Ps are not saturated.
func TestWitness(t *testing.T) {
	for _, name := range []string{"waitgroup", "h2-sleep", "grpc-unary"} {
		t.Run(name, func(t *testing.T) {
			if err := judgeClientClock(t, testprog.Service(t, name+"-long")); err != nil {
				t.Error(err)
			}
		})
	}
}

func judgeClientClock(t *testing.T, recs ...*testprog.Recorded) error {
	t.Helper()
	rep, o, all, slow := judgedRequests(t, recs[0])
	var errs []error
	requestCount := 0
	for _, g := range rep.Groups {
		if string(g.Kind) == o.Service.Truth.Kind {
			requestCount += g.Count
		}
	}
	// The response travels between the end in the trace and the client's. At either edge, one request per connection may be on
	// the other side.
	if math.Abs(float64(requestCount-len(all))) > 0.01*float64(len(all))+2 {
		errs = append(errs, fmt.Errorf("%d requests found, the client has %d", requestCount, len(all)))
	}
	g := slowGroup(rep, o)
	if g == nil || g.LatencyNS.P50 == nil {
		return errors.Join(append(errs, errors.New("the slow group is missing"))...)
	}
	for q, reported := range map[float64]*int64{0.5: g.LatencyNS.P50, 0.99: g.LatencyNS.P99} {
		if reported == nil {
			continue // too few requests for a 99th percentile
		}
		if clientLatency := quantile(slow, q); math.Abs(float64(*reported)-clientLatency) > 0.1*clientLatency {
			errs = append(errs, fmt.Errorf("p%g is %v, the client's %v", 100*q, time.Duration(*reported), time.Duration(clientLatency)))
		}
	}
	if g.LatencyNS.P99 == nil && len(slow) >= 200 {
		errs = append(errs, errors.New("no 99th percentile"))
	}
	return errors.Join(errs...)
}

// TestWitnessOfSaturation does the same for servers whose only P is never idle. The runtime notices incoming data only when it
// polls the network, so the client's latency is between the reported one and the reported one plus the poll gap.
func TestWitnessOfSaturation(t *testing.T) {
	for _, name := range []string{"cpu-hogs", "waitgroup", "h2-sleep", "grpc-unary"} {
		t.Run(name, func(t *testing.T) {
			if err := judgeSaturated(t, testprog.Service(t, name+"-saturated")); err != nil {
				t.Error(err)
			}
		})
	}
}

func judgeSaturated(t *testing.T, recs ...*testprog.Recorded) error {
	t.Helper()
	rep, o, _, slow := judgedRequests(t, recs[0])
	g := slowGroup(rep, o)
	if g == nil || g.LatencyNS.P50 == nil || g.PollGapNS.Max == nil || len(slow) < 10 {
		return fmt.Errorf("too few requests: the client has %d", len(slow))
	}
	clientP50, reportedP50, maxPollGap := quantile(slow, 0.5), float64(*g.LatencyNS.P50), float64(*g.PollGapNS.Max)
	if maxPollGap == 0 {
		return errors.New("no poll gap was found")
	}
	t.Logf("ours %v, gap up to %v, the client's %v", time.Duration(reportedP50), time.Duration(maxPollGap), time.Duration(clientP50))
	const tolerance = 0.05 // histogram buckets, and the transport to the client
	if clientP50 < (1-tolerance)*reportedP50 || clientP50 > (1+tolerance)*(reportedP50+maxPollGap) {
		return fmt.Errorf("the client's p50 is %v, ours %v with a gap of at most %v", time.Duration(clientP50), time.Duration(reportedP50), time.Duration(maxPollGap))
	}
	return nil
}
