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

	"github.com/whylate/whylate/internal/capture/record"
)

// maxTrace bounds a recording in bytes.
const maxTrace = 256 << 20

type recordIn struct {
	URL     string  `json:"url" jsonschema:"address of the service, one of those that this server may record"`
	Seconds float64 `json:"seconds,omitempty" jsonschema:"how long to record (default: 5)"`
}

// A Recording is the result of the tool record.
type Recording struct {
	File    string `json:"file" jsonschema:"pass it to explain, diff and verify"`
	Bytes   int64  `json:"bytes"`
	Seconds string `json:"seconds"`
}

// confirmationKey identifies the client's answer to the question whether its user agrees.
const confirmationKey = "record"

// addRecord adds the tool record. At each call it asks the user first, because recording costs the service CPU time; clients that
// cannot ask get an error.
func (s *Server) addRecord() {
	no := false
	mcp.AddTool(s.mcp, &mcp.Tool{
		Name: "record", Title: "Record a running service",
		Description: "Records a service for some seconds, after the user agrees, and returns the recording's file. Tracing costs the service a few percent of its CPU in that time. Record under the usual load.",
		Annotations: &mcp.ToolAnnotations{Title: "Record a running service", DestructiveHint: &no, OpenWorldHint: &no},
	}, func(ctx context.Context, req *mcp.CallToolRequest, in recordIn) (*mcp.CallToolResult, *Recording, error) {
		question, rec, err := s.recordTool(ctx, req, in)
		return question, escapeInvisible(rec), clientError(err)
	})
}

// recordTool returns the question to the user or, with the user's consent, the recording.
func (s *Server) recordTool(ctx context.Context, req *mcp.CallToolRequest, in recordIn) (*mcp.CallToolResult, *Recording, error) {
	address, public, err := s.policy.resolveURL(in.URL)
	if err != nil {
		return nil, nil, err
	}
	in.Seconds = cmp.Or(in.Seconds, 5)
	d := time.Duration(in.Seconds * float64(time.Second)).Round(time.Second)
	if !(in.Seconds >= 1) || d > s.config.MaxRecord {
		return nil, nil, fmt.Errorf("a recording takes from 1 to %.0f seconds", s.config.MaxRecord.Seconds())
	}
	question, err := askUser(req, fmt.Sprintf("Record an execution trace of %s for %v? It costs the service a few percent of its CPU in that time.", public, d), fmt.Sprintf("whylate record -d %v -o FILE.whylate %s", d, public))
	if question != nil || err != nil {
		return question, nil, err
	}
	rec, err := s.record(ctx, address, d)
	return nil, rec, err
}

var unsafeInNames = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// record records a service for d into the directory of recordings. The caller has checked the address. A recording larger than
// maxTrace is kept, but an error.
func (s *Server) record(ctx context.Context, address string, d time.Duration) (*Recording, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%s.whylate", unsafeInNames.ReplaceAllString(u.Host, "_"), time.Now().UTC().Format("20060102T150405.000Z"))
	file := filepath.Join(s.policy.recordings, name)
	var output json.RawMessage
	if err := s.verbs.run(ctx, d, &output, "record", "--json", "--no-redirects", "--duration="+d.String(), "--output="+file, "--", address); err != nil {
		return nil, recordError(err)
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

// failureTexts has a text for each kind of failure. The verb's message quotes the recorded server's
// answer, which would reach the assistant as if this server had written it.
var failureTexts = map[record.Kind]string{
	record.NotFound:     `no profiling handlers there: the service has to import net/http/pprof and serve it; if they are at another path, name that`,
	record.Unauthorized: `the service wants credentials: the operator can put them into the address of -url`,
	record.Forbidden:    `the service does not allow it to this server`,
	record.Busy:         `another program is tracing this process: try again when it has ended`,
	record.TooLong:      `the service's WriteTimeout does not allow a recording of this length: ask for fewer seconds`,
	record.Status:       `the service answered with another status than 200`,
	record.NotATrace:    `the answer is no execution trace: is this the address of net/http/pprof?`,
	record.OldTrace:     `the service was built by a Go version before 1.22`,
	record.DNS:          `the name could not be resolved`,
	record.Refused:      `connection refused: no process listens there`,
	record.Unreachable:  `no connection, or it was closed without an answer: is it an HTTP port?`,
	record.TLS:          `no TLS connection: its certificate is not trusted here, or one side does not speak TLS`,
	record.Timeout:      `no connection or answer within the time allowed`,
	record.Proxy:        `the proxy of this server's environment refused`,
	record.Redirect:     `it redirects to another address, which this server does not follow: name an allowed address that answers itself`,
	record.Cut:          `the service's answer ended before the first second of the recording was complete`,
	record.Interrupted:  `interrupted`,
	record.Write:        `the recording could not be written into the directory of -recordings`,
}

// recordError returns the error of a failed recording without text from the recorded server.
func recordError(err error) error {
	verbErr, ok := errors.AsType[*verbError](err)
	if !ok {
		return err
	}
	var out struct {
		Recordings []struct{ Error *struct{ Kind record.Kind } }
	}
	if json.Unmarshal(verbErr.output, &out) != nil || len(out.Recordings) == 0 {
		return err // it failed before it sent a request
	}
	text := "what arrived cannot be explained"
	if e := out.Recordings[0].Error; e != nil {
		text = cmp.Or(failureTexts[e.Kind], text)
	}
	return errors.New("recording the service: " + text)
}
