package sweep

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/experiment/guard"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/output/words"
)

// owner is the prefix of the names of a sweep's cgroups.
const owner = "whylate-sweep"

// A runningService is a started service with one or more instances.
type runningService struct {
	instances []*instance
	targets   []load.Target
	pprof     string
}

// startService starts the instances of an arm's service one after the other and waits until each is ready. The caller must stop the result, also
// after an error.
func (s *sweeper) startService(ctx context.Context, arm Settings) (*runningService, error) {
	u := &runningService{}
	n := 1
	if v := arm.Get(Instances); v != "" {
		n, _ = strconv.Atoi(v)
	}
	quota, _ := strconv.ParseFloat(arm.Get(Quota), 64)
	memory := int64(0)
	if v := arm.Get(Memory); v != "" {
		memory, _ = words.ParseBytes(v)
	}
	if !s.hasGroups {
		quota, memory = 0, 0
	}
	for i := range n {
		port := ""
		if slices.ContainsFunc(append(slices.Clone(s.options.Command), s.options.Load.Targets[0].URL), func(a string) bool { return strings.Contains(a, "{port}") }) {
			ports, err := freeport.Find(1)
			if err != nil {
				return u, err
			}
			port = ports[0]
		}
		fill := strings.NewReplacer("{port}", port, "{instance}", strconv.Itoa(i)).Replace
		var args []string
		for _, a := range s.options.Command {
			args = append(args, fill(a))
		}
		for deadline := time.Now().Add(5 * time.Second); port == "" && isListening(s.options.Load.Targets[0].URL); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) || ctx.Err() != nil {
				return u, fmt.Errorf("a process of the previous run still listens at %s", redactURL(s.options.Load.Targets[0].URL))
			}
		}
		in, err := s.startInstance(args, environment(s.options.Env, arm), quota/float64(n), memory/int64(n))
		if err != nil {
			return u, err
		}
		u.instances = append(u.instances, in)
		for _, t := range s.options.Load.Targets {
			t.URL = fill(t.URL)
			u.targets = append(u.targets, t)
		}
		ready := u.targets[len(u.targets)-len(s.options.Load.Targets)].URL
		if i == 0 {
			if u.pprof = fill(s.options.PprofURL); u.pprof == "" {
				u.pprof = origin(ready)
			}
		}
		if s.options.ReadyURL != "" {
			ready = fill(s.options.ReadyURL)
		}
		if err := in.waitUntilReady(ctx, ready, s.options.ReadyTimeout); err != nil {
			return u, err
		}
	}
	return u, nil
}

// stop stops all instances and returns their errors.
func (u *runningService) stop() error {
	var errs []error
	for _, in := range u.instances {
		errs = append(errs, in.stop())
	}
	return errors.Join(errs...)
}

// origin returns the scheme and host of a URL; other text unchanged.
func origin(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Scheme + "://" + u.Host
	}
	return address
}

// redactURL returns a URL with its password masked; "the URL" for other text.
func redactURL(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return "the URL"
}

// environment returns base with an arm's environment variables, and with GODEBUG=gctrace=1 added, by which the sweep counts collections.
func environment(base []string, arm Settings) []string {
	env := slices.Clone(base)
	debug := "gctrace=1"
	for _, e := range base {
		if v, ok := strings.CutPrefix(e, "GODEBUG="); ok && v != "" {
			debug = v + ",gctrace=1"
		}
	}
	for _, x := range arm {
		switch x.Name {
		case GOMAXPROCS, GOGC, GOMEMLIMIT:
			env = append(env, strings.ToUpper(x.Name)+"="+x.Value)
		case Quota, Memory, Instances, Rate, LoadShare:
		default:
			env = append(env, x.Name+"="+x.Value)
			if x.Name == "GODEBUG" {
				debug = x.Value + ",gctrace=1"
			}
		}
	}
	return append(env, "GODEBUG="+debug)
}

// checkAlive returns an error if an instance has ended.
func (u *runningService) checkAlive() error {
	for _, in := range u.instances {
		if text := in.process.ExitText(); text != "" {
			if in.group != nil && in.group.OOMKills() > 0 {
				text += ", out of memory"
			}
			return fmt.Errorf("the service ended during the run (%s)%s", text, in.output.lastLines())
		}
	}
	return nil
}

// An instance is one process of the service, with its descendants.
type instance struct {
	process *guard.Process
	output  *output
	group   *cpugroup.Group
}

// startInstance starts one instance in a control group with a quota (in CPUs) and a memory limit (in bytes), 0 for none. The
// caller must stop it.
func (s *sweeper) startInstance(args, env []string, quota float64, memory int64) (_ *instance, err error) {
	in := &instance{output: new(output)}
	c := guard.Command{Args: args, Env: env, CPUs: s.cpus, RemoveGroup: true}
	if quota > 0 || memory > 0 || s.hasGroups {
		if in.group, err = cpugroup.New(cpugroup.Options{Parent: s.parentGroup, CPUs: quota, Memory: memory, CountUsage: true, HighWeight: s.hasOwnCPUs, Owner: owner}); err != nil {
			return nil, err
		}
		c.GroupDirs = in.group.Dirs()
	}
	if in.process, err = guard.Start(s.options.Guard(), c, in.output.addLine); err != nil {
		if in.group != nil {
			err = errors.Join(err, in.group.KillAndRemove())
		}
		return nil, fmt.Errorf("starting the service: %w%s", err, in.output.lastLines())
	}
	return in, nil
}

// stop kills the instance and its descendants.
func (in *instance) stop() error {
	err := in.process.Stop()
	if in.group != nil { // the guard removes the cgroup, unless it was killed
		return in.group.KillAndRemove()
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, in.output.lastLines())
	}
	return nil
}

// waitUntilReady waits until the service answers a request for the URL with a status below 500. It fails after the timeout, or when the instance
// ends.
func (in *instance) waitUntilReady(ctx context.Context, address string, timeout time.Duration) error {
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
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		last = err
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case in.process.ExitText() != "":
			return fmt.Errorf("the service ended before it was ready (%s)%s", in.process.ExitText(), in.output.lastLines())
		case time.Now().After(deadline):
			return fmt.Errorf("the service was not ready within %v: %v%s; is --url right, or does it need a longer --ready-timeout?", timeout, last, in.output.lastLines())
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// isListening reports whether a TCP connection to the host and port of a URL succeeds within a second.
func isListening(address string) bool {
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
