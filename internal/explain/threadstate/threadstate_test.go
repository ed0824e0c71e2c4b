package threadstate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

const us = 1000

// builderClock is CLOCK_MONOTONIC less the clock of traces that a tracetext.Builder writes.
const builderClock = 4999 * 1_000_000

// Threads of the tests: their numbers on the host. The trace has the numbers 1000 and 1001 for the service's.
const (
	first, second = 71, 72
	python        = 90
	compiler      = 91
)

var tables = kernelevents.Tables{
	Start: tracetext.Origin - 1000*us, End: tracetext.Origin + 100_000*us, PID: first, CPUs: 2, ClockOffsetNS: builderClock, IsThrottleExact: true,
	Calls: map[int32]string{0: "read", 202: "futex"},
	Threads: []kernelevents.Thread{
		{TID: first, NSTID: 1000, PID: first, Comm: "svc", Process: "svc", Cgroup: 5, Own: true}, {TID: second, NSTID: 1001, PID: first, Comm: "svc", Process: "svc", Cgroup: 5, Own: true},
		{TID: python, PID: python, Comm: "python3", Process: "python3"}, {TID: compiler, PID: compiler, Comm: "compile", Process: "compile"}, {TID: 92, PID: 92, Comm: "compile", Process: "compile"},
	},
	Stacks:  []kernelevents.Stack{{Frames: []string{"io_schedule", "folio_wait_bit_common", "filemap_fault", "handle_mm_fault"}}, {Frames: []string{"schedule", "rwsem_down_read_slowpath"}}},
	Cgroups: []kernelevents.Cgroup{{ID: 5, Path: "/kube/pod/svc"}, {ID: 4, Path: "/kube/pod", QuotaNS: 4e7, PeriodNS: 1e8}},
	Sockets: []kernelevents.Socket{{ID: 3, Local: "10.0.0.1:80", Remote: "10.0.0.2:999"}},
}

// track returns a Tracker that has read events, whose times are microseconds after the beginning of a trace.
func track(t *testing.T, tables kernelevents.Tables, events []kernelevents.Event, build func(b *tracetext.Builder)) (*Tracker, *tracefmt.Symbols) {
	t.Helper()
	var file bytes.Buffer
	w := must.Have(kernelevents.NewWriter(&file))(t)
	for _, e := range events {
		e.Time = tracetext.Origin + e.Time*us
		if e.Kind == kernelevents.Lost {
			e.B = tracetext.Origin + e.B*us
		}
		must.Do(t, w.Add(e))
	}
	must.Do(t, w.Close(tables))
	tracker := must.Have(New(file.Bytes()))(t)
	b := tracetext.New(26)
	build(b)
	syms := tracefmt.NewSymbols()
	timelinetest.ForEachGen(t, must.Have(b.Bytes())(t), 1, func(g *timeline.Gen) { tracker.Add(syms, g) })
	if tracker.Err() != nil {
		t.Fatal(tracker.Err())
	}
	return tracker, syms
}

// oneRun has goroutine 1 on the first thread from 0 to 10 ms, with a system call from 6 to 8 ms, and goroutine 2, which waits
// until 10 ms and runs on the second thread from 12 ms on.
func oneRun(b *tracetext.Builder) {
	th, other := b.Thread(1), b.Thread()
	b.Waiting(2)
	th.Syscall(6000*us, "syscall.read", "main.f")
	th.SyscallEnd(8000 * us)
	th.Unblock(10_000*us, 2, "main.g")
	other.Start(12_000*us, 2)
	other.Stop(13_000*us, "preempted", "main.h")
	th.Stop(20_000*us, "preempted", "main.f")
}

func sw(time int64, cpu, prev, next int32, state kernelevents.State) kernelevents.Event {
	return kernelevents.Event{Time: time, Kind: kernelevents.Switch, CPU: cpu, Thread: prev, A: int64(next), B: int64(state)}
}

func wake(time int64, thread int32, cpu int64, occupant int32) kernelevents.Event {
	return kernelevents.Event{Time: time, Kind: kernelevents.Wakeup, Thread: thread, B: cpu, C: int64(occupant)}
}

var kindTexts = [...]string{"unknown", "cpu", "waits", "throttled", "disk", "asleep", "stopped"}

