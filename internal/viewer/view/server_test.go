package view

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime/trace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
)

// hostileNames are names that must always be treated as text.
var hostileNames = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "quote\"'`", "control\x00\x1b[31m\n", "::error::x", "\u202eturned", `</script><svg onload=alert(1)>`, "{{report}}",
}

// recordTasks returns a trace of this process: tasks with hostile names that wait for each other.
var recordTasks = sync.OnceValues(func() ([]byte, error) {
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	for i := range 160 {
		all.Add(1)
		go func() {
			defer all.Done()
			_, task := trace.NewTask(context.Background(), hostileNames[i%len(hostileNames)])
			defer task.End()
			done := make(chan int)
			go func() {
				time.Sleep(time.Duration(i%5) * 100 * time.Microsecond)
				done <- i
			}()
			<-done
		}()
	}
	all.Wait()
	trace.Stop()
	return out.Bytes(), nil
})

func newShownServer(t *testing.T, opts Options) (*report.Report, *inspect.Trace, *Server) {
	t.Helper()
	data := must.Have(recordTasks())(t)
	x := inspect.NewIndex(inspect.Limits{})
	rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Slowest: 1000, Index: x}))(t)
	tr := must.Have(inspect.Open(x, bytes.NewReader(data), int64(len(data))))(t)
	s := must.Have(New(opts))(t)
	must.Do(t, s.Show(tr, rep))
	return rep, tr, s
}

// call sends a request to the server like a client on this machine.
func call(s *Server, method, target string, change func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:8080"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func answer[T any](t *testing.T, s *Server, target string) T {
	t.Helper()
	res := call(s, "GET", target, nil)
	body, _ := io.ReadAll(res.Body)
	must.True(t, res.StatusCode == http.StatusOK && res.Header.Get("Content-Type") == "application/json",
		"%s: %d %s %.300s", target, res.StatusCode, res.Header.Get("Content-Type"), body)
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: %v in %.300s", target, err, body)
	}
	return v
}

func TestAnsweredHosts(t *testing.T) {
	_, _, s := newShownServer(t, Options{})
	_, _, open := newShownServer(t, Options{Remote: true})
	for _, tc := range []struct {
		host          string
		local, remote bool // whether a local and a remote server answer
	}{
		{"127.0.0.1:8080", true, true}, {"127.0.0.1", true, true}, {"localhost:1", true, true}, {"LocalHost", true, true}, {"[::1]:80", true, true}, {"127.9.9.9:80", true, true},
		{"192.0.2.1:80", false, true}, {"[2001:db8::1]:80", false, true}, {"0.0.0.0:80", false, true},
		{"evil.example", false, false}, {"localhost.evil.example:80", false, false}, {"127.0.0.1.evil.example", false, false}, {"evil.example:127.0.0.1", false, false}, {"", false, false},
		{"127.1", false, false}, {"0x7f000001", false, false}, {"localhost@evil.example", false, false},
	} {
		for srv, want := range map[*Server]bool{s: tc.local, open: tc.remote} {
			for _, path := range []string{"/", "/api/facts"} {
				res := call(srv, "GET", path, func(r *http.Request) { r.Host = tc.host })
				if got := res.StatusCode == http.StatusOK; got != want {
					t.Errorf("host %q, %s, remote %v: %d", tc.host, path, srv.opts.Remote, res.StatusCode)
				}
			}
		}
	}
	for _, tc := range []struct {
		path, site, mode string
		want             int
	}{
		{"/api/facts", "same-origin", "cors", 200}, {"/api/facts", "none", "navigate", 200}, {"/api/facts", "cross-site", "no-cors", 403}, {"/api/facts", "same-site", "cors", 403},
		{"/api/facts", "cross-site", "navigate", 403}, {"/", "cross-site", "navigate", 200}, {"/", "cross-site", "no-cors", 403},
	} {
		res := call(s, "GET", tc.path, func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", tc.site)
			r.Header.Set("Sec-Fetch-Mode", tc.mode)
		})
		check.True(t, res.StatusCode == tc.want, "%+v: %d", tc, res.StatusCode)
	}
}

func TestReadOnly(t *testing.T) {
	_, _, s := newShownServer(t, Options{})
	for _, m := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"} {
		if res := call(s, m, "/api/requests", nil); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", m, res.StatusCode)
		}
	}
	for _, path := range []string{"/", "/api/facts"} {
		if res := call(s, "HEAD", path, nil); res.StatusCode != http.StatusOK {
			t.Errorf("HEAD %s: %d", path, res.StatusCode)
		}
	}
	for _, path := range []string{"/x", "/api", "/api/", "/api/x", "/..%2f..%2fetc/passwd", "/../../etc/passwd", "/api/../server.go", "//evil.example/", "/page/main.js", "/api/facts/"} {
		res := call(s, "GET", "/", func(r *http.Request) { r.URL = &url.URL{Path: path, RawPath: path} })
		check.True(t, res.StatusCode == http.StatusNotFound, "%s: %d", path, res.StatusCode)
	}
}

