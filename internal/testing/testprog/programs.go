package testprog

import "strings"

// A Program is a run of a scenario of lab/traceprog whose trace tests use.
type Program struct {
	Name string   // name for tests; names of cgo programs begin with "cgo-"
	Args []string // of the command line: the scenario, then flags
}

// Package returns the directory of the program.
func (p *Program) Package() string {
	if strings.HasPrefix(p.Name, "cgo-") {
		return "lab/traceprog/cgo"
	}
	return "lab/traceprog"
}

// Programs returns all programs: each scenario once, and again if another number of Ps, another start
// or a longer trace shows something else.
func Programs() []Program {
	list := []Program{
		{"allocfree", []string{"allocfree", "-d", "50ms"}},
		{"goroutines10k", []string{"goroutines10k", "-d", "50ms"}},
		{"wrap", []string{"wrap"}},                                             // timestamps that need many bytes
		{"http1-long", []string{"http1", "-d", "1100ms"}},                      // generations that overlap
		{"gcstress-long", []string{"gcstress", "-d", "1100ms", "-procs", "1"}}, // marking over the end of a generation
		{"poll", []string{"poll", "-d", "400ms"}},
		{"tasks", []string{"tasks", "-d", "400ms"}},
		{"http1-1p", []string{"http1", "-d", "150ms", "-procs", "1"}},
		{"http1-8p", []string{"http1", "-d", "150ms", "-procs", "8", "-early"}},
		{"http1-profile", []string{"http1-profile", "-d", "2s"}}, // enough CPU samples for shares
		{"iterpull-early", []string{"iterpull", "-d", "150ms", "-early"}},
		{"cgo-threads-early", []string{"cgo-threads", "-d", "150ms", "-early"}},
		{"snapshot", []string{"snapshot", "-d", "500ms"}},
		{"hung", []string{"hung", "-d", "1100ms"}},
		{"pools", []string{"pools", "-d", "90ms"}},
	}
	for _, name := range []string{
		"channels", "cpusamples", "deadlines", "dns", "exec", "filesyscall", "flight", "gcstress", "generations", "grpc", "grpc-workers",
		"http1", "http1-body", "http1-close", "http1-hijack", "http1-middleware", "http1-pipelined", "http1-tls", "http2", "http2-h2c", "http2-xnet",
		"idle", "iterpull", "locks", "marked", "osthreads", "preempt", "procschange", "stw", "timers",
		"cgo-block", "cgo-callback", "cgo-calls", "cgo-dns", "cgo-threads",
	} {
		list = append(list, Program{name, []string{name, "-d", "150ms"}})
	}
	return list
}

// A Run is a run of a service of lab/truth whose recording tests use.
type Run struct {
	Name   string
	Args   []string // of "truth run": the service, then flags
	Client bool     // the client's measurement of each request is stored
}

// RunFor returns the run of a service by which a diagnosis is judged. Its name is the service's.
func RunFor(service string) Run {
	r := Run{Name: service, Args: []string{service, "-d", "1100ms", "-trace", "0.7"}}
	switch service {
	case "cpu-handler", "once", "single-worker", "ticker-flush": // less than a hundred requests a second
		r.Args = []string{service, "-d", "2500ms", "-trace", "2"}
	}
	return r
}

// Runs returns the runs in addition to RunFor each service: longer ones, some without the fault, some
// without an idle P.
func Runs() []Run {
	long := []string{"-d", "4s", "-trace", "3"}
	witnessed := []string{"-d", "2400ms", "-trace", "2"}
	list := []Run{{Name: "actor-select-long", Args: []string{"actor-select", "-d", "2500ms", "-trace", "2"}}}
	for _, s := range []string{"pubsub", "exec-child", "slow-database"} {
		list = append(list, Run{Name: s + "-long", Args: append([]string{s}, long...)}, Run{Name: s + "-fixed", Args: append([]string{s, "-fix"}, long...)})
	}
	for _, s := range []string{"waitgroup", "h2-sleep", "grpc-unary"} {
		list = append(list, Run{Name: s + "-long", Args: append([]string{s}, witnessed...), Client: true})
	}
	for _, s := range []string{"cpu-hogs", "waitgroup", "h2-sleep", "grpc-unary"} {
		list = append(list, Run{Name: s + "-saturated", Args: append([]string{s, "-procs", "1", "-hogs", "2"}, witnessed...), Client: true})
	}
	return list
}
