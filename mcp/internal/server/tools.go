package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/judge/verify"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// addTools adds all tools. Only record changes something.
func (s *Server) addTools() {
	addTool(s, "explain", "Why were requests late?",
		"Explains a recording (a Go execution trace, or a .whylate file that record made): what slow requests spent their time on, what to change with the predicted gain, and the groups of requests. Ask this first.",
		s.explainTool)
	addTool(s, "request", "One slow request's path",
		"Shows one request of a report as a chain of segments, each with its cause, place and goroutine. Without an id: the slowest of the group.",
		s.requestTool)
	addTool(s, "source", "Lines around a place",
		"Shows the lines around a place that a report names, where the checkout lies below an allowed directory.",
		s.sourceTool)
	addTool(s, "diff", "What changed?",
		"Compares two recordings of a service: which groups of requests became slower or faster, with intervals, and by which causes and lines.",
		s.diffTool)
	addTool(s, "verify", "Were the promises kept?",
		"Compares a recording from before a change with one from after it, and says for each finding of the first what its prediction promised and what came of it.",
		s.verifyTool)
	addTool(s, "what_if", "Predict a change",
		"Predicts the latencies of a recording with something made shorter: SITE=VALUE such as fetchOffsets=5ms, lock@main.save=50%, queue@main.take=gone, or a setting such as GOGC=400, GOMAXPROCS=2, quota=1.5.",
		s.whatIfTool)
	addTool(s, "capacity", "How much load?",
		"Says at which load each resource of the process saturates (CPU, locks, pools, goroutines that serve requests one after the other), the latencies at other loads, and what the recording does not show. Changes: load=2x, cpus=8, quota=2.5, slots@SITE=16, unlock@SITE, SITE=1ms.",
		s.capacityTool)
	addTool(s, "rules", "What a finding means",
		"Without codes: every rule in a line. With codes such as WL2001: what they mean, how they are measured, the fix, and when they are wrong.",
		s.rulesTool)
	addTool(s, "limits", "What a process may use",
		"Reads the CPU and memory limits of a Go process on this machine, or of one that would be started here, with the files that set them, and the traps between them.",
		s.limitsTool)
	s.addRecord()
	if s.config.Fleet != "" {
		s.addFleet()
	}
}

// addTool adds a tool that changes nothing and accesses nothing outside this machine. name, title and description are for the
// client; answer computes the tool's result.
func addTool[In, Out any](s *Server, name, title, description string, answer func(context.Context, In) (Out, error)) {
	openWorld := false
	mcp.AddTool(s.mcp, &mcp.Tool{
		Name: name, Title: title, Description: description,
		Annotations: &mcp.ToolAnnotations{Title: title, ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &openWorld},
	}, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		out, err := answer(ctx, in)
		return nil, escapeInvisible(out), clientError(err)
	})
}

// A Selection selects a part of a recording.
type Selection struct {
	Group   string `json:"group,omitempty" jsonschema:"report only groups whose name matches this regular expression"`
	Request string `json:"request,omitempty" jsonschema:"take calls of functions that match this regular expression as requests"`
	From    string `json:"from,omitempty" jsonschema:"leave out requests that end before this time of the recording, such as 1.5s"`
	To      string `json:"to,omitempty" jsonschema:"leave out requests that end after this time"`
}

