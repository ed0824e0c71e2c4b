package main

import (
	"os"
	"testing"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/features"
)

func TestMain(m *testing.M) {
	if os.Getenv(features.AsProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestScenarios(t *testing.T) {
	promised := map[string][]features.Promise{
		"cgo-calls":    {{Feature: "syscalls", Fact: "calls"}},
		"cgo-block":    {{Feature: "syscalls blocked", AtLeast: 10}, {Feature: "syscall in main._Cfunc_sleep_us"}},
		"cgo-callback": {{Feature: "syscall in main.goEnter"}, {Feature: "blocked in main.goEnter"}},
		"cgo-threads":  {{Feature: "born in a system call", Fact: "threads"}, {Feature: "ids that come back"}},
		// Without a network, libc answers localhost from a file: what counts is
		// that the lookup ran in C.
		"cgo-dns": {{Feature: "events", Fact: "lookups"}},
	}
	for _, s := range scenarios() {
		t.Run(s.Name, func(t *testing.T) { features.Run(t, s, promised[s.Name], 400*time.Millisecond) })
	}
}
