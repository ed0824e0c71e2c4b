package critpath

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
)

// A second, plain implementation of the walk: over the whole trace, as the reference reader returns it, with maps,
// strings and recursion, without regard to speed.

type naiveSpan struct {
	start, end           int64
	state                string // running, runnable, waiting, syscall
	reason               string
	stack                []string // of the goroutine where the span begins; for a running one where it ends
	sinceBeforeTrace     bool     // began before the trace
	woken                bool
	waker                int64 // 0: no goroutine
	wakerStack           []string
	born                 bool
	creator              int64
	inAssist, stopsWorld bool
}

type naiveTrace struct {
	spans   map[int64][]naiveSpan
	end     int64
	nesting int // of walks
}

func readNaive(t *testing.T, data []byte) *naiveTrace {
	t.Helper()
	r := must.Have(trace.NewReader(bytes.NewReader(data)))(t)
	naive := &naiveTrace{spans: map[int64][]naiveSpan{}}
	stackFuncs := map[trace.Stack][]string{}
	funcsOf := func(s trace.Stack) []string {
		out, ok := stackFuncs[s]
		if !ok {
			for f := range s.Frames() {
				out = append(out, fmt.Sprintf("%s:%d", f.Func, f.Line))
			}
			stackFuncs[s] = out
		}
		return out
	}
	current := map[int64]*naiveSpan{}
	assist, stopsWorld := map[int64]bool{}, map[int64]bool{}
	finish := func(g, end int64) {
		if s := current[g]; s != nil {
			s.end = end
			naive.spans[g] = append(naive.spans[g], *s)
			delete(current, g)
		}
	}
	begin := func(g int64, s naiveSpan) {
		s.inAssist, s.stopsWorld = assist[g], stopsWorld[g]
		current[g] = &s
	}
	split := func(g, time int64) {
		if s := current[g]; s != nil && s.state == "running" {
			finish(g, time)
			begin(g, naiveSpan{start: time, state: "running"})
		} else if s != nil {
			s.inAssist, s.stopsWorld = assist[g], stopsWorld[g]
		}
	}
	for {
		ev, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		time := int64(ev.Time())
		naive.end = time
		switch ev.Kind() {
		case trace.EventRangeBegin, trace.EventRangeActive, trace.EventRangeEnd:
			scope := ev.Range()
			g := int64(ev.Goroutine())
			if scope.Scope.Kind == trace.ResourceGoroutine {
				g = int64(scope.Scope.Goroutine())
			}
			isInside := ev.Kind() != trace.EventRangeEnd
			switch {
			case scope.Name == "GC incremental sweep" && ev.Kind() == trace.EventRangeActive:
				continue // is about a P
			case scope.Name == "GC mark assist", scope.Name == "GC incremental sweep":
				assist[g] = isInside
			case strings.HasPrefix(scope.Name, "stop-the-world"):
				stopsWorld[g] = isInside
			default:
				continue
			}
			split(g, time)
		case trace.EventStateTransition:
			transition := ev.StateTransition()
			if transition.Resource.Kind != trace.ResourceGoroutine {
				continue
			}
			g := int64(transition.Resource.Goroutine())
			from, to := transition.Goroutine()
			if from == to {
				continue
			}
			s := naiveSpan{start: time, reason: transition.Reason, stack: funcsOf(transition.Stack)}
			old := current[g]
			switch to {
			case trace.GoRunning:
				s.state = "running"
				s.stack, s.reason = nil, ""
			case trace.GoRunnable:
				s.state = "runnable"
				s.stack = nil
			case trace.GoWaiting:
				s.state = "waiting"
			case trace.GoSyscall:
				s.state = "syscall"
			}
			actor := int64(ev.Goroutine())
			if actor < 0 {
				actor = 0
			}
			switch {
			case from == trace.GoUndetermined:
				s.sinceBeforeTrace, s.start = true, math.MinInt64
			case from == trace.GoNotExist:
				s.born, s.creator = true, actor
			case from == trace.GoWaiting && old != nil:
				old.woken, old.waker, old.wakerStack = true, actor, funcsOf(ev.Stack())
			case from == trace.GoRunning && old != nil:
				old.stack = funcsOf(transition.Stack)
			}
			finish(g, time)
			if to != trace.GoNotExist {
				begin(g, s)
			} else {
				assist[g], stopsWorld[g] = false, false
			}
		}
	}
	for g := range current {
		finish(g, math.MaxInt64)
	}
	return naive
}

