package server

import (
	"context"
	"encoding/json"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/whylate/whylate/report"
)

const (
	recordingsURI = "whylate://recordings"
	ruleURI       = "whylate://rules/"
	maxListed     = 100
)

// addResources adds the list of recordings below the roots, and a page for each rule.
func (s *Server) addResources() {
	s.mcp.AddResource(&mcp.Resource{
		URI: recordingsURI, Name: "recordings", Title: "Recordings that can be explained", MIMEType: "application/json",
		Description: "Execution traces and .whylate files below the allowed directories, the newest first.",
	}, func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return asJSON(req.Params.URI, escapeInvisible(s.policy.listRecordings(ctx)))
	})
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: ruleURI + "{code}", Name: "rule", Title: "What a finding means", MIMEType: "application/json",
	}, func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		code := strings.TrimPrefix(req.Params.URI, ruleURI)
		if !slices.Contains(report.RuleCodes(), report.RuleCode(code)) {
			return nil, mcp.ResourceNotFoundError(req.Params.URI)
		}
		rules, err := s.rulesTool(ctx, rulesIn{Codes: []string{code}})
		if err != nil {
			return nil, err
		}
		return asJSON(req.Params.URI, rules)
	})
}

// asJSON returns v as the content of a resource in JSON.
func asJSON(uri string, v any) (*mcp.ReadResourceResult, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "application/json", Text: string(text)}}}, nil
}

// A ListedRecording is a recording that the tool explain accepts.
type ListedRecording struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	Time  string `json:"time"`
}

// listRecordings returns the newest recordings, at most maxListed, among the first maxFiles files below the roots. It selects files by extension, and
// skips hidden directories and files that are too large. It is incomplete if ctx ends.
func (a *accessPolicy) listRecordings(ctx context.Context) []ListedRecording {
	out := []ListedRecording{}
	visited := 0
	for _, root := range a.roots {
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if visited++; visited > maxFiles || ctx.Err() != nil {
				return filepath.SkipAll
			}
			if err != nil || d.IsDir() {
				if d != nil && d.IsDir() && p != root && strings.HasPrefix(d.Name(), ".") {
					return filepath.SkipDir
				}
				return nil
			}
			name := strings.TrimSuffix(d.Name(), ".gz")
			if !d.Type().IsRegular() || !strings.HasSuffix(name, ".whylate") && !strings.HasSuffix(name, ".trace") {
				return nil
			}
			if info, err := d.Info(); err == nil && info.Size() <= a.maxFile {
				out = append(out, ListedRecording{p, info.Size(), info.ModTime().UTC().Format("2006-01-02T15:04:05Z")})
			}
			return nil
		})
	}
	slices.SortFunc(out, func(x, y ListedRecording) int { return strings.Compare(y.Time+x.File, x.Time+y.File) })
	return out[:min(len(out), maxListed)]
}
