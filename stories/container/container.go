// Package container is the story of services that started as many Ps as the host has CPUs, in containers with a few: at low
// load nothing shows, at high load they take twice the CPU time and are frozen.
package container

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/stories/stage"
)

// ratio is of Ps to CPUs in the incident: 96 Ps in a limit of 4 CPUs.
const ratio = 24

type arm struct {
	name     string
	procs    string
	env      []string
	expected stage.Place // at the highest load
}

// Run tells the story: who sets GOMAXPROCS, at which load.
func Run(ctx context.Context, s *stage.Stage) (*stage.Result, error) {
	service, err := s.Build(ctx, "container/service")
	if err != nil {
		return nil, err
	}
	// A third of the machine is the generator's.
	quota := max(0.5, float64(runtime.NumCPU())/2)
	host := "GOMAXPROCS=" + strconv.Itoa(int(ratio*quota))
	// What a request of a loaded service meets: freezes of the quota.
	throttled := stage.Place{Code: "WL4001"}
	// One P that is in use for most of the time has a queue.
	saturated := stage.Place{Code: "WL1002", Site: `main\.`}
	if quota > 1 {
		saturated = stage.Place{}
	}
	arms := []arm{
		{"before", "runtime", []string{host}, throttled},
		{"as Go 1.26 sets it", "runtime", nil, stage.Place{}},
		{"automaxprocs", "automaxprocs", nil, saturated},
		{"after", "tune", nil, saturated},
	}
	steps := []float64{200, 500, 1000, 2000, 4000}
	if s.Short {
		arms = []arm{arms[0], arms[3]}
		steps = []float64{200, 4000}
	}
	r := &stage.Result{
		Story: "container", Versions: map[string]string{"automaxprocs": "v1.6.0"}, Published: 2.2,
		Notes: []string{"The factor is of CPU time a request at the highest load that both arms can serve."},
	}
	var rows []row
	cpu := map[string]float64{} // s a request at the highest load
	for _, a := range arms {
		for _, step := range steps {
			got, row, err := one(ctx, s, service, a, step, quota, step == steps[0], step == steps[len(steps)-1])
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
			cpu[a.name] = row.cpu / float64(max(1, row.requests))
			if got != nil {
				r.Arms = append(r.Arms, *got)
			}
			if step == steps[len(steps)-1] && a.name == "after" {
				r.Measured = row.p50
			}
		}
	}
	r.Factor = cpu["before"] / cpu["after"]
	r.Table = table(rows)
	return r, nil
}

// A row is what one arm did at one load.
type row struct {
	arm                  string
	asked, achieved      float64
	requests             int64
	p50, p99, p999, mean int64   // ns
	cpu                  float64 // s
	memory, threads      int64
	periods, throttled   int64
}

func table(rows []row) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "arm\tasked/s\tachieved/s\tCPU\tmean\tp50\tp99\tp99.9\tmemory\tthreads\tperiods throttled\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.2fs\t%s\t%s\t%s\t%s\t%s\t%d\t%d of %d\t\n", r.arm, r.asked, r.achieved, r.cpu, words.Duration(r.mean),
			words.Duration(r.p50), words.Duration(r.p99), words.Duration(r.p999), words.Bytes(r.memory), r.threads, r.throttled, r.periods)
	}
	t.Flush()
	return b.String()
}

// one runs the service in one way at one load. At the lowest and the highest load it is recorded and judged.
func one(ctx context.Context, s *stage.Stage, service string, a arm, step, quota float64, lowest, highest bool) (*stage.Arm, row, error) {
	at := row{arm: a.name, asked: step}
	ports, err := freeport.Find(1)
	if err != nil {
		return nil, at, err
	}
	address := "127.0.0.1:" + ports[0]
	server, err := s.Start(ctx, stage.Program{
		Name: fmt.Sprintf("the service, %s, for %.0f requests a second", a.name, step), Ready: "http://" + address + "/ready",
		Args: []string{service, "-listen", address, "-procs", a.procs}, Env: a.env, Quota: quota,
	})
	if err != nil {
		return nil, at, err
	}
	defer server.Stop()
	body, err := json.Marshal(order())
	if err != nil {
		return nil, at, err
	}
	long := 8 * time.Second
	if s.Short {
		long = 4 * time.Second
	}
	o := load.Options{
		Targets: []load.Target{{URL: "http://" + address + "/order", Body: body}},
		Phases:  []load.Phase{{From: step, To: step, Duration: long + time.Second}},
		Warmup:  2 * time.Second, Seed: 1, Timeout: 5 * time.Second,
	}
	var file string
	measured, err := stage.While(ctx, o, func() (err error) {
		time.Sleep(o.Warmup)
		group := server.Group()
		before, err := cpugroup.ReadStat(group.Dir)
		if err != nil {
			return err
		}
		used, err := group.CPUTime()
		if err != nil {
			return err
		}
		if lowest || highest {
			file, err = s.Record(ctx, fmt.Sprintf("container-%s-%.0f", strings.NewReplacer(" ", "-", ".", "").Replace(a.name), step), address, long)
			if err != nil {
				return err
			}
		} else {
			time.Sleep(long)
		}
		after, err := cpugroup.ReadStat(group.Dir)
		if err != nil {
			return err
		}
		now, err := group.CPUTime()
		if err != nil {
			return err
		}
		d := after.Less(before)
		at.periods, at.throttled, at.cpu = d.Periods, d.Throttled, (now - used).Seconds()
		at.memory, at.threads = usage(server.PID())
		return nil
	})
	if err != nil {
		return nil, at, err
	}
	at.requests, at.achieved, at.mean = measured.Requests, measured.AchievedPerS, measured.MeanNS
	at.p50, at.p99, at.p999 = measured.Intended.P50, measured.Intended.P99, measured.Intended.P999
	if err := server.Stop(); err != nil || file == "" {
		return nil, at, err
	}
	expected := stage.Place{} // at low load the tool must not cry wolf
	if highest {
		expected = a.expected
	}
	got, err := s.Judge(ctx, fmt.Sprintf("%s, %.0f/s", a.name, step), file, expected)
	got.Measure(measured)
	return &got, at, err
}

// order is what each request sends.
func order() any {
	type line struct {
		Article string  `json:"article"`
		Count   int     `json:"count"`
		Price   float64 `json:"price"`
	}
	o := struct {
		Customer string `json:"customer"`
		Lines    []line `json:"lines"`
	}{Customer: "a customer of long standing"}
	for i := range 20 {
		o.Lines = append(o.Lines, line{fmt.Sprintf("article number %d of the catalogue", i), i, 1.5 * float64(i)})
	}
	return o
}

// usage returns a process's resident memory in bytes and its threads.
func usage(pid int) (memory, threads int64) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		v, _, _ = strings.Cut(strings.TrimSpace(v), " ")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "VmRSS":
			memory = n << 10
		case "Threads":
			threads = n
		}
	}
	return memory, threads
}
