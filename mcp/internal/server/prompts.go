package server

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addPrompts adds the two most frequent questions of users.
func (s *Server) addPrompts() {
	s.mcp.AddPrompt(&mcp.Prompt{
		Name: "why-is-this-service-slow", Title: "Why is this service slow?",
		Arguments: []*mcp.PromptArgument{{Name: "source", Title: "Recording or address", Description: "file of a recording, or address of a service", Required: true}},
	}, prompt("Why is this Go service slow?", func(args map[string]string) string {
		return fmt.Sprintf(`Find out why requests of the Go service in %q are late, with the whylate tools.
If it is an address, call record first. Call explain. Read the verdict and the first finding above info. Call request for the slowest request of that group, and source for the finding's file and line.
Answer with: which requests are late and by how much; the cause with its function, file and line; the evidence; the smallest change that helps, and its predicted gain. Say how certain the report is. If no finding is above info, say that the recording shows no fault of the service, and what it could not judge.`, args["source"])
	}))
	s.mcp.AddPrompt(&mcp.Prompt{
		Name: "is-this-change-slower", Title: "Is this change slower?",
		Arguments: []*mcp.PromptArgument{
			{Name: "before", Title: "Recording before", Description: "file of the recording from before the change", Required: true},
			{Name: "after", Title: "Recording after", Description: "file of the recording from after the change", Required: true},
		},
	}, prompt("Is this change slower?", func(args map[string]string) string {
		return fmt.Sprintf(`Compare the recordings %q (before) and %q (after) of one Go service with the whylate tools.
Call diff. For each group that changed: by how much, with the interval, and by which cause and line; call source for that line. Call verify to see whether findings of the first kept their promises.
Say "no evidence of a change" where the tool says so: a difference whose interval includes zero is no difference.`, args["before"], args["after"])
	}))
}

// prompt returns a handler that answers with one message of the user, whose text depends on the prompt's arguments.
func prompt(description string, text func(map[string]string) string) mcp.PromptHandler {
	return func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: description, Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text(req.Params.Arguments)}}}}, nil
	}
}
