package budget

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/judge/verify"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Schema is the value of Result.Schema. Fields may be added, never renamed.
const Schema = "whylate.check/v1"

// Kinds of violation.
const (
	KindBudget   = "budget"   // a limit is exceeded
	KindUnknown  = "unknown"  // a limit cannot be judged
	KindGroup    = "no-group" // what a limit is about is not there
	KindFinding  = "finding"  // a rule's verdict is too severe
	KindBaseline = "baseline" // slower than the baseline
	KindBack     = "back"     // a finding that was mended is back
)

// A Result is what a check found.
type Result struct {
	Schema     string      `json:"schema"`
	Input      string      `json:"input"`
	OK         bool        `json:"ok"`
	Checked    int         `json:"checked"` // limits times groups, findings looked at, and groups compared
	Violations []Violation `json:"violations"`
	// Notes are what weakens the check without being a violation.
	Notes []report.Warning `json:"notes"`
}

// A Violation is one broken promise.
type Violation struct {
	// ID is the same from run to run, whatever the measured values and the lines are.
	ID       string          `json:"id"`
	Kind     string          `json:"kind"`
	Code     string          `json:"code"` // of the finding; else the kind
	Severity report.Severity `json:"severity"`
	Group    string          `json:"group"`  // its name; "" for the whole report
	Metric   string          `json:"metric"` // as in a budget; "" for findings
	Limit    *float64        `json:"limit"`  // in Unit
	Value    *float64        `json:"value"`
	Unit     string          `json:"unit"` // ns, or share (0..1); "" where there is no number
	Text     string          `json:"text"` // one sentence; names in it are as they are in the report
	Site     *report.Site    `json:"site"` // where most of it comes from
}

// Rules say what is to be held.
type Rules struct {
	Limits []Limit
	// FailOn is the least severity of findings that are violations: high, medium or low. "" for none.
	FailOn report.Severity
	// Baseline is an earlier report, or nil. Growth counts when all of its interval lies beyond Tolerance (0.05 is 5 %).
	Baseline  *report.Report
	Tolerance float64
	// Ledger holds verdicts of whylate verify, or nil. A finding that one of them calls mended is a violation.
	Ledger []verify.Verdict
}

// Check holds a report against rules. Violations come in the order of the rules: limits, findings, baseline.
func Check(rep *report.Report, rules Rules) *Result {
	r := &Result{Schema: Schema, Input: rep.Input.Name, Violations: []Violation{}, Notes: []report.Warning{}}
	if rep.Input.Truncated {
		r.note("truncated", "the trace is cut: only its first %s are checked", words.Duration(rep.Input.DurationNS))
	}
	for i := range rules.Limits {
		r.limit(rep, &rules.Limits[i])
	}
	if rules.FailOn != "" {
		r.findings(rep, rules.FailOn)
	}
	for _, f := range verify.Back(rep, rules.Ledger) {
		r.Checked++
		v := r.violation(rep, f, KindBack)
		v.ID = stableID(KindBack, v.ID)
		v.Text += "; whylate verify called it mended before"
		r.add(v)
	}
	if rules.Baseline != nil {
		r.baseline(rules.Baseline, rep, rules.Tolerance)
	}
	r.OK = len(r.Violations) == 0
	return r
}

func (r *Result) note(code, format string, args ...any) {
	r.Notes = append(r.Notes, report.Warning{Code: code, Text: fmt.Sprintf(format, args...)})
}

func (r *Result) add(v Violation) {
	if v.Code == "" {
		v.Code = v.Kind
	}
	if v.Severity == "" {
		v.Severity = report.SeverityHigh
	}
	r.Violations = append(r.Violations, v)
}

// stableID makes an id from what does not change with a measurement.
func stableID(parts ...string) string {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p + "\x00"))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// limit holds one limit over every group it is about.
func (r *Result) limit(rep *report.Report, l *Limit) {
	found := false
	for i := range rep.Groups {
		g := &rep.Groups[i]
		if l.Group != "" && l.Group != g.ID && l.Group != g.Name && l.Group != words.FuncName(g.Name) {
			continue
		}
		if l.Group == "" && g.Count == 0 {
			// Whoever asks for all groups did not ask for this one: often it is a connection on which nothing came.
			r.note("no-requests", "%s: %s is not held over it, no request has ended; %d were under way", words.FuncName(g.Name), l.Metric(), g.Open.Count)
			continue
		}
		found = true
		r.Checked++
		if l.Stat != "" {
			r.latency(g, l)
		} else {
			r.share(g, l)
		}
	}
	if found {
		return
	}
	r.Checked++
	v := Violation{ID: stableID(KindGroup, l.Group, l.Metric()), Kind: KindGroup, Group: l.Group, Metric: l.Metric()}
	if l.Group == "" {
		v.Text = fmt.Sprintf("%s cannot be held: there are no requests in %s", l.Metric(), rep.Input.Name)
	} else {
		v.Text = fmt.Sprintf("%s of %s cannot be held: no group is called that; there are %s", l.Metric(), l.Group, groupNames(rep))
	}
	r.add(v)
}

