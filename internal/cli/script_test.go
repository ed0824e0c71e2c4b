package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/cli/experiments"
	"github.com/whylate/whylate/internal/experiment/demo/client"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"whylate": func() { os.Exit(Main(allVerbs()...)) }})
}

// allVerbs returns the verbs that only the whylate command has.
func allVerbs() []command.Verb {
	return append(DemoVerbs(client.Load), experiments.Verbs(StartRecording)...)
}

// TestScripts runs the command as a separate process, as a shell would.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TERM", "xterm")
			files, err := inputs()
			for name, b := range files {
				err = errors.Join(err, os.WriteFile(filepath.Join(env.WorkDir, name), b, 0o644))
			}
			return errors.Join(err, os.Mkdir(filepath.Join(env.WorkDir, "folder"), 0o755))
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// status N COMMAND ARGS...: the command ends with this exit status.
			"status": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: status N command [args...]")
				}
				got := 0
				var exit *exec.ExitError
				if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
					got = exit.ExitCode()
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if want, err := strconv.Atoi(args[0]); err != nil || got != want {
					ts.Fatalf("exit status %d, want %s; standard error:\n%s", got, args[0], ts.ReadFile("stderr"))
				}
			},
			// lines stdout|stderr N: the stream has N lines (* for any number), the last one ended, and nothing that a
			// terminal obeys.
			"lines": func(ts *testscript.TestScript, neg bool, args []string) {
				text := ts.ReadFile(args[0])
				if n := strings.Count(text, "\n"); args[1] != "*" && strconv.Itoa(n) != args[1] || text != "" && !strings.HasSuffix(text, "\n") {
					ts.Fatalf("%s has %d lines, want %s:\n%s", args[0], n, args[1], text)
				}
				if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 }); i >= 0 {
					ts.Fatalf("%s has the control character %q", args[0], text[i])
				}
			},
			// report FILE|stdout: it is one report that the schema allows, and nothing else.
			"report": func(ts *testscript.TestScript, neg bool, args []string) {
				schematest.Validate(t, args[0], []byte(ts.ReadFile(args[0])))
			},
		},
	})
}

// aTrace is a trace of this process, recorded once: a server whose handler sleeps on another goroutine, over more than
// one generation.
var aTrace = sync.OnceValues(func() ([]byte, error) {
	var buf bytes.Buffer
	mux := http.NewServeMux()
	mux.HandleFunc("/slow", scriptSlow)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	// No collection, whatever else this process does: what explain says of garbage depends on it.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if err := trace.Start(&buf); err != nil {
		return nil, err
	}
	for n, end := 0, time.Now().Add(1300*time.Millisecond); n < 50 || time.Now().Before(end); n++ { // enough to be compared, however busy the machine is
		resp, err := srv.Client().Get(srv.URL + "/slow")
		if err != nil {
			trace.Stop()
			return nil, err
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	trace.Stop()
	return buf.Bytes(), nil
})

func scriptSlow(w http.ResponseWriter, _ *http.Request) {
	done := make(chan bool)
	go func() {
		scriptSleep()
		close(done)
	}()
	<-done
	io.WriteString(w, "late")
}

//go:noinline
func scriptSleep() { time.Sleep(20 * time.Millisecond) }

// inputs are those of the scripts, by name: made once for all of them.
var inputs = sync.OnceValues(func() (map[string][]byte, error) {
	data, err := aTrace()
	if err != nil {
		return nil, err
	}
	gz := func(b []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		w.Write(b)
		w.Close()
		return out.Bytes()
	}
	var profile, text bytes.Buffer
	if err := errors.Join(pprof.Lookup("heap").WriteTo(&profile, 0), pprof.Lookup("goroutine").WriteTo(&text, 1)); err != nil {
		return nil, err
	}
	var rec bytes.Buffer
	w, err := bundle.NewWriter(&rec, time.Now())
	if err != nil {
		return nil, err
	}
	w.Write(data)
	if err := w.Close(bundle.Meta{URL: "http://svc", Warnings: []bundle.Warning{{Code: "rounded", Text: "recording 2s instead of 1.3s"}}}); err != nil {
		return nil, err
	}
	// Bytes of no structure, the same every time.
	random := make([]byte, 4096)
	for i, x := 0, uint32(2463534242); i < len(random); i++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		random[i] = byte(x)
	}
	files := map[string][]byte{
		"x.trace": data, "x.trace.gz": gz(data), "x.whylate": rec.Bytes(), "stub.trace": data[:100],
		"cut.trace":    data[:len(data)-40], // in the last generation, however short it is
		"cut.trace.gz": gz(data)[:1<<10], "empty.trace": {}, "heap.pprof": profile.Bytes(), "goroutines.txt": text.Bytes(), "random.bin": random,
		"old.trace": []byte("go 1.19 trace\x00\x00\x00" + string(random)), "future.trace": []byte("go 3.1 trace\x00\x00\x00\x00" + string(random)),
		"page.html": []byte("<!DOCTYPE html>\n<html><body>Sign in</body></html>\n"), "other.json": []byte("{\"a\": 1}\n"),
		"cut.whylate":        rec.Bytes()[:4<<10], // in the first generation, which has more than that
		"unfinished.whylate": rec.Bytes()[:rec.Len()-30],
	}
	for _, name := range []string{"pubsub", "tso", "hostile", "none"} {
		if files[name+".json"], err = os.ReadFile(filepath.Join("..", "..", "report", "testdata", name+".json")); err != nil {
			return nil, err
		}
	}
	return files, addComparable(files)
})

