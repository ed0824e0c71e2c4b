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
type originStats struct {
	inspected         int   // looked at
	emittedNS         int64 // in turns and jobs that were handed out
	total             int   // all
	pieceCount        int   // of the goroutines that were looked at
	servingCount      int   // begun by a handler of requests
	networkCount      int   // by data from the network, or by nobody known
	timerCount        int   // by a timer
	starters          map[tracefmt.StringID]int
	isOwned           bool // the service's own code was seen in it
	handlerWaits      int  // of serving: the handler was seen to wait then
	handlerDepartures int  // ... or to go on
	// backToBack counts the turns in which a library's loop had work already when the one before ended, rested those after which it waited for more; arrived is
	// how often who hands it over came by meanwhile.
	backToBack, rests, arrivals int
	isSettled                   bool              // it serves; it is only counted
	startFunc                   tracefmt.StringID // the function with which the goroutines began
	kind                        Kind
	isLibraryWait               bool        // jobs that are a library's way to wait: none of them is handed out
	groupKeys                   []originKey // the groups of those that are called otherwise
}

// Bounds on how many turns are looked at before something is settled.
const (
	settledCount         = 200 // turns, or jobs, of a function
	maxHandlersInspected = 32  // turns of which the handler is looked up
)

// workIndex holds all goroutines that no protocol claims.
type workIndex struct {
	origins map[originKey]*originStats
	aliases map[originKey]*originStats // of groups that are called otherwise
	roles   map[uint64]startRole       // of goroutines that are older than the generation
	// annotated are goroutines on which a task, a region or a mark ended: what
	// they do is told by those.
	annotated map[uint64]bool
	// annotatedSpans are, of the generation, the times of those that ended in it.
	annotatedSpans map[uint64][][2]int64
}

// addAnnotation takes note of a task, a region or a mark that lasted from start to end
// on a goroutine.
func (w *workIndex) addAnnotation(g uint64, start, end int64) {
	w.annotated[g] = true
	w.annotatedSpans[g] = append(w.annotatedSpans[g], [2]int64{start, end})
}

// isAnnotatedAt reports whether a goroutine was in a task, a region or a mark.
func (f *Finder) isAnnotatedAt(g uint64, t int64) bool {
	if len(f.tasks) > 0 {
		for _, k := range f.tasks {
			if k.goroutine == g && k.start <= t {
				return true
			}
		}
	}
	if m := f.markers[g]; m != nil && m.depth > 0 && m.mark.start <= t {
		return true
	}
	if rs := f.openRegions[g]; len(rs) > 0 && rs[0].start <= t {
		return true
	}
	for _, w := range f.work.annotatedSpans[g] {
		if w[0] <= t && t <= w[1] {
			return true
		}
	}
	return false
}

func newWorkIndex() workIndex {
	return workIndex{origins: make(map[originKey]*originStats), aliases: make(map[originKey]*originStats), roles: make(map[uint64]startRole), annotated: make(map[uint64]bool), annotatedSpans: make(map[uint64][][2]int64)}
}

// addWork looks for jobs and loops in the window's last generation.
func (f *Finder) addWork(g *timeline.Gen) {
	w := &f.work
	f.jobs.addBirths(f, g)
	clear(w.annotatedSpans)
	f.loops.add(f, g)
	f.jobs.endJobs(f, g)
	removeUnknown(w.roles, g)
	removeUnknown(w.annotated, g)
	var roles map[originKey]Role
	for k, o := range w.origins {
		if k.kind != Loop || o.isSettled || o.inspected < settledCount {
			continue
		}
		if roles == nil {
			roles = f.workRoles(func(tracefmt.StringID) int64 { return 0 })
		}
		o.isSettled = roles[k] == Serving
	}
}

// originKey is the key of a group of work.
type originKey struct {
	kind Kind
	name tracefmt.StringID
}

// startRoleOf returns what a goroutine is; start is its start function's stack, if it
// was created in the generation.
func (f *Finder) startRoleOf(g *timeline.Gen, id uint64, start tracefmt.StackID) startRole {
	if start != 0 {
		return f.stackInfo(start).role
	}
	w := &f.work
	r, ok := w.roles[id]
	if !ok {
		r = roleUnknown
		if stack := g.AnyStack(id); stack != 0 {
			r = f.stackInfo(stack).role
			w.roles[id] = r
		}
	}
	return r
}

