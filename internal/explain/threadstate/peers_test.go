package threadstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// worker is a second thread of the process python, and lockHolder a thread of another process with its name.
const worker, lockHolder = 93, 95

// peerTables are tables in which python serves the service's socket 3.
func peerTables() kernelevents.Tables {
	x := tables
	x.Threads = slices.Clone(tables.Threads)
	for i := range x.Threads {
		x.Threads[i].IsPeer = x.Threads[i].PID == python
	}
	x.Threads = append(x.Threads, kernelevents.Thread{TID: worker, PID: python, Comm: "worker", Process: "python3", IsPeer: true}, kernelevents.Thread{TID: lockHolder, PID: lockHolder, Comm: "python3", Process: "python3"})
	x.Calls = maps.Clone(tables.Calls)
	for number, name := range map[int32]string{7: "poll", 35: "nanosleep", 45: "recvfrom", 74: "fsync"} {
		x.Calls[number] = name
	}
	x.Stacks = append(slices.Clone(tables.Stacks), kernelevents.Stack{Frames: []string{"pipe_read", "vfs_read"}}, kernelevents.Stack{Frames: []string{"jbd2_log_wait_commit", "ext4_sync_file"}})
	x.Sockets = []kernelevents.Socket{{ID: 3, Local: "127.0.0.1:999", Remote: "127.0.0.1:5432"}, {ID: 4, Local: "127.0.0.1:5432", Remote: "127.0.0.1:999", Peer: 3}}
	return x
}

func used(kind kernelevents.Kind, time int64, thread int32, socket int64) kernelevents.Event {
	return kernelevents.Event{Time: time, Kind: kind, CPU: 1, Thread: thread, A: socket, B: 100}
}

func arrives(time, socket int64) kernelevents.Event {
	return kernelevents.Event{Time: time, Kind: kernelevents.Arrival, A: socket, B: 100, C: time}
}

// sleeps returns the events of a thread that sleeps in a system call until something wakes it.
func sleeps(from, to int64, thread int32, state kernelevents.State, call int32, stack int64, waker int64) []kernelevents.Event {
	off := sw(from, 1, thread, 0, state.InCall(call))
	off.C = stack
	on := wake(to, thread, 1, 0)
	on.A = waker
	return []kernelevents.Event{off, on, sw(to, 1, 0, thread, 0)}
}

