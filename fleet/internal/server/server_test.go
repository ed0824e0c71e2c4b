package server

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

const bareTrace = "go 1.26 trace\x00\x00\x00"

func newTestServer(t testing.TB) (*Server, http.Handler) {
	t.Helper()
	dir := t.TempDir()
	st := must.Have(store.Open(t.Context(), filepath.Join(dir, "fleet.db"), ""))(t)
	t.Cleanup(func() { _ = st.Close() })
	for _, k := range []struct {
		token, scope, name string
		valid              time.Duration
	}{{"right", store.SendScope, "shop", time.Hour}, {"old", store.SendScope, "shop", -time.Hour}, {"bank", store.SendScope, "bank", time.Hour}, {"reader", store.ReadScope, "ann", time.Hour}} {
		must.Do(t, st.AddToken(t.Context(), k.token, k.scope, k.name, time.Now().Add(k.valid)))
	}
	s := &Server{Store: st, Files: raw.Dir(dir), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: metrics.New(st), Ingest: true, Query: true, Loopback: true,
		Bounds: Bounds{RecordingsPerMinute: 1000, BytesPerMinute: 1 << 40, MaxQueued: 100}}
	return s, s.Handler()
}

func request(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func send(h http.Handler, body string, header ...string) *httptest.ResponseRecorder {
	return request(h, "POST", "/v1/recordings", body, append([]string{"Authorization", "Bearer right"}, header...)...)
}

// gzipBomb returns a body that unpacks to more than maxFileBytes.
func gzipBomb(t *testing.T) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	zeros := make([]byte, 1<<20)
	copy(zeros, bareTrace)
	for range maxFileBytes>>20 + 1 {
		must.Have(z.Write(zeros))(t)
	}
	must.Do(t, z.Close())
	return out.String()
}

func gzipOf(t *testing.T, text string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	must.Have(io.WriteString(z, text))(t)
	must.Do(t, z.Close())
	return out.String()
}

// bundleWith returns a .whylate file with the given meta.json, whose trace claims the given size.
func bundleWith(t *testing.T, meta string, size uint64) string {
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	m := must.Have(z.Create("meta.json"))(t)
	must.Have(io.WriteString(m, meta))(t)
	must.Have(z.CreateRaw(&zip.FileHeader{Name: "trace", Method: zip.Deflate, UncompressedSize64: size}))(t)
	must.Do(t, z.Close())
	return out.String()
}

// TestDescribe: labels come from the program that took the recording, then from the service, then from headers.
func TestDescribe(t *testing.T) {
	body := bundleWith(t, `{"service":{"k8s.pod.name":"shop-1","service.version":"v2"},"flight":{"service":{"k8s.pod.name":"x","k8s.node.name":"node-3"}}}`, 1)
	f := must.Have(os.Create(filepath.Join(t.TempDir(), "f")))(t)
	defer f.Close()
	must.Have(f.WriteString(body))(t)
	rec := &store.Recording{Bytes: int64(len(body))}
	rec.Service = "shop"
	must.Do(t, readLabels(rec, f, http.Header{"Whylate-Environment": {"live"}}))
	if got := fmt.Sprint(rec.Pod, rec.Version, rec.Node, rec.Environment); got != "shop-1v2node-3live" {
		t.Error(got)
	}
}

