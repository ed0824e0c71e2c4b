package server

import (
	"context"
	"fmt"

	"github.com/whylate/whylate/internal/judge/verify"
	"github.com/whylate/whylate/internal/output/words"
)

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