// intervals returns the states of a goroutine's thread as text, in microseconds.
func intervals(syms *tracefmt.Symbols, each func(func(Interval))) string {
	var out []string
	each(func(x Interval) {
		text := fmt.Sprintf("%s %d-%d", kindTexts[x.Kind], (x.Start-tracetext.Origin)/us, (x.End-tracetext.Origin)/us)
		if x.Name != 0 {
			text += " " + syms.String(x.Name)
		}
		if x.IsFault {
			text += " (fault)"
		}
		out = append(out, text)
	})
	return strings.Join(out, ", ")
}

func TestStates(t *testing.T) {
	faults := sw(2000, 0, first, 0, kernelevents.DiskWait|kernelevents.InIOWait)
	faults.C = 1
	semaphore := sw(2000, 0, first, 0, kernelevents.DiskWait)
	semaphore.C = 2
	late := wake(5000, first, 0, 0)
	late.D = 1000 * us << 2
	inexact := tables
	inexact.IsThrottleExact = false
	for name, c := range map[string]struct {
		tables kernelevents.Tables
		events []kernelevents.Event
		want   string
	}{
		"no event": {tables, nil, ""},
		"preempted": {tables, []kernelevents.Event{sw(2000, 0, first, python, 0), sw(5000, 0, python, first, 1)},
			"cpu 0-2000, waits 2000-5000 python3 (pid 90), cpu 5000-10000"},
		"two others ran, and its own thread": {tables, []kernelevents.Event{sw(2000, 0, first, python, 0), sw(3000, 0, python, compiler, 0), sw(4000, 0, compiler, second, 0), sw(4500, 0, second, python, 0), sw(5000, 0, python, first, 1)},
			"cpu 0-2000, waits 2000-3500 python3 (pid 90), waits 3500-4500 compile (2 processes), waits 4500-5000 its own threads, cpu 5000-10000"},
		"moved to another queue": {tables, []kernelevents.Event{sw(2000, 0, first, python, 0), {Time: 3000, Kind: kernelevents.Migrate, Thread: first, A: 0, B: 1, C: compiler}, sw(5000, 1, compiler, first, 1)},
			"cpu 0-2000, waits 2000-3000 python3 (pid 90), waits 3000-5000 compile (2 processes), cpu 5000-10000"},
		"a page fault": {tables, []kernelevents.Event{faults, wake(4000, first, 0, python), sw(4500, 0, python, first, 0)},
			"cpu 0-2000, disk 2000-4000 filemap_fault (fault), waits 4000-4500 python3 (pid 90), cpu 4500-10000"},
		"a fault that waits for a lock of the kernel": {tables, []kernelevents.Event{semaphore, wake(4000, first, 0, 0), sw(4500, 0, 0, first, 0)},
			"cpu 0-2000, asleep 2000-4000 rwsem_down_read_slowpath, waits 4000-4500, cpu 4500-10000"},
		"asleep in a call": {tables, []kernelevents.Event{sw(6500, 0, first, 0, kernelevents.Sleeping.InCall(0)), wake(7000, first, 0, 0), sw(7000, 0, 0, first, 0)},
			"cpu 0-6500, asleep 6500-7000 read, cpu 7000-10000"},
		"woken by an interrupt on another CPU": {tables, []kernelevents.Event{sw(2000, 0, first, 0, kernelevents.Sleeping.InCall(202)), late, sw(6000, 0, 0, first, 0)},
			"cpu 0-2000, asleep 2000-4000 futex, waits 4000-6000, cpu 6000-10000"},
		"woken although it runs": {tables, []kernelevents.Event{wake(1000, first, 0, first), sw(2000, 0, first, python, 0), wake(2500, first, 0, compiler), sw(5000, 0, python, first, 1)},
			"waits 1000-2000 its own threads, waits 2000-5000 python3 (pid 90), cpu 5000-10000"},
		"throttled": {tables, []kernelevents.Event{sw(2000, 0, first, python, kernelevents.QuotaUsedUp), sw(7000, 0, python, first, 1), {Time: 7000, Kind: kernelevents.Throttled, Thread: first, A: 4000 * us}},
			"cpu 0-2000, throttled 2000-6000, waits 6000-7000 python3 (pid 90), cpu 7000-10000"},
		"throttled, moved meanwhile, and told before the switch": {tables, []kernelevents.Event{sw(2000, 0, first, python, 0), {Time: 3000, Kind: kernelevents.Migrate, Thread: first, B: 1, C: compiler}, {Time: 7000, Kind: kernelevents.Throttled, Thread: first, A: 2000 * us}, sw(7000, 1, compiler, first, 1)},
			"cpu 0-2000, throttled 2000-3000, throttled 3000-4000, waits 4000-7000 compile (2 processes), cpu 7000-10000"},
		"behind an own thread, while another process has the other CPU": {tables, []kernelevents.Event{
			sw(2000, 0, first, second, 0), {Time: 2000, Kind: kernelevents.Switch, CPU: 1, Thread: python, A: python}, sw(5000, 0, second, first, 0)},
			"cpu 0-2000, waits 2000-5000 python3 (pid 90), cpu 5000-10000"},
		"behind an own thread": {tables, []kernelevents.Event{sw(2000, 0, first, second, 0), sw(5000, 0, second, first, 0)},
			"cpu 0-2000, waits 2000-5000 its own threads, cpu 5000-10000"},
		"throttled until a refill": {inexact, []kernelevents.Event{sw(2000, 0, first, python, kernelevents.QuotaUsedUp), {Time: 6000, Kind: kernelevents.Refill, A: 4}, sw(7000, 0, python, first, 1)},
			"cpu 0-2000, throttled 2000-6000, waits 6000-7000 python3 (pid 90), cpu 7000-10000"},
		"stopped": {tables, []kernelevents.Event{sw(2000, 0, first, 0, kernelevents.Stopped), wake(6000, first, 0, 0), sw(6000, 0, 0, first, 1)},
			"cpu 0-2000, stopped 2000-6000, cpu 6000-10000"},
		"lost events": {tables, []kernelevents.Event{sw(2000, 0, first, python, 0), {Time: 4000, Kind: kernelevents.Lost, A: 9, B: 3000}, sw(5000, 0, python, first, 0)},
			"cpu 0-2000, waits 2000-3000 python3 (pid 90), cpu 5000-10000"},
	} {
		tracker, syms := track(t, c.tables, c.events, oneRun)
		got := intervals(syms, func(f func(Interval)) {
			tracker.EachInterval(1, tracetext.Origin, tracetext.Origin+10_000*us, f)
		})
		if name == "woken although it runs" { // the first event of a thread shows its state before
			got = strings.TrimPrefix(got, "cpu 0-1000, ")
		}
		check.True(t, got == c.want, "%s:\n%s\nwant\n%s", name, got, c.want)
	}
}

