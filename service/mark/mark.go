package mark

import (
	"context"
	"encoding/hex"
	"runtime/trace"
	"sync/atomic"
	"time"
)

// A Kind is the kind of a marked request.
type Kind string

// The kinds. Their names are part of the form in the trace.
const (
	HTTP    Kind = "http"
	GRPC    Kind = "grpc"
	Job     Kind = "job"
	Message Kind = "message"
)

// The status of requests other than those of net/http and gRPC.
const (
	OK       = "ok"
	Error    = "error"
	Canceled = "canceled"
	Timeout  = "timeout"
	Panic    = "panic"
)

var background = context.Background()

// A Mark is a request that has begun. End of the zero value does nothing.
type Mark struct {
	active bool
	kind   Kind
	name   string
	began  time.Time // if there is a watcher
}

// Active reports whether a trace or a watcher would receive a mark that begins now.
func Active() bool { return trace.IsEnabled() || watcher.Load() != nil }

// Begin begins a request on this goroutine; End must be called on the same one.
// The name may be empty if it is only known at the end. Traceparent is the request's
// W3C Trace Context header, or empty; anything else is left out.
//
// Begin is for adapters to other frameworks. Services use Handler and Do.
func Begin(kind Kind, name, traceparent string) Mark {
	if !Active() {
		return Mark{}
	}
	return begin(kind, name, traceparent)
}

// begin is Begin while there is a watcher or a trace. It counts the request as open only if there is a watcher.
func begin(kind Kind, name, traceparent string) Mark {
	m := Mark{active: true, kind: kind, name: name}
	if watcher.Load() != nil {
		m.began = time.Now()
		openRequests.begin(m.began)
	}
	if trace.IsEnabled() {
		trace.Log(background, markTexts.beginText(kind, name), clipTraceparent(traceparent))
	}
	return m
}

// End ends the request. The status is one of few words, such as "2xx", "ok" or
// "DeadlineExceeded". A name that is not empty replaces the one given to Begin.
func (m *Mark) End(name, status string) {
	if !m.active {
		return
	}
	if name == "" {
		name = m.name
	}
	if status == "" {
		status = "unknown"
	}
	m.end(markTexts.endText(m.kind, name, status), name, status)
}

// end writes text, the encoded end of the request, to the trace, and passes name, status
// and duration to the watcher.
func (m *Mark) end(text, name, status string) {
	m.active = false
	if trace.IsEnabled() {
		trace.Log(background, text, "")
	}
	if m.began.IsZero() {
		return
	}
	took := time.Since(m.began)
	if w := watcher.Load(); w != nil {
		(*w)(Ended{Kind: m.kind, Name: name, Status: status, Began: m.began, Took: took})
	}
	openRequests.end(m.began) // after the watcher: if no request is open, the watcher has received all
}

// Do marks f as one request of a job: a cron job or a batch, for example. It returns
// f's error; a panic passes through. The status is "ok", "error", "canceled"
// (context.Canceled), "timeout" (context.DeadlineExceeded) or "panic".
//
// Names should be few: past a thousand different ones requests are called
// "(others)".
func Do(ctx context.Context, name string, f func(context.Context) error) error {
	if !Active() {
		return f(ctx)
	}
	return do(ctx, Job, name, "", f)
}

// DoMessage is Do for a message from another process, with the message's
// traceparent header or "".
func DoMessage(ctx context.Context, name, traceparent string, f func(context.Context) error) error {
	if !Active() {
		return f(ctx)
	}
	return do(ctx, Message, name, traceparent, f)
}

// do calls f within a mark of this kind. The status is that of f's error, or Panic if f
// does not return.
func do(ctx context.Context, kind Kind, name, traceparent string, f func(context.Context) error) (err error) {
	m := begin(kind, name, traceparent)
	status := Panic
	defer func() { m.End("", status) }()
	err = f(ctx)
	status = statusOf(err)
	return err
}

// Span writes the ids of a tracing system's span for the request on this goroutine: the
// request that has begun, or the next one to begin. Without an execution trace it
// does nothing. Adapters to tracing systems call it when a server's span starts.
func Span(traceID [16]byte, spanID [8]byte) {
	if !trace.IsEnabled() {
		return
	}
	text := make([]byte, 0, 55)
	text = append(text, "00-"...)
	text = hex.AppendEncode(text, traceID[:])
	text = append(text, '-')
	text = hex.AppendEncode(text, spanID[:])
	text = append(text, "-01"...)
	trace.Log(background, spanText, string(text))
}

// clipTraceparent returns the part of a traceparent header that is written: version 00, ids and flags, without what later versions add; "" for text
// of another form.
func clipTraceparent(h string) string {
	const size = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(h) < size || h[2] != '-' || h[35] != '-' || h[52] != '-' {
		return ""
	}
	return h[:size]
}

// Ended describes an ended request to a watcher.
type Ended struct {
	Kind   Kind
	Name   string
	Status string
	Began  time.Time
	Took   time.Duration
}

var watcher atomic.Pointer[func(Ended)]

// Watch calls f after the end of every request, on the request's own goroutine: f
// must not block. A process has at most one watcher; ok is false if there is one
// already. The function stop ends the watch.
func Watch(f func(Ended)) (stop func(), ok bool) {
	p := &f
	if !watcher.CompareAndSwap(nil, p) {
		return func() {}, false
	}
	return func() { watcher.CompareAndSwap(p, nil) }, true
}
