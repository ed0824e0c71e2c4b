package sweep

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/guard"
	"github.com/whylate/whylate/internal/output/termtext"
)

// owner begins the names of a sweep's cgroups.
const owner = "whylate-sweep"

// An instance is one process of the service, with all that it starts.
type instance struct {
	process *guard.Process
	output  *output
	group   *cpugroup.Group
}

// start starts the service. The caller must stop it.
func (s *sweeper) start(args, env []string, quota float64, memory int64) (_ *instance, err error) {
	in := &instance{output: new(output)}
	c := guard.Command{Args: args, Env: env, CPUs: s.cpus, Remove: true}
	if quota > 0 || memory > 0 || s.canGroup {
		if in.group, err = cpugroup.New(cpugroup.Options{Above: s.above, CPUs: quota, Memory: memory, Usage: true, Heavy: s.apart, Owner: owner}); err != nil {
			return nil, err
		}
		c.Groups = in.group.Dirs()
	}
	if in.process, err = guard.Start(s.o.Guard(), c, in.output.add); err != nil {
		if in.group != nil {
			err = errors.Join(err, in.group.End())
		}
		return nil, fmt.Errorf("starting the service: %w%s", err, in.output.tail())
	}
	return in, nil
}

// stop kills the service and everything that it started.
func (in *instance) stop() error {
	err := in.process.Stop()
	if in.group != nil { // the guard has removed it, unless it was killed itself
		return in.group.End()
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, in.output.tail())
	}
	return nil
}

// ready waits until the service answers at a URL with anything but a server's error.
func (in *instance) ready(ctx context.Context, address string, timeout time.Duration) error {
	client := wire.Client(&http.Transport{DisableKeepAlives: true})
	client.Timeout = 2 * time.Second
	deadline := time.Now().Add(timeout)
	var last error
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode < 500 {
				return nil
			}
			err = errors.New(resp.Status)
		}
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		last = err
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case in.process.Ended() != "":
			return fmt.Errorf("the service ended before it was ready (%s)%s", in.process.Ended(), in.output.tail())
		case time.Now().After(deadline):
			return fmt.Errorf("the service was not ready within %v: %v%s; is --url right, or does it need a longer --ready-timeout?", timeout, last, in.output.tail())
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// inUse tells whether somebody listens where a URL leads.
func inUse(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	c, err := net.DialTimeout("tcp", net.JoinHostPort(u.Hostname(), wire.Port(u)), time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// output is what the service printed: its last lines, and the runtime's lines about its collections.
type output struct {
	mu    sync.Mutex
	lines []string
	gc    bool
	gcs   int64
	gcCPU int64 // ns
}

// add takes a line.
func (o *output) add(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cpu, ok := parseGC(line); ok {
		o.gc = true
		o.gcs++
		o.gcCPU += cpu
	} else if o.lines = append(o.lines, line); len(o.lines) > 5 {
		o.lines = o.lines[1:]
	}
}

// tail returns the last lines for an error, "" if there are none.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(strings.Join(o.lines, " / "))
	if text == "" {
		return ""
	}
	return "; its last output: " + termtext.Head(text, 300)
}

// parseGC reads a line of GODEBUG=gctrace=1 and returns the collection's CPU time in ns, without that of idle Ps (package
// runtime, "Environment Variables"): gc # @#s #%: #+#+# ms clock, #+#/#/#+# ms cpu, ...
func parseGC(line string) (int64, bool) {
	if !strings.HasPrefix(line, "gc ") {
		return 0, false
	}
	_, rest, ok := strings.Cut(line, " ms clock, ")
	if !ok {
		return 0, false
	}
	cpu, _, ok := strings.Cut(rest, " ms cpu")
	if !ok {
		return 0, false
	}
	sum := 0.0
	for _, part := range strings.Split(cpu, "+") {
		for i, v := range strings.Split(part, "/") {
			ms, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return 0, false
			}
			if i < 2 {
				sum += ms
			}
		}
	}
	return int64(sum * 1e6), true
}

// counters are what the kernel counts of a service, since it began.
type counters struct {
	cpu, switches   int64
	gcs, gcCPU      int64
	gc, grouped     bool
	stat            cpugroup.Stat
	memory, threads int64 // now
	peak            int64
	oom             int64
}

// procs returns the service's processes.
func (in *instance) procs() []int {
	if in.group != nil {
		return in.group.Procs()
	}
	return in.process.Procs()
}

// counters reads the counters. light leaves out what costs a look at every thread.
func (in *instance) counters(light bool) (c counters) {
	ticks := int64(0)
	pids := in.procs()
	for _, pid := range pids {
		p, ok := cpugroup.ProcessOf(pid)
		if !ok {
			continue
		}
		ticks += p.Number(14) + p.Number(15) // user and system
		c.threads += p.Number(20)
		c.memory += p.Number(24) * int64(os.Getpagesize())
		if light {
			continue
		}
		dir := "/proc/" + strconv.Itoa(pid)
		for _, line := range status(dir + "/status") {
			if line[0] == "VmHWM" {
				kb, _, _ := strings.Cut(line[1], " ")
				n, _ := strconv.ParseInt(kb, 10, 64)
				c.peak += n << 10
			}
		}
		tasks, _ := filepath.Glob(dir + "/task/*/status")
		for _, t := range tasks {
			for _, line := range status(t) {
				if strings.HasSuffix(line[0], "_ctxt_switches") {
					n, _ := strconv.ParseInt(line[1], 10, 64)
					c.switches += n
				}
			}
		}
	}
	if light {
		return c
	}
	c.cpu = ticks * 10e6 // USER_HZ is 100 on all that Go runs on
	if in.group != nil {
		if used, err := in.group.CPUTime(); err == nil {
			c.cpu = int64(used)
		}
		if st, err := cpugroup.ReadStat(in.group.Dir); err == nil {
			c.stat, c.grouped = st, true
		}
		c.oom = in.group.OOMKills()
	}
	in.output.mu.Lock()
	defer in.output.mu.Unlock()
	c.gc, c.gcs, c.gcCPU = in.output.gc, in.output.gcs, in.output.gcCPU
	return c
}

// status returns the lines "name: value" of a file.
func status(name string) (lines [][2]string) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			lines = append(lines, [2]string{k, strings.TrimSpace(v)})
		}
	}
	return lines
}
