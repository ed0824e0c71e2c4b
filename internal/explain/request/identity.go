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

// identities find what tracers wrote about requests into a trace: user logs
// with ids of traces and spans, in a task or on a goroutine.
type identities struct {
	gens   int
	keys   map[tracefmt.StringID]idReader // of user logs
	some   bool                           // there are ids in this trace
	byTask map[uint64]*taskIdentity
	begun  map[int64][]*taskIdentity // by the task's begin
	byG    map[uint64][]logged
	before map[uint64]*Identity // by goroutine: written since the last task's begin on it
}

type taskIdentity struct {
	Identity           // written in the task
	before   *Identity // written on its goroutine just before it
	begin    int64
	name     tracefmt.StringID
	gen      int // the last in which something was heard of it
}

// logged is an identity written on a goroutine at a time.
type logged struct {
	at  int64
	gen int
	*Identity
}

// keepIdentities is for how many generations an identity is kept after
// something was heard of it: requests that are open for longer lose it.
const keepIdentities = 16

func newIdentities() *identities {
	return &identities{keys: make(map[tracefmt.StringID]idReader), byTask: make(map[uint64]*taskIdentity), begun: make(map[int64][]*taskIdentity), byG: make(map[uint64][]logged), before: make(map[uint64]*Identity)}
}

func (x *identities) generation(g *timeline.Gen, syms *tracefmt.Symbols) {
	x.gens++
	// Most traces have none, and following every task costs.
	for i := 0; i < len(g.User) && !x.some; i++ {
		x.some = g.User[i].Kind == timeline.LogMessage && x.reader(g.User[i].Name, syms) != nil
	}
	if !x.some {
		return
	}
	for i := range g.User {
		u := &g.User[i]
		switch u.Kind {
		case timeline.TaskBegin:
			t := &taskIdentity{before: x.before[u.G], begin: u.Time, name: u.Name, gen: x.gens}
			delete(x.before, u.G)
			x.byTask[u.Task] = t
			x.begun[u.Time] = append(x.begun[u.Time], t)
		case timeline.TaskEnd:
			// Its logs may come at the same time, in any order.
			if t := x.byTask[u.Task]; t != nil {
				t.gen = x.gens
			}
		case timeline.LogMessage:
			x.log(u, syms)
		}
	}
	x.forget()
}

// log takes up a user log. There are two ways to write ids: in the task that
// they are of, or, from a tracer's hook that runs before the task begins, on
// its goroutine just before; of a child task, that is in its parent. A task
// before which something was written is of the second kind.
func (x *identities) log(u *timeline.UserEvent, syms *tracefmt.Symbols) {
	var id Identity
	if read := x.reader(u.Name, syms); read == nil || !read(&id, syms.String(u.Value)) {
		return
	}
	t := x.byTask[u.Task]
	if u.Task == 0 || t == nil || t.before != nil {
		if b := x.before[u.G]; b != nil && b.add(&id) {
			return
		}
		x.before[u.G] = &id
		if u.Task == 0 || t == nil {
			x.byG[u.G] = append(x.byG[u.G], logged{u.Time, x.gens, &id})
		}
		return
	}
	t.gen = x.gens
	first := t.Identity == Identity{}
	if t.add(&id) && first {
		x.byG[u.G] = append(x.byG[u.G], logged{u.Time, x.gens, &t.Identity})
	}
}

func (x *identities) reader(key tracefmt.StringID, syms *tracefmt.Symbols) idReader {
	read, ok := x.keys[key]
	if !ok {
		read = readerOf(syms.String(key))
		x.keys[key] = read
	}
	return read
}

// forget drops what no request can need any more.
func (x *identities) forget() {
	old := x.gens - keepIdentities
	if old <= 0 {
		return
	}
	maps.DeleteFunc(x.byTask, func(_ uint64, t *taskIdentity) bool { return t.gen <= old })
	maps.DeleteFunc(x.begun, func(_ int64, list []*taskIdentity) bool { return list[len(list)-1].gen <= old })
	clear(x.before) // written long before the next task
	maps.DeleteFunc(x.byG, func(_ uint64, list []logged) bool { return list[len(list)-1].gen <= old })
}

