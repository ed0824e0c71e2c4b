package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
	"github.com/whylate/whylate/internal/output/words"
)

// maxRankedFindings bounds the findings of a fleet in an answer.
const maxRankedFindings = 20

// addFleet adds the tools that query a fleet (docs/fleet.md). The operator sets its address and token.
func (s *Server) addFleet() {
	addTool(s, "fleet", "What costs most, in all services?",
		"Ranks the findings of all services of the fleet, or of one, by the time that a fix would win. Ask this first when it is not known which service or recording to look at.",
		s.fleetTool)
	addTool(s, "fleet_recording", "A recording of the fleet, explained",
		"Fetches a recording by the id that the tool fleet names, and explains it as the tool explain does; its file can then be passed to the other tools.",
		s.fleetRecordingTool)
}

type fleetIn struct {
	Service     string `json:"service,omitempty" jsonschema:"name of a service (default: all)"`
	Environment string `json:"environment,omitempty" jsonschema:"such as production (default: all)"`
	From        string `json:"from,omitempty" jsonschema:"a duration before now such as 24h, or a time (default: 168h)"`
}

// A Ranking has the findings of a fleet.
type Ranking struct {
	Findings     []RankedFinding `json:"findings" jsonschema:"the one whose fix would win most first"`
	MoreFindings int             `json:"more_findings,omitempty" jsonschema:"findings that were left out here; name a service"`
}

// A RankedFinding is a finding over all recordings of a service.
type RankedFinding struct {
	Service     string   `json:"service"`
	Environment string   `json:"environment,omitempty"`
	Versions    []string `json:"versions" jsonschema:"that have it, the oldest first"`
	Replaced    bool     `json:"replaced,omitempty" jsonschema:"none of these versions is served any more"`
	Group       string   `json:"group"`
	Code        string   `json:"code"`
	Severity    string   `json:"severity"`
	Title       string   `json:"title"`
	Site        string   `json:"site,omitempty"`
	Fix         string   `json:"fix,omitempty"`
	Gain        string   `json:"wins" jsonschema:"time that requests would wait less in each second, by all pods together"`
	PerRequest  string   `json:"each" jsonschema:"time that one request would win on average"`
	Pods        int      `json:"pods"`
	First       string   `json:"first"`
	Last        string   `json:"last"`
	Recording   string   `json:"recording" jsonschema:"id of the newest; pass it to the tool fleet_recording"`
}

// fleetTool answers the tool fleet: the fleet's findings, ranked by gain, as many as an answer may have.
func (s *Server) fleetTool(ctx context.Context, in fleetIn) (*Ranking, error) {
	q := make(url.Values)
	for name, value := range map[string]string{"service": in.Service, "environment": in.Environment, "from": in.From} {
		if value != "" {
			q.Set(name, value)
		}
	}
	body, err := s.queryFleet(ctx, "/v1/findings?"+q.Encode())
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := wire.ReadAll(body, maxOutput)
	if err != nil {
		return nil, fmt.Errorf("reading the fleet's answer: %w", err)
	}
	var findings []struct {
		Service, Environment, Group, Code, Severity, Title, Site, Fix, Recording string
		Versions                                                                 []string
		Replaced                                                                 bool `json:"gone"`
		First, Last                                                              time.Time
		Pods                                                                     int
		Win                                                                      float64 `json:"win_per_second"`
		Gain                                                                     int64   `json:"gain_ns"`
	}
	if err := json.Unmarshal(data, &findings); err != nil {
		return nil, fmt.Errorf("reading the fleet's answer: %w", err)
	}
	out := &Ranking{Findings: []RankedFinding{}}
	for _, f := range findings[:min(len(findings), maxRankedFindings)] {
		r := RankedFinding{Service: shorten(f.Service, maxName), Environment: shorten(f.Environment, maxName), Versions: []string{}, Replaced: f.Replaced, Group: shorten(f.Group, maxName), Code: shorten(f.Code, maxName),
			Severity: shorten(f.Severity, maxName), Title: shorten(f.Title, maxText), Site: shorten(f.Site, 2*maxName), Fix: shorten(f.Fix, maxText), Gain: words.Brief(int64(f.Win * 1e9)), PerRequest: words.Brief(f.Gain),
			Pods: f.Pods, First: f.First.UTC().Format(time.RFC3339), Last: f.Last.UTC().Format(time.RFC3339), Recording: shorten(f.Recording, maxName)}
		for _, v := range f.Versions[max(0, len(f.Versions)-4):] {
			r.Versions = append(r.Versions, shorten(v, maxName))
		}
		out.Findings = append(out.Findings, r)
	}
	for jsonSize(out) > maxAnswer && len(out.Findings) > 1 {
		out.Findings = out.Findings[:len(out.Findings)-1]
	}
	out.MoreFindings = len(findings) - len(out.Findings)
	return out, nil
}

