package cli

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"os"
	"path/filepath"
	"runtime/trace"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/viewer/view"
)

// TestView serves a trace from a file, gzipped, and through a pipe, until it is
// interrupted.
func TestView(t *testing.T) {
	var raw, zipped bytes.Buffer
	must.Do(t, trace.Start(&raw))
	_, task := trace.NewTask(context.Background(), "<b>order</b>")
	time.Sleep(time.Millisecond)
	task.End()
	trace.Stop()
	z := gzip.NewWriter(&zipped)
	must.Have(z.Write(raw.Bytes()))(t)
	must.Do(t, z.Close())
	dir := t.TempDir()
	plain, packed := filepath.Join(dir, "x.trace"), filepath.Join(dir, "x.trace.gz")
	for name, data := range map[string][]byte{plain: raw.Bytes(), packed: zipped.Bytes()} {
		must.Do(t, os.WriteFile(name, data, 0o600))
	}
	t.Setenv("TMPDIR", t.TempDir())
	for _, arg := range []string{plain, packed, "-"} {
		ctx, cancel := context.WithCancel(context.Background())
		out, in := io.Pipe()
		var complaints bytes.Buffer
		status := make(chan int, 1)
		go func() {
			status <- Run(ctx, []string{"view", arg}, bytes.NewReader(raw.Bytes()), in, &complaints)
			in.Close()
		}()
		line, err := bufio.NewReader(out).ReadString('\n')
		url := strings.TrimSpace(line)
		if err != nil || !strings.HasPrefix(url, "http://127.0.0.1:") {
			cancel()
			t.Fatalf("view %s prints %q, %v; status %d: %s", arg, line, err, <-status, &complaints)
		}
		reading := true
		for waitFor := time.Now().Add(time.Minute); reading && time.Now().Before(waitFor); time.Sleep(time.Millisecond) {
			res := must.Have(http.Get(url + "api/reading"))(t)
			var p struct {
				Reading bool
				Error   string
			}
			must.Do(t, json.NewDecoder(res.Body).Decode(&p))
			res.Body.Close()
			if reading = p.Reading; p.Error != "" {
				t.Fatalf("view %s: %s", arg, p.Error)
			}
		}
		for path, want := range map[string]string{"": `id="report"`, "api/requests": `"total":1,`} {
			res := must.Have(http.Get(url + path))(t)
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			check.True(t, err == nil && res.StatusCode == http.StatusOK && bytes.Contains(body, []byte(want)),
				"view %s: %s answers %d %.200s, %v", arg, path, res.StatusCode, body, err)
		}
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if got := <-status; got != ExitOK {
			t.Errorf("view %s ends with %d: %s", arg, got, &complaints)
		}
	}
	if leftovers, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "whylate-*")); len(leftovers) > 0 {
		t.Errorf("left behind: %v", leftovers)
	}
}

// TestViewRecordsAgain requests a new recording of a service, first while it runs and then after it ended.
func TestViewRecordsAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("records for two seconds")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	service := httptest.NewServer(mux)
	defer service.Close()
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out, in := io.Pipe()
	var complaints bytes.Buffer
	status := make(chan int, 1)
	go func() {
		status <- Run(ctx, []string{"view", "-d", "1s", "--no-cpu", "--no-host", service.URL}, strings.NewReader(""), in, &complaints)
		in.Close()
	}()
	line := must.Have(bufio.NewReader(out).ReadString('\n'))(t)
	url := strings.TrimSpace(line)
	waitFor := func(failed bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			var p view.Progress
			res := must.Have(http.Get(url + "api/reading"))(t)
			must.Do(t, json.NewDecoder(res.Body).Decode(&p))
			res.Body.Close()
			if !p.Reading && (p.Error != "") == failed {
				return
			}
			must.True(t, !time.Now().After(end) && p.Error == "", "reading: %+v; %s", p, &complaints)
		}
	}
	again := func() {
		t.Helper()
		req := must.Have(http.NewRequest(http.MethodPost, url+"api/again", nil))(t)
		req.Header.Set("Origin", strings.TrimSuffix(url, "/"))
		res := must.Have(http.DefaultClient.Do(req))(t)
		res.Body.Close()
		must.Equal(t, res.StatusCode, http.StatusAccepted, "asked for a new recording: %s", res.Status)
	}
	shows := func(n int) {
		t.Helper()
		res := must.Have(http.Get(fmt.Sprint(url, "api/facts?recording=", n)))(t)
		res.Body.Close()
		check.Equal(t, res.StatusCode, http.StatusOK, "recording %d is not shown: %s", n, res.Status)
	}
	waitFor(false)
	shows(1)
	again()
	waitFor(false)
	shows(2)
	service.Close()
	again()
	waitFor(true)
	shows(2)
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if got := <-status; got != ExitOK {
		t.Errorf("view ends with %d: %s", got, &complaints)
	}
	if leftovers, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "whylate-*")); len(leftovers) > 0 {
		t.Errorf("left behind: %v", leftovers)
	}
}

func TestViewRefuses(t *testing.T) {
	rep := filepath.Join(t.TempDir(), "x.json")
	must.Do(t, os.WriteFile(rep, []byte(`{"schema":"whylate.report/v1"}`), 0o600))
	for _, tc := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{rep}, ExitFailed, "whylate report --html"},
		{[]string{"--listen", "0.0.0.0:0", rep}, ExitUsage, "--allow-remote"},
		{[]string{"--listen", ":8080", rep}, ExitUsage, "--allow-remote"},
		{[]string{"--listen", "192.0.2.1:80", rep}, ExitUsage, "--allow-remote"},
		{[]string{"--listen", "127.0.0.1", rep}, ExitUsage, "ADDRESS:PORT"},
		{[]string{"--listen", "127.0.0.1:99999", rep}, ExitUsage, "port"},
		{[]string{}, ExitUsage, "name one trace"},
		{[]string{"no-such-file"}, ExitFailed, "there is no file"},
	} {
		var out, complaints bytes.Buffer
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		status := Run(ctx, append([]string{"view"}, tc.args...), strings.NewReader(""), &out, &complaints)
		cancel()
		check.True(t, status == tc.status && strings.Contains(complaints.String(), tc.says) && out.Len() == 0,
			"view %q: status %d, %q", tc.args, status, complaints.String())
	}
}

// TestReportCommandHidesLogin fails if the page of a live service could show the password of its URL.
func TestReportCommandHidesLogin(t *testing.T) {
	var flags explainFlags
	cmd := &cobra.Command{Use: "view"}
	if got := flags.reportCommand(cmd, "http://scott:tiger@127.0.0.1:6060/?token=s3cret"); strings.Contains(got, "tiger") || strings.Contains(got, "s3cret") || !strings.Contains(got, "127.0.0.1:6060") {
		t.Errorf("the command is %q", got)
	}
}
