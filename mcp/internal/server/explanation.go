package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// An Explanation is a short report.
type Explanation struct {
	Report       string    `json:"report" jsonschema:"id of this report, for the tools request and what_if"`
	Recorded     string    `json:"recorded" jsonschema:"what was recorded: length, Go version, GOMAXPROCS"`
	Verdict      []Verdict `json:"verdict" jsonschema:"what slow requests spent their time on, of the groups with the most latency"`
	Findings     []Finding `json:"findings" jsonschema:"what to change, the foremost first; severity info is no fault"`
	MoreFindings int       `json:"more_findings,omitempty" jsonschema:"findings that were left out here"`
	Judged       string    `json:"judged,omitempty" jsonschema:"which rules found nothing, and which could not judge for want of what"`
	Groups       []Group   `json:"groups" jsonschema:"groups of requests, those with the most latency first"`
	Warnings     []string  `json:"warnings,omitempty"`
}

// A Verdict has the causes of one group's slow requests.
type Verdict struct {
	Group  string   `json:"group"`
	Causes []Cause  `json:"causes"`
	Text   string   `json:"text"`
	Places []string `json:"places" jsonschema:"function (file:line) of the largest causes"`
}

// A Cause is one cause of a verdict.
type Cause struct {
	Cause      string  `json:"cause"`
	Share      float64 `json:"share" jsonschema:"of the slow requests' time, 0 to 1"`
	PerRequest string  `json:"each" jsonschema:"of one request, on average"`
	Text       string  `json:"text"`
}

// A Finding is a finding of a report, as text.
type Finding struct {
	Code       string   `json:"code"`
	Severity   string   `json:"severity"`
	Title      string   `json:"title"`
	Groups     []string `json:"groups,omitempty"`
	Site       string   `json:"site,omitempty" jsonschema:"where: function (file:line); in a dependency's code with the own line that called it"`
	File       string   `json:"file,omitempty" jsonschema:"file of the service's own line to change, as the recording names it; pass it to the tool source"`
	Line       int      `json:"line,omitempty"`
	Evidence   []string `json:"evidence,omitempty"`
	Fix        string   `json:"fix,omitempty"`
	Predicted  string   `json:"predicted,omitempty"`
	Confidence float64  `json:"confidence" jsonschema:"0 to 1"`
}

// A Group has the latency of one kind of requests.
type Group struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	Open  int    `json:"still_running,omitempty" jsonschema:"requests that had not ended"`
	P50   string `json:"p50"`
	P99   string `json:"p99"`
	Max   string `json:"max"`
}

// newExplanation returns the content of the report with an id as an answer of limited size: it leaves out groups, then findings, then verdicts until
// it fits.
func newExplanation(id string, r *report.Report) *Explanation {
	e := &Explanation{Report: id, Verdict: []Verdict{}, Findings: []Finding{}, Groups: []Group{}}
	e.Recorded = fmt.Sprintf("%s, Go %s, GOMAXPROCS %d", words.Brief(r.Input.DurationNS), shorten(names.GoVersion(r), 40), r.Input.GOMAXPROCS)
	for i := range r.Verdict[:min(len(r.Verdict), maxVerdicts)] {
		e.Verdict = append(e.Verdict, newVerdict(r, &r.Verdict[i]))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Ignored != "" {
			continue
		}
		duplicate := slices.IndexFunc(r.Findings[:i], func(o report.Finding) bool {
			return o.Ignored == "" && o.Code == f.Code && o.Title == f.Title && o.Site.Equal(f.Site)
		})
		if duplicate >= 0 {
			title := shorten(f.Title, maxText)
			if index := slices.IndexFunc(e.Findings, func(o Finding) bool { return o.Code == string(f.Code) && o.Title == title }); index >= 0 && len(e.Findings[index].Groups) < 4 {
				e.Findings[index].Groups = append(e.Findings[index].Groups, groupName(r, f.Group))
			}
			continue
		}
		if len(e.Findings) == maxFindings {
			e.MoreFindings++
			continue
		}
		e.Findings = append(e.Findings, newFinding(r, f))
	}
	if r.Judged != nil {
		e.Judged = shorten(r.Judged.Text, maxText)
	}
	for i := range r.Groups[:min(len(r.Groups), maxGroups)] {
		g := &r.Groups[i]
		e.Groups = append(e.Groups, Group{g.ID, shorten(g.Name, maxName), string(g.Kind), g.Count, g.Open.Count, words.DurationOrUnknown(g.LatencyNS.P50), words.DurationOrUnknown(g.LatencyNS.P99), words.DurationOrUnknown(g.LatencyNS.Max)})
	}
	e.Warnings = warnings(r.Input.Warnings)
	for jsonSize(e) > maxAnswer {
		switch {
		case len(e.Groups) > 3:
			e.Groups = e.Groups[:len(e.Groups)-1]
		case len(e.Findings) > 1:
			e.Findings, e.MoreFindings = e.Findings[:len(e.Findings)-1], e.MoreFindings+1
		case len(e.Verdict) > 1:
			e.Verdict = e.Verdict[:len(e.Verdict)-1]
		default:
			return e
		}
	}
	return e
}