// known returns what was written about a task, nil if nothing was.
func (t *taskIdentity) known() *Identity {
	switch {
	case t.before != nil:
		return t.before
	case t.Identity != Identity{}:
		return &t.Identity
	}
	return nil
}

// of returns a request's identity: of a task what was written about it, of
// others what was written first on its goroutine while it lasted.
func (x *identities) of(r *Request) *Identity {
	if r.Kind == Task {
		for _, t := range x.begun[r.began] {
			if t.name == r.Name {
				return t.known()
			}
		}
		return nil
	}
	list := x.byG[r.G]
	i, _ := slices.BinarySearchFunc(list, r.began, func(l logged, t int64) int { return cmp.Compare(l.at, t) })
	if i < len(list) && list[i].at <= r.End {
		return list[i].Identity
	}
	return nil
}

// none reports whether no request has an identity.
func (x *identities) none() bool { return !x.some }

// An Identity is what a trace says about a request that no finder can: how it
// came out, and by which ids a tracing system knows it.
type Identity struct {
	// Status is a marked request's, "2xx", or 0.
	Status tracefmt.StringID
	// Of is what it is a request of, a marked one's: http, grpc, job, message.
	Of    tracefmt.StringID
	Trace [16]byte
	// Span is the request's own span, Parent that of the caller; 0: unknown.
	Span, Parent [8]byte
	// Datadog is a span id of dd-trace-go, whose trace's is not known.
	Datadog uint64
	// Before is how long before its mark the request reached this process, as
	// far as the finders of protocols know; -1: not known.
	Before int64
}

// HasTrace reports whether the id of the request's trace is known.
func (i *Identity) HasTrace() bool { return i != nil && i.Trace != [16]byte{} }

// add takes up what another log says besides, and reports false if it says
// something else about a known one.
func (i *Identity) add(o *Identity) bool {
	sum := *i
	if !learn(&sum.Trace, o.Trace) || !learn(&sum.Parent, o.Parent) || !learn(&sum.Datadog, o.Datadog) {
		return false
	}
	*i = sum
	return true
}

// learn sets an id that is not known yet; it reports false if it is.
func learn[T comparable](id *T, v T) bool {
	var none T
	if v == none {
		return true
	}
	if *id != none {
		return false
	}
	*id = v
	return true
}

// An idReader takes up what a user log says, and reports whether it was an identity.
type idReader func(i *Identity, value string) bool

// readerOf returns how user logs with a key are read, nil if they hold no ids.
// Keys are those that people use for these ids in logs; dd-trace-go writes
// eight bytes, least first, under a key of its own
// (ddtrace/tracer.startExecutionTracerTask).
func readerOf(key string) idReader {
	switch key {
	case "traceparent":
		return (*Identity).readTraceparent
	case "trace_id", "traceid", "traceID", "traceId", "trace.id", "otel.trace_id":
		return func(i *Identity, value string) bool { return hexBytes(i.Trace[:], value) }
	case "span_id", "spanid", "spanID", "spanId", "span.id", "otel.span_id":
		return func(i *Identity, value string) bool { return hexBytes(i.Parent[:], value) }
	case "datadog.uint64_span_id":
		return func(i *Identity, value string) bool {
			if len(value) != 8 {
				return false
			}
			i.Datadog = binary.LittleEndian.Uint64([]byte(value))
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
	if !hexBytes(ids.Trace[:], value[3:35]) || !hexBytes(ids.Parent[:], value[36:52]) {
		return false
	}
	i.Trace, i.Parent = ids.Trace, ids.Parent
	return true
}

// hexBytes reads exactly len(to) bytes that are not all 0.
func hexBytes(to []byte, s string) bool {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(to) || !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
		return false
	}
	copy(to, b)
	return true
}
