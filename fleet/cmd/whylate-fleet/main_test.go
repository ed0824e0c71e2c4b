package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/trace"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/service/mark"
)

// TestMain makes the test binary run as the command in processes that a test starts, and in their children.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == work.VerbArgument || os.Args[1] == "-dir") {
		main()
		return
	}
	os.Exit(m.Run())
}

// startFleet starts a fleet in a process and returns its address.
func startFleet(t *testing.T, dir string) (url string, c *exec.Cmd) {
	t.Helper()
	c = exec.Command(os.Args[0], "-dir", dir, "-listen", "127.0.0.1:0", "serve")
	out := must.Have(c.StderrPipe())(t)
	must.Do(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	in := bufio.NewScanner(out)
	for in.Scan() {
		if _, url, ok := strings.Cut(in.Text(), "address="); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return url, c
		}
	}
	t.Fatal("the fleet ended before it printed an address", in.Err())
	return "", nil
}

// TestTokenVerbs: tokens are created, listed and revoked by verbs, which refuse additional arguments.
func TestTokenVerbs(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (string, error) {
		out, err := exec.Command(os.Args[0], append([]string{"-dir", dir}, args...)...).CombinedOutput()
		return string(out), err
	}
	for _, verb := range []string{"token", "reader"} {
		out := must.Have(run(verb, "shop"))(t)
		check.True(t, len(strings.TrimSpace(out)) >= 26, "%s: %q", verb, out)
	}
	list, in90Days := must.Have(run("tokens"))(t), time.Now().Add(90*24*time.Hour).UTC().Format(" expires 2006-01-02")
	check.True(t, strings.Count(list, " shop made ") == 2 && strings.Count(list, in90Days) == 2, "tokens: %q", list)
	for _, c := range []struct{ args, want string }{
		{"revoke shop", "1 tokens of shop ended\n"}, {"revoke reader:shop", "1 tokens of shop ended\n"}, {"revoke shop", "0 tokens of shop ended\n"}, {"tokens", ""}, {"check", "the configuration is right\n"},
		{"backfill", "0 recordings wait to be explained again\n"}, {"backup " + dir + "/copy", ""},
	} {
		check.Equal(t, must.Have(run(strings.Fields(c.args)...))(t), c.want, "%s", c.args)
	}
	must.Have(os.Stat(dir + "/copy"))(t)
	for _, args := range [][]string{{"tokens", "shop"}, {"token"}, {"token", ""}, {"revoke", "a", "b"}, {"serve", "x"}, {"check", "x"}, {"demo", "x"}, {"backfill", "x"}, {"backup"}, {"x"}, {}} {
		if out, err := run(args...); err == nil || !strings.Contains(out, "say what to do") {
			t.Errorf("%q: %q %v", args, out, err)
		}
	}
}

// recordTrace returns an execution trace of marked requests.
func recordTrace(t *testing.T, requests int) []byte {
	t.Helper()
	m := http.NewServeMux()
	m.HandleFunc("GET /x", func(http.ResponseWriter, *http.Request) {})
	h := mark.Handler(m)
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		t.Skip("another execution trace is running:", err)
	}
	for range requests {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/x", nil))
	}
	trace.Stop()
	return out.Bytes()
}

// TestKilled: the fleet is killed (-9) with recordings in its queue, and all senders send again. Each recording is explained,
// and its requests count once.
func TestKilled(t *testing.T) {
	const files, requests = 4, 30
	dir := t.TempDir()
	st, err := (&config{dir: dir}).openStore(t.Context(), false)
	must.Do(t, err)
	must.Do(t, st.AddToken(t.Context(), "token", store.SendScope, "shop", time.Now().Add(time.Hour)))
	must.Do(t, st.Close())
	recordings := make([][]byte, files)
	for i := range recordings {
		recordings[i] = recordTrace(t, requests)
	}
	send := func(url string) {
		for _, r := range recordings {
			q, err := http.NewRequest("POST", url+"/v1/recordings", bytes.NewReader(r))
			must.Do(t, err)
			q.Header.Set("Authorization", "Bearer token")
			res, err := http.DefaultClient.Do(q)
			must.Do(t, err)
			_ = res.Body.Close()
			if res.StatusCode != http.StatusAccepted {
				t.Fatal(res.Status)
			}
		}
	}
	url, c := startFleet(t, dir)
	send(url)
	must.Do(t, c.Process.Kill())
	_ = c.Wait()
	if st, err = store.Open(t.Context(), filepath.Join(dir, "fleet.db"), ""); err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	// The kill may have come before or after a claim. This adds a claim of a dead worker, whose lease has ended.
	must.Have(st.Claim(t.Context(), time.Now().Add(time.Hour), -time.Hour))(t)
	url, c = startFleet(t, dir)
	send(url)
	for done := int64(0); done < files; {
		states, err := st.CountByState(t.Context())
		if err != nil || states[store.Poison] > 0 {
			t.Fatal(states, err)
		}
		done = states[store.Done]
		time.Sleep(50 * time.Millisecond) // the time limit of the test ends the loop
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	_, v, err := st.Overview(t.Context(), store.Selection{Service: "shop", From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)})
	check.True(t, err == nil && len(v) == 1 && v[0].Requests == files*requests, "%+v %v, want %d requests", v, err, files*requests)
}

// shopRecording returns a .whylate file of the service shop with a trace. n makes its bytes unique.
func shopRecording(t *testing.T, trace []byte, pod string, n int) []byte {
	return newRecording(t, trace, "shop", pod, n)
}

func newRecording(t *testing.T, trace []byte, service, pod string, n int) []byte {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	meta, err := json.Marshal(map[string]any{"schema": "whylate.recording/v1", "url": fmt.Sprint("test ", n),
		"flight": map[string]any{"reason": map[string]string{"kind": "slow"}, "service": map[string]string{"service.name": service, "service.version": "v1", "k8s.pod.name": pod}}})
	if err != nil {
		t.Error(err)
	}
	for _, e := range []struct {
		name string
		body []byte
	}{{"trace", trace}, {"meta.json", meta}} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: e.name, Method: zip.Store})
		if err == nil {
			_, err = w.Write(e.body)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Error(err)
	}
	return out.Bytes()
}

// post sends a recording. The status is 0 if there is no answer.
func post(url string, body []byte) (id string, status int) { return postAs(url, "token", body) }

func postAs(url, token string, body []byte) (id string, status int) {
	q, err := http.NewRequest("POST", url+"/v1/recordings", bytes.NewReader(body))
	if err != nil {
		return "", 0
	}
	q.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", 0
	}
	defer res.Body.Close()
	var got struct{ ID string }
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode == http.StatusAccepted && json.Unmarshal(data, &got) != nil {
		return "", 0
	}
	return got.ID, res.StatusCode
}
