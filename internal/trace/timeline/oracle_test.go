package timeline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// This file compares our timelines with the reference reader's.
//
// Equal means: each goroutine and each P has the same states in the same order, with the same reasons, stacks and
// causing goroutines. Times need a rule. The reference reader brings all events into one order. Where the clocks
// of two threads contradict that order, it moves times forward so that each is later than the one before: T[i] =
// max(t[i], T[i-1]+1). We keep t. So with the reference's times T[i] and T[i-1], our t must give exactly T[i] by
// that rule.

// A change is one step in the life of a goroutine or P, in a form to which both sides can be converted.
type change struct {
	transition string // "waiting->runnable", "point", ...
	reason     string
	stack      int    // stack of the event, see stackNumbers
	actor      uint64 // goroutine that caused a wake or creation
	noP        bool   // for wakes: the waking thread held no P
	assist     bool   // inside a mark assist after the change
	stw        bool   // stops the world after the change

	t    int64 // ours: the raw time; the reference's: its time
	prev int64 // the reference's: the time of the event before, of any kind
}

func (c change) String() string {
	return fmt.Sprintf("%s at %d (after %d) reason %q stack %d by %d noP %v assist %v stw %v", c.transition, c.t, c.prev, c.reason, c.stack, c.actor, c.noP, c.assist, c.stw)
}

// sameTime reports whether the reference's rule converts our raw time to its time.
func sameTime(ours int64, ref change) bool { return ref.t == max(ours, ref.prev+1) }

// equal compares all fields except times.
func (c change) equal(d change) bool {
	c.t, c.prev, d.t, d.prev = 0, 0, 0, 0
	return c == d
}

// stackNumbers numbers stacks by content.
type stackNumbers struct {
	byText map[string]int
	texts  []string
	ours   []int // by StackID, +1
	ref    map[trace.Stack]int
}

func newStacks() *stackNumbers {
	return &stackNumbers{byText: map[string]int{"": 0}, texts: []string{""}, ref: make(map[trace.Stack]int)}
}

func (s *stackNumbers) number(text string) int {
	n, ok := s.byText[text]
	if !ok {
		n = len(s.texts)
		s.byText[text] = n
		s.texts = append(s.texts, text)
	}
	return n
}

func (s *stackNumbers) refStack(stk trace.Stack) int {
	if stk == trace.NoStack {
		return 0
	}
	n, ok := s.ref[stk]
	if !ok {
		var b strings.Builder
		for f := range stk.Frames() {
			fmt.Fprintf(&b, "%x %s %s:%d\n", f.PC, f.Func, f.File, f.Line)
		}
		n = s.number(b.String())
		s.ref[stk] = n
	}
	return n
}

func (s *stackNumbers) ourStack(id tracefmt.StackID, syms *tracefmt.Symbols) int {
	for len(s.ours) <= int(id) {
		s.ours = append(s.ours, 0)
	}
	if s.ours[id] == 0 {
		var b strings.Builder
		for _, f := range syms.Stack(id) {
			fr := syms.Frame(f)
			fmt.Fprintf(&b, "%x %s %s:%d\n", fr.PC, syms.String(fr.Func), syms.String(fr.File), fr.Line)
		}
		s.ours[id] = s.number(b.String()) + 1
	}
	return s.ours[id] - 1
}

// An account is everything that one side reports about a trace.
type account struct {
	gs     map[uint64][]change
	states map[uint64]string // of goroutines, by the reference's latest change
	ps     map[uint64][]change
	points map[string][]change // by content
	clocks []string
	// assistStack is the stack at the begin of a goroutine's mark assist or sweep.
	assistStack map[uint64]int
	gens        int
	events      int64
	err         error // why reading ended, nil at a clean end
}

func newAccount() *account {
	return &account{gs: make(map[uint64][]change), states: make(map[uint64]string), ps: make(map[uint64][]change), points: make(map[string][]change), assistStack: make(map[uint64]int)}
}

