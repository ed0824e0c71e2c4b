//go:build !race

package scrape

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	_ "github.com/prometheus/prometheus/discovery/kubernetes" // as in the command; with the race detector it takes minutes to build
)

// TestDiscovery: services that a file, an HTTP address and Kubernetes name are recorded.
func TestDiscovery(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for discovery, and takes traces")
	}
	target := newProfiledServer(t)
	host := target.Listener.Addr().String()
	_, port, _ := strings.Cut(host, ":")
	list := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `[{"targets": [%q], "labels": {"service": "by-http"}}]`, host)
	}))
	defer list.Close()
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.FormValue("sendInitialEvents") != "": // answer as an API server without this parameter
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":400}`)
		case r.FormValue("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"cart-1","namespace":"live","uid":"u",
				"labels":{"app.kubernetes.io/name":"by-kubernetes"}},"spec":{"nodeName":"n1","containers":[{"name":"c","ports":[{"containerPort":%s,"protocol":"TCP"}]}]},
				"status":{"phase":"Running","podIP":"127.0.0.1"}}]}`, port)
		}
	}))
	defer cluster.Close()
	s := newScraper(t, fmt.Sprintf(`
scrape_configs:
  - {job_name: file, file_sd_configs: [{files: [%q]}]}
  - {job_name: http, http_sd_configs: [{url: %q}]}
  - {job_name: kubernetes, kubernetes_sd_configs: [{role: pod, api_server: %q}]}
`, writeFile(t, "targets.json", fmt.Sprintf(`[{"targets": [%q], "labels": {"service": "by-file"}}]`, host)), list.URL, cluster.URL))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	accepted := make(chan string, 100)
	s.Accept = func(_ context.Context, service string, _ io.Reader) (string, error) {
		accepted <- service
		return "id", nil
	}
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	for missing := map[string]bool{"by-file": true, "by-http": true, "by-kubernetes": true}; len(missing) > 0; {
		delete(missing, <-accepted) // the three are one process: while one is traced, the others are busy
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
