package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/output/bounded"
)

// VerbArg is the first argument of a child process that runs a verb of whylate.
const VerbArg = "verb"

const (
	maxOutput = 64 << 20 // bytes of a verb's JSON
	maxError  = 8 << 10  // bytes of a verb's error output
	// childMemory is the value of --max-memory: the largest generation of a trace has to fit.
	childMemory = "1GiB"
	killAfter   = 3 * time.Second
)

// verbs runs whylate's verbs one at a time, because the CPUs of the machine may be busy with a
// service.
type verbs struct {
	timeout time.Duration
	slots   chan struct{}
}

// run runs a verb with arguments in a child process, waits for it, and decodes its JSON into v. It first waits for a slot. The child may take the
// timeout plus extra. If it fails, the error is a *verbError with its message.
func (r *verbs) run(ctx context.Context, extra time.Duration, v any, args ...string) error {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout+extra)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, append([]string{VerbArg}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	out, stderr := &bounded.Buffer{Limit: maxOutput}, &bounded.Buffer{Limit: maxError, DropsRest: true}
	cmd.Stdout, cmd.Stderr = out, stderr
	err = cmd.Run()
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("whylate %s took longer than %v and was stopped", args[0], r.timeout+extra)
	case ctx.Err() != nil:
		return ctx.Err()
	case out.IsExceeded:
		return fmt.Errorf("whylate %s answered with more than %d MB", args[0], maxOutput>>20)
	case err != nil:
		return &verbError{cmp.Or(lastLine(string(stderr.Bytes())), fmt.Sprintf("whylate %s: %v", args[0], err)), out.Bytes()}
	}
	if err := json.Unmarshal(out.Bytes(), v); err != nil {
		return fmt.Errorf("reading what whylate %s answered: %w", args[0], err)
	}
	return nil
}

// A verbError is the output of a failed verb: the last line of its error output, and the JSON of verbs
// that print it in spite of the failure.
type verbError struct {
	line   string
	output []byte
}

func (e *verbError) Error() string { return e.line }

// lastLine returns the last line of a verb's standard error, without the program's name.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "whylate: ")
}
