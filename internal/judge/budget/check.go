package budget

import (
	"cmp"
	"encoding/hex"
	"hash/fnv"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/judge/verify"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Schema is the value of Result.Schema. Fields may be added, never renamed.
const Schema = "whylate.check/v1"

// Kinds of violation.
const (
	KindBudget   = "budget"   // a limit is exceeded
	KindUnknown  = "unknown"  // a limit cannot be judged
	KindGroup    = "no-group" // a limit's group is missing
	KindFinding  = "finding"  // a rule's verdict is too severe
	KindBaseline = "baseline" // slower than the baseline
	KindBack     = "back"     // a fixed finding is found again
)

// A Result is the result of a check.
type Result struct {
	Schema     string      `json:"schema"`
	Input      string      `json:"input"`
	OK         bool        `json:"ok"`
	Checked    int         `json:"checked"` // limits times groups, checked findings, and compared groups
	Violations []Violation `json:"violations"`
	// Notes say why the check is weaker, without a violation.
	Notes []report.Warning `json:"notes"`
}

// A Violation is one broken rule.
type Violation struct {
	// ID is the same in every run. It does not depend on measured values and lines.
	ID       string          `json:"id"`
	Kind     string          `json:"kind"`
	Code     string          `json:"code"` // of the finding; else the kind
	Severity report.Severity `json:"severity"`
	Group    string          `json:"group"`  // its name; "" for the whole report
	Metric   string          `json:"metric"` // as in a budget; "" for findings
	Limit    *float64        `json:"limit"`  // in Unit
	Value    *float64        `json:"value"`
	Unit     string          `json:"unit"` // ns, or share (0..1); "" without a number
	Text     string          `json:"text"` // one sentence, with unescaped names from the report
	Site     *report.Site    `json:"site"` // the site with most of the time
}

// Rules are the rules that Check checks.
type Rules struct {
	Limits []Limit
	// FailOn is the lowest severity of findings that are violations: high, medium or low. "" for none.
	FailOn report.Severity
	// Baseline is an earlier report, or nil. Growth is a violation if its whole interval is above Tolerance (0.05 is 5 %).
	Baseline  *report.Report
	Tolerance float64
	// Ledger contains verdicts of whylate verify, or nil. A finding that a verdict calls fixed is a violation.
	Ledger []verify.Verdict
}

// Check checks a report by rules. Violations are in the order of the rules: limits, findings, findings that returned although the ledger has them as
// fixed, baseline. The notes say what could not be checked.
func Check(rep *report.Report, rules Rules) *Result {
	r := &Result{Schema: Schema, Input: rep.Input.Name, Violations: []Violation{}, Notes: []report.Warning{}}
	if rep.Input.Truncated {
		r.addNote("truncated", truncatedText(rep))
	}
	for i := range rules.Limits {
		r.checkLimit(rep, &rules.Limits[i])
	}
	if rules.FailOn != "" {
		r.checkFindings(rep, rules.FailOn)
	}
	for _, f := range verify.ReturnedFindings(rep, rules.Ledger) {
		r.Checked++
		v := r.findingViolation(rep, f, KindBack)
		v.ID = stableID(KindBack, v.ID)
		v.Text += backText
		r.addViolation(v)
	}
	if rules.Baseline != nil {
		r.checkBaseline(rules.Baseline, rep, rules.Tolerance)
	}
	r.OK = len(r.Violations) == 0
	return r
}

func (r *Result) addNote(code, text string) {
	r.Notes = append(r.Notes, report.Warning{Code: code, Text: text})
}

// addViolation adds a violation; its default code is its kind, its default severity high.
func (r *Result) addViolation(v Violation) {
	v.Code = cmp.Or(v.Code, v.Kind)
	v.Severity = cmp.Or(v.Severity, report.SeverityHigh)
	r.Violations = append(r.Violations, v)
}

// stableID returns a hash of values that do not change with a measurement, so that an id is the same in every run.
func stableID(parts ...string) string {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p + "\x00"))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// checkLimit checks one limit for every group that it concerns. A limit for a named group is violated if its value is unknown.
// A limit for all groups is judged by the groups whose value is known; at least one of these must be of requests for which
// clients wait.
func (r *Result) checkLimit(rep *report.Report, l *Limit) {
	found, judged := false, false
	var unknown []Violation
	groups := rep.Groups
	if l.Stat != "" || l.Band == report.BandAll {
		// What clients see does not depend on which requests show their handler.
		groups = slices.Concat(groups, compare.AllRequests(rep))
	}
	for i := range groups {
		g := &groups[i]
		if l.Group != "" && l.Group != g.ID && l.Group != g.Name && l.Group != words.FuncName(g.Name) {
			continue
		}
		if l.Group == "" && g.Count == 0 {
			// The limit does not name this group, which often is a connection without requests.
			r.addNote("no-requests", noRequestsText(g, l))
			continue
		}
		found = true
		r.Checked++
		v := latencyViolation(g, l)
		if l.Stat == "" {
			v = shareViolation(g, l)
		}
		switch {
		case v == nil:
			judged = judged || g.Role == report.RoleRequests
		case v.Kind == KindUnknown && l.Group == "":
			unknown = append(unknown, *v)
		default:
			r.addViolation(*v)
			judged = true
		}
	}
	for _, v := range unknown {
		if judged {
			r.addNote("not-known", v.Text)
		} else {
			r.addViolation(v)
		}
	}
	if found {
		return
	}
	r.Checked++
	r.addViolation(Violation{ID: stableID(KindGroup, l.Group, l.Metric()), Kind: KindGroup, Group: l.Group, Metric: l.Metric(), Text: noGroupText(rep, l)})
}

