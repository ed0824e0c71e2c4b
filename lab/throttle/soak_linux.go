package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// verdict is the judged part of a report.
type verdict struct {
	Findings []struct {
		Code string `json:"code"`
	} `json:"findings"`
	Runtime struct {
		Throttle struct {
			Verdict    string  `json:"verdict"`
			How        string  `json:"how"`
			PeriodNS   int64   `json:"period_ns"`
			LostWallNS int64   `json:"lost_wall_ns"`
			LostCPUNS  int64   `json:"lost_cpu_ns"`
			R          float64 `json:"r"`
			N          int     `json:"n"`
		} `json:"throttle"`
	} `json:"runtime"`
}

// soakConfigs returns the services to record in turn: without a quota, or for comparison under one.
func soakConfigs(quota bool) []config {
	if quota {
		return []config{
			{kind: "spin", quota: 0.5, procs: 2}, {kind: "spin", quota: 0.5, procs: 8},
			{kind: "http", quota: 0.5, procs: 2}, {kind: "http", quota: 0.5, procs: 8}, {kind: "http", quota: 1.5, procs: 4},
			{kind: "http", quota: 1, procs: 4, period: 50 * time.Millisecond}, {kind: "gc", quota: 0.5, procs: 4},
			{kind: "http", quota: 0.3, procs: 4, neighbours: 2}, {kind: "spin", quota: 0.4, procs: 2, neighbours: 2},
		}
	}
	return []config{
		{kind: "http"}, {kind: "http", neighbours: 4}, {kind: "gc"}, {kind: "gc", neighbours: 2}, {kind: "light"},
		{kind: "batch"}, {kind: "bursts", procs: 4}, {kind: "one"}, {kind: "ticks"}, {kind: "spin", neighbours: 4},
	}
}

// soakVerb records and explains services without a quota and fails if one is reported as throttled.
func soakVerb(args []string) error {
	fs := flag.NewFlagSet("throttle soak", flag.ExitOnError)
	runs := fs.Int("runs", 50, "`services` to record")
	d := fs.Duration("d", 4*time.Second, "length of each trace")
	quota := fs.Bool("quota", false, "under quotas instead: compare with the kernel's counts; fails if a quota is not reported or ruled out wrongly")
	_ = fs.Parse(args)
	dir, err := os.MkdirTemp("", "whylate-throttle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	whylate := filepath.Join(dir, "whylate")
	if out, err := exec.Command("go", "build", "-o", whylate, "github.com/whylate/whylate/cmd/whylate").CombinedOutput(); err != nil {
		return fmt.Errorf("building whylate: %w\n%s", err, out)
	}
	fmt.Println("| service | GOMAXPROCS | quota | neighbours | verdict | period | R (n) | CPU lost | kernel | ratio | stolen |\n|---|---|---|---|---|---|---|---|---|---|---|")
	wrongCount := 0
	all := soakConfigs(*quota)
	for i := range *runs {
		c := all[i%len(all)]
		c.duration, c.out = *d, filepath.Join(dir, "x.trace")
		if c.period == 0 {
			c.period = 100 * time.Millisecond
		}
		r, err := recordService(c)
		if err != nil {
			return fmt.Errorf("recording %s: %w", c.kind, err)
		}
		v, err := explainTrace(whylate, c.out)
		if err != nil {
			return err
		}
		th := v.Runtime.Throttle
		ratio := "-"
		if r.ThrottledNS > 0 && th.LostCPUNS > 0 {
			ratio = fmt.Sprintf("%.2f", float64(th.LostCPUNS)/float64(r.ThrottledNS))
		}
		fmt.Printf("| %s | %d | %g | %d | %s | %s | %.2f (%d) | %.2f s | %.2f s | %s | %.2f s |\n", c.kind, r.Procs, c.quota, c.neighbours,
			th.Verdict, time.Duration(th.PeriodNS), th.R, th.N, float64(th.LostCPUNS)/1e9, float64(r.ThrottledNS)/1e9, ratio, float64(r.StolenNS)/1e9)
		switch {
		case !isWrong(c, &r, &v):
		case c.quota == 0 && r.StolenNS > th.LostCPUNS/4:
			fmt.Printf("void: the hypervisor held the machine back: %s\n", th.How)
		default:
			fmt.Printf("wrong: %s\n", th.How)
			wrongCount++
		}
	}
	fmt.Printf("\n%d of %d wrong\n", wrongCount, *runs)
	if wrongCount > 0 {
		return fmt.Errorf("%d of %d wrong", wrongCount, *runs)
	}
	return nil
}

// isWrong reports whether the verdict is wrong: a quota without one; no quota although the kernel throttled the service; or,
// without other busy processes and with most periods throttled, any other verdict than the quota.
func isWrong(c config, r *result, v *verdict) bool {
	th := v.Runtime.Throttle
	if c.quota == 0 {
		for _, f := range v.Findings {
			if strings.HasPrefix(f.Code, "WL4") {
				return true
			}
		}
		return th.Verdict == "own"
	}
	mostlyThrottled := 2*r.Throttled > r.Periods
	switch {
	case th.Verdict == "none":
		return r.Throttled > 0
	case c.neighbours == 0 && mostlyThrottled:
		return th.Verdict != "own" || th.PeriodNS != c.period.Nanoseconds()
	}
	return false
}

func explainTrace(whylate, trace string) (v verdict, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, whylate, "explain", "--json", trace).Output()
	if err != nil {
		return v, fmt.Errorf("explaining: %w", err)
	}
	return v, json.Unmarshal(out, &v)
}
