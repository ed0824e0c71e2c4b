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

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
)

// The walk a second time, as plainly as possible: over the whole trace as the
// reference reader tells it, with maps, strings and recursion, and no thought
// for speed.

type naiveSpan struct {
	start, end   int64
	state        string // running, runnable, waiting, syscall
	reason       string
	stack        []string // of the goroutine where the span begins; for a running one where it ends
	status       bool     // since before the trace
	woken        bool
	waker        int64 // 0: nobody
	wakerStack   []string
	born         bool
	by           int64
	assist, stop bool
}

type naiveTrace struct {
	spans map[int64][]naiveSpan
	end   int64
	depth int // of walks within walks
}

func naiveRead(t *testing.T, data []byte) *naiveTrace {
	t.Helper()
	r := must.Have(trace.NewReader(bytes.NewReader(data)))(t)
	n := &naiveTrace{spans: map[int64][]naiveSpan{}}
	known := map[trace.Stack][]string{}
	funcsOf := func(s trace.Stack) []string {
		out, ok := known[s]
		if !ok {
			for f := range s.Frames() {
				out = append(out, fmt.Sprintf("%s:%d", f.Func, f.Line))
			}
			known[s] = out
		}
		return out
	}
	cur := map[int64]*naiveSpan{}
	assist, stop := map[int64]bool{}, map[int64]bool{}
	finish := func(g, at int64) {
		if s := cur[g]; s != nil {
			s.end = at
			n.spans[g] = append(n.spans[g], *s)
			delete(cur, g)
		}
	}
	begin := func(g int64, s naiveSpan) {
		s.assist, s.stop = assist[g], stop[g]
		cur[g] = &s
	}
	split := func(g, at int64) {
		if s := cur[g]; s != nil && s.state == "running" {
			finish(g, at)
			begin(g, naiveSpan{start: at, state: "running"})
		} else if s != nil {
			s.assist, s.stop = assist[g], stop[g]
		}
	}
	for {
		ev, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at := int64(ev.Time())
		n.end = at
		switch ev.Kind() {
		case trace.EventRangeBegin, trace.EventRangeActive, trace.EventRangeEnd:
			rg := ev.Range()
			if rg.Scope.Kind != trace.ResourceGoroutine {
				continue
			}
			g := int64(rg.Scope.Goroutine())
			on := ev.Kind() != trace.EventRangeEnd
			switch {
			case rg.Name == "GC mark assist":
				assist[g] = on
			case strings.HasPrefix(rg.Name, "stop-the-world"):
				stop[g] = on
			default:
				continue
			}
			split(g, at)
		case trace.EventStateTransition:
			st := ev.StateTransition()
			if st.Resource.Kind != trace.ResourceGoroutine {
				continue
			}
			g := int64(st.Resource.Goroutine())
			from, to := st.Goroutine()
			if from == to {
				continue
			}
			s := naiveSpan{start: at, reason: st.Reason, stack: funcsOf(st.Stack)}
			old := cur[g]
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
			by := int64(ev.Goroutine())
			if by < 0 {
				by = 0
			}
			switch {
			case from == trace.GoUndetermined:
				s.status, s.start = true, math.MinInt64
			case from == trace.GoNotExist:
				s.born, s.by = true, by
			case from == trace.GoWaiting && old != nil:
				old.woken, old.waker, old.wakerStack = true, by, funcsOf(ev.Stack())
			case from == trace.GoRunning && old != nil:
				old.stack = funcsOf(st.Stack)
			}
			finish(g, at)
			if to != trace.GoNotExist {
				begin(g, s)
			} else {
				assist[g], stop[g] = false, false
			}
		}
	}
	for g := range cur {
		finish(g, math.MaxInt64)
	}
	return n
}

type classAndG struct {
	class string
	g     int64
}

func has(stack []string, prefixes ...string) bool {
	return slices.ContainsFunc(stack, func(f string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f, p) })
	})
}

