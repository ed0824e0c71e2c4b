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
// a virtual machine (see lab/vm) and runs most cases there as well. A round is one
// run each way: where memory alone is limited at the same time, in groups of equal
// weight; elsewhere one after another, in an order that changes. Only the runs of
// one round are held against each other, so that a slow minute of the machine
// speaks for nobody; the table has the median of these shares and their spread.
//
// A fifth of the work is lost where the median says so, of three rounds at least,
// and four rounds of five have a tenth less. A case that looks worse with whylate
// than without is run again as often, and judged by all runs.
//
// With -into it goes on where an earlier call ended, and with -for it ends after
// a while: a machine that is wanted by others runs the table in many short holds.
//
//	go run ./cases -runs 5 -kernels ~/.cache/whylate/kernels
//	go run ./cases -runs 5 -into results.json -for 50s -doc cases.md
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
	"maps"
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
	// For is how long rounds are begun; 0 is without end.
	For time.Duration
	// Want is how many rounds cases still need, where that is not Runs.
	Want map[string]int
	// Emulated leaves out what is run on a real machine only.
	Emulated bool
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
	flag.DurationVar(&p.For, "for", 0, "begin no round after this `time`; the next call with the same -into goes on; 0 is without end")
	list := flag.Bool("list", false, "list the cases")
	kernels := flag.String("kernels", "", "boot each kernel of this `directory` too")
	release := flag.String("kernel", "", "boot only kernels whose release matches this `pattern`")
	host := flag.Bool("host", true, "run on this machine")
	into := flag.String("into", "", "keep results in this `file`, go on where it ends, and print the tables of all that it holds")
	doc := flag.String("doc", "", "put the tables into this Markdown `file`, between its two marks")
	flag.Parse()
	if *list {
		for _, c := range cases {
			fmt.Println(c.name)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if p.Short {
		p.Runs = 1
	}
	all, err := kept(*into)
	if err == nil && *host {
		err = onHost(ctx, p, &all, *into)
	}
	if err == nil && *kernels != "" {
		err = inMachines(ctx, p, *kernels, *release, &all, *into)
	}
	var out strings.Builder
	bad := tables(&out, all, p.Runs)
	fmt.Print(out.String())
	if *doc != "" {
		err = errors.Join(err, intoDoc(*doc, out.String()))
	}
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

// save keeps what there is; an empty name keeps nothing.
func save(name string, all []*machine) error {
	if name == "" {
		return nil
	}
	b, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		return err
	}
	next := name + ".next"
	if err := os.WriteFile(next, b, 0o644); err != nil {
		return err
	}
	return os.Rename(next, name)
}

// The tables of a document stand between these lines.
const docBegins, docEnds = "<!-- tables of lab/maxprocs/cases -->\n", "<!-- end of the tables -->\n"

func intoDoc(name, tables string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(b), docBegins)
	_, after, ok2 := strings.Cut(rest, docEnds)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no two lines %q and %q", name, docBegins, docEnds)
	}
	return os.WriteFile(name, []byte(before+docBegins+tables+"\n"+docEnds+after), 0o644)
}

// place finds or adds a machine.
func place(all *[]*machine, m machine) *machine {
	for _, have := range *all {
		if have.Kernel == m.Kernel && have.Cgroup == m.Cgroup && have.Emulated == m.Emulated {
			have.Last = m.Last
			return have
		}
	}
	*all = append(*all, &m)
	return &m
}

// want is how many rounds its cases still need.
func (m *machine) want(runs int) map[string]int {
	want := map[string]int{}
	for _, r := range m.Rows {
		switch n := len(r.Rounds); {
		case r.done(runs):
			want[r.Case] = 0
		case n < runs:
			want[r.Case] = runs - n
		default:
			want[r.Case] = 2*runs - n
		}
	}
	return want
}

func (p plan) wants(c *testCase) int {
	if n, ok := p.Want[c.name]; ok {
		return n
	}
	return p.Runs
}