func TestHeaders(t *testing.T) {
	_, _, s := newShownServer(t, Options{})
	for _, path := range []string{"/", "/api/facts", "/nothing", "/api/requests?limit=x"} {
		h := call(s, "GET", path, nil).Header
		for k, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store"} {
			check.True(t, h.Get(k) == want, "%s: %s: %q", path, k, h.Get(k))
		}
		check.True(t, h.Get("Access-Control-Allow-Origin") == "" && strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'"),
			"%s: %v", path, h)
	}
	page, _ := io.ReadAll(call(s, "GET", "/", nil).Body)
	check.True(t, bytes.Contains(page, []byte("default-src 'none'")) && bytes.Contains(page, []byte("connect-src 'self'")),
		"the page has no content security policy")
}

// TestParameters sends requests that no page sends. Each answer must be small or describe the error.
func TestParameters(t *testing.T) {
	_, _, s := newShownServer(t, Options{})
	long := strings.Repeat("x", 501)
	for _, target := range []string{
		"/api/requests?limit=501", "/api/requests?limit=-1", "/api/requests?offset=99999999999999999999", "/api/requests?min=1e9", "/api/requests?share=2", "/api/requests?share=NaN",
		"/api/requests?open=yes", "/api/requests?sort=x", "/api/requests?group=x", "/api/requests?cause=x", "/api/requests?function=" + long, "/api/requests?function=%ff", "/api/requests?goroutine=-1", "/api/requests?a=%zz",
		"/api/request?n=9999999", "/api/request?n=-1", "/api/request", "/api/request?id=nothing", "/api/goroutines?limit=1000000", "/api/goroutines?ids=1,x", "/api/goroutines?ids=" + strings.Repeat("1,", 200) + "1",
		"/api/functions?limit=100000", "/api/functions?q=" + long, "/api/strips?from=10&to=10", "/api/area?from=10&to=10&g=1", "/api/areastacks?from=10&to=10&g=1", "/api/area?from=0&to=9&g=" + strings.Repeat("1,", 128) + "1", "/api/byfunction?sort=x", "/api/byfunction?limit=100000", "/api/strips?from=0&to=100&buckets=0", "/api/strips?from=0&to=100&buckets=1000000", "/api/strips?from=0&to=99999999999999999999&g=1",
		"/api/strips?from=0&to=100&g=" + strings.Repeat("1,", 128) + "1", "/api/strips?from=0&to=100&g=" + strings.Repeat("1,", 100) + "1&p=" + strings.Repeat("1,", 100) + "1", "/api/moment?g=1", "/api/moment?g=x&t=1", "/api/moment?p=99999999999&t=1",
	} {
		res := call(s, "GET", target, nil)
		body, _ := io.ReadAll(res.Body)
		var e struct{ Error string }
		check.True(t, res.StatusCode == http.StatusBadRequest && json.Unmarshal(body, &e) == nil && e.Error != "" && len(body) <= 1000,
			"%.80s: %d %.200s", target, res.StatusCode, body)
	}
	for _, target := range []string{
		"/api/requests?offset=2147483647&limit=500", "/api/strips?from=0&to=1152921504606846976&buckets=4096&g=1,2,3&p=0,999", "/api/strips?from=1152921504606846975&to=1152921504606846976&g=1",
		"/api/strips?from=0&to=1000000&g=18446744073709551615", "/api/area?from=0&to=1152921504606846976&g=18446744073709551615,1,1", "/api/areastacks?from=0&to=1152921504606846976&g=18446744073709551615,1,1", "/api/byfunction?from=1152921504606846976&to=1", "/api/byfunction?offset=2147483647", "/api/moment?g=18446744073709551615&t=1", "/api/moment?p=4294967295&t=1152921504606846976", "/api/goroutines?from=1152921504606846976&to=1&sort=run",
	} {
		res := call(s, "GET", target, nil)
		if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK || len(body) > 1<<20 {
			t.Errorf("%s: %d, %d bytes %.200s", target, res.StatusCode, len(body), body)
		}
	}
}

// TestSameAsReport compares the answers with the report.
func TestSameAsReport(t *testing.T) {
	rep, _, s := newShownServer(t, Options{})
	total := 0
	for _, g := range rep.Groups {
		total += g.Count + g.Open.Count
		page := answer[inspect.Page](t, s, "/api/requests?limit=500&group="+url.QueryEscape(g.ID))
		check.True(t, page.Total == g.Count+g.Open.Count, "%q: %d rows, %d requests", g.Name, page.Total, g.Count)
		for i := range g.Slowest {
			got := answer[openedRequest](t, s, "/api/request?id="+g.Slowest[i].ID)
			a, _ := json.Marshal(got.Request)
			b, _ := json.Marshal(&g.Slowest[i])
			must.True(t, string(a) == string(b) && got.Group == g.ID, "%q: opened\n%s\nreport\n%s", g.Name, a, b)
		}
	}
	if page := answer[inspect.Page](t, s, "/api/requests"); page.Total != total || len(page.Rows) != min(100, total) || total == 0 {
		t.Errorf("%d rows of %d, the report has %d requests", len(page.Rows), page.Total, total)
	}
	// Hostile names are unchanged in the data.
	names := map[string]bool{}
	for _, g := range rep.Groups {
		names[g.Name] = true
	}
	for _, n := range hostileNames {
		check.True(t, names[n], "no group is called %q", n)
	}
	body, _ := io.ReadAll(call(s, "GET", "/", nil).Body)
	if bytes.Contains(body, []byte("<script>alert")) || bytes.Contains(body, []byte("<img src=x")) {
		t.Error("a name from the trace is markup in the page")
	}
}

