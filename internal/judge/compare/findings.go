package compare

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/report"
)

// A FindingRef is a finding that only one of the reports has.
type FindingRef struct {
	ID       string          `json:"id"`
	Code     report.RuleCode `json:"code"`
	Severity report.Severity `json:"severity"`
	Title    string          `json:"title"`
	Group    string          `json:"group"` // its name
	Share    float64         `json:"share"`
}

// onlyIn returns the findings of r of which counterpart has none of the same fault (Finding.SameFault), not even an ignored one
// or one of another group: the most severe first, without ignored ones and those of severity info. It is not nil, so that the
// JSON has a list.
func onlyIn(r, counterpart *report.Report) []FindingRef {
	list := []FindingRef{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Ignored != "" || f.Severity == report.SeverityInfo || slices.ContainsFunc(counterpart.Findings, func(o report.Finding) bool { return o.SameFault(f) }) {
			continue
		}
		name := f.Group
		if g := r.Group(f.Group); g != nil {
			name = g.Name
		}
		list = append(list, FindingRef{f.ID, f.Code, f.Severity, f.Title, name, f.Share})
	}
	slices.SortStableFunc(list, func(a, b FindingRef) int {
		return cmp.Compare(slices.Index(report.Severities(), a.Severity), slices.Index(report.Severities(), b.Severity))
	})
	return list
}
