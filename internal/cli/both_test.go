package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestDiffReadsBothAtOnce compares the result of reading both sides concurrently with that of reading them one after the
// other, and checks that an error of either side gives its reason.
func TestDiffReadsBothAtOnce(t *testing.T) {
	cores := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(cores)
	diff := func(procs int, args ...string) (status int, stdout, stderr string) {
		runtime.GOMAXPROCS(procs)
		var out, errs bytes.Buffer
		status = Run(context.Background(), append([]string{"diff"}, args...), strings.NewReader(""), &out, &errs)
		return status, out.String(), errs.String()
	}
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		must.Do(t, os.WriteFile(name, data, 0o644))
		return name
	}
	marked := testprog.Trace(t, "marked")
	first, second := file("first.trace", marked), file("second.trace", testprog.Service(t, "lock-network").Trace)
	broken, missing := file("broken.trace", marked[:40]), filepath.Join(dir, "missing.trace")
	if status, out, errs := diff(minParallelCores-1, first, second); status != ExitOK {
		t.Errorf("one after the other: exit status %d, %s", status, errs)
	} else if _, got, _ := diff(minParallelCores, first, second); got != out {
		t.Errorf("at once it says\n%s\none after the other\n%s", got, out)
	}
	for _, bad := range []string{broken, missing} {
		for _, args := range [][]string{{first, bad}, {bad, first}, {bad, bad}} {
			status, out, errs := diff(minParallelCores, args...)
			if status != ExitFailed || out != "" || !strings.Contains(errs, filepath.Base(bad)) || strings.Contains(errs, "interrupted") {
				t.Errorf("diff %v: exit status %d, %q, %q", args, status, out, errs)
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	runtime.GOMAXPROCS(minParallelCores)
	var out, errs bytes.Buffer
	if status := Run(ctx, []string{"diff", first, second}, strings.NewReader(""), &out, &errs); status != ExitInterrupted || out.Len() > 0 {
		t.Errorf("interrupted: exit status %d, %q, %q", status, out.String(), errs.String())
	}
}
