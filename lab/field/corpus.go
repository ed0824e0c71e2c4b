package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// entry is a recording of the corpus: a program, its load and fault, and the truth about them. The truth is written by hand,
// from knowledge of the program and the fault.
type entry struct {
	name, program string
	description   string
	fault         string   // the -fault of a program of this repository, or a word for the fault of another; empty: healthy
	args          []string // in addition to the program's own
	env           []string
	seconds       int // 0 is 1
	busyMachine   bool
	// stopFor is the time for which a signal stops the process, every stopEvery, while it is recorded.
	stopFor, stopEvery time.Duration
	benchmark          string        // a benchmark to record instead of a service
	quota              float64       // CPU quota of the program's container; 0: none
	warmup             time.Duration // time of load before the recording; 0 is 2 s
	// startUpstream is called before the program starts, and ends with the context. arguments replaces the
	// program's.
	startUpstream func(ctx context.Context, ports []string) error
	arguments     func(data string, ports []string) ([]string, error)
	// prepare is called before the load starts.
	prepare func(ctx context.Context, s *server) error
	// loads run concurrently. The first is judged; its kind names what a request is for the client.
	loads []loadStream
	truth testprog.FieldTruth
}

// A loadStream is load of one kind. It is an open loop, so that clients do not wait for each other.
type loadStream struct {
	kind string
	rate float64 // requests a second
	// One of these defines a request: path, a URL below the server's first port; targets; send, which sends one; or the
	// program reports its own requests, with lines "sample END-UNIX-NS TOOK-NS ok|err".
	path          string
	targets       func(s *server) []load.Target // instead of path: several, with bodies
	send          func(ctx context.Context, s *server) error
	printsSamples bool
	servesSamples bool // instead of printsSamples: at the end of the load, by HTTP
	// childArgs start the program again as its own client, which prints samples.
	childArgs func(s *server) []string
	// closedClients, instead of rate, is a number of clients that wait for their answers.
	closedClients int
}

// recordEntries records the entries with a matching name.
func recordEntries(ctx context.Context, entries []entry, dir string, match *regexp.Regexp) error {
	if _, err := os.Stat("go.work"); err != nil {
		return errors.New("run this in the repository's root")
	}
	tmp, whylate, err := prepareDirs(ctx, dir)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	defer peers.Wait()
	var failed []error
	for i := range entries {
		e := &entries[i]
		if !match.MatchString(e.name) {
			continue
		}
		f, err := e.record(ctx, whylate, dir, filepath.Join(tmp, e.name))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", e.name, err))
			fmt.Fprintln(os.Stderr, failed[len(failed)-1])
			continue
		}
		// Known errors of the replaced recording stay until TestField runs with -update.
		if old, err := testprog.ReadField(dir, e.name); err == nil {
			f.KnownWrong = old.KnownWrong
		}
		if err := f.Write(dir); err != nil {
			return err
		}
		c := f.Client
		fmt.Printf("%s: %s %d in %d s, %d errors, p50 %v p90 %v p99 %v max %v\n", e.name, c.Kind, c.Requests, f.Seconds, c.Errors, c.P50, c.P90, c.P99, c.Max)
	}
	return errors.Join(failed...)
}

// rewriteTruths writes the truths of the table to existing recordings.
func rewriteTruths(entries []entry, dir string, match *regexp.Regexp) error {
	for i := range entries {
		e := &entries[i]
		f, err := testprog.ReadField(dir, e.name)
		if errors.Is(err, os.ErrNotExist) || !match.MatchString(e.name) {
			continue
		}
		if err != nil {
			return err
		}
		f.Description, f.Fault, f.Healthy, f.Truth = e.description, e.fault, e.fault == "", e.truth
		if err := f.Write(dir); err != nil {
			return err
		}
	}
	return nil
}

// buildAll builds the programs of the recordings whose name matches.
func buildAll(ctx context.Context, entries []entry, match *regexp.Regexp) error {
	built := map[string]bool{}
	for i := range entries {
		e := &entries[i]
		if !match.MatchString(e.name) || built[e.program] {
			continue
		}
		built[e.program] = true
		p, ok := programNamed(e.program)
		if !ok {
			return fmt.Errorf("%s: there is no program %s", e.name, e.program)
		}
		if _, err := p.build(ctx); err != nil {
			return err
		}
	}
	return nil
}

func buildTool(ctx context.Context, dir string) (string, error) {
	whylate := filepath.Join(dir, "whylate")
	if err := runCommand(ctx, "", nil, "go", "build", "-buildvcs=false", "-o", whylate, "github.com/whylate/whylate/cmd/whylate"); err != nil {
		return "", fmt.Errorf("building whylate: %w", err)
	}
	return whylate, nil
}

