// Package export writes a report in the formats of other tools: pprof
// profiles, Perfetto traces, OpenTelemetry spans, tables and lines of JSON.
// The exported times add up to those of the report.
package export

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// A Format is a way to write a report.
type Format struct {
	Name string
	// Text says that a terminal may show the format.
	Text  bool
	Short string
	Write func(w io.Writer, r *report.Report) error
	// Sink returns a Sink that writes the format during a second reading of the
	// trace, or nil if the report suffices for the options. It is nil for otlp,
	// which needs further arguments: see NewSpans.
	Sink func(w io.Writer, r *report.Report, o Options) Sink
}

// Options say which part of a trace is written.
type Options struct {
	// All asks for every request, and for Perfetto every goroutine.
	All bool
	// Rows is the kind of rows of a table: RowCauses or RowRequests.
	Rows string
	// FromNS and ToNS are the part of the trace's time that the report covers
	// (see explain.Options).
	FromNS, ToNS int64
}

// Rows of a table.
const (
	RowCauses   = "causes"
	RowRequests = "requests"
)

// Formats returns all formats, in the order in which help lists them.
func Formats() []Format {
	return []Format{
		{"pprof", false, "time on critical paths by stack, for go tool pprof", Pprof, nil},
		{"perfetto", false, "what ran on every P, goroutines' states and wakes, requests, GC and heap over time, for ui.perfetto.dev", Perfetto, perfettoSink},
		{"otlp", true, "requests and their segments as OpenTelemetry spans", OTLP, nil},
		{"csv", true, "the causes of every band of every group, a row each; or the requests", CSV, csvSink},
		{"jsonl", true, "groups, causes, findings, requests, segments, lanes and wakes, an object a line", JSONL, jsonlSink},
	}
}

func perfettoSink(w io.Writer, r *report.Report, o Options) Sink {
	return NewPerfettoTrace(w, r, o)
}

// csvSink returns a sink that writes a row for each request; nil if the rows are causes, which the report has.
func csvSink(w io.Writer, r *report.Report, o Options) Sink {
	if o.Rows != RowRequests {
		return nil
	}
	return newRequestTable(w)
}

// jsonlSink returns a sink that writes all requests; nil if those in the report are enough.
func jsonlSink(w io.Writer, r *report.Report, o Options) Sink {
	if !o.All {
		return nil
	}
	return newJSONLines(w, r)
}

// Find returns the format of that name. The error for an unknown one lists all.
func Find(name string) (Format, error) {
	all := Formats()
	if i := slices.IndexFunc(all, func(f Format) bool { return f.Name == name }); i >= 0 {
		return all[i], nil
	}
	var names []string
	for _, f := range all {
		names = append(names, f.Name)
	}
	return Format{}, fmt.Errorf("unknown format %.40q: the formats are %s", name, strings.Join(names, ", "))
}

// siteText returns a site in one line: function, position, what it does, and its caller; "" for nil.
func siteText(s *report.Site) string {
	if s == nil {
		return ""
	}
	text := s.Func
	if s.File != "" {
		text += " " + s.File + ":" + strconv.Itoa(s.Line)
	}
	if s.Does != "" {
		text += " (" + s.Does + ")"
	}
	if s.CalledFrom != nil {
		text += " " + names.CallerLead(s.CalledFrom) + siteText(s.CalledFrom.Site())
	}
	return text
}

// viaText returns a wait chain in one line, the request's wait first.
func viaText(via []report.Via) string {
	text := ""
	for i := range via {
		if i > 0 {
			text += " > "
		}
		text += strings.TrimSpace(string(via[i].Wait) + " " + siteText(via[i].Site))
	}
	return text
}

// allRoutes returns the wait chains of a cause with their times, which add up to the cause's time. The chains that the report
// does not list are one route of "other waits".
func allRoutes(c *report.Cause) []report.Route {
	if len(c.Routes) == 0 {
		return []report.Route{{Via: c.Via, TotalNS: c.TotalNS}}
	}
	out := slices.Clone(c.Routes)
	unlisted := c.TotalNS
	for _, r := range out {
		unlisted -= r.TotalNS
	}
	if unlisted > 0 {
		out = append(out, report.Route{Via: []report.Via{{Wait: "other waits"}}, TotalNS: unlisted})
	}
	return out
}
