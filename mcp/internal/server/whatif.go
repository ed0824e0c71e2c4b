package server

import (
	"context"
	"fmt"
)

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
