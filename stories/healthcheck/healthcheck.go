// Package healthcheck is the story of a TCP health checker whose connects took 40 ms where a C program's took a few: more with
// more targets, because of its own bursts and of the garbage of debug messages and metrics.
package healthcheck

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
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
	full     bool // only in full runs
	// from is the arm whose recording predicts the effect of this arm's change, by whatIf; "" for none.
	from   string
	whatIf []string
	halves bool // two processes with half of targets and quota each
}

// Faults of the incident.
var (
	burstFlags   = []string{"-together"}
	garbageFlags = []string{"-format", "-labels"}
	manyPs       = []string{"GOMAXPROCS=8"} // Ps beyond the quota
)

// A run has the measurements of an arm.
type run struct {
	arm
	stage.Arm
	file        string        // its recording
	cpuPerCheck time.Duration // CPU time of a check
}

// Run runs the original checker for more and more targets, then one step of the fix after the other, and HAProxy with the same
// targets.
func Run(ctx context.Context, s *stage.Stage) (*stage.Result, error) {
	var p programs
	var err error
	if p.checker, err = s.BuildHere(ctx, "healthcheck/checker"); err != nil {
		return nil, err
	}
	targets, err := s.BuildHere(ctx, "healthcheck/targets")
	if err != nil {
		return nil, err
	}
	if p.ports, err = freeport.Find(2); err != nil {
		return nil, err
	}
	if _, err := s.Start(ctx, stage.Program{
		Name: "the targets", Ready: "127.0.0.1:" + p.ports[0],
		Args: []string{targets, "-steady", p.ports[0], "-flapping", p.ports[1]},
	}); err != nil {
		return nil, err
	}
	off := []string{"WHYLATE_GOMAXPROCS=off"}
	all := slices.Concat(burstFlags, garbageFlags)
	bad := slices.Concat(manyPs, off)
	burst := stage.Place{Code: "WL1004", Site: `main\.\(\*checker\)`}
	// Both are right as the first finding: all checks start together, or the garbage collector is on their path, at the lines
	// that make the garbage. Which costs more differs from run to run, and the collector's share is at the limit of
	// a finding: on two CPUs it is one in some of the runs only.
	burstOrGC := stage.Place{Code: burst.Code + "|WL3001", Site: `main\.\(\*checker\)\.(debug|report|check) `}
	// With more Ps than the quota, threads that wait for each other are a third one, without a site.
	withManyPs := stage.Place{Code: burstOrGC.Code + "|WL1005", Site: `^$|` + burstOrGC.Site}
	// A small burst takes some milliseconds on an idle machine: a finding about it is allowed, but not required.
	smallBurst := stage.Place{Code: "|" + withManyPs.Code, Site: withManyPs.Site}
	gogc := func(n int) arm {
		set := fmt.Sprintf("GOGC=%d", n)
		return arm{name: fmt.Sprintf("GOGC %d", n), targets: 10_000, args: burstFlags, env: slices.Concat([]string{set}, bad), expected: withManyPs, full: true, from: "counters as metrics", whatIf: []string{set}}
	}
	arms := []arm{
		{name: "1 target", targets: 1, args: all, env: bad, full: true},
		{name: "100 targets", targets: 100, args: all, env: bad, expected: smallBurst, full: true},
		{name: "1,000 targets", targets: 1000, args: all, env: bad, expected: smallBurst, full: true},
		{name: "before", targets: 10_000, args: all, env: bad, expected: withManyPs},
		{name: "two processes", targets: 10_000, args: all, env: bad, expected: withManyPs, full: true, halves: true},
		{name: "no debug messages", targets: 10_000, args: slices.Concat(burstFlags, []string{"-labels"}), env: bad, expected: withManyPs, full: true, from: "before", whatIf: []string{"(*checker).debug=gone"}},
		{name: "counters as metrics", targets: 10_000, args: burstFlags, env: bad, expected: withManyPs, full: true, from: "no debug messages", whatIf: []string{"(*checker).report=gone"}},
		gogc(200), gogc(500), gogc(1000),
		{name: "Ps by the quota", targets: 10_000, args: burstFlags, env: []string{"GOGC=500"}, expected: burstOrGC, full: true, from: "GOGC 500", whatIf: []string{"GOMAXPROCS=2"}},
		{name: "after", targets: 10_000, env: []string{"GOGC=500"}},
	}
	r := &stage.Result{Story: "healthcheck", Versions: map[string]string{}, Published: 40. / 8}
	var runs []*run
	for _, a := range arms {
		if !s.Wants(a.name, a.full) {
			continue
		}
		if s.Healthy {
			a.args, a.env = nil, []string{"GOGC=500"}
		}
		got, err := runArm(ctx, s, &p, a)
		if err != nil {
			return nil, err
		}
		runs, r.Arms = append(runs, got), append(r.Arms, got.Arm)
	}
	r.Compare("before", "after", stage.P50)
	r.Table = stepGains(ctx, s, runs)
	if s.Wants("HAProxy", true) {
		haproxyTable, err := compareHAProxy(ctx, s, &p, slices.DeleteFunc(slices.Clone(arms), func(a arm) bool { return a.name != "before" && a.name != "after" }))
		var missing *stage.Missing
		switch {
		case errors.As(err, &missing):
			r.Notes = append(r.Notes, "Without HAProxy: "+err.Error())
		case err != nil:
			return nil, err
		}
		r.Table += haproxyTable
	}
	return r, nil
}

