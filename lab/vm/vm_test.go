//go:build linux

package vm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/whylate/whylate/lab/vm/check"
)

func buildGuest(t *testing.T) string {
	t.Helper()
	guest, err := BuildGuest(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return guest
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
				// Set-up only: 24 emulated CPUs on one thread measure nothing.
				{"v2-24-cpus", Machine{Layout: "v2", CPUs: 24, MemoryMB: 768, Run: "many-cores|leaf-quota|ancestor-quota"}},
			} {
				t.Run(m.name, func(t *testing.T) {
					m.machine.Kernel, m.machine.Guest = image, guest
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					defer cancel()
					rs, err := Boot(ctx, m.machine)
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

// The archive must be what the kernel unpacks; the cpio program, where there
// is one, judges.
func TestInitramfs(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("no cpio program to judge the archive")
	}
	var b bytes.Buffer
	if err := writeInitramfs(&b, []initFile{{name: "init", mode: modeExec, data: []byte("hello")}, {name: "proc", mode: modeDir}}); err != nil {
		t.Fatal(err)
	}
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
