// Package whylate explains why requests of a Go service were late. It needs only an execution trace: no instrumentation,
// no source, no symbols.
//
//	f, err := os.Open("svc.trace")
//	...
//	rep, err := whylate.Explain(ctx, f, whylate.Options{Name: "svc.trace"})
//
// The report is the JSON contract of package report. Package report/text prints it.
package whylate

import (
	"context"
	"io"
	"regexp"
	"time"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/report"
)

// Options configure Explain. The zero value is ready for use.
type Options struct {
	// Name is the report's name of its input: a file name, or a URL without credentials.
	Name string
	// Request, if not nil, selects functions by name. Their calls are the requests, and no others are searched for.
	Request *regexp.Regexp
	// Group, if not nil, selects the groups that are reported, by name.
	Group *regexp.Regexp
	// NoMarks finds requests as if the service had no marks of package service/mark.
	NoMarks bool
	// Exact walks every request. Otherwise, after about 5,000 requests, only the slowest of each group and a weighted
	// sample of its other requests are walked (report.Sampled).
	Exact bool
	// TraceID, if not zero, limits the report to requests with this trace id of a tracing system. The recording must hold
	// the id: in a mark of package service/mark, or in a user log of a tracer. SpanID, if not zero, limits the report to
	// requests with this span id, their own or the caller's.
	TraceID [16]byte
	SpanID  [8]byte
	// Slowest is how many of the slowest requests of a group are reported in full. 0 means 3, negative none.
	Slowest int
	// Iterations divides the time of a benchmark's or a program's run, because a trace does not show where iterations begin. It
	// is their number, or lines that benchmarks printed ("BenchmarkSum-2 40 34123456 ns/op"). "" means unknown.
	Iterations string
	// From and To limit the report to requests that end in [From, To), as time since the start of the trace. A To of 0
	// means the end.
	From, To time.Duration
	// Modules are paths of modules or packages whose code is the service's own. A site in other code is reported with the
	// service's line that called it. If Modules is empty, file names decide.
	Modules []string
	// PathMap replaces prefixes of file names. The first rewrite that matches applies.
	PathMap []PathRewrite
	// MaxMemory bounds the memory for the largest generation, in bytes; 0 means 1 GiB. A larger generation is left out,
	// with a warning.
	MaxMemory int64
	// Workers is the number of goroutines that decode and walk; 0 means GOMAXPROCS. The report does not depend on it.
	Workers int
	// Host reads the host samples of a recording ("host.jsonl" of a x.whylate file), Allocs an allocation profile of the
	// same time (gzipped pprof). nil means none. An error in them becomes a warning.
	Host, Allocs io.Reader
	// Kernel reads the kernel's events of a recording ("kernel.bin"). nil means none. An error in them becomes a warning.
	Kernel io.Reader
	// WhatIf are changes whose combined gain is predicted for every group that they affect.
	WhatIf []Change
	// Progress, if not nil, is called repeatedly with the bytes of input consumed, from the calling goroutine.
	Progress func(bytes int64)
}

// A PathRewrite replaces Old at the beginning of a file name with New.
type PathRewrite struct{ Old, New string }

// ErrNothing is returned, wrapped, if not one whole generation of a trace could be read.
var ErrNothing = explain.ErrNothing

// Explain reads a trace to its end and explains the latency of its requests.
//
// If the trace is truncated or damaged, its whole generations are reported, with a warning, and marked as truncated. The
// error wraps ErrNothing if there are none. If ctx ends, the report on what was read until then is returned together with
// ctx's error. If a change of WhatIf affects no request, the report has no predictions, and the error wraps ErrWhatIf.
//
// Explain reads ahead in another goroutine. It does not wait for a Read that has not returned.
func Explain(ctx context.Context, r io.Reader, opts Options) (*report.Report, error) {
	in := explain.Options{
		Selection: pass.Selection{Request: opts.Request, IgnoreMarks: opts.NoMarks, TraceID: opts.TraceID, SpanID: opts.SpanID, From: opts.From, To: opts.To},
		Name:      opts.Name, Group: opts.Group, Exact: opts.Exact, Slowest: opts.Slowest, MaxMemory: opts.MaxMemory, Workers: opts.Workers,
		Host: opts.Host, Allocs: opts.Allocs, Kernel: opts.Kernel, Progress: opts.Progress, Modules: modules.New(modules.Options{OwnPaths: opts.Modules}),
	}
	if opts.Iterations != "" {
		var err error
		if in.Iterations, err = explain.ParseIterations(opts.Iterations); err != nil {
			return nil, err
		}
	}
	for _, p := range opts.PathMap {
		in.PathMap = append(in.PathMap, spell.PathRewrite(p))
	}
	for _, c := range opts.WhatIf {
		in.WhatIf = append(in.WhatIf, c.internal())
	}
	return explain.Explain(ctx, r, in)
}
