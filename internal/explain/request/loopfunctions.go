package request

import (
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A loopFunc is a function that loops in one or more goroutines.
type loopFunc struct {
	waits      map[tracefmt.StackID]*waitStats
	goroutines int              // inspected so far
	idleWait   tracefmt.StackID // 0 until it is chosen
	// isBusy says that the goroutines always have work, so that idleWait is a wait within the work that comes once in
	// an iteration.
	isBusy bool
	// restWaits are the waits in which busy goroutines sometimes wait for work. An iteration ends there, too.
	restWaits map[tracefmt.StackID]bool
	// isBenchmark says that the function is a benchmark's. Its iterations do not wait for work. sequence has its first waits
	// and system calls: they separate the iterations if they repeat regularly.
	isBenchmark      bool
	sequence         []tracefmt.StackID
	isDecided        bool // whether and by what the iterations are separated, by those of the first generation
	cycles           cycleStats
	reading          readingStats                     // of the iterations that readers began
	wakers           map[tracefmt.StringID]*wakeStats // by the function that ended an idle wait
	isIdleWaitServed bool                             // waitStats.isServed of idleWait
	isIdleWaitRead   bool                             // idleWait is for the next packet of a socket
	isEventLoop      bool                             // it waits until one of many connections is ready
	sharesSocket     bool                             // its goroutines read one socket
	// Of a loop that always has work: the lines at which it receives messages, the start function of the goroutines that read messages for
	// it (0: unknown), whether its receipts separate its iterations, and how often it wrote to a connection itself.
	receipts              map[tracefmt.FrameID]*receiptStats
	silentFeeder          tracefmt.StringID
	isSeparatedByReceipts bool
	ownWrites             int
	// emittedCount counts the emitted iterations, clientCount those with AnswersClient.
	emittedCount, clientCount int
}

// loopFuncAt returns the function that loops on a goroutine which waits at stack id, and a frame of it. It is the outermost
// function that does not only launch goroutines (followers). The function is nil if loops there are of no interest.
func (l *loopSource) loopFuncAt(c *collector, goroutine *loopGoroutine, id tracefmt.StackID) (loop *loopFunc, frame tracefmt.FrameID) {
	if goroutine.cachedStack != id && !goroutine.isCachedForAll {
		l.findLoopFunc(c, goroutine, id)
	}
	return goroutine.cachedFunc, goroutine.cachedFrame
}

// findLoopFunc caches the result of loopFuncAt in the goroutine.
func (l *loopSource) findLoopFunc(c *collector, goroutine *loopGoroutine, id tracefmt.StackID) {
	path, frames := goroutine.commonPath, c.syms.Stack(id)
	if len(frames) == 0 {
		goroutine.resetCache()
		return
	}
	if len(path) == 0 { // fewer than two waits are known
		l.outerFrames = appendOutermost(frames, l.outerFrames[:0])
		path = l.outerFrames
	}
	k := 0
	for k+1 < len(path) && len(l.followers[c.syms.Frame(path[k]).Func]) > 1 {
		k++
	}
	// With a common path, all stacks have the same function.
	goroutine.cachedStack, goroutine.cachedFrame, goroutine.isCachedForAll = id, path[k], len(goroutine.commonPath) > 0
	if goroutine.serviceFrame != 0 && !c.namer.isServiceCode(c.syms.Frame(path[k])) {
		goroutine.cachedFrame = goroutine.serviceFrame
	}
	goroutine.cachedFunc = l.loopFuncOf(c, c.syms.Frame(goroutine.cachedFrame).Func, frames)
}

// resetCache discards the cached result of loopFuncAt.
func (c *loopGoroutine) resetCache() {
	c.cachedStack, c.cachedFunc, c.cachedFrame, c.isCachedForAll = 0, nil, 0, false
}

// loopFuncOf returns the statistics of a looping function, created on first use. They are nil for functions of the standard
// library, and where the goroutines' whole lives are the units of work. frames is a stack of the function.
func (l *loopSource) loopFuncOf(c *collector, fn tracefmt.StringID, frames []tracefmt.FrameID) *loopFunc {
	loop, ok := l.loopFuncs[fn]
	if !ok {
		if !c.namer.function(fn).Has(knowledge.Stdlib) {
			loop = &loopFunc{
				waits: make(map[tracefmt.StackID]*waitStats), wakers: make(map[tracefmt.StringID]*wakeStats),
				cycles: cycleStats{single: make(map[string]int), repeated: make(map[string]int)},
			}
			loop.isBenchmark = c.namer.frameFunction(frames[len(frames)-1]).Has(knowledge.Benchmark)
		}
		l.loopFuncs[fn] = loop
	}
	if e := l.jobs.kinds[jobKey{startFunc: fn}]; e != nil && e.areJobs {
		return nil // the goroutine's life is the unit
	}
	return loop
}

// narrowPath shortens a goroutine's commonPath to the outermost functions that the stacks of its new waits have as well, and
// records which function follows which in it.
func (l *loopSource) narrowPath(c *collector, goroutine *loopGoroutine) {
	for _, stack := range goroutine.collector.waitStacks[goroutine.firstWaitStack:goroutine.endWaitStack] {
		frames := c.syms.Stack(stack)
		if goroutine.commonPath == nil {
			goroutine.commonPath = appendOutermost(frames, nil)
			continue
		}
		path, common := goroutine.commonPath, 0
		for common < len(path) && common < len(frames) && c.syms.Frame(path[common]).Func == c.syms.Frame(frames[len(frames)-1-common]).Func {
			common++
		}
		goroutine.commonPath = path[:common]
	}
	for k := 0; k+1 < len(goroutine.commonPath); k++ {
		fn, next := c.syms.Frame(goroutine.commonPath[k]).Func, c.syms.Frame(goroutine.commonPath[k+1]).Func
		if c.namer.function(next).Has(knowledge.Stdlib) {
			break
		}
		if l.followers[fn] == nil {
			l.followers[fn] = make(map[tracefmt.StringID]bool)
		}
		l.followers[fn][next] = true
	}
}

// maxPathDepth bounds how many outermost frames are searched for launchers.
const maxPathDepth = 8

// appendOutermost appends up to maxPathDepth outermost frames of a stack to a list, the outermost first.
func appendOutermost(frames, to []tracefmt.FrameID) []tracefmt.FrameID {
	for k := len(frames) - 1; k >= 0 && len(to) < maxPathDepth; k-- {
		to = append(to, frames[k])
	}
	return to
}
