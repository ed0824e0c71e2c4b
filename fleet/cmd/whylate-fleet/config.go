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
	"github.com/whylate/whylate/fleet/internal/policy"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/scrape"
	"github.com/whylate/whylate/fleet/internal/server"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
)

type config struct {
	dir, listenAddress, target, clickhouseAddress, kafkaAddress, s3Address string
	certFile, keyFile                                                      string
	allowPlain                                                             bool
	workers                                                                int
	bounds                                                                 server.Bounds
	retention                                                              work.Retention
	drainTime, tokenLifetime, backfillAge                                  time.Duration
	backfillService, logFormat                                             string

	webhookURL, secretsFile, publicURL, scrapeFile, policyFile string
	storeKind, otlpURL, pyroscopeURL                           string
	allowedRanges                                              outgoing.AllowedRanges
	scrapeLength, scrapeBudget                                 time.Duration
	scrapeShare                                                float64
}

var knownTargets = []string{"all", "ingest", "work", "query", "scrape"}

// newFlagSet returns the flags, which set the fields of c. Their help texts are the reference: a test writes docs/fleet-flags.md
// from them.
func newFlagSet(c *config) *flag.FlagSet {
	flags := flag.NewFlagSet("whylate-fleet", flag.ContinueOnError)
	flags.String("config", "", "`file` with flags, a line each without its dash")
	flags.StringVar(&c.dir, "dir", "whylate-fleet", "`directory` for the store and the recordings; it is made")
	flags.StringVar(&c.listenAddress, "listen", "127.0.0.1:4319", "`address` to serve on; others than loopback need TLS, and readers a token")
	flags.StringVar(&c.target, "target", "all", "`part` to run: all, or ingest, work, query or scrape, in several processes on one directory, or anywhere with -kafka")
	flags.StringVar(&c.clickhouseAddress, "clickhouse", "", "`address` of a ClickHouse that keeps the rows, as clickhouse://user:password@host:9000/database; SQLite if empty")
	flags.StringVar(&c.kafkaAddress, "kafka", "", "`address` of the Kafka topic with what waits, as kafka://user:password@host:9092,host:9092/topic?tls=true&sasl=scram-sha-512&partitions=12; it needs -s3 and -clickhouse. SQLite if empty")
	flags.StringVar(&c.s3Address, "s3", "", "`address` of S3-compatible storage for recordings and reports, as s3://bucket/prefix?endpoint=https://host:9000&region=name; the directory if empty. Keys are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or of the machine's role")
	flags.StringVar(&c.certFile, "tls-cert", "", "`file` with the certificate, read again for each connection")
	flags.StringVar(&c.keyFile, "tls-key", "", "`file` with its key")
	flags.BoolVar(&c.allowPlain, "plain", false, "serve others than loopback without TLS: behind a proxy that has it")
	flags.DurationVar(&c.drainTime, "drain", 0, "how long to answer, not ready, after SIGTERM before the end")
	flags.IntVar(&c.workers, "workers", runtime.NumCPU(), "`number` of recordings explained at the same time, each with one CPU and up to 2 GiB")
	flags.IntVar(&c.bounds.RecordingsPerMinute, "max-recordings", 600, "`number` of recordings a minute from each service")
	addSizeFlag(flags, &c.bounds.BytesPerMinute, "max-bytes", 2<<30, "a minute from each service, unpacked")
	flags.IntVar(&c.bounds.MaxQueued, "max-queued", 5000, "`number` of recordings of each service that may wait to be explained; with -kafka, of all together")
	addSizeFlag(flags, &c.bounds.MinFreeBytes, "min-free", 512<<20, "left free on the disk: what comes then is refused")
	flags.DurationVar(&c.retention.FileAge, "keep-raw", 14*24*time.Hour, "how long recordings are kept")
	addSizeFlag(flags, &c.retention.FileBytes, "keep-raw-bytes", 20<<30, "of recordings that are kept; the only one of a service, cause and hour goes last")
	flags.DurationVar(&c.retention.RowAge, "keep-rows", 90*24*time.Hour, "how long sums and findings are kept")
	flags.DurationVar(&c.tokenLifetime, "expires", 90*24*time.Hour, "how long a new token is valid")
	flags.StringVar(&c.backfillService, "service", "", "backfill: `name` of the service; all if empty")
	flags.DurationVar(&c.backfillAge, "since", 14*24*time.Hour, "backfill: recordings of so long")
	flags.StringVar(&c.otlpURL, "otlp", "", "`address` of an OpenTelemetry Collector's OTLP receiver for HTTP, such as http://collector:4318, that sums and findings are sent to; none if empty")
	flags.StringVar(&c.pyroscopeURL, "pyroscope", "", "`address` of a Pyroscope, such as http://pyroscope:4040, that a profile of each recording's critical paths is sent to; none if empty")
	flags.StringVar(&c.storeKind, "store", "rows", "`kind` of store for sums and findings: rows, in SQLite or ClickHouse, or otlp, at the collector only: then pages and answers know recordings and reports alone")
	flags.StringVar(&c.webhookURL, "webhook", "", "`address` that webhooks are sent to, about new findings, findings that came back, and slower versions; none if empty")
	flags.StringVar(&c.secretsFile, "webhook-secrets", "", "`file` with the receiver's keys, a line each: whsec_ and base64")
	flags.StringVar(&c.publicURL, "public", "", "`address` of this fleet in what webhooks say, such as https://fleet.example.com")
	flags.Func("allow-private", "`ranges` of private addresses that may be scraped and that webhooks may be sent to, with commas between, such as 10.2.0.0/16 (default none)", func(s string) (err error) {
		c.allowedRanges, err = outgoing.ParseRanges(s)
		return err
	})
	flags.StringVar(&c.policyFile, "policy", "", "`file` that says who owns services and which findings are muted until when, read again when it changes; none if empty")
	flags.StringVar(&c.scrapeFile, "scrape", "", "`file` that says how services without the library are found, in the form of Prometheus' scrape_configs; none if empty")
	flags.DurationVar(&c.scrapeLength, "scrape-length", 5*time.Second, "how long a recording of a scraped pod is")
	flags.DurationVar(&c.scrapeBudget, "scrape-budget", time.Minute, "for how long in an hour the pods of a scraped service are traced, all together")
	flags.Float64Var(&c.scrapeShare, "scrape-share", 0.01, "`part` of the pods of a scraped service that are traced at a time; at least one is")
	flags.StringVar(&c.logFormat, "log", "text", "`form` of logs on standard error: text or json")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	return flags
}