// TestRefusedUploads: a request without a right or without a recording gets a clear answer, is counted, and leaves no file.
func TestRefusedUploads(t *testing.T) {
	s, h := newTestServer(t)
	for _, c := range []struct {
		situation, body string
		header          []string
		status          int
		says            string
		metric          string
	}{
		{"no token", bareTrace, []string{"Authorization", ""}, 401, "no valid token", "token"},
		{"a wrong token", bareTrace, []string{"Authorization", "Bearer wrong"}, 401, "no valid token", "token"},
		{"an expired token", bareTrace, []string{"Authorization", "Bearer old"}, 401, "no valid token", "token"},
		{"a reader's token", bareTrace, []string{"Authorization", "Bearer reader"}, 401, "no valid token", "token"},
		{"another service in a header", bareTrace, []string{"Whylate-Service", "bank"}, 403, "another service's", "service"},
		{"another service in the file", bundleWith(t, `{"flight":{"service":{"service.name":"bank"}}}`, 1), nil, 403, "another service's", "service"},
		{"no recording", "hello there", nil, 415, "neither", "damaged"},
		{"nothing", "", nil, 400, "empty", "damaged"},
		{"a damaged zip", "PK\x03\x04....", nil, 400, "zip is damaged", "damaged"},
		{"no gzip", bareTrace, []string{"Content-Encoding", "gzip"}, 400, "not gzip", "damaged"},
		{"another encoding", bareTrace, []string{"Content-Encoding", "br"}, 415, "encoding", "damaged"},
		{"a body that is cut", gzipOf(t, bareTrace)[:20], []string{"Content-Encoding", "gzip"}, 400, "ends early", "damaged"},
		{"no metadata", strings.Replace(bundleWith(t, `{}`, 1), "meta.json", "meta.text", 2), nil, 400, "no meta.json", "damaged"},
		{"damaged metadata", bundleWith(t, `{"flight":`, 1), nil, 400, "meta.json is damaged", "damaged"},
		{"a bomb", gzipBomb(t), []string{"Content-Encoding", "gzip"}, 413, "at most", "large"},
		{"a bomb in the file", bundleWith(t, `{}`, 1<<40), nil, 413, "at most", "large"},
		{"too much", bareTrace + strings.Repeat("x", maxBodyBytes), nil, 413, "at most", "large"},
	} {
		before := testutil.ToFloat64(s.Metrics.ReceivedRecordings.WithLabelValues(c.metric))
		w := send(h, c.body, c.header...)
		check.True(t, w.Code == c.status && strings.Contains(w.Body.String(), c.says),
			"%s: %d %s, want %d %q", c.situation, w.Code, w.Body, c.status, c.says)
		check.Equal(t, testutil.ToFloat64(s.Metrics.ReceivedRecordings.WithLabelValues(c.metric)), before+1,
			"%s: the metric %q went from %v to", c.situation, c.metric, before)
	}
	if n, err := s.Store.CountQueued(t.Context(), "shop"); n != 0 || err != nil {
		t.Errorf("%d recordings wait, %v", n, err)
	}
	err := s.Files.List(t.Context(), func(name string, _ time.Time) error {
		check.True(t, strings.HasPrefix(name, "fleet.db"), "%s is left", name)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/recordings/..%2Ffleet.db/raw", "/recordings/" + strings.Repeat("F", 32) + "/raw", "/recordings/fleet.db/report", "/recordings/" + strings.Repeat("a", 32)} {
		check.Equal(t, request(h, "GET", path, "").Code, http.StatusNotFound, "%s", path)
	}
	for i, role := range []struct{ ingest, query bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
		s.Ingest, s.Query = role.ingest, role.query
		h := s.Handler()
		for _, path := range []string{"/", "/v1/recordings", "/healthz", "/metrics"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "http://evil.example"+path, nil))
			check.Equal(t, w.Code, http.StatusForbidden, "%+v: %s by another name for this machine", role, path)
		}
		check.Equal(t, testutil.ToFloat64(s.Metrics.DeniedRequests.WithLabelValues("host")), float64(4*(i+1)), "%+v: were denied", role)
	}
}

