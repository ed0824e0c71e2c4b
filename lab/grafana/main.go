// Grafana checks docs/grafana with real parts: a service with a CPU quota that it uses up shows the metrics of both adapters,
// a Prometheus scrapes them and evaluates the alert rules, and each query of the dashboard is asked of it, once for each
// adapter. A query must answer with the same series for both, the recorder's exemplar must name a recording that is
// there, and the alert of the quota must have noticed. The dashboard is read by Grafana's published schema, strictly.
//
//	cd lab/grafana && go run -tags full .
//
// It needs root for the quota, and prometheus on the PATH. Grafana itself does not run here: no package registry has it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	whylateotel "github.com/whylate/whylate/adapters/otel"
	whylateprom "github.com/whylate/whylate/adapters/prometheus"
	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

// The jobs that Prometheus scrapes are named after the adapter.
var jobs = []string{"prometheus", "otel"}

func main() {
	docs := flag.String("docs", "../../docs/grafana", "the `directory` of the dashboard and the rules")
	serve := flag.String("serve", "", "be the service, on this `address`")
	dir := flag.String("dir", "", "where the service keeps recordings")
	keep := flag.Duration("keep", 0, "let Prometheus run for so long after the check, to be looked at")
	flag.Parse()
	var err error
	if *serve != "" {
		err = service(*serve, *dir)
	} else {
		err = check(*docs, *keep)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grafana:", err)
		os.Exit(1)
	}
}

