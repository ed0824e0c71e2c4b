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

	_ "github.com/prometheus/prometheus/discovery/kubernetes" // here, so that the packages are built and tested without client-go

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/notify"
	"github.com/whylate/whylate/fleet/internal/otlp"
	"github.com/whylate/whylate/fleet/internal/scrape"
	"github.com/whylate/whylate/fleet/internal/server"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
)

// serve runs the parts of the target in this process until ctx ends. ready, if not nil, is told the address.
func serve(ctx context.Context, c *config, ready func(address string, st *store.Store) error) error {
	st, err := c.open(ctx, true)
	if err != nil {
		return err
	}
	defer st.Close()
	files, err := c.files(ctx)
	if err != nil {
		return err
	}
	if c.kafka == "" {
		if err := work.CheckFiles(ctx, st, files); err != nil {
			return fmt.Errorf("%s and %s: %w", filepath.Join(c.dir, "fleet.db"), cmp.Or(strings.SplitN(c.s3, "?", 2)[0], filepath.Join(c.dir, "raw")), err)
		}
	}
	l, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	defer l.Close()
	a, ok := l.Addr().(*net.TCPAddr)
	loopback, scheme := ok && a.IP.IsLoopback(), "http"
	if c.cert != "" {
		scheme = "https"
		conf, err := tlsConfig(c.cert, c.key)
		if err != nil {
			return err
		}
		l = tls.NewListener(l, conf)
	} else if !loopback && !c.plain {
		return fmt.Errorf("%s is not a loopback address: give -tls-cert and -tls-key, or -plain behind a proxy that has TLS", c.listen)
	}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, nil)
	if c.logs == "json" {
		handler = slog.NewJSONHandler(os.Stderr, nil)
	}
	log, known := slog.New(handler), st
	if c.kafka != "" && c.takes() {
		known = nil // it has no ClickHouse to ask
	}
	m := metrics.New(known)
	s := &server.Server{Store: st, Files: files, Log: log, Metrics: m, Bounds: c.bounds, Loopback: loopback,
		Ingest: c.target == "all" || c.target == "ingest", Query: c.target == "all" || c.target == "query"}
	h := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	if c.target == "all" || c.target == "work" {
		w := &work.Worker{Store: st, Files: files, Log: log, Metrics: m, MaxChildren: c.workers}
		count := func(outcome string) { m.ExportedMessages.WithLabelValues(outcome).Inc() }
		if c.otlp != "" {
			e, err := otlp.New(c.otlp, os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), log, count)
			if err != nil {
				return err
			}
			w.Exports, w.ExportOnly = append(w.Exports, e.Send), c.store == "otlp"
		}
		if c.pyroscope != "" {
			e, err := otlp.New(c.pyroscope, os.Getenv("PYROSCOPE_HEADERS"), log, count)
			if err != nil {
				return err
			}
			w.Exports = append(w.Exports, e.SendProfile)
		}
		parts.Go(func() { w.Run(ctx) })
		parts.Go(func() { w.Retain(ctx, c.keep) })
		if c.webhook != "" {
			secrets, err := notify.ReadSecrets(c.secrets)
			if err != nil {
				return err
			}
			n := &notify.Notifier{Store: st, Log: log, Metrics: m, ReceiverURL: c.webhook, Secrets: secrets, PublicURL: cmp.Or(c.public, scheme+"://"+l.Addr().String()), AllowedRanges: c.allowed, Compare: s.Compare}
			parts.Go(func() { n.Run(ctx) })
		}
	}
	if c.scrape != "" && (c.target == "all" || c.target == "scrape") {
		jobs, err := scrape.ReadConfig(c.scrape)
		if err != nil {
			return err
		}
		sc := &scrape.Scraper{Config: jobs, Log: log, Metrics: m, AllowedRanges: c.allowed, TraceLength: c.length, HourlyBudget: c.budget, PodShare: c.share, Accept: s.Accept}
		parts.Go(func() {
			if err := sc.Run(ctx); err != nil {
				log.Error("scraping ended", "error", err)
			}
		})
	}
	parts.Go(func() {
		<-ctx.Done()
		s.Drain()
		time.Sleep(c.drain)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_ = h.Shutdown(end)
	})
	address := scheme + "://" + l.Addr().String()
	if ready != nil {
		if err := ready(address, st); err != nil {
			return err
		}
	} else {
		log.Info("serving", "target", c.target, "address", address)
	}
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	log.Info("drained")
	return nil
}

// tlsConfig reads the certificate again for each connection, so that a new one counts at once; one that is damaged just then does
// not.
func tlsConfig(cert, key string) (*tls.Config, error) {
	last, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if now, err := tls.LoadX509KeyPair(cert, key); err == nil {
			last = now
		}
		c := last
		return &c, nil
	}}, nil
}
