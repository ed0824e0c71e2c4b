package request

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Work is what jobs and loops do. If it is done for requests of a server, it is a part of those requests and only
// counted. Otherwise it is reported next to them.
//
// The starter decides which requests work is done for: the goroutine that created a job, or whose send or unlock ended a loop's
// idle wait. If handlers of requests, or work that serves requests itself, started most of it, the work serves
// requests. The exception is a loop that handlers pass work to without waiting for the result, such as a queue of mails
// to send.

// A Role is the relation of work to the requests of the process.
type Role uint8

// Roles, the most important first.
const (
	// Independent work is reported next to the requests.
	Independent Role = iota
	// Library work has no frame of service code: it is a library's internal work, or a library's own regions.
	Library
	// Serving work is a part of requests.
	Serving
	// Part is work of a batch program's run.
	Part
	// MainLife is the run of a program that is no batch program.
	MainLife
)

// originStats counts how the jobs or iterations of one function began.
type originStats struct {
	inspected         int   // jobs or iterations that were inspected
	emittedNS         int64 // duration of the emitted ones
	lastInspected     int   // inspected in earlier generations
	observedNS        int64 // of the iterations that were observed in this generation
	total             int   // inspected or not
	pieceCount        int   // timeline pieces of the inspected goroutines
	servingCount      int   // begun by a handler of requests
	networkCount      int   // begun by the network or an unknown cause
	timerCount        int   // begun by a timer
	starters          map[tracefmt.StringID]int
	hasServiceCode    bool // service code was observed
	handlerWaits      int  // of servingCount: the handler waited for the result
	handlerDepartures int  // of servingCount: the handler proceeded
	// For a library's loop: backToBack counts the iterations that had work when the one before ended, rests those after
	// which the loop waited for more. arrivals is how often the goroutine that passes the work got some.
	backToBack, rests, arrivals int
	sharesSocket                bool              // the loop's goroutines read one socket
	isEventLoop                 bool              // each reads its own connections
	isSettled                   bool              // it serves requests and is only counted
	startFunc                   tracefmt.StringID // of the goroutines
	kind                        Kind
	isLibraryWait               bool        // the jobs are a library's way to wait, and none is emitted
	groupKeys                   []originKey // if it is reported under other names
	// busyLoop is the loop of iterations that no idle wait separates, consumers the time for which each goroutine was in one.
	// busyFrame is the function that ran in them.
	busyLoop    *loopFunc
	busyFrame   tracefmt.FrameID
	consumers   map[uint64]int64
	busySince   int64
	feederTimes             // of the goroutines that start jobs, while too many run
	fetchWaits  []fetchWait // for the next message
	isFeeder    bool        // it only passes messages on to another loop
}

// Limits of inspection.
const (
	settledCount         = 200 // jobs or iterations of a function after which its role is settled
	maxHandlersInspected = 32  // iterations of a function whose handlers are inspected
)

// workIndex holds the work of all goroutines that no protocol claims. Jobs, loops and regions count theirs in it.
type workIndex struct {
	origins map[originKey]*originStats
	aliases map[originKey]*originStats // of groups with another name than the function's
	roles   map[uint64]startRole       // of goroutines that are older than the generation
	// isBatch says that, in the generations before, jobs and iterations were parts of the program's run. They are counted and
	// not emitted. mayBeBatch says that this generation's may be such parts.
	isBatch, mayBeBatch bool
}

// drops reports whether a job or an iteration with this entry stack is not emitted: the program is a batch program and this is a
// part of its run.
func (w *workIndex) drops(c *collector, entryStack tracefmt.StackID) bool {
	return w.mayBeBatch && w.isBatch && !c.isMeasured(c.stackInfo(entryStack).startFunc)
}

// decideCountedOnly decides at the end of a generation which loops serve requests, as settledCount iterations show. Their
// iterations are only counted from then on (isSettled).
func (w *workIndex) decideCountedOnly(c *collector, g *timeline.Gen) {
	removeUnknown(w.roles, g)
	var roles map[originKey]Role
	for k, origin := range w.origins {
		if k.kind != Loop || origin.isSettled || origin.inspected < settledCount {
			continue
		}
		if roles == nil {
			roles = w.workRoles(c, func(tracefmt.StringID) int64 { return 0 })
		}
		origin.isSettled = roles[k] == Serving
	}
}

// originKey identifies a group of work.
type originKey struct {
	kind Kind
	name tracefmt.StringID
}

// startRoleOf returns the role of goroutine id by its start function. start is the stack of that function if the goroutine was
// created in the generation, else 0; then the role is found from any of its stacks, and is roleUnknown if none was seen.
func (w *workIndex) startRoleOf(c *collector, g *timeline.Gen, id uint64, start tracefmt.StackID) startRole {
	if start != 0 {
		return c.stackInfo(start).role
	}
	r, ok := w.roles[id]
	if !ok {
		r = roleUnknown
		if stack := g.AnyStack(id); stack != 0 {
			r = c.stackInfo(stack).role
			w.roles[id] = r
		}
	}
	return r
}

