// Package report is whylate's answer as data: the JSON contract
// "whylate.report/v1". Fields may be added, never renamed; report.schema.json
// next to this file describes the same structure for other languages.
//
// All *_ns fields are whole nanoseconds. Times are relative to the start of the
// trace. Shares and confidences are 0..1. What could not be computed is null or
// absent, never a made-up number. A Report is plain data: goroutines that only
// read it may share it.
package report

import "time"

// Schema is the value of Report.Schema.
const Schema = "whylate.report/v1"

// A Report says why requests were late.
type Report struct {
	Schema string `json:"schema"`
	Input  Input  `json:"input"`
	// Services are the services that were recorded together, callers first; nil for a single one. Input,
	// Runtime and Host are those of the first. Times of a group are relative to the start of its service's trace.
	Services []Service `json:"services,omitempty"`
	Groups   []Group   `json:"groups"`
	// Servers sum up the requests of servers by protocol, whether or not a request shows its handler.
	Servers  []Server  `json:"servers,omitempty"`
	Findings []Finding `json:"findings"`
	// Judged says which rules had the data they need; nil in reports of older versions.
	Judged *Judged `json:"judged,omitempty"`
	// Starts is what goroutines did, the busiest first, if no requests were found: candidates for --func.
	Starts []Start `json:"starts,omitempty"`
	// Verdict says in words what slow requests spent their time on, for the groups with the most latency.
	Verdict []Verdict `json:"verdict,omitempty"`
	Runtime Runtime   `json:"runtime"`
	// Moments are short intervals in which many of a group's slowest requests begin.
	Moments []Moment `json:"moments,omitempty"`
	// Host is what the kernel's counters show, if the recording has samples of them.
	Host *Host `json:"host,omitempty"`
	// Kernel summarises the kernel's events; nil if the recording has none.
	Kernel *Kernel `json:"kernel,omitempty"`
	// WhatIf predicts what the requested changes would win, for each group that they affect.
	WhatIf []WhatIf `json:"what_if,omitempty"`
	// Capacity says at which load each resource saturates, if that was asked.
	Capacity *Capacity `json:"capacity,omitempty"`
	// Goals are the requested latency goals, and which changes would reach them.
	Goals []Goal `json:"goals,omitempty"`
}

// Judged says what each rule concluded. No finding means no fault only if the rule could judge.
type Judged struct {
	Rules int        `json:"rules"`
	Found []RuleCode `json:"found"` // have findings, some of them perhaps ignored
	Clear []RuleCode `json:"clear"` // had the data they need, and found nothing
	// Blind are the rules that could not judge, by the data that they lacked.
	Blind []Blind `json:"blind"`
	// Record is the command whose recording lets Blind judge, as far as a recording can; empty if none does.
	Record string `json:"record,omitempty"`
	// Text says all this in one line.
	Text string `json:"text"`
}

// Blind are rules that lacked the same data.
type Blind struct {
	Reason BlindReason `json:"reason"`
	Text   string      `json:"text"`
	Codes  []RuleCode  `json:"codes"`
	Record string      `json:"record"` // the command whose recording lets these rules judge
}

// A Service is one of several that were recorded in the same seconds.
type Service struct {
	Name  string `json:"name"`
	Input Input  `json:"input"`
	// Clock relates the start of the service's trace to that of the first service's; nil if that is not known.
	Clock *ServiceClock `json:"clock,omitempty"`
	// Calls are the calls of other services that are joined with the requests that answer them.
	Calls   []ServiceCalls `json:"calls,omitempty"`
	Servers []Server       `json:"servers,omitempty"`
	Runtime Runtime        `json:"runtime"`
	Host    *Host          `json:"host,omitempty"`
}

// A ServiceClock is the time from the start of the first service's trace to that of another one: OffsetNS, between LowNS and HighNS.
// Both are equal on one host. Otherwise the calls between services show the difference of their clocks.
type ServiceClock struct {
	OffsetNS int64 `json:"offset_ns"`
	LowNS    int64 `json:"low_ns"`
	HighNS   int64 `json:"high_ns"`
	// DriftPPM is by how many millionths the service's clock is faster than the first one's.
	DriftPPM float64 `json:"drift_ppm,omitempty"`
}

