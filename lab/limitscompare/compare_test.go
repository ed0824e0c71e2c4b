//go:build linux

package limitscompare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/lab/vm"
	"github.com/whylate/whylate/lab/vm/check"
	"github.com/whylate/whylate/service/traps"
)

var update = flag.Bool("update", false, "rewrite table.golden (from a virtual machine)")

const machines = "../../service/cgroup/testdata"

// row is one machine with what everybody made of it.
type row struct {
	name string
	o    Observation
}

// collect reads the rows that a judge printed.
func collect(t *testing.T, rs []check.Result) []row {
	t.Helper()
	var rows []row
	for _, r := range rs {
		if r.Failed {
			t.Errorf("%s: %s", r.Check, strings.Join(r.Log, "; "))
			continue
		}
		x := row{name: r.Check}
		must.Do(t, json.Unmarshal(r.Data, &x.o), r.Check)
		rows = append(rows, x)
	}
	return rows
}

// compare compares the settings of the runtime and the libraries with our predictions of them, which must never differ, and
// with the binding limits, where each difference has an expected reason.
func compare(t *testing.T, rows []row, cpus int) {
	reasons := expectedDifferences()
	found := map[string]bool{}
	differ := func(name, source string, library, bound any) {
		t.Helper()
		key := name + ": " + source
		if library == bound {
			if r, ok := reasons[key]; ok && len(rows) > 0 && cpus >= 16 {
				t.Errorf("%s sets what binds, but is expected to differ: %s", key, r)
			}
			return
		}
		found[key] = true
		if _, ok := reasons[key]; !ok {
			t.Errorf("%s sets %v, the limits that bind call for %v: no reason is known", key, library, bound)
		}
	}
	for _, r := range rows {
		o := &r.o
		if o.Limits == nil {
			if o.Automaxprocs != 0 || o.Automemlimit != 0 {
				t.Errorf("%s: automaxprocs %d, automemlimit %d, and we know nothing: %s", r.name, o.Automaxprocs, o.Automemlimit, o.OursErr)
			}
			if o.Go != o.NumCPU {
				t.Errorf("%s: Go set %d of %d CPUs, and we know nothing: %s", r.name, o.Go, o.NumCPU, o.OursErr)
			}
			if o.Auto != o.Go {
				t.Errorf("%s: service/auto set %d, Go %d, and we know nothing: %s", r.name, o.Auto, o.Go, o.OursErr)
			}
			continue
		}
		l := *o.Limits
		l.CPU.Parallelism = min(l.CPU.Parallelism, o.NumCPU)
		// What each does must be what we say that it does.
		if want := l.CPU.RuntimeDefault(); o.Go != want {
			t.Errorf("%s: Go set GOMAXPROCS %d, RuntimeDefault says %d", r.name, o.Go, want)
		}
		// It reads the number of CPUs from the planted files.
		if n := limits.AutoProcs(o.Limits); o.Auto != 0 && o.Auto != n {
			t.Errorf("%s: service/auto set GOMAXPROCS %d, whylate limits says %d", r.name, o.Auto, n)
		}
		if n, ok := traps.Automaxprocs(&l, false); !ok && o.Automaxprocs != 0 || ok && o.Automaxprocs != n {
			differ(r.name, "automaxprocs as foretold", o.Automaxprocs, n)
		}
		if n, _ := limits.AutomemlimitBytes(&l); o.Automemlimit != n {
			differ(r.name, "automemlimit as foretold", o.Automemlimit, n)
		}
		if o.Outside != nil {
			outside(t, r.name, o)
		}
		// What each does against what binds.
		bind := l
		bind.CPU.RuntimeQuota = l.CPU.Quota
		differ(r.name, "Go", o.Go, bind.CPU.RuntimeDefault())
		floor := 0
		if l.CPU.Quota > 0 {
			floor = max(1, int(l.CPU.Quota))
		}
		differ(r.name, "automaxprocs", o.Automaxprocs, floor)
		var mem int64
		if l.Memory.Max > 0 {
			mem = int64(float64(l.Memory.Max) * 0.9)
		}
		differ(r.name, "automemlimit", o.Automemlimit, mem)
	}
	// Fewer CPUs hide differences; real groups depend on where it runs.
	for key := range reasons {
		if cpus >= 16 && !found[key] {
			t.Errorf("%s is expected to differ and did not: %s", key, reasons[key])
		}
	}
}