// accountOfReference reads a trace with the reference reader, up to maxGens whole generations. It leaves out a
// generation that the reader does not finish.
func accountOfReference(data []byte, stk *stackNumbers, maxGens int) *account {
	a := newAccount()
	r, err := trace.NewReader(bytes.NewReader(data))
	if err != nil {
		a.err = err
		return a
	}
	prev := int64(math.MinInt64)
	var pending []trace.Event
	var prevs []int64
	syncs := 0
	for {
		ev, err := r.ReadEvent()
		if err != nil {
			if err != io.EOF {
				a.err = err
			}
			return a
		}
		if ev.Kind() == trace.EventSync {
			syncs++
			if syncs > 1 {
				f := refCollector{a: a, stk: stk, first: a.gens == 0}
				for i, ev := range pending {
					f.add(ev, prevs[i])
				}
				if len(pending) > 0 {
					a.gens++
				}
				if a.gens == maxGens {
					return a
				}
			}
			pending, prevs = pending[:0], prevs[:0]
			// A sync event's time is not later than the first event's.
		}
		pending, prevs = append(pending, ev), append(prevs, prev)
		prev = int64(ev.Time())
	}
}

// A refCollector adds the reference's events to an account.
type refCollector struct {
	a     *account
	stk   *stackNumbers
	first bool
}

var refStates = map[trace.GoState]string{
	trace.GoUndetermined: "?", trace.GoNotExist: "gone", trace.GoRunnable: "runnable",
	trace.GoRunning: "running", trace.GoWaiting: "waiting", trace.GoSyscall: "syscall",
}

func (f *refCollector) flags(g uint64) (assist, stw bool) {
	if list := f.a.gs[g]; len(list) > 0 {
		return list[len(list)-1].assist, list[len(list)-1].stw
	}
	return false, false
}

func (f *refCollector) appendChange(g uint64, c change) {
	f.a.gs[g] = append(f.a.gs[g], c)
	if _, to, ok := strings.Cut(c.transition, "->"); ok {
		f.a.states[g] = to
	}
}

func (f *refCollector) addPoint(key string, t, prev int64) {
	f.a.points[key] = append(f.a.points[key], change{transition: key, t: t, prev: prev})
}

func goID(g trace.GoID) uint64 {
	if g == trace.NoGoroutine {
		return 0
	}
	return uint64(g)
}