// originFor returns the statistics of the work with this kind and name, created on first use with the goroutines' start function
// root.
func (w *workIndex) originFor(kind Kind, name, root tracefmt.StringID) *originStats {
	return entry.GetOrMake(w.origins, originKey{kind, name}, func() *originStats {
		return &originStats{kind: kind, startFunc: root, starters: make(map[tracefmt.StringID]int)}
	})
}

// addStarter counts the beginning of a job or iteration: by a handler of requests, or by the start function of the goroutine that
// began it. stack is where that goroutine was.
func (o *originStats) addStarter(c *collector, starterID uint64, stack tracefmt.StackID) {
	if c.isServing(starterID, stack) {
		o.servingCount++
	} else if root := c.stackInfo(stack).startFunc; root != 0 {
		o.starters[root]++
	}
}

// Work is the work of one function.
type Work struct {
	Kind      Kind
	Name      tracefmt.StringID // of the group
	StartFunc tracefmt.StringID // of the goroutines
	Role      Role
	Count     int // approximate: of work that serves requests only a part is inspected
	// IsTimerStarted says that timers began most of the work. IsStartedOutside says that clients or the network began
	// some of it, or of the work that started it.
	IsTimerStarted, IsStartedOutside bool
	IsMeasured                       bool // tests, or the iterations of a benchmark
	// QueuedShare is the share of iterations whose work was available when the iteration before ended. It is 0 except
	// for service functions that a library's loop calls and whose goroutine also waited for more work.
	QueuedShare float64
	MeanNS      int64 // length of one
}

