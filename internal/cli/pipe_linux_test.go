package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/judge/verify"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestPipeWithoutWriter: an interrupt ends the opening of a named pipe without a writer.
func TestPipeWithoutWriter(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := openWhile(ctx, name); command.Report(io.Discard, err) != ExitInterrupted {
		t.Errorf("opening ended with %v", err)
	}
	// The open that was left to itself must not keep the pipe.
	fd, err := syscall.Open(name, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err == nil {
		syscall.Close(fd)
	}
}

// TestPipeInterrupted sends the signals of Ctrl-C and of a shutdown to every verb that reads a file, while its input is a
// named pipe without a writer. The first signal ends the verb, with a message. A verb that continued to wait would run until
// the test's limit.
func TestPipeInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "x.trace")
	data := must.Have(aTrace())(t)
	must.Do(t, os.WriteFile(file, data, 0o644))
	for i, args := range [][]string{
		{"explain", "PIPE"}, {"explain", "--peer", "PIPE", file}, {"explain", "--ignore", "PIPE", file}, {"explain", "--thresholds", "PIPE", file}, {"explain", "--html", filepath.Join(dir, "x.html"), "--before", "PIPE", file}, {"report", "PIPE"}, {"view", "PIPE"},
		{"diff", file, "PIPE"}, {"diff", "PIPE", file}, {"check", "--budget", "p99=1s", "PIPE"}, {"check", "--baseline", "PIPE", file},
		{"export", "--to", "csv", "PIPE"}, {"verify", file, "PIPE"}, {"check", "--ledger", "PIPE", file},
		{"record", "--header-file", "PIPE", "http://127.0.0.1:1"}, {"record", "--token-file", "PIPE", "http://127.0.0.1:1"}, {"watch", "--ignore", "PIPE", "http://127.0.0.1:1"},
		{"load", "--targets", "PIPE", "--rate", "1", "http://127.0.0.1:1"}, {"load", "--body-file", "PIPE", "--rate", "1", "http://127.0.0.1:1"}, {"redact", "--key-file", "PIPE", file, filepath.Join(dir, "redacted.trace")},
		{"sweep", "--resume", "PIPE", "--url", "http://127.0.0.1:1", "--rate", "1", "--", "true"},
	} {
		t.Run(strings.ReplaceAll(strings.Join(args[:2], " "), "/", "_"), func(t *testing.T) {
			t.Parallel()
			pipe := filepath.Join(dir, fmt.Sprintf("pipe%d", i))
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Skip(err)
			}
			for j := range args {
				args[j] = strings.ReplaceAll(args[j], "PIPE", pipe)
			}
			cmd := program(t, args...)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			must.Do(t, cmd.Start())
			defer cmd.Process.Kill()
			// The pipe can be written to once the process reads it, and so is ready for signals.
			writer := -1
			for deadline := time.Now().Add(time.Minute); writer < 0; time.Sleep(time.Millisecond) {
				if fd, err := syscall.Open(pipe, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0); err == nil {
					writer = fd
				} else if time.Now().After(deadline) {
					t.Fatalf("nobody reads the pipe: %v; standard error %q", err, errs.String())
				}
			}
			defer syscall.Close(writer)
			must.Do(t, cmd.Process.Signal([]os.Signal{os.Interrupt, syscall.SIGTERM}[i%2]))
			err := cmd.Wait()
			if status := cmd.ProcessState.ExitCode(); status != ExitInterrupted || !strings.HasPrefix(errs.String(), "whylate: interrupted") || strings.Contains(errs.String(), "computing") {
				t.Errorf("it ended with %v; standard error %q", err, errs.String())
			}
		})
	}
}

// TestUnpackOnlyTraces gives view a small file of very many zero bytes.
func TestUnpackOnlyTraces(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(make([]byte, 8<<20))
	z.Close()
	in := &input{name: "bomb.gz", Reader: &packed}
	defer in.Close()
	_, size, err := seekableTrace(context.Background(), in, (*progress.Bar)(nil))
	check.True(t, err != nil && strings.Contains(err.Error(), "not a Go execution trace") && size == 0,
		"%d bytes were unpacked, error %v", size, err)
}

// TestUnpackUntilDamage passes small files with very many zero bytes after a trace's header, and after a whole trace, to view:
// nothing after the damage is unpacked, and everything before it is. A trace without damage is unpacked completely, also a cut
// one.
func TestUnpackUntilDamage(t *testing.T) {
	const zeros, readAhead = 16 << 20, 4 << 20
	data := must.Have(aTrace())(t)
	for _, c := range []struct {
		name  string
		parts [][]byte
		cut   int
		whole []byte
		most  int64
	}{
		{"zeros behind a header", [][]byte{data[:16], make([]byte, zeros)}, 0, data[:16], readAhead},
		{"zeros behind a trace", [][]byte{data, make([]byte, zeros)}, 0, data, int64(len(data)) + readAhead},
		{"a trace", [][]byte{data}, 0, data, int64(len(data))},
		{"a cut trace", [][]byte{data}, 2000, data[:len(data)/2], int64(len(data))},
	} {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		for _, p := range c.parts {
			z.Write(p)
		}
		z.Close()
		packed.Truncate(packed.Len() - c.cut)
		in := &input{name: "x.gz", Reader: &packed}
		plain, size, err := seekableTrace(context.Background(), in, (*progress.Bar)(nil))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := make([]byte, len(c.whole))
		_, err = plain.ReadAt(got, 0)
		in.Close()
		check.True(t, err == nil && bytes.Equal(got, c.whole) && size <= c.most,
			"%s: %d bytes were unpacked, at most %d wanted; the trace's own are equal: %v; %v", c.name, size, c.most, bytes.Equal(got, c.whole), err)
	}
}

// TestLedgerIsNoPipe: verify reads its ledger and then replaces it, which is impossible with a pipe. It reports that
// immediately, and does not wait for a writer.
func TestLedgerIsNoPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := verify.AddToLedger(pipe, nil); err == nil || !strings.Contains(err.Error(), "is a pipe") {
		t.Errorf("it ended with %v", err)
	}
}
