//go:build linux

// Cases runs one service in some fifty places that a container can be, each
// under three ways of choosing GOMAXPROCS, GOMEMLIMIT and GOGC, and says where
// one dies, or does less work, that another does not:
//
//   - go: what the runtime picks by itself
//   - peers: go.uber.org/automaxprocs with github.com/KimMachineGun/automemlimit
//   - whylate: service/tune with all three knobs applied
//
// It makes real groups, of whatever cgroup layout the machine has, so it needs
// root. With -kernels it then boots each kernel of a directory with cgroup v2 in
// a virtual machine (see lab/vm) and runs the same cases there. Where memory
// alone is limited the three ways run at the same time, in groups of equal
// weight; elsewhere one after another, in an order that changes from run to run.
// The table is Markdown; figures are medians over the runs. A case that looks
// worse with whylate than without is run again as often, and judged by all runs.
//
//	go run ./cases -runs 5 -kernels ~/.cache/whylate/kernels
//	go run ./cases -short
//
// The service holds a live heap of small linked objects and works in a closed
// loop: each unit allocates 64 KiB in small blocks, reads it and throws it away.
//
// The exit status is 1 if in some case a service died, or lost a fifth of its
// work, with whylate and not without, and no reason is known.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/lab/vm"
	"github.com/whylate/whylate/lab/vm/check"
)

// A plan says what is run.
type plan struct {
	Runs  int
	Scale float64 // of the cases' lengths
	Short bool
	Only  string
	// Missing leaves out what there are results of: Skip, once they are known.
	Missing bool
	Skip    []string
}

// inGuest holds the plan of a virtual machine.
const inGuest = "/plan.json"

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		live(role)
		return
	}
	if b, err := os.ReadFile(inGuest); err == nil && os.Getppid() == 1 {
		if err := guest(b, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "cases:", err)
		}
		return
	}
	var p plan
	flag.IntVar(&p.Runs, "runs", 5, "how often each case is run each way")
	flag.Float64Var(&p.Scale, "scale", 1, "multiplies the length of each run")
	flag.BoolVar(&p.Short, "short", false, "run a dozen cases once")
	flag.StringVar(&p.Only, "only", "", "run only cases whose name matches this `pattern`")
	list := flag.Bool("list", false, "list the cases")
	kernels := flag.String("kernels", "", "boot each kernel of this `directory` too")
	vmRuns := flag.Int("vm-runs", 2, "how often each case is run each way in a virtual machine")
	host := flag.Bool("host", true, "run on this machine")
	into := flag.String("into", "", "keep results in this `file`, and print the table of all that it holds")
	flag.BoolVar(&p.Missing, "missing", false, "with -into: run only cases that the file has not")
	flag.Parse()
	if *list {
		for _, c := range cases {
			fmt.Println(c.name)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all, err := kept(*into)
	if err == nil && *host {
		err = onHost(ctx, p, &all)
	}
	if err == nil && *kernels != "" {
		p.Runs = *vmRuns
		err = inMachines(ctx, p, *kernels, &all)
	}
	if *into != "" && len(all) > 0 {
		b, e := json.MarshalIndent(all, "", "\t")
		err = errors.Join(err, e, os.WriteFile(*into, b, 0o644))
	}
	bad := tables(os.Stdout, all)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cases:", err)
		os.Exit(3)
	}
	if bad > 0 {
		os.Exit(1)
	}
}

// kept reads what earlier runs kept.
func kept(name string) (all []*machine, err error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, nil
	}
	return all, json.Unmarshal(b, &all)
}

// place finds or adds a machine.
func place(all *[]*machine, m machine) *machine {
	for _, have := range *all {
		if have.Kernel == m.Kernel && have.Cgroup == m.Cgroup && have.Emulated == m.Emulated {
			have.When = m.When
			return have
		}
	}
	*all = append(*all, &m)
	return &m
}

