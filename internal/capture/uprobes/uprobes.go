// Package uprobes records what the scheduler of a running Go program does, without its help: by probes that the Linux kernel places in
// the runtime's functions (uprobes), with BPF programs that read registers and the runtime's structures. docs/pid.md has the
// conditions, the costs, and what such a recording cannot show.
//
// The probes are at instructions that the kernel emulates, never at returns, and only for a bounded time. They belong to file
// descriptors of the recorder, so the kernel removes them when it ends, even if it is killed.
package uprobes

import (
	"errors"
	"time"

	"github.com/whylate/whylate/internal/capture/schedtrace"
)

// Options say what to record.
type Options struct {
	PID      int
	Duration time.Duration
	// Force records even if the probes would cost more than the budget.
	Force bool
	// Progress, if not nil, is called about fifty times a second while events arrive.
	Progress func(elapsed time.Duration)
}

// A Result is a recording and its costs.
type Result struct {
	Recording *schedtrace.Recording
	Go        string // the version that built the program
	Window    time.Duration
	Hits      uint64 // of probes
	Lost      uint64 // events for which the buffer had no room
	Warnings  []string
}

// Errors of Record. Each is wrapped by a text that says what to do.
var (
	ErrNoProcess  = errors.New("there is no such process")
	ErrPermission = errors.New("missing permission")
	ErrCostly     = errors.New("too costly")
	ErrSystem     = errors.New("not possible on this system")
)

// Costs on a busy virtual machine, an upper bound: docs/pid.md has the measurements.
const (
	hitCost   = 1600 * time.Nanosecond
	stackCost = 2000 * time.Nanosecond
	// A start of a goroutine comes with about three hits and one and a half stacks: it waits or ends, is created or made ready.
	startCost = 3*hitCost + stackCost*3/2
)

// budget is the largest share of the process's CPUs that the probes may take.
const budget = 0.05

// countTime is how long starts of goroutines are counted before the probes are placed.
const countTime = 200 * time.Millisecond

// maxEvents bounds the memory of a recording: 64 bytes an event.
const maxEvents = 8 << 20
