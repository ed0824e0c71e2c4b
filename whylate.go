// Package whylate says why requests of a Go service were late, from an
// execution trace alone: no instrumentation, no source, no symbols.
//
//	f, err := os.Open("svc.trace")
//	...
//	rep, err := whylate.Explain(ctx, f, whylate.Options{Name: "svc.trace"})
//
// The report is the JSON contract of package report; report/text prints it.
package whylate

import (
	"context"
	"io"
	"regexp"
	"time"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/report"
)

// Options configure Explain. The zero value is ready for use.
type Options struct {
	// Name is what the report calls its input: a file name, or a URL without
	// credentials.
	Name string
	// Request, if not nil, selects functions by name: requests are their calls,
	// instead of what would be found otherwise.
	Request *regexp.Regexp
	// Group, if not nil, selects the groups that are reported, by name.
	Group *regexp.Regexp
	// IgnoreMarks leaves the marks of service/mark aside: requests are found as if
	// the service had none.
	NoMarks bool
	// Exact walks every request. Otherwise, from about 5,000 requests on, of those
	// that are not among the slowest tenth of their group only some are walked, with
	// weights (report.Sampled).
	Exact bool
	// TraceID, if not zero, limits the report to requests of the trace with this
	// id in a tracing system. Only requests whose id the recording holds can be
	// found so: those of service/mark, and those about which a tracer wrote user
	// logs. SpanID does the same for one span: the request's own, or that of who
	// asked.
	TraceID [16]byte
	SpanID  [8]byte
	// Slowest is how many of the slowest requests of a group are reported in
	// full; 0 means 3, negative none.
	Slowest int
	// From and To limit the report to requests that end in [From, To), counted
	// from the trace's start; a To of 0 means the end.
	From, To time.Duration
	// Modules are paths of modules, or of packages, whose code is the service's
	// own: sites in others are told with the own line that called them. Empty
	// means that the names of files tell.
	Modules []string
	// PathMap rewrites the beginnings of file names; the first that fits counts.
	PathMap []PathRewrite
	// MaxMemory bounds the memory for the largest generation, in bytes; 0
	// means 1 GiB. A generation that needs more is left out, with a warning.
	MaxMemory int64
	// Workers is the number of goroutines that decode and walk; 0 means
	// GOMAXPROCS. The report does not depend on it.
	Workers int
	// Host holds the host samples of a recording ("host.jsonl" of a x.whylate
	// file), Allocs a profile of the allocations of the same time (gzipped
	// pprof); nil if there is none. An error in them becomes a warning.
	Host, Allocs io.Reader
	// WhatIf are changes whose gain is predicted, all of them together, for
	// every group that they meet.
	WhatIf []Change
	// Progress, if not nil, is called now and then, from the calling
	// goroutine, with the bytes of input consumed.
	Progress func(bytes int64)
}

// A PathRewrite replaces Old at the beginning of a file name with New.
type PathRewrite struct{ Old, New string }

// ErrNothing is returned, wrapped, when not one whole generation of a trace
// could be read: there is nothing to report.
var ErrNothing = explain.ErrNothing

// Explain reads a trace to its end and says why the requests in it were late.
//
// A trace that is cut or damaged is reported as far as whole generations go,
// marked as truncated, with a warning. The error wraps ErrNothing where there
// is none. If ctx ends, what was read until then is reported together with
// ctx's error. A change of WhatIf that meets nothing is an error that wraps
// ErrWhatIf, beside a report without predictions.
//
// Explain reads ahead from another goroutine; it returns without waiting for
// a Read that is under way.
func Explain(ctx context.Context, r io.Reader, opts Options) (*report.Report, error) {
	in := explain.Options{
		Name: opts.Name, Request: opts.Request, Group: opts.Group, IgnoreMarks: opts.NoMarks, Exact: opts.Exact, TraceID: opts.TraceID, SpanID: opts.SpanID, Slowest: opts.Slowest, From: opts.From, To: opts.To,
		MaxMemory: opts.MaxMemory, Workers: opts.Workers, Host: opts.Host, Allocs: opts.Allocs, Progress: opts.Progress,
	}
	in.Modules = modules.New(modules.Options{OwnPaths: opts.Modules})
	for _, p := range opts.PathMap {
		in.PathMap = append(in.PathMap, spell.PathRewrite(p))
	}
	for _, c := range opts.WhatIf {
		in.WhatIf = append(in.WhatIf, c.internal())
	}
	return explain.Explain(ctx, r, in)
}