// walk adds the time from a to b on goroutine g to sums. It returns false if
// nothing is known of the goroutine.
func (n *naiveTrace) walk(sums map[classAndG]int64, g, a, b int64) bool {
	if a >= b {
		return true
	}
	n.depth++
	defer func() { n.depth-- }()
	var later []string // where the wait after this one was
	spans := n.spans[g]
	i := len(spans) - 1
	for i >= 0 && spans[i].start >= b {
		i--
	}
	if i < 0 && (len(spans) == 0 || !spans[0].born) {
		return false
	}
	for ; i >= 0 && b > a; i-- {
		s := &spans[i]
		if s.end < b {
			// Not alive then.
			from := max(a, s.end)
			sums[classAndG{"unknown", g}] += b - from
			b = from
			if b <= a {
				return true
			}
		}
		from := max(s.start, a)
		switch s.state {
		case "waiting":
			stack := s.stack
			b = n.wait(sums, g, i, from, a, b, later)
			later = stack
			if s.born {
				break
			}
			for i > 0 && spans[i].start > b {
				i--
			}
			if b <= a {
				return true
			}
			if spans[i].start < b { // the futile waits before were taken with it
				i++
			}
			continue
		case "running":
			class := "cpu"
			if s.assist {
				class = "assist"
			} else if s.stop {
				class = "stopworld"
			}
			sums[classAndG{class, g}] += b - from
		case "runnable":
			class := "runnable"
			if s.assist {
				class = "assist"
			}
			sums[classAndG{class, g}] += b - from
		default:
			sums[classAndG{s.state, g}] += b - from
		}
		b = min(b, from)
		if s.born && b > a {
			if s.by == 0 {
				sums[classAndG{"sleep", 0}] += b - a
			} else if !n.walk(sums, s.by, a, b) {
				sums[classAndG{"unknown", s.by}] += b - a
			}
			return true
		}
	}
	if b > a {
		sums[classAndG{"unknown", g}] += b - a
	}
	return true
}

// wait accounts for spans[i] of goroutine g, a wait, from from to b, and
// returns down to when it accounted.
func (n *naiveTrace) wait(sums map[classAndG]int64, g int64, i int, from, a, b int64, later []string) int64 {
	spans := n.spans[g]
	s := &spans[i]
	ended := s.woken && s.end <= b
	leaf := func(class string) int64 {
		sums[classAndG{class, g}] += b - from
		return from
	}
	follow := func(class string) int64 {
		if !ended || s.waker == 0 || s.waker == g {
			return leaf(class)
		}
		if !n.walk(sums, s.waker, from, b) {
			return leaf(class)
		}
		return from
	}
	// vain takes the waits before at the same place that were ended for nothing.
	vain := func(isVain func(*naiveSpan) bool) {
		next := s.start
		for k := i - 1; k >= 0 && from > a; k-- {
			p := &spans[k]
			if p.state == "waiting" && p.reason == s.reason && slices.Equal(p.stack, s.stack) && isVain(p) {
				from, next = max(p.start, a), p.start
			} else if p.state == "running" && next-p.start <= maxConditionCheckNS {
			} else if p.state == "runnable" && !p.born {
				next = p.start
			} else if p.state == "waiting" && has(p.stack, "sync.(*Cond).Wait") && has(p.stack, "sync.(*Mutex).", "sync.(*RWMutex).", "internal/sync.(*Mutex).") {
				next = p.start
			} else {
				break
			}
		}
	}
	if s.assist || has(s.stack, "runtime.gcAssistAlloc") {
		return leaf("assist")
	}
	switch s.reason {
	case "sleep":
		return leaf("sleep")
	case "network":
		if ended && s.waker != 0 && has(s.wakerStack, "internal/poll.") && !has(s.wakerStack, "runtime.startTheWorld", "runtime.gcStart", "runtime.gcMarkTermination") {
			return follow("network")
		}
		return leaf("network")
	case "chan receive", "select":
		if ended && s.waker == 0 {
			if n.depth > 1 && !slices.Equal(s.stack, later) {
				vain(func(p *naiveSpan) bool { return p.woken && p.waker != 0 }) // they gave it what it kept until then
			}
			return leaf("sleep")
		}
		return follow("chan")
	case "chan send":
		return follow("chan")
	case "forever":
		return leaf("chan")
	case "sync.(*Cond).Wait":
		if ended && s.waker != 0 && s.waker != g {
			vain(func(p *naiveSpan) bool { return p.waker != 0 && has(p.wakerStack, "sync.(*Cond).Broadcast") })
		}
		return follow("lock")
	case "sync":
		switch {
		case has(s.stack, "runtime.stopTheWorld"):
			return leaf("stopworld")
		case has(s.stack, "runtime.gcStart", "runtime.gcMarkDone"):
			return leaf("gcwait")
		}
		return follow("lock")
	case "GC mark assist wait for work":
		return leaf("assist")
	case "GC background sweeper wait", "wait until GC ends", "GC weak to strong wait", "system goroutine wait", "preempted":
		return leaf("gcwait")
	case "":
		if !s.status {
			return follow("chan")
		}
	}
	return follow("unknown")
}