// stuck returns its bytes and then blocks until it is closed, like a pipe whose writer is alive.
type stuck struct {
	data      *bytes.Reader
	empty     chan struct{} // closed when all has been given
	closeOnce sync.Once
	end       chan struct{}
}

func (s *stuck) Read(p []byte) (int, error) {
	n, err := s.data.Read(p)
	if err == nil {
		return n, nil
	}
	s.closeOnce.Do(func() { close(s.empty) })
	<-s.end
	return 0, io.EOF
}

func TestExplainInterrupted(t *testing.T) {
	data := must.Have(aTrace())(t)
	for _, c := range []struct {
		name   string
		data   []byte
		stdout bool
		stderr string
	}{
		{"after whole generations", data, true, "interrupted: the report covers what was read until then"},
		{"before one", data[:100], false, "interrupted before a whole second"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := &stuck{data: bytes.NewReader(c.data), empty: make(chan struct{}), end: make(chan struct{})}
			defer close(in.end)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() {
				<-in.empty
				cancel()
			}()
			var out, errs bytes.Buffer
			check.Equal(t, Run(ctx, []string{"explain", "--json", "-"}, in, &out, &errs), ExitInterrupted, "exit status")
			check.True(t, strings.Contains(errs.String(), c.stderr) && strings.Count(errs.String(), "\n") == 1, "standard error %q", errs.String())
			if c.stdout {
				schematest.Validate(t, "the partial report", out.Bytes())
			} else if out.Len() > 0 {
				t.Errorf("standard output %q", out.String())
			}
		})
	}
}

func TestExplainURL(t *testing.T) {
	url := pprofServer(t)
	var out, errs bytes.Buffer
	status := Run(context.Background(), []string{"explain", "--json", "-d", "1s", strings.Replace(url, "://", "://jo:s3cret@", 1)}, strings.NewReader(""), &out, &errs)
	must.True(t, status == ExitOK, "exit status %d, standard error %q", status, errs.String())
	schematest.Validate(t, "the report of a URL", out.Bytes())
	check.False(t, strings.Contains(out.String()+errs.String(), "s3cret"), "the password is in the output")
	check.True(t, strings.Contains(out.String(), `"name": "`+url+`/debug/pprof/trace`), "the report does not name %s:\n%.300s", url, out.String())
}

