package uprobes_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// TestObject compiles the BPF programs again.
func TestObject(t *testing.T) {
	testfull.Need(t, "compiles with clang 14")
	name := filepath.Join(t.TempDir(), "uprobes.bpf.o")
	if out, err := exec.Command("bpf/rebuild.sh", name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(name)
	must.Do(t, err)
	want, err := os.ReadFile("bpf/uprobes.bpf.o")
	must.Do(t, err)
	check.True(t, bytes.Equal(got, want), "bpf/uprobes.bpf.o was not made from bpf/uprobes.bpf.c: run bpf/rebuild.sh")
}