// TestDirectoryBomb: a zip file with very many entries is refused before the server lists them.
func TestDirectoryBomb(t *testing.T) {
	_, h := newTestServer(t)
	const entries = 1 << 18
	entry := make([]byte, 46)
	copy(entry, "PK\x01\x02")
	for _, claim := range []uint16{0, 1, 1024, 0xffff} {
		end := make([]byte, 22)
		copy(end, "PK\x05\x06")
		binary.LittleEndian.PutUint16(end[10:], claim)
		binary.LittleEndian.PutUint32(end[12:], uint32(entries*len(entry)))
		binary.LittleEndian.PutUint32(end[16:], 4)
		var body bytes.Buffer
		z := gzip.NewWriter(&body)
		for _, part := range [][]byte{[]byte("PK\x03\x04"), bytes.Repeat(entry, entries), end} {
			must.Have(z.Write(part))(t)
		}
		must.Do(t, z.Close())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := send(h, body.String(), "Content-Encoding", "gzip")
		runtime.ReadMemStats(&after)
		check.True(t, w.Code == http.StatusRequestEntityTooLarge && strings.Contains(w.Body.String(), "more than 1024 entries"),
			"claim %d: %d %s", claim, w.Code, w.Body)
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
			t.Errorf("claim %d: %d MiB were allocated", claim, used>>20)
		}
	}
}

// TestSameBytes: bytes that name no service count once for each service that sends them. Bytes that name a service count only
// for it.
func TestSameBytes(t *testing.T) {
	s, h := newTestServer(t)
	named := bundleWith(t, `{"service":{"service.name":"shop"}}`, 1)
	ids := make(map[string]bool)
	for _, c := range []struct{ token, body string }{{"right", bareTrace}, {"bank", bareTrace}, {"right", bareTrace}, {"bank", bareTrace}, {"right", named}, {"right", named}, {"right", bundleWith(t, "{}", 1)}, {"bank", bundleWith(t, "{}", 1)}} {
		w := send(h, c.body, "Authorization", "Bearer "+c.token)
		var got struct{ ID string }
		must.True(t, json.Unmarshal(w.Body.Bytes(), &got) == nil && w.Code == http.StatusAccepted && raw.IsRecordingFile(got.ID),
			"%d %s", w.Code, w.Body)
		ids[got.ID] = true
		sum := sha256.Sum256([]byte(c.body))
		check.False(t, c.body == named && got.ID != hex.EncodeToString(sum[:16]), "the id of a recording of a named service is %s", got.ID)
	}
	for service, want := range map[string]int{"shop": 3, "bank": 2} {
		if n, err := s.Store.CountQueued(t.Context(), service); n != want || err != nil {
			t.Errorf("%s has sent %d recordings, want %d, %v", service, n, want, err)
		}
	}
	check.Equal(t, len(ids), 5, "ids, want 5")
	if w := send(h, named, "Authorization", "Bearer bank"); w.Code != http.StatusForbidden {
		t.Errorf("another service's: %d %s", w.Code, w.Body)
	}
}

