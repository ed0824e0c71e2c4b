package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "github.com/prometheus/prometheus/discovery/kubernetes" // imported here only, so that the other packages build without client-go

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/notify"
	"github.com/whylate/whylate/fleet/internal/otlp"
	"github.com/whylate/whylate/fleet/internal/policy"
	"github.com/whylate/whylate/fleet/internal/scrape"
	"github.com/whylate/whylate/fleet/internal/server"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
)

// serve runs the roles of the target in this process until ctx ends. It calls ready, if not nil, with the address when it
// listens.
func serve(ctx context.Context, cfg *config, ready func(address string, st *store.Store) error) error {
	st, err := cfg.openStore(ctx, true)
	if err != nil {
		return err
	}
	defer st.Close()
	files, err := cfg.openFiles(ctx)
	if err != nil {
		return err
	}
	if cfg.kafkaAddress == "" {
		if err := work.CheckFiles(ctx, st, files); err != nil {
			return fmt.Errorf("%s and %s: %w", filepath.Join(cfg.dir, "fleet.db"), cmp.Or(strings.SplitN(cfg.s3Address, "?", 2)[0], filepath.Join(cfg.dir, "raw")), err)
		}
	}
	listener, err := net.Listen("tcp", cfg.listenAddress)
	if err != nil {
		return err
	}
	defer listener.Close()
	tcpAddress, ok := listener.Addr().(*net.TCPAddr)
	loopback, scheme := ok && tcpAddress.IP.IsLoopback(), "http"
	if cfg.certFile != "" {
		scheme = "https"
		tlsConf, err := newTLSConfig(cfg.certFile, cfg.keyFile)
		if err != nil {
			return err
		}
		listener = tls.NewListener(listener, tlsConf)
	} else if !loopback && !cfg.allowPlain {
		return fmt.Errorf("%s is not a loopback address: give -tls-cert and -tls-key, or -plain behind a proxy that has TLS", cfg.listenAddress)
	}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, nil)
	if cfg.logFormat == "json" {
		handler = slog.NewJSONHandler(os.Stderr, nil)
	}
	log, metricsStore := slog.New(handler), st
	if cfg.kafkaAddress != "" && cfg.isReceiver() {
		metricsStore = nil // a receiver has no ClickHouse to query
	}
	if cfg.policyFile != "" {
		if st.Policy, err = policy.Open(cfg.policyFile, log); err != nil {
			return fmt.Errorf("-policy: %w", err)
		}
	}
	fleetMetrics := metrics.New(metricsStore)
	fleetServer := &server.Server{Store: st, Files: files, Log: log, Metrics: fleetMetrics, Bounds: cfg.bounds, Loopback: loopback,
		Ingest: cfg.target == "all" || cfg.target == "ingest", Query: cfg.target == "all" || cfg.target == "query"}
	defer fleetServer.EndViewers()
	httpServer := &http.Server{Handler: fleetServer.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	if cfg.target == "all" || cfg.target == "work" {
		worker := &work.Worker{Store: st, Files: files, Log: log, Metrics: fleetMetrics, MaxChildren: cfg.workers}
		count := func(outcome string) { fleetMetrics.ExportedMessages.WithLabelValues(outcome).Inc() }
		if cfg.otlpURL != "" {
			exporter, err := otlp.New(cfg.otlpURL, os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), log, count)
			if err != nil {
				return err
			}
			worker.Exports, worker.ExportOnly = append(worker.Exports, exporter.Send), cfg.storeKind == "otlp"
		}
		if cfg.pyroscopeURL != "" {
			exporter, err := otlp.New(cfg.pyroscopeURL, os.Getenv("PYROSCOPE_HEADERS"), log, count)
			if err != nil {
				return err
			}
			worker.Exports = append(worker.Exports, exporter.SendProfile)
		}
		parts.Go(func() { worker.Run(ctx) })
		parts.Go(func() { worker.Retain(ctx, cfg.retention) })
		if cfg.webhookURL != "" {
			secrets, err := notify.ReadSecrets(cfg.secretsFile)
			if err != nil {
				return err
			}
			notifier := &notify.Notifier{Store: st, Log: log, Metrics: fleetMetrics, ReceiverURL: cfg.webhookURL, Secrets: secrets, PublicURL: cmp.Or(cfg.publicURL, scheme+"://"+listener.Addr().String()), AllowedRanges: cfg.allowedRanges, Compare: fleetServer.Compare}
			parts.Go(func() { notifier.Run(ctx) })
		}
	}
	if cfg.scrapeFile != "" && (cfg.target == "all" || cfg.target == "scrape") {
		scrapeConfig, err := scrape.ReadConfig(cfg.scrapeFile)
		if err != nil {
			return err
		}
		scraper := &scrape.Scraper{Config: scrapeConfig, Log: log, Metrics: fleetMetrics, AllowedRanges: cfg.allowedRanges, TraceLength: cfg.scrapeLength, HourlyBudget: cfg.scrapeBudget, PodShare: cfg.scrapeShare, Accept: fleetServer.Accept}
		parts.Go(func() {
			if err := scraper.Run(ctx); err != nil {
				log.Error("scraping ended", "error", err)
			}
		})
	}
	parts.Go(func() {
		<-ctx.Done()
		fleetServer.Drain()
		time.Sleep(cfg.drainTime)
		endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_ = httpServer.Shutdown(endCtx)
	})
	address := scheme + "://" + listener.Addr().String()
	if ready != nil {
		if err := ready(address, st); err != nil {
			return err
		}
	} else {
		log.Info("serving", "target", cfg.target, "address", address)
	}
	if err := httpServer.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	log.Info("drained")
	return nil
}

// newTLSConfig returns a configuration that reads the certificate (certFile) and its key (keyFile), both PEM, again for each
// connection, so a new certificate is used at once. While the files are damaged, the last valid certificate is used.
func newTLSConfig(certFile, keyFile string) (*tls.Config, error) {
	last, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if reloaded, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil {
			last = reloaded
		}
		c := last
		return &c, nil
	}}, nil
}
