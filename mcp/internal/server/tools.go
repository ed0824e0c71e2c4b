package server

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
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
