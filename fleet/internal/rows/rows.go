// Package rows converts the report of one recording into rows that can be added. The sums of the rows of many recordings
// describe the service: requests and time by group, cause and latency bucket, and the predicted win of each finding.
package rows

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

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

// A Finding is a finding of the recording. Problem is its id, which is equal in all recordings of a service and environment.
type Finding struct {
	Problem                                        string
	Group, Code, Cause, Severity, Title, Site, Fix string
	Requests, WinNS                                int64
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

// findingsOf returns the first finding of each problem, without ignored ones and those of severity info. If a problem has several, its win is the
// largest, as one fix removes all of them.
func findingsOf(labels Labels, rep *report.Report) (out []Finding) {
	for i := range rep.Findings {
		f := &rep.Findings[i]
		if f.Severity == report.SeverityInfo || f.Ignored != "" {
			continue
		}
		row := findingRow(labels, rep, f)
		if j := slices.IndexFunc(out, func(o Finding) bool { return o.Problem == row.Problem }); j >= 0 {
			out[j].WinNS = max(out[j].WinNS, row.WinNS) // two paths to the same line: one fix
			continue
		}
		out = append(out, row)
	}
	return out
}

// findingRow returns the row of a report's finding: its texts shortened and cleaned, and the count of requests and predicted
// win of its group. Labels and finding together determine the row's Problem.
func findingRow(labels Labels, rep *report.Report, f *report.Finding) Finding {
	row := Finding{Group: CleanText(f.Group, 256), Code: CleanText(string(f.Code), 64), Cause: CleanText(string(f.Cause), 64), Severity: CleanText(string(f.Severity), 16),
		Title: CleanText(f.Title, 1024), Site: siteOf(f.Site), Fix: CleanText(f.Fix, 2048)}
	if g := rep.Group(f.Group); g != nil {
		row.Group, row.Requests, row.WinNS = CleanText(g.Name, 256), Clamp(int64(g.Count), maxCount), PredictedWin(f, g)
	}
	row.Problem = row.problemID(labels)
	return row
}

// FindProblem returns the finding of a report that a problem is of, nil if there is none.
func FindProblem(labels Labels, rep *report.Report, problem string) *report.Finding {
	for i := range rep.Findings {
		if row := findingRow(labels, rep, &rep.Findings[i]); row.Problem == problem {
			return &rep.Findings[i]
		}
	}
	return nil
}

// problemID returns the id of a problem: a hash of the service, environment, group, code, cause and site. It is equal in all
// recordings.
func (f *Finding) problemID(l Labels) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{l.Service, l.Environment, f.Group, f.Code, f.Cause, f.Site}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// SetProblemIDs computes the ids of problems again, after the environment has changed.
func (r *Rows) SetProblemIDs(l Labels) {
	for i := range r.Findings {
		r.Findings[i].Problem = r.Findings[i].problemID(l)
	}
}

// FoldFindings replaces all findings for which keep returns false by one, (other). Its win is the largest of theirs: wins of
// findings about the same requests do not add up. It reports whether it replaced any.
func (r *Rows) FoldFindings(service string, keep func(*Finding) bool) bool {
	overflow := Finding{Group: OtherLabel, Code: OtherLabel, Severity: string(report.SeverityLow), Title: "more findings than are kept of a service",
		Fix: "Fix the other findings of the service: new ones are kept when earlier ones are no longer seen"}
	overflow.Problem = overflow.problemID(Labels{Service: service})
	var keptFindings []Finding
	for i := range r.Findings {
		if f := &r.Findings[i]; keep(f) {
			keptFindings = append(keptFindings, *f)
		} else {
			overflow.Requests, overflow.WinNS = max(overflow.Requests, f.Requests), max(overflow.WinNS, f.WinNS)
		}
	}
	if len(keptFindings) == len(r.Findings) {
		return false
	}
	r.Findings = append(keptFindings, overflow)
	return true
}

// PredictedWin returns the time in ns that a fix would save for all requests of a group together. It is the smaller of two upper
// bounds:
//   - The prediction has the gain at the median, the 99th percentile and the maximum. Linear interpolation between them overestimates a
//     fault that affects few requests.
//   - The finding has the cause's share of the group's time, which overestimates the gain if another wait takes its place.
//
// Without a prediction the win is 0.
func PredictedWin(f *report.Finding, g *report.Group) int64 {
	p := f.Predicted
	if p == nil {
		return 0
	}
	gain := func(before *int64, after int64) float64 {
		if before == nil {
			return 0
		}
		return max(0, float64(*before)-float64(after))
	}
	medianGain, p99Gain := gain(p.WasP50NS, p.P50NS.Est), gain(p.WasP99NS, p.P99NS.Est)
	maxGain := p99Gain
	if p.MaxNS != nil {
		maxGain = max(p99Gain, gain(p.WasMaxNS, p.MaxNS.Est))
	}
	meanGain := 0.5*medianGain + 0.49*(medianGain+p99Gain)/2 + 0.01*(p99Gain+maxGain)/2
	return clampFloat(min(meanGain*float64(g.Count), f.Share*float64(g.TotalNS)), maxNS)
}

// siteOf returns a site as "function (file:line)"; "" for nil. It drops the directory, which differs between builds of a service.
func siteOf(s *report.Site) string {
	if s == nil {
		return ""
	}
	return CleanText(fmt.Sprintf("%s (%s:%d)", s.Func, path.Base(s.File), s.Line), 1024)
}

// CleanText truncates a text to maxBytes and removes invalid UTF-8, control characters, and characters that change the writing
// direction of a page.
func CleanText(s string, maxBytes int) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), maxBytes)], ""))
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
