package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/lab/truth/catalog"
	"github.com/whylate/whylate/lab/truth/load"
)

// Outcome is truth.json: the truth about the service and the measurements of one run.
type Outcome struct {
	Service *catalog.Service `json:"service"`
	Fixed   bool             `json:"fixed"`
	// Client summarizes all requests of the run, Traced the requests that started and ended within the trace, by the wall
	// clock. Without a client, both are by the service's own clock.
	Client load.Summary `json:"client"`
	Traced load.Summary `json:"traced"`
	// Affected is Traced without the requests that the fault delayed by less than 100 us, by the service's own clock. If a
	// fault delays only some requests, the others may never wait, and then no stack in the trace shows their handler.
	Affected load.Summary `json:"met"`
	// TraceFrom and TraceTo are the wall-clock times of the trace's first and last event, by the clock snapshots in the trace.
	TraceFrom time.Time `json:"trace_from"`
	TraceTo   time.Time `json:"trace_to"`
	// Share is the share of Affected that a diagnosis must give to the first cause. It is null if the service cannot measure
	// it; then the truth's bound applies.
	Share *float64 `json:"share"`
	// Lateness shows how much the machine delayed everything: by how much sleeps of 1 ms overran in the process that
	// supervised the run. On an idle machine the 99th percentile is below a few milliseconds; a service that takes all
	// processors raises it.
	Lateness Lateness `json:"lateness"`
}

// Lateness has percentiles of timer delays, in nanoseconds.
type Lateness struct {
	P50NS int64 `json:"p50_ns"`
	P99NS int64 `json:"p99_ns"`
	MaxNS int64 `json:"max_ns"`
}

// startLatenessWatch sleeps repeatedly until stop is called, which returns how late the sleeps ended.
func startLatenessWatch() (stop func() Lateness) {
	end, result := make(chan struct{}), make(chan Lateness)
	go func() {
		var late []int64
		for {
			select {
			case <-end:
				if len(late) == 0 {
					late = []int64{0}
				}
				slices.Sort(late)
				result <- Lateness{late[len(late)/2], late[len(late)*99/100], late[len(late)-1]}
				return
			case <-time.After(4 * time.Millisecond):
			}
			t := time.Now()
			time.Sleep(time.Millisecond)
			late = append(late, int64(time.Since(t)-time.Millisecond))
		}
	}()
	return func() Lateness { close(end); return <-result }
}

func runVerb(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("truth run", flag.ContinueOnError)
	dir := fs.String("o", ".", "write to `directory`")
	fixed := fs.Bool("fix", false, "take the fault out")
	d := fs.Duration("d", 3*time.Second, "length of the load")
	seconds := fs.Float64("trace", 0, "length of the trace in seconds (0: the load's, less one second; negative: no trace)")
	procs := fs.Int("procs", 0, "GOMAXPROCS of the service (0: its own)")
	hogs := fs.Int("hogs", 0, "additional goroutines in the service's process that compute without a pause")
	gogc := fs.Int("gogc", 0, "GOGC of the service, whatever it sets itself (0: its own)")
	gone := fs.Bool("gone", false, "as -fix, and what took time takes none")
	quota := fs.Float64("quota", 0, "CPU quota of the service, in CPUs (0: its own)")
	name, err := parse(fs, args, stderr)
	if err != nil {
		return err
	}
	s, err := catalog.Find(name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*dir, 0o777); err != nil {
		return fmt.Errorf("creating the directory for results: %w", err)
	}
	out, res, rec, err := recordRun(ctx, s, startOptions{*fixed || *gone, *gone, *procs, *hogs, *gogc, *quota}, *d, *seconds, stderr)
	if err != nil {
		return err
	}
	for ext, data := range map[string][]byte{".trace": rec.trace, ".host.jsonl": rec.host} {
		if data == nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(*dir, s.Name+ext), data, 0o666); err != nil {
			return fmt.Errorf("writing the recording: %w", err)
		}
	}
	for file, v := range map[string]any{"client.json": res, "truth.json": out} {
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return fmt.Errorf("encoding %s: %w", file, err)
		}
		if err := os.WriteFile(filepath.Join(*dir, file), b, 0o666); err != nil {
			return fmt.Errorf("writing the results: %w", err)
		}
	}
	printSummary(stdout, "slow group", &out.Client)
	printSummary(stdout, "in trace", &out.Traced)
	return nil
}

// server is a service in a child process.
type server struct {
	cmd          *exec.Cmd
	stdin        io.Closer
	addrs        map[string]string
	releasePlace func() // to be called after the service has ended
}