func (p plan) chosen() ([]testCase, error) {
	re, err := regexp.Compile(p.Only)
	if err != nil {
		return nil, err
	}
	var chosen []testCase
	for _, c := range cases {
		if re.MatchString(c.name) && (c.short || !p.Short) && !(c.here && p.Emulated) && p.wants(&c) > 0 {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

func onHost(ctx context.Context, p plan, all *[]*machine, into string) error {
	e, err := check.NewEnv("")
	if err != nil {
		return err
	}
	if err := e.Usable(); err != nil {
		return fmt.Errorf("making groups (root is needed): %w", err)
	}
	m := place(all, describe(e))
	for {
		// Once more for those that look worse.
		p.Want = m.want(p.Runs)
		ran := 0
		begun := time.Now()
		err := run(ctx, e, p, func(r row) error {
			ran++
			m.add(r)
			c := compare(m.find(r.Case).Rounds, "go")
			verdict, _ := c.judge()
			fmt.Fprintf(os.Stderr, "%s: %s%s\n", r.Case, verdict, r.Skip)
			return save(into, *all)
		})
		if p.For > 0 {
			p.For -= time.Since(begun)
		}
		if err != nil || ran == 0 || p.For < 0 {
			return err
		}
	}
}

func describe(e *check.Env) machine {
	v := "v1"
	if e.V2("memory") {
		v = "v2"
	}
	today := time.Now().UTC().Format("2006-01-02")
	return machine{Kernel: e.Kernel, Cgroup: v, CPUs: runtime.NumCPU(), Go: runtime.Version(), First: today, Last: today}
}

// run runs the chosen cases, each once, then each once more, and tells each
// round when it is done: where time ends, all have been run about as often.
func run(ctx context.Context, e *check.Env, p plan, tell func(row) error) error {
	chosen, err := p.chosen()
	if err != nil {
		return err
	}
	begun := time.Now()
	for n := 0; ; n++ {
		ran := false
		for _, c := range chosen {
			if n >= p.wants(&c) {
				continue
			}
			if skip := c.skip(e); skip != "" {
				if n == 0 {
					if err := tell(row{Case: c.name, Skip: skip}); err != nil {
						return err
					}
				}
				continue
			}
			if p.For > 0 && time.Since(begun)+c.takes(p.Scale) > p.For {
				continue
			}
			ran = true
			at := time.Now()
			if c.load.Stride = 1; p.Emulated {
				c.load.Stride = 16
			}
			r, err := runOnce(ctx, e, c, p.Scale, p.wants(&c)-n)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if err := tell(row{Case: c.name, Rounds: []round{r}, Took: time.Since(at)}); err != nil {
				return err
			}
		}
		if !ran {
			return nil
		}
	}
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
	if err := run(context.Background(), e, p, func(r row) error { return say(check.Result{Check: r.Case}, r) }); err != nil {
		return enc.Encode(check.Result{Check: "cases", Failed: true, Log: []string{err.Error()}, Done: true})
	}
	return enc.Encode(check.Result{Done: true})
}

// inMachines boots each kernel and runs the plan there.
func inMachines(ctx context.Context, p plan, dir, only string, all *[]*machine, into string) error {
	re, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	kernels, err := vm.Kernels(dir)
	if err != nil {
		return err
	}
	p.Emulated = true
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
	for _, release := range slices.Sorted(maps.Keys(kernels)) {
		if !re.MatchString(release) {
			continue
		}
		p.Want = nil
		for _, m := range *all {
			if m.Emulated && m.Kernel == release {
				p.Want = m.want(p.Runs)
			}
		}
		if chosen, err := p.chosen(); err != nil || len(chosen) == 0 {
			continue
		}
		planned, err := json.Marshal(p)
		if err != nil {
			return err
		}
		files := map[string][]byte{"cases": program, strings.TrimPrefix(inGuest, "/"): planned}
		if b, err := os.ReadFile(filepath.Join(dir, "brd-"+release+".ko")); err == nil {
			files["brd.ko"] = b
		}
		fmt.Fprintf(os.Stderr, "booting %s\n", release)
		rs, err := vm.Boot(ctx, vm.Machine{Kernel: kernels[release], Guest: init, Layout: "v2", CPUs: 2, MemoryMB: 2560, Exec: "/cases", Files: files})
		err = errors.Join(err, keep(rs, all), save(into, *all))
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
