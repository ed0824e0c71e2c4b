package process

import (
	"math"
	"reflect"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// statsOf returns the Stats of a trace.
func statsOf(t *testing.T, data []byte, workers int) *Stats {
	t.Helper()
	return collectStats(t, data, workers, NewCollector())
}

func collectStats(t *testing.T, data []byte, workers int, c *Collector) *Stats {
	t.Helper()
	syms := timelinetest.ForEachGen(t, data, workers, c.Add).Snapshot()
	return c.Stats(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms)})
}

const ms = 1_000_000

// herdTrace builds a trace in which, every 10 ms, 60 goroutines wake together on one thread, run 10 us each and sleep
// again, while a loop runs 30 ms at a time on another thread.
func herdTrace(t *testing.T) []byte {
	b := tracetext.New(26)
	work, loop, timers := b.Thread(), b.Thread(), b.ThreadWithoutP()
	for g := uint64(1); g <= 60; g++ {
		b.Waiting(g)
	}
	b.Waiting(100)
	timers.Unblock(0, 100)
	for i := range int64(3) {
		from := i * 30 * ms
		loop.Start(from, 100)
		loop.Stop(from+29*ms, "preempted", "main.loop:7", "main.hog:5")
	}
	for i := range int64(9) {
		start := i*10*ms + 1000
		for g := uint64(1); g <= 60; g++ {
			timers.Unblock(start+int64(g)*5000, g)
		}
		for g := uint64(1); g <= 60; g++ {
			from := start + ms + int64(g)*20_000
			work.Start(from, g)
			work.Block(from+10_000, "sleep", "time.Sleep:300", "main.tick:12", "main.ticker:9")
		}
	}
	for i := range int64(5) {
		b.Sample(80*ms+i*ms, work, 0, "runtime.futex:1", "runtime.findRunnable:2", "runtime.schedule:3", "runtime.mcall:4")
	}
	return must.Have(b.Bytes())(t)
}

func TestStats(t *testing.T) {
	data := herdTrace(t)
	c := statsOf(t, data, 1)
	if repeated := statsOf(t, data, 3); !reflect.DeepEqual(c, repeated) {
		t.Errorf("with three workers:\n%+v, with one:\n%+v", repeated, c)
	}
	loop, tick := find(c.RunningTimes, "main.hog"), find(c.RunningTimes, "main.ticker")
	if loop == nil || loop.NS != 3*29*ms || loop.Count != 3 || loop.LongCount != 3 || loop.LongNS != loop.NS || loop.LongestNS != 29*ms || loop.Site.Func != "main.loop" {
		t.Errorf("the loop: %+v", loop)
	}
	check.True(t, tick != nil && tick.NS == 9*60*10_000 && tick.Count == 9*60 && tick.LongCount == 0 && tick.Site.Func == "main.tick",
		"the tickers: %+v", tick)
	if want := loop.NS + tick.NS; c.BusyNS != want {
		t.Errorf("busy for %d ns, want %d", c.BusyNS, want)
	}
	must.Equal(t, len(c.Herds), 1, "herds, want one: %+v", c.Herds)
	h := c.Herds[0]
	h.Site = nil
	// From the first wake of a wakeup to the last end: 995 us + 60 * 20 us + 10 us.
	if want := (Herd{Start: "main.ticker", Times: 9, Wakes: 9 * 60, Largest: 60, WithinNS: 59 * 5000, LateNS: 995_000 + 60*20_000 - 59*5000, Empty: 9 * 60, RanNS: 9 * 60 * 10_000, ClearNS: 9 * (995_000 + 60*20_000 + 10_000)}); h != want {
		t.Errorf("the herd is %+v, want %+v", h, want)
	}
}

func find(runs []RunningTime, start string) *RunningTime {
	for i := range runs {
		if runs[i].Start == start {
			return &runs[i]
		}
	}
	return nil
}

func TestSamples(t *testing.T) {
	c := statsOf(t, herdTrace(t), 1)
	check.Equal(t, c.Samples, (Samples{All: 5, Scheduler: 5, SpanNS: 4e6}), "samples")
}

