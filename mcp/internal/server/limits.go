package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/internal/output/words"
)

type limitsIn struct {
	PID int `json:"pid,omitempty" jsonschema:"a process of this machine (default: one that would be started here)"`
}

// Limits are the limits of a process.
type Limits struct {
	CPU    string   `json:"cpu"`
	Memory string   `json:"memory"`
	Traps  []string `json:"traps" jsonschema:"differences between what limits the process and what tools will assume"`
}

// limitsTool answers the tool limits: the CPU and memory of a process or, without an id, of a new one, and the traps.
func (s *Server) limitsTool(ctx context.Context, in limitsIn) (*Limits, error) {
	args := []string{"limits", "--json"}
	if in.PID < 0 {
		return nil, errors.New("a process id is positive")
	}
	if in.PID > 0 {
		args = append(args, "--pid="+strconv.Itoa(in.PID))
	}
	var a limits.Answer
	if err := s.verbs.run(ctx, 0, &a, args...); err != nil {
		return nil, err
	}
	out := &Limits{CPU: "not measurable here", Memory: "not measurable here", Traps: []string{}}
	if l := a.Limits; l != nil {
		out.CPU = words.CPUs(l.CPU.Effective)
		for _, b := range l.CPU.Bounds {
			if b.Won {
				out.CPU += fmt.Sprintf(", by the %s in %s", b.Kind, b.File)
			}
		}
		out.CPU = shorten(out.CPU+"; "+l.CPU.SightText, maxText)
		out.Memory = shorten(words.Binary(l.Memory.Effective)+"; "+l.Memory.SightText, maxText)
	}
	for _, c := range a.Choices {
		if c.InForce && c.Value != nil {
			out.CPU = shorten(fmt.Sprintf("%s; %s=%d is in force: %s", out.CPU, c.Knob, *c.Value, c.Reason), 2*maxText)
		}
	}
	for _, t := range a.Traps {
		out.Traps = append(out.Traps, shorten(fmt.Sprintf("%s (%s): %s Fix: %s", t.Code, t.Severity, t.Text, t.Fix), maxText))
	}
	return out, nil
}
