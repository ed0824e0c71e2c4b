package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/peterbourgon/ff/v3"

	"github.com/whylate/whylate/fleet/internal/notify"
	"github.com/whylate/whylate/fleet/internal/outgoing"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/scrape"
	"github.com/whylate/whylate/fleet/internal/server"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
)

type config struct {
	dir, listen, target, clickhouse, kafka, s3 string
	cert, key                                  string
	plain                                      bool
	workers                                    int
	bounds                                     server.Bounds
	keep                                       work.Retention
	drain, expires, since                      time.Duration
	service, logs                              string

	webhook, secrets, public, scrape string
	store, otlp, pyroscope           string
	allowed                          outgoing.AllowedRanges
	length, budget                   time.Duration
	share                            float64
}

var targets = []string{"all", "ingest", "work", "query", "scrape"}

// flagsOf returns the flags of a configuration. They are its reference: docs/fleet-flags.md lists them, by a test.
func flagsOf(c *config) *flag.FlagSet {
	f := flag.NewFlagSet("whylate-fleet", flag.ContinueOnError)
	f.String("config", "", "`file` with flags, a line each without its dash")
	f.StringVar(&c.dir, "dir", "whylate-fleet", "`directory` for the store and the recordings; it is made")
	f.StringVar(&c.listen, "listen", "127.0.0.1:4319", "`address` to serve on; others than loopback need TLS, and readers a token")
	f.StringVar(&c.target, "target", "all", "`part` to run: all, or ingest, work, query or scrape, in several processes on one directory, or anywhere with -kafka")
	f.StringVar(&c.clickhouse, "clickhouse", "", "`address` of a ClickHouse that keeps the rows, as clickhouse://user:password@host:9000/database; SQLite if empty")
	f.StringVar(&c.kafka, "kafka", "", "`address` of the Kafka topic with what waits, as kafka://user:password@host:9092,host:9092/topic?tls=true&sasl=scram-sha-512&partitions=12; it needs -s3 and -clickhouse. SQLite if empty")
	f.StringVar(&c.s3, "s3", "", "`address` of S3-compatible storage for recordings and reports, as s3://bucket/prefix?endpoint=https://host:9000&region=name; the directory if empty. Keys are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or of the machine's role")
	f.StringVar(&c.cert, "tls-cert", "", "`file` with the certificate, read again for each connection")
	f.StringVar(&c.key, "tls-key", "", "`file` with its key")
	f.BoolVar(&c.plain, "plain", false, "serve others than loopback without TLS: behind a proxy that has it")
	f.DurationVar(&c.drain, "drain", 0, "how long to answer, not ready, after SIGTERM before the end")
	f.IntVar(&c.workers, "workers", runtime.NumCPU(), "`number` of recordings explained at the same time, each with one CPU and up to 2 GiB")
	f.IntVar(&c.bounds.RecordingsPerMinute, "max-recordings", 600, "`number` of recordings a minute from each service")
	size(f, &c.bounds.BytesPerMinute, "max-bytes", 2<<30, "a minute from each service, unpacked")
	f.IntVar(&c.bounds.MaxQueued, "max-queued", 5000, "`number` of recordings of each service that may wait to be explained; with -kafka, of all together")
	size(f, &c.bounds.MinFreeBytes, "min-free", 512<<20, "left free on the disk: what comes then is refused")
	f.DurationVar(&c.keep.FileAge, "keep-raw", 14*24*time.Hour, "how long recordings are kept")
	size(f, &c.keep.FileBytes, "keep-raw-bytes", 20<<30, "of recordings that are kept; the only one of a service, cause and hour goes last")
	f.DurationVar(&c.keep.RowAge, "keep-rows", 90*24*time.Hour, "how long sums and findings are kept")
	f.DurationVar(&c.expires, "expires", 90*24*time.Hour, "how long a new token is valid")
	f.StringVar(&c.service, "service", "", "backfill: `name` of the service; all if empty")
	f.DurationVar(&c.since, "since", 14*24*time.Hour, "backfill: recordings of so long")
	f.StringVar(&c.otlp, "otlp", "", "`address` of an OpenTelemetry Collector's OTLP receiver for HTTP, such as http://collector:4318, that sums and findings are sent to; none if empty")
	f.StringVar(&c.pyroscope, "pyroscope", "", "`address` of a Pyroscope, such as http://pyroscope:4040, that a profile of each recording's critical paths is sent to; none if empty")
	f.StringVar(&c.store, "store", "rows", "`kind` of store for sums and findings: rows, in SQLite or ClickHouse, or otlp, at the collector only: then pages and answers know recordings and reports alone")
	f.StringVar(&c.webhook, "webhook", "", "`address` that webhooks are sent to, about new findings, findings that came back, and slower versions; none if empty")
	f.StringVar(&c.secrets, "webhook-secrets", "", "`file` with the receiver's keys, a line each: whsec_ and base64")
	f.StringVar(&c.public, "public", "", "`address` of this fleet in what webhooks say, such as https://fleet.example.com")
	f.Func("allow-private", "`ranges` of private addresses that may be scraped and that webhooks may be sent to, with commas between, such as 10.2.0.0/16 (default none)", func(s string) (err error) {
		c.allowed, err = outgoing.ParseRanges(s)
		return err
	})
	f.StringVar(&c.scrape, "scrape", "", "`file` that says how services without the library are found, in the form of Prometheus' scrape_configs; none if empty")
	f.DurationVar(&c.length, "scrape-length", 5*time.Second, "how long a recording of a scraped pod is")
	f.DurationVar(&c.budget, "scrape-budget", time.Minute, "for how long in an hour the pods of a scraped service are traced, all together")
	f.Float64Var(&c.share, "scrape-share", 0.01, "`part` of the pods of a scraped service that are traced at a time; at least one is")
	f.StringVar(&c.logs, "log", "text", "`form` of logs on standard error: text or json")
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	return f
}

