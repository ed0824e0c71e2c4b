package scrape

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/targetgroup"

	"github.com/whylate/whylate/fleet/internal/outgoing"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// refreshOnce runs one refresh of the discovery of the first job.
func refreshOnce(t *testing.T, s *Scraper) ([]*targetgroup.Group, error) {
	t.Helper()
	reg := prometheus.NewRegistry()
	c := s.Config.Jobs[0].Discovery
	guarded := guardRedirects(c, s.AllowedRanges)[0]
	rmi := discovery.NewRefreshMetrics(reg)
	metrics := guarded.NewDiscovererMetrics(reg, rmi)
	must.Do(t, metrics.Register())
	d := must.Have(guarded.NewDiscoverer(discovery.DiscovererOptions{Logger: s.Log, Metrics: metrics, SetName: "x"}))(t)
	return d.(interface {
		Refresh(context.Context) ([]*targetgroup.Group, error)
	}).Refresh(t.Context())
}

// TestRedirectedDiscovery: discovery connects to the configured address, also a private one. It follows a redirect to another
// address only if that is allowed, and never through a proxy.
func TestRedirectedDiscovery(t *testing.T) {
	var reached atomic.Int64
	list := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `[{"targets": ["10.0.0.1:6060"]}]`)
	}
	secret := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		list(w, r)
	}))
	defer secret.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/sd", list)
	mux.HandleFunc("/same", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/sd", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, secret.URL, http.StatusFound) })
	mux.HandleFunc("/name", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(secret.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.String(), secret.URL) {
			reached.Add(1)
		}
		mux.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	loopback := must.Have(outgoing.ParseRanges("127.0.0.0/8,::1/128"))(t)
	for _, c := range []struct {
		path, extraConfig string
		allowed           outgoing.AllowedRanges
		ok                bool
	}{
		{"/sd", "", nil, true}, {"/same", "", nil, true}, {"/away", "", nil, false}, {"/name", "", nil, false}, {"/away", "", loopback, true}, {"/name", "", loopback, true},
		{"/sd", ", proxy_url: " + proxy.URL, nil, true}, {"/away", ", proxy_url: " + proxy.URL, nil, false},
	} {
		reached.Store(0)
		s := newScraper(t, fmt.Sprintf("scrape_configs: [{job_name: http, http_sd_configs: [{url: '%s'%s}]}]", server.URL+c.path, c.extraConfig))
		s.AllowedRanges = c.allowed
		groups, err := refreshOnce(t, s)
		if (err == nil) != c.ok || c.ok && (len(groups) != 1 || len(groups[0].Targets) != 1) {
			t.Errorf("%+v: %v %v", c, groups, err)
		}
		check.False(t, !c.ok && c.extraConfig == "" && !strings.Contains(fmt.Sprint(err), "-allow-private"),
			"%+v: the error does not say why: %v", c, err)
		if n := reached.Load(); n > 0 != (c.ok && c.allowed != nil) {
			t.Errorf("%+v: the other server was asked %d times", c, n)
		}
	}
}
