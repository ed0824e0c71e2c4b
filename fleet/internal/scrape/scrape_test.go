package scrape

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"os"
	"path/filepath"
	"runtime/trace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery/targetgroup"

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/outgoing"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// newScraper returns a scraper for a configuration, which may trace targets on loopback.
func newScraper(t *testing.T, config string) *Scraper {
	t.Helper()
	c, err := ReadConfig(writeFile(t, "scrape.yaml", config))
	must.Do(t, err)
	allowed, err := outgoing.ParseRanges("127.0.0.0/8")
	must.Do(t, err)
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "fleet.db"), "")
	must.Do(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return &Scraper{Config: c, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: metrics.New(st), AllowedRanges: allowed, TraceLength: time.Second, HourlyBudget: time.Hour,
		Accept: func(context.Context, string, io.Reader) (string, error) {
			t.Error("something was accepted")
			return "", nil
		}, traceSlots: make(chan struct{}, maxTraces), services: make(map[string]*service)}
}

const staticConfig = "scrape_configs: [{job_name: shop, static_configs: [{targets: ['%s']}]}]"

// TestTargets: labels of a target become labels of its recordings, and relabeling selects targets.
func TestTargets(t *testing.T) {
	s := newScraper(t, `
scrape_configs:
  - job_name: pods
    trace_path: /admin/pprof
    static_configs: [{targets: []}]
    relabel_configs:
      - {source_labels: [__meta_kubernetes_pod_annotation_whylate_scrape], regex: "true", action: keep}
      - {source_labels: [__meta_kubernetes_namespace], target_label: environment}
`)
	pod := func(labels ...string) model.LabelSet {
		out := model.LabelSet{"__address__": "10.0.0.1:6060", "__meta_kubernetes_pod_annotation_whylate_scrape": "true", "__meta_kubernetes_namespace": "live",
			"__meta_kubernetes_pod_name": "cart-1", "__meta_kubernetes_pod_node_name": "n1", "__meta_kubernetes_pod_label_app_kubernetes_io_name": "cart"}
		for i := 0; i < len(labels); i += 2 {
			out[model.LabelName(labels[i])] = model.LabelValue(labels[i+1])
		}
		return out
	}
	now := time.Now()
	s.updateServices(map[string][]*targetgroup.Group{"pods": {{Targets: []model.LabelSet{pod(), pod("__address__", "10.0.0.2:6060", "__meta_kubernetes_pod_annotation_whylate_scrape", "no"),
		pod("__address__", ""), pod("__address__", "a/b"), pod("__address__", "user:secret@10.0.0.3:1"), pod("__scheme__", "file"), pod("__address__", "[::1"),
		pod("__address__", "10.0.0.4:6060", "service", strings.Repeat("x", 1000)+"\n")}}}}, now)
	cart := s.services["cart"]
	must.True(t, len(s.services) == 2 && cart != nil && len(cart.targets) == 1 && s.services[strings.Repeat("x", maxLabelBytes)] != nil,
		"%+v", s.services)
	found := cart.targets["http://10.0.0.1:6060/admin/pprof"]
	if got, want := fmt.Sprint(found.labels), "{cart  live cart-1 n1}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	found.lastTraced = now
	s.updateServices(map[string][]*targetgroup.Group{"pods": {{Targets: []model.LabelSet{pod()}}}}, now.Add(time.Hour))
	check.True(t, s.services["cart"] == cart && len(s.services) == 1 && cart.targets[found.url.String()].lastTraced == now,
		"the time of the last trace is lost")
}

// TestFirstRounds: the first rounds of services are spread over the interval between rounds of one pod, and begin within it.
func TestFirstRounds(t *testing.T) {
	s, now := newScraper(t, "scrape_configs: [{job_name: pods, static_configs: [{targets: []}]}]"), time.Now()
	var list []model.LabelSet
	for i := range 64 {
		list = append(list, model.LabelSet{"__address__": model.LabelValue(fmt.Sprintf("10.0.0.%d:6060", i)), "service": model.LabelValue(fmt.Sprint("s", i))})
	}
	s.updateServices(map[string][]*targetgroup.Group{"pods": {{Targets: list}}}, now)
	check.Equal(t, len(s.services), 64, "services")
	earliest, latest := time.Hour, time.Duration(0)
	for _, svc := range s.services {
		delay := svc.nextRound.Sub(now)
		earliest, latest = min(earliest, delay), max(latest, delay)
	}
	interval := s.roundInterval(1)
	check.True(t, earliest >= 0 && earliest < interval/2 && latest > interval/2 && latest < interval, "from %v to %v, the interval is %v", earliest, latest, interval)
}

