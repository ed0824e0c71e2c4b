package request

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Work is what goroutines and loops do that no protocol shows. It stands beside
// the requests of servers, unless it is done for them: then it is a part of
// those, and only counted.
//
// Who it is done for is told by who began it: the goroutine that created a job,
// or whose send or unlock ended a loop's idle wait. If most of that was done by
// handlers of requests, or by work that is itself done for them, the work serves
// requests. A loop that takes what handlers leave behind and for which they do
// not wait does not (a queue of mails to be sent).

// A Role is what work is to the requests of a process.
type Role uint8

// Roles, what matters most first.
const (
	// Independent work stands beside the requests.
	Independent Role = iota
	// Library work shows no line of the service's own code: it is a library's
	// machinery, or, of regions, a library's own ones.
	Library
	// Serving work is done for requests that are found by themselves.
	Serving
	// MainLife is main's life.
	MainLife
)

// An origin is how turns or jobs of one function began.
type origin struct {
	n       int   // looked at
	ns      int64 // in turns and jobs that were handed out
	total   int   // all
	pieces  int   // of the goroutines that were looked at
	serving int   // begun by a handler of requests
	network int   // by data from the network, or by nobody known
	timer   int   // by a timer
	by      map[tracefmt.StringID]int
	own     bool // the service's own code was seen in it
	waited  int  // of serving: the handler was seen to wait then
	left    int  // ... or to go on
	// next counts the turns in which a library's loop had work already when the one before ended, rested those after which it waited for more; arrived is
	// how often who hands it over came by meanwhile.
	next, rested, arrived int
	settled               bool              // it serves; it is only counted
	root                  tracefmt.StringID // the function with which the goroutines began
	kind                  Kind
	awaited               bool        // jobs that are a library's way to wait: none of them is handed out
	called                []originKey // the groups of those that are called otherwise
}

// Bounds on how many turns are looked at before something is settled.
const (
	manySeen  = 200 // turns, or jobs, of a function
	manyAsked = 32  // turns of which the handler is looked up
)

// work holds all goroutines that no protocol claims.
type work struct {
	origins map[originKey]*origin
	names   map[originKey]*origin // of groups that are called otherwise
	classes map[uint64]startRole  // of goroutines that are older than the generation
	// annotated are goroutines on which a task, a region or a mark ended: what
	// they do is told by those.
	annotated map[uint64]bool
	// within are, of the generation, the times of those that ended in it.
	within map[uint64][][2]int64
}

// ended takes note of a task, a region or a mark that lasted from start to end
// on a goroutine.
func (w *work) ended(g uint64, start, end int64) {
	w.annotated[g] = true
	w.within[g] = append(w.within[g], [2]int64{start, end})
}

// annotatedAt reports whether a goroutine was in a task, a region or a mark.
func (f *Finder) annotatedAt(g uint64, t int64) bool {
	if len(f.tasks) > 0 {
		for _, k := range f.tasks {
			if k.g == g && k.start <= t {
				return true
			}
		}
	}
	if m := f.marks[g]; m != nil && m.depth > 0 && m.mark.start <= t {
		return true
	}
	if rs := f.regions[g]; len(rs) > 0 && rs[0].start <= t {
		return true
	}
	for _, w := range f.work.within[g] {
		if w[0] <= t && t <= w[1] {
			return true
		}
	}
	return false
}

func newWork() work {
	return work{origins: make(map[originKey]*origin), names: make(map[originKey]*origin), classes: make(map[uint64]startRole), annotated: make(map[uint64]bool), within: make(map[uint64][][2]int64)}
}

// addWork looks for jobs and loops in the window's last generation.
func (f *Finder) addWork(g *timeline.Gen) {
	w := &f.work
	f.jobs.begin(f, g)
	clear(w.within)
	f.loops.add(f, g)
	f.jobs.end(f, g)
	forgetGone(w.classes, g)
	forgetGone(w.annotated, g)
	var roles map[originKey]Role
	for k, o := range w.origins {
		if k.kind != Loop || o.settled || o.n < manySeen {
			continue
		}
		if roles == nil {
			roles = f.roles(func(tracefmt.StringID) int64 { return 0 })
		}
		o.settled = roles[k] == Serving
	}
}

// originKey is the key of a group of work.
type originKey struct {
	kind Kind
	name tracefmt.StringID
}