// args returns the flags of the verb explain. A value is in the same argument as its flag, so no value
// can become a flag.
func (x *Selection) args() []string {
	var out []string
	for _, f := range [][2]string{{"--group=", x.Group}, {"--request=", x.Request}, {"--from=", x.From}, {"--to=", x.To}} {
		if f[1] != "" {
			out = append(out, f[0]+f[1])
		}
	}
	return out
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

type requestIn struct {
	Report string `json:"report" jsonschema:"the report's id, from explain"`
	Group  string `json:"group,omitempty" jsonschema:"id, name or a part of the name of a group (default: the first)"`
	ID     string `json:"id,omitempty" jsonschema:"id of a request (default: the slowest)"`
}

// requestTool answers the tool request: the path of one request in a stored report; without an id, that of the group's slowest.
func (s *Server) requestTool(_ context.Context, in requestIn) (*Path, error) {
	k, err := s.reports.get(in.Report)
	if err != nil {
		return nil, err
	}
	g, err := k.findGroup(in.Group)
	if err != nil {
		return nil, err
	}
	list := slices.Clone(g.Slowest)
	if g.Typical != nil {
		list = append(list, *g.Typical)
	}
	ids := []string{}
	for i := range list {
		if in.ID == "" || list[i].ID == in.ID {
			return newPath(g, &list[i]), nil
		}
		ids = append(ids, list[i].ID)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("the report holds no request of %s in full", shorten(g.Name, maxName))
	}
	return nil, fmt.Errorf("there is no request %q in the report; of this group it holds %s", in.ID, strings.Join(ids, ", "))
}

type whatIfIn struct {
	Source  string   `json:"source" jsonschema:"path of a recording below an allowed directory"`
	Changes []string `json:"changes" jsonschema:"changes that are made together, such as [\"fetchOffsets=5ms\"]"`
	Selection
}

// A WhatIf is the prediction for changes.
type WhatIf struct {
	Groups []Gain `json:"groups"`
}

// A Gain is the prediction for one group.
type Gain struct {
	Group     string `json:"group"`
	Requests  int    `json:"requests"`
	Predicted string `json:"predicted"`
	Note      string `json:"note,omitempty"`
}

// whatIfTool answers the tool what_if: the latencies that a recording would have with the changes.
func (s *Server) whatIfTool(ctx context.Context, in whatIfIn) (*WhatIf, error) {
	if len(in.Changes) == 0 {
		return nil, fmt.Errorf("name a change, such as fetchOffsets=5ms")
	}
	args := in.args()
	for _, c := range in.Changes {
		args = append(args, "--what-if="+c)
	}
	k, err := s.explain(ctx, in.Source, args)
	if err != nil {
		return nil, err
	}
	out := &WhatIf{Groups: []Gain{}}
	for _, w := range k.report.WhatIf[:min(len(k.report.WhatIf), maxGroups)] {
		out.Groups = append(out.Groups, Gain{shorten(w.Name, maxName), w.Requests, predictionText(&w.Predicted), shorten(w.Note, maxText)})
	}
	return out, nil
}

type capacityIn struct {
	Source  string   `json:"source" jsonschema:"path of a recording below an allowed directory"`
	Changes []string `json:"changes,omitempty" jsonschema:"changes that are made together, such as [\"load=2x\"]"`
	Goals   string   `json:"goals,omitempty" jsonschema:"find the highest load that keeps these, such as p99=50ms"`
}

// A Capacity is at which load resources saturate.
type Capacity struct {
	Text      string   `json:"text"`
	Limits    []string `json:"limits" jsonschema:"the one that saturates first at the beginning"`
	NotJudged []string `json:"not_judged" jsonschema:"each may be a lower limit"`
	Latencies []string `json:"latencies" jsonschema:"predicted, by load"`
	Goals     []string `json:"goals,omitempty"`
}

// capacityTool answers the tool capacity: the load at which resources saturate, and the latencies at other loads.
func (s *Server) capacityTool(ctx context.Context, in capacityIn) (*Capacity, error) {
	path, err := s.policy.resolveFile(in.Source)
	if err != nil {
		return nil, err
	}
	args := []string{"capacity", "--json", "--max-memory", childMemory}
	for _, change := range in.Changes {
		args = append(args, "--what-if="+change)
	}
	if in.Goals != "" {
		args = append(args, "--slo="+in.Goals)
	}
	var c report.Capacity
	if err := s.verbs.run(ctx, 0, &c, append(args, "--", path)...); err != nil {
		return nil, err
	}
	out := &Capacity{Text: shorten(c.Text, maxText), Limits: []string{}, NotJudged: []string{}, Latencies: []string{}}
	for i := range c.Limits[:min(len(c.Limits), maxFindings)] {
		l := &c.Limits[i]
		out.Limits = append(out.Limits, fmt.Sprintf("%s %s: %g at once, %s per request, %s in use, saturates at %g/s (%g to %g)", l.Kind, siteText(l.Site),
			l.Servers, words.Brief(l.DemandNS), words.PercentOr0(l.Utilisation), l.SaturatesPerS, l.SaturatesLow, l.SaturatesHigh))
	}
	for i := range c.NotJudged[:min(len(c.NotJudged), maxFindings)] {
		n := &c.NotJudged[i]
		out.NotJudged = append(out.NotJudged, shorten(strings.TrimSpace(strings.TrimSpace(string(n.Kind)+" "+siteText(n.Site))+" "+n.Reason), maxText))
	}
	for i := range c.Curve {
		p := &c.Curve[i]
		out.Latencies = append(out.Latencies, fmt.Sprintf("%g/s: p50 %s, p99 %s (%s to %s)", p.LoadPerS, words.Rough(p.P50NS), words.Rough(p.P99NS), words.Rough(p.P99.Low), words.Rough(p.P99.High)))
	}
	for _, goal := range c.Goals {
		out.Goals = append(out.Goals, fmt.Sprintf("%s=%s: up to %g/s", goal.Percentile, words.Brief(goal.MostNS), goal.LoadPerS))
	}
	return out, nil
}

type pairIn struct {
	Before string `json:"before" jsonschema:"path of the recording from before the change"`
	After  string `json:"after" jsonschema:"path of the recording from after it"`
	Group  string `json:"group,omitempty" jsonschema:"compare only groups whose name matches this regular expression"`
}

// runComparison runs a verb that reads the two recordings of in, and decodes its JSON into v.
func (s *Server) runComparison(ctx context.Context, in pairIn, v any, verb ...string) error {
	args := append(verb, "--json", "--max-memory", childMemory)
	if in.Group != "" {
		args = append(args, "--group="+in.Group)
	}
	args = append(args, "--")
	for _, name := range []string{in.Before, in.After} {
		path, err := s.policy.resolveFile(name)
		if err != nil {
			return err
		}
		args = append(args, path)
	}
	return s.verbs.run(ctx, 0, v, args...)
}

// A Comparison has the changes between two recordings.
type Comparison struct {
	Warnings  []string      `json:"warnings,omitempty"`
	Changed   []GroupChange `json:"changed" jsonschema:"groups with evidence of a change"`
	Unchanged []GroupChange `json:"same" jsonschema:"groups without"`
	Moved     []string      `json:"moved,omitempty" jsonschema:"groups that are not compared, because requests moved between them: a request shows its handler only if it waits"`
	Appeared  []string      `json:"appeared,omitempty"`
	Vanished  []string      `json:"vanished,omitempty"`
	New       []string      `json:"new_findings,omitempty"`
	Removed   []string      `json:"gone_findings,omitempty"`
}

// A GroupChange is the change of one group.
type GroupChange struct {
	Group  string   `json:"group"`
	P50    string   `json:"p50"`
	P99    string   `json:"p99"`
	Causes []string `json:"causes,omitempty" jsonschema:"what the change of the mean is made of, the largest first"`
}

// diffTool answers the tool diff: it compares two recordings, by group, with at most four causes for each change.
func (s *Server) diffTool(ctx context.Context, in pairIn) (*Comparison, error) {
	var d compare.Diff
	if err := s.runComparison(ctx, in, &d, "diff"); err != nil {
		return nil, err
	}
	out := &Comparison{Changed: []GroupChange{}, Unchanged: []GroupChange{}, Warnings: warnings(d.Warnings)}
	populations := d.Populations()
	for _, g := range populations[:min(len(populations), maxGroups)] {
		if g.Moved {
			out.Moved = append(out.Moved, shorten(g.Name, maxName))
			continue
		}
		c := GroupChange{Group: shorten(g.Name, maxName), P50: changeText(&g.P50), P99: changeText(&g.P99)}
		if !g.Changed {
			out.Unchanged = append(out.Unchanged, c)
			continue
		}
		for _, row := range g.Causes[:min(len(g.Causes), 4)] {
			site := cmp.Or(row.NewSite, row.OldSite)
			c.Causes = append(c.Causes, fmt.Sprintf("%s of each request: %s → %s, %s", causeText(&row), words.Brief(row.OldNS), words.Brief(row.NewNS), siteText(site)))
		}
		out.Changed = append(out.Changed, c)
	}
	out.Appeared, out.Vanished = refNames(d.Appeared), refNames(d.Vanished)
	out.New, out.Removed = findingTitles(d.NewFindings), findingTitles(d.GoneFindings)
	return out, nil
}

// causeText returns the name of a row's cause; of a queue, what requests queue for.
func causeText(row *compare.Row) string {
	if row.Cause == report.CauseQueue && row.Kind != "" {
		return "queueing for " + shorten(row.Kind, maxName)
	}
	return string(row.Cause)
}

// changeText returns a latency before and after, and whether there is evidence of a difference.
func changeText(c *compare.Change) string {
	text := words.DurationOrUnknown(c.Old) + " → " + words.DurationOrUnknown(c.New)
	switch {
	case c.Low == nil || c.High == nil:
		return text + " (too few requests to tell)"
	case !c.Evidence:
		return text + " (no evidence of a change)"
	}
	return fmt.Sprintf("%s (by %s to %s)", text, words.Brief(*c.Low), words.Brief(*c.High))
}

// refNames returns the names of at most maxGroups groups.
func refNames(list []compare.GroupRef) []string {
	var out []string
	for i := range list[:min(len(list), maxGroups)] {
		out = append(out, shorten(list[i].Name, maxName))
	}
	return out
}

// findingTitles returns severity, code and title of at most maxFindings findings.
func findingTitles(list []compare.FindingRef) []string {
	var out []string
	for i := range list[:min(len(list), maxFindings)] {
		out = append(out, shorten(string(list[i].Severity)+" "+string(list[i].Code)+" "+list[i].Title, maxText))
	}
	return out
}

// warnings returns the texts of at most maxWarnings warnings.
func warnings(list []report.Warning) []string {
	var out []string
	for _, w := range list[:min(len(list), maxWarnings)] {
		out = append(out, shorten(w.Text, maxText))
	}
	return out
}

// A Proof compares the predictions of findings with the result of the change.
type Proof struct {
	Verdicts []Promise `json:"verdicts"`
	Warnings []string  `json:"warnings,omitempty"`
}

// A Promise is one finding's prediction and its result.
type Promise struct {
	Finding   string `json:"finding"`
	Group     string `json:"group"`
	Metric    string `json:"metric"`
	Before    string `json:"was"`
	Promised  string `json:"promised"`
	After     string `json:"is"`
	Judgement string `json:"judgement" jsonschema:"kept, better, short (less than promised), chance (no evidence either way), elsewhere (faster, but this wait is as long as before), unmade (the finding still stands), unknown (too few requests)"`
}

// verifyTool answers the tool verify: what predictions of the first recording's findings promised, and the result in the
// second.
func (s *Server) verifyTool(ctx context.Context, in pairIn) (*Proof, error) {
	var r verify.Result
	if err := s.runComparison(ctx, in, &r, "verify"); err != nil {
		return nil, err
	}
	out := &Proof{Verdicts: []Promise{}, Warnings: warnings(r.Warnings)}
	for i := range r.Verdicts[:min(len(r.Verdicts), 2*maxFindings)] {
		v := &r.Verdicts[i]
		out.Verdicts = append(out.Verdicts, Promise{
			shorten(string(v.Code)+" "+v.Title, maxText), shorten(v.Group, maxName), v.Metric, words.Brief(v.WasNS),
			fmt.Sprintf("%s (%s to %s)", words.Rough(v.WasNS+v.Promised.Est), words.Rough(v.WasNS+v.Promised.Low), words.Rough(v.WasNS+v.Promised.High)),
			words.DurationOrUnknown(v.IsNS), string(v.Judgement),
		})
	}
	return out, nil
}

type rulesIn struct {
	Codes []string `json:"codes,omitempty" jsonschema:"codes such as WL2001 (default: every rule in a line)"`
}

// Rules are the documentation of rules.
type Rules struct {
	Rules []Rule `json:"rules"`
}

// A Rule is one rule's documentation.
type Rule struct {
	Code     string `json:"code"`
	Name     string `json:"name"`
	Summary  string `json:"summary"`
	Means    string `json:"means,omitempty"`
	Measured string `json:"measured,omitempty"`
	Fix      string `json:"fix,omitempty"`
	Before   string `json:"before,omitempty"`
	After    string `json:"after,omitempty"`
	Wrong    string `json:"wrong,omitempty" jsonschema:"when the rule is wrong"`
}

// maxRules bounds the rules that one answer explains.
const maxRules = 4

// rulesTool answers the tool rules: the documentation of the rules with these codes; without codes, a line for each rule.
func (s *Server) rulesTool(ctx context.Context, in rulesIn) (*Rules, error) {
	if len(in.Codes) > maxRules {
		return nil, fmt.Errorf("ask for at most %d codes at once", maxRules)
	}
	out := new(Rules)
	if err := s.verbs.run(ctx, 0, &out.Rules, append([]string{"rules", "--json", "--"}, in.Codes...)...); err != nil {
		return nil, err
	}
	if len(in.Codes) == 0 {
		for i := range out.Rules {
			out.Rules[i] = Rule{Code: out.Rules[i].Code, Name: out.Rules[i].Name, Summary: out.Rules[i].Summary}
		}
	}
	return out, nil
}
