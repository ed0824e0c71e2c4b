// Package rows converts the report of one recording into rows that can be added. The sums of the rows of many recordings
// describe the service: requests and time by group, cause and latency bucket, and the predicted win of each finding.
package rows

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/report"
)

const (
	bucketBits = 3 // 8 latency buckets for each power of two: a quantile is exact to 12.5 %
	maxGroups  = 100
	maxSlow    = 20 // slowest requests of a recording
	// OtherLabel replaces the name of a group, and the value of a label, when there are too many different ones.
	OtherLabel = "(other)"
)

// Labels identify the process that a recording comes from.
type Labels struct {
	Service     string `json:"service"`
	Version     string `json:"version"`
	Environment string `json:"environment"`
	Pod         string `json:"pod"`
	Node        string `json:"node"`
}

// Rows are what a store keeps of one recording. The tags keep the names of fields in stored rows.
type Rows struct {
	Start        time.Time `json:"At"` // of the recording
	DurationNS   int64
	Requests     int64
	Sums         []Sum
	Findings     []Finding
	SlowRequests []SlowRequest `json:"Slow"`
	// Cause is the cause with most time. Retention keeps one recording of each service, cause and hour longest.
	Cause    string
	Headroom Headroom
}

// A Sum belongs to one group and one latency bucket. If Cause is empty, N is the number of requests. Otherwise NS is the time
// that these requests spent on Cause.
type Sum struct {
	Group, Cause string
	Bucket       int64 // upper bound in ns, exclusive
	N, NS        int64
}

// LowerBound returns the lower bound in ns of the latency bucket with the given upper bound.
func LowerBound(upper int64) int64 {
	return loglinear.LowerBound(loglinear.Bucket(upper-1, bucketBits), bucketBits)
}

// A SlowRequest is one of the slowest requests of the recording.
type SlowRequest struct {
	Request, Group, Cause, Site, Trace string
	Start                              time.Time `json:"At"`
	NS                                 int64
}

// FromReport returns the rows of a report: sums in order, the slowest requests first, findings, and headroom, with all numbers and texts bounded.
// They begin at received if the report has no start, or one after received.
func FromReport(labels Labels, received time.Time, rep *report.Report) *Rows {
	out := &Rows{Start: received, DurationNS: Clamp(rep.Input.DurationNS, maxNS)}
	// A start after received, by a wrong clock, would hide the recordings that come later. A time before 1970 may not fit in 64
	// bits of nanoseconds.
	if rep.Input.Start != nil && !rep.Input.Start.After(received) && rep.Input.Start.Unix() > 0 {
		out.Start = *rep.Input.Start
	}
	groups := slices.Clone(rep.Groups)
	slices.SortStableFunc(groups, func(a, b report.Group) int { return cmp.Compare(b.TotalNS, a.TotalNS) })
	sums, causes := make(map[Sum]*Sum), make(map[string]int64)
	add := func(group, cause string, upper, n, ns int64) {
		key := Sum{Group: group, Cause: cause, Bucket: loglinear.LowerBound(loglinear.Bucket(Clamp(upper, MaxSum)-1, bucketBits)+1, bucketBits)}
		s := sums[key]
		if s == nil {
			s = &Sum{Group: key.Group, Cause: key.Cause, Bucket: key.Bucket}
			sums[key] = s
		}
		s.N = Clamp(AddClamped(s.N, n), maxCount)
		s.NS = Clamp(AddClamped(s.NS, ns), maxNS)
		causes[cause] = AddClamped(causes[cause], ns)
	}
	for i := range groups {
		g := &groups[i]
		name := cmp.Or(CleanText(g.Name, 256), "(unnamed)")
		if i >= maxGroups {
			name = OtherLabel
		}
		for j, b := range g.Histogram {
			add(name, "", b[0], b[1], 0)
			out.Requests = Clamp(AddClamped(out.Requests, b[1]), maxCount)
			for cause, ns := range g.HistogramCauses {
				if j < len(ns) && ns[j] != 0 {
					add(name, CleanText(string(cause), 64), b[0], 0, ns[j])
				}
			}
		}
		for _, r := range g.Slowest {
			s := SlowRequest{Request: CleanText(r.ID, 64), Group: name, Trace: CleanText(cmp.Or(r.TraceID, r.DatadogSpanID), 64), Start: out.Start.Add(time.Duration(r.StartNS)), NS: r.LatencyNS}
			var longest int64
			for _, segment := range r.Segments {
				if segment.DurationNS > longest {
					longest, s.Cause, s.Site = segment.DurationNS, CleanText(string(segment.Cause), 64), siteOf(segment.Site)
				}
			}
			out.SlowRequests = append(out.SlowRequests, s)
		}
	}
	for _, s := range sums {
		out.Sums = append(out.Sums, *s)
	}
	slices.SortFunc(out.Sums, func(a, b Sum) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Cause, b.Cause), cmp.Compare(a.Bucket, b.Bucket))
	})
	slices.SortStableFunc(out.SlowRequests, func(a, b SlowRequest) int { return cmp.Compare(b.NS, a.NS) })
	out.SlowRequests = out.SlowRequests[:min(len(out.SlowRequests), maxSlow)]
	delete(causes, "")
	for cause, ns := range causes {
		if out.Cause == "" || ns > causes[out.Cause] || ns == causes[out.Cause] && cause < out.Cause {
			out.Cause = cause
		}
	}
	out.Findings = findingsOf(labels, rep)
	out.Headroom = headroomOf(rep)
	return out
}

// VisitSums calls visitSum for each sum, then visitProblem for the recording itself, as the problem "" with its requests and duration, and for each
// finding, with its requests and win. n is 1, the number of recordings; ns is a duration.
func (r *Rows) VisitSums(visitSum func(*Sum), visitProblem func(problem string, n, requests, ns int64)) {
	for i := range r.Sums {
		visitSum(&r.Sums[i])
	}
	visitProblem("", 1, r.Requests, r.DurationNS)
	for _, f := range r.Findings {
		visitProblem(f.Problem, 1, f.Requests, f.WinNS)
	}
}