// TestTooMany: of two million targets in as many services, only the maximum is kept.
func TestTooMany(t *testing.T) {
	s := newScraper(t, fmt.Sprintf(staticConfig, "127.0.0.1:1"))
	list := make([]model.LabelSet, 2_000_000)
	for i := range list {
		list[i] = model.LabelSet{"__address__": model.LabelValue(fmt.Sprint("10.0.0.1:", i%50000+1)), "service": model.LabelValue(fmt.Sprint("s", i))}
		if testing.Short() && i > 2*maxServices {
			list = list[:i]
			break
		}
	}
	s.updateServices(map[string][]*targetgroup.Group{"shop": {{Targets: list}}}, time.Now())
	if got := testutil.ToFloat64(s.Metrics.ScrapeAttempts.WithLabelValues("too-many")); len(s.services) != maxServices || got != float64(len(list)-maxServices) {
		t.Errorf("%d services, %v were left out", len(s.services), got)
	}
}

// TestTooManyTargets: of the targets of few services, only the maximum is kept.
func TestTooManyTargets(t *testing.T) {
	s := newScraper(t, fmt.Sprintf(staticConfig, "127.0.0.1:1"))
	list := make([]model.LabelSet, maxTargets+2)
	for i := range list {
		list[i] = model.LabelSet{"__address__": model.LabelValue(fmt.Sprintf("10.0.%d.%d:%d", i>>8&255, i&255, i>>16+1))}
	}
	s.updateServices(map[string][]*targetgroup.Group{"shop": {{Targets: list}}}, time.Now())
	check.True(t, len(s.services["shop"].targets) == maxTargets && testutil.ToFloat64(s.Metrics.ScrapeAttempts.WithLabelValues("too-many")) == 2, "%d targets", len(s.services["shop"].targets))
	s.updateServices(nil, time.Now())
	check.Equal(t, len(s.services), 0, "services that are gone")
}

// TestRounds: when a round begins, and how many pods are in it.
func TestRounds(t *testing.T) {
	s, now := newScraper(t, fmt.Sprintf(staticConfig, "127.0.0.1:1")), time.Now()
	s.TraceLength, s.HourlyBudget = 6*time.Second, time.Minute
	for pods, want := range map[int]time.Duration{1: 6 * time.Minute, 3: 18 * time.Minute} {
		check.Equal(t, s.roundInterval(pods), want, "%d pods", pods)
	}
	svc := &service{nextRound: now, targets: make(map[string]*target)}
	check.True(t, s.startRound(svc, now) == nil, "a round without targets")
	for i := range 10 {
		svc.targets[fmt.Sprint(i)] = new(target)
	}
	check.True(t, s.startRound(svc, now.Add(-1)) == nil, "a round before its time")
	for share, want := range map[float64]int{0: 1, 0.19: 1, 0.2: 2, 1: 10} {
		s.PodShare, svc.inRound, svc.nextRound = share, false, now
		check.Equal(t, len(s.startRound(svc, now)), want, "pods of a share of %v", share)
		wait := svc.nextRound.Sub(now)
		check.True(t, svc.inRound && wait >= s.roundInterval(want) && wait < s.roundInterval(want)*3/2, "the next round is in %v", wait)
	}
}

