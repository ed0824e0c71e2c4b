package request

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// identityFinder reads the ids that tracers write into a trace: user logs with ids of traces and spans, in a task or on
// a goroutine.
type identityFinder struct {
	generation  int
	logReaders  map[tracefmt.StringID]idReader // by key of the user log
	hasIDs      bool                           // a log with ids was seen
	byTask      map[uint64]*taskIdentity
	byTaskBegin map[int64][]*taskIdentity // by the time at which the task began
	byGoroutine map[uint64][]loggedIdentity
	pending     map[uint64]*Identity // by goroutine: logged since the last task began on it
}

// A taskIdentity has the ids that were logged for one user task.
type taskIdentity struct {
	Identity                 // logged in the task
	preceding      *Identity // logged on its goroutine just before it
	name           tracefmt.StringID
	lastGeneration int // of the last log or event of the task
}

// loggedIdentity is an identity that was logged on a goroutine.
type loggedIdentity struct {
	time       int64
	generation int
	*Identity
}

// identityGenerations is for how many generations an identity is kept after the last event of its task. A request that
// is open for longer loses it.
const identityGenerations = 16

// newIdentityFinder returns an empty identityFinder.
func newIdentityFinder() *identityFinder {
	return &identityFinder{
		logReaders: make(map[tracefmt.StringID]idReader), byTask: make(map[uint64]*taskIdentity),
		byTaskBegin: make(map[int64][]*taskIdentity), byGoroutine: make(map[uint64][]loggedIdentity),
		pending: make(map[uint64]*Identity),
	}
}

// add reads the ids that a generation's user logs hold, and follows the tasks that they belong to. It does nothing until the
// first log with ids, because most traces have none and following every task is expensive.
func (x *identityFinder) add(g *timeline.Gen, syms *tracefmt.Symbols) {
	x.generation++
	// Most traces have no ids, and following every task is expensive.
	for i := 0; i < len(g.User) && !x.hasIDs; i++ {
		x.hasIDs = g.User[i].Kind == timeline.LogMessage && x.logReader(g.User[i].Name, syms) != nil
	}
	if !x.hasIDs {
		return
	}
	for event := range entry.Each(g.User) {
		switch event.Kind {
		case timeline.TaskBegin:
			t := &taskIdentity{preceding: x.pending[event.G], name: event.Name, lastGeneration: x.generation}
			delete(x.pending, event.G)
			x.byTask[event.Task] = t
			x.byTaskBegin[event.Time] = append(x.byTaskBegin[event.Time], t)
		case timeline.TaskEnd:
			// Logs of the task may have the same time, in any order.
			if t := x.byTask[event.Task]; t != nil {
				t.lastGeneration = x.generation
			}
		case timeline.LogMessage:
			x.addLog(event, syms)
		}
	}
	x.dropOld()
}

// addLog assigns the ids of a user log to a task or a goroutine. Tracers write ids in two ways: within the task that has them, or
// from a hook just before the task begins, on the goroutine that begins it (for a child task: within its parent). A task with a
// log before it is of the second kind, so that logs within it belong to its children.
func (x *identityFinder) addLog(event *timeline.UserEvent, syms *tracefmt.Symbols) {
	var id Identity
	if read := x.logReader(event.Name, syms); read == nil || !read(&id, syms.String(event.Value)) {
		return
	}
	t := x.byTask[event.Task]
	if event.Task == 0 || t == nil || t.preceding != nil {
		if b := x.pending[event.G]; b != nil && b.merge(&id) {
			return
		}
		x.pending[event.G] = &id
		if event.Task == 0 || t == nil {
			x.byGoroutine[event.G] = append(x.byGoroutine[event.G], loggedIdentity{event.Time, x.generation, &id})
		}
		return
	}
	t.lastGeneration = x.generation
	first := t.Identity == Identity{}
	if t.merge(&id) && first {
		x.byGoroutine[event.G] = append(x.byGoroutine[event.G], loggedIdentity{event.Time, x.generation, &t.Identity})
	}
}

// logReader returns the reader of user logs with this key, nil if such logs hold no ids. It caches the result.
func (x *identityFinder) logReader(key tracefmt.StringID, syms *tracefmt.Symbols) idReader {
	return entry.GetOrMake(x.logReaders, key, func() idReader { return logReaderFor(syms.String(key)) })
}

// dropOld deletes the identities whose task or log had no event for identityGenerations generations.
func (x *identityFinder) dropOld() {
	old := x.generation - identityGenerations
	if old <= 0 {
		return
	}
	maps.DeleteFunc(x.byTask, func(_ uint64, t *taskIdentity) bool { return t.lastGeneration <= old })
	maps.DeleteFunc(x.byTaskBegin, func(_ int64, list []*taskIdentity) bool { return list[len(list)-1].lastGeneration <= old })
	clear(x.pending) // logged long before the next task
	maps.DeleteFunc(x.byGoroutine, func(_ uint64, list []loggedIdentity) bool { return list[len(list)-1].generation <= old })
}

