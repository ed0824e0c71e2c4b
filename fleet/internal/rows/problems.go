package rows

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/whylate/whylate/report"
)

// A Finding is a finding of the recording. Problem is its id, which is equal in all recordings of a service and environment.
type Finding struct {
	Problem                                        string
	Group, Code, Cause, Severity, Title, Site, Fix string
	Requests, WinNS                                int64
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

// siteOf returns a site as "function (file:line)"; "" for nil. It drops the directory, which differs between builds of a service.
func siteOf(s *report.Site) string {
	if s == nil {
		return ""
	}
	return CleanText(fmt.Sprintf("%s (%s:%d)", s.Func, path.Base(s.File), s.Line), 1024)
}