type classAndG struct {
	class string
	g     int64
}

func hasFunc(stack []string, prefixes ...string) bool {
	return slices.ContainsFunc(stack, func(f string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f, p) })
	})
}

// walk adds the times of goroutine g in [start, end) to sums. It returns false if nothing is known about the
// goroutine.
func (n *naiveTrace) walk(sums map[classAndG]int64, g, start, end int64) bool {
	if start >= end {
		return true
	}
	n.nesting++
	defer func() { n.nesting-- }()
	var laterStack []string // of the wait after the current one
	spans := n.spans[g]
	i := len(spans) - 1
	for i >= 0 && spans[i].start >= end {
		i--
	}
	if i < 0 && (len(spans) == 0 || !spans[0].born) {
		return false
	}
	for ; i >= 0 && end > start; i-- {
		s := &spans[i]
		if s.end < end {
			// The goroutine did not exist then.
			from := max(start, s.end)
			sums[classAndG{"unknown", g}] += end - from
			end = from
			if end <= start {
				return true
			}
		}
		from := max(s.start, start)
		switch s.state {
		case "waiting":
			stack := s.stack
			end = n.addWait(sums, g, i, from, start, end, laterStack)
			laterStack = stack
			if s.born {
				break
			}
			for i > 0 && spans[i].start > end {
				i--
			}
			if end <= start {
				return true
			}
			if spans[i].start < end { // futile waits before this one were merged into it
				i++
			}
			continue
		case "running":
			class := "cpu"
			if s.inAssist {
				class = "assist"
			} else if s.stopsWorld {
				class = "stopworld"
			}
			sums[classAndG{class, g}] += end - from
		case "runnable":
			class := "runnable"
			if s.inAssist {
				class = "assist"
			}
			sums[classAndG{class, g}] += end - from
		default:
			sums[classAndG{s.state, g}] += end - from
		}
		end = min(end, from)
		if s.born && end > start {
			if s.creator == 0 {
				sums[classAndG{"sleep", 0}] += end - start
			} else if !n.walk(sums, s.creator, start, end) {
				sums[classAndG{"unknown", s.creator}] += end - start
			}
			return true
		}
	}
	if end > start {
		sums[classAndG{"unknown", g}] += end - start
	}
	return true
}

// addWait adds the time of spans[i] of goroutine g, a wait, in [from, end), and returns the time up to which it did
// so.
func (n *naiveTrace) addWait(sums map[classAndG]int64, g int64, i int, from, start, end int64, laterStack []string) int64 {
	spans := n.spans[g]
	s := &spans[i]
	hasEnded := s.woken && s.end <= end
	leaf := func(class string) int64 {
		sums[classAndG{class, g}] += end - from
		return from
	}
	follow := func(class string) int64 {
		if !hasEnded || s.waker == 0 || s.waker == g {
			return leaf(class)
		}
		if !n.walk(sums, s.waker, from, end) {
			return leaf(class)
		}
		return from
	}
	// mergeVain moves from to the first of the waits at the same place whose wakes were in vain.
	mergeVain := func(isVain func(*naiveSpan) bool) {
		next := s.start
		for j := i - 1; j >= 0 && from > start; j-- {
			previous := &spans[j]
			if previous.state == "waiting" && previous.reason == s.reason && slices.Equal(previous.stack, s.stack) && isVain(previous) {
				from, next = max(previous.start, start), previous.start
			} else if previous.state == "running" && next-previous.start <= maxConditionCheckNS {
			} else if previous.state == "runnable" && !previous.born {
				next = previous.start
			} else if previous.state == "waiting" && hasFunc(previous.stack, "sync.(*Cond).Wait") && hasFunc(previous.stack, "sync.(*Mutex).", "sync.(*RWMutex).", "internal/sync.(*Mutex).") {
				next = previous.start
			} else {
				break
			}
		}
	}
	if s.inAssist || hasFunc(s.stack, "runtime.gcAssistAlloc") {
		return leaf("assist")
	}
	switch s.reason {
	case "sleep":
		return leaf("sleep")
	case "network":
		if hasEnded && s.waker != 0 && hasFunc(s.wakerStack, "internal/poll.") && !hasFunc(s.wakerStack, "runtime.startTheWorld", "runtime.gcStart", "runtime.gcMarkTermination") {
			return follow("network")
		}
		return leaf("network")
	case "chan receive", "select":
		if hasEnded && s.waker == 0 {
			if n.nesting > 1 && !slices.Equal(s.stack, laterStack) {
				mergeVain(func(previous *naiveSpan) bool { return previous.woken && previous.waker != 0 }) // wakes that only handed over something to keep
			}
			return leaf("sleep")
		}
		return follow("chan")
	case "chan send":
		return follow("chan")
	case "forever":
		return leaf("chan")
	case "sync.(*Cond).Wait":
		if hasEnded && s.waker != 0 && s.waker != g {
			mergeVain(func(previous *naiveSpan) bool {
				return previous.waker != 0 && hasFunc(previous.wakerStack, "sync.(*Cond).Broadcast")
			})
		}
		return follow("lock")
	case "sync":
		switch {
		case hasFunc(s.stack, "runtime.stopTheWorld"):
			return leaf("stopworld")
		case hasFunc(s.stack, "runtime.gcStart", "runtime.gcMarkDone"):
			return leaf("gcwait")
		}
		return follow("lock")
	case "GC mark assist wait for work":
		return leaf("assist")
	case "GC background sweeper wait", "wait until GC ends", "GC weak to strong wait", "system goroutine wait", "preempted":
		return leaf("gcwait")
	case "":
		if !s.sinceBeforeTrace {
			return follow("chan")
		}
	}
	return follow("unknown")
}

