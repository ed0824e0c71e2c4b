package systemtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/flight"
)

// Limits of the shop's flight recorder.
const (
	minSlowLatency = 20 * time.Millisecond
	recordingGap   = 4 * time.Second
)

// shopRoutes has the interval between two requests of each route.
var shopRoutes = map[string]time.Duration{"order": 10 * time.Millisecond, "list": 17 * time.Millisecond, "export": 50 * time.Millisecond}

// TestSlowMoments runs a service under load and injects three faults: a lock held for 300 ms, a second of computing under a
// CPU quota, and garbage collections of a large heap. Each fault must give one recording that contains the slowest request
// completely, and explain must name the fault. A recording without a fault needs a client that was slow. The truth is the
// injected fault and the clients' clocks. The test takes five minutes; with WHYLATE_FLIGHT_ROUNDS=4 an hour, with a fault
// every five minutes.
func TestSlowMoments(t *testing.T) {
	testfull.Need(t, "a CPU cgroup and four minutes")
	rounds, faultGap, quietTime := 6, 8*time.Second, 30*time.Second
	if n, err := strconv.Atoi(os.Getenv("WHYLATE_FLIGHT_ROUNDS")); err == nil {
		rounds, faultGap, quietTime = n, 5*time.Minute-15*time.Second, 5*time.Minute
	}
	dir := t.ArtifactDir() // kept with -artifacts
	group, err := cpugroup.New(cpugroup.Options{CPUs: 64})
	if err != nil {
		t.Skip(err)
	}
	defer group.Remove()
	cmd := testchild.Command("shop " + dir)
	group.Attach(cmd)
	line, stop, err := testchild.Start(cmd)
	must.Do(t, err)
	defer stop()
	var port, control int
	if _, err := fmt.Sscan(line, &port, &control); err != nil {
		t.Fatal(line, err)
	}
	c := newShopClients(port)
	defer c.stop()
	readState := func() (s flight.State) {
		res := must.Have(http.Get(fmt.Sprintf("http://127.0.0.1:%d/debug/flight?state", control)))(t)
		defer res.Body.Close()
		must.Do(t, json.NewDecoder(res.Body).Decode(&s))
		return s
	}
	injectFault := func(name string) {
		if name == "freeze" {
			setQuota(t, group, 0.15)
			defer setQuota(t, group, 64)
			defer time.Sleep(1200 * time.Millisecond)
		}
		res := must.Have(http.PostForm(fmt.Sprintf("http://127.0.0.1:%d/fault", control), url.Values{"name": {name}}))(t)
		res.Body.Close()
	}
	time.Sleep(12 * time.Second) // until the recorder knows the usual latencies
	collected := map[string]bool{}
	// collect returns the new recordings.
	collect := func() (names []string) {
		all, _ := filepath.Glob(filepath.Join(dir, "*.whylate"))
		for _, name := range all {
			if !collected[name] {
				collected[name] = true
				names = append(names, name)
			}
		}
		return names
	}
	// withoutFreezes removes recordings of freezes without a slow request, which other processes of the machine cause.
	withoutFreezes := func(names []string) (rest []string) {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return strings.Contains(filepath.Base(name), "-"+string(flight.KindFreeze)+"-")
		})
	}
	// checkNoFault requires a slow client for each recording without an injected fault: the machine has other processes.
	checkNoFault := func(names []string, from time.Time) {
		for _, name := range withoutFreezes(names) {
			if slowest := c.slowest(from, time.Now()); slowest < minSlowLatency/2 {
				t.Errorf("%s was saved without a fault; the clients' slowest request took %v", filepath.Base(name), slowest)
			} else {
				t.Logf("%s was saved without a fault; the clients' slowest request took %v", filepath.Base(name), slowest)
			}
		}
	}
	collect()
	quietStart := time.Now()
	time.Sleep(quietTime)
	checkNoFault(collect(), quietStart)
	right := map[string]int{}
	overshadowed := 0
	for range rounds {
		for _, name := range []string{"lock", "freeze", "gc"} {
			quietStart := time.Now()
			time.Sleep(faultGap + rand.N(4*time.Second))
			checkNoFault(collect(), quietStart)
			faultTime := time.Now()
			injectFault(name)
			var names []string
			for end := time.Now().Add(15 * time.Second); len(withoutFreezes(names)) == 0 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				names = append(names, collect()...)
			}
			time.Sleep(3 * time.Second)
			names = append(names, collect()...)
			if rest := withoutFreezes(names); len(rest) < len(names) {
				t.Logf("%d recordings of freezes without a slow request", len(names)-len(rest))
				names = rest
			}
			slowest := c.slowest(faultTime, time.Now())
			if len(names) != 1 {
				t.Errorf("%s gave %d recordings; the clients' slowest took %v; the state is %+v", name, len(names), slowest, readState())
				continue
			}
			answer, err := judgeMoment(names[0], name, slowest)
			t.Logf("%s: the clients' slowest %v; %s", name, slowest.Round(time.Millisecond), answer)
			if errors.Is(err, errMachineBusy) {
				t.Logf("%s (%s): %v", name, filepath.Base(names[0]), err)
				overshadowed++
				continue
			}
			if err != nil {
				t.Errorf("%s (%s): %v", name, filepath.Base(names[0]), err)
				continue
			}
			right[name]++
		}
	}
	if overshadowed > rounds { // of 3*rounds
		t.Errorf("other processes hid %d of %d faults: run the test on an idle machine", overshadowed, 3*rounds)
	}
	t.Logf("of %d each: %v; %d hidden; the state is %+v; %d requests", rounds, right, overshadowed, readState(), c.count())
	if s := readState(); s.Failed != 0 || !s.Recording {
		t.Errorf("the state is %+v", s)
	}
	check.True(t, c.failed == nil, "a request failed: %v", c.failed)
}