// record writes NAME.whylate.xz to dir, and returns its truth and its clients' figures.
func (e *entry) record(ctx context.Context, whylate, dir, data string) (*testprog.FieldCase, error) {
	p, ok := programNamed(e.program)
	if !ok {
		return nil, fmt.Errorf("there is no program %s", e.program)
	}
	binary, err := p.build(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(data, 0o777); err != nil {
		return nil, err
	}
	if e.benchmark != "" {
		return e.recordTest(ctx, p, binary, dir, data)
	}
	p.quota = e.quota
	upstreamCtx, endUpstream := context.WithCancel(ctx)
	defer endUpstream()
	arguments := p.arguments
	if e.arguments != nil {
		arguments = e.arguments
	}
	p.arguments = func(data string, ports []string) ([]string, error) {
		if e.startUpstream != nil {
			if err := e.startUpstream(upstreamCtx, ports); err != nil {
				return nil, err
			}
		}
		return arguments(data, ports)
	}
	args := e.args
	if p.dir != "" && !p.noFaultFlag && e.fault != "" {
		args = append([]string{"-fault", e.fault}, args...)
	}
	backendArgs, leave, err := p.startDependencies(ctx, binary, e.fault)
	if err != nil {
		return nil, err
	}
	defer leave()
	args = append(backendArgs, args...)
	s, err := p.start(ctx, binary, data, args, e.env)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if e.prepare != nil {
		if err := e.prepare(ctx, s); err != nil {
			return nil, fmt.Errorf("preparing it: %w\n%s", err, s.recentOutput())
		}
	}
	loading, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	samples := make([]sampleLog, len(e.loads))
	for i := range e.loads {
		wg.Go(func() {
			if err := e.loads[i].run(loading, s, binary, &samples[i]); err != nil && loading.Err() == nil {
				fmt.Fprintf(os.Stderr, "%s: the load %s ended: %v\n", e.name, e.loads[i].kind, err)
			}
		})
	}
	warm := e.warmup
	if warm == 0 {
		warm = 2 * time.Second
	}
	sleep(ctx, warm)
	otherLoad := ""
	if e.busyMachine {
		otherLoad = "busy neighbours"
		stop, err := startBusyProcesses(ctx, runtime.NumCPU())
		if err != nil {
			return nil, err
		}
		defer stop()
		sleep(ctx, 300*time.Millisecond)
	}
	if e.stopFor > 0 {
		defer e.stopRepeatedly(ctx, s)()
	}
	seconds := max(e.seconds, 1)
	raw := filepath.Join(data, e.name+".whylate")
	if out, err := exec.CommandContext(ctx, whylate, "record", "--json", "--proxy", "none", "-d", strconv.Itoa(seconds)+"s", "-o", raw, s.pprof).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("recording: %w\n%s", err, out)
	}
	sleep(ctx, 200*time.Millisecond) // for requests in progress at the end of the trace
	cancel()
	wg.Wait()
	from, to, err := traceTimes(ctx, whylate, raw)
	if err != nil {
		return nil, err
	}
	f := e.newCase(p, seconds, otherLoad)
	if err := storePacked(f, raw, dir); err != nil {
		return nil, err
	}
	f.Client = samples[0].summary(from, to)
	f.Client.Kind = e.loads[0].kind
	if f.Client.Requests == 0 {
		return nil, fmt.Errorf("there is no answered %s within the trace\n%s", f.Client.Kind, s.recentOutput())
	}
	if 2*f.Client.Errors > f.Client.Requests {
		return nil, fmt.Errorf("%d of %d %s were refused: the recording does not show the fault of served requests\n%s", f.Client.Errors, f.Client.Requests, f.Client.Kind, s.recentOutput())
	}
	return f, nil
}