// TestPeerStates: the wait of goroutine 2, until 12 ms, for the answer of python. The request arrives there at 1 ms and is read at 2 ms; the
// answer arrives at 10 ms.
func TestPeerStates(t *testing.T) {
	ask := []kernelevents.Event{used(kernelevents.Read, 100, python, 4), arrives(150, 3), used(kernelevents.Send, 200, python, 4), used(kernelevents.Send, 900, first, 3), arrives(1000, 4), used(kernelevents.Read, 2000, python, 4)}
	for name, c := range map[string]struct {
		work   []kernelevents.Event
		sender int32
		want   string
	}{
		"computes":           {nil, python, "running 2000-10000"},
		"sleeps":             {sleeps(3000, 9000, python, kernelevents.Sleeping, 35, 0, -1), python, "running 2000-3000, timer 3000-9000, running 9000-10000"},
		"waits for a lock":   {sleeps(3000, 9000, python, kernelevents.Sleeping, 202, 0, worker), python, "running 2000-3000, lock 3000-9000, running 9000-10000"},
		"waits a while":      {sleeps(3000, 9000, python, kernelevents.Sleeping, 202, 0, -1), python, "running 2000-3000, timer 3000-9000, running 9000-10000"},
		"polls its network":  {sleeps(3000, 9000, python, kernelevents.Sleeping, 7, 0, 0), python, "running 2000-3000, network 3000-9000, running 9000-10000"},
		"polls for a time":   {sleeps(3000, 9000, python, kernelevents.Sleeping, 7, 0, -1), python, "running 2000-3000, timer 3000-9000, running 9000-10000"},
		"a transaction ends": {sleeps(3000, 9000, python, kernelevents.Sleeping, 7, 0, lockHolder), python, "running 2000-3000, process 3000-9000 (another process of python3), running 9000-10000"},
		"another process":    {sleeps(3000, 9000, python, kernelevents.Sleeping, 7, 0, compiler), python, "running 2000-3000, process 3000-9000 (compile (2 processes)), running 9000-10000"},
		"receives":           {sleeps(3000, 9000, python, kernelevents.Sleeping, 45, 0, compiler), python, "running 2000-3000, network 3000-9000, running 9000-10000"},
		"reads a pipe":       {sleeps(3000, 9000, python, kernelevents.Sleeping, 0, 3, compiler), python, "running 2000-3000, pipe 3000-9000, running 9000-10000"},
		"syncs":              {sleeps(3000, 9000, python, kernelevents.DiskWait, 74, 4, 0), python, "running 2000-3000, disk 3000-9000 (fsync), running 9000-10000"},
		"a page fault":       {sleeps(3000, 9000, python, kernelevents.DiskWait|kernelevents.InIOWait, -1, 1, 0), python, "running 2000-3000, disk 3000-9000, running 9000-10000"},
		"a kernel's lock":    {sleeps(3000, 9000, python, kernelevents.DiskWait, 74, 2, 0), python, "running 2000-3000, other 3000-9000 (rwsem_down_read_slowpath), running 9000-10000"},
		"without a CPU": {[]kernelevents.Event{sw(3000, 1, python, compiler, 0), sw(9000, 1, compiler, python, 0)}, python,
			"running 2000-3000, cpu-wait 3000-9000 (compile (2 processes)), running 9000-10000"},
		"throttled": {[]kernelevents.Event{sw(3000, 1, python, 0, kernelevents.QuotaUsedUp), sw(9000, 1, 0, python, 0), {Time: 9000, Kind: kernelevents.Throttled, Thread: python, A: 5000 * us}}, python,
			"running 2000-3000, throttled 3000-8000, cpu-wait 8000-9000, running 9000-10000"},
		"its worker answers": {slices.Concat([]kernelevents.Event{sw(2100, 0, worker, 0, kernelevents.Sleeping.InCall(202)), {Time: 3000, Kind: kernelevents.Wakeup, Thread: worker, A: python, C: 0}, sw(3500, 0, 0, worker, 0), sw(4000, 1, python, 0, kernelevents.Sleeping.InCall(7))}), worker,
			"running 2000-3000, cpu-wait 3000-3500, running 3500-10000"},
		"who works is unknown": {nil, worker, ""},
		"bytes are lost":       {[]kernelevents.Event{{Time: 5000, Kind: kernelevents.Lost, A: 3, B: 3000}}, python, ""},
	} {
		events := slices.Concat(ask, c.work, []kernelevents.Event{arrives(10_000, 3), used(kernelevents.Send, 10_010, c.sender, 4), used(kernelevents.Read, 12_100, second, 3), arrives(20_000, 4)})
		tracker, syms := track(t, peerTables(), events, oneRun)
		var out []string
		tracker.EachPeerState(2, tracetext.Origin+500*us, tracetext.Origin+12_000*us, func(start, end int64, state tracefmt.StringID) {
			x, ok := ParsePeerState(syms.String(state))
			check.True(t, ok && x.Process == "python3 (pid 90)", "%s: %q", name, syms.String(state))
			text := fmt.Sprintf("%s %d-%d", x.State, (start-tracetext.Origin)/us, (end-tracetext.Origin)/us)
			if x.Detail != "" {
				text += " (" + x.Detail + ")"
			}
			if x.Unread {
				text += " unread"
			}
			out = append(out, text)
		})
		want := "way 900-1000, running 1000-2000 unread, " + c.want + ", arrived 10000-12000"
		switch name {
		case "who works is unknown":
			want = "way 900-1000, running 1000-2000 unread, arrived 10000-12000"
		case "bytes are lost":
			want = ""
		}
		check.Equal(t, strings.Join(out, ", "), want, "%s", name)
		if intervals := intervals(syms, func(f func(Interval)) { tracker.EachInterval(1, tracetext.Origin, tracetext.Origin+20_000*us, f) }); strings.Contains(intervals, "fault") {
			t.Errorf("%s: the service's own thread: %s", name, intervals)
		}
	}
}

// TestPeerTexts: a text of a state is read as the state, and nothing else is one.
func TestPeerTexts(t *testing.T) {
	for _, text := range []string{"", "outbound", "a\x00b", "\x00\x00\x00\x00"} {
		x, ok := ParsePeerState(text)
		check.False(t, ok, "%q is the state %+v", text, x)
	}
	x, ok := ParsePeerState("python3 (pid 90)\x00disk\x00fsync\x00unread")
	check.True(t, ok && x == report.PeerState{Process: "python3 (pid 90)", State: report.PeerDisk, Detail: "fsync", Unread: true}, "%+v", x)
}
