package uprobes_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	reference "golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/capture/schedtrace"
	"github.com/whylate/whylate/internal/capture/uprobes"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// program has workers that sleep under one mutex. It ends with its standard input.
const program = `package main

import (
	"io"
	"os"
	"sync"
	"time"
)

var mu sync.Mutex

func holdLock() {
	mu.Lock()
	time.Sleep(3 * time.Millisecond)
	mu.Unlock()
}

func main() {
	for range 3 {
		go func() {
			for {
				holdLock()
			}
		}()
	}
	io.Copy(io.Discard, os.Stdin)
}
`

// TestRecord records programs that were built in different ways, by Go releases that are supported, and attaches repeatedly.
func TestRecord(t *testing.T) {
	testfull.Need(t, "root, a kernel with uprobes, and other releases of Go")
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	for _, c := range []struct {
		name, release string
		flags         []string
	}{
		{"1.22", "go1.22.12", nil},
		{"1.23", "go1.23.12", nil},
		{"1.24 stripped", "go1.24.13", []string{"-ldflags=-s -w"}},
		{"1.25 PIE", "go1.25.5", []string{"-buildmode=pie"}},
		{"1.26 PIE stripped", "go1.26.8", []string{"-buildmode=pie", "-ldflags=-s -w"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "program")
			build := exec.Command("go", append(append([]string{"build", "-o", name}, c.flags...), filepath.Join(dir, "main.go"))...)
			build.Dir = dir
			build.Env = append(os.Environ(), "GOWORK=off", "GO111MODULE=off", "CGO_ENABLED=0", "GOTOOLCHAIN="+c.release)
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			cmd := exec.Command(name)
			stdin := must.Have(cmd.StdinPipe())(t)
			must.Do(t, cmd.Start())
			for range 10 {
				res := must.Have(uprobes.Record(t.Context(), uprobes.Options{PID: cmd.Process.Pid, Duration: 300 * time.Millisecond, Force: true}))(t)
				checkRecording(t, res)
			}
			stdin.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("the program did not survive: %v", err)
			}
		})
	}
}

// checkRecording checks that the reference reader accepts the trace, and that it shows the lock and the sleep under it.
func checkRecording(t *testing.T, res *uprobes.Result) {
	t.Helper()
	var trace bytes.Buffer
	must.Do(t, schedtrace.Write(&trace, res.Recording))
	reader := must.Have(reference.NewReader(&trace))(t)
	counts := map[string]int{}
	for {
		e, err := reader.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		if e.Kind() != reference.EventStateTransition {
			continue
		}
		var stack []string
		for f := range e.StateTransition().Stack.Frames() {
			stack = append(stack, f.Func)
		}
		counts[e.StateTransition().Reason+" "+strings.Join(stack, " ")]++
	}
	if sleeps := counts["sleep time.Sleep main.holdLock main.main.func1"]; sleeps < 20 {
		t.Errorf("%d sleeps in 300 ms, want some 70: %v", sleeps, counts)
	}
	waits := 0
	for key, n := range counts {
		if strings.HasPrefix(key, "sync ") && strings.HasSuffix(key, " main.holdLock main.main.func1") {
			waits += n
		}
	}
	check.True(t, waits >= 20, "%d waits for the lock in 300 ms: %v", waits, counts)
}

func TestErrors(t *testing.T) {
	_, err := uprobes.Record(t.Context(), uprobes.Options{PID: 1 << 30, Duration: time.Second})
	check.True(t, errors.Is(err, uprobes.ErrNoProcess), "no process: %v", err)
}