// addSizeFlag adds the flag name, which takes a number of bytes with a unit, such as 20GiB. value, in bytes, is its default;
// description is its help without the default.
func addSizeFlag(flags *flag.FlagSet, destination *int64, name string, value int64, description string) {
	*destination = value
	flags.Func(name, "`bytes` "+description+" (default "+humanize.IBytes(uint64(value))+")", func(s string) error {
		n, err := humanize.ParseBytes(s)
		if err != nil || n > 1<<60 {
			return errors.New("not a size such as 20GiB")
		}
		*destination = int64(n)
		return nil
	})
}

// parseConfig reads flags, environment and file, checks them, and returns the arguments that are no flags.
func parseConfig(args []string) (*config, []string, error) {
	c := new(config)
	flags := newFlagSet(c)
	if err := ff.Parse(flags, flagsFirst(flags, args), ff.WithEnvVarPrefix("WHYLATE_FLEET"), ff.WithConfigFileFlag("config"), ff.WithConfigFileParser(ff.PlainParser)); err != nil {
		return nil, nil, err
	}
	return c, flags.Args(), c.check()
}

// flagsFirst returns the arguments with the flags and their values before the verb and its argument, because package flag reads none after them.
func flagsFirst(flags *flag.FlagSet, args []string) []string {
	var first, rest []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		first = append(first, arg)
		name, _, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		f := flags.Lookup(name)
		if f == nil || hasValue || i+1 == len(args) {
			continue
		}
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); !ok || !b.IsBoolFlag() {
			i++
			first = append(first, args[i])
		}
	}
	return slices.Concat(first, []string{"--"}, rest)
}

