// Command damage runs whylate on damaged traces and compares the cost with that of the undamaged ones:
//
//	go build -o /tmp/whylate ./cmd/whylate
//	go run ./lab/damage -n 1000 -whylate /tmp/whylate a.trace b.trace ...
//
// A damage flips one to eight bits, overwrites, removes or repeats bytes, or cuts off the end. -seed and the damage's number
// decide which, so "-seed 7 -first 123 -n 1" repeats number 123 (and -keep DIR stores its file). The damaged traces go to
// explain, explain --json, explain --request ., check, diff, and every export, in turn.
//
// The command fails if whylate panics, if a run takes more than five times the CPU of the same verb on the undamaged trace
// (and half a second more), more than 300 MB or a minute, or if the exit status is none of whylate's.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	maxCPUFactor = 5
	extraCPU     = 500 * time.Millisecond
	maxMemory    = 300 << 20
	maxTime      = time.Minute
)

var verbs = [][]string{
	{"explain"}, {"explain", "--json"}, {"explain", "--request", "."}, {"check", "--budget", "p99=1s"}, {"diff"},
	{"export", "--to", "pprof"}, {"export", "--to", "perfetto", "--all"}, {"export", "--to", "otlp"}, {"export", "--to", "csv"}, {"export", "--to", "jsonl", "--all"},
}

type result struct {
	status   int
	cpu      time.Duration
	peak     int64
	stderr   []byte
	timedOut bool
}

func main() {
	n := flag.Int("n", 100, "number of damages")
	first := flag.Int("first", 0, "number of the first damage")
	seed := flag.Uint64("seed", 1, "seed of the random numbers")
	exe := flag.String("whylate", "", "the program")
	keep := flag.String("keep", "", "keep the damaged files that fail, or all with -n 1, in this directory")
	flag.Parse()
	bad, err := tryDamages(*exe, flag.Args(), *seed, *first, *n, *keep, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "damage:", err)
		os.Exit(2)
	}
	if bad > 0 {
		os.Exit(1)
	}
}

func tryDamages(exe string, files []string, seed uint64, first, n int, keep string, out io.Writer) (failed int, err error) {
	if exe == "" || len(files) == 0 {
		return 0, errors.New("want -whylate PROGRAM and traces")
	}
	dir, err := os.MkdirTemp("", "damage-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	type key struct{ file, verb int }
	undamaged := map[key]result{}
	data := make([][]byte, len(files))
	worst, worstText, peak, statuses := 0.0, "none", int64(0), map[int]int{}
	for i := first; i < first+n; i++ {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		f, v := rnd.IntN(len(files)), i%len(verbs)
		if data[f] == nil {
			if data[f], err = os.ReadFile(files[f]); err != nil {
				return failed, err
			}
		}
		clean, ok := undamaged[key{f, v}]
		if !ok {
			if clean, err = runVerb(exe, verbs[v], files[f], files[f], dir); err != nil {
				return failed, err
			}
			undamaged[key{f, v}] = clean
		}
		broken, description := damage(data[f], rnd)
		name := filepath.Join(dir, fmt.Sprintf("damaged-%d.trace", i))
		if err := os.WriteFile(name, broken, 0o600); err != nil {
			return failed, err
		}
		r, err := runVerb(exe, verbs[v], name, files[f], dir)
		if err != nil {
			return failed, err
		}
		problem := ""
		switch {
		case r.timedOut:
			problem = "did not end"
		case bytes.Contains(r.stderr, []byte("goroutine ")) || bytes.Contains(r.stderr, []byte("panic")):
			problem = "panicked"
		case r.status != 0 && r.status != 1 && r.status != 3:
			problem = fmt.Sprintf("ended with status %d", r.status)
		case r.cpu > maxCPUFactor*clean.cpu+extraCPU:
			problem = fmt.Sprintf("took %v of CPU instead of %v", r.cpu, clean.cpu)
		case r.peak > max(maxMemory, clean.peak+clean.peak/2):
			problem = fmt.Sprintf("took %d MB instead of %d", r.peak>>20, clean.peak>>20)
		}
		statuses[r.status]++
		if times := r.cpu.Seconds() / clean.cpu.Seconds(); times > worst {
			worst, worstText = times, fmt.Sprintf("number %d, %s with %s: %v, %v instead of %v", i, filepath.Base(files[f]), description, verbs[v], r.cpu, clean.cpu)
		}
		peak = max(peak, r.peak)
		if problem != "" {
			failed++
			fmt.Fprintf(out, "number %d of seed %d, %s with %s: %v %s\n", i, seed, filepath.Base(files[f]), description, verbs[v], problem)
			fmt.Fprintf(out, "%.600s\n", r.stderr)
		}
		if keep != "" && (problem != "" || n == 1) {
			if err := os.WriteFile(filepath.Join(keep, filepath.Base(name)), broken, 0o644); err != nil {
				return failed, err
			}
		}
		os.Remove(name)
	}
	fmt.Fprintf(out, "%d damages of %d traces: %d bad; by status %v; at most %.1f times the CPU of the whole trace (%s), %d MB\n", n, len(files), failed, statuses, worst, worstText, peak>>20)
	return failed, nil
}

// damage returns a damaged copy and a description of the damage.
func damage(data []byte, rnd *rand.Rand) (broken []byte, description string) {
	b := bytes.Clone(data)
	randomOffset := func() int { return rnd.IntN(len(b)) }
	randomRange := func() (from, to int) {
		from = randomOffset()
		return from, min(len(b), from+1+rnd.IntN(1<<rnd.IntN(14)))
	}
	switch rnd.IntN(5) {
	case 0:
		n := 1 + rnd.IntN(8)
		for range n {
			b[randomOffset()] ^= 1 << rnd.IntN(8)
		}
		return b, fmt.Sprintf("%d flipped bits", n)
	case 1:
		from, to := randomRange()
		for i := from; i < to; i++ {
			b[i] = byte(rnd.Uint32())
		}
		return b, fmt.Sprintf("bytes %d to %d overwritten", from, to)
	case 2:
		from, to := randomRange()
		return append(b[:from], b[to:]...), fmt.Sprintf("bytes %d to %d cut out", from, to)
	case 3:
		from, to := randomRange()
		return append(bytes.Clone(b[:to]), b[from:]...), fmt.Sprintf("bytes %d to %d twice", from, to)
	}
	end := randomOffset()
	return b[:end], fmt.Sprintf("its first %d bytes", end)
}

// runVerb runs one verb on a file. diff compares it with the original.
func runVerb(exe string, verb []string, file, original, dir string) (result, error) {
	args := append([]string{}, verb...)
	switch verb[0] {
	case "diff":
		args = append(args, original)
	case "export":
		args = append(args, "-o", filepath.Join(dir, "out"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, append(args, file)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		return result{}, fmt.Errorf("running %s: %w", exe, err)
	}
	r := result{status: cmd.ProcessState.ExitCode(), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), stderr: stderr.Bytes(), timedOut: ctx.Err() != nil}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.peak = int64(u.Maxrss) << 10
	}
	return r, nil
}
