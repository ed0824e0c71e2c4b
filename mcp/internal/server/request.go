package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A Path is one request as a chain of segments.
type Path struct {
	Group     string    `json:"group"`
	ID        string    `json:"id"`
	Latency   string    `json:"latency"`
	Start     string    `json:"start" jsonschema:"since the recording began"`
	Status    string    `json:"status,omitempty"`
	TraceID   string    `json:"trace_id,omitempty"`
	OtherIDs  []string  `json:"others,omitempty" jsonschema:"ids of other requests of the group that can be asked for"`
	Segments  []Segment `json:"segments" jsonschema:"in order of time; adjacent short ones are joined"`
	Shortened int       `json:"shortened,omitempty" jsonschema:"the shortest segments, which were left out"`
}

// A Segment is a part of a request's time with one cause.
type Segment struct {
	Start     string   `json:"at" jsonschema:"since the request began"`
	Duration  string   `json:"takes"`
	Cause     string   `json:"cause"`
	Site      string   `json:"site,omitempty"`
	Goroutine uint64   `json:"goroutine"`
	WaitChain []string `json:"via,omitempty" jsonschema:"the chain of waits from the request to the goroutine whose time it was"`
}

// newPath returns a request q of group g as an answer of limited size; the longest segments stay.
func newPath(g *report.Group, q *report.Request) *Path {
	p := &Path{Group: shorten(g.Name, maxName), ID: q.ID, Latency: words.Brief(q.LatencyNS), Start: words.Brief(q.StartNS), Status: shorten(q.Status, 40), TraceID: q.TraceID, Segments: []Segment{}}
	for i := range g.Slowest {
		if g.Slowest[i].ID != q.ID {
			p.OtherIDs = append(p.OtherIDs, g.Slowest[i].ID)
		}
	}
	if t := g.Typical; t != nil && t.ID != q.ID {
		p.OtherIDs = append(p.OtherIDs, t.ID)
	}
	for limit := maxSegments; ; limit = limit * 3 / 4 {
		p.setSegments(q, limit)
		if jsonSize(p) <= maxAnswer || limit < 2 {
			return p
		}
	}
}

// setSegments sets the longest segments, at most limit, in order of time, and counts the others in
// Shortened.
func (p *Path) setSegments(q *report.Request, limit int) {
	minDuration := int64(0)
	if len(q.Segments) > limit {
		longestFirst := slices.SortedFunc(slices.Values(q.Segments), func(a, b report.Segment) int { return int(b.DurationNS - a.DurationNS) })
		minDuration = longestFirst[limit-1].DurationNS
	}
	p.Segments, p.Shortened = p.Segments[:0], 0
	for i := range q.Segments {
		s := &q.Segments[i]
		if s.DurationNS < minDuration || len(p.Segments) == limit {
			p.Shortened++
			continue
		}
		out := Segment{Start: words.Brief(s.StartNS - q.StartNS), Duration: words.Brief(s.DurationNS), Cause: string(s.Cause), Site: siteText(s.Site), Goroutine: s.Goroutine}
		for k := range s.Via[:min(len(s.Via), 4)] {
			out.WaitChain = append(out.WaitChain, strings.TrimSpace(string(s.Via[k].Wait)+" "+siteText(s.Via[k].Site)))
		}
		p.Segments = append(p.Segments, out)
	}
}

type requestIn struct {
	Report string `json:"report" jsonschema:"the report's id, from explain"`
	Group  string `json:"group,omitempty" jsonschema:"id, name or a part of the name of a group (default: the first)"`
	ID     string `json:"id,omitempty" jsonschema:"id of a request (default: the slowest)"`
}

// requestTool answers the tool request: the path of one request in a stored report; without an id, that of the group's slowest.
func (s *Server) requestTool(_ context.Context, in requestIn) (*Path, error) {
	k, err := s.reports.get(in.Report)
	if err != nil {
		return nil, err
	}
	g, err := k.findGroup(in.Group)
	if err != nil {
		return nil, err
	}
	list := slices.Clone(g.Slowest)
	if g.Typical != nil {
		list = append(list, *g.Typical)
	}
	ids := []string{}
	for i := range list {
		if in.ID == "" || list[i].ID == in.ID {
			return newPath(g, &list[i]), nil
		}
		ids = append(ids, list[i].ID)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("the report holds no request of %s in full", shorten(g.Name, maxName))
	}
	return nil, fmt.Errorf("there is no request %q in the report; of this group it holds %s", in.ID, strings.Join(ids, ", "))
}
