// Package healthcheck is the story of a TCP health checker whose connects took 40 ms where a C program's took a few: the more
// targets, the worse, by bursts of its own making and by garbage that debug messages and metrics left.
package healthcheck

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/stories/stage"
)

// quota is the container's limit in CPUs. The incident's service had the host's CPUs as Ps in a part of them.
const quota = 1.5

type arm struct {
	name     string
	targets  int
	args     []string
	env      []string
	expected stage.Place
}

// Faults of the incident.
var (
	together = []string{"-together"}
	garbage  = []string{"-format", "-labels"}
	many     = []string{"GOMAXPROCS=8"} // Ps beyond the quota
)

// Run tells the story: the checker as it was for more and more targets, then one step of the fix after the other.
func Run(ctx context.Context, s *stage.Stage) (*stage.Result, error) {
	checker, err := s.BuildHere(ctx, "healthcheck/checker")
	if err != nil {
		return nil, err
	}
	targets, err := s.BuildHere(ctx, "healthcheck/targets")
	if err != nil {
		return nil, err
	}
	ports, err := freeport.Find(2)
	if err != nil {
		return nil, err
	}
	if _, err := s.Start(ctx, stage.Program{
		Name: "the targets", Ready: "127.0.0.1:" + ports[0],
		Args: []string{targets, "-steady", ports[0], "-flapping", ports[1]},
	}); err != nil {
		return nil, err
	}
	off := []string{"WHYLATE_GOMAXPROCS=off"}
	all := append(append([]string{}, together...), garbage...)
	bad := append(append([]string{}, many...), off...)
	burst := stage.Place{Code: "WL1004", Site: `main\.\(\*checker\)`}
	// The collector is on the path, and the line that makes the garbage is named.
	collector := stage.Place{Code: "WL3001", Site: `main\.\(\*checker\)\.(debug|report|check) `}
	arms := []arm{
		{"1 target", 1, all, bad, stage.Place{}},
		{"100 targets", 100, all, bad, burst},
		{"1,000 targets", 1000, all, bad, burst},
		{"before", 10_000, all, bad, collector},
		{"no debug messages", 10_000, append(append([]string{}, together...), "-labels"), bad, collector},
		{"counters as metrics", 10_000, together, bad, burst},
		{"GOGC 500", 10_000, together, append([]string{"GOGC=500"}, bad...), burst},
		{"Ps by the quota", 10_000, together, []string{"GOGC=500"}, burst},
		{"after", 10_000, nil, []string{"GOGC=500"}, stage.Place{}},
	}
	r := &stage.Result{Story: "healthcheck", Versions: map[string]string{}, Published: 40. / 8}
	for _, a := range arms {
		if s.Short && a.name != "before" && a.name != "after" {
			continue
		}
		got, err := one(ctx, s, checker, ports, a)
		if err != nil {
			return nil, err
		}
		r.Arms = append(r.Arms, got)
	}
	r.Compare("before", "after", stage.P50)
	return r, nil
}

// one runs the checker in one way. Its own clock measures connects: what its time-out is judged by.
func one(ctx context.Context, s *stage.Stage, checker string, ports []string, a arm) (stage.Arm, error) {
	dir, err := s.Temp("checker")
	if err != nil {
		return stage.Arm{}, err
	}
	list := filepath.Join(dir, "targets.txt")
	if err := os.WriteFile(list, addresses(a.targets, ports), 0o666); err != nil {
		return stage.Arm{}, err
	}
	own, err := freeport.Find(1)
	if err != nil {
		return stage.Arm{}, err
	}
	address := "127.0.0.1:" + own[0]
	server, err := s.Start(ctx, stage.Program{
		Name: "the checker, " + a.name, Ready: "http://" + address + "/metrics", Quota: quota, Env: a.env,
		Args: append([]string{checker, "-listen", address, "-targets", list, "-journal", filepath.Join(dir, "journal")}, a.args...),
	})
	if err != nil {
		return stage.Arm{}, err
	}
	defer server.Stop()
	long := 9 * time.Second
	if !s.Short {
		long = 15 * time.Second
	}
	time.Sleep(4 * time.Second) // the first round
	first, err := histogram(ctx, address)
	if err != nil {
		return stage.Arm{}, err
	}
	file, err := s.Record(ctx, "healthcheck-"+strings.ReplaceAll(a.name, " ", "-"), address, long)
	if err != nil {
		return stage.Arm{}, err
	}
	last, err := histogram(ctx, address)
	if err != nil {
		return stage.Arm{}, err
	}
	if err := server.Stop(); err != nil {
		return stage.Arm{}, err
	}
	got, err := s.Judge(ctx, a.name, file, a.expected)
	got.P50NS, got.P99NS, got.Requests = last.since(first)
	return got, err
}

// addresses returns n distinct loopback addresses, one in a hundred with the port that refuses at times.
func addresses(n int, ports []string) []byte {
	var b []byte
	for i := range n {
		port := ports[0]
		if i%100 == 99 {
			port = ports[1]
		}
		b = fmt.Appendf(b, "127.%d.%d.%d:%s\n", 1+i/(250*250), i/250%250, 1+i%250, port)
	}
	return b
}

// counts are a histogram of Prometheus: how many took at most so long.
type counts struct {
	le []float64 // s
	n  []int64
}

func histogram(ctx context.Context, address string) (c counts, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return c, err
	}
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), `check_seconds_bucket{le="`)
		if !ok {
			continue
		}
		le, n, ok := strings.Cut(text, `"} `)
		if !ok || le == "+Inf" {
			continue
		}
		bound, err := strconv.ParseFloat(le, 64)
		if err != nil {
			return c, err
		}
		count, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			return c, err
		}
		c.le, c.n = append(c.le, bound), append(c.n, count)
	}
	return c, lines.Err()
}

// at returns how many took at most le seconds.
func (c counts) at(le float64) (n int64) {
	for i, b := range c.le {
		if b <= le {
			n = c.n[i]
		}
	}
	return n
}

// since returns the median, the 99th percentile (upper bounds of buckets, in ns) and the number of what came after first.
func (c counts) since(first counts) (p50, p99, n int64) {
	if len(c.n) == 0 {
		return 0, 0, 0
	}
	n = c.n[len(c.n)-1] - first.at(c.le[len(c.le)-1])
	for i, le := range c.le {
		below := c.n[i] - first.at(le)
		if p50 == 0 && 2*below >= n {
			p50 = int64(1e9 * le)
		}
		if p99 == 0 && 100*below >= 99*n {
			p99 = int64(1e9 * le)
		}
	}
	return p50, p99, n
}