func (p plan) chosen() ([]testCase, error) {
	re, err := regexp.Compile(p.Only)
	if err != nil {
		return nil, err
	}
	var chosen []testCase
	for _, c := range cases {
		if re.MatchString(c.name) && (c.short || !p.Short) && !slices.Contains(p.Skip, c.name) {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

func onHost(ctx context.Context, p plan, all *[]*machine) error {
	e, err := check.NewEnv("")
	if err != nil {
		return err
	}
	if err := e.Usable(); err != nil {
		return fmt.Errorf("making groups (root is needed): %w", err)
	}
	if p.Short {
		p.Runs = 1
	}
	m := place(all, describe(e))
	if p.Missing {
		for _, r := range m.Rows {
			p.Skip = append(p.Skip, r.Case)
		}
	}
	return run(ctx, e, p, func(r row) {
		m.add(r)
		fmt.Fprintf(os.Stderr, "%s: %s\n", r.Case, r.verdict())
	})
}

func describe(e *check.Env) machine {
	v := "v1"
	if e.V2("memory") {
		v = "v2"
	}
	return machine{Kernel: e.Kernel, Cgroup: v, CPUs: runtime.NumCPU(), Go: runtime.Version(), When: time.Now().UTC().Format("2006-01-02")}
}

// run runs the chosen cases and tells each row when it is done.
func run(ctx context.Context, e *check.Env, p plan, tell func(row)) error {
	chosen, err := p.chosen()
	if err != nil {
		return err
	}
	for _, c := range chosen {
		if skip := c.skip(e); skip != "" {
			tell(row{Case: c.name, Skip: skip})
			continue
		}
		begun := time.Now()
		r := row{Case: c.name, Arms: map[string]*outcome{}}
		for _, arm := range arms {
			r.Arms[arm] = &outcome{}
		}
		for round := range 2 * p.Runs {
			if round == p.Runs && !r.worse() {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := runOnce(ctx, e, c, p.Scale, round, &r); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		r.Took = time.Since(begun)
		tell(r)
	}
	return nil
}

// guest is the life of the program in a virtual machine.
func guest(planned []byte, out io.Writer) error {
	var p plan
	if err := json.Unmarshal(planned, &p); err != nil {
		return err
	}
	if err := loadModule("/brd.ko", fmt.Sprintf("rd_nr=%d rd_size=%d", len(arms), 256<<10)); err != nil {
		fmt.Fprintln(os.Stderr, "cases: no disk in memory:", err)
	}
	e, err := check.NewEnv("")
	if err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	say := func(r check.Result, v any) error {
		if r.Data, err = json.Marshal(v); err != nil {
			return err
		}
		return enc.Encode(r)
	}
	if err := say(check.Result{Check: "machine"}, describe(e)); err != nil {
		return err
	}
	if err := run(context.Background(), e, p, func(r row) { _ = say(check.Result{Check: r.Case}, r) }); err != nil {
		return enc.Encode(check.Result{Check: "cases", Failed: true, Log: []string{err.Error()}, Done: true})
	}
	return enc.Encode(check.Result{Done: true})
}

// inMachines boots each kernel and runs the plan there.
func inMachines(ctx context.Context, p plan, dir string, all *[]*machine) error {
	kernels, err := vm.Kernels(dir)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "whylate-cases-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	init, err := vm.BuildGuest(ctx, tmp)
	if err != nil {
		return err
	}
	self, err := vm.BuildStatic(ctx, tmp, "github.com/whylate/whylate/lab/maxprocs/cases")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	planned, err := json.Marshal(p)
	if err != nil {
		return err
	}
	for release, image := range kernels {
		files := map[string][]byte{"cases": program, strings.TrimPrefix(inGuest, "/"): planned}
		if b, err := os.ReadFile(filepath.Join(dir, "brd-"+release+".ko")); err == nil {
			files["brd.ko"] = b
		}
		fmt.Fprintf(os.Stderr, "booting %s\n", release)
		rs, err := vm.Boot(ctx, vm.Machine{Kernel: image, Guest: init, Layout: "v2", CPUs: 2, MemoryMB: 2560, Exec: "/cases", Files: files})
		if e := keep(rs, all); e != nil {
			err = errors.Join(err, e)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", release, err)
		}
	}
	return nil
}

// keep takes the rows that a virtual machine printed.
func keep(rs []check.Result, all *[]*machine) error {
	var m *machine
	for _, r := range rs {
		switch {
		case r.Failed:
			return fmt.Errorf("%s: %s", r.Check, strings.Join(r.Log, "; "))
		case r.Check == "machine":
			var d machine
			if err := json.Unmarshal(r.Data, &d); err != nil {
				return err
			}
			d.Emulated = true
			m = place(all, d)
		case m == nil:
			return fmt.Errorf("%s: no machine was told", r.Check)
		default:
			var x row
			if err := json.Unmarshal(r.Data, &x); err != nil {
				return err
			}
			m.add(x)
		}
	}
	return nil
}
