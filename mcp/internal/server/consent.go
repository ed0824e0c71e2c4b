package server

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// askUser returns, as the call's result, the question whether the user agrees to a call, or nil if the call has their consent. If they refuse, or the
// client cannot ask them, it returns an error; ownCommand is a command that the user can run instead.
func askUser(req *mcp.CallToolRequest, question, ownCommand string) (*mcp.CallToolResult, error) {
	answer, isAnswered := req.Params.InputResponses[confirmationKey].(*mcp.ElicitResult)
	switch {
	case !isAnswered:
		if c := req.ClientCapabilities(); c == nil || c.Elicitation == nil {
			return nil, fmt.Errorf("this client cannot ask its user whether to record; the user can run: %s", ownCommand)
		}
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{confirmationKey: &mcp.ElicitParams{
			Message:         shorten(question, maxText),
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`),
		}}}, nil
	case answer.Action != "accept":
		return nil, errors.New("the user did not agree to the recording")
	}
	return nil, nil
}