// TestRateLimits: a service that sends too much is refused with Retry-After, and other services are not.
func TestRateLimits(t *testing.T) {
	s, _ := newTestServer(t)
	s.Bounds = Bounds{RecordingsPerMinute: 2, BytesPerMinute: 60, MaxQueued: 2}
	h := s.Handler()
	n := 0
	next := func(size int) string { n++; return bareTrace + fmt.Sprintf("%0*d", size, n) }
	for range 2 {
		if w := send(h, next(1)); w.Code != 202 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	if w := send(h, next(1)); w.Code != 429 || w.Header().Get("Retry-After") != "30" || !strings.Contains(w.Body.String(), "a minute") {
		t.Errorf("a third: %d, after %s: %s", w.Code, w.Header().Get("Retry-After"), w.Body)
	}
	if w := send(h, next(1), "Authorization", "Bearer bank"); w.Code != 202 {
		t.Errorf("another service: %d %s", w.Code, w.Body)
	}
	s.Bounds, s.limiters.byService = Bounds{RecordingsPerMinute: 100, BytesPerMinute: 60, MaxQueued: 2}, nil
	if w := send(h, next(1)); w.Code != 429 || !strings.Contains(w.Body.String(), "wait to be explained") {
		t.Errorf("a full queue: %d: %s", w.Code, w.Body)
	}
	s.Bounds.MaxQueued = 100
	s.limiters.byService = map[string]*limiter{"shop": s.limiters.limiterOf("shop", s.Bounds)}
	s.limiters.byService["shop"].bytes.ReserveN(time.Now(), maxFileBytes)
	if w := send(h, next(100)); w.Code != 202 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := send(h, next(1)); w.Code != 429 || !strings.Contains(w.Body.String(), "bytes a minute") || w.Header().Get("Retry-After") == "" {
		t.Errorf("too many bytes: %d: %s", w.Code, w.Body)
	}
	s.Bounds.MinFreeBytes, s.limiters.byService = 1<<62, nil
	if w := send(h, next(1)); w.Code != 507 || w.Header().Get("Retry-After") != "60" {
		t.Errorf("a full disk: %d: %s", w.Code, w.Body)
	}
	s.Drain()
	check.Equal(t, request(h, "GET", "/readyz", "").Code, 503, "ready while it ends")
}

// failingFiles is a store for files that cannot save any.
type failingFiles struct {
	raw.Store
	err    error
	cancel func()
}

func (f *failingFiles) Save(context.Context, *os.File, string) error {
	f.cancel()
	return f.err
}

// TestFailures: the answer to a sender whose recording cannot be stored has the reason and the time of the next try.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		err        error
		isGone     bool
		status     int
		says       string
		retryAfter string
		metric     string
	}{
		{syscall.ENOSPC, false, 507, "disk is full", "60", "disk"}, {&os.PathError{Err: syscall.ENOSPC}, true, 507, "disk is full", "60", "disk"},
		{errors.New("down"), false, 503, "could not be kept", "30", "error"}, {errors.New("down"), true, 503, "given up", "", "error"},
	} {
		s, _ := newTestServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		s.Files = &failingFiles{s.Files, c.err, map[bool]func(){true: cancel, false: func() {}}[c.isGone]}
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/v1/recordings", strings.NewReader(bareTrace))
		r.Header.Set("Authorization", "Bearer right")
		s.Handler().ServeHTTP(w, r)
		cancel()
		check.True(t, w.Code == c.status && strings.Contains(w.Body.String(), c.says) && w.Header().Get("Retry-After") == c.retryAfter, "%+v: %d %s after %q", c, w.Code, w.Body, w.Header().Get("Retry-After"))
		check.Equal(t, testutil.ToFloat64(s.Metrics.ReceivedRecordings.WithLabelValues(c.metric)), 1, "%+v: counted", c)
	}
	s, h := newTestServer(t)
	id, err := s.Accept(t.Context(), "shop", strings.NewReader(bareTrace))
	check.True(t, err == nil && raw.IsRecordingFile(id) && testutil.ToFloat64(s.Metrics.ReceivedBytes) == float64(len(bareTrace)), "%s %v", id, err)
	check.Equal(t, request(h, "GET", "/readyz", "").Body.String(), "ready\n", "ready")
	must.Do(t, s.Store.Close())
	for path, status := range map[string]int{"/readyz": 503, "/": 500, "/v1/findings": 500, "/v1/recordings/" + id: 500, "/recordings/" + id: 500, "/service/shop": 500, "/moments": 500, "/finding/x": 500, "/compare?service=shop&old=a&new=b": 500} {
		w := request(h, "GET", path, "")
		check.True(t, w.Code == status && strings.Contains(w.Body.String(), "the store does not answer"), "%s: %d %s", path, w.Code, w.Body)
	}
	s.Loopback = false
	check.Equal(t, request(h, "GET", "/metrics", "", "Authorization", "Bearer reader").Code, 500, "a token cannot be checked: status")
	check.Equal(t, send(h, bareTrace).Code, 503, "an upload: status")
}

// disk is a directory with a simulated disk size.
type disk struct {
	raw.Dir
	size int64
}

func (d *disk) FreeBytes() (int64, error) {
	free := d.size
	err := d.List(context.Background(), func(name string, _ time.Time) error {
		if info, err := os.Stat(filepath.Join(string(d.Dir), name)); err == nil && !strings.HasPrefix(name, "fleet.db") {
			free -= info.Size()
		}
		return nil
	})
	return free, err
}