// TestBudget: in each hour, pods are traced for at most the budget and one more round. All pods get equally many traces, and
// rounds are at irregular times.
func TestBudget(t *testing.T) {
	s := newScraper(t, fmt.Sprintf(staticConfig, "127.0.0.1:1"))
	s.TraceLength, s.HourlyBudget, s.PodShare = 5*time.Second, 2*time.Minute, 0.02
	var list []model.LabelSet
	for i := range 200 {
		list = append(list, model.LabelSet{"__address__": model.LabelValue(fmt.Sprint("10.0.0.1:", i+1))})
	}
	begin := time.Now()
	s.updateServices(map[string][]*targetgroup.Group{"shop": {{Targets: list}}}, begin)
	svc := s.services["shop"]
	var rounds []time.Time
	traceCounts := make(map[string]int)
	for now := begin; now.Before(begin.Add(24 * time.Hour)); now = now.Add(time.Second) {
		pods := s.startRound(svc, now)
		if pods == nil {
			continue
		}
		must.Equal(t, len(pods), 4, "pods at a time")
		for _, x := range pods {
			traceCounts[x.url.Host]++
		}
		rounds = append(rounds, now)
		must.True(t, s.startRound(svc, now.Add(10*time.Hour)) == nil, "a round began within another")
		svc.inRound = false
		roundsInHour := 0
		for _, before := range rounds {
			if now.Sub(before) < time.Hour {
				roundsInHour++
			}
		}
		if spent := time.Duration(roundsInHour*len(pods)) * s.TraceLength; spent > s.HourlyBudget+4*s.TraceLength {
			t.Errorf("%v within an hour", spent)
		}
	}
	minCount, maxCount := len(rounds), 0
	for _, n := range traceCounts {
		minCount, maxCount = min(minCount, n), max(maxCount, n)
	}
	check.True(t, len(traceCounts) == 200 && maxCount-minCount <= 1 && len(rounds) >= 24*60*2/20*6/10,
		"%d rounds; %d pods had %d to %d turns", len(rounds), len(traceCounts), minCount, maxCount)
}

// newProfiledServer starts a server with the handlers of net/http/pprof.
func newProfiledServer(t *testing.T) *httptest.Server {
	m := http.NewServeMux()
	m.HandleFunc("/debug/pprof/", pprof.Index)
	m.HandleFunc("/debug/pprof/trace", pprof.Trace)
	m.HandleFunc("/debug/pprof/profile", pprof.Profile)
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	return s
}

// recordOutcome traces an address and returns the outcome that was counted.
func (s *Scraper) recordOutcome(t *testing.T, address string) string {
	t.Helper()
	s.updateServices(map[string][]*targetgroup.Group{"shop": {{Targets: []model.LabelSet{{"__address__": model.LabelValue(strings.TrimPrefix(address, "http://")), "version": "v7"}}}}}, time.Now())
	outcomes := []string{"taken", "busy", "refused", "failed", "kept-out"}
	before := make(map[string]float64)
	for _, o := range outcomes {
		before[o] = testutil.ToFloat64(s.Metrics.ScrapeAttempts.WithLabelValues(o))
	}
	for _, to := range s.services["shop"].targets {
		s.recordTarget(t.Context(), to)
	}
	for _, o := range outcomes {
		if testutil.ToFloat64(s.Metrics.ScrapeAttempts.WithLabelValues(o)) == before[o]+1 {
			return o
		}
	}
	return ""
}

// TestRecord: a trace of a service becomes a recording with its labels. While another trace runs in the service, none is taken.
func TestRecord(t *testing.T) {
	target := newProfiledServer(t)
	s := newScraper(t, fmt.Sprintf(staticConfig, "127.0.0.1:1"))
	var body []byte
	s.Accept = func(_ context.Context, service string, r io.Reader) (string, error) {
		if service != "shop" {
			t.Error(service)
		}
		var err error
		body, err = io.ReadAll(r)
		return "id", err
	}
	if err := trace.Start(io.Discard); err != nil {
		t.Skip("another trace of the test runs:", err)
	}
	got := s.recordOutcome(t, target.URL)
	running := trace.IsEnabled()
	trace.Stop()
	check.True(t, got == "busy" && running && body == nil, "%s, the other trace runs: %v", got, running)
	if got := s.recordOutcome(t, target.URL); got != "taken" {
		t.Fatal(got)
	}
	z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	must.Do(t, err)
	f, err := z.Open("meta.json")
	must.Do(t, err)
	var meta struct{ Service map[string]string }
	if err := json.NewDecoder(f).Decode(&meta); err != nil || meta.Service["service.name"] != "shop" || meta.Service["service.version"] != "v7" || meta.Service["k8s.pod.name"] != target.Listener.Addr().String() {
		t.Errorf("%v %v", meta, err)
	}
	s.Accept = func(context.Context, string, io.Reader) (string, error) { return "", errors.New("too much") }
	if got := s.recordOutcome(t, target.URL); got != "kept-out" {
		t.Error(got)
	}
}

