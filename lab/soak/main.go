// Command soak runs a service with the flight recorder under load for a long time, injects a fault each minute, and checks
// what docs/flight.md promises: every fault is recorded, memory stays constant, the cost is within the budget, and nothing
// remains after Stop.
//
//	go run ./lab/soak -d 1h -rate 5000
//
// An interrupt ends it early, with the results until then. The service is this program in a child process, with everything
// that service.Start starts. The clients and a collector of recordings run here. The collector fails at times: 500, 503 with
// Retry-After, 422. Its recordings are the evidence: a fault is recorded if a recording arrived that names a request at its
// time with its latency. Exit status 1 means that a check failed.
package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/service/flight"
)

func main() {
	duration := flag.Duration("d", time.Hour, "time to run")
	rate := flag.Float64("rate", 5000, "requests a second")
	faultInterval := flag.Duration("every", time.Minute, "time between two faults")
	child := flag.Bool("service", false, "run the service")
	collector := flag.String("collector", "", "URL of the collector, for the service")
	dir := flag.String("dir", "", "directory for recordings, for the service")
	flag.Parse()
	var err error
	if *child {
		err = serveUntilEOF(*dir, *collector)
	} else {
		err = soakService(*duration, *rate, *faultInterval)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// A fault is a fault injected into the service, and its time.
type fault struct {
	name     string
	from, to time.Time
	recorded bool
	slowest  time.Duration // by the clients
}

// A run is one execution of the soak.
type run struct {
	mu             sync.Mutex
	faults         []*fault
	arrived        map[string]bool // recordings, by id
	uploadRequests int             // requests of the uploader
	sent           atomic.Uint64
	failed         atomic.Uint64
	serviceURL     string // the service's
	client         *http.Client
	lastError      string
}

func soakService(duration time.Duration, rate float64, faultInterval time.Duration) error {
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &run{arrived: make(map[string]bool), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(ln, http.HandlerFunc(r.collect))
	defer ln.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-service", "-dir", dir, "-collector", "http://"+ln.Addr().String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return errors.New("the service did not start")
	}
	r.serviceURL = lines.Text()

	began := time.Now()
	end := began.Add(duration)
	var workGroup sync.WaitGroup
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for i := range workers {
		workGroup.Go(func() { r.sendRequests(ctx, i, began, rate) })
	}
	workGroup.Go(func() { r.injectFaults(ctx, began, end, faultInterval) })
	var samples []sample
	for next := began.Add(10 * time.Second); sleepUntil(ctx, next); next = next.Add(5 * time.Second) {
		s, err := r.sample()
		if err != nil {
			return err
		}
		samples = append(samples, s)
		if len(samples)%12 == 0 {
			r.printProgress(began, s)
		}
	}
	workGroup.Wait()
	end = time.Now()
	// Wait for uploads and for recordings that are still to be written.
	var last sample
	for wait := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		if last, err = r.sample(); err != nil {
			return err
		}
		if u := last.State.Upload; u.Waiting == 0 && time.Since(end) > 10*time.Second || time.Now().After(wait) {
			break
		}
	}
	_ = in.Close()
	var leftovers leftover
	if !lines.Scan() {
		return errors.New("the service ended without a result")
	}
	if err := json.Unmarshal(lines.Bytes(), &leftovers); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the service: %w", err)
	}
	return r.judge(began, samples, last, leftovers, end.Sub(began), rate)
}