// service computes on two goroutines, which is more than its quota, and shows what both adapters say of that.
func service(address, dir string) error {
	registry := prometheus.NewRegistry()
	exporter, err := otelexporter.New(otelexporter.WithRegisterer(registry), otelexporter.WithoutScopeInfo(), otelexporter.WithoutTargetInfo())
	if err != nil {
		return err
	}
	m, err := whylateotel.New(whylateotel.Options{Provider: metric.NewMeterProvider(metric.WithReader(exporter))})
	if err != nil {
		return err
	}
	r, err := flight.Start(flight.Options{Dir: dir})
	if err != nil {
		return err
	}
	p := probe.Start(probe.Options{OnFreeze: func(f probe.Freeze) { m.OnFreeze(f); r.OnFreeze(f) }})
	t := tune.Start(tune.Options{})
	if err := errors.Join(m.Observe(p, t), m.ObserveFlight(r)); err != nil {
		return err
	}
	collectors := prometheus.NewRegistry()
	collectors.MustRegister(whylateprom.NewCollector(p, t), whylateprom.NewFlightCollector(r))
	http.Handle("/prometheus", promhttp.HandlerFor(collectors, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	http.Handle("/otel", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	for range 2 {
		go func() {
			var live [64][]byte
			for i := 0; ; i++ {
				live[i%len(live)] = make([]byte, 64<<10)
			}
		}()
	}
	go func() {
		for range time.Tick(5 * time.Second) {
			if _, err := r.Capture(context.Background(), "for the exemplar"); err != nil {
				fmt.Fprintln(os.Stderr, "grafana: capturing:", err)
			}
		}
	}()
	return http.ListenAndServe(address, nil)
}

func check(docs string, keep time.Duration) error {
	text, err := os.ReadFile(filepath.Join(docs, "dashboard.json"))
	if err != nil {
		return err
	}
	if err := checkSchema(text); err != nil {
		return fmt.Errorf("by Grafana's schema, the dashboard is wrong: %w", err)
	}
	var d dashboardQueries
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	fmt.Println("dashboard: read by the schema")
	dir, err := os.MkdirTemp("", "whylate-grafana-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ports, err := freeport.Find(2)
	if err != nil {
		return err
	}
	address := func(i int) string { return net.JoinHostPort("127.0.0.1", ports[i]) }

	group, err := cpugroup.New(cpugroup.Options{CPUs: 0.2, Memory: 512 << 20, HighWeight: true})
	if err != nil {
		return err
	}
	defer group.KillAndRemove()
	recordings := filepath.Join(dir, "recordings")
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	scraped := exec.Command(exe, "-serve", address(0), "-dir", recordings)
	scraped.Stderr, scraped.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	scraped.Env = append(os.Environ(), "GOMEMLIMIT=400MiB")
	group.Attach(scraped)
	if err := scraped.Start(); err != nil {
		return err
	}
	defer stop(scraped)

	// Five minutes would mostly be before the start of the service.
	rules, err := os.ReadFile(filepath.Join(docs, "rules.yml"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "rules.yml"), bytes.ReplaceAll(rules, []byte("[5m]"), []byte("[20s]")), 0o600)
	}
	if err != nil {
		return err
	}
	config := "global: {scrape_interval: 1s, evaluation_interval: 2s}\nrule_files: [rules.yml]\nscrape_configs:\n"
	for _, job := range jobs {
		config += fmt.Sprintf("  - {job_name: %s, metrics_path: /%s, static_configs: [{targets: [%q]}]}\n", job, job, address(0))
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	prom := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+address(1),
		"--enable-feature=exemplar-storage", "--log.level=warn")
	prom.Stderr, prom.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := prom.Start(); err != nil {
		return err
	}
	defer stop(prom)
	api := &prometheusAPI{base: "http://" + address(1)}
	if err := api.waitFor(`min(count_over_time(up[1m])) >= 25 and count(up) == 2`, 3*time.Minute); err != nil {
		return err
	}
	err = errors.Join(api.dashboard(d), api.exemplar(recordings), api.alerts())
	if keep > 0 {
		fmt.Println(api.base)
		time.Sleep(keep)
	}
	return err
}

func stop(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// prometheusAPI is the API of a Prometheus server.
type prometheusAPI struct{ base string }

type series struct {
	Metric map[string]string
	Value  [2]any
}

func (s *series) number() float64 {
	f, _ := strconv.ParseFloat(fmt.Sprint(s.Value[1]), 64) // a Prometheus writes a number
	return f
}

func (a *prometheusAPI) get(path string, query url.Values, into any) error {
	resp, err := http.Get(a.base + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, body, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", query.Get("query"), answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

func (a *prometheusAPI) query(expr string) ([]series, error) {
	var data struct{ Result []series }
	err := a.get("/api/v1/query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

func (a *prometheusAPI) waitFor(expr string, timeout time.Duration) error {
	for end := time.Now().Add(timeout); ; time.Sleep(200 * time.Millisecond) {
		got, err := a.query(expr)
		if err == nil && len(got) > 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s did not come true within %v: %w", expr, timeout, err)
		}
	}
}

// dashboardQueries are the queries of a Grafana dashboard.
type dashboardQueries struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr, RefID string }
	}
}

// dashboard asks what each panel asks, for each adapter. Names of labels differ between adapters, their values do not. What
// has not happened yet is zero in one adapter and absent in the other, whose first event a rate misses: series below a
// twentieth of the largest are not compared.
func (a *prometheusAPI) dashboard(d dashboardQueries) error {
	var bad []error
	for _, panel := range d.Panels {
		for _, query := range panel.Targets {
			got, values := map[string][]string{}, map[string]string{}
			all := 0
			for _, job := range jobs {
				expr := strings.NewReplacer("$__rate_interval", "20s", "$job", job, "$instance", ".*").Replace(query.Expr)
				found, err := a.query(expr)
				if err != nil {
					bad = append(bad, fmt.Errorf("%s, %s, for %s: %w", panel.Title, query.RefID, job, err))
				}
				if job == jobs[0] {
					all = len(found)
				}
				longest := 0.
				for _, s := range found {
					longest = max(longest, s.number())
				}
				for _, s := range found {
					value := s.number()
					if value <= longest/20 {
						continue
					}
					delete(s.Metric, "job")
					delete(s.Metric, "instance")
					var labels []string
					for _, v := range s.Metric {
						labels = append(labels, v)
					}
					slices.Sort(labels)
					got[job] = append(got[job], strings.Join(labels, " "))
					values[job] += fmt.Sprintf(" %.4g", value)
				}
				slices.Sort(got[job])
			}
			fmt.Printf("%-42s %s %v%s |%s\n", panel.Title, query.RefID, got["prometheus"], values["prometheus"], values["otel"])
			if all == 0 || !slices.Equal(got["prometheus"], got["otel"]) {
				bad = append(bad, fmt.Errorf("%s, %s: series %q of the one adapter, %q of the other", panel.Title, query.RefID, got["prometheus"], got["otel"]))
			}
		}
	}
	return errors.Join(bad...)
}

// exemplar requires that the recordings in Prometheus' exemplars exist as files.
func (a *prometheusAPI) exemplar(dir string) error {
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	end := time.Now()
	query := url.Values{"query": {"whylate_flight_recordings_total"}, "start": {end.Add(-time.Hour).Format(time.RFC3339)}, "end": {end.Add(time.Minute).Format(time.RFC3339)}}
	if err := a.get("/api/v1/query_exemplars", query, &data); err != nil {
		return err
	}
	found := 0
	for _, s := range data {
		for _, e := range s.Exemplars {
			if _, err := os.Stat(filepath.Join(dir, e.Labels["recording"])); err != nil || e.Labels["recording"] == "" {
				return fmt.Errorf("an exemplar %v: %w", e.Labels, err)
			}
			found++
		}
	}
	if found == 0 {
		return errors.New("no exemplar has arrived")
	}
	fmt.Println("exemplars:", found, "recordings, each there")
	return nil
}

// alerts: each rule can be evaluated, and the quota's has noticed for both adapters. It would fire after ten minutes.
func (a *prometheusAPI) alerts() error {
	var data struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError, State string
				Alerts                         []struct{ Labels map[string]string }
			}
		}
	}
	if err := a.get("/api/v1/rules", nil, &data); err != nil {
		return err
	}
	var bad []error
	noticed := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			fmt.Printf("alert %-28s %-9s %d\n", r.Name, r.State, len(r.Alerts))
			if r.Health != "ok" {
				bad = append(bad, fmt.Errorf("%s: %s: %s", r.Name, r.Health, r.LastError))
			}
			if r.Name == "CPUQuotaHoldsServiceBack" {
				noticed = len(r.Alerts)
			}
		}
	}
	if noticed != len(jobs) {
		bad = append(bad, fmt.Errorf("the alert of the quota noticed %d of %d services", noticed, len(jobs)))
	}
	return errors.Join(bad...)
}
