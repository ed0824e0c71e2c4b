package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// runRecord runs the command with a "record" in front of the arguments.
func runRecord(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = Run(ctx, append([]string{"record", "--proxy", "none"}, args...), strings.NewReader("from-stdin\n"), &out, &errs)
	return status, out.String(), errs.String()
}

// pprofServer serves this process's profiles. There is one trace at a time, so tests that use it do not run in parallel.
func pprofServer(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("records for seconds")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// wholeGenerations reads a trace with the engine's reader.
func wholeGenerations(t *testing.T, r io.Reader) int {
	t.Helper()
	tr := must.Have(tracefmt.NewReader(r, tracefmt.Options{}))(t)
	for n := 0; ; n++ {
		g, err := tr.Next()
		if err != nil {
			check.Equal(t, err, io.EOF, "after %d generations", n)
			return n
		}
		g.Release()
	}
}

func TestRecordBundle(t *testing.T) {
	url := pprofServer(t)
	name := filepath.Join(t.TempDir(), "x.whylate")
	status, stdout, stderr := runRecord(context.Background(), url, "-d", "900ms", "-o", name)
	host := strings.TrimPrefix(url, "http://")
	with := "with CPU profile and allocation profile"
	if runtime.GOOS == "linux" {
		with += " and host samples"
	}
	check.True(t, status == ExitOK && strings.HasPrefix(stdout, host+": ") && strings.HasSuffix(stdout, with+": "+name+"\n"),
		"status %d, output %q", status, stdout)
	check.Equal(t, stderr, "whylate: warning: "+host+": recording 1s instead of 900ms: the endpoint takes whole seconds\n", "errors")
	f := must.Have(bundle.Open(name))(t)
	defer f.Close()
	r, _, err := f.Trace()
	must.Do(t, err)
	check.True(t, wholeGenerations(t, r) != 0, "no generation in the trace")
	if m := f.Meta(); m.Tool == "" || m.URL != url+"/debug/pprof/trace" {
		t.Errorf("metadata %+v", m)
	}
}

func TestRecordToStandardOutput(t *testing.T) {
	url := pprofServer(t)
	status, stdout, stderr := runRecord(context.Background(), "-d1s", "--no-cpu", "-o", "-", url)
	check.True(t, status == ExitOK && strings.Contains(stderr, " of trace in "), "status %d, errors %q", status, stderr)
	check.True(t, wholeGenerations(t, strings.NewReader(stdout)) != 0, "no generation in the trace")
}

func TestRecordInterrupted(t *testing.T) {
	url := pprofServer(t)
	name := filepath.Join(t.TempDir(), "x.trace")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		// When a whole generation has reached the temporary file.
		for ctx.Err() == nil {
			parts, _ := filepath.Glob(name + ".part-*")
			if slices.ContainsFunc(parts, hasGeneration) {
				cancel()
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	status, stdout, stderr := runRecord(ctx, "-d", "10m", "-o", name, url)
	if status != ExitInterrupted || !strings.Contains(stdout, "cut short: "+name) || !strings.Contains(stderr, "the trace was interrupted after") {
		t.Errorf("status %d, output %q, errors %q", status, stdout, stderr)
	}
	f, err := os.Open(name)
	must.Do(t, err, "what arrived was not kept")
	defer f.Close()
	tr := must.Have(tracefmt.NewReader(f, tracefmt.Options{}))(t)
	if _, err := tr.Next(); err != nil {
		t.Errorf("no whole generation: %v", err)
	}
}

// hasGeneration reports whether a file begins with a trace's first generation.
func hasGeneration(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	tr, err := tracefmt.NewReader(f, tracefmt.Options{})
	if err != nil {
		return false
	}
	_, err = tr.Next()
	return err == nil
}

func TestRecordSeveralAsJSON(t *testing.T) {
	url := pprofServer(t)
	dir := t.TempDir()
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "go 1.26 trace\x00\x00\x00 and no more")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer cut.Close()
	status, stdout, stderr := runRecord(context.Background(), "--json", "-d1s", "-o", filepath.Join(dir, "x.trace"), "http://jo:s3cret@127.0.0.1:1", url, cut.URL)
	check.Equal(t, status, ExitFailed, "status")
	var got struct{ Recordings []recording }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Recordings) != 3 {
		t.Fatalf("%v: %s", err, stdout)
	}
	refused, good, bad := got.Recordings[0], got.Recordings[1], got.Recordings[2]
	check.True(t, refused.Error != nil && refused.Error.Kind == "refused" && refused.File == "", "the closed port: %+v", refused)
	check.True(t, good.Error == nil && !good.Truncated && good.Bytes >= 100 && good.WindowNS == 1e9 && good.Start != nil,
		"the service: %+v", good)
	if info, err := os.Stat(good.File); err != nil || info.Size() != good.Bytes {
		t.Errorf("the service's file: %v, %v", info, err)
	}
	check.True(t, bad.Error != nil && bad.Error.Kind == "cut" && bad.Truncated && bad.File != "", "the cut one: %+v", bad)
	for _, want := range []string{"refused: no process listens there", "the trace was cut", "what arrived cannot be analysed"} {
		check.True(t, strings.Contains(stderr, want), "errors %q\nlack %q", stderr, want)
	}
	check.False(t, strings.Contains(stdout+stderr, "s3cret"), "the password is in the output: %s%s", stdout, stderr)
}

func TestRecordWrongUse(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "name at least one URL"},
		{[]string{"ftp://jo:s3cret@h"}, "only the schemes"},
		{[]string{"h", "-d", "0s"}, "must be positive"},
		{[]string{"h", "-d", "1000h"}, "is not possible"},
		{[]string{"h", "--timeout", "-1s"}, "must be positive"},
		{[]string{"h", "--timeot", "1s"}, "did you mean --timeout"},
		{[]string{"h", "-H", "s3cret"}, "number 1 is not of the form"},
		{[]string{"h", "--header-file", missing}, "reading credentials"},
		{[]string{"h", "--password-file", "-"}, "needs --user"},
		{[]string{"h", "--user", "jo"}, "--user without a password"},
		{[]string{"h", "--user", "jo:s3cret", "--password-file", "-"}, "names another"},
		{[]string{"h", "--user", "jo:s3cret", "--token-file", "-"}, "only one can be sent"},
		{[]string{"h", "--user", "jo", "--password-file", "-", "--token-file", "-"}, "only one of"},
		{[]string{"https://h", "--cacert", missing}, "reading --cacert"},
		{[]string{"h", "--insecure"}, "write https://"},
		{[]string{"h", "h:80", "-o", "-"}, "only one trace"},
		{[]string{"h", "-o", "-", "--json"}, "both write"},
		{[]string{"h", "-o", "-", "--explain"}, "both write"},
		{[]string{"h:1", "http://u:s3cret@h:1/debug/pprof"}, "given twice"},
	} {
		status, stdout, stderr := runRecord(context.Background(), c.args...)
		check.True(t, status == ExitUsage && stdout == "" && strings.Contains(stderr, c.want) && strings.Count(stderr, "\n") == 1,
			"%q: status %d, output %q, errors %q, want one line that says %q", c.args, status, stdout, stderr, c.want)
		check.False(t, strings.Contains(stderr, "s3cret"), "%q: a secret is in %q", c.args, stderr)
	}
	if entries, _ := filepath.Glob("recording-*"); len(entries) != 0 {
		t.Errorf("files left: %v", entries)
	}
}

