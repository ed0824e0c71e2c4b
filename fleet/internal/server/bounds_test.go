package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestPodThresholds: a pod differs only beyond each of the three thresholds, and only if there are enough pods and requests.
func TestPodThresholds(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, c := range []struct {
		situation string
		means     []int64 // of a request on lock, by pod
		requests  int64   // of the last pod
		want      string  // the names of pods that differ
	}{
		{"three pods", []int64{ms, ms, 9 * ms}, 20, ""},
		{"four pods", []int64{ms, ms, ms, 9 * ms}, 20, "p3"},
		{"too few requests", []int64{ms, ms, ms, ms, 9 * ms}, 19, ""},
		{"three pods and one with too few requests", []int64{ms, 9 * ms, ms, ms}, 19, ""},
		{"a millisecond more", []int64{ms / 10, ms / 10, ms / 10, ms/10 + ms}, 20, ""},
		{"more than a millisecond more", []int64{ms / 10, ms / 10, ms / 10, ms/10 + ms + 1}, 20, "p3"},
		{"half more", []int64{10 * ms, 10 * ms, 10 * ms, 15 * ms}, 20, ""},
		{"more than half more", []int64{10 * ms, 10 * ms, 10 * ms, 15*ms + 1}, 20, "p3"},
		{"five deviations more", []int64{10 * ms, 20 * ms, 30 * ms, 40 * ms, 80 * ms}, 20, ""},
		{"more than five deviations more", []int64{10 * ms, 20 * ms, 30 * ms, 40 * ms, 80*ms + 1}, 20, "p4"},
		{"a cause that others do not have", []int64{0, 0, 0, 0, ms + 1}, 20, "p4"},
	} {
		pods := make([]store.Pod, len(c.means))
		for i, mean := range c.means {
			pods[i] = store.Pod{Pod: fmt.Sprint("p", i), Requests: 20, NS: map[string]int64{}}
			if i == len(c.means)-1 {
				pods[i].Requests = c.requests
			}
			if mean > 0 {
				pods[i].NS["lock"] = mean * pods[i].Requests
			}
		}
		var got []string
		for i, p := range judgePods(pods) {
			check.Equal(t, p.MeanNS, c.means[i], "%s: the mean of %s", c.situation, p.Pod.Pod)
			if len(p.Differs) > 0 {
				got = append(got, p.Pod.Pod)
			}
		}
		check.Equal(t, strings.Join(got, " "), c.want, "%s", c.situation)
	}
	var pods []store.Pod
	for i := range 4 {
		pods = append(pods, store.Pod{Pod: fmt.Sprint("p", i), Requests: 100, NS: map[string]int64{"cpu": 100 * ms, "lock": 200 * ms, "gc": 300 * ms}})
	}
	pods[2].NS = map[string]int64{"cpu": 1100 * ms, "lock": 1300 * ms, "gc": 1300 * ms} // 10, 11 and 10 ms more
	p := judgePods(pods)[2]
	check.Equal(t, strings.Join(p.Differs, " ")+": "+p.Words, "lock cpu gc: a request spends 13ms on lock; in the middle pod 2ms", "the largest difference comes first")
}

// TestMergedLatency: a percentile of merged reports needs enough requests, and is the bound of the bucket that reaches it.
func TestMergedLatency(t *testing.T) {
	for _, c := range []struct {
		histogram [][2]int64 // each of two reports has it
		want      string     // mean, p50, p90, p99, p99.9 and maximum
	}{
		{[][2]int64{{10, 1}}, "7 10 0 0 0 10"},
		{[][2]int64{{10, 2}, {30, 2}}, "7 10 0 0 0 30"},
		{[][2]int64{{10, 3}, {20, 1}, {30, 1}}, "7 10 30 0 0 30"},
		{[][2]int64{{10, 25}, {20, 24}}, "7 10 20 0 0 20"},
		{[][2]int64{{10, 24}, {20, 21}, {30, 4}, {40, 1}}, "7 20 20 40 0 40"},
		{[][2]int64{{10, 494}, {20, 5}}, "7 10 10 20 0 20"},
		{[][2]int64{{10, 495}, {20, 4}, {30, 1}}, "7 10 10 10 30 30"},
	} {
		m := merger{groups: make(map[groupKey]*report.Group)}
		for range 2 {
			g := report.Group{Name: "g", Histogram: c.histogram, Open: report.Open{Count: 2}}
			for _, b := range c.histogram {
				g.Count += int(b[1])
			}
			g.TotalNS = 7 * int64(g.Count)
			m.add(&report.Report{Input: report.Input{DurationNS: 5}, Groups: []report.Group{g}})
		}
		merged := m.mergedReport("name")
		l := &merged.Groups[0].LatencyNS
		var got []string
		for _, v := range []*int64{l.Mean, l.P50, l.P90, l.P99, l.P999, l.Max} {
			if v == nil {
				v = new(int64)
			}
			got = append(got, fmt.Sprint(*v))
		}
		check.Equal(t, strings.Join(got, " "), c.want, "%v", c.histogram)
		check.True(t, merged.Groups[0].Open.Count == 4 && !merged.Groups[0].Streaming && merged.Input.DurationNS == 10, "%+v", merged)
	}
}