// check returns all errors in the values of flags, joined, and reads the files that they name; nil if there are none.
func (c *config) check() error {
	var errs []error
	rejectIf := func(invalid bool, format string, args ...any) {
		if invalid {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	rejectIf(!slices.Contains(knownTargets, c.target), "-target=%s is none of %s", c.target, strings.Join(knownTargets, ", "))
	rejectIf(c.logFormat != "text" && c.logFormat != "json", "-log=%s is neither text nor json", c.logFormat)
	rejectIf((c.certFile == "") != (c.keyFile == ""), "-tls-cert and -tls-key need each other")
	rejectIf(c.kafkaAddress != "" && (c.s3Address == "" || c.clickhouseAddress == ""), "-kafka needs -s3 and -clickhouse: several machines share no directory")
	rejectIf(c.webhookURL != "" && c.target == "work" && c.publicURL == "", "-webhook needs -public with -target=work, which serves no pages")
	_, _, err := net.SplitHostPort(c.listenAddress)
	rejectIf(err != nil, "-listen=%s is no address such as 127.0.0.1:4319", c.listenAddress)
	rejectIf(c.workers < 1, "-workers=%d: there must be at least one", c.workers)
	rejectIf(c.bounds.RecordingsPerMinute < 1 || c.bounds.BytesPerMinute < 1 || c.bounds.MaxQueued < 1, "-max-recordings, -max-bytes and -max-queued must be at least 1")
	rejectIf(c.retention.FileAge <= 0 || c.retention.RowAge < 24*time.Hour || c.retention.FileBytes < 1, "-keep-raw and -keep-raw-bytes must be more than 0, -keep-rows at least 24h")
	rejectIf(c.tokenLifetime <= 0 || c.backfillAge <= 0 || c.drainTime < 0, "-expires and -since must be more than 0, -drain not less")
	for name, address := range map[string]string{"-webhook": c.webhookURL, "-public": c.publicURL, "-otlp": c.otlpURL, "-pyroscope": c.pyroscopeURL} {
		u, err := url.Parse(address)
		rejectIf(address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"), "%s=%s is no address such as https://host/path", name, address)
	}
	rejectIf(c.storeKind != "rows" && c.storeKind != "otlp", "-store=%s is neither rows nor otlp", c.storeKind)
	rejectIf(c.storeKind == "otlp" && c.otlpURL == "", "-store=otlp needs -otlp")
	rejectIf((c.webhookURL == "") != (c.secretsFile == ""), "-webhook and -webhook-secrets need each other")
	rejectIf(c.scrapeLength < time.Second || c.scrapeLength > time.Minute || c.scrapeBudget < c.scrapeLength, "-scrape-length must be 1s to 1m, -scrape-budget not less")
	rejectIf(!(c.scrapeShare >= 0 && c.scrapeShare <= 1), "-scrape-share=%v is no part of 1", c.scrapeShare)
	rejectIf(c.target == "scrape" && c.scrapeFile == "", "-target=scrape needs -scrape")
	if c.scrapeFile != "" {
		_, err := scrape.ReadConfig(c.scrapeFile)
		rejectIf(err != nil, "-scrape: %w", err)
	}
	if c.policyFile != "" {
		_, err := policy.Read(c.policyFile)
		rejectIf(err != nil, "-policy: %w", err)
	}
	if c.secretsFile != "" {
		_, err := notify.ReadSecrets(c.secretsFile)
		rejectIf(err != nil, "-webhook-secrets: %w", err)
	}
	if c.certFile != "" {
		_, err := os.Stat(c.certFile)
		rejectIf(err != nil, "-tls-cert: %w", err)
	}
	return errors.Join(errs...)
}

// openStore opens the store. serving is false for verbs that only administer: they do not consume the topic. A receiver opens no
// ClickHouse, so it continues while ClickHouse is down.
func (c *config) openStore(ctx context.Context, serving bool) (*store.Store, error) {
	for _, dir := range []string{filepath.Join(c.dir, "raw"), os.TempDir()} { // an empty volume has neither
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if c.kafkaAddress == "" {
		return store.Open(ctx, filepath.Join(c.dir, "fleet.db"), c.clickhouseAddress)
	}
	files, err := raw.OpenS3(ctx, c.s3Address, raw.Dir(filepath.Join(c.dir, "raw")))
	if err != nil {
		return nil, err
	}
	clickhouse := c.clickhouseAddress
	if c.isReceiver() {
		clickhouse = ""
	}
	return store.OpenShared(ctx, c.kafkaAddress, clickhouse, files, serving && (c.target == "all" || c.target == "work"))
}

// isReceiver reports whether the target only receives recordings and so never reads rows.
func (c *config) isReceiver() bool { return c.target == "ingest" || c.target == "scrape" }

// openFiles opens the store of recordings and reports: the bucket of the S3 address, which must answer, or without one a
// directory.
func (c *config) openFiles(ctx context.Context) (raw.Store, error) {
	dir := raw.Dir(filepath.Join(c.dir, "raw"))
	if c.s3Address == "" {
		return dir, nil
	}
	s, err := raw.OpenS3(ctx, c.s3Address, dir)
	if err != nil {
		return nil, err
	}
	return s, s.Ping(ctx)
}

// readerName returns the reader that a name such as reader:ann refers to; false for the name of a service.
func readerName(name string) (string, bool) { return strings.CutPrefix(name, "reader:") }
