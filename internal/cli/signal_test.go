//go:build unix

package cli

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/schematest"
)

// TestInterruptSignal sends the process the signal that Ctrl-C does, while it waits for more of its input: it reports
// what it has, and ends at once.
func TestInterruptSignal(t *testing.T) {
	data, err := aTrace()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "explain", "--json", "-")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	// Far more empty members of a gzip file than a pipe holds stand before the trace: when Write returns, the process
	// has read some of them, and so is ready for the signal. How much of the trace it has read by then is its affair.
	var member, zipped bytes.Buffer
	if err := gzip.NewWriter(&member).Close(); err != nil {
		t.Fatal(err)
	}
	zipped.Write(bytes.Repeat(member.Bytes(), 1<<20/member.Len()))
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write(zipped.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != ExitInterrupted {
		t.Fatalf("%v; standard error %q", err, errs.String())
	}
	if !bytes.HasPrefix(errs.Bytes(), []byte("whylate: interrupted")) || bytes.Count(errs.Bytes(), []byte("\n")) != 1 {
		t.Errorf("standard error %q", errs.String())
	}
	if out.Len() > 0 {
		schematest.Validate(t, "the partial report", out.Bytes())
	}
}