// TestWake: a goroutine that is ready while a P is idle waits for the CPU of the thread that was woken for it.
func TestWake(t *testing.T) {
	events := []kernelevents.Event{
		sw(-500, 1, second, python, kernelevents.Sleeping.InCall(202)), wake(10_100, second, 1, python), sw(11_900, 1, python, second, 0),
	}
	tracker, syms := track(t, tables, events, oneRun)
	for isIdle, want := range map[bool]string{true: "waits 10100-11900 python3 (pid 90)", false: "waits 10100-11900 python3 (pid 90)"} {
		got := intervals(syms, func(f func(Interval)) {
			tracker.EachWake(2, tracetext.Origin+10_000*us, tracetext.Origin+12_000*us, isIdle, f)
		})
		check.Equal(t, got, want, "a P idle %t", isIdle)
	}
}

// TestArrival: a request's first byte is the one at the position from which its goroutine reads first, whichever arrivals
// follow it.
func TestArrival(t *testing.T) {
	arrival := func(time, position int64) kernelevents.Event {
		return kernelevents.Event{Time: time, Kind: kernelevents.Arrival, CPU: 1, A: 3, C: position}
	}
	poller := wake(1510, second, 1, python)
	poller.CPU = 1
	poller.D = kernelevents.WakeupBySoftirq
	events := []kernelevents.Event{
		sw(-500, 1, second, python, kernelevents.Sleeping.InCall(202)),
		arrival(100, 0xfffffff0), {Time: 200, Kind: kernelevents.Read, Thread: first, A: 3, B: 100, D: 0xfffffff0},
		arrival(1500, 0x10), poller, sw(3000, 1, python, second, 0), arrival(4000, 0x20),
		{Time: 5000, Kind: kernelevents.Read, Thread: first, A: 3, B: 0x30, D: 0x20},
		{Time: 9000, Kind: kernelevents.Retransmit, A: 3},
	}
	tracker, syms := track(t, tables, events, oneRun)
	a, ok := tracker.ArrivalOf(1, tracetext.Origin+4500*us, tracetext.Origin+9000*us)
	must.True(t, ok && a.Time == tracetext.Origin+1500*us && a.Socket == 3, "%+v, %t", a, ok)
	if _, ok := tracker.ArrivalOf(1, tracetext.Origin+5500*us, tracetext.Origin+9000*us); ok {
		t.Error("an arrival without a read")
	}
	tracker.AddArrival(7, a)
	if b, ok := tracker.ArrivalBefore(7, a.Time); !ok || b != a || tracker.SocketOf(7) != 3 {
		t.Errorf("noted %+v", b)
	}
	got := intervals(syms, func(f func(Interval)) { tracker.EachPollerWait(&a, a.Time, tracetext.Origin+4500*us, f) })
	if want := "waits 1510-3000 python3 (pid 90)"; got != want {
		t.Errorf("the thread that polls: %s, want %s", got, want)
	}
	s := tracker.Summary()
	if len(s.Retransmissions) != 1 || s.Retransmissions[0].Remote != "10.0.0.2:999" || !slices.Equal(s.Retransmissions[0].Times, []int64{tracetext.Origin + 9000*us}) {
		t.Errorf("retransmissions %+v", s.Retransmissions)
	}
}

