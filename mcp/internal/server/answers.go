package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// maxAnswer bounds an answer, in bytes of JSON. JSON of this kind has 3 to 4 bytes per token, so an
// answer stays below the 8,000 tokens that docs/assistants.md promises.
const maxAnswer = 22 << 10

// Bounds on the parts of an answer. The tools for single requests, sources and rules return the rest of a report.
const (
	maxFindings = 8
	maxVerdicts = 3
	maxGroups   = 12
	maxEvidence = 5
	maxWarnings = 6
	maxSegments = 40
	maxText     = 700 // characters of a sentence
	maxName     = 160 // characters of a name
	maxFailure  = 1500
)

// shorten removes control characters from a recording's text and limits it to max columns.
func shorten(text string, max int) string { return termtext.Head(text, max) }

// escapeInvisible escapes invisible characters in all texts that v points to: control characters other
// than line ends and tabs, and characters that change the direction of writing. The name of a file
// with such a character is shown, but cannot be passed back.
func escapeInvisible[T any](v T) T {
	escapeTexts(reflect.ValueOf(v))
	return v
}

var lineText = regexp.MustCompile(`[^\n\t]+`)

// escapeTexts escapes, line by line, all strings in a value, through pointers, structs and slices, in place.
func escapeTexts(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			escapeTexts(v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			escapeTexts(field)
		}
	case reflect.Slice:
		for i := range v.Len() {
			escapeTexts(v.Index(i))
		}
	case reflect.String:
		v.SetString(lineText.ReplaceAllStringFunc(v.String(), termtext.Escape))
	}
}

// clientError returns a tool's error with its text shortened, so that it is safe to show to a client; nil for nil.
func clientError(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(shorten(err.Error(), maxFailure))
}

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

// jsonSize returns the number of bytes of v in JSON.
func jsonSize(v any) int {
	b, _ := json.Marshal(v)
	return len(b)
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

// groupName returns the name of the group with an id, shortened; "" if the report has none.
func groupName(r *report.Report, id string) string {
	if g := r.Group(id); g != nil {
		return shorten(g.Name, maxName)
	}
	return ""
}

// siteText returns a site with its full function and file, which the tool source and an editor need; "" for nil.
func siteText(s *report.Site) string {
	if s == nil || s.Func == "" {
		return ""
	}
	text := fmt.Sprintf("%s (%s:%d)", s.Func, s.File, s.Line)
	if c := s.CalledFrom; c != nil {
		text += fmt.Sprintf(", %s%s (%s:%d)", names.CallerLead(c), c.Func, c.File, c.Line)
	}
	return shorten(text, 2*maxName)
}

// newFinding returns a finding of the report with its texts shortened, and at most maxEvidence items of its evidence.
func newFinding(r *report.Report, f *report.Finding) Finding {
	out := Finding{
		Code: string(f.Code), Severity: string(f.Severity), Title: shorten(f.Title, maxText), Site: siteText(f.Site), Fix: shorten(f.Fix, maxText),
		Predicted: predictionText(f.Predicted), Confidence: f.Confidence,
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
		return fmt.Sprintf("%s %s → %s (%s to %s)", name, words.DurationOrUnknown(before), words.Rough(e.Est), words.Rough(e.Low), words.Rough(e.High))
	}
	parts := []string{changeText("p50", p.WasP50NS, p.P50NS), changeText("p99", p.WasP99NS, p.P99NS)}
	if p.MaxNS != nil {
		parts = append(parts, changeText("max", p.WasMaxNS, *p.MaxNS))
	}
	change := shorten(p.Change, maxText)
	if p.ChangeText != "" {
		change = shorten(p.ChangeText, maxText) + " (" + change + ")"
	}
	return change + ": " + strings.Join(parts, ", ")
}

// A Path is one request as a chain of segments.
type Path struct {
	Group     string    `json:"group"`
	ID        string    `json:"id"`
	Latency   string    `json:"latency"`
	Start     string    `json:"start" jsonschema:"since the recording began"`
	Status    string    `json:"status,omitempty"`
	TraceID   string    `json:"trace_id,omitempty"`
	OtherIDs  []string  `json:"others,omitempty" jsonschema:"ids of other requests of the group that can be asked for"`
	Segments  []Segment `json:"segments" jsonschema:"in order of time; adjacent short ones are joined"`
	Shortened int       `json:"shortened,omitempty" jsonschema:"the shortest segments, which were left out"`
}

// A Segment is a part of a request's time with one cause.
type Segment struct {
	Start     string   `json:"at" jsonschema:"since the request began"`
	Duration  string   `json:"takes"`
	Cause     string   `json:"cause"`
	Site      string   `json:"site,omitempty"`
	Goroutine uint64   `json:"goroutine"`
	WaitChain []string `json:"via,omitempty" jsonschema:"the chain of waits from the request to the goroutine whose time it was"`
}

// newPath returns a request q of group g as an answer of limited size; the longest segments stay.
func newPath(g *report.Group, q *report.Request) *Path {
	p := &Path{Group: shorten(g.Name, maxName), ID: q.ID, Latency: words.Brief(q.LatencyNS), Start: words.Brief(q.StartNS), Status: shorten(q.Status, 40), TraceID: q.TraceID, Segments: []Segment{}}
	for i := range g.Slowest {
		if g.Slowest[i].ID != q.ID {
			p.OtherIDs = append(p.OtherIDs, g.Slowest[i].ID)
		}
	}
	if t := g.Typical; t != nil && t.ID != q.ID {
		p.OtherIDs = append(p.OtherIDs, t.ID)
	}
	for limit := maxSegments; ; limit = limit * 3 / 4 {
		p.setSegments(q, limit)
		if jsonSize(p) <= maxAnswer || limit < 2 {
			return p
		}
	}
}

// setSegments sets the longest segments, at most limit, in order of time, and counts the others in
// Shortened.
func (p *Path) setSegments(q *report.Request, limit int) {
	minDuration := int64(0)
	if len(q.Segments) > limit {
		longestFirst := slices.SortedFunc(slices.Values(q.Segments), func(a, b report.Segment) int { return int(b.DurationNS - a.DurationNS) })
		minDuration = longestFirst[limit-1].DurationNS
	}
	p.Segments, p.Shortened = p.Segments[:0], 0
	for i := range q.Segments {
		s := &q.Segments[i]
		if s.DurationNS < minDuration || len(p.Segments) == limit {
			p.Shortened++
			continue
		}
		out := Segment{Start: words.Brief(s.StartNS - q.StartNS), Duration: words.Brief(s.DurationNS), Cause: string(s.Cause), Site: siteText(s.Site), Goroutine: s.Goroutine}
		for k := range s.Via[:min(len(s.Via), 4)] {
			out.WaitChain = append(out.WaitChain, strings.TrimSpace(string(s.Via[k].Wait)+" "+siteText(s.Via[k].Site)))
		}
		p.Segments = append(p.Segments, out)
	}
}
