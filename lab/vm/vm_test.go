//go:build linux

package vm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/lab/vm/check"
)

func buildGuest(t *testing.T) string {
	t.Helper()
	return must.Have(BuildGuest(t.Context(), t.TempDir()))(t)
}

func report(t *testing.T, rs []check.Result) {
	t.Helper()
	for _, r := range rs {
		t.Run(r.Check, func(t *testing.T) {
			for _, l := range r.Log {
				t.Log(l)
			}
			switch {
			case r.Failed:
				t.Errorf("failed on kernel %s, layout %s", r.Kernel, r.Layout)
			case r.Skip != "":
				t.Skip(r.Skip)
			}
		})
	}
}

// maxBoots bounds the boots of one machine.
const maxBoots = 6

// bootWithRetry boots a machine, and again if its kernel panicked: the first quota patches the scheduler's code, and an
// emulated CPU that runs that code at the same time may see half of the patch (in dequeue_entity of 6.12, in sched_clock_cpu and
// set_next_task_fair of 7.3: there twice in a row).
func bootWithRetry(t *testing.T, m Machine) (rs []check.Result, err error) {
	t.Helper()
	for range maxBoots {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		rs, err = Boot(ctx, m)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "Kernel panic") {
			break
		}
		t.Log(err)
	}
	return rs, err
}

// TestVM boots every kernel with every layout.
func TestVM(t *testing.T) {
	if os.Getenv("WHYLATE_VM") == "" {
		t.Skip("set WHYLATE_VM=1 to boot virtual machines (.ci/vm.sh does)")
	}
	kernels, err := Kernels(os.Getenv("WHYLATE_VM_KERNELS"))
	if err != nil {
		t.Skip(err)
	}
	guest := buildGuest(t)
	for release, image := range kernels {
		t.Run(release, func(t *testing.T) {
			for _, m := range []struct {
				name    string
				machine Machine
			}{
				{"v2", Machine{Layout: "v2", CPUs: 4, MemoryMB: 512}},
				{"v1", Machine{Layout: "v1", CPUs: 4, MemoryMB: 512}},
				{"hybrid", Machine{Layout: "hybrid", CPUs: 4, MemoryMB: 512}},
				{"v2-clock", Machine{Layout: "v2", CPUs: 2, MemoryMB: 512, Run: "^clock/"}},
				// Set-up only: 24 emulated CPUs on one thread measure nothing.
				{"v2-24-cpus", Machine{Layout: "v2", CPUs: 24, MemoryMB: 768, Run: "many-cores|leaf-quota|ancestor-quota"}},
			} {
				t.Run(m.name, func(t *testing.T) {
					m.machine.Kernel, m.machine.Guest = image, guest
					rs, err := bootWithRetry(t, m.machine)
					if errors.Is(err, ErrNoQemu) {
						t.Skip(err)
					}
					report(t, rs)
					if err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// TestVMHostSamples runs the tests of host samples that create cgroups on every kernel with cgroup v2: samples must equal the
// kernel's counters.
func TestVMHostSamples(t *testing.T) {
	if os.Getenv("WHYLATE_VM") == "" {
		t.Skip("set WHYLATE_VM=1 to boot virtual machines (.ci/vm.sh does)")
	}
	kernels, err := Kernels(os.Getenv("WHYLATE_VM_KERNELS"))
	if err != nil {
		t.Skip(err)
	}
	guest, dir := buildGuest(t), t.TempDir()
	run, err := BuildStatic(t.Context(), dir, "github.com/whylate/whylate/lab/vm/testrun")
	must.Do(t, err)
	tests := filepath.Join(dir, "tests")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", tests, "github.com/whylate/whylate/internal/capture/host")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the tests: %v\n%s", err, b)
	}
	files := map[string][]byte{"arguments": []byte("-test.v -test.count=1 -test.run=TestThrottledTimeIsTheKernels")}
	for name, file := range map[string]string{"testrun": run, "tests": tests} {
		if files[name], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	for release, image := range kernels {
		t.Run(release, func(t *testing.T) {
			rs, err := bootWithRetry(t, Machine{Kernel: image, Guest: guest, Layout: "v2", CPUs: 1, MemoryMB: 512, Exec: "/testrun", Files: files})
			if errors.Is(err, ErrNoQemu) {
				t.Skip(err)
			}
			report(t, rs)
			if err != nil {
				t.Error(err)
			}
			if len(rs) == 0 {
				t.Error("not one test was run")
			}
		})
	}
}

// TestHost runs the same checks on the machine itself.
func TestHost(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	probe, err := check.NewEnv("")
	if err != nil {
		t.Skipf("this machine: %v", err)
	}
	if err := probe.Usable(); err != nil {
		t.Skipf("this machine: %v", err)
	}
	guest := buildGuest(t)
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, guest, "run")
	cmd.Stdout, cmd.Stderr = &out, &errOut
	runErr := cmd.Run()
	rs, done, err := ParseResults(out.Bytes())
	report(t, rs)
	if runErr != nil || err != nil || !done {
		t.Errorf("guest run: %v, %v, done %v\n%s", runErr, err, done, errOut.Bytes())
	}
}

// TestInitramfs checks the archive with the cpio program, if it is installed.
func TestInitramfs(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("no cpio program to judge the archive")
	}
	var b bytes.Buffer
	must.Do(t, writeInitramfs(&b, []initFile{{name: "init", mode: modeExec, data: []byte("hello")}, {name: "proc", mode: modeDir}}))
	cmd := exec.Command("sh", "-c", "gzip -d | "+cpio+" -itv --quiet")
	cmd.Stdin = &b
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("cpio: %v\n%s", err, out)
	}
	for _, want := range []string{"-rwxr-xr-x", "drwxr-xr-x", " init\n", " proc\n", " 5 "} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("cpio's listing lacks %q:\n%s", want, out)
		}
	}
}