// identity returns the ids logged for a task, nil if there are none.
func (t *taskIdentity) identity() *Identity {
	switch {
	case t.preceding != nil:
		return t.preceding
	case t.Identity != Identity{}:
		return &t.Identity
	}
	return nil
}

// attach sets the identities of requests for which a tracer wrote ids. Marks have their own.
func (x *identityFinder) attach(reqs []Request) {
	for i := range reqs {
		if r := &reqs[i]; x.hasIDs && r.Identity == nil && r.Piece != MiddlePiece && !r.CutAtStart {
			r.Identity = x.identityOf(r)
		}
	}
}

// identityOf returns the identity of a request: that of its task or, for other requests, the first one that was logged on its
// goroutine during the request; nil if there is none.
func (x *identityFinder) identityOf(request *Request) *Identity {
	if request.Kind == Task {
		for _, t := range x.byTaskBegin[request.wholeStart] {
			if t.name == request.Name {
				return t.identity()
			}
		}
	}
	list := x.byGoroutine[request.G]
	i, _ := slices.BinarySearchFunc(list, request.wholeStart, func(l loggedIdentity, t int64) int { return cmp.Compare(l.time, t) })
	if i < len(list) && list[i].time <= request.End {
		return list[i].Identity
	}
	return nil
}

// An Identity holds what a mark or a tracer writes about a request: its outcome and its ids in a tracing system.
type Identity struct {
	// Status is the status of a marked request, such as "2xx", or 0.
	Status tracefmt.StringID
	// MarkKind is the kind of a marked request: http, grpc, job or message.
	MarkKind tracefmt.StringID
	TraceID  [16]byte
	// SpanID is the request's own span, ParentSpanID the caller's. 0 means unknown.
	SpanID, ParentSpanID [8]byte
	// DatadogSpanID is a span id of dd-trace-go, which does not log the id of its trace.
	DatadogSpanID uint64
	// BeforeMark is how long before its mark the request reached this process, as the source for its protocol found; -1
	// means unknown.
	BeforeMark int64
}

// HasTraceID reports whether the trace id is known.
func (i *Identity) HasTraceID() bool { return i != nil && i.TraceID != [16]byte{} }

// merge sets the ids that i lacks to those of another log. If an id of o differs from one of i, it returns false and changes
// nothing.
func (i *Identity) merge(o *Identity) bool {
	sum := *i
	if !setOnce(&sum.TraceID, o.TraceID) || !setOnce(&sum.ParentSpanID, o.ParentSpanID) ||
		!setOnce(&sum.DatadogSpanID, o.DatadogSpanID) {
		return false
	}
	*i = sum
	return true
}

// setOnce sets an id that is 0 to v. It returns false if the id has another value; v = 0 changes nothing.
func setOnce[T comparable](id *T, v T) bool {
	var zero T
	if v == zero {
		return true
	}
	if *id != zero {
		return false
	}
	*id = v
	return true
}

// An idReader reads the value of a user log and reports whether it held an id.
type idReader func(i *Identity, value string) bool

// logReaderFor returns the reader of user logs with this key, nil if such logs hold no ids. The keys are the usual ones for these
// ids in logs. dd-trace-go writes eight bytes in little-endian order under its own key (ddtrace/tracer.startExecutionTracerTask).
func logReaderFor(key string) idReader {
	switch key {
	case "traceparent":
		return (*Identity).readTraceparent
	case "trace_id", "traceid", "traceID", "traceId", "trace.id", "otel.trace_id":
		return func(i *Identity, value string) bool { return decodeHex(i.TraceID[:], value) }
	case "span_id", "spanid", "spanID", "spanId", "span.id", "otel.span_id":
		return func(i *Identity, value string) bool { return decodeHex(i.ParentSpanID[:], value) }
	case "datadog.uint64_span_id":
		return func(i *Identity, value string) bool {
			if len(value) != 8 {
				return false
			}
			i.DatadogSpanID = binary.LittleEndian.Uint64([]byte(value))
			return true
		}
	}
	return nil
}

// readTraceparent sets trace id and parent span id from a traceparent header of W3C Trace Context; it returns false if the value
// is not one.
func (i *Identity) readTraceparent(value string) bool {
	if len(value) < 55 || value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return false
	}
	var ids Identity
	if !decodeHex(ids.TraceID[:], value[3:35]) || !decodeHex(ids.ParentSpanID[:], value[36:52]) {
		return false
	}
	i.TraceID, i.ParentSpanID = ids.TraceID, ids.ParentSpanID
	return true
}

// decodeHex decodes s into to. It returns false if s is not hexadecimal, has another length, or is all zeros, which is no valid
// id.
func decodeHex(to []byte, s string) bool {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(to) || !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
		return false
	}
	copy(to, b)
	return true
}
