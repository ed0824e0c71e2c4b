// Package rows turns the report of a recording into rows of sums that add: those of many recordings together are those of their
// services.
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
	bucketBits = 3 // 8 latency buckets to a power of two: a quantile is right to 12.5 %
	maxGroups  = 100
	maxSlow    = 20 // slowest requests of a recording
	// OtherLabel is the group of all requests that are of no group of their own, and the label of what has too many values.
	OtherLabel = "(other)"
)

// Labels say where a recording is from.
type Labels struct {
	Service     string `json:"service"`
	Version     string `json:"version"`
	Environment string `json:"environment"`
	Pod         string `json:"pod"`
	Node        string `json:"node"`
}

// Rows are what a store keeps of one recording.
type Rows struct {
	Start        time.Time `json:"At"` // when it begins
	DurationNS   int64
	Requests     int64
	Sums         []Sum
	Findings     []Finding
	SlowRequests []SlowRequest `json:"Slow"`
	// Cause is what most of the time was spent on; with service and hour it is the class of which one recording is kept longest.
	Cause string
}

// A Sum is requests of a group in a bucket of latency: N of them where Cause is empty, else the time that they spent on it.
type Sum struct {
	Group, Cause string
	Bucket       int64 // upper bound in ns, exclusive
	N, NS        int64
}

// LowerBound is the lowest latency in ns of the bucket that has an upper bound.
func LowerBound(upper int64) int64 {
	return loglinear.LowerBound(loglinear.Bucket(upper-1, bucketBits), bucketBits)
}

// A Finding is one of the recording. Problem is the same in all recordings of a service and environment.
type Finding struct {
	Problem                                        string
	Group, Code, Cause, Severity, Title, Site, Fix string
	Requests, WinNS                                int64
}

// A Slow is one of the slowest requests.
type SlowRequest struct {
	Request, Group, Cause, Site, Trace string
	Start                              time.Time `json:"At"`
	NS                                 int64
}

// FromReport returns the rows of a report. at is when the recording begins if the report does not say.
func FromReport(labels Labels, received time.Time, rep *report.Report) *Rows {
	out := &Rows{Start: received, DurationNS: Clamp(rep.Input.DurationNS, maxNS)}
	// A clock that is ahead must not hide what comes after. A time before 1970 may have no nanoseconds of 64 bits.
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
	return out
}

// findingsOf returns one finding for each problem of the report: the first, with what a fix of all would win.
func findingsOf(labels Labels, rep *report.Report) (out []Finding) {
	for i := range rep.Findings {
		f := &rep.Findings[i]
		if f.Severity == report.SeverityInfo || f.Ignored != "" {
			continue
		}
		row := Finding{Group: CleanText(f.Group, 256), Code: CleanText(string(f.Code), 64), Cause: CleanText(string(f.Cause), 64), Severity: CleanText(string(f.Severity), 16),
			Title: CleanText(f.Title, 1024), Site: siteOf(f.Site), Fix: CleanText(f.Fix, 2048)}
		if g := rep.Group(f.Group); g != nil {
			row.Group, row.Requests, row.WinNS = CleanText(g.Name, 256), Clamp(int64(g.Count), maxCount), PredictedWin(f, g)
		}
		row.Problem = row.problemID(labels)
		if j := slices.IndexFunc(out, func(o Finding) bool { return o.Problem == row.Problem }); j >= 0 {
			out[j].WinNS = max(out[j].WinNS, row.WinNS) // the same line by two paths: fixed once
			continue
		}
		out = append(out, row)
	}
	return out
}

func (f *Finding) problemID(l Labels) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{l.Service, l.Environment, f.Group, f.Code, f.Cause, f.Site}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// SetProblemIDs makes the findings those of another environment.
func (r *Rows) SetProblemIDs(l Labels) {
	for i := range r.Findings {
		r.Findings[i].Problem = r.Findings[i].problemID(l)
	}
}

// FoldFindings puts one finding, (other), in place of all of which keep is false. It has the largest gain of them, since the gains of
// findings about the same requests do not add up. It reports whether there were any.
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

// PredictedWin is the time that a fix would win for all requests of a group together: requests times predicted gain. There are two
// bounds for it, and it is the lower one. The prediction knows the gain of three percentiles; a straight line between them is
// too much where a fault meets a few requests only. The finding knows which share of the group's time the cause has; that is
// too much where something else takes the time's place. What has no prediction wins nothing.
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

// siteOf names a line; builds of a service differ in directories.
func siteOf(s *report.Site) string {
	if s == nil {
		return ""
	}
	return CleanText(fmt.Sprintf("%s (%s:%d)", s.Func, path.Base(s.File), s.Line), 1024)
}

// CleanText bounds a text and drops what is no text, also what turns the direction of the texts that follow it on a page.
func CleanText(s string, maxBytes int) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), maxBytes)], ""))
}

// VisitSums yields the rows that add: sums, and how often problems were seen. The recording itself is the problem "".
func (r *Rows) VisitSums(visitSum func(*Sum), visitProblem func(problem string, n, requests, ns int64)) {
	for i := range r.Sums {
		visitSum(&r.Sums[i])
	}
	visitProblem("", 1, r.Requests, r.DurationNS)
	for _, f := range r.Findings {
		visitProblem(f.Problem, 1, f.Requests, f.WinNS)
	}
}