func (f *refCollector) add(ev trace.Event, prev int64) {
	t := int64(ev.Time())
	a := f.a
	a.events++
	self := goID(ev.Goroutine())
	// Events with a stack divide the running time of a goroutine.
	cut := func(always bool) {
		stack := f.stk.refStack(ev.Stack())
		if ev.Kind() == trace.EventRangeEnd && (ev.Range().Name == "GC mark assist" || ev.Range().Name == "GC incremental sweep") {
			stack = a.assistStack[self] // the end has no stack
		}
		if self == 0 || f.a.states[self] != "running" || !always && ev.Stack() == trace.NoStack {
			return
		}
		assist, stw := f.flags(self)
		f.appendChange(self, change{transition: "point", stack: stack, assist: assist, stw: stw, t: t, prev: prev})
	}
	switch ev.Kind() {
	case trace.EventSync:
		a.events-- // represents no event of the file
		if s := ev.Sync().ClockSnapshot; s != nil {
			a.clocks = append(a.clocks, fmt.Sprintf("%d %d %s", s.Trace, s.Mono, s.Wall.UTC().Format(time.RFC3339Nano)))
		}
	case trace.EventMetric:
		m := ev.Metric()
		switch m.Name {
		case "/sched/gomaxprocs:threads":
			f.addPoint(fmt.Sprintf("procs %d stack %d", m.Value.Uint64(), f.stk.refStack(ev.Stack())), t, prev)
			cut(false)
		case "/memory/classes/heap/objects:bytes":
			f.addPoint(fmt.Sprintf("heap %d goal false", m.Value.Uint64()), t, prev)
		case "/gc/heap/goal:bytes":
			f.addPoint(fmt.Sprintf("heap %d goal true", m.Value.Uint64()), t, prev)
		}
	case trace.EventLabel:
		l := ev.Label()
		f.addPoint(fmt.Sprintf("label %d %q", l.Resource.Goroutine(), l.Label), t, prev)
	case trace.EventStackSample:
		f.addPoint(fmt.Sprintf("sample g %d p %d m %d stack %d", self, ev.Proc(), ev.Thread(), f.stk.refStack(ev.Stack())), t, prev)
	case trace.EventRangeBegin, trace.EventRangeActive, trace.EventRangeEnd:
		f.addRange(ev, self, t, prev, cut)
	case trace.EventTaskBegin, trace.EventTaskEnd:
		task := ev.Task()
		if ev.Kind() == trace.EventTaskBegin {
			parent := task.Parent
			if parent == trace.NoTask {
				parent = 0
			}
			f.addPoint(fmt.Sprintf("user kind %d g %d task %d parent %d %q %q stack %d", TaskBegin, self, task.ID, parent, task.Type, "", f.stk.refStack(ev.Stack())), t, prev)
		} else {
			f.addPoint(fmt.Sprintf("user kind %d g %d task %d parent %d %q %q stack %d", TaskEnd, self, task.ID, 0, "", "", f.stk.refStack(ev.Stack())), t, prev)
		}
		cut(false)
	case trace.EventRegionBegin, trace.EventRegionEnd:
		kind := RegionBegin
		if ev.Kind() == trace.EventRegionEnd {
			kind = RegionEnd
		}
		r := ev.Region()
		f.addPoint(fmt.Sprintf("user kind %d g %d task %d parent %d %q %q stack %d", kind, self, r.Task, 0, r.Type, "", f.stk.refStack(ev.Stack())), t, prev)
		cut(false)
	case trace.EventLog:
		l := ev.Log()
		f.addPoint(fmt.Sprintf("user kind %d g %d task %d parent %d %q %q stack %d", LogMessage, self, l.Task, 0, l.Category, l.Message, f.stk.refStack(ev.Stack())), t, prev)
		cut(false)
	case trace.EventStateTransition:
		f.addTransition(ev, self, t, prev, cut)
	}
}

func (f *refCollector) addRange(ev trace.Event, self uint64, t, prev int64, cut func(bool)) {
	r := ev.Range()
	kind, isSTW := strings.CutPrefix(r.Name, "stop-the-world (")
	kind = strings.TrimSuffix(kind, ")")
	set := func(g uint64, assist, stw bool) {
		if list := f.a.gs[g]; len(list) > 0 {
			list[len(list)-1].assist, list[len(list)-1].stw = assist, stw
		}
	}
	switch {
	case isSTW && ev.Kind() == trace.EventRangeBegin:
		f.addPoint(fmt.Sprintf("stw begin %q g %d stack %d", kind, self, f.stk.refStack(ev.Stack())), t, prev)
		cut(true)
		assist, _ := f.flags(self)
		set(self, assist, true)
	case isSTW:
		f.addPoint(fmt.Sprintf("stw end g %d", self), t, prev)
		cut(true)
		assist, _ := f.flags(self)
		set(self, assist, false)
	case r.Name == "GC concurrent mark phase":
		f.addPoint(fmt.Sprintf("gc begin %v active %v stack %d", ev.Kind() != trace.EventRangeEnd, ev.Kind() == trace.EventRangeActive, f.stk.refStack(ev.Stack())), t, prev)
		cut(false)
	case r.Name == "GC mark assist":
		g := uint64(r.Scope.Goroutine())
		if ev.Kind() == trace.EventRangeBegin {
			f.a.assistStack[g] = f.stk.refStack(ev.Stack())
		}
		if ev.Kind() != trace.EventRangeActive {
			cut(true)
		}
		_, stw := f.flags(g)
		set(g, ev.Kind() != trace.EventRangeEnd, stw)
	case r.Name == "GC incremental sweep":
		if ev.Kind() == trace.EventRangeBegin {
			f.a.assistStack[self] = f.stk.refStack(ev.Stack())
		}
		if ev.Kind() != trace.EventRangeActive {
			cut(true)
			_, stw := f.flags(self)
			set(self, ev.Kind() == trace.EventRangeBegin, stw)
		}
		if ev.Kind() == trace.EventRangeEnd {
			f.addPoint("swept", 0, 0)
			list := f.a.points["swept"]
			list[0].t += int64(ev.RangeAttributes()[0].Value.Uint64())
			f.a.points["swept"] = list[:1]
		}
	}
}