// role returns what a goroutine is; start is its start function's stack, if it
// was created in the generation.
func (f *Finder) role(g *timeline.Gen, id uint64, start tracefmt.StackID) startRole {
	if start != 0 {
		return f.stackInfo(start).role
	}
	w := &f.work
	r, ok := w.classes[id]
	if !ok {
		r = roleUnknown
		if stack := g.AnyStack(id); stack != 0 {
			r = f.stackInfo(stack).role
			w.classes[id] = r
		}
	}
	return r
}

// origin returns the record of a group of work.
func (f *Finder) origin(kind Kind, name, root tracefmt.StringID) *origin {
	k := originKey{kind, name}
	o := f.work.origins[k]
	if o == nil {
		o = &origin{kind: kind, root: root, by: make(map[tracefmt.StringID]int)}
		f.work.origins[k] = o
	}
	return o
}

// begun notes the beginner of a turn or a job: a goroutine with this stack.
func (o *origin) begun(f *Finder, by uint64, stack tracefmt.StackID) {
	if f.servesNow(by, stack) {
		o.serving++
	} else if root := f.stackInfo(stack).root; root != 0 {
		o.by[root]++
	}
}

// Work is what was found of one function's work.
type Work struct {
	Kind  Kind
	Name  tracefmt.StringID // of the group
	Root  tracefmt.StringID // the function with which the goroutines began
	Role  Role
	Count int // about: where much of it serves requests, only a part is looked at
	// ByTimer says that a timer began most of it; Outside that a client, or data from the network, is seen at its beginning, or at that of
	// the work that began it.
	ByTimer, Outside bool
	// Queued is the part of its turns for which the work lay there already when the turn before ended: a library's loop hands it to the service, and its
	// goroutine was seen to wait for more at other times.
	Queued float64
}

