// Package scrape records services that do not import the library. It finds their pods by the service discovery of Prometheus,
// and takes execution traces of a few pods of each service at a time, within a budget of traced time in each hour.
package scrape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/outgoing"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/capture/record"
)

const (
	maxServices   = 10_000
	maxTargets    = 100_000 // of all services
	maxLabelBytes = 128
	maxTraceBytes = 64 << 20
	maxTraces     = 8 // concurrent traces of all services
)

// A Scraper finds targets and records them.
type Scraper struct {
	Config        *Config
	Log           *slog.Logger
	Metrics       *metrics.Metrics
	AllowedRanges outgoing.AllowedRanges
	// TraceLength is the length of a recording. HourlyBudget bounds the time in an hour for which pods of one service are
	// traced, summed over the pods. PodShare is the share of the pods that are traced at a time; at least one is.
	TraceLength, HourlyBudget time.Duration
	PodShare                  float64
	// Accept receives a recording as if the service had uploaded it.
	Accept func(ctx context.Context, service string, body io.Reader) (id string, err error)

	silenceTimeout time.Duration // bounds connecting, and the time without data; the default of record if 0
	services       map[string]*service
	traceSlots     chan struct{}
}

// A service has targets, and the time of its next round. A round traces some targets concurrently.
type service struct {
	targets   map[string]*target // by address
	nextRound time.Time
	inRound   bool
}

// A target is a pod of a service.
type target struct {
	job        *Job
	url        *url.URL
	labels     rows.Labels
	lastTraced time.Time
}

// Run finds and records targets until ctx ends.
func (s *Scraper) Run(ctx context.Context) error {
	registry := prometheus.NewRegistry() // keeps the metrics of discovery out of those of the fleet
	discoveryMetrics, err := discovery.CreateAndRegisterSDMetrics(registry)
	if err != nil {
		return err
	}
	manager := discovery.NewManager(ctx, s.Log, registry, discoveryMetrics)
	if manager == nil {
		return errors.New("discovery cannot begin")
	}
	configs := make(map[string]discovery.Configs)
	for _, j := range s.Config.Jobs {
		configs[j.Name] = guardRedirects(j.Discovery, s.AllowedRanges)
	}
	if err := manager.ApplyConfig(configs); err != nil {
		return err
	}
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	goroutines.Go(func() { _ = manager.Run() })
	s.traceSlots, s.services = make(chan struct{}, maxTraces), make(map[string]*service)
	endedRounds := make(chan *service)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case groups := <-manager.SyncCh():
			s.updateServices(groups, time.Now())
		case svc := <-endedRounds:
			svc.inRound = false
		case now := <-tick.C:
			for _, svc := range s.services {
				if pods := s.startRound(svc, now); len(pods) > 0 {
					goroutines.Go(func() {
						var round sync.WaitGroup
						for _, t := range pods {
							round.Go(func() { s.recordTarget(ctx, t) })
						}
						round.Wait()
						select {
						case endedRounds <- svc:
						case <-ctx.Done():
						}
					})
				}
			}
		}
	}
}

// updateServices replaces the targets by those that discovery has found. Services and targets that are still found keep the
// times of their rounds and traces.
func (s *Scraper) updateServices(groups map[string][]*targetgroup.Group, now time.Time) {
	services, targetCount := make(map[string]map[string]*target), 0
	for _, j := range s.Config.Jobs {
		for _, g := range groups[j.Name] {
			for i, targetLabels := range g.Targets {
				if targetCount == maxTargets {
					s.Metrics.ScrapeAttempts.WithLabelValues("too-many").Add(float64(len(g.Targets) - i))
					break
				}
				found := j.newTarget(g, targetLabels)
				if found == nil {
					continue
				}
				targetCount++
				targets := services[found.labels.Service]
				if targets == nil && len(services) == maxServices {
					s.Metrics.ScrapeAttempts.WithLabelValues("too-many").Inc()
					continue
				}
				if targets == nil {
					targets = make(map[string]*target)
					services[found.labels.Service] = targets
				}
				targets[found.url.String()] = found
			}
		}
	}
	if targetCount == maxTargets || len(services) == maxServices {
		s.Log.Warn("discovery finds too much: the rest is left out", "targets", targetCount, "services", len(services))
	}
	for name := range s.services {
		if services[name] == nil {
			delete(s.services, name)
		}
	}
	for name, targets := range services {
		svc := s.services[name]
		if svc == nil {
			// The first round is at a random time: a fleet that is restarted repeatedly would exceed the budget.
			svc = &service{nextRound: now.Add(rand.N(s.roundInterval(1)))}
			s.services[name] = svc
		}
		for address, t := range targets {
			if previousTarget := svc.targets[address]; previousTarget != nil {
				t.lastTraced = previousTarget.lastTraced
			}
		}
		svc.targets = targets
	}
}

