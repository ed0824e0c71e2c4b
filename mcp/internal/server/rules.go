package server

import (
	"context"
	"fmt"
)

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