// size adds a flag for a number of bytes.
func size(f *flag.FlagSet, to *int64, name string, value int64, text string) {
	*to = value
	f.Func(name, "`bytes` "+text+" (default "+humanize.IBytes(uint64(value))+")", func(s string) error {
		n, err := humanize.ParseBytes(s)
		if err != nil || n > 1<<60 {
			return errors.New("not a size such as 20GiB")
		}
		*to = int64(n)
		return nil
	})
}

// parse reads flags, environment and file, and checks them.
func parse(args []string) (*config, []string, error) {
	c := new(config)
	f := flagsOf(c)
	if err := ff.Parse(f, args, ff.WithEnvVarPrefix("WHYLATE_FLEET"), ff.WithConfigFileFlag("config"), ff.WithConfigFileParser(ff.PlainParser)); err != nil {
		return nil, nil, err
	}
	return c, f.Args(), c.check()
}

func (c *config) check() error {
	var all []error
	bad := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	bad(!slices.Contains(targets, c.target), "-target=%s is none of %s", c.target, strings.Join(targets, ", "))
	bad(c.logs != "text" && c.logs != "json", "-log=%s is neither text nor json", c.logs)
	bad((c.cert == "") != (c.key == ""), "-tls-cert and -tls-key need each other")
	bad(c.kafka != "" && (c.s3 == "" || c.clickhouse == ""), "-kafka needs -s3 and -clickhouse: several machines share no directory")
	bad(c.webhook != "" && c.target == "work" && c.public == "", "-webhook needs -public with -target=work, which serves no pages")
	_, _, err := net.SplitHostPort(c.listen)
	bad(err != nil, "-listen=%s is no address such as 127.0.0.1:4319", c.listen)
	bad(c.workers < 1, "-workers=%d: there must be at least one", c.workers)
	bad(c.bounds.RecordingsPerMinute < 1 || c.bounds.BytesPerMinute < 1 || c.bounds.MaxQueued < 1, "-max-recordings, -max-bytes and -max-queued must be at least 1")
	bad(c.keep.FileAge <= 0 || c.keep.RowAge < 24*time.Hour || c.keep.FileBytes < 1, "-keep-raw and -keep-raw-bytes must be more than 0, -keep-rows at least 24h")
	bad(c.expires <= 0 || c.since <= 0 || c.drain < 0, "-expires and -since must be more than 0, -drain not less")
	for name, address := range map[string]string{"-webhook": c.webhook, "-public": c.public, "-otlp": c.otlp, "-pyroscope": c.pyroscope} {
		u, err := url.Parse(address)
		bad(address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"), "%s=%s is no address such as https://host/path", name, address)
	}
	bad(c.store != "rows" && c.store != "otlp", "-store=%s is neither rows nor otlp", c.store)
	bad(c.store == "otlp" && c.otlp == "", "-store=otlp needs -otlp")
	bad((c.webhook == "") != (c.secrets == ""), "-webhook and -webhook-secrets need each other")
	bad(c.length < time.Second || c.length > time.Minute || c.budget < c.length, "-scrape-length must be 1s to 1m, -scrape-budget not less")
	bad(!(c.share >= 0 && c.share <= 1), "-scrape-share=%v is no part of 1", c.share)
	bad(c.target == "scrape" && c.scrape == "", "-target=scrape needs -scrape")
	if c.scrape != "" {
		_, err := scrape.ReadConfig(c.scrape)
		bad(err != nil, "-scrape: %w", err)
	}
	if c.secrets != "" {
		_, err := notify.ReadSecrets(c.secrets)
		bad(err != nil, "-webhook-secrets: %w", err)
	}
	if c.cert != "" {
		_, err := os.Stat(c.cert)
		bad(err != nil, "-tls-cert: %w", err)
	}
	return errors.Join(all...)
}

// open opens the ledger that is configured, for a part: what only takes recordings in goes on without ClickHouse.
func (c *config) open(ctx context.Context, serves bool) (*store.Store, error) {
	for _, dir := range []string{filepath.Join(c.dir, "raw"), os.TempDir()} { // an empty volume has neither
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if c.kafka == "" {
		return store.Open(ctx, filepath.Join(c.dir, "fleet.db"), c.clickhouse)
	}
	files, err := raw.OpenS3(ctx, c.s3, raw.Dir(filepath.Join(c.dir, "raw")))
	if err != nil {
		return nil, err
	}
	clickhouse := c.clickhouse
	if c.takes() {
		clickhouse = ""
	}
	return store.OpenShared(ctx, c.kafka, clickhouse, files, serves && (c.target == "all" || c.target == "work"))
}

// takes reports whether the part only takes recordings in: it needs no rows.
func (c *config) takes() bool { return c.target == "ingest" || c.target == "scrape" }

// files opens the place for recordings and reports.
func (c *config) files(ctx context.Context) (raw.Store, error) {
	dir := raw.Dir(filepath.Join(c.dir, "raw"))
	if c.s3 == "" {
		return dir, nil
	}
	s, err := raw.OpenS3(ctx, c.s3, dir)
	if err != nil {
		return nil, err
	}
	return s, s.Ping(ctx)
}

// cutReader reports whether a name is a reader's.
func cutReader(name string) (string, bool) { return strings.CutPrefix(name, "reader:") }