func startServer(ctx context.Context, s *catalog.Service, options startOptions, stderr io.Writer) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	args := []string{"serve", s.Name, fmt.Sprintf("-fix=%t", options.fixed), fmt.Sprintf("-gone=%t", options.gone), fmt.Sprintf("-procs=%d", options.procs), fmt.Sprintf("-hogs=%d", options.hogs), fmt.Sprintf("-gogc=%d", options.gogc)}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = stderr
	cmd.WaitDelay = 5 * time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	leave := func() {}
	place := s.Place
	if options.fixed {
		place = nil
	}
	if options.quota > 0 {
		in := catalog.Place{}
		if place != nil {
			in = *place
		}
		in.QuotaCPUs = options.quota
		place = &in
	}
	if place != nil {
		leave, err = startInPlace(cmd, place)
	} else {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting the service: %w", err)
	}
	srv := &server{cmd, in, map[string]string{}, leave}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return srv, nil
		}
		label, addr, ok := strings.Cut(lines.Text(), " on ")
		if !ok {
			return nil, errors.Join(fmt.Errorf("the service said %q", lines.Text()), srv.stop())
		}
		srv.addrs[label] = addr
	}
	return nil, errors.Join(errors.New("the service ended before it was ready"), srv.stop())
}

func (s *server) stop() error {
	s.stdin.Close()
	defer s.releasePlace()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("the service ended badly: %w", err)
	}
	return nil
}

// startOptions are a service's options for a run.
type startOptions struct {
	fixed bool
	gone  bool // with fixed: what took time takes none
	procs int  // GOMAXPROCS; 0: the service's own
	hogs  int  // additional goroutines that compute without a pause
	gogc  int  // 0: the service's own
	quota float64
}

// recording is the recorded data of a service.
type recording struct {
	trace []byte
	host  []byte // samples of the host, for a service that has a Place
}