// errMachineBusy reports that, by the kernel's counters in the recording, other processes had the CPUs for most of the time
// that the service wanted them. They made its requests slow, not the injected fault.
var errMachineBusy = errors.New("other processes had the CPUs")

// judgeMoment explains a recording and returns a summary of the answer, and an error if the answer is wrong.
func judgeMoment(name, fault string, slowest time.Duration) (answer string, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	b, err := bundle.New(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return "", err
	}
	r, _, err := b.Trace()
	if err != nil {
		return "", err
	}
	defer r.Close()
	rep, err := whylate.Explain(context.Background(), r, whylate.Options{})
	if err != nil {
		return "", err
	}
	reason := b.Meta().Flight.Reason
	longest := int64(0)
	for _, g := range rep.Groups {
		if g.Kind == report.KindMark && g.LatencyNS.Max != nil {
			longest = max(longest, *g.LatencyNS.Max)
		}
	}
	answer = fmt.Sprintf("%d bytes, kept because %s; longest %v", len(data), reason.Text, time.Duration(longest))
	if len(rep.Verdict) == 0 || len(rep.Verdict[0].Causes) == 0 {
		return answer, fmt.Errorf("there is no verdict")
	}
	v := rep.Verdict[0]
	answer += "; " + v.Text
	if longest < reason.DurationNS*98/100 {
		err = fmt.Errorf("the longest request in it took %v, but that which triggered it %v", time.Duration(longest), time.Duration(reason.DurationNS))
	}
	verdictWords := ""
	for _, c := range v.Causes {
		if c.InSentence {
			verdictWords += " " + string(c.Cause)
			for _, s := range c.Sites {
				verdictWords += " " + s.Site.Func
			}
		}
	}
	expected := map[string][]string{"lock": {"sleep", ".audit"}, "freeze": {"throttle"}, "gc": {"gc"}}[fault]
	for _, want := range expected {
		if !strings.Contains(verdictWords, want) && slices.ContainsFunc(rep.Findings, func(f report.Finding) bool { return f.Code == report.RuleBusyMachine && f.Share >= 0.5 }) {
			return answer, fmt.Errorf("it says %s, want %s: %w", verdictWords, want, errMachineBusy)
		}
		if !strings.Contains(verdictWords, want) {
			return answer, fmt.Errorf("it says %s, want %s", verdictWords, want)
		}
	}
	return answer, err
}

// setQuota changes a group's quota while its processes run.
func setQuota(t *testing.T, g *cpugroup.Group, cpus float64) {
	t.Helper()
	quota := int(cpus * 1e5)
	if os.WriteFile(filepath.Join(g.Dir, "cpu.cfs_quota_us"), fmt.Append(nil, quota), 0) == nil {
		return
	}
	must.Do(t, os.WriteFile(filepath.Join(g.Dir, "cpu.max"), fmt.Append(nil, quota, " 100000"), 0))
}

// shopClients request each route at fixed intervals and store the slow requests.
type shopClients struct {
	cancel   context.CancelFunc
	done     sync.WaitGroup
	mu       sync.Mutex
	requests int
	slow     []slowRequest
	failed   error
}

type slowRequest struct {
	end  time.Time
	took time.Duration
}

func newShopClients(port int) *shopClients {
	ctx, cancel := context.WithCancel(context.Background())
	c := &shopClients{cancel: cancel}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	for route, interval := range shopRoutes {
		target := fmt.Sprintf("http://127.0.0.1:%d/%s", port, route)
		c.done.Go(func() {
			tick := time.NewTicker(interval)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				c.done.Go(func() {
					c.ask(ctx, client, target)
				})
			}
		})
	}
	return c
}

func (c *shopClients) ask(ctx context.Context, client *http.Client, target string) {
	began := time.Now()
	q, err := http.NewRequestWithContext(ctx, "GET", target, nil)
	if err == nil {
		var res *http.Response
		if res, err = client.Do(q); err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}
	took := time.Since(began)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	if took > minSlowLatency/4 {
		c.slow = append(c.slow, slowRequest{time.Now(), took})
	}
	if err != nil && ctx.Err() == nil {
		c.failed = err
	}
}

// slowest returns the latency of the slowest request that ended between two times.
func (c *shopClients) slowest(from, to time.Time) (d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.slow {
		if s.end.After(from) && s.end.Before(to) {
			d = max(d, s.took)
		}
	}
	return d
}

func (c *shopClients) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

func (c *shopClients) stop() {
	c.cancel()
	c.done.Wait()
}