// TestPartOfMany: of a generation with very many events a part is examined, and its sums are scaled to the whole.
func TestPartOfMany(t *testing.T) {
	b := tracetext.New(26)
	th := b.Thread()
	b.Waiting(1)
	b.Waiting(2)
	timers := b.ThreadWithoutP()
	for i := range int64(4000) { // 2 s: 300 us of one goroutine, 100 us of another, 100 us idle
		start := i * 500_000
		timers.Unblock(start, 1)
		th.Start(start, 1)
		th.Block(start+300_000, "sleep", "time.Sleep:1", "main.long:2")
		timers.Unblock(start+300_000, 2)
		th.Start(start+300_000, 2)
		th.Block(start+400_000, "sleep", "time.Sleep:1", "main.short:2")
	}
	data := must.Have(b.Bytes())(t)
	all, partial := statsOf(t, data, 1), NewCollector()
	partial.eventsPerPart = all.Events / 20
	part := collectStats(t, data, 1, partial)
	for start, want := range map[string]int64{"main.long": 4000 * 300_000, "main.short": 4000 * 100_000} {
		whole, scaled := find(all.RunningTimes, start), find(part.RunningTimes, start)
		check.True(t, whole != nil && whole.NS == want && whole.Count == 4000, "%s: %+v, want %d ns", start, whole, want)
		check.True(t, scaled != nil && scaled.NS >= want*9/10 && scaled.NS <= want*11/10 && scaled.NS != want,
			"%s: scaled from a part %+v, want about %d ns", start, scaled, want)
	}
}

// TestHerdThatWaitsForTheNetworkNext: goroutines that waited for timers since before the generation wake together and
// then wait for the network. Others that waited for the network since then wake at the same time. It fails if the
// herd is missed because its work blocks, or if connections count as a herd.
func TestHerdThatWaitsForTheNetworkNext(t *testing.T) {
	b := tracetext.New(26)
	work, timers := b.Thread(), b.ThreadWithoutP()
	const n = 120
	for g := uint64(1); g <= 2*n; g++ {
		b.Waiting(g)
	}
	for g := uint64(1); g <= 2*n; g++ {
		start := int64(g) * 100_000
		timers.Unblock(start, g)
		work.Start(start+1000, g)
		if g <= n {
			work.Block(start+2000, "chan receive", "runtime.chanrecv2:9", "main.(*target).watch:43")
		} else {
			work.Block(start+2000, "network", "internal/poll.runtime_pollWait:351", "main.serve:7")
		}
	}
	b.NextGeneration(100 * ms)
	for g := uint64(1); g <= 2*n; g++ {
		timers.Unblock(120*ms+int64(g)*3000, g)
	}
	for g := uint64(1); g <= 2*n; g++ {
		start := 130*ms + int64(g)*10_000
		work.Start(start, g)
		if g <= n {
			work.Block(start+5000, "network", "internal/poll.runtime_pollWait:351", "net.(*Dialer).DialContext:590", "main.(*target).check:27", "main.(*target).watch:44")
		} else {
			work.Block(start+5000, "network", "internal/poll.runtime_pollWait:351", "main.serve:7")
		}
	}
	data := must.Have(b.Bytes())(t)
	win, found := timelinetest.DecodeWindow(t, data)
	syms := found.Snapshot()
	for _, hasWindow := range []bool{true, false} {
		c := NewCollector()
		for i, g := range win.Gens {
			if hasWindow {
				c.SetWindow(&timeline.Window{Gens: win.Gens[:i+1]})
			}
			c.AddGeneration(g, &syms, false)
			c.FinishGeneration()
		}
		got := c.Stats(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms)})
		if !hasWindow {
			check.True(t, len(got.Herds) == 0, "herds of a generation without a window: %+v", got.Herds)
			continue
		}
		if len(got.Herds) != 1 || got.Herds[0].Start != "main.(*target).watch" || got.Herds[0].Wakes != n || got.Herds[0].Site == nil || got.Herds[0].Site.Func != "main.(*target).check" {
			t.Errorf("the herds are %+v", got.Herds)
		}
	}
}

// TestHerdInWaves: timers wake a large herd over some milliseconds. Goroutines that wake before the last one has run
// join the wakeup; later ones are a second wakeup. It fails if a herd of thousands is reported as some hundreds.
func TestHerdInWaves(t *testing.T) {
	b := tracetext.New(26)
	work, timers := b.Thread(), b.ThreadWithoutP()
	const wave = 60
	for g := range uint64(3 * wave) {
		b.Waiting(1 + g)
	}
	run := func(start int64, g uint64) {
		work.Start(start, 1+g)
		work.Block(start+10_000, "chan receive", "runtime.chanrecv2:9", "main.tick:43")
	}
	for g := range uint64(3 * wave) { // from now on, the place where they wait is known
		timers.Unblock(int64(1+g)*100_000, 1+g)
		run(int64(1+g)*100_000+1000, g)
	}
	start := int64(50 * ms)
	for k := range uint64(3) {
		for g := range uint64(wave) {
			timers.Unblock(start+int64(k)*2*ms+int64(g)*1000, 1+k*wave+g)
		}
	}
	for g := range uint64(3 * wave) {
		run(start+5*ms+int64(g)*20_000, g)
	}
	for g := range uint64(wave) {
		timers.Unblock(start+40*ms+int64(g)*1000, 1+g)
		run(start+40*ms+100_000+int64(g)*20_000, g)
	}
	data := must.Have(b.Bytes())(t)
	c := statsOf(t, data, 1)
	if len(c.Herds) != 1 || c.Herds[0].Times != 2 || c.Herds[0].Largest != 3*wave || c.Herds[0].WithinNS != 4*ms+(wave-1)*1000 || c.Herds[0].LateNS != 5*ms+(wave-1)*19_000 {
		t.Errorf("the herds are %+v", c.Herds)
	}
}

