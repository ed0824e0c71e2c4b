package main

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/lab/traceprog/internal/features"
	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func TestMain(m *testing.M) {
	if os.Getenv(features.AsProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type promise = features.Promise

const (
	startsBackgroundRead = "created under net/http.(*connReader).startBackgroundRead"
	inTransportQueue     = "created under google.golang.org/grpc.(*Server).serveStreams.func2"
)

func promises() map[string][]promise {
	http1 := []promise{
		{Feature: startsBackgroundRead, Fact: "requests"},
		{Feature: "true network wake by a goroutine"},
		{Feature: "block sync.(*Cond).Wait"},
	}
	return map[string][]promise{
		"http1":            http1,
		"http1-close":      http1,
		"http1-tls":        append(http1, promise{Feature: "blocked in crypto/tls.(*Conn).handshakeContext", Fact: "handshakes"}),
		"http1-middleware": append(http1, promise{Feature: "created under net/http.(*timeoutHandler).ServeHTTP"}),
		// The background read of a pipelined request is not started: its
		// successor is there already.
		"http1-pipelined": {{Feature: "blocked in net/http.(*conn).serve"}},
		"http1-body":      {{Feature: "blocked in net/http.(*body).Read"}, {Feature: "created under net/http.(*connReader).startBackgroundRead"}},
		"http1-hijack":    {{Feature: "blocked in main.takesOver", AtLeast: 50}, {Feature: "blocked in main.sendsEvents", Fact: "streams"}},
		"http2":           {{Feature: "created under net/http.(*http2serverConn).serve", Fact: "requests"}},
		"http2-h2c":       {{Feature: "created under net/http.(*http2serverConn).serve", Fact: "requests"}},
		"http2-xnet":      {{Feature: "created under golang.org/x/net/http2.(*serverConn).serve", Fact: "requests"}},
		"grpc":            {{Feature: inTransportQueue, Fact: "calls"}},
		"grpc-workers":    {{Feature: "blocked in google.golang.org/grpc.(*Server).serverWorker"}},
		"gcstress": {{Feature: "range GC mark assist", AtLeast: 20}, {Feature: "range GC concurrent mark phase", AtLeast: 5},
			{Feature: "block GC mark assist wait for work"}, {Feature: "range GC incremental sweep"}},
		"iterpull":      {{Feature: "block ", Fact: "switches"}},
		"goroutines10k": {{Feature: "alive before", Fact: "released"}, {Feature: "creations", Fact: "born"}, {Feature: "block forever"}},
		"procschange":   {{Feature: "range stop-the-world (GOMAXPROCS)", AtLeast: 5}},
		"wrap":          {{Feature: "generations", AtLeast: 6}},
		"generations":   {{Feature: "generations", Fact: "forced"}},
		"flight":        {{Feature: "block sleep", AtLeast: 20}},
		"hung":          {{Feature: "block chan receive"}},
		"pools":         {{Feature: "block chan send"}},
		"snapshot":      {{Feature: "block sync", Fact: "slow"}},
		"stw": {{Feature: "range stop-the-world (read mem stats)"}, {Feature: "range stop-the-world (goroutine profile)"},
			{Feature: "range stop-the-world (all goroutines stack trace)"}, {Feature: "range stop-the-world (GOMAXPROCS)"}},
		"http1-profile": {{Feature: "samples", AtLeast: 5}, {Feature: "created under net/http.(*connReader).startBackgroundRead"}},
		"cpusamples":    {{Feature: "samples", AtLeast: 5}},
		"preempt":       {{Feature: "stop preempted", AtLeast: 5}, {Feature: "stop runtime.Gosched"}},
		"osthreads":     {{Feature: "creations", Fact: "dead threads"}, {Feature: "block chan receive", AtLeast: 10}},
		"allocfree":     {{Feature: "experimental", AtLeast: 100}},
		"idle":          {{Feature: "events"}},
		"timers": {{Feature: "wake by nobody from sleep", AtLeast: 50}, {Feature: "wake by nobody from chan receive", AtLeast: 50},
			{Feature: "wake by nobody from select", AtLeast: 10}},
		"locks": {{Feature: "block sync", AtLeast: 100}, {Feature: "block sync.(*Cond).Wait", AtLeast: 10}, {Feature: "block chan send", AtLeast: 10},
			{Feature: "stopped in internal/sync.(*Mutex).unlockSlow", AtLeast: 3}, // handed over to a starving waiter
			{Feature: "blocked in sync.(*RWMutex).RLock"}, {Feature: "blocked in sync.(*Once).doSlow"}, {Feature: "blocked in sync.(*WaitGroup).Wait"}},
		"channels":    {{Feature: "block select", AtLeast: 10}, {Feature: "block chan send", AtLeast: 10}, {Feature: "block chan receive", AtLeast: 10}},
		"marked":      {{Feature: "logs", AtLeast: 100}},
		"tasks":       {{Feature: "task begins", Fact: "orders"}, {Feature: "task order", Fact: "orders"}, {Feature: "regions without task"}, {Feature: "logs"}, {Feature: "generations", AtLeast: 3}},
		"filesyscall": {{Feature: "syscall in os.(*File).Sync"}, {Feature: "syscall in os.ReadDir", Fact: "files"}, {Feature: "blocked in main.pipes"}},
		"poll":        {{Feature: "false network wake", AtLeast: 1}, {Feature: "alive before", AtLeast: 300}},
		"deadlines":   {{Feature: "true network wake by a goroutine", Fact: "deadlines moved"}, {Feature: "wake by nobody from network", Fact: "deadlines"}},
		"exec":        {{Feature: "syscall in os/exec.(*Cmd).Wait"}},
		"dns":         {{Feature: "blocked in net.(*Resolver).exchange"}},
	}
}

// TestScenarios records every scenario and holds the trace against what the
// scenario is for and against the program's own count. The reference reader
// must accept each one.
func TestScenarios(t *testing.T) {
	promised := promises()
	for _, s := range scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			var d time.Duration
			if s.Duration == 0 {
				d = 400 * time.Millisecond
			}
			features.Run(t, s, promised[s.Name], d)
		})
	}
}

// TestEarly starts the trace before anything is set up, with other numbers of
// Ps than the machine's.
func TestEarly(t *testing.T) {
	for _, s := range scenarios() {
		switch s.Name {
		case "http1", "locks", "iterpull":
			for _, procs := range []string{"1", "5"} {
				t.Run(s.Name+"/"+procs, func(t *testing.T) {
					features.Run(t, s, []promise{{Feature: "range stop-the-world (start trace)"}}, 100*time.Millisecond, "-early", "-procs", procs)
				})
			}
		}
	}
}

func TestWrongUse(t *testing.T) {
	for _, args := range [][]string{{}, {"http1"}, {"-o", "x"}, {"nosuch", "-o", "x"}, {"http1", "-nosuch"}} {
		check.Equal(t, rig.Main(args, io.Discard, io.Discard, scenarios()), 2, "traceprog %q: status", args)
	}
}