// classOf makes a step's class the naive walk's, which does not guess what a
// wait was for that began before the trace, and knows nothing of polls.
func classOf(s *Step) classAndG {
	switch {
	case s.Kind == PollGap:
		return classAndG{"network", int64(s.G)}
	case s.Kind == Sleep && s.Beginning == timeline.HowCreated:
		return classAndG{"sleep", 0}
	case s.Beginning == timeline.HowStatus && s.Kind != CPU && s.Kind != Runnable && s.Kind != Syscall:
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

// compareWalks walks stretches of goroutines' lives both ways. The reference
// reader moves times so that no two are equal, in the order that it found; a
// step may so be a little longer or shorter.
func compareWalks(t *testing.T, data []byte) {
	n := naiveRead(t, data)
	win, syms := timelinetest.Window(t, data)
	w := New(win, syms)
	rnd := rand.New(rand.NewPCG(1, 2))
	ids := make([]int64, 0, len(n.spans))
	for g := range n.spans {
		ids = append(ids, g)
	}
	slices.Sort(ids)
	begin, end := win.Start(), n.end
	all := map[classAndG]int64{}
	var total, off int64
	walks, bad := 0, 0
	for walks < 1000 {
		g := ids[rnd.IntN(len(ids))]
		to := begin + rnd.Int64N(end-begin)
		from := max(begin, to-rnd.Int64N(1<<(10+rnd.IntN(18))))
		if to <= from {
			continue
		}
		walks++
		naive := map[classAndG]int64{}
		if !n.walk(naive, g, from, to) {
			naive[classAndG{"unknown", g}] += to - from
		}
		steps := w.Walk(uint64(g), from, to)
		checkPartition(t, steps, from, to)
		ours := map[classAndG]int64{}
		for i := range steps {
			ours[classOf(&steps[i])] += steps[i].End - steps[i].Start
		}
		var diff int64
		for k, v := range naive {
			all[k] += v
			diff += abs(v - ours[k])
		}
		for k, v := range ours {
			if _, ok := naive[k]; !ok {
				diff += v
			}
		}
		total += to - from
		off += diff
		if diff > (to-from)/50+2000 {
			if bad++; bad <= 3 {
				t.Logf("goroutine %d from %d for %d ns:\nours  %v\nnaive %v", g, from-begin, to-from, ours, naive)
			}
		}
	}
	// A wake and a creation at one and the same instant may be distinguished
	// either way; no more than that.
	if bad > walks/200 || off > total/200 {
		t.Errorf("%d of %d walks differ, %d of %d ns", bad, walks, off, total)
	}
	if len(all) < 5 {
		t.Errorf("the walks met only %v", all)
	}
}

func abs(x int64) int64 {
	if x < 0 {
		return -x
	}
	return x
}