// TestStripsJSON compares the compact form with the strips.
func TestStripsJSON(t *testing.T) {
	rep, tr, s := newShownServer(t, Options{})
	type strip struct {
		P, G   *uint64
		Pieces []int64
		Sums   *string
	}
	type strips struct {
		From     int64
		To       int64
		BucketNS int64 `json:"bucket_ns"`
		Strips   []strip
		Texts    []string
		Sites    []*report.Site
	}
	g := rep.Groups[0].Slowest[0].Goroutine
	for _, buckets := range []int{2, 4000} {
		got := answer[strips](t, s, fmt.Sprintf("/api/strips?from=0&to=%d&buckets=%d&p=0&g=%d,1", rep.Input.DurationNS, buckets, g))
		want := must.Have(tr.Strips(context.Background(), inspect.Tile{From: 0, To: rep.Input.DurationNS, Buckets: buckets, Lanes: []inspect.Lane{{Kind: inspect.ProcLane}, {ID: g}, {ID: 1}}}))(t)
		must.True(t, len(got.Strips) == 3 && got.Strips[0].P != nil && got.Strips[1].G != nil && *got.Strips[1].G == g && got.BucketNS == want.BucketNS,
			"%+v", got)
		for i, w := range want.Strips {
			if w.Sums != nil {
				raw, err := base64.StdEncoding.DecodeString(*got.Strips[i].Sums)
				must.True(t, err == nil && len(raw) == buckets*4, "%d bytes of sums, %v", len(raw), err)
				for st := range w.Sums {
					for k, ns := range w.Sums[st] {
						if v := raw[(st-1)*buckets+k]; (v > 0) != (ns > 0) {
							t.Fatalf("strip %d state %d bucket %d: %d for %d ns", i, st, k, v, ns)
						}
					}
				}
				continue
			}
			must.True(t, len(got.Strips[i].Pieces) == 6*len(w.Pieces), "strip %d: %d numbers for %d pieces", i, len(got.Strips[i].Pieces), len(w.Pieces))
			for k, p := range w.Pieces {
				row := got.Strips[i].Pieces[6*k : 6*k+6]
				must.True(t, got.From+row[0] == p.From && row[1] == p.To-p.From && row[2] == int64(p.State-timeline.Running) && row[3] == int64(p.G),
					"strip %d piece %d: %v for %+v", i, k, row, p)
				if text := tr.String(p.Reason); i > 0 && got.Texts[row[4]] != text {
					t.Fatalf("strip %d piece %d: %q for %q", i, k, got.Texts[row[4]], text)
				}
			}
		}
	}
	m := answer[struct{ Moment *inspect.Moment }](t, s, fmt.Sprintf("/api/moment?g=%d&t=%d", g, rep.Groups[0].Slowest[0].StartNS+1)).Moment
	check.True(t, m != nil && m.Goroutine == g && len(m.Requests) != 0 && m.Requests[0].ID == rep.Groups[0].Slowest[0].ID, "moment %+v", m)
}

// TestConcurrentClients sends requests from many goroutines, some of which cancel them.
func TestConcurrentClients(t *testing.T) {
	_, _, s := newShownServer(t, Options{})
	server := httptest.NewServer(s)
	defer server.Close()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for _, path := range []string{"/", "/api/facts", "/api/requests?function=main", fmt.Sprint("/api/request?n=", i), "/api/goroutines?sort=run&stack=1&function=view", "/api/strips?from=0&to=1000000&g=1,2,3&p=0", "/api/functions?q=a", "/api/byfunction?sort=waiting", "/api/area?from=0&to=1000000&g=1,2,3", "/api/areastacks?from=0&to=1000000&g=1,2,3"} {
				ctx, cancel := context.WithCancel(context.Background())
				if i%4 == 3 {
					cancel() // cancelled before the answer
				}
				r, err := http.NewRequestWithContext(ctx, "GET", server.URL+path, nil)
				if err != nil {
					t.Error(err)
				}
				res, err := server.Client().Do(r)
				if err == nil {
					if _, err := io.Copy(io.Discard, res.Body); err == nil && res.StatusCode != http.StatusOK {
						t.Errorf("%s: %d", path, res.StatusCode)
					}
					res.Body.Close()
				} else if i%4 != 3 {
					t.Error(err)
				}
				cancel()
			}
		}()
	}
	wg.Wait()
}