func (f *refCollector) addTransition(ev trace.Event, self uint64, t, prev int64, cut func(bool)) {
	tr := ev.StateTransition()
	if tr.Resource.Kind == trace.ResourceProc {
		from, to := tr.Proc()
		if from == to {
			return
		}
		p := uint64(tr.Resource.Proc())
		f.a.ps[p] = append(f.a.ps[p], change{transition: strings.ToLower(to.String()), t: t, prev: prev})
		return
	}
	from, to := tr.Goroutine()
	g := uint64(tr.Resource.Goroutine())
	assist, stw := f.flags(g)
	c := change{transition: refStates[from] + "->" + refStates[to], reason: tr.Reason, assist: assist, stw: stw, t: t, prev: prev}
	switch {
	case from == to: // a status
		if list := f.a.gs[g]; len(list) > 0 && list[len(list)-1].stack == 0 && tr.Stack != trace.NoStack && f.a.states[g] != "running" {
			list[len(list)-1].stack = f.stk.refStack(tr.Stack)
		}
		return
	case from == trace.GoUndetermined:
		c.stack = f.stk.refStack(tr.Stack)
		c.t, c.prev = 0, 0
	case from == trace.GoNotExist:
		c.actor, c.stack = self, f.stk.refStack(ev.Stack())
		if f.stk.refStack(tr.Stack) != 0 && to != trace.GoSyscall {
			key := fmt.Sprintf("start of %d in %d", g, f.stk.refStack(tr.Stack))
			f.a.points[key] = []change{{transition: key}}
		}
		if to == trace.GoSyscall {
			c.actor = 0
		}
		cut(false)
	case from == trace.GoWaiting && to == trace.GoRunnable:
		c.actor, c.stack, c.noP = self, f.stk.refStack(ev.Stack()), ev.Proc() == trace.NoProc
		cut(false)
	case from == trace.GoRunning:
		c.stack = f.stk.refStack(tr.Stack)
	}
	if to == trace.GoNotExist {
		c.assist, c.stw = false, false
	}
	f.appendChange(g, c)
}

// A decoded is a trace that this package decoded, with all generations.
type decoded struct {
	gens []*Gen
	d    *Decoder
	err  error // nil at a clean end
}

func decodeAll(data []byte, workers int) *decoded {
	out := new(decoded)
	rd, err := tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{})
	if err != nil {
		out.err = err
		return out
	}
	out.d = NewDecoder(rd, workers)
	out.d.Classify = classify(out.d.Symbols)
	defer out.d.Close()
	for {
		g, err := out.d.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			out.err = err
			return out
		}
		if g != nil {
			out.gens = append(out.gens, g)
		}
	}
}

// goroutines returns the ids of all goroutines of the generations in order.
func goroutines(gens []*Gen) []uint64 {
	listed := make(map[uint64]bool)
	var ids []uint64
	for _, g := range gens {
		g.Goroutines(func(id uint64) {
			if !listed[id] {
				listed[id] = true
				ids = append(ids, id)
			}
		})
	}
	slices.Sort(ids)
	return ids
}