// stepGains returns a table of the effect of each step and of its prediction from the recording before.
func stepGains(ctx context.Context, s *stage.Stage, runs []*run) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "step\tfrom\tp50\tp99\tCPU a check\tp50 and p99 predicted\t")
	any := false
	for _, step := range runs {
		i := slices.IndexFunc(runs, func(r *run) bool { return r.arm.name == step.from })
		if i < 0 {
			continue
		}
		previous := runs[i]
		var flags []string
		for _, w := range step.whatIf {
			flags = append(flags, "--what-if", w)
		}
		predicted := "refused"
		// A setting about which the trace has no data is refused with the reason.
		if e, err := s.Explain(ctx, previous.file, flags...); err == nil {
			if k := slices.IndexFunc(e.Report.WhatIf, func(w report.WhatIf) bool { return strings.Contains(w.Name, "checker") }); k >= 0 {
				g := e.Report.Group(e.Report.WhatIf[k].Group)
				if g != nil && g.LatencyNS.P50 != nil {
					p := e.Report.WhatIf[k].Predicted
					predicted = fmt.Sprintf("%.2f", float64(p.P50NS.Est)/float64(*g.LatencyNS.P50))
					if g.LatencyNS.P99 != nil {
						predicted += fmt.Sprintf(" and %.2f times", float64(p.P99NS.Est)/float64(*g.LatencyNS.P99))
					}
				}
			}
		} else {
			s.Say("%v", err)
		}
		any = true
		change := func(previous, step int64) string {
			return fmt.Sprintf("%s to %s, %.2f times", words.Duration(previous), words.Duration(step), float64(step)/float64(max(1, previous)))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", step.arm.name, previous.arm.name, change(previous.P50NS, step.P50NS), change(previous.P99NS, step.P99NS), change(int64(previous.cpuPerCheck), int64(step.cpuPerCheck)), predicted)
	}
	t.Flush()
	if !any {
		return ""
	}
	return b.String()
}

type programs struct {
	checker string
	ports   []string // of targets: those that always accept, those that refuse at times
}

// A process is a running checker.
type process struct {
	*stage.Server
	address, journal string
}

// startChecker starts a checker for some of the targets.
func (p *programs) startChecker(ctx context.Context, s *stage.Stage, a arm, from, to int, share float64, args ...string) (*process, error) {
	dir, err := s.Temp("checker")
	if err != nil {
		return nil, err
	}
	list := filepath.Join(dir, "targets.txt")
	if err := os.WriteFile(list, addresses(from, to, p.ports), 0o666); err != nil {
		return nil, err
	}
	port, err := freeport.Find(1)
	if err != nil {
		return nil, err
	}
	c := &process{address: "127.0.0.1:" + port[0], journal: filepath.Join(dir, "journal")}
	c.Server, err = s.Start(ctx, stage.Program{
		Name: "the checker, " + a.name, Ready: "http://" + c.address + "/metrics", Quota: quota * share, Env: a.env,
		Args: slices.Concat([]string{p.checker, "-listen", c.address, "-targets", list, "-journal", c.journal}, a.args, args),
	})
	return c, err
}