// outside holds what `whylate limits --pid` foretold from outside a container
// against what happened inside.
func outside(t *testing.T, name string, o *Observation) {
	t.Helper()
	a := o.Outside
	if a.Program == nil || a.Program.Go != runtime.Version() || a.Program.Modules["go.uber.org/automaxprocs"] != "v1.6.0" {
		t.Errorf("%s: the program read from outside is %+v", name, a.Program)
		return
	}
	var got []string
	for _, c := range a.Choices {
		v := int64(0)
		if c.Value != nil {
			v = *c.Value
		}
		switch c.Setter {
		case runtime.Version():
			got = append(got, fmt.Sprint("Go ", v == int64(o.Go)))
		case "automaxprocs":
			got = append(got, fmt.Sprint("automaxprocs ", v == int64(o.Automaxprocs)))
		case "automemlimit":
			got = append(got, fmt.Sprint("automemlimit ", v == o.Automemlimit))
		}
	}
	if want := "[Go true automaxprocs true automemlimit true]"; fmt.Sprint(got) != want {
		t.Errorf("%s: from outside the choices are foretold %v; %+v; inside Go set %d, automaxprocs %d, automemlimit %d", name, got, a.Choices, o.Go, o.Automaxprocs, o.Automemlimit)
	}
	// From outside, every level shows.
	if a.Limits.CPU.Quota != 2.5 || a.Limits.CPU.Hidden {
		t.Errorf("%s: quota %v from outside, hidden %v", name, a.Limits.CPU.Quota, a.Limits.CPU.Hidden)
	}
	trap := false
	for _, tr := range a.Traps {
		trap = trap || tr.Code == "ancestor-tighter"
	}
	if trap != strings.Contains(name, "parent") {
		t.Errorf("%s: traps %+v", name, a.Traps)
	}
}

func table(rows []row) []byte {
	var b bytes.Buffer
	reasons := expectedDifferences()
	fmt.Fprintf(&b, "%-38s %9s %4s %13s %5s %11s %12s\n", "machine", "quota", "Go", "automaxprocs", "auto", "memory", "automemlimit")
	num := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return fmt.Sprint(n)
	}
	mib := func(n int64) string {
		if n == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	for _, r := range rows {
		o := &r.o
		if o.Limits == nil {
			fmt.Fprintf(&b, "%-38s %9s %4d %13s %5s %11s %12s\n", r.name, "unknown", o.Go, num(int64(o.Automaxprocs)), "-", "unknown", mib(o.Automemlimit))
			continue
		}
		l := *o.Limits
		l.CPU.Parallelism = min(l.CPU.Parallelism, o.NumCPU)
		quota := "-"
		if l.CPU.Quota > 0 {
			quota = fmt.Sprint(l.CPU.Quota)
		}
		fmt.Fprintf(&b, "%-38s %9s %4d %13s %5d %11s %12s\n", r.name, quota, o.Go, num(int64(o.Automaxprocs)), limits.AutoProcs(&l), mib(l.Memory.Max), mib(o.Automemlimit))
		for _, source := range []string{"Go", "automaxprocs", "automemlimit"} {
			if reason, ok := reasons[r.name+": "+source]; ok {
				fmt.Fprintf(&b, "    %s: %s\n", source, reason)
			}
		}
	}
	return b.Bytes()
}

// build builds both programs into one directory.
func build(t *testing.T, dir string) (judge, withauto string) {
	t.Helper()
	const module = "github.com/whylate/whylate/lab/limitscompare"
	judge, err := vm.BuildStatic(t.Context(), dir, module+"/judge")
	must.Do(t, err)
	withauto = must.Have(vm.BuildStatic(t.Context(), dir, module+"/withauto"))(t)
	return judge, withauto
}

// TestHost runs on the machine itself, with as many CPUs as it has.
func TestHost(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	judge, _ := build(t, t.TempDir())
	dir := must.Have(filepath.Abs(machines))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, judge, "run", dir)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errOut.Bytes())
	}
	rs, done, err := vm.ParseResults(out.Bytes())
	if err != nil || !done {
		t.Fatalf("results: %v, done %v: %s", err, done, errOut.Bytes())
	}
	compare(t, collect(t, rs), 0)
}

// TestVM runs with 16 CPUs, as the machines have.
func TestVM(t *testing.T) {
	if os.Getenv("WHYLATE_VM") == "" {
		t.Skip("set WHYLATE_VM=1 to boot a virtual machine (.ci/vm.sh does)")
	}
	kernels, err := vm.Kernels(os.Getenv("WHYLATE_VM_KERNELS"))
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	guest, err := vm.BuildGuest(t.Context(), dir)
	must.Do(t, err)
	judge, withauto := build(t, dir)
	m := vm.Machine{Guest: guest, Layout: "v2", CPUs: 16, MemoryMB: 1024, Exec: "/judge", Files: map[string][]byte{}}
	for release, image := range kernels { // any one: nothing here depends on it
		t.Logf("kernel %s", release)
		m.Kernel = image
		break
	}
	for name, file := range map[string]string{"judge": judge, "withauto": withauto} {
		if m.Files[name], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	names, err := filepath.Glob(filepath.Join(machines, "*.txtar"))
	must.Do(t, err)
	for _, n := range names {
		if m.Files["machines/"+filepath.Base(n)], err = os.ReadFile(n); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	rs, err := vm.Boot(ctx, m)
	if errors.Is(err, vm.ErrNoQemu) {
		t.Skip(err)
	}
	must.Do(t, err)
	rows := collect(t, rs)
	compare(t, rows, 16)
	got := table(rows)
	if *update {
		must.Do(t, os.WriteFile("table.golden", got, 0o644))
	}
	want := must.Have(os.ReadFile("table.golden"))(t)
	if !bytes.Equal(got, want) {
		t.Errorf("the table differs from table.golden:\n%s", got)
	}
}
