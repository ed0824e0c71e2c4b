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
		for _, task := range f.tasks {
			if task.goroutine == g && task.start <= t {
				return true
			}
		}
	}
	if m := f.markers[g]; m != nil && m.depth > 0 && m.mark.start <= t {
		return true
	}
	if nested := f.openRegions[g]; len(nested) > 0 && nested[0].start <= t {
		return true
	}
	for _, span := range f.work.annotatedSpans[g] {
		if span[0] <= t && t <= span[1] {
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
	index := &f.work
	f.jobs.addBirths(f, g)
	clear(index.annotatedSpans)
	f.loops.add(f, g)
	f.jobs.endJobs(f, g)
	removeUnknown(index.roles, g)
	removeUnknown(index.annotated, g)
	var roles map[originKey]Role
	for k, origin := range index.origins {
		if k.kind != Loop || origin.isSettled || origin.inspected < settledCount {
			continue
		}
		if roles == nil {
			roles = f.workRoles(func(tracefmt.StringID) int64 { return 0 })
		}
		origin.isSettled = roles[k] == Serving
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
func (o *originStats) addStarter(f *Finder, starterID uint64, stack tracefmt.StackID) {
	if f.isServing(starterID, stack) {
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
func (f *Finder) Works(requestsThrough func(root tracefmt.StringID) int64) []Work {
	var out []Work
	roles, isOutside := f.workRoles(requestsThrough), f.startedOutside()
	for k, origin := range f.work.origins {
		if origin.total > 0 {
			keys := origin.groupKeys
			if len(keys) == 0 {
				keys = []originKey{k}
			}
			for _, k := range keys {
				out = append(out, Work{k.kind, k.name, origin.startFunc, roles[k], origin.total / len(keys), f.isTimerStarted(origin), isOutside[origin], origin.queuedShare()})
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
	isOutside := make(map[*originStats]bool)
	roots := make(map[tracefmt.StringID]bool) // of such work
	for hasChanged := true; hasChanged; {
		hasChanged = false
		for _, origin := range f.work.origins {
			if isOutside[origin] {
				continue
			}
			isOutside[origin] = origin.servingCount > 0 || origin.networkCount > 0
			for fn, n := range origin.starters {
				isOutside[origin] = isOutside[origin] || n > 0 && roots[fn]
			}
			if isOutside[origin] {
				roots[origin.startFunc], hasChanged = true, true
			}
		}
	}
	return isOutside
}

// A cycle is the jobs of functions that begin each other, or themselves, as what descends a tree does.
type startCycle struct {
	origins []*originStats
	funcs   map[tracefmt.StringID]bool
}

// startCycles returns the cycle that a function belongs to.
func (f *Finder) startCycles() map[tracefmt.StringID]*startCycle {
	starters := make(map[tracefmt.StringID]map[tracefmt.StringID]bool) // who began the jobs of a function
	for _, origin := range f.work.origins {
		for fn, n := range origin.starters {
			if origin.kind == Goroutine && n > 0 {
				if starters[origin.startFunc] == nil {
					starters[origin.startFunc] = make(map[tracefmt.StringID]bool)
				}
				starters[origin.startFunc][fn] = true
			}
		}
	}
	// The strongly connected components of that graph (Tarjan, 1972): time and room grow with what began what, however long the chains are.
	out, number := make(map[tracefmt.StringID]*startCycle), make(map[tracefmt.StringID]int)
	var open []tracefmt.StringID
	var visit func(tracefmt.StringID) int
	visit = func(fn tracefmt.StringID) int {
		n, base := len(number)+1, len(open)
		number[fn], open = n, append(open, fn)
		low := n
		for starter := range starters[fn] {
			if order, isNumbered := number[starter]; isNumbered {
				low = min(low, order)
			} else {
				low = min(low, visit(starter))
			}
		}
		if low < n {
			return low
		}
		cycle := &startCycle{funcs: make(map[tracefmt.StringID]bool)}
		for _, member := range open[base:] {
			number[member], cycle.funcs[member] = math.MaxInt, true // it is closed
			if len(open) > base+1 || starters[fn][fn] {
				out[member] = cycle
			}
		}
		open = open[:base]
		return math.MaxInt
	}
	for fn := range starters {
		if number[fn] == 0 {
			visit(fn)
		}
	}
	for _, origin := range f.work.origins {
		if cycle := out[origin.startFunc]; cycle != nil && origin.kind == Goroutine {
			cycle.origins = append(cycle.origins, origin)
		}
	}
	return out
}

// startedInside returns how many jobs the cycle began.
func (c *startCycle) startedInside(origin *originStats) (n int) {
	for fn, count := range origin.starters {
		if c.funcs[fn] {
			n += count
		}
	}
	return n
}

// startedOutside returns how many jobs of the cycle others began, and how many of these were for requests.
func (c *startCycle) startedOutside(serves map[tracefmt.StringID]bool) (serving, all int) {
	for _, origin := range c.origins {
		serving, all = serving+origin.servingCount, all+origin.inspected-c.startedInside(origin)
		for fn, n := range origin.starters {
			if serves[fn] && !c.funcs[fn] {
				serving += n
			}
		}
	}
	return serving, all
}

// workRoles returns what the work of each function is to the requests of the
// process, by kind and name of its group.
func (f *Finder) workRoles(requestsThrough func(root tracefmt.StringID) int64) map[originKey]Role {
	roles := make(map[originKey]Role)
	isServing := make(map[tracefmt.StringID]bool) // functions all of whose work serves
	// Jobs started, and how long they took, by the function that the goroutines
	// that started them began with.
	startedJobs, jobNS := make(map[tracefmt.StringID]int), make(map[tracefmt.StringID]int64)
	for _, origin := range f.work.origins {
		if origin.kind == Goroutine && origin.inspected > 0 && !origin.isLibraryWait {
			for fn, n := range origin.starters {
				startedJobs[fn] += n
				jobNS[fn] += origin.emittedNS * int64(n) / int64(origin.inspected)
			}
		}
	}
	cycles := f.startCycles()
	for {
		isIndependent := make(map[tracefmt.StringID]bool)
		for k, origin := range f.work.origins {
			if origin.total == 0 {
				continue
			}
			// What a function begins itself says nothing.
			serving, all := origin.servingCount, origin.inspected-origin.starters[origin.startFunc]
			if origin.kind == Goroutine && all > serving {
				serving, all = 0, all-serving // those that handlers started were left out one by one
			}
			for fn, n := range origin.starters {
				if isServing[fn] && fn != origin.startFunc {
					serving += n
				}
			}
			if cycle := cycles[origin.startFunc]; cycle != nil && serving == 0 && cycle.startedInside(origin) == origin.inspected {
				serving, all = cycle.startedOutside(isServing) // nor does what functions begin that begin each other: it is what the first of them are
			}
			switch {
			case origin.kind == Loop && f.namer.function(origin.startFunc).hasAny(benchmarkFunc) && origin.isOwned:
				// Its iterations are what the benchmark measures, whoever does the work.
				roles[k] = Independent
			case origin.kind == Loop && 2*startedJobs[origin.startFunc] >= origin.total && jobNS[origin.startFunc] >= 3*origin.emittedNS:
				// It starts a job each time, which does the work.
				roles[k] = Serving
				isIndependent[origin.startFunc] = true
			case origin.isSettled, 2*requestsThrough(origin.startFunc) >= int64(origin.total), serving > 0 && 2*serving >= all && origin.handlerDepartures <= 3*origin.handlerWaits:
				roles[k] = Serving
			case !origin.isOwned:
				roles[k] = Library
			default:
				roles[k] = Independent
			}
			if roles[k] != Serving {
				isIndependent[origin.startFunc] = true
			}
		}
		changed := false
		for _, origin := range f.work.origins {
			if !isIndependent[origin.startFunc] && !isServing[origin.startFunc] {
				isServing[origin.startFunc], changed = true, true
			}
		}
		if !changed {
			for k, origin := range f.work.origins {
				for name, aliased := range f.work.aliases {
					if aliased == origin {
						roles[name] = roles[k]
					}
				}
			}
			return roles
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