// Works returns all work, by name. Through says how many
// requests of servers had a path that leads through goroutines that were started
// with a function.
func (f *Finder) Works(through func(root tracefmt.StringID) int64) []Work {
	var out []Work
	roles, outside := f.roles(through), f.outside()
	for k, o := range f.work.origins {
		if o.total > 0 {
			called := o.called
			if len(called) == 0 {
				called = []originKey{k}
			}
			for _, k := range called {
				out = append(out, Work{k.kind, k.name, o.root, roles[k], o.total / len(called), f.byTimer(o), outside[o], o.queued()})
			}
		}
	}
	slices.SortFunc(out, func(a, b Work) int {
		return cmp.Or(cmp.Compare(f.syms.String(a.Name), f.syms.String(b.Name)), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

// queued returns Work.Queued. Where turns are more than what was handed over, one piece of work may be several of them: then it is not known.
func (o *origin) queued() float64 {
	if o.rested == 0 || 2*(o.next+o.rested) > 3*o.arrived {
		return 0
	}
	return float64(o.next) / float64(o.next+o.rested)
}

// byTimer reports whether timers began most of some work, or the work that began
// it.
func (f *Finder) byTimer(o *origin) bool {
	timer := o.timer
	if o.kind == Goroutine {
		for _, l := range f.work.origins {
			if l.kind == Loop && l.n > 0 && 2*l.timer > l.n {
				timer += o.by[l.root]
			}
		}
	}
	return 2*timer > o.n
}

// outside returns the work of which a client, or data from the network, began some, or some of the work that began it.
func (f *Finder) outside() map[*origin]bool {
	out := make(map[*origin]bool)
	roots := make(map[tracefmt.StringID]bool) // of such work
	for more := true; more; {
		more = false
		for _, o := range f.work.origins {
			if out[o] {
				continue
			}
			out[o] = o.serving > 0 || o.network > 0
			for fn, n := range o.by {
				out[o] = out[o] || n > 0 && roots[fn]
			}
			if out[o] {
				roots[o.root], more = true, true
			}
		}
	}
	return out
}

// A cycle is the jobs of functions that begin each other, or themselves, as what descends a tree does.
type cycle struct {
	of   []*origin
	from map[tracefmt.StringID]bool
}

// cycles returns the cycle that a function belongs to.
func (f *Finder) cycles() map[tracefmt.StringID]*cycle {
	begin := make(map[tracefmt.StringID]map[tracefmt.StringID]bool) // who began the jobs of a function
	for _, o := range f.work.origins {
		for fn, n := range o.by {
			if o.kind == Goroutine && n > 0 {
				if begin[o.root] == nil {
					begin[o.root] = make(map[tracefmt.StringID]bool)
				}
				begin[o.root][fn] = true
			}
		}
	}
	// The strongly connected components of that graph (Tarjan, 1972): time and room grow with what began what, however long the chains are.
	out, number := make(map[tracefmt.StringID]*cycle), make(map[tracefmt.StringID]int)
	var open []tracefmt.StringID
	var visit func(tracefmt.StringID) int
	visit = func(fn tracefmt.StringID) int {
		n, at := len(number)+1, len(open)
		number[fn], open = n, append(open, fn)
		low := n
		for by := range begin[fn] {
			if k, seen := number[by]; seen {
				low = min(low, k)
			} else {
				low = min(low, visit(by))
			}
		}
		if low < n {
			return low
		}
		c := &cycle{from: make(map[tracefmt.StringID]bool)}
		for _, of := range open[at:] {
			number[of], c.from[of] = math.MaxInt, true // it is closed
			if len(open) > at+1 || begin[fn][fn] {
				out[of] = c
			}
		}
		open = open[:at]
		return math.MaxInt
	}
	for fn := range begin {
		if number[fn] == 0 {
			visit(fn)
		}
	}
	for _, o := range f.work.origins {
		if c := out[o.root]; c != nil && o.kind == Goroutine {
			c.of = append(c.of, o)
		}
	}
	return out
}

// inner returns how many jobs the cycle began.
func (c *cycle) inner(o *origin) (n int) {
	for fn, by := range o.by {
		if c.from[fn] {
			n += by
		}
	}
	return n
}

// begun returns how many jobs of the cycle others began, and how many of these were for requests.
func (c *cycle) begun(serves map[tracefmt.StringID]bool) (serving, all int) {
	for _, o := range c.of {
		serving, all = serving+o.serving, all+o.n-c.inner(o)
		for fn, n := range o.by {
			if serves[fn] && !c.from[fn] {
				serving += n
			}
		}
	}
	return serving, all
}

// roles returns what the work of each function is to the requests of the
// process, by kind and name of its group.
func (f *Finder) roles(through func(root tracefmt.StringID) int64) map[originKey]Role {
	out := make(map[originKey]Role)
	serves := make(map[tracefmt.StringID]bool) // functions all of whose work serves
	// Jobs started, and how long they took, by the function that the goroutines
	// that started them began with.
	hands, took := make(map[tracefmt.StringID]int), make(map[tracefmt.StringID]int64)
	for _, o := range f.work.origins {
		if o.kind == Goroutine && o.n > 0 && !o.awaited {
			for fn, n := range o.by {
				hands[fn] += n
				took[fn] += o.ns * int64(n) / int64(o.n)
			}
		}
	}
	cycles := f.cycles()
	for {
		free := make(map[tracefmt.StringID]bool)
		for k, o := range f.work.origins {
			if o.total == 0 {
				continue
			}
			// What a function begins itself says nothing.
			sum, rest := o.serving, o.n-o.by[o.root]
			if o.kind == Goroutine && rest > sum {
				sum, rest = 0, rest-sum // those that handlers started were left out one by one
			}
			for fn, n := range o.by {
				if serves[fn] && fn != o.root {
					sum += n
				}
			}
			if c := cycles[o.root]; c != nil && sum == 0 && c.inner(o) == o.n {
				sum, rest = c.begun(serves) // nor does what functions begin that begin each other: it is what the first of them are
			}
			switch {
			case o.kind == Loop && f.namer.fn(o.root).is(benchmark) && o.own:
				// Its iterations are what the benchmark measures, whoever does the work.
				out[k] = Independent
			case o.kind == Loop && 2*hands[o.root] >= o.total && took[o.root] >= 3*o.ns:
				// It starts a job each time, which does the work.
				out[k] = Serving
				free[o.root] = true
			case o.settled, 2*through(o.root) >= int64(o.total), sum > 0 && 2*sum >= rest && o.left <= 3*o.waited:
				out[k] = Serving
			case !o.own:
				out[k] = Library
			default:
				out[k] = Independent
			}
			if out[k] != Serving {
				free[o.root] = true
			}
		}
		changed := false
		for _, o := range f.work.origins {
			if !free[o.root] && !serves[o.root] {
				serves[o.root], changed = true, true
			}
		}
		if !changed {
			for k, o := range f.work.origins {
				for name, of := range f.work.names {
					if of == o {
						out[name] = out[k]
					}
				}
			}
			return out
		}
	}
}

// addOnce adds what is not there yet to a short list.
func addOnce(list []originKey, k originKey) []originKey {
	if slices.Contains(list, k) {
		return list
	}
	return append(list, k)
}
