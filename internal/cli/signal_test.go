//go:build unix

package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
)

// TestInterruptSignal sends the signal of Ctrl-C to the process while it waits for more input: it reports its results, and
// ends immediately.
func TestInterruptSignal(t *testing.T) {
	data, err := aTrace()
	must.Do(t, err)
	cmd := program(t, "explain", "--json", "-")
	stdin, err := cmd.StdinPipe()
	must.Do(t, err)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Minute
	must.Do(t, cmd.Start())
	defer cmd.Process.Kill()
	// Far more empty members of a gzip file than a pipe holds stand before the trace: when Write returns, the process
	// has read some of them, and so is ready for the signal. How much of the trace it has read by then is its affair.
	var member, zipped bytes.Buffer
	must.Do(t, gzip.NewWriter(&member).Close())
	zipped.Write(bytes.Repeat(member.Bytes(), 1<<20/member.Len()))
	z := gzip.NewWriter(&zipped)
	must.Have(z.Write(data))(t)
	must.Do(t, z.Close())
	must.Have(stdin.Write(zipped.Bytes()))(t)
	must.Do(t, cmd.Process.Signal(os.Interrupt))
	err = cmd.Wait()
	var exit *exec.ExitError
	must.True(t, errors.As(err, &exit) && exit.ExitCode() == ExitInterrupted, "%v; standard error %q", err, errs.String())
	check.True(t, bytes.HasPrefix(errs.Bytes(), []byte("whylate: interrupted")) && bytes.Count(errs.Bytes(), []byte("\n")) == 1,
		"standard error %q", errs.String())
	if out.Len() > 0 {
		schematest.Validate(t, "the partial report", out.Bytes())
	}
}

// TestRecordEnds ends a recording by signals while the service still sends: an interrupt and a termination leave one complete
// file, and the file that a kill leaves is readable.
func TestRecordEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	data := must.Have(aTrace())(t)
	// Its trace never ends: a recording that waits for the rest would run until the test's own limit.
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(data)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, os.Kill} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			cmd := program(t, "record", "-d", "1h", "--no-cpu", "--no-host", "-o", filepath.Join(dir, "x.whylate"), srv.URL)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			must.Do(t, cmd.Start())
			defer cmd.Process.Kill()
			readable := func() (name string, report []byte) {
				names, err := filepath.Glob(filepath.Join(dir, "*"))
				must.True(t, err == nil && len(names) <= 1, "there are %q, %v", names, err)
				var out bytes.Buffer
				if len(names) == 0 || Run(context.Background(), []string{"explain", "--json", names[0]}, nil, &out, io.Discard) != ExitOK {
					return "", nil
				}
				return filepath.Base(names[0]), out.Bytes()
			}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				if name, _ := readable(); name != "" {
					break
				} else if time.Now().After(deadline) {
					t.Fatalf("nothing that was received can be read; standard error %q", errs.String())
				}
			}
			must.Do(t, cmd.Process.Signal(sig))
			err := cmd.Wait()
			name, report := readable()
			must.True(t, name != "", "it ended with %v, and nothing can be read", err)
			schematest.Validate(t, "the report on what came", report)
			if sig == os.Kill {
				check.True(t, strings.HasPrefix(name, "x.whylate.part-"), "a killed recording is called %s", name)
			} else if name != "x.whylate" || cmd.ProcessState.ExitCode() != ExitInterrupted {
				t.Errorf("it ended with %v and left %s; standard error %q", err, name, errs.String())
			}
		})
	}
}

// TestUnasked records from a server that sends unsolicited data, which net/http would write to the terminal.
func TestUnasked(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 more than it was asked for\r\n")
		io.Copy(io.Discard, c)
	}))
	defer srv.Close()
	cmd := program(t, "record", "-d", "1s", "-o", filepath.Join(t.TempDir(), "x.whylate"), srv.URL)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != ExitFailed {
		t.Errorf("it ended with %v", err)
	}
	check.False(t, strings.Contains(errs.String(), "more than it was asked for"), "standard error %q", errs.String())
}
