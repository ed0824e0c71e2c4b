package tracetext_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// referenceLines returns the events of a trace by the reference reader, one line for each.
func referenceLines(data []byte) (lines []string, err error) {
	r, err := trace.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for {
		ev, err := r.ReadEvent()
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, ev.String())
	}
}

// traceOfAllEvents returns a builder with at least one event of each kind.
func traceOfAllEvents(minor int) *tracetext.Builder {
	b := tracetext.New(minor)
	t0, t1, spare := b.Thread(), b.Thread(), b.ThreadWithoutP()
	idle := b.IdleProc()
	b.Waiting(20)
	b.Runnable(21)
	t0.HasRun(1)
	t0.ProcsChange(10, 3, "runtime.startTheWorld")
	t0.Create(100, 2, "main.worker", "main.main:12", "runtime.main")
	t1.Start(200, 2)
	t1.Block(300, "chan receive", "main.worker:30")
	t0.Unblock(400, 2, "main.main:14")
	t1.Start(450, 2)
	t1.Syscall(500, "syscall.write", "main.worker:33")
	t1.SyscallEnd(600)
	t1.Syscall(700, "syscall.fsync", "main.worker:34")
	spare.Steal(800, t1)
	spare.Unblock(810, 20)
	t1.SyscallEndBlocked(900)
	t1.ProcStart(950, idle)
	t1.Start(960, 2)
	t0.StopWorld(1000, "GC mark termination", "runtime.gcMarkTermination")
	t0.StartWorld(1100)
	t0.GCBegin(1110, "runtime.gcStart")
	t0.AssistBegin(1120, "runtime.gcAssistAlloc", "main.main:15")
	t0.AssistEnd(1130)
	t0.GCEnd(1140)
	t0.Sweep(1150, 1160, 8192, 4096, "runtime.sweep")
	t0.HeapAlloc(1170, 1<<20)
	t0.HeapGoal(1180, 4<<20)
	t0.Label(1190, "GC (idle)")
	t0.TaskBegin(1200, 7, 0, "request", "main.main:16")
	t0.RegionBegin(1210, 7, "step", "main.main:17")
	t0.Log(1220, 7, "key", "value with \"quotes\" and \x01", "main.main:18")
	t0.RegionEnd(1230, 7, "step", "main.main:19")
	b.Sample(1235, t0, 1, "main.hot:99", "main.main:19")
	t0.AssistBegin(1240, "runtime.gcAssistAlloc")
	t0.Stop(1250, "preempted", "main.main:20")
	t0.Start(1260, 20)
	t0.Destroy(1270)
	t0.Start(1275, 21)
	b.NextGeneration(2000)
	t0.AssistActive(2000, 1)
	t0.Block(2100, "sleep", "time.Sleep")
	t0.Unblock(2150, 21)
	t0.Start(2160, 1)
	t0.AssistEnd(2170)
	t0.TaskEnd(2200, 7, "main.main:21")
	t1.Destroy(2300)
	t1.ProcStop(2400)
	if minor >= 23 {
		t0.CreateBlocked(2500, 30, "main.gen", "iter.Pull")
		t0.Switch(2600, 30)
		t0.Switch(2700, 1)
		t0.SwitchDestroy(2800, 30)
	}
	c := b.ThreadWithoutP()
	c.CreateInSyscall(2500, 40)
	c.ProcStart(2600, 1)
	c.SyscallEndBlocked(2700)
	c.Start(2800, 40)
	c.Syscall(2900, "main.cgo")
	c.DestroyInSyscall(3000)
	t1.StealAbandoned(3100, 1, c)
	return b
}