// TestSummary: the parts of the running time, and the time that a quota took: over CPUs it is a sum, in time a union.
func TestSummary(t *testing.T) {
	throttled := func(time int64, thread int32, ns int64) kernelevents.Event {
		return kernelevents.Event{Time: time, Kind: kernelevents.Throttled, Thread: thread, A: ns}
	}
	events := []kernelevents.Event{
		sw(2000, 0, first, python, kernelevents.QuotaUsedUp), sw(3000, 1, second, compiler, kernelevents.QuotaUsedUp),
		sw(6000, 0, python, first, 0), throttled(6000, first, 4000*us), sw(6500, 1, compiler, second, 0), throttled(6500, second, 3500*us),
		sw(14_000, 0, first, python, 0), sw(15_000, 0, python, first, 0), sw(18_000, 0, first, 0, kernelevents.Sleeping),
	}
	tracker, syms := track(t, tables, events, oneRun)
	s := tracker.Summary()
	if want := []freeze.Interval{{Start: tracetext.Origin + 2000*us, End: tracetext.Origin + 6500*us}}; !slices.Equal(s.Freezes, want) || s.LostCPUNS != 7500*us {
		t.Errorf("freezes %v, %d ns of CPUs", s.Freezes, s.LostCPUNS)
	}
	if s.HasOwnQuota || !s.HasAncestorQuota || s.PeriodNS != 1e8 {
		t.Errorf("quotas: own %t, ancestor %t, period %d", s.HasOwnQuota, s.HasAncestorQuota, s.PeriodNS)
	}
	// Goroutine 1 runs for 18 ms without its system call, goroutine 2 for 1 ms.
	if s.RunningNS != 19_000*us || s.ByKind[Throttled] != 4000*us || s.ByKind[Waiting] != 1000*us || s.ByKind[OnCPU] != 12_000*us || s.ByKind[Asleep] != 2000*us {
		t.Errorf("of %d ns: %d", s.RunningNS, s.ByKind)
	}
	check.True(t, len(s.WaitByName) == 1 && s.WaitByName[syms.Intern("python3 (pid 90)")] == 1000*us, "waits %v", s.WaitByName)
	if held, isKnown := tracker.FreezesIn(tracetext.Origin, tracetext.Origin+10_000*us); !isKnown || len(held) != 1 {
		t.Errorf("freezes within 10 ms: %v, %t", held, isKnown)
	}
	if _, isKnown := tracker.FreezesIn(tables.Start-1, tracetext.Origin); isKnown {
		t.Error("freezes before the events are known")
	}
}

