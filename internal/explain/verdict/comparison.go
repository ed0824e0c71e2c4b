package verdict

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// maxRows is how many groups a comparison has.
const maxRows = 5

// A GroupRow is a line of the comparison of groups: the largest cause of a group's slow requests, and the finding about the group
// to act on first.
type GroupRow struct {
	Group   string           `json:"group"`
	Cause   report.CauseName `json:"cause"`
	Text    string           `json:"text"`              // the cause with its share and line
	Finding string           `json:"finding,omitempty"` // its id; "" if there is none above info
	slowNS  int64
	largest *report.VerdictCause
}

// CompareGroups returns the group of the first verdict and those that have the same largest cause at the same line, or whose slow requests
// take between half and twice as long. It returns nil if there are no such others: then the verdict says it all.
func CompareGroups(r *report.Report, verdicts []report.Verdict) (rows []GroupRow) {
	if len(verdicts) == 0 {
		return nil
	}
	var allNS int64
	unawaited := unawaitedJobs(r)
	findings, _ := SplitFindings(r, verdicts)
	for i := range r.Findings { // duplicates in other groups, and lesser ones
		findings = append(findings, &r.Findings[i])
	}
	for i := range r.Groups {
		if r.Groups[i].Role == report.RoleRequests {
			allNS += r.Groups[i].TotalNS
		}
	}
	for _, g := range groupsInOrder(r, firstFault(r, unawaited), unawaited) {
		if len(rows) == maxRows {
			break
		}
		if g.Count == 0 || g.Kind == report.KindRun || unawaited[g.ID] || g.ID != verdicts[0].Group && float64(g.TotalNS) < threshold.MinorShare*float64(allNS) {
			continue
		}
		if row, ok := newRow(r, g, verdicts, findings); ok && (g.ID == verdicts[0].Group || len(rows) > 0 && rows[0].isLike(&row)) {
			rows = append(rows, row)
		}
	}
	if len(rows) < 2 {
		return nil
	}
	return rows
}

// newRow returns the row of a group; false if its requests have no cause. findings are those of the report in their order of action.
func newRow(r *report.Report, g *report.Group, verdicts []report.Verdict, findings []*report.Finding) (row GroupRow, ok bool) {
	i := slices.IndexFunc(verdicts, func(v report.Verdict) bool { return v.Group == g.ID })
	var causes []report.VerdictCause
	if i >= 0 {
		causes = verdicts[i].Causes
	} else if causes = Causes(r, g, g.Tail()); len(causes) > 0 {
		nameCause(&causes[0], r, g)
	}
	latency := g.SenderLatency()
	if slow := cmp.Or(latency.P99, latency.Max); len(causes) > 0 && slow != nil {
		c := &causes[0]
		row = GroupRow{Group: g.ID, Cause: c.Cause, Text: words.Percent(c.Share) + " " + c.Words, slowNS: *slow, largest: c}
		if position := names.Position(causeLine(c)); position != "" {
			row.Text += " at " + position
		}
		if k := slices.IndexFunc(findings, func(f *report.Finding) bool {
			return f.Group == g.ID && f.Ignored == "" && f.Severity != report.SeverityInfo
		}); k >= 0 {
			row.Finding = findings[k].ID
		}
		return row, true
	}
	return row, false
}

// isLike reports whether two groups have the same largest cause at the same line, or are about equally slow.
func (a *GroupRow) isLike(b *GroupRow) bool {
	if 2*min(a.slowNS, b.slowNS) >= max(a.slowNS, b.slowNS) {
		return true
	}
	x, y := a.largest, b.largest
	return x.Cause == y.Cause && (x.Queue == nil) == (y.Queue == nil) && causeLine(x) != nil && causeLine(x).LineKey() == causeLine(y).LineKey()
}

// causeLine returns the line of the service at which most of a cause's time passes, or requests queue; nil if it is not known.
func causeLine(c *report.VerdictCause) *report.Site {
	if c.Queue != nil && len(c.Queue.Waits) > 0 {
		return c.Queue.Waits[0].Site.OwnLine()
	}
	if len(c.Sites) > 0 {
		return c.Sites[0].Site.OwnLine()
	}
	return nil
}
