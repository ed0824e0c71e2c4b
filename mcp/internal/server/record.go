package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxTrace bounds a recording in bytes.
const maxTrace = 256 << 20

type recordIn struct {
	URL     string  `json:"url" jsonschema:"address of the service, one of those that this server may record"`
	Seconds float64 `json:"seconds,omitempty" jsonschema:"how long to record (default: 5)"`
}

// A Recording is what record made.
type Recording struct {
	File    string `json:"file" jsonschema:"pass it to explain, diff and verify"`
	Bytes   int64  `json:"bytes"`
	Seconds string `json:"seconds"`
}

// confirmed is the key under which the client answers whether its user agrees.
const confirmed = "record"

// addRecord adds the tool that costs the service something: it asks the user first.
func (s *Server) addRecord() {
	no := false
	mcp.AddTool(s.mcp, &mcp.Tool{
		Name: "record", Title: "Record a running service",
		Description: "Records a service for some seconds, after the user agrees, and returns the recording's file. Tracing costs the service a few percent of its CPU in that time. Record under the usual load.",
		Annotations: &mcp.ToolAnnotations{Title: "Record a running service", DestructiveHint: &no, OpenWorldHint: &no},
	}, func(ctx context.Context, req *mcp.CallToolRequest, in recordIn) (*mcp.CallToolResult, *Recording, error) {
		address, err := s.allow.url(in.URL)
		if err != nil {
			return nil, nil, err
		}
		in.Seconds = cmp.Or(in.Seconds, 5)
		d := time.Duration(in.Seconds * float64(time.Second)).Round(time.Second)
		if !(in.Seconds >= 1) || d > s.config.MaxRecord {
			return nil, nil, fmt.Errorf("a recording takes from 1 to %.0f seconds", s.config.MaxRecord.Seconds())
		}
		answer, asked := req.Params.InputResponses[confirmed].(*mcp.ElicitResult)
		switch {
		case !asked:
			if c := req.ClientCapabilities(); c == nil || c.Elicitation == nil {
				return nil, nil, fmt.Errorf("this client cannot ask its user whether to record; the user can run: whylate record -d %v -o FILE.whylate %s", d, in.URL)
			}
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{confirmed: &mcp.ElicitParams{
				Message:         fmt.Sprintf("Record an execution trace of %s for %v? It costs the service a few percent of its CPU in that time.", in.URL, d),
				RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`),
			}}}, nil, nil
		case answer.Action != "accept":
			return nil, nil, errors.New("the user did not agree to the recording")
		}
		rec, err := s.record(ctx, address, d)
		return nil, rec, err
	})
}

var unsafeInNames = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func (s *Server) record(ctx context.Context, address string, d time.Duration) (*Recording, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%s.whylate", unsafeInNames.ReplaceAllString(u.Host, "_"), time.Now().UTC().Format("20060102T150405.000Z"))
	file := filepath.Join(s.allow.recordings, name)
	var said json.RawMessage
	if err := s.verbs.run(ctx, d, &said, "record", "--json", "--duration="+d.String(), "--output="+file, "--", address); err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxTrace {
		return nil, fmt.Errorf("the recording has %d MB: record for a shorter time (it is kept as %s)", info.Size()>>20, file)
	}
	return &Recording{File: file, Bytes: info.Size(), Seconds: d.String()}, nil
}