// newVerdict returns a verdict of the report with its texts shortened, and only the causes that its sentence names.
func newVerdict(r *report.Report, v *report.Verdict) Verdict {
	out := Verdict{Group: groupName(r, v.Group), Causes: []Cause{}, Text: shorten(v.Text, 2*maxText), Places: []string{}}
	for i := range v.Causes {
		c := &v.Causes[i]
		if !c.InSentence {
			continue
		}
		out.Causes = append(out.Causes, Cause{string(c.Cause), c.Share, words.Brief(c.EachNS), shorten(c.Text, maxText)})
		for k := range c.Sites[:min(len(c.Sites), 2)] {
			if text := siteText(c.Sites[k].Site); text != "" {
				out.Places = append(out.Places, text)
			}
		}
	}
	return out
}

// newFinding returns a finding of the report with its texts shortened, and at most maxEvidence items of its evidence.
func newFinding(r *report.Report, f *report.Finding) Finding {
	out := Finding{
		Code: string(f.Code), Severity: string(f.Severity), Title: shorten(f.Title, maxText), Site: siteText(f.Site), Fix: shorten(f.Fix, maxText),
		Confidence: f.Confidence,
	}
	if f.Severity != report.SeverityInfo { // what is no fault promises nothing
		out.Predicted = predictionText(f.Predicted)
	}
	if name := groupName(r, f.Group); name != "" {
		out.Groups = []string{name}
	}
	if ownLine := f.Site.OwnLine(); ownLine != nil {
		out.File, out.Line = shorten(ownLine.File, 2*maxName), ownLine.Line
	}
	for _, e := range f.Evidence[:min(len(f.Evidence), maxEvidence)] {
		out.Evidence = append(out.Evidence, names.Evidence(shorten(e.Text, maxText), e))
	}
	return out
}

// predictionText returns a predicted change with percentiles before and after it and their bounds; "" for nil.
func predictionText(p *report.Predicted) string {
	if p == nil {
		return ""
	}
	changeText := func(name string, before *int64, e report.Estimate) string {
		if before != nil && names.IsUnsureGain(*before, &e) {
			return name + " " + words.Duration(*before) + " → " + names.UnsureGain(&e)
		}
		return fmt.Sprintf("%s %s → %s (%s to %s)", name, words.DurationOrUnknown(before), words.Rough(e.Est), words.Rough(e.Low), words.Rough(e.High))
	}
	parts := []string{changeText("p99", p.WasP99NS, p.P99NS), changeText("p50", p.WasP50NS, p.P50NS)}
	if p.MaxNS != nil {
		parts = append(parts, changeText("max", p.WasMaxNS, *p.MaxNS))
	}
	change := shorten(p.Change, maxText)
	if p.ChangeText != "" && p.ChangeText != p.Change {
		change = shorten(p.ChangeText, maxText) + " (" + change + ")"
	}
	return change + ": " + strings.Join(parts, ", ")
}

type explainIn struct {
	Source string `json:"source" jsonschema:"path of a recording below an allowed directory"`
	Selection
}

// explainTool answers the tool explain: it explains a recording and stores the report for further calls.
func (s *Server) explainTool(ctx context.Context, in explainIn) (*Explanation, error) {
	k, err := s.explain(ctx, in.Source, in.args())
	if err != nil {
		return nil, err
	}
	return newExplanation(k.id, k.report), nil
}