// recordRun runs the service and its load and fetches a trace from the middle of the run.
func recordRun(ctx context.Context, s *catalog.Service, options startOptions, loadTime time.Duration, traceSeconds float64, stderr io.Writer) (out *Outcome, res *load.Result, rec recording, err error) {
	ctx, cancel := context.WithTimeout(ctx, loadTime+2*time.Minute)
	defer cancel()
	stderr = &lockedWriter{w: stderr} // the service and the load write concurrently
	srv, err := startServer(ctx, s, options, stderr)
	if err != nil {
		return nil, nil, rec, err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()

	type loaded struct {
		res *load.Result
		err error
	}
	loads := make(chan loaded, 1)
	loadStart := time.Now()
	go func() {
		res, err := runLoad(ctx, s, srv, loadTime, stderr)
		loads <- loaded{res, err}
	}()

	out = &Outcome{Service: s, Fixed: options.fixed}
	watch := sync.OnceValue(startLatenessWatch())
	defer watch()
	if traceSeconds == 0 {
		traceSeconds = max(0.2, (loadTime - time.Second).Seconds())
	}
	if traceSeconds > 0 {
		lead := max(100*time.Millisecond, min(500*time.Millisecond, (loadTime-time.Duration(traceSeconds*1e9))/2))
		select {
		case <-time.After(lead):
		case l := <-loads:
			return nil, nil, rec, errors.Join(errors.New("the load ended before the trace began"), l.err)
		}
		if rec, err = srv.recordTrace(ctx, s.Place != nil, traceSeconds); err != nil {
			return nil, nil, rec, err
		}
		if out.TraceFrom, out.TraceTo, err = traceTimes(rec.trace); err != nil {
			return nil, nil, rec, err
		}
	}
	l := <-loads
	if l.err != nil {
		return nil, nil, rec, l.err
	}
	out.Lateness = watch()
	res = l.res
	if s.Proto == "none" {
		if err := fetchUnits(ctx, srv.addrs["pprof"], loadStart, res); err != nil {
			return nil, nil, rec, err
		}
	}
	out.Client = load.Summarize(res.Requests, func(r *load.Request) bool { return r.Slow })
	traced := func(r *load.Request) bool {
		return r.Slow && !res.Start.Add(time.Duration(r.Start)).Before(out.TraceFrom) && !res.Start.Add(time.Duration(r.End)).After(out.TraceTo)
	}
	out.Traced = load.Summarize(res.Requests, traced)
	out.Affected = load.Summarize(res.Requests, func(r *load.Request) bool { return traced(r) && r.BlamedNS >= int64(100*time.Microsecond) })
	if out.Affected.Count > 0 && !s.Truth.Unmeasured {
		out.Share = &out.Affected.Share
	}
	return out, res, rec, nil
}

// lockedWriter serializes the writes of several processes to one writer.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// runLoad runs the load generator in a child process.
func runLoad(ctx context.Context, s *catalog.Service, srv *server, d time.Duration, stderr io.Writer) (*load.Result, error) {
	if s.Proto == "none" {
		select {
		case <-time.After(d):
			return &load.Result{Proto: s.Proto}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	args := []string{"load", "-url", srv.addrs["listening"], "-proto", s.Proto, "-d", d.String(), "-json", "-requests",
		"-rest", s.Load.Rest.String(), fmt.Sprintf("-conns=%d", s.Load.Conns), fmt.Sprintf("-rate=%g", s.Load.Rate)}
	for _, p := range s.Load.Paths {
		path, name := p.Path, strings.TrimPrefix(p.Path, "/")
		if p.Listener != "" {
			addr, ok := srv.addrs[p.Listener]
			if !ok {
				return nil, fmt.Errorf("service %s has no listener %q", s.Name, p.Listener)
			}
			path, name = "http://"+addr+path, p.Listener+"/"+name
		}
		path = fmt.Sprintf("%s:%d:name=%s", path, p.Weight, name)
		if p.Slow {
			path += ":slow"
		}
		if p.Client != "" {
			path += ":client=" + p.Client
		}
		args = append(args, "-path", path)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = stderr
	cmd.WaitDelay = 5 * time.Second
	b, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running the load: %w", err)
	}
	res := new(load.Result)
	if err := json.Unmarshal(b, res); err != nil {
		return nil, fmt.Errorf("reading the load's result: %w", err)
	}
	return res, nil
}

// recordTrace fetches a trace and, with withHost, samples the host during it.
func (s *server) recordTrace(ctx context.Context, withHost bool, seconds float64) (rec recording, err error) {
	if withHost {
		sampler, err := host.Start(host.Options{PID: s.cmd.Process.Pid})
		if err != nil {
			return rec, fmt.Errorf("sampling the host: %w", err)
		}
		defer func() { rec.host = sampler.Stop().Data }()
	}
	rec.trace, err = fetchTrace(ctx, s.addrs["pprof"], seconds)
	return rec, err
}

func fetchTrace(ctx context.Context, addr string, seconds float64) ([]byte, error) {
	return fetchURL(ctx, fmt.Sprintf("http://%s/debug/pprof/trace?seconds=%g", addr, seconds))
}

// traceTimes returns the wall-clock times of a trace's first and last event. It uses the first clock snapshot for the whole
// trace, because a trace is short.
func traceTimes(data []byte) (from, to time.Time, err error) {
	r, err := trace.NewReader(bytes.NewReader(data))
	if err != nil {
		return from, to, fmt.Errorf("opening the trace: %w", err)
	}
	var first, last trace.Time
	var snap *trace.ClockSnapshot
	for n := 0; ; n++ {
		ev, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return from, to, fmt.Errorf("reading the trace: %w", err)
		}
		if ev.Kind() == trace.EventSync && snap == nil {
			snap = ev.Sync().ClockSnapshot
		}
		if n == 0 {
			first = ev.Time()
		}
		last = ev.Time()
	}
	if snap == nil {
		return from, to, errors.New("the trace has no snapshot of the wall clock")
	}
	wallTime := func(t trace.Time) time.Time { return snap.Wall.Add(time.Duration(t - snap.Trace)) }
	return wallTime(first), wallTime(last), nil
}

func fetchURL(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetching: %w", err)
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil {
		return nil, fmt.Errorf("fetching %s: %w", url, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetching %s: %s: %.200s", url, res.Status, b.Bytes())
	}
	return b.Bytes(), nil
}

// fetchUnits fetches the units of work that the service timed itself and adds them to the result as requests.
func fetchUnits(ctx context.Context, addr string, loadStart time.Time, res *load.Result) error {
	b, err := fetchURL(ctx, "http://"+addr+"/debug/truth/units")
	if err != nil {
		return err
	}
	var units []catalog.Unit
	if err := json.Unmarshal(b, &units); err != nil {
		return fmt.Errorf("reading the service's units: %w", err)
	}
	res.Start, res.ByName = loadStart, map[string]*load.Summary{}
	for _, u := range units {
		end := int64(u.End.Sub(loadStart))
		start := end - u.LatencyNS
		if start < 0 { // before the start of the load
			continue
		}
		res.Requests = append(res.Requests, load.Request{Name: u.Kind, Slow: true, Due: start, Start: start, End: end, Status: http.StatusOK, BlamedNS: u.BlamedNS})
	}
	res.All = load.Summarize(res.Requests, func(*load.Request) bool { return true })
	res.Slow = res.All
	return nil
}
