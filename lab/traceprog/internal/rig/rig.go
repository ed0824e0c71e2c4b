// Package rig runs a scenario of a trace program: it prepares the environment, records an
// execution trace of exactly the scenario's activity, and reports the program's own counts of
// it.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/trace"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// A Scenario is an activity to record.
type Scenario struct {
	Name string
	Doc  string // one line: what the trace holds that others do not

	// Duration is how long Env.Record lets the activity run unless the command
	// line says otherwise; 0 means one second.
	Duration time.Duration

	// Run sets up, calls Env.Record exactly once, and tears down.
	Run func(*Env) error
}

// Env is the environment of a scenario. Its methods are safe for concurrent use, except
// Record.
type Env struct {
	d        time.Duration
	out      io.Writer
	early    bool
	start    func(io.Writer) error
	stop     func()
	recorded bool
	mu       sync.Mutex
	facts    map[string]*atomic.Int64
}

// ReplaceTracer makes Record write the trace by other means than runtime/trace's Start and Stop, for example a flight
// recorder.
func (e *Env) ReplaceTracer(start func(io.Writer) error, stop func()) { e.start, e.stop = start, stop }

// Record traces body. The context of body is done after the scenario's duration. body must finish
// all work before it returns, so that every unit of work that it counts is completely in the
// trace.
func (e *Env) Record(body func(context.Context) error) error {
	if e.recorded {
		return errors.New("scenario records twice")
	}
	e.recorded = true
	if !e.early {
		if err := e.start(e.out); err != nil {
			return fmt.Errorf("starting the trace: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.d)
	defer cancel()
	err := body(ctx)
	e.stop()
	return err
}

// Count adds n to the fact called name.
func (e *Env) Count(name string, n int64) {
	e.mu.Lock()
	c := e.facts[name]
	if c == nil {
		c = new(atomic.Int64)
		e.facts[name] = c
	}
	e.mu.Unlock()
	c.Add(n)
}

// Crew runs work on n goroutines and waits for all of them; it returns their joined
// errors.
func Crew(n int, work func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = work(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Pace calls work and pauses, repeatedly, until ctx is done or work fails. It keeps a trace small; the rate is not
// guaranteed.
func Pace(ctx context.Context, rest time.Duration, work func() error) error {
	for ctx.Err() == nil {
		if err := work(); err != nil {
			return err
		}
		time.Sleep(rest)
	}
	return nil
}

// Burn keeps a processor busy for about d of its wall time.
func Burn(d time.Duration) {
	var x uint64 = 88172645463325252
	for end := time.Now().Add(d); time.Now().Before(end); {
		for range 1000 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
	}
	runtime.KeepAlive(x)
}

// Result is the JSON that the program prints.
type Result struct {
	Scenario string           `json:"scenario"`
	Go       string           `json:"go"`
	Procs    int              `json:"gomaxprocs"` // when the trace began
	Bytes    int64            `json:"bytes"`      // of the trace
	Facts    map[string]int64 `json:"facts"`      // what the program did inside the trace, by its own count
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

const usage = `usage: traceprog NAME -o FILE [-d 1s] [-procs N] [-early]
       traceprog -list

Runs the scenario NAME, writes an execution trace of it to FILE and what it did
to standard output, as JSON.
`

// Main runs the command. It returns the exit status: 0, 1 if the scenario failed, 2 for wrong
// use.
func Main(args []string, stdout, stderr io.Writer, scenarios []Scenario) int {
	fs := flag.NewFlagSet("traceprog", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() { fmt.Fprint(stderr, usage); fs.PrintDefaults() }
	out := fs.String("o", "", "write the trace to `file`")
	d := fs.Duration("d", 0, "how long the recorded activity goes on (0: the scenario's own)")
	procs := fs.Int("procs", 0, "set GOMAXPROCS before the scenario begins (0: leave it)")
	early := fs.Bool("early", false, "start the trace before the scenario sets up, so that all its goroutines are born inside")
	list := fs.Bool("list", false, "print the scenarios")

	var name string
	if len(args) > 0 && len(args[0]) > 0 && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if name == "" && fs.NArg() > 0 {
		name = fs.Arg(0)
	}
	sort.Slice(scenarios, func(i, j int) bool { return scenarios[i].Name < scenarios[j].Name })
	if *list {
		for _, s := range scenarios {
			fmt.Fprintf(stdout, "%-18s %s\n", s.Name, s.Doc)
		}
		return 0
	}
	if name == "" || *out == "" {
		fs.Usage()
		return 2
	}
	for _, s := range scenarios {
		if s.Name == name {
			res, err := recordScenario(s, *out, *d, *procs, *early)
			if err != nil {
				fmt.Fprintf(stderr, "traceprog: %s: %v\n", name, err)
				return 1
			}
			if err := json.NewEncoder(stdout).Encode(res); err != nil {
				fmt.Fprintf(stderr, "traceprog: writing the result: %v\n", err)
				return 1
			}
			return 0
		}
	}
	fmt.Fprintf(stderr, "traceprog: no scenario %q; -list shows them\n", name)
	return 2
}

func recordScenario(s Scenario, path string, d time.Duration, procs int, early bool) (res Result, err error) {
	if d <= 0 {
		d = s.Duration
	}
	if d <= 0 {
		d = time.Second
	}
	if procs > 0 {
		runtime.GOMAXPROCS(procs)
	}
	f, err := os.Create(path)
	if err != nil {
		return res, fmt.Errorf("creating the trace file: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("closing the trace file: %w", cerr)
		}
	}()
	cw := &countingWriter{w: f}
	e := &Env{d: d, out: cw, early: early, start: trace.Start, stop: trace.Stop, facts: map[string]*atomic.Int64{}}
	res = Result{Scenario: s.Name, Go: runtime.Version(), Procs: runtime.GOMAXPROCS(0), Facts: map[string]int64{}}
	if early {
		if err := e.start(cw); err != nil {
			return res, fmt.Errorf("starting the trace: %w", err)
		}
	}
	if err := s.Run(e); err != nil {
		return res, err
	}
	if !e.recorded {
		return res, errors.New("the scenario recorded nothing")
	}
	for name, c := range e.facts {
		res.Facts[name] = c.Load()
	}
	res.Bytes = cw.n
	if cw.n == 0 {
		return res, errors.New("the trace is empty")
	}
	return res, nil
}
