package mark

import (
	"context"
	"encoding/hex"
	"errors"
	"runtime/trace"
	"sync/atomic"
	"time"
)

// A Kind says what sort of request a mark is of.
type Kind string

// The kinds. Their names are part of the form in the trace.
const (
	HTTP    Kind = "http"
	GRPC    Kind = "grpc"
	Job     Kind = "job"
	Message Kind = "message"
)

// Status of what came out, for marks other than those of net/http and gRPC.
const (
	OK       = "ok"
	Error    = "error"
	Canceled = "canceled"
	Timeout  = "timeout"
	Panic    = "panic"
)

var background = context.Background()

// A Mark is a request that has begun. Its zero value is none: End does nothing.
type Mark struct {
	on    bool
	kind  Kind
	name  string
	began time.Time // if somebody watches
}

// Active reports whether a mark that begins now would be seen by anybody.
func Active() bool { return trace.IsEnabled() || watcher.Load() != nil }

// Begin begins a request on this goroutine; End must be called on the same one.
// The name may be empty if only the end knows it. Traceparent is the W3C Trace
// Context header that came with the request, or empty; what is no such header
// is left out.
//
// Handler and Do call it; it is for adapters to other frameworks.
func Begin(kind Kind, name, traceparent string) Mark {
	if !Active() {
		return Mark{}
	}
	return begin(kind, name, traceparent)
}

func begin(kind Kind, name, traceparent string) Mark {
	m := Mark{on: true, kind: kind, name: name}
	if watcher.Load() != nil {
		m.began = time.Now()
		opened.begin(m.began)
	}
	if trace.IsEnabled() {
		trace.Log(background, texts.begin(kind, name), parent(traceparent))
	}
	return m
}

// End ends the request. Status says how it came out, in few different words:
// "2xx", "ok", "DeadlineExceeded". A name that is not empty takes the place of
// the one given to Begin.
func (m *Mark) End(name, status string) {
	if !m.on {
		return
	}
	if name == "" {
		name = m.name
	}
	if status == "" {
		status = "unknown"
	}
	m.end(texts.end(m.kind, name, status), name, status)
}

func (m *Mark) end(text, name, status string) {
	m.on = false
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
	opened.end(m.began) // after: where none is open, the watcher knows of all
}

// Do marks f as one request of a kind of job: a cron job, a batch. It returns
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

// DoMessage is Do for a message that came from elsewhere, with the traceparent
// header that it carried, or "".
func DoMessage(ctx context.Context, name, traceparent string, f func(context.Context) error) error {
	if !Active() {
		return f(ctx)
	}
	return do(ctx, Message, name, traceparent, f)
}

func do(ctx context.Context, kind Kind, name, traceparent string, f func(context.Context) error) (err error) {
	m := begin(kind, name, traceparent)
	status := Panic
	defer func() { m.End("", status) }()
	err = f(ctx)
	status = outcome(err)
	return err
}

func outcome(err error) string {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return Error
}

// Span tells which span of a tracing system the request on this goroutine is:
// the one that has begun, or the next one to begin. It does nothing while
// nobody traces. Adapters to tracing systems call it when a span of a server
// starts.
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

// parent returns the part of a traceparent header that is written: version 00,
// ids and flags, without what later versions add.
func parent(h string) string {
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

// Watch makes f be called at the end of every request, on the request's own
// goroutine and after it: f must not block. There is one watcher in a process;
// Watch reports false if somebody else watches. The function that it returns
// ends it.
func Watch(f func(Ended)) (stop func(), ok bool) {
	p := &f
	if !watcher.CompareAndSwap(nil, p) {
		return func() {}, false
	}
	return func() { watcher.CompareAndSwap(p, nil) }, true
}