// TestHerdOfBroadcast: 100 goroutines wait at one Cond, and each Broadcast wakes all of them, of which all but one wait again,
// after they took the lock. It fails if that is no herd, if goroutines that work after it are one, or if each has its own sender.
func TestHerdOfBroadcast(t *testing.T) {
	for name, c := range map[string]struct {
		ranNS int64
		waker string
		want  int64 // wakes of a herd
	}{
		"in vain":       {5000, "sync.(*Cond).Broadcast:90", 500},
		"with work":     {ms, "sync.(*Cond).Broadcast:90", 0},
		"one at a time": {5000, "sync.(*Cond).Signal:80", 0},
	} {
		b := tracetext.New(26)
		sender, twins := b.Thread(), b.Thread()
		const n, sending = 100, 1000
		for g := range uint64(n) {
			b.Waiting(1 + g)
		}
		b.Waiting(sending)
		for i := range int64(6) { // where they wait is known after the first time
			start := (1 + i) * 150 * ms
			sender.Unblock(start, sending)
			sender.Start(start+1000, sending)
			for g := range uint64(n) {
				sender.Unblock(start+2000+int64(g)*100, 1+g, c.waker, "main.(*bus).send:41", "main.command:30")
			}
			sender.Block(start+50_000, "chan receive", "runtime.chanrecv1:9", "main.command:31")
			for g := range uint64(n) {
				from := start + 100_000 + int64(g)*(c.ranNS+10_000)
				twins.Start(from, 1+g)
				if g == 7 {
					twins.Syscall(from+1000, "syscall.write:1", "main.twin:20")
					twins.SyscallEnd(from + 2000)
				}
				twins.Block(from+c.ranNS, "sync.(*Cond).Wait", "sync.(*Cond).Wait:71", "main.(*bus).next:51", "main.twin:19")
			}
		}
		data := must.Have(b.Bytes())(t)
		win, found := timelinetest.DecodeWindow(t, data)
		syms, collector := found.Snapshot(), NewCollector()
		for _, g := range win.Gens {
			collector.AddGeneration(g, &syms, false)
			collector.FinishGeneration()
		}
		got := collector.Stats(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms)}).Herds
		if c.want == 0 {
			check.True(t, len(got) == 0, "%s: %+v", name, got)
			continue
		}
		if must.Equal(t, len(got), 1, "%s: %+v", name, got); got[0].Wakes != c.want || got[0].Largest != n || got[0].Waker == nil || got[0].Waker.Func != "main.(*bus).send" || got[0].Site.Line != 51 || got[0].Start != "main.twin" {
			t.Errorf("%s: the herd is %+v, woken at %+v", name, got[0], got[0].Waker)
		}
	}
}

// TestHeapWithoutBound: with GOGC=off the goal is the largest number, and a damaged trace may have a heap of any
// size. Both are reported as very large. It fails if a report has a negative heap size.
func TestHeapWithoutBound(t *testing.T) {
	b := tracetext.New(26)
	m := b.Thread(1)
	m.HeapAlloc(1000, math.MaxUint64)
	m.HeapGoal(2000, math.MaxUint64)
	m.Block(3000, "sleep", "time.Sleep", "main.end")
	data := must.Have(b.Bytes())(t)
	c := NewCollector()
	syms := timelinetest.ForEachGen(t, data, 1, c.Add).Snapshot()
	sp := &spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms)}
	c.Stats(sp)
	if gc := c.Runtime(sp, new(freeze.Verdict)).GC; gc.HeapMaxBytes < 1<<60 || gc.GoalMaxBytes < 1<<60 {
		t.Errorf("the largest heap is %d bytes, the largest goal %d", gc.HeapMaxBytes, gc.GoalMaxBytes)
	}
}

// TestWithoutCPU: CPU samples show a lack of CPUs if they miss the larger part of the running time, throughout the
// trace. It fails if a profile of a part of the trace, or too few samples, show a lack of CPUs.
func TestWithoutCPU(t *testing.T) {
	for _, c := range []struct {
		name    string
		samples Samples
		want    float64
	}{
		{"a quarter of what was expected", Samples{All: 60, Scheduler: 10, SpanNS: 29e8}, 0.75},
		{"most of it", Samples{All: 150, SpanNS: 29e8}, 0},
		{"a profile over a third of the trace", Samples{All: 60, SpanNS: 10e8}, 0},
		{"no profile", Samples{}, 0},
	} {
		s := Stats{Samples: c.samples, BusyNS: 2e9, SpanNS: 3e9}
		if got := s.WithoutCPU(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