// maxNames bounds a list of names in a sentence.
const maxNames = 8

func groupNames(rep *report.Report) string {
	var names []string
	for i := range rep.Groups {
		names = append(names, words.FuncName(rep.Groups[i].Name))
	}
	switch {
	case len(names) == 0:
		return "none at all"
	case len(names) > maxNames:
		return strings.Join(names[:maxNames], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}

// stat returns a group's latency, the band of the requests that make it, and how many requests it needs to be known.
func stat(g *report.Group, name string) (ns *int64, band report.BandName, need int) {
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

func (r *Result) latency(g *report.Group, l *Limit) {
	name := words.FuncName(g.Name)
	ns, band, need := stat(g, l.Stat)
	limit := float64(l.NS)
	v := Violation{Group: g.Name, Metric: l.Metric(), Limit: &limit, Unit: "ns"}
	switch {
	case ns == nil:
		v.Kind = KindUnknown
		v.Text = fmt.Sprintf("%s: %s is not known from %s, it needs about %s: record for longer, or under more load", name, l.Stat, words.Count(g.Count, "request", "requests"), words.Number(int64(need)))
		if g.Open.Count > 0 {
			v.Text += fmt.Sprintf("; %d had not ended, the oldest after %s", g.Open.Count, words.Duration(g.Open.OldestNS))
		}
	case *ns <= l.NS:
		return
	default:
		value := float64(*ns)
		v.Kind, v.Value = KindBudget, &value
		v.Text = fmt.Sprintf("%s: %s is %s, the budget is %s", name, l.Stat, words.Duration(*ns), words.Duration(l.NS))
		if c := largest(g.Band(band), ""); c != nil {
			v.Site = c.Site
			v.Text += fmt.Sprintf("; %s of that time is %s", words.Share(c.Share), causeText(c))
		}
	}
	v.ID = stableID(v.Kind, string(g.Kind), g.Name, v.Metric)
	r.add(v)
}

func (r *Result) share(g *report.Group, l *Limit) {
	name := words.FuncName(g.Name)
	band := g.Band(l.Band)
	limit := l.Share
	v := Violation{Group: g.Name, Metric: l.Metric(), Limit: &limit, Unit: "share"}
	if band == nil && l.Band == report.BandOutliers && g.Count > 0 {
		return // there are none, which is as it should be
	}
	if band == nil || band.Count == 0 {
		v.Kind = KindUnknown
		v.Text = fmt.Sprintf("%s: the share of %s is not known: no requests in band %s of %s", name, l.Cause, l.Band, words.Count(g.Count, "request", "requests"))
	} else {
		sum := 0.0
		for i := range band.Causes {
			if c := &band.Causes[i]; belongs(c, l.Cause) {
				sum += c.Share
			}
		}
		if math.IsNaN(sum) || math.IsInf(sum, 0) {
			sum = 1 // no report from JSON has it; it is no proof of anything
		}
		if sum <= l.Share+rounding {
			return
		}
		v.Kind, v.Value = KindBudget, &sum
		v.Text = fmt.Sprintf("%s: %s has %s of the time of %s, the budget is %s", name, l.Cause, words.Share(sum), bandText(l.Band), words.Share(l.Share))
		if c := largest(band, l.Cause); c != nil {
			v.Site = c.Site
			v.Text += "; most of it is " + causeText(c)
		}
	}
	v.ID = stableID(v.Kind, string(g.Kind), g.Name, v.Metric)
	r.add(v)
}

// rounding is what a sum of shares may be off by: 20% and 10% are 30%.
const rounding = 1e-9

func bandText(band report.BandName) string {
	if band == report.BandAll {
		return "all requests"
	}
	return "band " + string(band)
}

// largest returns the row with most time, of a cause or family, or of all with a name; nil if there is none.
func largest(b *report.Band, cause report.CauseName) *report.Cause {
	if b == nil {
		return nil
	}
	var best *report.Cause
	for i := range b.Causes {
		c := &b.Causes[i]
		if (cause == "" && c.Cause != report.CauseOther || belongs(c, cause)) && (best == nil || c.TotalNS > best.TotalNS) {
			best = c
		}
	}
	return best
}

// placeWidth bounds a place in a sentence.
const placeWidth = 100

func causeText(c *report.Cause) string { return causeAt(c.Cause, c.Kind, c.Site) }

func causeAt(name report.CauseName, kind string, site *report.Site) string {
	cause := string(name)
	switch p := names.Place(site, placeWidth); {
	case p != "":
		return cause + " at " + p
	case kind != "":
		return cause + " (" + kind + ")"
	}
	return cause
}

func (r *Result) findings(rep *report.Report, failOn report.Severity) {
	worst := slices.Index(report.Severities(), failOn)
	for i := range rep.Findings {
		f := &rep.Findings[i]
		r.Checked++
		if f.Ignored != "" || slices.Index(report.Severities(), f.Severity) > worst {
			continue // a severity that is not known counts as worst: better loud than lost
		}
		r.add(r.violation(rep, f, KindFinding))
	}
}

// violation makes a violation of a finding.
func (r *Result) violation(rep *report.Report, f *report.Finding, kind string) Violation {
	v := Violation{ID: f.ID, Kind: kind, Code: string(f.Code), Severity: f.Severity, Site: f.Site}
	group := ""
	for k := range rep.Groups {
		if g := &rep.Groups[k]; f.Group != "" && (g.ID == f.Group || g.Name == f.Group) {
			v.Group, group = g.Name, words.FuncName(g.Name)+": "
		}
	}
	if v.ID == "" {
		fn := ""
		if f.Site != nil {
			fn = f.Site.Func
		}
		v.ID = stableID(KindFinding, string(f.Code), f.Group, fn)
	}
	v.Text = group + f.Title
	if p := names.Place(f.Site, placeWidth); p != "" {
		v.Text += " at " + p
	}
	if f.Fix != "" {
		v.Text += "; " + f.Fix
	}
	return v
}

func (r *Result) baseline(base, rep *report.Report, tolerance float64) {
	d := compare.Reports(base, rep)
	r.Notes = append(r.Notes, d.Warnings...)
	for i := range d.Groups {
		g := &d.Groups[i]
		r.Checked++
		r.growth(g, tolerance)
	}
	for _, g := range d.Vanished {
		r.note("vanished", "%s is in the baseline and not in %s: it was not compared", words.FuncName(g.Name), rep.Input.Name)
	}
	for _, g := range d.Appeared {
		r.note("appeared", "%s is not in the baseline: it was not compared", words.FuncName(g.Name))
	}
}

// growth reports a group whose latency grew beyond the tolerance: that is one violation, whichever of its numbers show it.
func (r *Result) growth(g *compare.Group, tolerance float64) {
	name := words.FuncName(g.Name)
	var grown []string
	v := Violation{ID: stableID(KindBaseline, string(g.Kind), g.Name), Kind: KindBaseline, Group: g.Name, Unit: "ns"}
	tail := false
	for _, l := range []struct {
		name string
		c    *compare.Change
	}{{"mean", &g.Mean}, {"p50", &g.P50}, {"p90", &g.P90}, {"p99", &g.P99}} {
		switch {
		case l.c.Delta == nil && l.c.Old != nil, l.name == "mean" && l.c.Low == nil:
			r.note("not-compared", "%s: %s cannot be compared with the baseline: too few requests or stretches of time", name, l.name)
			continue
		case !l.c.Evidence || float64(*l.c.Low) <= tolerance*float64(*l.c.Old):
			continue
		}
		grown = append(grown, fmt.Sprintf("%s %s, was %s (%s)", l.name, words.Duration(*l.c.New), words.Duration(*l.c.Old), words.Change(l.c.Ratio())))
		if v.Metric == "" {
			limit, value := float64(*l.c.Old)*(1+tolerance), float64(*l.c.New)
			v.Metric, v.Limit, v.Value = l.name, &limit, &value
			tail = l.name == "p99"
		}
	}
	if len(grown) == 0 {
		return
	}
	v.Text = fmt.Sprintf("%s: slower than the baseline: %s", name, strings.Join(grown, ", "))
	rows := g.Causes
	if tail { // only the slowest are slower: so is what they wait for
		rows = g.Tail
	}
	for i := range rows {
		if c := &rows[i]; c.DeltaNS > 0 && c.Cause != report.CauseOther {
			v.Site = c.Site()
			v.Text += fmt.Sprintf("; most by %s, +%s a request", causeAt(c.Cause, c.Kind, v.Site), words.Duration(c.DeltaNS))
			break
		}
	}
	r.add(v)
}