// stopRepeatedly stops a program for a while, repeatedly, like a debugger or a paused container.
func (e *entry) stopRepeatedly(ctx context.Context, s *server) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for sleep(ctx, e.stopEvery); ctx.Err() == nil; sleep(ctx, e.stopEvery) {
			if err := stopOrContinue(s.cmd.Process, true); err != nil {
				fmt.Fprintln(os.Stderr, e.name+": stopping it:", err)
				return
			}
			sleep(ctx, e.stopFor)
			_ = stopOrContinue(s.cmd.Process, false)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// newCase returns a recording's truth, without its clients' figures.
func (e *entry) newCase(p program, seconds int, otherLoad string) *testprog.FieldCase {
	return &testprog.FieldCase{
		Name: e.name, Program: e.program, Module: p.module + "@" + p.version, Description: e.description, Fault: e.fault,
		Go: runtime.Version(), Machine: fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()), Date: time.Now().UTC().Format(time.DateOnly),
		Seconds: seconds, Healthy: e.fault == "", OtherLoad: otherLoad, Truth: e.truth,
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// startBusyProcesses starts other processes that use the CPUs.
func startBusyProcesses(ctx context.Context, n int) (stop func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, stop = context.WithTimeout(ctx, 30*time.Second)
	for range n {
		if err := exec.CommandContext(ctx, exe, "-spin").Start(); err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}

// useCPU uses a CPU for at most half a minute.
func useCPU() {
	for n, end := 0, time.Now().Add(30*time.Second); n%1024 != 0 || time.Now().Before(end); n++ {
	}
}

// sampleLog has the requests that clients sent.
type sampleLog struct {
	mu   sync.Mutex
	list []sample
}

type sample struct {
	end    time.Time
	took   time.Duration
	failed bool
}

func (t *sampleLog) add(s sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = append(t.list, s)
}

// summary summarizes the requests that were sent and answered between two times. A request in progress when a trace begins has
// no latency in it.
func (t *sampleLog) summary(from, to time.Time) testprog.FieldClient {
	t.mu.Lock()
	defer t.mu.Unlock()
	var c testprog.FieldClient
	var took []time.Duration
	for _, s := range t.list {
		switch {
		case s.end.Add(-s.took).Before(from) || s.end.After(to):
		case s.failed:
			c.Errors++
			took = append(took, s.took)
		default:
			took = append(took, s.took)
		}
	}
	c.Requests = len(took)
	if len(took) > 0 {
		slices.Sort(took)
		rank := func(q float64) time.Duration { return took[min(int(q*float64(len(took))), len(took)-1)] } // nearest rank
		c.P50, c.P90, c.P99, c.Max = rank(0.5), rank(0.9), rank(0.99), rank(1)
	}
	return c
}

// run sends load to the server until the context ends.
func (l *loadStream) run(ctx context.Context, s *server, binary string, t *sampleLog) error {
	switch {
	case l.childArgs != nil:
		cmd := exec.CommandContext(ctx, binary, l.childArgs(s)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 2 * time.Second
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		readSamples(out, t)
		return cmd.Wait()
	case l.servesSamples:
		<-ctx.Done()
		resp, err := http.Get(s.pprof + "/samples")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		readSamples(resp.Body, t)
		return nil
	case l.printsSamples:
		s.collectSamples(t)
		<-ctx.Done()
		return nil
	}
	o := load.Options{Phases: []load.Phase{{StartRate: l.rate, EndRate: l.rate, Duration: 40 * time.Second}}, Seed: 1, Pace: load.PaceSleep, ClosedClients: l.closedClients}
	if l.closedClients > 0 {
		o.Phases = []load.Phase{{Duration: 40 * time.Second}}
	}
	began := time.Now()
	o.Targets = []load.Target{{URL: "http://127.0.0.1:" + s.ports[0] + l.path}}
	if l.targets != nil {
		o.Targets = l.targets(s)
	}
	if l.send != nil {
		o.Send = func(ctx context.Context, _ int) load.Answer {
			start := time.Now()
			err := l.send(ctx, s)
			return load.Answer{Status: 200, Err: err, Start: start}
		}
	}
	// Samples have times since a start that is known only at the end.
	var mu sync.Mutex
	var samples []load.Sample
	o.Observe = func(x load.Sample) {
		mu.Lock()
		defer mu.Unlock()
		samples = append(samples, x)
	}
	r, err := load.Run(ctx, o)
	if r == nil {
		return err
	}
	if r.Start.Before(began) {
		return errors.New("the generator's start is before the call")
	}
	mu.Lock()
	defer mu.Unlock()
	first := error(nil)
	for _, x := range samples {
		if ctx.Err() != nil && errors.Is(x.Err, context.Canceled) {
			continue // cancelled at the end of the load
		}
		if first == nil {
			first = x.Err
		}
		t.add(sample{r.Start.Add(time.Duration(x.End)), time.Duration(x.End - x.Start), x.Err != nil})
	}
	if first != nil {
		fmt.Fprintf(os.Stderr, "%s: some requests failed: %v\n", l.kind, first)
	}
	return nil
}

// sendHTTP sends an HTTP request and reads the answer to the end.
func sendHTTP(ctx context.Context, c *http.Client, method, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", url, resp.Status, b)
	}
	return err
}

// readSamples reads the samples that a program prints about its own requests.
func readSamples(r io.Reader, t *sampleLog) {
	for in := bufio.NewScanner(r); in.Scan(); {
		parseSample(in.Text(), t)
	}
}

func parseSample(line string, t *sampleLog) bool {
	f := strings.Fields(line)
	if len(f) != 4 || f[0] != "sample" {
		return false
	}
	end, err1 := strconv.ParseInt(f[1], 10, 64)
	took, err2 := strconv.ParseInt(f[2], 10, 64)
	if err1 != nil || err2 != nil {
		return false
	}
	t.add(sample{time.Unix(0, end), time.Duration(took), f[3] != "ok"})
	return true
}

// traceTimes returns the start and end of a recording's trace, by the wall clock in the trace.
func traceTimes(ctx context.Context, whylate, recording string) (from, to time.Time, err error) {
	out, err := exec.CommandContext(ctx, whylate, "explain", "--json", recording).Output()
	if err != nil {
		return from, to, fmt.Errorf("explaining: %w", err)
	}
	r, err := report.ReadJSON(bytes.NewReader(out))
	if err != nil {
		return from, to, err
	}
	if r.Input.Start == nil {
		return from, to, errors.New("the report has no start time")
	}
	return *r.Input.Start, r.Input.Start.Add(time.Duration(r.Input.DurationNS)), nil
}

// storePacked stores a recording.
func storePacked(f *testprog.FieldCase, recording, dir string) error {
	data, err := os.ReadFile(recording)
	if err != nil {
		return err
	}
	return f.WriteRecording(dir, data)
}
