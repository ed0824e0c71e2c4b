//go:build linux

// Cases runs one service in some thirty places that a container can be, each
// under three ways of choosing GOMAXPROCS, GOMEMLIMIT and GOGC, and says where
// one dies, or does less work, that another does not:
//
//   - go: what the runtime picks by itself
//   - peers: go.uber.org/automaxprocs with github.com/KimMachineGun/automemlimit
//   - whylate: service/tune with all three knobs applied
//
// It makes real groups with the cpu and memory controllers of cgroup v1, so it
// needs root. The order of the ways changes from run to run. The table is
// Markdown; figures are medians over the runs.
//
//	go run ./cases -runs 5
//
// The service holds a live heap of small linked objects and works in a closed
// loop: each unit allocates 64 KiB in small blocks, reads it and throws it away.
// The last column is the worst of whylate's work against the runtime's alone.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		serve(role)
		return
	}
	runs := flag.Int("runs", 5, "how often each case is run each way")
	length := flag.Duration("length", 2*time.Second, "length of each run")
	only := flag.String("only", "", "run only cases whose name holds this")
	flag.Parse()
	ctx := make(chan os.Signal, 1)
	signal.Notify(ctx, os.Interrupt)
	if err := compare(*runs, *length, *only, ctx, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "cases:", err)
		os.Exit(3)
	}
}

// arms are the ways, as they stand in the table.
var arms = []string{"go", "peers", "whylate"}

// outcome is what one way did in one case, over the runs.
type outcome struct {
	work   []float64 // units a second of each run that lived
	killed int
	last   answer
}

func (o *outcome) median() float64 {
	if len(o.work) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(o.work))
	return s[len(s)/2]
}

func compare(runs int, length time.Duration, only string, stop <-chan os.Signal, out, progress io.Writer) error {
	begun := time.Now()
	fmt.Fprintln(out, "| case | go: GOMAXPROCS, killed, units/s | peers: GOMAXPROCS, GOMEMLIMIT, killed, units/s | whylate: GOMAXPROCS, GOMEMLIMIT, GOGC, killed, units/s | whylate against go |")
	fmt.Fprintln(out, "|---|---|---|---|---|")
	n, worse := 0, 0
	var better []string
	for _, c := range cases {
		if !strings.Contains(c.name, only) {
			continue
		}
		results := map[string]*outcome{}
		for run := range runs {
			for i := range arms {
				arm := arms[(i+run)%len(arms)]
				if results[arm] == nil {
					results[arm] = &outcome{}
				}
				if err := try(c, arm, length, results[arm]); err != nil {
					return fmt.Errorf("%s, %s: %w", c.name, arm, err)
				}
				select {
				case <-stop:
					return fmt.Errorf("interrupted after %d cases", n)
				default:
				}
			}
		}
		n++
		g, p, w := results["go"], results["peers"], results["whylate"]
		verdict, bad := judge(g, w)
		if bad {
			worse++
		}
		if against, bad := judge(p, w); bad {
			better = append(better, fmt.Sprintf("%s (%s)", c.name, against))
		}
		fmt.Fprintf(out, "| %s | %d, %d, %.0f | %d, %s, %d, %.0f | %d, %s, %d, %d, %.0f | %s |\n", c.name, g.last.Procs, g.killed, g.median(),
			p.last.Procs, mib(p.last.Limit), p.killed, p.median(), w.last.Procs, mib(w.last.Limit), w.last.GOGC, w.killed, w.median(), verdict)
		fmt.Fprintf(progress, "%s: %s\n", c.name, verdict)
	}
	fmt.Fprintf(out, "\n%d cases, %d runs of %v each; worse than the runtime alone in %d. Peers were better in: %s.\n", n, runs, length, worse, orNone(better))
	fmt.Fprintf(out, "%s, %d CPUs, %s, cgroup v1, %s, %v in all.\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), runtime.NumCPU(), kernel(), runtime.Version(), time.Since(begun).Round(time.Second))
	return nil
}

// judge compares whylate with another way: worse is a run more that is killed,
// or, where both live, less than four fifths of the work.
func judge(other, w *outcome) (verdict string, worse bool) {
	share := 0.0
	if m := other.median(); m > 0 {
		share = w.median() / m
	}
	switch {
	case w.killed > other.killed:
		return fmt.Sprintf("**killed %d times against %d**", w.killed, other.killed), true
	case w.killed < other.killed:
		return fmt.Sprintf("lives: killed %d times against %d", w.killed, other.killed), false
	case len(w.work) == 0 || len(other.work) == 0:
		return "both are killed", false
	case share < 0.8:
		return fmt.Sprintf("**%.2f of the work**", share), true
	}
	return fmt.Sprintf("%.2f of the work", share), false
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, "; ")
}

func mib(n int64) string {
	if n <= 0 || n == 1<<63-1 {
		return "none"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func kernel() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return "Linux " + strings.TrimSpace(string(b))
}

// try runs one case one way.
func try(c testCase, arm string, length time.Duration, o *outcome) error {
	p, err := newPlace(c)
	if err != nil {
		return err
	}
	defer p.remove()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	l := c.load
	l.Length = length
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	cmd := p.command(exe)
	cmd.Env = append(without(os.Environ(), "GOGC", "GOMEMLIMIT", "GOMAXPROCS"), roleVariable+"="+arm, loadVariable+"="+string(b))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return err
	}
	var change *time.Timer
	if c.change != nil {
		change = time.AfterFunc(length/3, func() { c.change(p) })
	}
	err = cmd.Wait()
	if change != nil {
		change.Stop()
	}
	if e, ok := err.(*exec.ExitError); ok {
		if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() && s.Signal() == syscall.SIGKILL {
			o.killed++
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, errs.Bytes())
	}
	if err := json.Unmarshal(out.Bytes(), &o.last); err != nil {
		return fmt.Errorf("the service said %q: %w", out.Bytes(), err)
	}
	o.work = append(o.work, o.last.Work)
	return nil
}

// without leaves variables out of an environment: the libraries take an empty
// one for a decision by hand.
func without(env []string, names ...string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(names, name)
	})
}