// TestOtherTime: events of another time, or of a trace with another clock, are not used.
func TestOtherTime(t *testing.T) {
	other := tables
	other.Start, other.End = 5, 9
	var file bytes.Buffer
	w := must.Have(kernelevents.NewWriter(&file))(t)
	must.Do(t, w.Close(other))
	tracker := must.Have(New(file.Bytes()))(t)
	b := tracetext.New(26)
	oneRun(b)
	timelinetest.ForEachGen(t, must.Have(b.Bytes())(t), 1, func(g *timeline.Gen) { tracker.Add(tracefmt.NewSymbols(), g) })
	if tracker.Err() == nil || tracker.IsUsed() {
		t.Errorf("error %v, used %t", tracker.Err(), tracker.IsUsed())
	}
	if _, err := New([]byte("x")); err == nil {
		t.Error("a file of another format was read")
	}
	if _, err := New([]byte(kernelevents.Schema + "\n")); err == nil {
		t.Error("a file without tables was read")
	}
}

// TestShow: other processes are shown on a CPU only while an own thread waits for it, because later switches between them are
// not recorded.
func TestShow(t *testing.T) {
	arrival := kernelevents.Event{Time: 500, Kind: kernelevents.Arrival, CPU: 1, A: 3, C: 0x20}
	tracker, syms := track(t, tables, []kernelevents.Event{
		arrival, {Time: 1000, Kind: kernelevents.Read, Thread: first, A: 3, B: 0x20, D: 0x20},
		sw(2000, 0, first, python, 0), sw(5000, 0, python, first, 0), sw(8000, 0, first, python, kernelevents.Sleeping),
		wake(9000, first, 0, python), sw(9500, 0, python, first, 0),
	}, oneRun)
	var got []string
	tracker.EachOccupation(0, tracetext.Origin+1000*us, tracetext.Origin+10_000*us, func(x Occupation) {
		got = append(got, fmt.Sprintf("%d-%d %s", (x.Start-tracetext.Origin)/us, (x.End-tracetext.Origin)/us, syms.String(x.Name)))
	})
	if want := []string{"2000-5000 python3 (pid 90)", "5000-8000 its own threads", "9000-9500 python3 (pid 90)", "9500-10000 its own threads"}; !slices.Equal(got, want) {
		t.Errorf("had the CPU: %q, want %q", got, want)
	}
	var arrivals []int64
	tracker.EachArrival(1, tracetext.Origin, tracetext.Origin+10_000*us, func(time int64) { arrivals = append(arrivals, (time-tracetext.Origin)/us) })
	check.True(t, slices.Equal(arrivals, []int64{500}), "arrivals at %d", arrivals)
	tracker.KeepAll()
	tracker.Drop(tracetext.Origin + 9000*us)
	if held, isKnown := tracker.FreezesIn(tracetext.Origin, tracetext.Origin+1000*us); !isKnown || len(held) != 0 || len(tracker.CPUs()) != 1 {
		t.Errorf("after a drop: %v, %t, CPUs %v", held, isKnown, tracker.CPUs())
	}
}

// TestKernelThreads: a kernel thread's name says what it works for, and a process with a similar name stays one.
func TestKernelThreads(t *testing.T) {
	var n names
	n.init(&kernelevents.Tables{Threads: []kernelevents.Thread{
		{TID: 14, PID: 14, Comm: "ksoftirqd/0"}, {TID: 22, PID: 22, Comm: "ksoftirqd/1"}, {TID: 15, PID: 15, Comm: "rcu_preempt"},
		{TID: 44, PID: 44, Comm: "kworker/1:1H", Process: "kworker/1:1H-kblockd"}, {TID: 45, PID: 45, Comm: "kworker/u8:2", Process: "kworker/u8:2+flush-8:0"}, {TID: 46, PID: 46, Comm: "kworker/0:2", Process: "kworker/0:2-events"},
		{TID: 47, PID: 47, Comm: "kworker/0:1", Process: "kworker/0:1-writeback"}, {TID: 60, PID: 60, Comm: "jbd2/sda1-8"}, {TID: 70, PID: 70, Comm: "migrations"}, {TID: 72, PID: 71, Comm: "irq/1", Process: "watcher"},
	}})
	for tid, want := range map[int32]string{
		14: "kernel thread ksoftirqd (network packets and timers)", 22: "kernel thread ksoftirqd (network packets and timers)", 15: "kernel thread rcu_preempt (freeing the kernel's memory)",
		44: "kernel thread kworker (work queues of the kernel: events, flush-8:0, kblockd ...)", 60: "kernel thread jbd2 (the journal of a file system)",
		70: "migrations (pid 70)", 72: "watcher (pid 71)",
	} {
		check.Equal(t, n.processText(tid), want, "thread %d", tid)
	}
}