// latencyStat returns a group's latency by name, such as "p99" (any other name is the mean; nil if unknown), the band of the requests that determine
// it, and the number of requests that it needs.
func latencyStat(g *report.Group, name string) (ns *int64, band report.BandName, need int) {
	l := &g.LatencyNS
	switch name {
	case "p50":
		return l.P50, report.Band5090, 5
	case "p90":
		return l.P90, report.Band9099, 10
	case "p99":
		return l.P99, report.Band99, 100
	case "p999":
		return l.P999, report.Band99, 1000
	case "max":
		return l.Max, report.Band99, 1
	}
	return l.Mean, report.BandAll, 1
}

// latencyViolation returns a group's violation of a limit of latency; nil if there is none.
func latencyViolation(g *report.Group, l *Limit) *Violation {
	ns, band, need := latencyStat(g, l.Stat)
	if longest := g.LatencyNS.Max; ns == nil && l.Group == "" && longest != nil && *longest <= l.NS && g.Open.OldestNS <= l.NS {
		return nil // no request took longer than the limit, so their number does not matter
	}
	v := Violation{Group: g.Name, Metric: l.Metric(), Limit: new(float64(l.NS)), Unit: "ns"}
	switch {
	case ns == nil:
		v.Kind = KindUnknown
		v.Text = fewText(g, l, need)
	case *ns <= l.NS:
		return nil
	default:
		v.Kind, v.Value = KindBudget, new(float64(*ns))
		c := largestCause(g.Band(band), "")
		if c != nil {
			v.Site = c.Site
		}
		v.Text = latencyText(g, l, *ns, c)
	}
	v.ID = stableID(v.Kind, string(g.Kind), g.Name, v.Metric)
	return &v
}

// shareViolation returns a group's violation of a limit of a cause's share; nil if there is none.
func shareViolation(g *report.Group, l *Limit) *Violation {
	band := g.Band(l.Band)
	v := Violation{Group: g.Name, Metric: l.Metric(), Limit: new(l.Share), Unit: "share"}
	if band == nil && l.Band == report.BandOutliers && g.Count > 0 {
		return nil // there are no outliers, so no violation
	}
	if band == nil || band.Count == 0 {
		v.Kind = KindUnknown
		v.Text = noBandText(g, l)
	} else {
		sum := 0.0
		for i := range band.Causes {
			if c := &band.Causes[i]; isOfFamily(c, l.Cause) {
				sum += c.Share
			}
		}
		if math.IsNaN(sum) || math.IsInf(sum, 0) {
			sum = 1 // reports from JSON have no such share; it does not prove that the limit is kept
		}
		if sum <= l.Share+shareRounding {
			return nil
		}
		v.Kind, v.Value = KindBudget, &sum
		c := largestCause(band, l.Cause)
		if c != nil {
			v.Site = c.Site
		}
		v.Text = shareText(g, l, sum, c)
	}
	v.ID = stableID(v.Kind, string(g.Kind), g.Name, v.Metric)
	return &v
}