// TestNumbers: how durations and factors are rounded.
func TestNumbers(t *testing.T) {
	for ns, want := range map[int64]string{12_345_678_901: "12.3s", 10_000_000_000: "10s", 9_994_999_999: "9.99s", 1_234_567_890: "1.23s", 999_994_999: "999.99ms", 1_234_567: "1.23ms", 999_994: "999.99µs", 1_000_000: "1ms", 123: "120ns", 0: "0s"} {
		check.Equal(t, formatDuration(ns), want, "%d ns", ns)
	}
	for factor, want := range map[float64]string{1.26: "1.3×", 9.94: "9.9×", 9.95: "10×", 12.4: "12×", 1234.5: "1,235×"} {
		check.Equal(t, formatTimes(factor), want, "%v", factor)
	}
}

// TestViewerIdle: a viewer ends five minutes after its last request, and not during one.
func TestViewerIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(viewers)
		run := func(ctx context.Context, v *viewer) {
			close(v.listens)
			<-ctx.Done()
		}
		isOpen := func() bool {
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.byID["a"] != nil
		}
		_, release, err := l.acquire("a", run)
		must.Do(t, err)
		time.Sleep(time.Hour)
		check.True(t, isOpen(), "it ended during a request")
		release()
		time.Sleep(viewerIdle - 1)
		_, first, err := l.acquire("a", run)
		must.Do(t, err)
		_, second, err := l.acquire("a", run)
		must.Do(t, err)
		first()
		time.Sleep(time.Hour)
		check.True(t, isOpen(), "it ended while the second of two requests ran")
		second()
		time.Sleep(viewerIdle - 1)
		check.True(t, isOpen(), "it ended too early")
		time.Sleep(time.Nanosecond)
		check.False(t, isOpen(), "it did not end")
		l.ends.Wait()
	})
}

// TestViewersInUse: while all viewers have requests, the answer has the time of the next try.
func TestViewersInUse(t *testing.T) {
	s, h := newTestServer(t)
	defer s.EndViewers()
	id := addExplained(t, s, h, bareTrace+"1", "v1", hostileReport(1e6))
	for i := range maxViewers {
		_, release, err := s.viewers.acquire(fmt.Sprint(i), func(ctx context.Context, v *viewer) {
			close(v.listens)
			<-ctx.Done()
		})
		must.Do(t, err)
		defer release()
	}
	w := request(h, "GET", "/recordings/"+id+"/view/", "")
	check.True(t, w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "60" && strings.Contains(w.Body.String(), "all viewers are in use"), "%d after %s: %s", w.Code, w.Header().Get("Retry-After"), w.Body)
}

// TestListBounds: pages show the first of very many rows.
func TestListBounds(t *testing.T) {
	s, h := newTestServer(t)
	begin := time.Now().Add(-time.Hour)
	for i := range 37 {
		l, id := rows.Labels{Service: "shop", Version: "v1", Pod: fmt.Sprintf("pod-%02d", i)}, fmt.Sprintf("%032x", i)
		must.Do(t, s.Store.AddRecording(t.Context(), store.Recording{ID: id, Labels: l, Received: begin.Add(time.Duration(i))}))
		r := must.Have(s.Store.Claim(t.Context(), time.Now(), time.Minute))(t)
		if i < 12 {
			must.Do(t, s.Store.Fail(t.Context(), r, true, "why"))
			continue
		}
		added := &rows.Rows{Start: begin, DurationNS: 1e9, Requests: 100, Sums: []rows.Sum{{Group: "GET /", Bucket: 1e6, N: 100}, {Group: "GET /", Cause: "cpu", Bucket: 1e6, NS: 1e8}}}
		added.Findings = []rows.Finding{{Problem: "p", Group: "GET /", Code: "WL2001", Severity: "high", Title: "title", Requests: 100, WinNS: 1e6}}
		for k := range 50 {
			added.SlowRequests = append(added.SlowRequests, rows.SlowRequest{Request: fmt.Sprint("r", k), Group: "GET /", Start: begin, NS: int64(1e6 + k)})
		}
		must.Have(s.Store.Finish(t.Context(), r, added))(t)
	}
	count := func(path, pattern string) int {
		return len(regexp.MustCompile(pattern).FindAllString(request(h, "GET", path, "").Body.String(), -1))
	}
	const moment = `<tr><td class=n>1ms`
	for _, c := range []struct {
		path, pattern string
		want          int
	}{{"/moments", moment, 100}, {"/service/shop", moment, 20}, {"/finding/p", moment, 10}, {"/service/shop", `<tr><td>pod-`, 20}, {"/service/shop", `20 of 25 pods`, 1}, {"/", `<code>why</code>`, 10}} {
		check.Equal(t, count(c.path, c.pattern), c.want, "%s: %s", c.path, c.pattern)
	}
}