// accountOfOurs converts the first n generations to an account.
func accountOfOurs(in *decoded, n int, stk *stackNumbers) *account {
	a := newAccount()
	a.gens, a.err = n, in.err
	win := Window{Gens: in.gens[:n]}
	syms := in.d.Symbols
	var buf []Span
	for _, id := range goroutines(win.Gens) {
		buf = win.Spans(id, BeforeTrace, math.MaxInt64, buf[:0])
		if list := changesOf(buf, syms, stk); len(list) > 0 {
			a.gs[id] = list
		}
	}
	state := make(map[uint64]string)
	var swept uint64
	for _, g := range win.Gens {
		a.events += g.Events
		for _, p := range g.ProcTransitions() {
			id := uint64(p.P)
			newState := "idle"
			if p.Running {
				newState = "running"
			}
			if state[id] == newState {
				continue
			}
			state[id] = newState
			a.ps[id] = append(a.ps[id], change{transition: newState, t: p.Time})
		}
		a.addPoints(g, syms, stk)
		swept += g.swept.Load()
	}
	if swept > 0 {
		a.points["swept"] = []change{{transition: "swept", t: int64(swept)}}
	}
	return a
}

// changesOf converts spans to changes.
func changesOf(spans []Span, syms *tracefmt.Symbols, stk *stackNumbers) []change {
	var out []change
	var before Span
	for i, s := range spans {
		c := change{t: s.Start, assist: s.Assist, stw: s.InSTW}
		to := s.State.String()
		switch s.Origin {
		case OriginStatus:
			c.transition, c.t = "?->"+to, 0
			if s.State != Running {
				c.stack = stk.ourStack(s.Stack, syms)
			}
		case OriginCut:
			c.transition, c.stack = "point", stk.ourStack(before.Stack, syms)
		case OriginCreated:
			c.transition, c.actor, c.stack = "gone->"+to, s.Peer, stk.ourStack(s.Stack, syms)
		case OriginStarted:
			c.transition = "runnable->" + to
		case OriginBlocked, OriginStopped, OriginSyscall:
			c.transition, c.reason, c.stack = "running->"+to, syms.String(s.Reason), stk.ourStack(s.Stack, syms)
		case OriginUnblocked:
			c.transition, c.actor, c.noP, c.stack = "waiting->"+to, before.Waker, before.WakeNoP, stk.ourStack(before.WakerStack, syms)
			if s.Waker != before.Waker || s.WakerStack != before.WakerStack || s.WakeNoP != before.WakeNoP || s.Stack != before.Stack || s.Reason != before.Reason || !before.Woken {
				c.transition = "the runnable span does not repeat the wait before it, or that has no wake"
			}
		case OriginSwitched:
			if s.State == Waiting {
				c.transition = "running->waiting"
				break
			}
			woken := c
			woken.transition, woken.actor = "waiting->runnable", before.Waker
			if s.Peer != before.Waker {
				woken.transition = "switched to by one and woken by another"
			}
			out = append(out, woken)
			c.transition = "runnable->running"
		case OriginSyscallEnded:
			c.transition = "syscall->" + to
		case OriginDestroyed:
			c.transition = before.State.String() + "->gone"
			if i > 0 && !before.Died {
				c.transition = "gone without dying"
			}
		default:
			c.transition = "no beginning"
		}
		out = append(out, c)
		before = s
	}
	return out
}

func (a *account) addPoint(t int64, format string, args ...any) {
	key := fmt.Sprintf(format, args...)
	a.points[key] = append(a.points[key], change{transition: key, t: t})
}

