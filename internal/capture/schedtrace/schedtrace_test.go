package schedtrace_test

import (
	"bytes"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	reference "golang.org/x/exp/trace"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/capture/gobinary"
	"github.com/whylate/whylate/internal/capture/schedtrace"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// stacks are those of the tests' events.
var stacks = [][]gobinary.Frame{
	nil,
	{{PC: 16, Func: "time.Sleep", File: "/go/src/time/sleep.go", Line: 300}, {PC: 32, Func: "main.wait", File: "/app/main.go", Line: 7}},
	{{PC: 48, Func: "main.worker", File: "/app/main.go", Line: 12}},
}

func recordingOf(events ...schedtrace.Event) *schedtrace.Recording {
	return &schedtrace.Recording{Start: 1e9, End: 2e9, Wall: time.Unix(1767225600, 0), Events: events, Stacks: stacks}
}

// transitions writes a recording, reads the trace with the reference reader, and returns the changes of goroutines' states.
func transitions(t *testing.T, r *schedtrace.Recording) []string {
	t.Helper()
	var trace bytes.Buffer
	must.Do(t, schedtrace.Write(&trace, r))
	reader := must.Have(reference.NewReader(bytes.NewReader(trace.Bytes())))(t)
	var lines []string
	for {
		e, err := reader.ReadEvent()
		if errors.Is(err, io.EOF) {
			return lines
		}
		must.True(t, err == nil, "the reference reader refuses the trace after %d changes: %v", len(lines), err)
		if e.Kind() != reference.EventStateTransition || e.StateTransition().Resource.Kind != reference.ResourceGoroutine {
			continue
		}
		change := e.StateTransition()
		from, to := change.Goroutine()
		line := fmt.Sprintf("%d: %v->%v", change.Resource.Goroutine(), from, to)
		if change.Reason != "" {
			line += " (" + change.Reason + ")"
		}
		for f := range change.Stack.Frames() {
			line += " " + f.Func
		}
		lines = append(lines, line)
	}
}

func TestTransitions(t *testing.T) {
	const at = 1e9
	for _, c := range []struct {
		name   string
		events []schedtrace.Event
		want   string
	}{
		{"wait for the poller", []schedtrace.Event{
			{Time: at + 100, Kind: schedtrace.Block, G: 5, Thread: 1, Reason: "network", Stack: 1},
			{Time: at + 9000, Kind: schedtrace.Start, G: 5, Thread: 2},
		}, `5: Undetermined->Runnable
5: Runnable->Running
5: Running->Waiting (network) time.Sleep main.wait
5: Waiting->Runnable
5: Runnable->Running`},
		{"create, wake, end", []schedtrace.Event{
			{Time: at + 100, Kind: schedtrace.Create, G: 6, Peer: 5, Thread: 1, Stack: 1, NewStack: 2},
			{Time: at + 500, Kind: schedtrace.Start, G: 6, Thread: 2},
			{Time: at + 900, Kind: schedtrace.Block, G: 6, Thread: 2, Reason: "sync"},
			{Time: at + 1900, Kind: schedtrace.Ready, G: 6, Peer: 5, Thread: 1, Stack: 1},
			{Time: at + 2900, Kind: schedtrace.Start, G: 6, Thread: 2},
			{Time: at + 3900, Kind: schedtrace.Destroy, G: 6, Thread: 2},
		}, `5: Undetermined->Runnable
5: Runnable->Running
6: NotExist->Runnable main.worker
6: Runnable->Running
6: Running->Waiting (sync)
6: Waiting->Runnable
6: Runnable->Running
6: Running->NotExist`},
		{"a system call that keeps its P", []schedtrace.Event{
			{Time: at + 100, Kind: schedtrace.Start, G: 5, Thread: 1},
			{Time: at + 1000, Kind: schedtrace.SyscallBegin, G: 5, Thread: 1, Stack: 1},
			{Time: at + 9000, Kind: schedtrace.SyscallEnd, G: 5, Thread: 1},
			{Time: at + 9500, Kind: schedtrace.Block, G: 5, Thread: 1, Reason: "sleep"},
		}, `5: Undetermined->Waiting
5: Waiting->Runnable
5: Runnable->Running
5: Running->Syscall time.Sleep main.wait
5: Syscall->Running
5: Running->Waiting (sleep)`},
		{"a system call that loses its P", []schedtrace.Event{
			{Time: at + 100, Kind: schedtrace.Start, G: 5, Thread: 1},
			{Time: at + 1000, Kind: schedtrace.SyscallBegin, G: 5, Thread: 1},
			{Time: at + 9000, Kind: schedtrace.SyscallEnd, G: 5, Thread: 1},
			{Time: at + 9500, Kind: schedtrace.Start, G: 5, Thread: 2},
		}, `5: Undetermined->Waiting
5: Waiting->Runnable
5: Runnable->Running
5: Running->Syscall
5: Syscall->Runnable
5: Runnable->Running`},
		{"one call with several waits, and a write that then gives up the CPU", []schedtrace.Event{
			{Time: at + 100, Kind: schedtrace.Start, G: 5, Thread: 1},
			{Time: at + 1000, Kind: schedtrace.SyscallBegin, G: 5, Thread: 1, Stack: 1},
			{Time: at + 9000, Kind: schedtrace.SyscallEnd, G: 5, Thread: 1},
			{Time: at + 9900, Kind: schedtrace.SyscallBegin, G: 5, Thread: 1, Stack: 1},
			{Time: at + 19000, Kind: schedtrace.SyscallEnd, G: 5, Thread: 1},
			{Time: at + 990000, Kind: schedtrace.Send, G: 5, Thread: 1, Stack: 2},
			{Time: at + 990900, Kind: schedtrace.SyscallBegin, G: 5, Thread: 1, Stack: 2},
			{Time: at + 1190900, Kind: schedtrace.SyscallEnd, G: 5, Thread: 1, Stack: 2},
			{Time: at + 1200900, Kind: schedtrace.Send, G: 5, Thread: 1, Stack: 2},
		}, `5: Undetermined->Waiting
5: Waiting->Runnable
5: Runnable->Running
5: Running->Syscall time.Sleep main.wait
5: Syscall->Running
5: Running->Syscall main.worker
5: Syscall->Running
5: Running->Syscall main.worker
5: Syscall->Running`},
		{"a coroutine", []schedtrace.Event{
			{Time: at + 100, Kind: schedtrace.Start, G: 5, Thread: 1},
			{Time: at + 200, Kind: schedtrace.Switch, G: 5, Peer: 6, Thread: 1},
			{Time: at + 300, Kind: schedtrace.Switch, G: 6, Peer: 5, Thread: 1},
			{Time: at + 310, Kind: schedtrace.Destroy, G: 6, Thread: 1},
			{Time: at + 400, Kind: schedtrace.Stop, G: 5, Thread: 1, Reason: "preempted", Stack: 1},
		}, `5: Undetermined->Waiting
6: Undetermined->Waiting
5: Waiting->Runnable
5: Runnable->Running
6: Waiting->Runnable
5: Running->Waiting
6: Runnable->Running
5: Waiting->Runnable
6: Running->Waiting
5: Runnable->Running
5: Running->Runnable (preempted) time.Sleep main.wait`},
		{"lost events: it acts where it was not started", []schedtrace.Event{
			{Time: at + 100, Kind: schedtrace.Start, G: 5, Thread: 1},
			{Time: at + 200, Kind: schedtrace.Ready, G: 7, Peer: 5, Thread: 2},
			{Time: at + 300, Kind: schedtrace.Block, G: 5, Thread: 2, Reason: "select"},
		}, `5: Undetermined->Waiting
7: Undetermined->Waiting
5: Waiting->Runnable
5: Runnable->Running
5: Running->Runnable (unspecified)
5: Runnable->Running
7: Waiting->Runnable
5: Running->Waiting (select)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(transitions(t, recordingOf(c.events...)), "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestAnyOrder writes traces from arbitrary events, as they are if some are lost. The reference reader must accept each of them.
func TestAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 400 {
		var events []schedtrace.Event
		clock := int64(1e9)
		for range 300 {
			clock += random.Int64N(40_000)
			e := schedtrace.Event{
				Time: clock, Kind: schedtrace.Kind(1 + random.IntN(11)), G: 1 + random.Uint64N(7), Peer: random.Uint64N(7), Thread: 1 + random.Uint64N(4),
				Reason: []string{"sync", "network"}[random.IntN(2)], Stack: random.IntN(len(stacks)), NewStack: random.IntN(len(stacks)),
			}
			events = append(events, e)
		}
		if got := transitions(t, recordingOf(events...)); len(got) < 20 {
			t.Errorf("recording %d has only %d changes of states", n, len(got))
		}
	}
}

// TestLarge writes more than fits into one batch of each kind.
func TestLarge(t *testing.T) {
	r := recordingOf()
	for i := range 3000 {
		r.Stacks = append(r.Stacks, []gobinary.Frame{{PC: uint64(i + 1), Func: fmt.Sprintf("main.function%d", i), File: strings.Repeat("long/", 20) + "main.go", Line: i}})
	}
	for i := range 60_000 {
		start := r.Start + int64(i)*10_000
		r.Events = append(r.Events, schedtrace.Event{Time: start, Kind: schedtrace.Start, G: 5, Thread: 1},
			schedtrace.Event{Time: start + 2000, Kind: schedtrace.Sample, G: 5, Thread: 1, Stack: 3 + i%3000},
			schedtrace.Event{Time: start + 5000, Kind: schedtrace.Block, G: 5, Thread: 1, Reason: "sleep", Stack: 3 + i%3000})
	}
	if got, want := len(transitions(t, r)), 3*60_000+1; got != want {
		t.Errorf("%d changes, want %d", got, want)
	}
}

// TestSilence has two goroutines that are silent for 40 of every 100 ms. A trace of the runtime would show a CPU quota, but one from outside
// has no events of goroutines that compute.
func TestSilence(t *testing.T) {
	r := recordingOf()
	r.End = 4e9
	for period := r.Start; period < r.End; period += 100e6 {
		for at := period; at < period+60e6; at += 1e6 {
			for thread := range uint64(2) {
				r.Events = append(r.Events, schedtrace.Event{Time: at, Kind: schedtrace.Stop, G: 5 + thread, Thread: 1 + thread, Reason: "preempted", Stack: 2},
					schedtrace.Event{Time: at + 1000, Kind: schedtrace.Start, G: 5 + thread, Thread: 1 + thread})
			}
		}
	}
	var trace bytes.Buffer
	must.Do(t, schedtrace.Write(&trace, r))
	rep := must.Have(whylate.Explain(t.Context(), &trace, whylate.Options{}))(t)
	if got := rep.Runtime.Throttle; got.LostWallNS != 0 {
		t.Errorf("throttling %+v, want none", got)
	}
}

// TestRecordedService writes the trace of half a second of a service, whose requests sleep 3 ms under one mutex. The client sent 150 a
// second.
func TestRecordedService(t *testing.T) {
	f, err := os.Open("testdata/lock.gob.gz")
	must.Do(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must.Do(t, err)
	var r schedtrace.Recording
	must.Do(t, gob.NewDecoder(z).Decode(&r))
	sleeps, ends := 0, 0
	for _, line := range transitions(t, &r) {
		if strings.Contains(line, "Running->Waiting (sleep) time.Sleep main.holdLock main.main.func1 net/http.HandlerFunc.ServeHTTP") {
			sleeps++
		}
		if strings.Contains(line, "Running->Syscall syscall.write") && strings.Contains(line, "net/http.(*response).finishRequest") {
			ends++
		}
		check.False(t, strings.Contains(line, "unspecified"), "a state without an event: %s", line)
	}
	check.True(t, sleeps >= 50 && ends >= 50 && sleeps-ends <= 4 && ends-sleeps <= 4,
		"%d requests slept and %d ended, want some 60", sleeps, ends)
	var trace bytes.Buffer
	must.Do(t, schedtrace.Write(&trace, &r))
	rep, err := whylate.Explain(t.Context(), &trace, whylate.Options{})
	must.Do(t, err)
	check.True(t, rep.Input.TraceFrom == report.TraceFromUprobes && rep.Input.GOMAXPROCS == 0 && rep.Runtime.Sched.PsIdle == 0,
		"the report says something of Ps: %+v", rep.Input)
	if got := rep.Runtime.Throttle.Verdict; got != report.ThrottleUnknown {
		t.Errorf("throttling %q, want unknown", got)
	}
	for _, code := range rep.Judged.Clear {
		check.True(t, code != report.RuleGCTooFrequent && code != report.RuleSlowWakeup,
			"%s is called clear, although it needs a trace of the runtime", code)
	}
	for _, g := range rep.Groups {
		for _, c := range g.All().Causes {
			check.True(t, c.Cause != report.CauseSchedWake && c.Cause != report.CauseSchedPoll, "%s: cause %s needs Ps", g.Name, c.Cause)
		}
	}
	if len(rep.Findings) == 0 || rep.Findings[0].Code != report.RuleLockConvoy || rep.Findings[0].Site.Func != "main.holdLock" || rep.Findings[0].Site.Line != 4 {
		t.Errorf("findings %+v, want first a lock that is held in main.holdLock", rep.Findings)
	}
}