// TestRecordPipedToExplain: explain refuses record's flags, and the command line that its error names explains the recording.
func TestRecordPipedToExplain(t *testing.T) {
	const want = "use `whylate record FLAGS -o - URL | whylate explain -`"
	for _, args := range [][]string{{"--cacert", "x"}, {"--cert", "x"}, {"--key", "x"}, {"--server-name", "x"}, {"--password-file", "x"}, {"--token-file", "x"}, {"--user", "x"}, {"-u", "x"},
		{"--header-file", "x"}, {"--proxy", "none"}, {"--timeout", "3s"}, {"--no-host"}} {
		var out, errs bytes.Buffer
		status := Run(context.Background(), append(append([]string{"explain"}, args...), "http://127.0.0.1:1"), strings.NewReader(""), &out, &errs)
		check.True(t, status == ExitUsage && strings.Contains(errs.String(), want) && out.Len() == 0,
			"explain %q: exit status %d, output %q, errors %q", args, status, out.String(), errs.String())
	}
	var out, errs bytes.Buffer
	if status := Run(context.Background(), []string{"explain", "--nonsense", "x"}, strings.NewReader(""), &out, &errs); status != ExitUsage || strings.Contains(errs.String(), "record") {
		t.Errorf("a flag that record does not have: exit status %d, errors %q", status, errs.String())
	}
	url := pprofServer(t)
	in, trace := io.Pipe()
	recorded := make(chan string, 1)
	go func() {
		var errs bytes.Buffer
		status := Run(context.Background(), []string{"record", "--proxy", "none", "--timeout", "20s", "-d", "1s", "-o", "-", url}, strings.NewReader(""), trace, &errs)
		trace.Close()
		recorded <- fmt.Sprint(status, " ", errs.String())
	}()
	out.Reset()
	errs.Reset()
	if status := Run(context.Background(), []string{"explain", "--json", "-"}, in, &out, &errs); status != ExitOK {
		t.Errorf("exit status %d, errors %q", status, errs.String())
	}
	in.Close()
	if got := <-recorded; !strings.HasPrefix(got, "0 ") {
		t.Errorf("record: exit status and errors %q", got)
	}
	schematest.Validate(t, "the report of a piped recording", out.Bytes())
}

func TestExplainURLFailures(t *testing.T) {
	l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed := l.Addr().String()
	l.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>Sign in</html>") }))
	defer page.Close()
	for _, c := range []struct {
		args   []string
		status int
	}{
		{[]string{closed}, ExitFailed},
		{[]string{page.URL}, ExitFailed},
		{[]string{"-d", "-3s", page.URL}, ExitUsage},
		{[]string{"-u", "jo", page.URL}, ExitUsage},
	} {
		var out, errs bytes.Buffer
		status := Run(context.Background(), append([]string{"explain"}, c.args...), strings.NewReader(""), &out, &errs)
		check.True(t, status == c.status && strings.Count(errs.String(), "\n") == 1 && out.Len() == 0,
			"explain %q: exit status %d, want %d; output %q, errors %q", c.args, status, c.status, out.String(), errs.String())
	}
}

func TestIsURL(t *testing.T) {
	for arg, want := range map[string]bool{
		"http://svc": true, "HTTPS://svc:1/x": true, "svc:6060": true, ":6060": true, "[::1]:6060/debug/pprof": true, "svc-1.ns_2:6060/debug": true,
		"x.trace": false, "-": false, "./a:b": false, `C:\x.trace`: false, "C:/x.trace": false, "ftp://x": false, "svc": false, "a:123456": false,
	} {
		check.Equal(t, isURL(arg), want, "isURL(%q)", arg)
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"300MB": 300e6, "300mb": 300e6, "1.5GiB": 3 << 29, "268435456": 268435456, "64k": 64000, "2 GB": 2e9, "1B": 1, "1TiB": 1 << 40,
		"": 0, "MB": 0, "-1": 0, "0": 0, "12XB": 0, "NaN": 0, "1e999": 0, "Inf": 0, "9999999999TB": 0, "1.2.3M": 0,
	} {
		got, err := words.ParseBytes(in)
		check.True(t, got == want && (err == nil) == (want > 0), "ParseBytes(%q) = %d, %v, want %d", in, got, err, want)
	}
}