// Works returns all work of the trace with its role, ordered by name. requestsThrough returns how many requests of servers have a
// path through goroutines with a start function.
func (f *Finder) Works(requestsThrough func(root tracefmt.StringID) int64) (out []Work) {
	if f.saturated == nil {
		f.saturated = f.findSaturated() // marks feeders
	}
	roles, isOutside := f.work.workRoles(&f.collector, requestsThrough), f.work.workStartedOutside()
	for k, origin := range f.work.origins {
		if origin.total > 0 {
			keys := origin.groupKeys
			if len(keys) == 0 {
				keys = []originKey{k}
			}
			for _, k := range keys {
				out = append(out, Work{
					k.kind, k.name, origin.startFunc, roles[k], origin.total / len(keys),
					f.work.isTimerStarted(origin), isOutside[origin], f.isMeasured(origin.startFunc), origin.queuedShare(), origin.emittedNS / int64(max(origin.inspected, 1)),
				})
			}
		}
	}
	slices.SortFunc(out, func(a, b Work) int {
		return cmp.Or(cmp.Compare(f.syms.String(a.Name), f.syms.String(b.Name)), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

// queuedShare returns Work.QueuedShare: of the iterations, the share that followed the one before without a rest. It is 0 if the
// goroutine never rested, and if there were more than 1.5 iterations for each arrival of work, because one item may then cause
// several iterations.
func (o *originStats) queuedShare() float64 {
	if o.rests == 0 || 2*(o.backToBack+o.rests) > 3*o.arrivals {
		return 0
	}
	return float64(o.backToBack) / float64(o.backToBack+o.rests)
}

// isTimerStarted reports whether timers began most of the work, either directly or through loops that timers wake.
func (w *workIndex) isTimerStarted(o *originStats) bool {
	timer := o.timerCount
	if o.kind == Goroutine {
		for _, l := range w.origins {
			if l.kind == Loop && l.inspected > 0 && 2*l.timerCount > l.inspected {
				timer += o.starters[l.startFunc]
			}
		}
	}
	return 2*timer > o.inspected
}

// workStartedOutside returns the set of work of which clients or the network began at least some, directly or through other work
// that started it.
func (w *workIndex) workStartedOutside() map[*originStats]bool {
	isOutside := make(map[*originStats]bool)
	roots := make(map[tracefmt.StringID]bool) // start functions of such work
	for hasChanged := true; hasChanged; {
		hasChanged = false
		for _, origin := range w.origins {
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

// A startCycle is a set of start functions whose jobs start each other, or a function whose jobs start more of the same,
// as in a parallel descent of a tree.
type startCycle struct {
	origins []*originStats
	funcs   map[tracefmt.StringID]bool
}

// startCycles returns, by start function, the cycle that the function is in. It lacks functions that are in none.
func (w *workIndex) startCycles() map[tracefmt.StringID]*startCycle {
	starters := make(map[tracefmt.StringID]map[tracefmt.StringID]bool) // by start function: the start functions of its starters
	for _, origin := range w.origins {
		for fn, n := range origin.starters {
			if origin.kind == Goroutine && n > 0 {
				if starters[origin.startFunc] == nil {
					starters[origin.startFunc] = make(map[tracefmt.StringID]bool)
				}
				starters[origin.startFunc][fn] = true
			}
		}
	}
	// The cycles are the strongly connected components of that graph (Tarjan, 1972), found in linear time and space.
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
			number[member], cycle.funcs[member] = math.MaxInt, true // its component is complete
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
	for _, origin := range w.origins {
		if cycle := out[origin.startFunc]; cycle != nil && origin.kind == Goroutine {
			cycle.origins = append(cycle.origins, origin)
		}
	}
	return out
}

// countStartedInside returns how many jobs of origin were started by functions of the cycle.
func (c *startCycle) countStartedInside(origin *originStats) (n int) {
	for fn, count := range origin.starters {
		if c.funcs[fn] {
			n += count
		}
	}
	return n
}

// countStartedOutside returns how many jobs of the cycle were started by functions outside of it (all), and how many of these
// were started for requests: by a handler, or by a function in serves.
func (c *startCycle) countStartedOutside(serves map[tracefmt.StringID]bool) (serving, all int) {
	for _, origin := range c.origins {
		serving, all = serving+origin.servingCount, all+origin.inspected-c.countStartedInside(origin)
		for fn, n := range origin.starters {
			if serves[fn] && !c.funcs[fn] {
				serving += n
			}
		}
	}
	return serving, all
}

// workRoles decides the role of each group of work. Work that serves requests makes the work that it starts serve them as well,
// so it repeats until the set of serving start functions no longer grows.
func (w *workIndex) workRoles(c *collector, requestsThrough func(root tracefmt.StringID) int64) map[originKey]Role {
	roles := make(map[originKey]Role)
	isServing := make(map[tracefmt.StringID]bool) // start functions all of whose work serves requests
	// Jobs, and their duration, by the start function of the goroutines that started them.
	startedJobs, jobNS := make(map[tracefmt.StringID]int), make(map[tracefmt.StringID]int64)
	for _, origin := range w.origins {
		if origin.kind == Goroutine && origin.inspected > 0 && !origin.isLibraryWait {
			for fn, n := range origin.starters {
				startedJobs[fn] += n
				jobNS[fn] += origin.emittedNS * int64(n) / int64(origin.inspected)
			}
		}
	}
	cycles := w.startCycles()
	for {
		isIndependent := make(map[tracefmt.StringID]bool)
		for k, origin := range w.origins {
			if origin.total == 0 {
				continue
			}
			// Jobs and iterations that a function starts itself prove nothing.
			serving, all := origin.servingCount, origin.inspected-origin.starters[origin.startFunc]
			if origin.kind == Goroutine && all > serving {
				serving, all = 0, all-serving // the handlers' own jobs were left out one by one
			}
			for fn, n := range origin.starters {
				if isServing[fn] && fn != origin.startFunc {
					serving += n
				}
			}
			if cycle := cycles[origin.startFunc]; cycle != nil && serving == 0 && cycle.countStartedInside(origin) == origin.inspected {
				// Jobs that a cycle starts itself prove nothing either: the role is that of the first ones.
				serving, all = cycle.countStartedOutside(isServing)
			}
			switch {
			case origin.kind == Loop && c.namer.function(origin.startFunc).Has(knowledge.Benchmark) && origin.hasServiceCode:
				// The benchmark measures its iterations, and any goroutine may do the work.
				roles[k] = Independent
			case origin.kind == Loop && 2*startedJobs[origin.startFunc] >= origin.total && jobNS[origin.startFunc] >= 3*origin.emittedNS:
				// It starts a job in each iteration, and the job does the work.
				roles[k] = Serving
				isIndependent[origin.startFunc] = true
			case origin.isSettled, origin.isFeeder, 2*requestsThrough(origin.startFunc) >= int64(origin.total),
				serving > 0 && 2*serving >= all && origin.handlerDepartures <= 3*origin.handlerWaits:
				roles[k] = Serving
			case !origin.hasServiceCode:
				roles[k] = Library
			default:
				roles[k] = Independent
			}
			if roles[k] != Serving {
				isIndependent[origin.startFunc] = true
			}
		}
		changed := false
		for _, origin := range w.origins {
			if !isIndependent[origin.startFunc] && !isServing[origin.startFunc] {
				isServing[origin.startFunc], changed = true, true
			}
		}
		if !changed {
			for k, origin := range w.origins {
				for name, aliased := range w.aliases {
					if aliased == origin {
						roles[name] = roles[k]
					}
				}
			}
			return roles
		}
	}
}