func (a *account) addPoints(g *Gen, syms *tracefmt.Symbols, stk *stackNumbers) {
	for _, h := range g.Heap {
		a.addPoint(h.Time, "heap %d goal %v", h.Bytes, h.Goal)
	}
	for _, p := range g.Procs {
		a.addPoint(p.Time, "procs %d stack %d", p.N, stk.ourStack(p.Stack, syms))
	}
	for _, e := range g.GC {
		a.addPoint(e.Time, "gc begin %v active %v stack %d", e.Begin, e.Active, stk.ourStack(e.Stack, syms))
	}
	for _, l := range g.Labels {
		a.addPoint(l.Time, "label %d %q", l.G, syms.String(l.Name))
	}
	for _, u := range g.User {
		a.addPoint(u.Time, "user kind %d g %d task %d parent %d %q %q stack %d", u.Kind, u.G, u.Task, u.Parent, syms.String(u.Name), syms.String(u.Value), stk.ourStack(u.Stack, syms))
	}
	for _, s := range g.STW {
		if s.Start != 0 {
			a.addPoint(s.Start, "stw begin %q g %d stack %d", syms.String(s.Kind), s.G, stk.ourStack(s.Stack, syms))
		}
		if s.End != 0 {
			a.addPoint(s.End, "stw end g %d", s.G)
		}
	}
	for _, s := range g.Samples {
		a.addPoint(s.Time, "sample g %d p %d m %d stack %d", s.G, int64(s.P), int64(s.M), stk.ourStack(s.Stack, syms))
	}
	for d, local := range g.startStacks {
		if local != 0 {
			key := fmt.Sprintf("start of %d in %d", g.ids.ids[d], stk.ourStack(g.stack(local), syms))
			a.points[key] = []change{{transition: key}}
		}
	}
	if s := g.Snapshot; s != nil {
		wall := time.Unix(int64(s.UnixSec), int64(s.UnixNsec)).UTC().Format(time.RFC3339Nano)
		a.clocks = append(a.clocks, fmt.Sprintf("%d %d %s", g.SnapshotTime, s.Mono, wall))
	}
}

// differences compares our account with the reference's and returns up to 20 differences.
func differences(us, ref *account, stk *stackNumbers) []string {
	var out []string
	say := func(format string, args ...any) {
		if len(out) < 20 {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	compareLives(say, "goroutine", us.gs, ref.gs)
	compareLives(say, "P", us.ps, ref.ps)
	for key, want := range ref.points {
		if got := us.points[key]; !samePoints(got, want) {
			say("%s: we have %d, the reference %d: %v; %v", key, len(got), len(want), firstThree(got), firstThree(want))
		}
	}
	for key, got := range us.points {
		if len(ref.points[key]) == 0 {
			say("%s: the reference has none: %v", key, firstThree(got))
		}
	}
	if !slices.Equal(us.clocks, ref.clocks) {
		say("clocks: we have %v, the reference %v", us.clocks, ref.clocks)
	}
	return out
}

func firstThree(list []change) []change { return list[:min(len(list), 3)] }

func compareLives(say func(string, ...any), kind string, us, ref map[uint64][]change) {
	for id, want := range ref {
		got := us[id]
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || !got[i].equal(want[i]) || want[i].t != 0 && !sameTime(got[i].t, want[i]) {
				say("%s %d, change %d of %d (reference %d):\n\tours %v\n\tref  %v", kind, id, i, len(got), len(want), changeAt(got, i), changeAt(want, i))
				break
			}
		}
	}
	for id, got := range us {
		if len(ref[id]) == 0 {
			say("%s %d: the reference has none: %v", kind, id, firstThree(got))
		}
	}
}

func changeAt(list []change, i int) any {
	if i < len(list) {
		return list[i]
	}
	return "(no more)"
}

// samePoints reports whether events of equal content, which may be in another order than the reference's, can be
// matched with its events by time. Events that the reference did not move must have exactly the same times. The
// others, in order, must not be later than the reference's.
func samePoints(got, want []change) bool {
	if len(got) != len(want) {
		return false
	}
	byTime := func(a, b change) int { return cmp.Compare(a.t, b.t) }
	got, want = slices.SortedFunc(slices.Values(got), byTime), slices.SortedFunc(slices.Values(want), byTime)
	var moved []change
	for _, w := range want {
		if w.prev+1 == w.t {
			moved = append(moved, w)
			continue
		}
		i, ok := slices.BinarySearchFunc(got, w, byTime)
		if !ok {
			return false
		}
		got = slices.Delete(got, i, i+1)
	}
	for i, w := range moved {
		if got[i].t > w.t {
			return false
		}
	}
	return true
}