// TestReservations: concurrent uploads reserve disk space by their announced length and by their unpacked size. Space that an
// upload has not used becomes free again.
func TestReservations(t *testing.T) {
	s, _ := newTestServer(t)
	d := &disk{s.Files.(raw.Dir), 20 << 20}
	s.Files, s.Bounds.MinFreeBytes = d, 4<<20
	h := s.Handler()
	free := func() int64 {
		t.Helper()
		return must.Have(d.FreeBytes())(t)
	}
	var slow sync.WaitGroup
	body := &stuckBody{started: make(chan struct{}), end: make(chan struct{})}
	slow.Go(func() {
		r := httptest.NewRequest("POST", "http://127.0.0.1/v1/recordings", body)
		r.ContentLength = 14 << 20
		r.Header.Set("Authorization", "Bearer right")
		h.ServeHTTP(httptest.NewRecorder(), r)
	})
	<-body.started
	if w := send(h, bareTrace+strings.Repeat("x", 3<<20), "Authorization", "Bearer bank"); w.Code != http.StatusInsufficientStorage || w.Header().Get("Retry-After") != "60" {
		t.Errorf("beyond what another body has reserved: %d %s", w.Code, w.Body)
	}
	if w := send(h, bareTrace); w.Code != http.StatusAccepted {
		t.Errorf("a small one, next to it: %d %s", w.Code, w.Body)
	}
	close(body.end)
	slow.Wait()
	if w := send(h, bareTrace+strings.Repeat("x", 10<<20), "Authorization", "Bearer bank"); w.Code != http.StatusAccepted {
		t.Errorf("after it has ended: %d %s", w.Code, w.Body)
	}
	before := free()
	if w := send(h, gzipOf(t, bareTrace+strings.Repeat("y", 30<<20)), "Content-Encoding", "gzip"); w.Code != http.StatusInsufficientStorage {
		t.Errorf("a body that unpacks to more than is free: %d %s", w.Code, w.Body)
	}
	check.True(t, s.diskSpace.reserved == 0 && free() == before,
		"%d bytes are reserved, %d are free, %d were", s.diskSpace.reserved, free(), before)
}

// addExplained uploads a recording, finishes it with a report, and returns its id.
func addExplained(t *testing.T, s *Server, h http.Handler, body, version string, rep *report.Report) string {
	t.Helper()
	w := send(h, body, "Whylate-Version", version, "Whylate-Pod", version+"-pod")
	var got struct{ ID string }
	must.True(t, json.Unmarshal(w.Body.Bytes(), &got) == nil && w.Code == 202, "%d %s", w.Code, w.Body)
	finishWith(t, s, got.ID, rep)
	return got.ID
}

// finishWith finishes the recording that waits with a report.
func finishWith(t *testing.T, s *Server, id string, rep *report.Report) {
	t.Helper()
	r, err := s.Store.Claim(t.Context(), time.Now(), time.Minute)
	if err != nil || r == nil || r.ID != id {
		t.Fatal(r, err)
	}
	f, err := os.CreateTemp(string(s.Files.(raw.Dir)), "new-*")
	must.Do(t, err)
	defer f.Close()
	z := gzip.NewWriter(f)
	must.Do(t, report.WriteJSON(z, rep))
	must.Do(t, z.Close())
	must.Do(t, s.Files.Save(t.Context(), f, raw.ReportName(r.ID)))
	must.Have(s.Store.Finish(t.Context(), r, rows.FromReport(r.Labels, r.Received, rep)))(t)
}

const hostileText = "<script>alert(1)</script>"