type fleetRecordingIn struct {
	Recording string `json:"recording" jsonschema:"id of a recording, from the tool fleet"`
}

// A FetchedRecording is a short report on a recording of the fleet, with the file of its local copy.
type FetchedRecording struct {
	File string `json:"file" jsonschema:"pass it to what_if, diff and verify"`
	*Explanation
}

var recordingID = regexp.MustCompile("^[0-9a-f]{32}$")

// fleetRecordingTool answers the tool fleet_recording: it fetches a recording of the fleet, unless an earlier call has, and
// explains it.
func (s *Server) fleetRecordingTool(ctx context.Context, in fleetRecordingIn) (*FetchedRecording, error) {
	if !recordingID.MatchString(in.Recording) { // the id becomes the name of a file
		return nil, fmt.Errorf("%q is no id of a recording: call the tool fleet and pass its \"recording\"", in.Recording)
	}
	file := filepath.Join(s.policy.recordings, in.Recording+".whylate")
	if _, err := os.Stat(file); err != nil {
		if err := s.fetchRecording(ctx, in.Recording, file); err != nil {
			return nil, err
		}
	}
	k, err := s.explain(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	return &FetchedRecording{file, newExplanation(k.id, k.report)}, nil
}

// fetchRecording copies a recording of the fleet to a file, completely or not at all. A recording above Config.MaxFile is an error.
func (s *Server) fetchRecording(ctx context.Context, id, file string) error {
	body, err := s.queryFleet(ctx, "/recordings/"+id+"/raw")
	if err != nil {
		return err
	}
	defer body.Close()
	f, err := os.CreateTemp(s.policy.recordings, "fleet-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	n, err := io.Copy(f, io.LimitReader(body, s.config.MaxFile+1))
	switch {
	case err != nil:
		return fmt.Errorf("fetching the recording: %w", err)
	case n > s.config.MaxFile:
		return fmt.Errorf("the recording has more than the %d bytes that this server reads: start whylate-mcp with a larger -max-file", s.config.MaxFile)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// queryFleet sends a request to the fleet. Its error does not quote the answer, which may come from a
// proxy or another server.
func (s *Server) queryFleet(ctx context.Context, path string) (io.ReadCloser, error) {
	body, err := wire.QueryFleet(ctx, strings.TrimSuffix(s.config.Fleet, "/")+path, s.config.FleetToken, s.config.Timeout)
	if e, ok := errors.AsType[*wire.FleetError](err); ok {
		help := map[int]string{
			http.StatusBadRequest:   `: "from" is a duration such as 24h, or a time such as 2026-01-31T12:00:00Z`,
			http.StatusUnauthorized: ": the operator sets a reader's token by WHYLATE_FLEET_TOKEN",
			http.StatusNotFound:     ": the fleet does not know it, or has deleted it",
		}[e.Code]
		return nil, fmt.Errorf("the fleet answered %d %s%s", e.Code, http.StatusText(e.Code), help)
	}
	return body, err
}