// originFor returns the record of a group of work.
func (f *Finder) originFor(kind Kind, name, root tracefmt.StringID) *originStats {
	k := originKey{kind, name}
	o := f.work.origins[k]
	if o == nil {
		o = &originStats{kind: kind, startFunc: root, starters: make(map[tracefmt.StringID]int)}
		f.work.origins[k] = o
	}
	return o
}

// addStarter notes the beginner of a turn or a job: a goroutine with this stack.
func (o *originStats) addStarter(f *Finder, by uint64, stack tracefmt.StackID) {
	if f.isServing(by, stack) {
		o.servingCount++
	} else if root := f.stackInfo(stack).startFunc; root != 0 {
		o.starters[root]++
	}
}

// Work is what was found of one function's work.
type Work struct {
	Kind      Kind
	Name      tracefmt.StringID // of the group
	StartFunc tracefmt.StringID // the function with which the goroutines began
	Role      Role
	Count     int // about: where much of it serves requests, only a part is looked at
	// IsTimerStarted says that a timer began most of it; Outside that a client, or data from the network, is seen at its beginning, or at that of
	// the work that began it.
	IsTimerStarted, IsStartedOutside bool
	// QueuedShare is the part of its turns for which the work lay there already when the turn before ended: a library's loop hands it to the service, and its
	// goroutine was seen to wait for more at other times.
	QueuedShare float64
}