func TestReferenceReaderAcceptsEverything(t *testing.T) {
	for _, minor := range []int{22, 23, 25, 26} {
		t.Run(fmt.Sprint(minor), func(t *testing.T) {
			data := must.Have(traceOfAllEvents(minor).Bytes())(t)
			lines, err := referenceLines(data)
			must.True(t, err == nil, "the reference reader: %v\n%s", err, strings.Join(lines, "\n"))
			all := strings.Join(lines, "\n")
			for _, want := range []string{
				"main.worker", "/src/main.go:33", "chan receive", "stop-the-world (GC mark termination)",
				"GC concurrent mark phase", "GC mark assist", "GC incremental sweep", "request", "step", "GC (idle)", "main.hot", ":99",
			} {
				check.True(t, strings.Contains(all, want), "the reference reader's events do not mention %q", want)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	b := tracetext.New(26)
	th := b.Thread(1)
	th.Block(12345, "sleep")
	data := must.Have(b.Bytes())(t)
	r := must.Have(trace.NewReader(bytes.NewReader(data)))(t)
	for {
		ev, err := r.ReadEvent()
		must.Do(t, err, "no block event")
		if ev.Kind() != trace.EventStateTransition {
			continue
		}
		if tr := ev.StateTransition(); tr.Reason == "sleep" {
			check.Equal(t, ev.Time(), tracetext.Origin+12345, "blocked at")
			return
		}
	}
}

func TestContradictions(t *testing.T) {
	tests := []struct {
		name  string
		build func(b *tracetext.Builder, th *tracetext.Thread)
	}{
		{"start of a goroutine that waits", func(b *tracetext.Builder, th *tracetext.Thread) { b.Waiting(5); th.Start(1, 5) }},
		{"block without a goroutine", func(b *tracetext.Builder, th *tracetext.Thread) { th.Block(1, "sleep") }},
		{"time going back", func(b *tracetext.Builder, th *tracetext.Thread) { th.HasRun(1); th.HeapGoal(5, 1); th.HeapGoal(4, 1) }},
		{"wake of one that runs", func(b *tracetext.Builder, th *tracetext.Thread) { th.HasRun(1); th.Unblock(5, 1) }},
		{"two on a thread", func(b *tracetext.Builder, th *tracetext.Thread) { th.HasRun(1); b.Runnable(2); th.Start(5, 2) }},
		{"end of a call that lost no P", func(b *tracetext.Builder, th *tracetext.Thread) {
			th.HasRun(1)
			th.Syscall(5)
			th.SyscallEndBlocked(6)
		}},
		{"coroutines in a version without them", func(b *tracetext.Builder, th *tracetext.Thread) {
			th.HasRun(1)
			th.CreateBlocked(5, 2, "main.f")
		}},
	}
	for _, tt := range tests {
		b := tracetext.New(22)
		tt.build(b, b.Thread())
		if _, err := b.Bytes(); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
	}
}

func TestAssembleReferenceTraces(t *testing.T) {
	traces := must.Have(refdata.Traces())(t)
	for _, tr := range traces {
		data, err := tracetext.Assemble(tr.Text)
		if err != nil {
			t.Errorf("%s: %v", tr.Name, err)
			continue
		}
		_, err = referenceLines(data)
		switch {
		case tr.FailurePattern == "" && err != nil:
			t.Errorf("%s: the reference reader: %v", tr.Name, err)
		case tr.FailurePattern != "" && (err == nil || !regexp.MustCompile(tr.FailurePattern).MatchString(err.Error())):
			t.Errorf("%s: the reference reader says %v, want %q", tr.Name, err, tr.FailurePattern)
		}
	}
}

func TestAssembleErrors(t *testing.T) {
	for _, text := range []string{
		"", "Trace", "Trace Go1.x", "Trace Go1.22\nNoSuchEvent dt=1", "Trace Go1.22\nProcStop",
		"Trace Go1.22\nProcStop dt=-1", "Trace Go1.22\nProcStop td=1", "Trace Go1.22\nProcStop dt=1 p=2",
		"Trace Go1.22\nString id=1", "Trace Go1.22\nString id=1\ndata=x", "Trace Go1.22\nStack id=1 nframes=1\n",
	} {
		if _, err := tracetext.Assemble([]byte(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	// Comments are allowed, and a # inside data is none.
	data, err := tracetext.Assemble([]byte("Trace Go1.22 # first\n# second\nEventBatch gen=1 m=2 time=3 size=auto\nStrings\nString id=1\n\tdata=\"a#b\"\n"))
	want := "go 1.22 trace\x00\x00\x00\x01\x01\x02\x03\x07\x04\x05\x01\x03a#b"
	check.True(t, err == nil && string(data) == want, "got %q, %v; want %q", data, err, want)
	check.False(t, errors.Is(err, io.EOF), "an unexpected io.EOF")
}