// sleepUntil sleeps until the deadline. It returns false if ctx ended before.
func sleepUntil(ctx context.Context, deadline time.Time) bool {
	select {
	case <-time.After(time.Until(deadline)):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

const workers = 64

// sendRequests sends one worker's share of the requests, each when it is due. A worker that is more than a second late skips
// requests.
func (r *run) sendRequests(ctx context.Context, i int, began time.Time, rate float64) {
	interval := time.Duration(workers / rate * float64(time.Second))
	for due := began.Add(interval * time.Duration(i) / workers); ctx.Err() == nil; due = due.Add(interval) {
		delay := -time.Until(due)
		if delay < 0 {
			time.Sleep(-delay)
		} else if delay > time.Second {
			continue
		}
		path := "/list"
		if i%8 == 0 {
			path = "/order"
		}
		start := time.Now()
		err := r.get(path, nil)
		if err != nil {
			r.failed.Add(1)
			r.mu.Lock()
			r.lastError = err.Error()
			r.mu.Unlock()
		}
		r.sent.Add(1)
		if took := time.Since(start); took > slowThreshold {
			r.mu.Lock()
			for _, f := range r.faults {
				if start.Before(f.to) && start.Add(took).After(f.from) {
					f.slowest = max(f.slowest, took)
				}
			}
			r.mu.Unlock()
		}
	}
}

func (r *run) get(path string, into any) error {
	res, err := r.client.Get(r.serviceURL + path)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, res.Status)
	}
	if into != nil {
		return json.NewDecoder(res.Body).Decode(into)
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// injectFaults injects a fault after each interval.
func (r *run) injectFaults(ctx context.Context, began, end time.Time, interval time.Duration) {
	for n := 1; ; n++ {
		faultTime := began.Add(time.Duration(n)*interval - interval/2)
		if faultTime.After(end.Add(-15 * time.Second)) {
			return
		}
		if !sleepUntil(ctx, faultTime) {
			return
		}
		f := &fault{name: faults[n%len(faults)], from: time.Now(), to: time.Now().Add(5 * time.Second)}
		r.mu.Lock()
		r.faults = append(r.faults, f)
		r.mu.Unlock()
		if err := r.get("/fault?name="+f.name, nil); err != nil {
			r.failed.Add(1)
		}
	}
}

// collect is the handler of the collector.
func (r *run) collect(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.uploadRequests++
	n := r.uploadRequests
	r.mu.Unlock()
	switch {
	case n%7 == 0:
		w.WriteHeader(http.StatusInternalServerError)
		return
	case n%11 == 0:
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	named, err := triggers(q.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrived[q.Header.Get("Whylate-Recording-Id")] = true
	for _, t := range named {
		for _, f := range r.faults {
			if t.Route == "GET /order" && time.Duration(t.TookNS) >= slowThreshold && t.At.After(f.from) && t.At.Before(f.to) {
				f.recorded = true
			}
		}
	}
	if n%13 == 0 {
		w.WriteHeader(http.StatusUnprocessableEntity) // refuses the recording
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// triggers returns the triggers of a recording.
func triggers(body io.Reader) ([]flight.Trigger, error) {
	z, err := gzip.NewReader(body)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(z, 256<<20))
	if err != nil {
		return nil, err
	}
	b, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	if t, err := b.Open("trace"); err != nil {
		return nil, err
	} else if _, err := io.Copy(io.Discard, t); err != nil { // it must be complete
		return nil, err
	}
	f, err := b.Open("meta.json")
	if err != nil {
		return nil, err
	}
	var m struct {
		Flight struct {
			Reason flight.Trigger   `json:"reason"`
			Also   []flight.Trigger `json:"also"`
		} `json:"flight"`
	}
	err = json.NewDecoder(f).Decode(&m)
	return append(m.Flight.Also, m.Flight.Reason), err
}

func (r *run) sample() (s sample, err error) {
	err = r.get("/sample", &s)
	return s, err
}

func (r *run) printProgress(began time.Time, s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	recorded := 0
	for _, f := range r.faults {
		if f.recorded {
			recorded++
		}
	}
	st := &s.State
	fmt.Printf("%6s  %9d requests  %3d faults, %3d recorded  %3d kept, %d failed  RSS %.1f MB, live heap %.1f MB, %d goroutines, %d files  cost %.2f %% by %s, duty %.2f, own %.3f %%\n",
		time.Since(began).Round(time.Second), r.sent.Load(), len(r.faults), recorded, st.Kept, st.Failed, megabytes(s.RSS), megabytes(s.Live), s.Goroutines, s.Files, 100*st.Cost, st.CostFrom, st.Duty, 100*st.OwnCost)
}

func megabytes(n uint64) float64 { return float64(n) / 1e6 }

// judge prints the outcome and returns the failed checks as an error.
func (r *run) judge(began time.Time, samples []sample, last sample, leftovers leftover, elapsed time.Duration, rate float64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var problems []string
	check := func(ok bool, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		fmt.Println(text)
		if !ok {
			problems = append(problems, text)
		}
	}
	st := &last.State
	n := float64(r.sent.Load())
	check(r.failed.Load() == 0, "%.0f requests in %v, %.0f a second, %.1f %% of the requested rate; %d failed %s", n, elapsed, n/elapsed.Seconds(), 100*n/(rate*elapsed.Seconds()), r.failed.Load(), r.lastError)
	recorded, affected := 0, 0
	for _, f := range r.faults {
		switch {
		case f.recorded:
			recorded++
		case f.slowest > 0:
			fmt.Printf("not recorded: %s at %v; the clients' slowest %v\n", f.name, f.from.Sub(began).Round(time.Second), f.slowest)
		}
		if f.recorded || f.slowest > 0 {
			affected++
		}
	}
	check(recorded == len(r.faults), "%d faults, %d of them affected requests, %d recorded", len(r.faults), affected, recorded)
	// In the first quarter, the ring, routes and connections grow.
	quarter := len(samples) / 4
	for _, m := range []struct {
		name  string
		value func(*sample) uint64
	}{{"RSS", func(s *sample) uint64 { return s.RSS }}, {"live heap", func(s *sample) uint64 { return s.Live }}} {
		second, fourth := median(samples[quarter:2*quarter], m.value), median(samples[3*quarter:], m.value)
		change := fourth/second - 1
		check(math.Abs(change) <= 0.05, "%s: %.1f MB in the second quarter, %.1f MB in the fourth (medians): %+.1f %%", m.name, second/1e6, fourth/1e6, 100*change)
	}
	cost, ownCost, duty := 0., 0., 0.
	for i := range samples {
		if samples[i].State.Recording {
			cost += samples[i].State.Cost / float64(len(samples))
			duty += 1 / float64(len(samples))
		}
		ownCost += samples[i].State.OwnCost / float64(len(samples))
	}
	check(cost <= st.Budget && ownCost <= 0.002, "the recorder cost %.2f %% of the CPUs by %s (budget %.0f %%), and ran %.1f %% of the time; its own part %.3f %%; the service used %.1f %% of a CPU",
		100*cost, st.CostFrom, 100*st.Budget, 100*duty, 100*ownCost, 100*(last.CPU-samples[0].CPU).Seconds()/last.Time.Sub(samples[0].Time).Seconds())
	u := st.Upload
	check(st.Failed == 0 && u.Waiting == 0 && u.Sent+u.Refused == st.Kept && uint64(len(r.arrived)) == st.Kept,
		"%d recordings kept, %d failed; %d triggers, %d in no recording; uploads: %d sent, %d refused, %d attempts failed, %d wait, %d different ones arrived",
		st.Kept, st.Failed, sum(st.Triggers), sum(st.Missed), u.Sent, u.Refused, u.Failed, u.Waiting, len(r.arrived))
	check(leftovers.Goroutines <= 0 && leftovers.Files <= 0 && len(leftovers.Parts) == 0 && leftovers.Disk <= maxDisk,
		"after Stop: %d goroutines more than before, %d open files more, half written %v, %.1f MB in the folder", leftovers.Goroutines, leftovers.Files, leftovers.Parts, float64(leftovers.Disk)/1e6)
	if len(problems) > 0 {
		return fmt.Errorf("failed checks:\n\t%s", strings.Join(problems, "\n\t"))
	}
	return nil
}

func median(samples []sample, value func(*sample) uint64) float64 {
	var v []uint64
	for i := range samples {
		v = append(v, value(&samples[i]))
	}
	slices.Sort(v)
	if len(v) == 0 {
		return 0
	}
	return float64(v[len(v)/2])
}

func sum(m map[flight.Kind]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

func dirSize(dir string) (n int64) {
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			n += info.Size()
		}
	}
	return n
}
