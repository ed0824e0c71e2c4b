// Command bench measures how fast traces are read, compared with Go's own readers:
//
//	go run ./lab/bench
//
// It creates the traces once (lab/bench/cache, 1.6 GB). There are three main kinds: a busy HTTP server in its own process,
// until its trace has 104 MB, about 20 million events or 10 s of two cores; one whose handlers call a backend, so that a
// request has three times as many events; and one with HTTP/2, where each request is a goroutine. Each has a second trace with
// a quarter of the size and a third with four times the size. Then it takes each measurement in a child process, so that its
// peak memory is known:
//
//	timelines                    our decoder, with a window of two generations
//	one worker                   the same on one core
//	reference                    golang.org/x/exp/trace reads every event
//	command                      "whylate explain --json", with the memory limit that it sets
//	explain                      the same by the package's function, with Go's defaults
//	go tool trace -pprof=sched   the time that Go's own tool takes for any answer
//
// With -stages it prints how the command's time divides into stages, and how busy the cores were, from the command's own
// execution trace. With -together it prints what one report about all traces of -file costs, by a report about each.
//
// Machines are noisy: compare the ratios of one run. README.md in this directory has figures and the findings of profiling.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type config struct {
	cache string
	kinds string
	bytes int64
	runs  int
	tool  bool
	child string
	file  string
	cpu   string
	// stages prints times by stage instead, together the cost of one report about all files.
	stages, together bool
}

func run(args []string, out, progress io.Writer) error {
	var c config
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(progress)
	fs.StringVar(&c.cache, "cache", defaultCache(), "directory for the traces")
	fs.StringVar(&c.kinds, "kinds", strings.Join(kinds, ","), "shapes of traces to make")
	fs.Int64Var(&c.bytes, "bytes", 104e6, "size of the middle trace of each kind; the shorter has a quarter, the longer four times as much")
	fs.IntVar(&c.runs, "runs", 5, "runs of each; the best counts")
	fs.BoolVar(&c.tool, "tool", true, "measure go tool trace too, up to 150 MB of trace (it takes 6 GB of memory for 100)")
	fs.StringVar(&c.file, "file", "", "measure these traces, with commas between them, instead of making any")
	fs.StringVar(&c.child, "child", "", "internal: what a child process does")
	fs.StringVar(&c.cpu, "cpuprofile", "", "with -child: write a CPU profile")
	fs.BoolVar(&c.stages, "stages", false, "print where explain's time goes instead, by stage")
	fs.BoolVar(&c.together, "together", false, "print what one report about all traces of -file costs instead, by one of each")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if c.child != "" {
		return runChild(c, fs.Args(), out)
	}
	show := printTable
	switch {
	case c.stages:
		show = printBudgets
	case c.together:
		show = printTogether
	}
	if c.file != "" {
		return show(c, out, progress, strings.Split(c.file, ","))
	}
	var files []string
	for kind := range strings.SplitSeq(c.kinds, ",") {
		for _, n := range traceSizes(kind, c.bytes) {
			name, err := makeTrace(c, kind, n, progress)
			if err != nil {
				return err
			}
			files = append(files, name)
		}
	}
	return show(c, out, progress, files)
}

// defaultCache returns lab/bench/cache of the repository that contains the working directory.
func defaultCache() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return filepath.Join(dir, "lab", "bench", "cache")
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return filepath.Join("lab", "bench", "cache")
}

// result is the measurement of a child process.
type result struct {
	Time    time.Duration
	CPU     time.Duration // of all threads; on a shared machine the steadier figure
	Events  int64
	Mallocs uint64
	Alloc   uint64 // bytes
	PeakKB  int64  // 0: unknown on this system
	// Collections is the number of garbage collections.
	Collections uint32
	Note        string
}

// maxToolTrace is the size of the longest trace that Go's own tool gets: it needs sixty bytes of memory for each byte.
const maxToolTrace = 150e6