// TestRecordCredentials: every source of credentials reaches the service, the one nearest to the command takes precedence, and
// none is printed.
func TestRecordCredentials(t *testing.T) {
	var mu sync.Mutex
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = r.Header
		http.Error(w, "no: "+r.Header.Get("Authorization")+r.Header.Get("X-Key"), http.StatusUnauthorized)
	}))
	defer s.Close()
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	host := strings.TrimPrefix(s.URL, "http://")
	for _, c := range []struct {
		name       string
		env        map[string]string
		args       []string
		auth, xkey string
	}{
		{"URL", nil, []string{"http://jo:s3cret-1@" + host}, basic("jo:s3cret-1"), ""},
		{"flag", nil, []string{"-u", "jo:s3cret-2", "http://x:s3cret-3@" + host}, basic("jo:s3cret-2"), ""},
		{"password in environment", map[string]string{envPassword: "s3cret-4"}, []string{"-u", "jo", s.URL}, basic("jo:s3cret-4"), ""},
		{"password file", map[string]string{envPassword: "s3cret-4"}, []string{"-u", "jo", "--password-file", file("pw", "s3cret-5\n"), s.URL}, basic("jo:s3cret-5"), ""},
		{"password on standard input", nil, []string{"-u", "jo", "--password-file", "-", s.URL}, basic("jo:from-stdin"), ""},
		{"token file", nil, []string{"--token-file", file("token", "s3cret-6\n"), s.URL}, "Bearer s3cret-6", ""},
		{"token in environment", map[string]string{envToken: "s3cret-7"}, []string{s.URL}, "Bearer s3cret-7", ""},
		{"URL before environment", map[string]string{envToken: "s3cret-7"}, []string{"http://jo:s3cret-1@" + host}, basic("jo:s3cret-1"), ""},
		{"headers in environment", map[string]string{envHeaders: "X-Key: s3cret-8\nAuthorization: Custom s3cret-9"}, []string{s.URL}, "Custom s3cret-9", "s3cret-8"},
		{"header file", map[string]string{envHeaders: "X-Key: s3cret-8"}, []string{"--header-file", file("headers", "# mine\nX-Key: s3cret-10\n"), s.URL}, "", "s3cret-10"},
		{"header flag", map[string]string{envHeaders: "X-Key: s3cret-8"}, []string{"-H", "x-key: s3cret-11", s.URL}, "", "s3cret-11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			name := filepath.Join(t.TempDir(), "x.trace")
			status, stdout, stderr := runRecord(context.Background(), append(c.args, "-o", name)...)
			check.True(t, status == ExitFailed && strings.Contains(stderr, "401"), "status %d, errors %q", status, stderr)
			mu.Lock()
			defer mu.Unlock()
			check.True(t, got.Get("Authorization") == c.auth && got.Get("X-Key") == c.xkey,
				"the service got %q and %q, want %q and %q", got.Get("Authorization"), got.Get("X-Key"), c.auth, c.xkey)
			if all := stdout + stderr; strings.Contains(all, "s3cret") || c.auth != "" && strings.Contains(all, c.auth) {
				t.Errorf("a secret is in %q", all)
			}
		})
	}
}