// ServiceCalls counts the calls of another service.
type ServiceCalls struct {
	Service string `json:"service"`
	Joined  int    `json:"joined"`
	// Ambiguous counts further calls that may be for several requests, and that stay one wait each.
	Ambiguous int `json:"ambiguous,omitempty"`
}

// Input describes the recording.
type Input struct {
	Name       string     `json:"name"`
	Bytes      int64      `json:"bytes"`
	Events     int64      `json:"events"`
	Start      *time.Time `json:"start"` // wall clock, RFC 3339; null if the trace has none
	DurationNS int64      `json:"duration_ns"`
	Go         string     `json:"go"` // "1.26", from the trace's header
	GOMAXPROCS int        `json:"gomaxprocs"`
	Truncated  bool       `json:"truncated"`
	// Observer counts requests to the profiler's own endpoints. They are in no group.
	Observer int `json:"observer,omitempty"`
	// Sampled is set if only some requests' paths were followed.
	Sampled *Sampled `json:"sampled,omitempty"`
	// LeftOut is work that was found but is not a group, the most frequent first.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// TraceFrom is [TraceFromUprobes] for a trace that was made from outside the process; empty for one of the runtime.
	TraceFrom string `json:"trace_from,omitempty"`
	// Reason is why the service's flight recorder kept the recording, if it did.
	Reason string `json:"reason,omitempty"`
	// Service identifies the process, with OpenTelemetry's names (k8s.pod.name), if the recording does.
	Service  map[string]string `json:"service,omitempty"`
	Warnings []Warning         `json:"warnings"`
}

// TraceFromUprobes is Input.TraceFrom of a trace that whylate record --pid made. It shows no Ps, no garbage collection, no marks and tasks,
// so the report concludes nothing from their absence.
const TraceFromUprobes = "uprobes"

// A Sampled says how many requests' paths were followed. Counts and latencies are those of all requests, and the slowest
// tenth of every group was followed. Of the rest, those followed represent similar ones of the group, by weights.
type Sampled struct {
	Walked   int `json:"walked"`
	Requests int `json:"of"`
}

// A Start is what the goroutines of one start function did.
type Start struct {
	Site *Site `json:"site"` // the function, or the outermost of the service's own code if there is one
	// Inner is the function of the service's own code that it called most often, null if none was seen.
	Inner      *Site `json:"inner"`
	Goroutines int   `json:"goroutines"`
	Wakes      int   `json:"wakes"` // waits that ended
	RunningNS  int64 `json:"running_ns"`
}

// A LeftOut is work that is not a group of the report.
type LeftOut struct {
	Kind   Kind          `json:"kind"`
	Name   string        `json:"name"`
	Count  int           `json:"count"` // approximate
	Reason LeftOutReason `json:"why"`
}

// WarnUnnamedRequests is the code of the warning that requests without a wait are missing in the groups of their handlers.
const WarnUnnamedRequests = "unnamed-requests"

// A Warning is a reason to trust the report less.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// A Site is a place in source code.
type Site struct {
	Func string `json:"func"`
	File string `json:"file"`
	Line int    `json:"line"`
	// Service is the service whose code it is, if that is not the service of the group or of the finding.
	Service string `json:"service,omitempty"`
	// Does says what a well-known line of the standard library does: "reading the request".
	Does string `json:"does,omitempty"`
	// Module and Version name the dependency, if known.
	Module  string `json:"module,omitempty"`
	Version string `json:"version,omitempty"`
	// CalledFrom is, for a dependency's code, the innermost line of the service's own code that led there: on the stack,
	// else in the request's waits from the last to the first, else where the library was called that started the goroutine.
	CalledFrom *Caller `json:"called_from,omitempty"`
}

// A Caller is a line of the service's own code, which its authors can change.
type Caller struct {
	Func string `json:"func"`
	File string `json:"file"`
	Line int    `json:"line"`
	// Calls is the function that the line calls on the way to the site; empty if the line waits for it instead.
	Calls string `json:"calls,omitempty"`
	// OtherGoroutine says that another goroutine runs the site's code: the line waits for this goroutine, or has started it.
	OtherGoroutine bool `json:"apart,omitempty"`
}

// Awaits reports whether the line is in a call of the library that waits until another goroutine of the library has run the site's
// code.
func (c *Caller) Awaits() bool { return c != nil && c.Calls == "" && !c.OtherGoroutine }
