// Command pairs measures how often whylate diff sees a fix, and how often it is silent about two recordings of one program.
//
//	go run ./lab/pairs -dir DIR          records what DIR lacks, and writes the table to docs/internals/diff.md
//
// Each service of lab/truth is recorded three times for six seconds: twice with its fault, seconds apart, and once without it. A fix
// is real if the mean of its clients' own clock fell by a third. The two recordings with the fault, and the two ends of the first of
// them (whylate cut), are pairs without a change.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/words"
)

// services have faults of different causes; the last three are healthy, or their fault is too small to measure on a busy machine.
var services = []string{
	"actor-select", "connection-pool", "dial", "dns", "exec-child", "fan-out", "fsync-lock", "gc-assist", "grpc-client", "hub", "lock-network", "mutex-cpu", "n-plus-one", "once",
	"poll-loop", "pubsub", "retry", "routes", "rwmutex-writer", "semaphore", "single-worker", "singleflight", "slow-pipe", "ticker-flush", "worker-pool",
	"stw-memstats", "healthy", "healthy-computing",
}

const (
	page = "docs/internals/diff.md"
	mark = "<!-- written by go run ./lab/pairs -->\n"
	// largestFixed is the largest mean after a fix, relative to that before, of a fix that is real.
	largestFixed = 2.0 / 3
)

func main() {
	dir := flag.String("dir", "", "keep recordings in this `directory`")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "pairs:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	if dir == "" {
		return fmt.Errorf("name a directory for recordings: -dir DIR")
	}
	before, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("run this in the repository's root: %w", err)
	}
	head, _, found := strings.Cut(string(before), mark)
	if !found {
		return fmt.Errorf("%s has no line %q", page, strings.TrimSpace(mark))
	}
	tools := filepath.Join(dir, "bin")
	for name, pkg := range map[string]string{"whylate": "./cmd/whylate", "truth": "./lab/truth"} {
		if err := execute("go", "build", "-o", filepath.Join(tools, name), pkg); err != nil {
			return err
		}
	}
	var table strings.Builder
	table.WriteString("\n| service | mean by the client's clock | diff of the fix | recorded twice | two ends of one |\n|---|---|---|---|---|\n")
	sums := map[string]int{}
	for _, name := range services {
		m := measurement{dir: filepath.Join(dir, name), name: name, tools: tools}
		row, err := m.row(sums)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		table.WriteString(row)
	}
	fmt.Fprintf(&table, "\nOf %d real fixes %d were seen. Of %d pairs without a change %d were quiet.\n", sums["fixes"], sums["seen"], sums["unchanged"], sums["quiet"])
	return os.WriteFile(page, []byte(head+mark+table.String()), 0o666)
}

func execute(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return nil
}

// A measurement is the recordings of one service.
type measurement struct{ dir, name, tools string }

// record returns the trace of a run and the mean latency by the client's clock. It records what is not there.
func (m *measurement) record(run string, flags ...string) (trace string, meanNS int64, err error) {
	dir := filepath.Join(m.dir, run)
	data, err := os.ReadFile(filepath.Join(dir, "truth.json"))
	if err != nil {
		args := append([]string{"run", m.name, "-o", dir, "-d", "7s", "-trace", "6"}, flags...)
		if err := execute(filepath.Join(m.tools, "truth"), args...); err != nil {
			return "", 0, err
		}
		if data, err = os.ReadFile(filepath.Join(dir, "truth.json")); err != nil {
			return "", 0, err
		}
	}
	var outcome struct {
		Traced struct {
			MeanNS int64 `json:"mean_ns"`
		} `json:"traced"`
	}
	if err := json.Unmarshal(data, &outcome); err != nil {
		return "", 0, err
	}
	return filepath.Join(dir, m.name+".trace"), outcome.Traced.MeanNS, nil
}

// row returns the service's row of the table, and counts its pairs.
func (m *measurement) row(sums map[string]int) (string, error) {
	first, meanNS, err := m.record("a")
	if err != nil {
		return "", err
	}
	fixed, fixedNS, err := m.record("fixed", "-fix")
	if err != nil {
		return "", err
	}
	second, _, err := m.record("b")
	if err != nil {
		return "", err
	}
	ends := [2]string{filepath.Join(m.dir, "begin.trace"), filepath.Join(m.dir, "end.trace")}
	for i, limits := range [2][]string{{"--to", "2500ms"}, {"--from", "3500ms"}} {
		if err := execute(filepath.Join(m.tools, "whylate"), append(append([]string{"cut"}, limits...), first, ends[i])...); err != nil {
			return "", err
		}
	}
	changed, err := m.change(first, fixed)
	if err != nil {
		return "", err
	}
	if float64(fixedNS) < largestFixed*float64(meanNS) {
		sums["fixes"]++
		if changed != "" {
			sums["seen"]++
		}
	}
	cells := []string{m.name, words.Duration(meanNS) + " → " + words.Duration(fixedNS), orDash(changed)}
	for _, pair := range [2][2]string{{first, second}, ends} {
		changed, err := m.change(pair[0], pair[1])
		if err != nil {
			return "", err
		}
		sums["unchanged"]++
		if changed == "" {
			sums["quiet"]++
		}
		cells = append(cells, orDash(changed))
	}
	return "| " + strings.Join(cells, " | ") + " |\n", nil
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// change returns what diff shows of two recordings: the first population with evidence of a change; "" if there is none.
func (m *measurement) change(old, new string) (string, error) {
	out, err := exec.Command(filepath.Join(m.tools, "whylate"), "diff", "--json", old, new).Output()
	if err != nil {
		return "", fmt.Errorf("whylate diff: %w", err)
	}
	var d compare.Diff
	if err := json.Unmarshal(out, &d); err != nil {
		return "", err
	}
	for _, g := range d.Populations() {
		if !g.Changed {
			continue
		}
		for _, n := range g.Numbers() {
			if n.Evidence {
				return n.Name + " " + words.Duration(*n.Old) + " → " + words.Duration(*n.New), nil
			}
		}
		return "a cause", nil
	}
	return "", nil
}
