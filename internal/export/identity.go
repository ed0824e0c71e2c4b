package export

import (
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
	"github.com/whylate/whylate/report"
)

// identities find what tracers wrote about requests into a trace: user logs
// with ids of traces and spans, in a task or on a goroutine.
type identities struct {
	gens   int
	start  int64 // of the trace
	byTask map[uint64]*taskIdentity
	begun  map[int64][]*taskIdentity // by the task's begin
	byG    map[uint64][]logged
	before map[uint64]*identity // by goroutine: written since the last task's begin on it
}

type taskIdentity struct {
	identity           // written in the task
	before   *identity // written on its goroutine just before it
	begin    int64
	name     tracefmt.StringID
	gen      int // the last in which something was heard of it
}

// logged is an identity written on a goroutine at a time.
type logged struct {
	at  int64
	gen int
	*identity
}

// keepIdentities is for how many generations an identity is kept after
// something was heard of it: requests that are open for longer lose it.
const keepIdentities = 16

func newIdentities() *identities {
	return &identities{byTask: make(map[uint64]*taskIdentity), begun: make(map[int64][]*taskIdentity), byG: make(map[uint64][]logged), before: make(map[uint64]*identity)}
}

func (x *identities) generation(g *timeline.Gen, syms *tracefmt.Symbols) {
	if x.gens++; x.gens == 1 {
		x.start = g.Base
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
	var id identity
	if !id.read(syms.String(u.Name), syms.String(u.Value)) {
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
	first := t.identity == identity{}
	if t.add(&id) && first {
		x.byG[u.G] = append(x.byG[u.G], logged{u.Time, x.gens, &t.identity})
	}
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
func (t *taskIdentity) known() *identity {
	switch {
	case t.before != nil:
		return t.before
	case t.identity != identity{}:
		return &t.identity
	}
	return nil
}

// of returns what is known of a request: of a task what was written about it, of
// others what was written first on its goroutine while it lasted.
func (x *identities) of(q *Request, syms *tracefmt.Symbols) *identity {
	from, to := x.start+q.StartNS, x.start+q.StartNS+q.LatencyNS
	if q.Group.Kind == report.KindTask {
		for _, t := range x.begun[from] {
			if syms.String(t.name) == q.Group.Name {
				return t.known()
			}
		}
		return nil
	}
	list := x.byG[q.Goroutine]
	i, _ := slices.BinarySearchFunc(list, from, func(l logged, t int64) int {
		if l.at < t {
			return -1
		}
		return 1
	})
	if i < len(list) && list[i].at <= to {
		return list[i].identity
	}
	return nil
}
