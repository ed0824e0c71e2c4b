package guard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
)

func TestMain(m *testing.M) {
	testchild.Main(m, func(string, string) error { return Run(os.Stdin, os.Stdout) })
}

// TestInvalidCommand: input that is not a command is an error and does not block.
func TestInvalidCommand(t *testing.T) {
	for in, want := range map[string]string{"": "EOF", `{"args":["true"]}`: "EOF", "x\n": `"x\n": invalid`, "{}\n": `"{}\n"`} {
		if err := Run(strings.NewReader(in), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is refused with %v, want %s", in, err, want)
		}
	}
}

// TestLines: a line of any length costs one buffer, and its rest is not reported as another line.
func TestLines(t *testing.T) {
	var got []string
	readLines(strings.NewReader("a\n"+strings.Repeat("x", 100<<10)+"\nlast"), func(l string) { got = append(got, l) })
	check.True(t, slices.Equal(got, ([]string{"a", strings.Repeat("x", 8<<10), "last"})), "%d lines", len(got))
}

// TestExitText: the guard's report of the exit stays after the guard has ended; a guard that ends
// without a report was killed.
func TestExitText(t *testing.T) {
	for _, c := range []struct {
		events []event
		closed bool
		want   string
	}{{nil, false, ""}, {[]event{{Exit: "exit status 3"}}, false, "exit status 3"}, {[]event{{Exit: "exit status 3"}}, true, "exit status 3"}, {nil, true, "its guard was killed"}} {
		p := &Process{events: make(chan event, 2)}
		for _, e := range c.events {
			p.events <- e
		}
		if c.closed {
			close(p.events)
		}
		for look := range 3 {
			check.Equal(t, p.ExitText(), c.want, "look %d", look)
		}
	}
}

// TestClosedOutput: the command ends when the reader of the guard's reports has ended. Its orphaned
// child must be killed nevertheless, so SIGPIPE must not end the guard.
func TestClosedOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	fifo := filepath.Join(t.TempDir(), "end")
	must.Do(t, syscall.Mkfifo(fifo, 0o600))
	guard := testchild.Command("guard")
	guard.Stderr = nil
	stdin := must.Have(guard.StdinPipe())(t)
	stdout := must.Have(guard.StdoutPipe())(t)
	stderr := must.Have(guard.StderrPipe())(t)
	must.Do(t, guard.Start())
	defer guard.Process.Kill()
	// The sleeper keeps no pipe of the guard's open.
	script := "setsid sleep 60 >/dev/null 2>&1 & echo $! >&2; read end <" + fifo
	must.Do(t, json.NewEncoder(stdin).Encode(Command{Args: []string{"sh", "-c", script}, Env: os.Environ()}))
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil { // the command's pid
		t.Fatal(err)
	}
	sleeper := 0
	must.Have(fmt.Fscan(stderr, &sleeper))(t)
	defer syscall.Kill(sleeper, syscall.SIGKILL)
	stdout.Close()
	end, err := os.OpenFile(fifo, os.O_WRONLY, 0) // blocks until the reader opens it
	must.Do(t, err)
	end.Close()
	if err := guard.Wait(); err != nil {
		t.Errorf("the guard: %v", err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if errors.Is(syscall.Kill(sleeper, 0), syscall.ESRCH) {
			return
		}
		must.False(t, time.Now().After(deadline), "process %d is left", sleeper)
	}
}

// TestPinned: a command gets its CPUs, environment and directory, and its output arrives line by line.
// A command that cannot be started is an error with the reason.
func TestPinned(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	guard := func() *exec.Cmd {
		c := testchild.Command("guard")
		c.Stderr = nil
		return c
	}
	cpus := cpugroup.AllowedCPUs()
	last, dir := cpus[len(cpus)-1], t.TempDir()
	lines := make(chan string, 10)
	p := must.Have(Start(guard(), Command{Args: []string{"sh", "-c", "grep Cpus_allowed_list /proc/self/status; echo $WORD; pwd"}, Env: append(os.Environ(), "WORD=hello"), Dir: dir, CPUs: []int{last}}, func(l string) { lines <- l }))(t)
	if got, want := <-lines, fmt.Sprintf("Cpus_allowed_list:\t%d", last); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if a, b := <-lines, <-lines; a != "hello" || b != dir {
		t.Errorf("%q in %q", a, b)
	}
	for deadline := time.Now().Add(20 * time.Second); p.ExitText() == "" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	check.True(t, p.ExitText() == "exit status 0" && p.PID != 0, "process %d ended: %s", p.PID, p.ExitText())
	must.Do(t, p.Stop())
	for want, c := range map[string]Command{"no such file": {Args: []string{filepath.Join(dir, "none")}}, "not found": {Args: []string{"no-such-command-at-all"}}, "the guard ended before": {Args: []string{"true"}, CPUs: []int{1 << 12}}} {
		if p, err := Start(guard(), c, func(string) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, %v, want %s", c.Args, p, err, want)
		}
	}
}