// work is a handler to find in a trace.
func work(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(time.Millisecond)
	io.WriteString(w, "done")
}

// askFor sends requests until the context ends.
func askFor(ctx context.Context, url string) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
}

func TestRecordExplain(t *testing.T) {
	busy := httptest.NewServer(http.HandlerFunc(work))
	defer busy.Close()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		askFor(ctx, busy.URL)
	}()
	defer func() {
		cancel()
		<-done
	}()
	first := pprofServer(t)
	dir := t.TempDir()
	name := filepath.Join(dir, "x.trace")
	status, stdout, stderr := runRecord(context.Background(), "--explain", "-d1s", "-o", name, first)
	must.True(t, status == ExitOK && stderr == "", "status %d, errors %q", status, stderr)
	for _, want := range []string{": " + name + "\n", "requests", "asleep", "whylate explain " + name} {
		check.True(t, strings.Contains(stdout, want), "output lacks %q:\n%s", want, stdout)
	}
	check.False(t, strings.Contains(stdout, "on 1 of 1"), "one report needs no summary:\n%s", stdout)
	// A second replica: the same trace again, from a file.
	trace := must.Have(os.ReadFile(name))(t)
	second := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(trace) }))
	defer second.Close()
	args := []string{"--explain", "-d1s", "-o", name, first, second.URL, "http://127.0.0.1:1"}
	status, stdout, stderr = runRecord(context.Background(), args...)
	check.True(t, status == ExitFailed && strings.Contains(stderr, "no process listens"),
		"status %d, errors %q: one of three is not there", status, stderr)
	check.Equal(t, strings.Count(stdout, "why "), 2, "reports, want 2:\n%s", stdout)
	at := strings.LastIndex(stdout, "in 2 of 2 recordings")
	must.True(t, at >= 0, "no comparison of the two:\n%s", stdout)
	for _, url := range []string{first, second.URL} {
		check.True(t, strings.Contains(stdout[at:], strings.TrimPrefix(url, "http://")), "the comparison lacks %s:\n%s", url, stdout[at:])
	}
	status, stdout, _ = runRecord(context.Background(), append(args, "--json")...)
	var got struct {
		Recordings []struct {
			Report *report.Report
			Error  *recordingError
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Recordings) != 3 || status != ExitFailed {
		t.Fatalf("status %d, %v: %s", status, err, stdout)
	}
	for i, r := range got.Recordings {
		check.True(t, (r.Report != nil) == (i < 2) && (r.Error != nil) == (i == 2),
			"recording %d: report %v, error %v", i, r.Report != nil, r.Error)
		check.False(t, r.Report != nil && (len(r.Report.Groups) == 0 || r.Report.Groups[0].Count == 0),
			"recording %d: no requests in the report", i)
	}
}

// TestRecordExplainNothing: a trace that cannot be explained is recorded nevertheless.
func TestRecordExplainNothing(t *testing.T) {
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "go 1.26 trace\x00\x00\x00"+strings.Repeat("nonsense", 100_000))
	}))
	defer bad.Close()
	name := filepath.Join(t.TempDir(), "x.trace")
	status, stdout, stderr := runRecord(context.Background(), "--explain", "-d1s", "-o", name, bad.URL)
	check.True(t, status == ExitFailed && strings.Contains(stdout, name) && strings.Contains(stderr, "damaged"),
		"status %d, output %q, errors %q", status, stdout, stderr)
	if info, err := os.Stat(name); err != nil || info.Size() != 16+800_000 {
		t.Errorf("the file: %v, %v", info, err)
	}
}
