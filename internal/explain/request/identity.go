package request

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// identityFinder find what tracers wrote about requests into a trace: user logs
// with ids of traces and spans, in a task or on a goroutine.
type identityFinder struct {
	generation  int
	logReaders  map[tracefmt.StringID]idReader // of user logs
	hasIDs      bool                           // there are ids in this trace
	byTask      map[uint64]*taskIdentity
	byTaskBegin map[int64][]*taskIdentity // by the task's begin
	byGoroutine map[uint64][]loggedIdentity
	pending     map[uint64]*Identity // by goroutine: written since the last task's begin on it
}

type taskIdentity struct {
	Identity                 // written in the task
	preceding      *Identity // written on its goroutine just before it
	begin          int64
	name           tracefmt.StringID
	lastGeneration int // the last in which something was heard of it
}

// loggedIdentity is an identity written on a goroutine at a time.
type loggedIdentity struct {
	time       int64
	generation int
	*Identity
}

// identityGenerations is for how many generations an identity is kept after
// something was heard of it: requests that are open for longer lose it.
const identityGenerations = 16

func newIdentityFinder() *identityFinder {
	return &identityFinder{logReaders: make(map[tracefmt.StringID]idReader), byTask: make(map[uint64]*taskIdentity), byTaskBegin: make(map[int64][]*taskIdentity), byGoroutine: make(map[uint64][]loggedIdentity), pending: make(map[uint64]*Identity)}
}

func (x *identityFinder) add(g *timeline.Gen, syms *tracefmt.Symbols) {
	x.generation++
	// Most traces have none, and following every task costs.
	for i := 0; i < len(g.User) && !x.hasIDs; i++ {
		x.hasIDs = g.User[i].Kind == timeline.LogMessage && x.logReader(g.User[i].Name, syms) != nil
	}
	if !x.hasIDs {
		return
	}
	for i := range g.User {
		event := &g.User[i]
		switch event.Kind {
		case timeline.TaskBegin:
			t := &taskIdentity{preceding: x.pending[event.G], begin: event.Time, name: event.Name, lastGeneration: x.generation}
			delete(x.pending, event.G)
			x.byTask[event.Task] = t
			x.byTaskBegin[event.Time] = append(x.byTaskBegin[event.Time], t)
		case timeline.TaskEnd:
			// Its logs may come at the same time, in any order.
			if t := x.byTask[event.Task]; t != nil {
				t.lastGeneration = x.generation
			}
		case timeline.LogMessage:
			x.addLog(event, syms)
		}
	}
	x.dropOld()
}

// addLog takes up a user log. There are two ways to write ids: in the task that
// they are of, or, from a tracer's hook that runs before the task begins, on
// its goroutine just before; of a child task, that is in its parent. A task
// before which something was written is of the second kind.
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

func (x *identityFinder) logReader(key tracefmt.StringID, syms *tracefmt.Symbols) idReader {
	read, ok := x.logReaders[key]
	if !ok {
		read = logReaderFor(syms.String(key))
		x.logReaders[key] = read
	}
	return read
}

// dropOld drops what no request can need any more.
func (x *identityFinder) dropOld() {
	old := x.generation - identityGenerations
	if old <= 0 {
		return
	}
	maps.DeleteFunc(x.byTask, func(_ uint64, t *taskIdentity) bool { return t.lastGeneration <= old })
	maps.DeleteFunc(x.byTaskBegin, func(_ int64, list []*taskIdentity) bool { return list[len(list)-1].lastGeneration <= old })
	clear(x.pending) // written long before the next task
	maps.DeleteFunc(x.byGoroutine, func(_ uint64, list []loggedIdentity) bool { return list[len(list)-1].generation <= old })
}

// identity returns what was written about a task, nil if nothing was.
func (t *taskIdentity) identity() *Identity {
	switch {
	case t.preceding != nil:
		return t.preceding
	case t.Identity != Identity{}:
		return &t.Identity
	}
	return nil
}

// identityOf returns a request's identity: of a task what was written about it, of
// others what was written first on its goroutine while it lasted.
func (x *identityFinder) identityOf(request *Request) *Identity {
	if request.Kind == Task {
		for _, t := range x.byTaskBegin[request.wholeStart] {
			if t.name == request.Name {
				return t.identity()
			}
		}
		return nil
	}
	list := x.byGoroutine[request.G]
	i, _ := slices.BinarySearchFunc(list, request.wholeStart, func(l loggedIdentity, t int64) int { return cmp.Compare(l.time, t) })
	if i < len(list) && list[i].time <= request.End {
		return list[i].Identity
	}
	return nil
}

// isEmpty reports whether no request has an identity.
func (x *identityFinder) isEmpty() bool { return !x.hasIDs }

// An Identity is what a trace says about a request that no finder can: how it
// came out, and by which ids a tracing system knows it.
type Identity struct {
	// Status is a marked request's, "2xx", or 0.
	Status tracefmt.StringID
	// MarkKind is what it is a request of, a marked one's: http, grpc, job, message.
	MarkKind tracefmt.StringID
	TraceID  [16]byte
	// SpanID is the request's own span, Parent that of the caller; 0: unknown.
	SpanID, ParentSpanID [8]byte
	// DatadogSpanID is a span id of dd-trace-go, whose trace's is not known.
	DatadogSpanID uint64
	// BeforeMark is how long before its mark the request reached this process, as
	// far as the finders of protocols know; -1: not known.
	BeforeMark int64
}

// HasTraceID reports whether the id of the request's trace is known.
func (i *Identity) HasTraceID() bool { return i != nil && i.TraceID != [16]byte{} }

// merge takes up what another log says besides, and reports false if it says
// something else about a known one.
func (i *Identity) merge(o *Identity) bool {
	sum := *i
	if !setOnce(&sum.TraceID, o.TraceID) || !setOnce(&sum.ParentSpanID, o.ParentSpanID) || !setOnce(&sum.DatadogSpanID, o.DatadogSpanID) {
		return false
	}
	*i = sum
	return true
}

// setOnce sets an id that is not known yet; it reports false if it is.
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

// An idReader takes up what a user log says, and reports whether it was an identity.
type idReader func(i *Identity, value string) bool

// logReaderFor returns how user logs with a key are read, nil if they hold no ids.
// Keys are those that people use for these ids in logs; dd-trace-go writes
// eight bytes, least first, under a key of its own
// (ddtrace/tracer.startExecutionTracerTask).
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

// readTraceparent reads the header of W3C Trace Context.
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

// decodeHex reads exactly len(to) bytes that are not all 0.
func decodeHex(to []byte, s string) bool {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(to) || !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
		return false
	}
	copy(to, b)
	return true
}