// TestSeveralParts: the parts of a recording are bounded together, and each as a whole.
func TestSeveralParts(t *testing.T) {
	_, h := newTestServer(t)
	for size, status := range map[uint64]int{maxFileBytes - 2: http.StatusAccepted, maxFileBytes - 1: http.StatusRequestEntityTooLarge, maxFileBytes + 1: http.StatusRequestEntityTooLarge} {
		w := send(h, bundleWith(t, `{}`, size)) // meta.json has two bytes
		check.Equal(t, w.Code, status, "%d bytes and two: %s", size, w.Body)
	}
}

// TestHandlerBounds: how long clients may take, and how many reports are in memory.
func TestHandlerBounds(t *testing.T) {
	s, _ := newTestServer(t)
	check.True(t, s.slotTimeout == 5*time.Second && s.readTimeout == 30*time.Second && cap(s.reportSlots) == 2 && cap(s.receiveSlots) == maxReceiving, "%v, %v, %d reports", s.slotTimeout, s.readTimeout, cap(s.reportSlots))
	s, h := newTestServer(t)
	s.Bounds.BytesPerMinute = 60
	s.limiters.limiterOf("shop", s.Bounds).bytes.ReserveN(time.Now(), maxFileBytes)
	for body, status := range map[string]int{bareTrace + strings.Repeat("x", 1000-len(bareTrace)): http.StatusAccepted} {
		check.Equal(t, send(h, body).Code, status, "the last one")
	}
	var seconds int
	after := send(h, bareTrace).Header().Get("Retry-After")
	_, err := fmt.Sscan(after, &seconds)
	check.True(t, err == nil && 900 < seconds && seconds <= 1000, "1000 bytes too much, one a second: after %s", after)
}

// TestLogs: what the operator must know is in the log.
func TestLogs(t *testing.T) {
	s, _ := newTestServer(t)
	var out bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&out, nil))
	h := s.Handler()
	logs := func(want string, do func() *httptest.ResponseRecorder) {
		t.Helper()
		out.Reset()
		w := do()
		check.True(t, strings.Contains(out.String(), want), "%d %s, logged: %s", w.Code, w.Body, out.String())
	}
	id := addExplained(t, s, h, bareTrace+"1", "v1", hostileReport(1e6))
	defer s.EndViewers()
	_, release, err := s.viewers.acquire(id, func(ctx context.Context, v *viewer) {
		v.err = errors.New("no")
		close(v.listens)
		<-ctx.Done()
	})
	must.Do(t, err)
	defer release()
	logs("msg=view recording="+id+" error=no", func() *httptest.ResponseRecorder { return request(h, "GET", "/recordings/"+id+"/view/", "") })
	files := s.Files
	for want, err := range map[string]error{`msg="the disk is full"`: syscall.ENOSPC, "msg=ingest error=down": errors.New("down")} {
		s.Files = &failingFiles{files, err, func() {}}
		logs(want, func() *httptest.ResponseRecorder { return send(h, bareTrace+want) })
	}
	s.Files = files
	must.Do(t, s.Store.Close())
	logs("msg=readiness", func() *httptest.ResponseRecorder { return request(h, "GET", "/readyz", "") })
	logs("msg=query error", func() *httptest.ResponseRecorder { return request(h, "GET", "/", "") })
	logs("msg=query path=/v1/findings", func() *httptest.ResponseRecorder { return request(h, "GET", "/v1/findings", "") })
}

// TestMetrics: testdata/metrics.txt has what a fleet exposes about itself after some uploads.
func TestMetrics(t *testing.T) {
	s, h := newTestServer(t)
	addExplained(t, s, h, bareTrace+"1", "v1", hostileReport(1e6))
	addExplained(t, s, h, bareTrace+"2", "v2", hostileReport(2e6))
	for _, body := range []string{bareTrace + "3", "hello"} {
		send(h, body)
	}
	must.Do(t, s.Store.SaveMarks(t.Context(), nil, []store.Message{{ID: "m", Body: []byte("b"), Created: time.Now()}}))
	r := httptest.NewRequest("GET", "http://evil.example/", nil)
	h.ServeHTTP(httptest.NewRecorder(), r)
	var got strings.Builder
	for line := range strings.Lines(request(h, "GET", "/metrics", "").Body.String()) {
		if strings.Contains(line, "whylate_fleet_") && !strings.Contains(line, "_sum ") {
			line = regexp.MustCompile(`problem="[0-9a-f]*"`).ReplaceAllString(line, `problem="ID"`)
			if strings.Contains(line, "_seconds_bucket") { // how long it takes differs
				line = strings.Fields(line)[0] + "\n"
			}
			got.WriteString(line)
		}
	}
	must.Golden(t, *update, "testdata/metrics.txt", []byte(got.String()))
}