// classOf returns the class that the plain walk gives to a step. The plain walk does not derive the reason of waits
// that began before the trace, and knows nothing about polls.
func classOf(s *Step) classAndG {
	switch {
	case s.Kind == PollGap:
		return classAndG{"network", int64(s.G)}
	case s.Kind == Sleep && s.Beginning == timeline.OriginCreated:
		return classAndG{"sleep", 0}
	case s.Beginning == timeline.OriginStatus && s.Kind != CPU && s.Kind != Runnable && s.Kind != Syscall:
		return classAndG{"unknown", int64(s.G)}
	}
	return classAndG{kindNames[s.Kind], int64(s.G)}
}

func TestNaiveWalkAgrees(t *testing.T) {
	for _, name := range []string{"http1", "http1-middleware", "http2", "grpc", "locks", "channels", "timers", "gcstress", "tasks", "iterpull", "poll", "filesyscall"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compareWalks(t, testprog.Trace(t, name))
		})
	}
}

// compareWalks walks random intervals of goroutines' lives with both implementations. The reference reader moves
// times so that no two are equal, so a step may be a little longer or shorter.
func compareWalks(t *testing.T, data []byte) {
	naive := readNaive(t, data)
	win, syms := timelinetest.DecodeWindow(t, data)
	w := New(win, syms)
	rnd := rand.New(rand.NewPCG(1, 2))
	ids := make([]int64, 0, len(naive.spans))
	for g := range naive.spans {
		ids = append(ids, g)
	}
	slices.Sort(ids)
	begin, end := win.Start(), naive.end
	classTimes := map[classAndG]int64{}
	var total, totalDifference int64
	walks, differing := 0, 0
	for walks < 1000 {
		g := ids[rnd.IntN(len(ids))]
		to := begin + rnd.Int64N(end-begin)
		from := max(begin, to-rnd.Int64N(1<<(10+rnd.IntN(18))))
		if to <= from {
			continue
		}
		walks++
		want := map[classAndG]int64{}
		if !naive.walk(want, g, from, to) {
			want[classAndG{"unknown", g}] += to - from
		}
		steps := w.Walk(uint64(g), from, to)
		checkPartition(t, steps, from, to)
		got := map[classAndG]int64{}
		for i := range steps {
			got[classOf(&steps[i])] += steps[i].End - steps[i].Start
		}
		var difference int64
		for k, v := range want {
			classTimes[k] += v
			difference += abs(v - got[k])
		}
		for k, v := range got {
			if _, ok := want[k]; !ok {
				difference += v
			}
		}
		total += to - from
		if difference <= (to-from)/50+2000 {
			totalDifference += difference
		} else if differing++; differing <= 3 {
			t.Logf("goroutine %d from %d for %d ns:\nours  %v\nnaive %v", g, from-begin, to-from, got, want)
		}
	}
	// Two events at the same instant may be ordered either way, and then all that was before them differs. No other difference
	// is allowed.
	check.True(t, differing <= walks/200 && totalDifference <= total/200,
		"%d of %d walks differ, %d of %d ns", differing, walks, totalDifference, total)
	check.True(t, len(classTimes) >= 5, "the walks have only %v", classTimes)
}

func abs(x int64) int64 {
	if x < 0 {
		return -x
	}
	return x
}
