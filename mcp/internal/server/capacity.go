package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

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