// shareRounding is the largest rounding error of a sum of shares: 20% and 10% are 30%.
const shareRounding = 1e-9

// largestCause returns the row of a band with the most time, of a cause or family or, for "", of all causes except "other"; nil if there is none or
// no band.
func largestCause(b *report.Band, cause report.CauseName) *report.Cause {
	if b == nil {
		return nil
	}
	var best *report.Cause
	for i := range b.Causes {
		c := &b.Causes[i]
		if (cause == "" && c.Cause != report.CauseOther || isOfFamily(c, cause)) && (best == nil || c.TotalNS > best.TotalNS) {
			best = c
		}
	}
	return best
}

// checkFindings adds a violation for each finding of severity failOn or worse that is not ignored. A finding of an unknown
// severity counts as the worst.
func (r *Result) checkFindings(rep *report.Report, failOn report.Severity) {
	worst := slices.Index(report.Severities(), failOn)
	for i := range rep.Findings {
		f := &rep.Findings[i]
		r.Checked++
		if f.Ignored != "" || slices.Index(report.Severities(), f.Severity) > worst {
			continue // an unknown severity counts as the worst, so that it is not lost
		}
		r.addViolation(r.findingViolation(rep, f, KindFinding))
	}
}

// findingViolation returns the violation of kind that a finding is, with the finding's id.
func (r *Result) findingViolation(rep *report.Report, f *report.Finding, kind string) Violation {
	v := Violation{ID: f.ID, Kind: kind, Code: string(f.Code), Severity: f.Severity, Site: f.Site}
	for k := range rep.Groups {
		if g := &rep.Groups[k]; f.Group != "" && (g.ID == f.Group || g.Name == f.Group) {
			v.Group = g.Name
		}
	}
	if v.ID == "" {
		fn := ""
		if f.Site != nil {
			fn = f.Site.Func
		}
		v.ID = stableID(KindFinding, string(f.Code), f.Group, fn)
	}
	v.Text = findingText(v.Group, f)
	return v
}

// checkBaseline adds a violation for each group whose requests are slower than in base by more than tolerance, a share. It adds
// notes about groups that moved, vanished or appeared.
func (r *Result) checkBaseline(base, rep *report.Report, tolerance float64) {
	d := compare.Reports(base, rep)
	r.Notes = append(r.Notes, d.Warnings...)
	for _, g := range d.Populations() {
		if g.Moved {
			r.addNote("moved", movedText(g))
			continue
		}
		r.Checked++
		r.checkGrowth(g, tolerance)
	}
	for _, g := range d.Vanished {
		r.addNote("vanished", vanishedText(g.Name, rep))
	}
	for _, g := range d.Appeared {
		r.addNote("appeared", appearedText(g.Name))
	}
}

// checkGrowth adds one violation for a group whose latency grew with evidence by more than tolerance, a share, however many of its numbers show it.
// What cannot be compared is a note.
func (r *Result) checkGrowth(g *compare.Group, tolerance float64) {
	var grown []compare.Number
	v := Violation{ID: stableID(KindBaseline, string(g.Kind), g.Name), Kind: KindBaseline, Group: g.Name, Unit: "ns"}
	for _, n := range g.Numbers() {
		switch {
		case n.Delta == nil && n.Old != nil, n.Name == "mean" && n.Low == nil:
			r.addNote("not-compared", notComparedText(g, n.Name))
		case n.Evidence && float64(*n.Low) > tolerance*float64(*n.Old):
			grown = append(grown, n)
		}
	}
	if len(grown) == 0 {
		return
	}
	first := grown[0]
	v.Metric, v.Limit, v.Value = first.Name, new(float64(*first.Old)*(1+tolerance)), new(float64(*first.New))
	rows := g.Causes
	if first.Name == "p99" && len(g.Tail) > 0 { // only the slowest requests are slower, so their causes explain it
		rows = g.Tail
	}
	var largestRow *compare.Row
	if i := slices.IndexFunc(rows, func(c compare.Row) bool { return c.DeltaNS > 0 && c.Cause != report.CauseOther }); i >= 0 {
		largestRow = &rows[i]
		v.Site = largestRow.Site()
	}
	v.Text = growthText(g, grown, largestRow)
	r.addViolation(v)
}
