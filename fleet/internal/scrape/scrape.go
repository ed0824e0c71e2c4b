// Package scrape records services that have no library in them: it finds them by Prometheus' own discovery, and takes a trace of a few
// of their pods at a time, for so many seconds an hour.
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
	maxServices = 10_000
	maxTargets  = 100_000 // of all services
	maxLabel    = 128     // bytes
	maxTrace    = 64 << 20
	atOnce      = 8 // targets being traced, of all services
)

// A Scraper records targets.
type Scraper struct {
	Config  *Config
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Allowed outgoing.AllowedRanges
	// Length is that of a recording. Budget is for how long pods of a service are traced in an hour, all together. Share is how many
	// of them at a time: a part of all, but at least one.
	Length, Budget time.Duration
	Share          float64
	// Accept takes a recording in, as if the service had sent it.
	Accept func(ctx context.Context, service string, body io.Reader) (id string, err error)

	grace    time.Duration // how long a target may be silent, or connecting may take; record's own if 0
	services map[string]*service
	slots    chan struct{}
}

// A service is where it runs, and when it is traced next.
type service struct {
	targets map[string]*target // by address
	next    time.Time
	busy    bool
}

// A target is a pod.
type target struct {
	job    *Job
	url    *url.URL
	labels rows.Labels
	last   time.Time
}

// Run records targets until ctx ends.
func (s *Scraper) Run(ctx context.Context) error {
	registry := prometheus.NewRegistry() // discovery's own metrics are not ours to show
	found, err := discovery.CreateAndRegisterSDMetrics(registry)
	if err != nil {
		return err
	}
	manager := discovery.NewManager(ctx, s.Log, registry, found)
	if manager == nil {
		return errors.New("discovery cannot begin")
	}
	configs := make(map[string]discovery.Configs)
	for _, j := range s.Config.Jobs {
		configs[j.Name] = guardRedirects(j.Discovery, s.Allowed)
	}
	if err := manager.ApplyConfig(configs); err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { _ = manager.Run() })
	s.slots, s.services = make(chan struct{}, atOnce), make(map[string]*service)
	ended := make(chan *service)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case groups := <-manager.SyncCh():
			s.update(groups, time.Now())
		case one := <-ended:
			one.busy = false
		case now := <-tick.C:
			for _, one := range s.services {
				if list := s.round(one, now); len(list) > 0 {
					all.Go(func() {
						var round sync.WaitGroup
						for _, t := range list {
							round.Go(func() { s.record(ctx, t) })
						}
						round.Wait()
						select {
						case ended <- one:
						case <-ctx.Done():
						}
					})
				}
			}
		}
	}
}

// update takes over what discovery has found. What is known of a service and of a target stays while they are found.
func (s *Scraper) update(found map[string][]*targetgroup.Group, now time.Time) {
	services, n := make(map[string]map[string]*target), 0
	for _, j := range s.Config.Jobs {
		for _, g := range found[j.Name] {
			for i, t := range g.Targets {
				if n == maxTargets {
					s.Metrics.ScrapeAttempts.WithLabelValues("too-many").Add(float64(len(g.Targets) - i))
					break
				}
				to := j.target(g, t)
				if to == nil {
					continue
				}
				n++
				of := services[to.labels.Service]
				if of == nil && len(services) == maxServices {
					s.Metrics.ScrapeAttempts.WithLabelValues("too-many").Inc()
					continue
				}
				if of == nil {
					of = make(map[string]*target)
					services[to.labels.Service] = of
				}
				of[to.url.String()] = to
			}
		}
	}
	if n == maxTargets || len(services) == maxServices {
		s.Log.Warn("discovery finds too much: the rest is left out", "targets", n, "services", len(services))
	}
	for name := range s.services {
		if services[name] == nil {
			delete(s.services, name)
		}
	}
	for name, targets := range services {
		one := s.services[name]
		if one == nil {
			// Not at once: a fleet that is started repeatedly would trace more than its budget.
			one = &service{next: now.Add(rand.N(s.interval(1)))}
			s.services[name] = one
		}
		for address, t := range targets {
			if was := one.targets[address]; was != nil {
				t.last = was.last
			}
		}
		one.targets = targets
	}
}