// newTarget returns the target with the given labels, nil if relabeling drops it or its address is invalid.
func (j *Job) newTarget(group *targetgroup.Group, ownLabels model.LabelSet) *target {
	builder := labels.NewBuilder(labels.EmptyLabels())
	for name, value := range map[string]string{"job": j.Name, "__scheme__": cmp.Or(j.Scheme, "http"), "__trace_path__": cmp.Or(j.Path, "/debug/pprof")} {
		builder.Set(name, value)
	}
	for _, set := range []model.LabelSet{group.Labels, ownLabels} {
		for name, value := range set {
			builder.Set(string(name), string(value))
		}
	}
	if !relabel.ProcessBuilder(builder, j.Relabel...) {
		return nil
	}
	address := &url.URL{Scheme: builder.Get("__scheme__"), Host: builder.Get("__address__"), Path: builder.Get("__trace_path__")}
	if _, _, err := record.ParseEndpoint(address.String()); err != nil || strings.ContainsAny(address.Host, "/?#@\\") {
		return nil
	}
	firstLabel := func(names ...string) (out string) {
		for _, name := range names {
			out = cmp.Or(out, rows.CleanText(builder.Get(name), maxLabelBytes))
		}
		return out
	}
	return &target{job: j, url: address, labels: rows.Labels{
		Service:     firstLabel("service", "__meta_kubernetes_pod_label_app_kubernetes_io_name", "job"),
		Version:     firstLabel("version", "__meta_kubernetes_pod_label_app_kubernetes_io_version"),
		Environment: firstLabel("environment"),
		Pod:         firstLabel("pod", "__meta_kubernetes_pod_name", "instance", "__address__"),
		Node:        firstLabel("node", "__meta_kubernetes_pod_node_name"),
	}}
}

// roundInterval returns the minimum time between rounds of so many pods, so that they stay within the budget.
func (s *Scraper) roundInterval(pods int) time.Duration {
	return time.Duration(float64(time.Hour) * float64(pods) * float64(s.TraceLength) / float64(s.HourlyBudget))
}

// startRound returns the pods to trace now, the share PodShare of the service's with the oldest last trace, sets that to now, and marks the service
// as in a round. It returns nil if no round is due.
func (s *Scraper) startRound(svc *service, now time.Time) []*target {
	if svc.inRound || now.Before(svc.nextRound) || len(svc.targets) == 0 {
		return nil
	}
	pods := slices.Collect(maps.Values(svc.targets))
	rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	slices.SortStableFunc(pods, func(a, b *target) int { return a.lastTraced.Compare(b.lastTraced) })
	pods = pods[:max(1, int(s.PodShare*float64(len(pods))))]
	for _, t := range pods {
		t.lastTraced = now
	}
	minWait := s.roundInterval(len(pods))
	svc.inRound, svc.nextRound = true, now.Add(minWait+rand.N(minWait/2)) // a random part keeps services and fleets from tracing at the same times
	return pods
}

// recordTarget waits for a slot, records a target, and counts the outcome. A failure is logged.
func (s *Scraper) recordTarget(ctx context.Context, t *target) {
	select {
	case s.traceSlots <- struct{}{}:
		defer func() { <-s.traceSlots }()
	case <-ctx.Done():
		return
	}
	outcome, err := s.traceAndAccept(ctx, t)
	if ctx.Err() != nil {
		return
	}
	s.Metrics.ScrapeAttempts.WithLabelValues(outcome).Inc()
	if err != nil {
		s.Log.Warn("a target was not recorded", "service", t.labels.Service, "target", t.url.Host, "outcome", outcome, "error", err)
	}
}

// traceAndAccept records a target, which takes TraceLength, and passes the recording to Accept. outcome is a label of the metric, also if err is not
// nil.
func (s *Scraper) traceAndAccept(ctx context.Context, t *target) (outcome string, err error) {
	opt, err := t.job.recordOptions(t.url.Scheme)
	if err != nil {
		return "failed", err
	}
	dir, err := os.MkdirTemp("", "scrape-")
	if err != nil {
		return "failed", err
	}
	defer os.RemoveAll(dir)
	targetAddress := net.JoinHostPort(t.url.Hostname(), cmp.Or(t.url.Port(), map[string]string{"http": "80", "https": "443"}[t.url.Scheme]))
	var refused atomic.Bool
	opt.Dial = func(ctx context.Context, network, address string) (c net.Conn, err error) {
		if !strings.EqualFold(address, targetAddress) { // a redirect, by which the target would choose where this machine connects
			err = fmt.Errorf("redirect to %s: %w", address, errRedirected)
		} else {
			c, err = s.AllowedRanges.Dialer().DialContext(ctx, network, address)
		}
		if errors.Is(err, errRedirected) || errors.Is(err, outgoing.ErrRefused) {
			refused.Store(true)
			err = &record.Error{Kind: record.Forbidden, Text: err.Error()}
		}
		return c, err
	}
	opt.Duration, opt.MaxBytes, opt.Proxy, opt.NoHost, opt.UserAgent = s.TraceLength, maxTraceBytes, "none", true, "whylate-fleet"
	opt.Grace, opt.ConnectTimeout = s.silenceTimeout, s.silenceTimeout
	opt.Service = map[string]string{"service.name": t.labels.Service, "service.version": t.labels.Version, "deployment.environment.name": t.labels.Environment,
		"k8s.pod.name": t.labels.Pod, "k8s.node.name": t.labels.Node}
	name := filepath.Join(dir, "x"+record.BundleExt)
	result, err := record.Save(ctx, t.url.String(), opt, name, "whylate-fleet", nil)
	if result != nil {
		s.Metrics.TracedSeconds.Add(result.Received.Seconds())
	}
	var recordErr *record.Error
	switch {
	case refused.Load():
		return "refused", err
	case errors.As(err, &recordErr) && recordErr.Kind == record.Busy:
		return "busy", err
	case result == nil || !result.HasGeneration:
		return "failed", err
	}
	f, err := os.Open(name)
	if err != nil {
		return "failed", err
	}
	defer f.Close()
	id, err := s.Accept(ctx, t.labels.Service, f)
	if err != nil {
		return "kept-out", err
	}
	s.Log.Info("recorded", "recording", id, "service", t.labels.Service, "target", t.url.Host)
	return "taken", nil
}

// errRedirected is the error of a target that redirects to another host or port.
var errRedirected = errors.New("targets may not lead elsewhere")