func hostileReport(latencyNS int64) *report.Report {
	medianNS := latencyNS
	g := report.Group{ID: "g1", Name: hostileText, Kind: report.KindMark, Named: true, Count: 100, TotalNS: 100 * latencyNS, Histogram: [][2]int64{{latencyNS, 60}, {10 * latencyNS, 40}},
		HistogramCauses: map[report.CauseName][]int64{report.CauseSleep: {60 * latencyNS, 40 * latencyNS}}, Blocks: []report.Block{}, Bands: []report.Band{},
		Slowest: []report.Request{{ID: "r1", LatencyNS: 10 * latencyNS, TraceID: strings.Repeat("a", 32), Segments: []report.Segment{{DurationNS: 10 * latencyNS, Cause: report.CauseSleep, Site: &report.Site{Func: hostileText}}}}}}
	site := &report.Site{Func: hostileText}
	capacity := &report.Capacity{LoadPerS: 100, Limits: []report.Limit{{Kind: report.LimitLock, Site: site, SaturatesPerS: 130, SaturatesLow: 120, SaturatesHigh: 140, Groups: []report.LimitShare{}}},
		NotJudged: []report.NotJudged{{Kind: report.LimitPool, Site: site}}, Curve: []report.CurvePoint{}}
	return &report.Report{Schema: report.Schema, Input: report.Input{DurationNS: 1e9}, Groups: []report.Group{g}, Capacity: capacity, Findings: []report.Finding{{Group: "g1", Code: "WL2001",
		Severity: report.SeverityHigh, Share: 0.5, Title: hostileText, Fix: hostileText, Cause: report.CauseSleep, Site: &report.Site{Func: hostileText},
		Predicted: &report.Predicted{Change: "x", WasP50NS: &medianNS, P50NS: report.Estimate{Est: latencyNS / 2, High: latencyNS}}}}}
}

// TestAnswers: pages and API show hostile texts of recordings as text.
func TestAnswers(t *testing.T) {
	s, h := newTestServer(t)
	addExplained(t, s, h, bareTrace+"1", "v1", hostileReport(1e6))
	id := addExplained(t, s, h, bareTrace+"2", "v2"+hostileText, hostileReport(2e6))
	var doc struct{ Paths map[string]any }
	w := request(h, "GET", "/openapi.json", "")
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || len(doc.Paths) == 0 {
		t.Fatalf("%v %s", err, w.Body)
	}
	for path := range doc.Paths {
		if path == "/v1/recordings" {
			continue
		}
		path = strings.Replace(path, "{id}", id, 1) + "?service=shop&version=v1&old=v1&new=v1"
		if w := request(h, "GET", path, ""); w.Code != http.StatusOK || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	problems, _, err := s.Store.Overview(t.Context(), store.Selection{From: time.Now().Add(-time.Hour), To: time.Now()})
	if err != nil || len(problems) != 1 {
		t.Fatal(problems, err)
	}
	for _, path := range []string{"/", "/service/shop", "/service/shop?from=24h", "/moments?service=shop", "/recordings/" + id, "/recordings/" + id + "/report",
		"/finding/" + problems[0].Problem, "/?severity=high&service=shop", "/compare?service=shop&old=v1&new=v2%3Cscript%3Ealert(1)%3C/script%3E"} {
		w := request(h, "GET", path, "")
		if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "<script>alert") || w.Header().Get("Content-Security-Policy") == "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/", "/service/shop"} {
		if page := request(h, "GET", path, "").Body.String(); !strings.Contains(page, "at most 1.3×</span> <small>(1.2× to 1.4×)</small> lock &lt;script&gt;") {
			t.Errorf("%s lacks the headroom: %s", path, page)
		}
	}
	if rep, err := report.ReadJSON(request(h, "GET", "/v1/report?service=shop&version=v1", "").Body); err != nil || rep.Groups[0].Count != 100 {
		t.Errorf("the report of a version: %v %+v", err, rep)
	}
	if w := request(h, "GET", "/recordings/"+id+"/raw", ""); w.Body.String() != bareTrace+"2" || w.Header().Get("Content-Type") != "application/octet-stream" {
		t.Errorf("the file: %d %q", w.Code, w.Body)
	}
	for path, status := range map[string]int{"/?from=x": 400, "/?to=x": 400, "/?from=-1h": 400, "/?from=2026-01-02T00:00:00Z&to=2026-01-02T00:00:00Z": 400, "/?from=2026-01-02T00:00:00Z&to=2026-01-02T00:00:01Z": 200, "/v1/moments?from=x": 422, "/v1/pods?service=shop": 200, "/v1/findings?from=x": 422, "/v1/pods": 422, "/v1/recordings/" + strings.Repeat("a", 32): 404,
		"/v1/report?service=shop&version=v9": 404, "/compare?service=shop&old=v8&new=v9": 404,
		"/finding/x": 404, "/finding/" + problems[0].Problem + "?to=2020-01-01T00:00:00Z": 404, "/v1/recordings/x": 422} {
		if w := request(h, "GET", path, ""); w.Code != status {
			t.Errorf("%s: %d %s, want %d", path, w.Code, w.Body, status)
		}
	}
	for query, count := range map[string]int{"": 2, "?service=shop&environment=live": 0, "?from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z": 0, "?service=shop&trace=" + strings.Repeat("a", 32): 2, "?trace=b": 0} {
		var moments []store.Moment
		w := request(h, "GET", "/v1/moments"+query, "")
		check.True(t, json.Unmarshal(w.Body.Bytes(), &moments) == nil && len(moments) == count, "moments%s: %d %s, want %d", query, w.Code, w.Body, count)
	}
	if w := request(h, "GET", "/metrics", ""); !strings.Contains(w.Body.String(), "whylate_fleet_finding_win_seconds{") ||
		!strings.Contains(w.Body.String(), `whylate_fleet_headroom{environment="",service="shop",version="v1"} 1.3`) {
		t.Errorf("metrics: %s", w.Body)
	}
}