// target is what the labels of a target come to; nil if they say that it is none.
func (j *Job) target(g *targetgroup.Group, own model.LabelSet) *target {
	b := labels.NewBuilder(labels.EmptyLabels())
	for name, value := range map[string]string{"job": j.Name, "__scheme__": cmp.Or(j.Scheme, "http"), "__trace_path__": cmp.Or(j.Path, "/debug/pprof")} {
		b.Set(name, value)
	}
	for _, set := range []model.LabelSet{g.Labels, own} {
		for name, value := range set {
			b.Set(string(name), string(value))
		}
	}
	if !relabel.ProcessBuilder(b, j.Relabel...) {
		return nil
	}
	u := &url.URL{Scheme: b.Get("__scheme__"), Host: b.Get("__address__"), Path: b.Get("__trace_path__")}
	if _, _, err := record.ParseEndpoint(u.String()); err != nil || strings.ContainsAny(u.Host, "/?#@\\") {
		return nil
	}
	first := func(names ...string) (out string) {
		for _, name := range names {
			out = cmp.Or(out, rows.CleanText(b.Get(name), maxLabel))
		}
		return out
	}
	return &target{job: j, url: u, labels: rows.Labels{
		Service:     first("service", "__meta_kubernetes_pod_label_app_kubernetes_io_name", "job"),
		Version:     first("version", "__meta_kubernetes_pod_label_app_kubernetes_io_version"),
		Environment: first("environment"),
		Pod:         first("pod", "__meta_kubernetes_pod_name", "instance", "__address__"),
		Node:        first("node", "__meta_kubernetes_pod_node_name"),
	}}
}

// interval is how far rounds of so many pods lie apart at least, for the budget to hold.
func (s *Scraper) interval(pods int) time.Duration {
	return time.Duration(float64(time.Hour) * float64(pods) * float64(s.Length) / float64(s.Budget))
}

// round returns the pods of a service that are to be traced now: those that were not for longest.
func (s *Scraper) round(one *service, now time.Time) []*target {
	if one.busy || now.Before(one.next) || len(one.targets) == 0 {
		return nil
	}
	list := slices.Collect(maps.Values(one.targets))
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	slices.SortStableFunc(list, func(a, b *target) int { return a.last.Compare(b.last) })
	list = list[:max(1, int(s.Share*float64(len(list))))]
	for _, t := range list {
		t.last = now
	}
	least := s.interval(len(list))
	one.busy, one.next = true, now.Add(least+rand.N(least/2)) // services, and fleets, must not fall into step
	return list
}

// record takes a trace of a target.
func (s *Scraper) record(ctx context.Context, t *target) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return
	}
	outcome, err := s.take(ctx, t)
	if ctx.Err() != nil {
		return
	}
	s.Metrics.ScrapeAttempts.WithLabelValues(outcome).Inc()
	if err != nil {
		s.Log.Warn("a target was not recorded", "service", t.labels.Service, "target", t.url.Host, "outcome", outcome, "error", err)
	}
}

func (s *Scraper) take(ctx context.Context, t *target) (outcome string, err error) {
	opt, err := t.job.options(t.url.Scheme)
	if err != nil {
		return "failed", err
	}
	dir, err := os.MkdirTemp("", "scrape-")
	if err != nil {
		return "failed", err
	}
	defer os.RemoveAll(dir)
	own := net.JoinHostPort(t.url.Hostname(), cmp.Or(t.url.Port(), map[string]string{"http": "80", "https": "443"}[t.url.Scheme]))
	var refused atomic.Bool
	opt.Dial = func(ctx context.Context, network, address string) (c net.Conn, err error) {
		if !strings.EqualFold(address, own) { // it redirects: what this machine reaches is not the target's to choose
			err = fmt.Errorf("redirect to %s: %w", address, errElsewhere)
		} else {
			c, err = s.Allowed.Dialer().DialContext(ctx, network, address)
		}
		if errors.Is(err, errElsewhere) || errors.Is(err, outgoing.ErrRefused) {
			refused.Store(true)
			err = &record.Error{Kind: record.Forbidden, Text: err.Error()}
		}
		return c, err
	}
	opt.Duration, opt.MaxBytes, opt.Proxy, opt.NoHost, opt.UserAgent = s.Length, maxTrace, "none", true, "whylate-fleet"
	opt.Grace, opt.ConnectTimeout = s.grace, s.grace
	opt.Service = map[string]string{"service.name": t.labels.Service, "service.version": t.labels.Version, "deployment.environment.name": t.labels.Environment,
		"k8s.pod.name": t.labels.Pod, "k8s.node.name": t.labels.Node}
	name := filepath.Join(dir, "x"+record.BundleExt)
	res, err := record.Save(ctx, t.url.String(), opt, name, "whylate-fleet", nil)
	if res != nil {
		s.Metrics.TracedSeconds.Add(res.Got.Seconds())
	}
	var why *record.Error
	switch {
	case refused.Load():
		return "refused", err
	case errors.As(err, &why) && why.Kind == record.Busy:
		return "busy", err
	case res == nil || !res.Usable:
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

var errElsewhere = errors.New("targets may not lead elsewhere")