// Works returns all work, by name. Through says how many
// requests of servers had a path that leads through goroutines that were started
// with a function.
func (f *Finder) Works(through func(root tracefmt.StringID) int64) []Work {
	var out []Work
	roles, outside := f.workRoles(through), f.startedOutside()
	for k, o := range f.work.origins {
		if o.total > 0 {
			called := o.groupKeys
			if len(called) == 0 {
				called = []originKey{k}
			}
			for _, k := range called {
				out = append(out, Work{k.kind, k.name, o.startFunc, roles[k], o.total / len(called), f.isTimerStarted(o), outside[o], o.queuedShare()})
			}
		}
	}
	slices.SortFunc(out, func(a, b Work) int {
		return cmp.Or(cmp.Compare(f.syms.String(a.Name), f.syms.String(b.Name)), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

// queuedShare returns Work.Queued. Where turns are more than what was handed over, one piece of work may be several of them: then it is not known.
func (o *originStats) queuedShare() float64 {
	if o.rests == 0 || 2*(o.backToBack+o.rests) > 3*o.arrivals {
		return 0
	}
	return float64(o.backToBack) / float64(o.backToBack+o.rests)
}

// isTimerStarted reports whether timers began most of some work, or the work that began
// it.
func (f *Finder) isTimerStarted(o *originStats) bool {
	timer := o.timerCount
	if o.kind == Goroutine {
		for _, l := range f.work.origins {
			if l.kind == Loop && l.inspected > 0 && 2*l.timerCount > l.inspected {
				timer += o.starters[l.startFunc]
			}
		}
	}
	return 2*timer > o.inspected
}

// startedOutside returns the work of which a client, or data from the network, began some, or some of the work that began it.
func (f *Finder) startedOutside() map[*originStats]bool {
	out := make(map[*originStats]bool)
	roots := make(map[tracefmt.StringID]bool) // of such work
	for more := true; more; {
		more = false
		for _, o := range f.work.origins {
			if out[o] {
				continue
			}
			out[o] = o.servingCount > 0 || o.networkCount > 0
			for fn, n := range o.starters {
				out[o] = out[o] || n > 0 && roots[fn]
			}
			if out[o] {
				roots[o.startFunc], more = true, true
			}
		}
	}
	return out
}

// A cycle is the jobs of functions that begin each other, or themselves, as what descends a tree does.
type startCycle struct {
	origins []*originStats
	funcs   map[tracefmt.StringID]bool
}

// startCycles returns the cycle that a function belongs to.
func (f *Finder) startCycles() map[tracefmt.StringID]*startCycle {
	begin := make(map[tracefmt.StringID]map[tracefmt.StringID]bool) // who began the jobs of a function
	for _, o := range f.work.origins {
		for fn, n := range o.starters {
			if o.kind == Goroutine && n > 0 {
				if begin[o.startFunc] == nil {
					begin[o.startFunc] = make(map[tracefmt.StringID]bool)
				}
				begin[o.startFunc][fn] = true
			}
		}
	}
	// The strongly connected components of that graph (Tarjan, 1972): time and room grow with what began what, however long the chains are.
	out, number := make(map[tracefmt.StringID]*startCycle), make(map[tracefmt.StringID]int)
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
		c := &startCycle{funcs: make(map[tracefmt.StringID]bool)}
		for _, of := range open[at:] {
			number[of], c.funcs[of] = math.MaxInt, true // it is closed
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
		if c := out[o.startFunc]; c != nil && o.kind == Goroutine {
			c.origins = append(c.origins, o)
		}
	}
	return out
}

// startedInside returns how many jobs the cycle began.
func (c *startCycle) startedInside(o *originStats) (n int) {
	for fn, by := range o.starters {
		if c.funcs[fn] {
			n += by
		}
	}
	return n
}

// startedOutside returns how many jobs of the cycle others began, and how many of these were for requests.
func (c *startCycle) startedOutside(serves map[tracefmt.StringID]bool) (serving, all int) {
	for _, o := range c.origins {
		serving, all = serving+o.servingCount, all+o.inspected-c.startedInside(o)
		for fn, n := range o.starters {
			if serves[fn] && !c.funcs[fn] {
				serving += n
			}
		}
	}
	return serving, all
}

// workRoles returns what the work of each function is to the requests of the
// process, by kind and name of its group.
func (f *Finder) workRoles(through func(root tracefmt.StringID) int64) map[originKey]Role {
	out := make(map[originKey]Role)
	serves := make(map[tracefmt.StringID]bool) // functions all of whose work serves
	// Jobs started, and how long they took, by the function that the goroutines
	// that started them began with.
	hands, took := make(map[tracefmt.StringID]int), make(map[tracefmt.StringID]int64)
	for _, o := range f.work.origins {
		if o.kind == Goroutine && o.inspected > 0 && !o.isLibraryWait {
			for fn, n := range o.starters {
				hands[fn] += n
				took[fn] += o.emittedNS * int64(n) / int64(o.inspected)
			}
		}
	}
	cycles := f.startCycles()
	for {
		free := make(map[tracefmt.StringID]bool)
		for k, o := range f.work.origins {
			if o.total == 0 {
				continue
			}
			// What a function begins itself says nothing.
			sum, rest := o.servingCount, o.inspected-o.starters[o.startFunc]
			if o.kind == Goroutine && rest > sum {
				sum, rest = 0, rest-sum // those that handlers started were left out one by one
			}
			for fn, n := range o.starters {
				if serves[fn] && fn != o.startFunc {
					sum += n
				}
			}
			if c := cycles[o.startFunc]; c != nil && sum == 0 && c.startedInside(o) == o.inspected {
				sum, rest = c.startedOutside(serves) // nor does what functions begin that begin each other: it is what the first of them are
			}
			switch {
			case o.kind == Loop && f.namer.function(o.startFunc).hasAny(benchmarkFunc) && o.isOwned:
				// Its iterations are what the benchmark measures, whoever does the work.
				out[k] = Independent
			case o.kind == Loop && 2*hands[o.startFunc] >= o.total && took[o.startFunc] >= 3*o.emittedNS:
				// It starts a job each time, which does the work.
				out[k] = Serving
				free[o.startFunc] = true
			case o.isSettled, 2*through(o.startFunc) >= int64(o.total), sum > 0 && 2*sum >= rest && o.handlerDepartures <= 3*o.handlerWaits:
				out[k] = Serving
			case !o.isOwned:
				out[k] = Library
			default:
				out[k] = Independent
			}
			if out[k] != Serving {
				free[o.startFunc] = true
			}
		}
		changed := false
		for _, o := range f.work.origins {
			if !free[o.startFunc] && !serves[o.startFunc] {
				serves[o.startFunc], changed = true, true
			}
		}
		if !changed {
			for k, o := range f.work.origins {
				for name, of := range f.work.aliases {
					if of == o {
						out[name] = out[k]
					}
				}
			}
			return out
		}
	}
}

// appendUnique adds what is not there yet to a short list.
func appendUnique(list []originKey, k originKey) []originKey {
	if slices.Contains(list, k) {
		return list
	}
	return append(list, k)
}