// TestPodsDiffer: only the pod whose requests wait far longer than those of the others differs.
func TestPodsDiffer(t *testing.T) {
	var pods []store.Pod
	for i := range 8 {
		pods = append(pods, store.Pod{Pod: fmt.Sprint("p", i), Requests: 1000, NS: map[string]int64{"cpu": int64(5e9 + float64(i)*1e8), "network": 3e9}})
	}
	pods[3].NS["throttle"] = 20e9
	pods[5].Requests, pods[5].NS["throttle"] = 3, 1e9 // too few requests to judge
	for _, p := range judgePods(pods) {
		if got, want := strings.Join(p.Differs, " "), map[bool]string{true: "throttle"}[p.Pod.Pod == "p3"]; got != want {
			t.Errorf("%s differs by %q, want %q", p.Pod.Pod, got, want)
		}
	}
	for _, p := range judgePods(pods[2:5]) {
		check.True(t, len(p.Differs) == 0, "three pods: %s differs", p.Pod.Pod)
	}
}

// TestSlowSenders: slow senders of one service do not block another service.
func TestSlowSenders(t *testing.T) {
	s, _ := newTestServer(t)
	s.slotTimeout = 20 * time.Millisecond
	h := s.Handler()
	if w := send(h, bareTrace+"1"); w.Code != http.StatusAccepted {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var slow sync.WaitGroup
	end := make(chan struct{})
	for range maxReceivingPerService {
		started := make(chan struct{})
		slow.Go(func() {
			r := httptest.NewRequest("POST", "http://127.0.0.1/v1/recordings", &stuckBody{started: started, end: end})
			r.Header.Set("Authorization", "Bearer right")
			h.ServeHTTP(httptest.NewRecorder(), r)
		})
		<-started
	}
	if w := send(h, bareTrace+"2"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" {
		t.Errorf("of the same service: %d %s", w.Code, w.Body)
	}
	if w := send(h, bareTrace+"3", "Authorization", "Bearer bank"); w.Code != http.StatusAccepted {
		t.Errorf("of another service: %d %s", w.Code, w.Body)
	}
	close(end)
	slow.Wait()
	if w := send(h, bareTrace+"4"); w.Code != http.StatusAccepted {
		t.Errorf("afterwards: %d %s", w.Code, w.Body)
	}
}

// stuckBody is a body without data until end is closed.
type stuckBody struct {
	started, end chan struct{}
	startOnce    sync.Once
}

func (s *stuckBody) Read([]byte) (int, error) {
	s.startOnce.Do(func() { close(s.started) })
	<-s.end
	return 0, io.EOF
}