// runArm runs the checker as an arm. The checker's own clock measures connects, because its time-out is judged by that clock.
func runArm(ctx context.Context, s *stage.Stage, p *programs, a arm) (*run, error) {
	n := 1
	if a.halves {
		n = 2
	}
	var all []*process
	for i := range n {
		c, err := p.startChecker(ctx, s, a, a.targets*i/n, a.targets*(i+1)/n, 1/float64(n))
		if err != nil {
			return nil, err
		}
		defer c.Stop()
		all = append(all, c)
	}
	time.Sleep(4 * time.Second) // the first round
	first, err := histograms(ctx, all)
	if err != nil {
		return nil, err
	}
	cpuBefore, err := cpuOf(all)
	if err != nil {
		return nil, err
	}
	got := &run{arm: a}
	record := func() (err error) {
		got.file, err = s.Record(ctx, "healthcheck-"+strings.NewReplacer(" ", "-", ",", "").Replace(a.name), all[0].address, 9*time.Second)
		return err
	}
	if s.Short {
		err = record()
	} else {
		// A burst's checks are all answered early or late by chance, so a few bursts show little of a step. And recording
		// costs time.
		time.Sleep(24 * time.Second)
	}
	if err != nil {
		return nil, err
	}
	last, err := histograms(ctx, all)
	if err != nil {
		return nil, err
	}
	cpuAfter, err := cpuOf(all)
	if err != nil {
		return nil, err
	}
	if !s.Short {
		if err := record(); err != nil {
			return nil, err
		}
	}
	for _, c := range all {
		if err := c.Stop(); err != nil {
			return nil, err
		}
	}
	got.Arm, err = s.Judge(ctx, a.name, got.file, a.expected)
	got.P50NS, got.P99NS, got.Requests = last.percentilesSince(first)
	got.cpuPerCheck = (cpuAfter - cpuBefore) / time.Duration(max(1, got.Requests))
	return got, err
}

// cpuOf returns the CPU time of several processes.
func cpuOf(all []*process) (sum time.Duration, err error) {
	for _, p := range all {
		used, err := p.Group().CPUTime()
		if err != nil {
			return 0, err
		}
		sum += used
	}
	return sum, nil
}

// compareHAProxy compares the checkers with HAProxy, which checks the same targets in the same quota: their CPU time and
// memory, and the number of always accepting targets that they remove, at two time-outs.
func compareHAProxy(ctx context.Context, s *stage.Stage, p *programs, arms []arm) (string, error) {
	if err := stage.Need("haproxy", "apt-get install haproxy"); err != nil {
		return "", err
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nchecker\ttime-out\tCPUs\tmemory\twrongly taken out, of 9,900\t")
	row := func(name string, timeout time.Duration, server *stage.Server, removed func() (int, error)) error {
		defer server.Stop()
		time.Sleep(2 * time.Second) // it starts
		cpuBefore, err := server.Group().CPUTime()
		if err != nil {
			return err
		}
		begin := time.Now()
		time.Sleep(12 * time.Second) // four rounds
		cpuAfter, err := server.Group().CPUTime()
		if err != nil {
			return err
		}
		span := time.Since(begin)
		n, err := removed()
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%v\t%.2f\t%s\t%d\t\n", name, timeout, (cpuAfter-cpuBefore).Seconds()/span.Seconds(), words.Bytes(server.Memory()), n)
		return server.Stop()
	}
	for _, timeout := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond} {
		for _, a := range arms {
			c, err := p.startChecker(ctx, s, a, 0, a.targets, 1, "-timeout", timeout.String())
			if err != nil {
				return "", err
			}
			if err := row("this one, "+a.name, timeout, c.Server, func() (int, error) { return removedByJournal(c.journal, p.ports[0]) }); err != nil {
				return "", err
			}
		}
		server, socket, err := haproxy(ctx, s, p, timeout)
		if err != nil {
			return "", err
		}
		if err := row("HAProxy", timeout, server, func() (int, error) { return removedByHAProxy(socket) }); err != nil {
			return "", err
		}
	}
	t.Flush()
	return b.String(), nil
}

