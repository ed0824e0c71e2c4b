package server

import (
	"cmp"
	"context"
	"fmt"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

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
	case c.Probable:
		return text + " (probable, but no evidence: record for 30 s or more)"
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