func printTable(c config, out, progress io.Writer, files []string) error {
	fmt.Fprintf(out, "%s %s/%s, GOMAXPROCS %d, best of %d\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), c.runs)
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("looking at the trace: %w", err)
		}
		fmt.Fprintf(out, "\n%s, %.1f MB\n", filepath.Base(file), float64(info.Size())/1e6)
		fmt.Fprintf(out, "%-28s %10s %10s %8s %10s %8s %8s %12s %10s %6s\n", "", "time", "M events/s", "of ref.", "CPU", "of ref.", "peak MB", "allocations", "MB alloc.", "GCs")
		names := []string{"reference", "timelines", "one worker", "command", "explain", "exact", "groups"}
		if c.tool && info.Size() < maxToolTrace {
			names = append(names, "go tool trace -pprof=sched")
		}
		best := make(map[string]result)
		// The measurements take turns, so that a slow minute of the machine affects all of them.
		for round := range c.runs {
			for _, name := range names {
				if strings.HasPrefix(name, "go tool") && round > 0 {
					continue
				}
				fmt.Fprintf(progress, "%s\n", fmt.Sprintf("%s: %s, run %d of %d", filepath.Base(file), name, round+1, c.runs))
				r, err := measure(name, file)
				if err != nil {
					return err
				}
				if old, ok := best[name]; ok {
					r.PeakKB = max(r.PeakKB, old.PeakKB) // the worst
					r.Time, r.CPU = min(r.Time, old.Time), min(r.CPU, old.CPU)
				}
				best[name] = r
			}
		}
		ref := best["reference"]
		for _, name := range names {
			r := best[name]
			line := fmt.Sprintf("%-28s %10s %10.1f %8.2f %10s %8.2f %8s", name, r.Time.Round(time.Millisecond), float64(ref.Events)/1e6/r.Time.Seconds(),
				r.Time.Seconds()/ref.Time.Seconds(), r.CPU.Round(time.Millisecond), r.CPU.Seconds()/ref.CPU.Seconds(), megabytes(r.PeakKB))
			if r.Mallocs > 0 {
				line += fmt.Sprintf(" %12d %10.1f %6d", r.Mallocs, float64(r.Alloc)/1e6, r.Collections)
			}
			fmt.Fprintln(out, strings.TrimRight(line+"  "+r.Note, " "))
		}
		if t := best["timelines"]; t.Events != ref.Events {
			return fmt.Errorf("%s: timelines have %d events, the reference %d", file, t.Events, ref.Events)
		}
	}
	return nil
}

func megabytes(kb int64) string {
	if kb == 0 {
		return "-"
	}
	return fmt.Sprint(int64(math.Round(float64(kb) * 1024 / 1e6)))
}

// measure takes one measurement in a child process.
func measure(name string, files ...string) (result, error) {
	if strings.HasPrefix(name, "go tool") {
		return measureTool(files[0])
	}
	return runInChild[result](name, files...)
}

// runInChild lets a child process do something with files, and returns the result that it prints, with its CPU time and peak
// memory.
func runInChild[T any](name string, files ...string) (r T, err error) {
	exe, err := os.Executable()
	if err != nil {
		return r, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(exe, slices.Concat([]string{"-child", name}, files)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("measuring %s on %s: %w\n%s", name, strings.Join(files, ", "), err, stderr.String())
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("measuring %s on %s: %w", name, strings.Join(files, ", "), err)
	}
	if r, ok := any(&r).(*result); ok {
		r.CPU, r.PeakKB = cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), maxRSS(cmd.ProcessState)
	}
	return r, nil
}

func measureTool(file string) (result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "tool", "trace", "-pprof=sched", file)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return result{Time: time.Since(begin), Note: "failed: " + lastLine(stderr.String())}, nil
	}
	return result{Time: time.Since(begin), CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), PeakKB: maxRSS(cmd.ProcessState)}, nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