// haproxy starts HAProxy with the same targets and rules, and returns the socket of its statistics.
func haproxy(ctx context.Context, s *stage.Stage, p *programs, timeout time.Duration) (*stage.Server, string, error) {
	dir, err := s.Temp("haproxy")
	if err != nil {
		return nil, "", err
	}
	socket := filepath.Join(dir, "socket")
	var b strings.Builder
	fmt.Fprintf(&b, "global\n  nbthread %d\n  stats socket %s\ndefaults\n  mode tcp\n  timeout connect 1s\n  timeout client 1s\n  timeout server 1s\n  timeout check %dms\n"+
		"  default-server check inter 3s fall 3 rise 2\nbackend targets\n", 1, socket, timeout.Milliseconds())
	for i, target := range strings.Fields(string(addresses(0, 10_000, p.ports))) {
		name := "steady"
		if strings.HasSuffix(target, ":"+p.ports[1]) {
			name = "flapping"
		}
		fmt.Fprintf(&b, "  server %s%d %s\n", name, i, target)
	}
	config := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(config, []byte(b.String()), 0o666); err != nil {
		return nil, "", err
	}
	server, err := s.Start(ctx, stage.Program{Name: "HAProxy", Args: []string{"haproxy", "-db", "-f", config}, Quota: quota})
	return server, socket, err
}

// removedByHAProxy counts how often HAProxy removed targets that always accept.
func removedByHAProxy(socket string) (n int, err error) {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, "show stat"); err != nil {
		return 0, err
	}
	rows, err := csv.NewReader(conn).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("HAProxy's statistics: %w", err)
	}
	return countDown(rows)
}

// countDown counts transitions to down of the servers named steady... in HAProxy's table of statistics.
func countDown(rows [][]string) (n int, err error) {
	if len(rows) == 0 {
		return 0, errors.New("HAProxy has no statistics")
	}
	name, down := slices.Index(rows[0], "svname"), slices.Index(rows[0], "chkdown")
	if name < 0 || down < 0 {
		return 0, fmt.Errorf("HAProxy's statistics have no column of checks: %q", rows[0])
	}
	for _, r := range rows[1:] {
		if !strings.HasPrefix(r[name], "steady") {
			continue
		}
		k, err := strconv.Atoi(r[down])
		if err != nil {
			return 0, err
		}
		n += k
	}
	return n, nil
}

// removedByJournal counts the same in a checker's journal.
func removedByJournal(journal, steady string) (n int, err error) {
	b, err := os.ReadFile(journal)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		var change struct {
			Target string
			In     bool
		}
		if err := json.Unmarshal([]byte(line), &change); err != nil {
			return 0, err
		}
		if !change.In && strings.HasSuffix(change.Target, ":"+steady) {
			n++
		}
	}
	return n, nil
}

// addresses returns distinct loopback addresses; one in a hundred has the port that refuses at times.
func addresses(from, to int, ports []string) []byte {
	var b []byte
	for i := from; i < to; i++ {
		port := ports[0]
		if i%100 == 99 {
			port = ports[1]
		}
		b = fmt.Appendf(b, "127.%d.%d.%d:%s\n", 1+i/(250*250), i/250%250, 1+i%250, port)
	}
	return b
}

// counts are a Prometheus histogram: the number of values up to each bound.
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

// histograms returns the sum of several checkers' histograms.
func histograms(ctx context.Context, all []*process) (counts, error) {
	var sum counts
	for _, p := range all {
		c, err := histogram(ctx, p.address)
		if err != nil {
			return sum, err
		}
		sum = sum.plus(c)
	}
	return sum, nil
}

// plus adds two histograms.
func (c counts) plus(o counts) (sum counts) {
	sum.le = slices.Concat(c.le, o.le)
	slices.Sort(sum.le)
	sum.le = slices.Compact(sum.le)
	for _, le := range sum.le {
		sum.n = append(sum.n, c.atMost(le)+o.atMost(le))
	}
	return sum
}

// atMost returns the number of values of at most le seconds.
func (c counts) atMost(le float64) (n int64) {
	for i, b := range c.le {
		if b <= le {
			n = c.n[i]
		}
	}
	return n
}

// percentilesSince returns the median, the 99th percentile (upper bounds of buckets, in ns) and the number of values since
// first.
func (c counts) percentilesSince(first counts) (p50, p99, n int64) {
	if len(c.n) == 0 {
		return 0, 0, 0
	}
	n = c.n[len(c.n)-1] - first.atMost(c.le[len(c.le)-1])
	for i, le := range c.le {
		count := c.n[i] - first.atMost(le)
		if p50 == 0 && 2*count >= n {
			p50 = int64(1e9 * le)
		}
		if p99 == 0 && 100*count >= 99*n {
			p99 = int64(1e9 * le)
		}
	}
	return p50, p99, n
}