// TestHostile: a hostile target yields a failed trace and cannot redirect the scraper to another address.
func TestHostile(t *testing.T) {
	var secretRequests atomic.Int64
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { secretRequests.Add(1) }))
	defer secret.Close()
	for behaviour, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"redirects inward": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, secret.URL+"/debug/pprof/trace", http.StatusFound)
		}, "refused"},
		"redirects to itself": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, "failed"},
		"redirects to a metadata": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		}, "refused"},
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!doctype html><title>x</title>")
		}, "failed"},
		"no profiling": {http.NotFound, "failed"},
		"silence":      {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "failed"},
		"without an end": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "go 1.26 trace\x00\x00\x00")
			for zeros := make([]byte, 1<<20); r.Context().Err() == nil; {
				_, _ = w.Write(zeros)
			}
		}, "failed"},
		"drops": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "go 1.26 trace\x00\x00\x00")
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte{0})
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		}, "failed"},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			target := httptest.NewServer(c.answer)
			t.Cleanup(target.Close)
			s := newScraper(t, fmt.Sprintf(staticConfig, "127.0.0.1:1"))
			if behaviour == "silence" || behaviour == "drops" {
				s.silenceTimeout = 500 * time.Millisecond
			}
			if got := s.recordOutcome(t, target.URL); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			s.AllowedRanges = nil
			check.Equal(t, s.recordOutcome(t, target.URL), "refused", "where loopback is not listed")
		})
	}
	t.Cleanup(func() {
		if n := secretRequests.Load(); n > 0 {
			t.Errorf("the secret server received %d requests", n)
		}
	})
}

// TestReadConfig: errors in the configuration are reported when it is read.
func TestReadConfig(t *testing.T) {
	job := func(rest string) string {
		return "scrape_configs: [{job_name: x, static_configs: [{targets: [a]}]" + rest + "}]"
	}
	for text, says := range map[string]string{
		"": "no scrape_configs", "scrape_configs: [{job_name: x}]": "finds no targets", "scrape_configs: [{static_configs: [{targets: [a]}]}]": "job_name",
		"scrape_configs: [{job_name: x, static_configs: [{targets: [a]}]}, {job_name: x, static_configs: [{targets: [a]}]}]": "job 2", job(", basic_auth: {username: u, password: p, x: y}"): "field x",
		job(", scheme: ftp"): "ftp", job(", metrics_path: /x"): "metrics_path", job(", authorization: {type: Digest}"): "Bearer",
		job(", relabel_configs: [{action: x}]"): "action", job(", consul_sd_configs: []"): "consul_sd_configs", "x: [": "yaml",
	} {
		if _, err := ReadConfig(writeFile(t, "f", text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	basic := must.Have(ReadConfig(writeFile(t, "f", job(", authorization: {credentials: a}")+"\n")))(t)
	basic.Jobs = append(basic.Jobs, must.Have(ReadConfig(writeFile(t, "f", job(", basic_auth: {username: u, password: p}"))))(t).Jobs...)
	opt, err := basic.Jobs[0].recordOptions("http")
	check.True(t, err == nil && opt.Token == "a" && opt.Login == nil, "%+v %v", opt, err)
	opt, err = basic.Jobs[1].recordOptions("http")
	check.True(t, err == nil && opt.Token == "" && opt.Login != nil && *opt.Login == record.Login{User: "u", Password: "p"}, "%+v %v", opt, err)
	// Credentials are read from their files at each call.
	file := writeFile(t, "f", job(", scheme: https, authorization: {credentials_file: token}, tls_config: {ca_file: ca}"))
	c := must.Have(ReadConfig(file))(t)
	if _, err := c.Jobs[0].recordOptions("https"); err == nil {
		t.Error("no file with the token is no error")
	}
	must.Do(t, os.WriteFile(filepath.Join(filepath.Dir(file), "token"), []byte("secret\n"), 0o600))
	if opt, err := c.Jobs[0].recordOptions("https"); err != nil || opt.Token != "secret" || opt.TLS.CACert != filepath.Join(filepath.Dir(file), "ca") {
		t.Errorf("%+v %v", opt, err)
	}
	if opt, err := c.Jobs[0].recordOptions("http"); err != nil || opt.TLS.CACert != "" {
		t.Errorf("%+v %v", opt, err)
	}
}
