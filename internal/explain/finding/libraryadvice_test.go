package finding

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestLibraries checks the advice for waits in well-known libraries: for a semaphore inside pgxpool it is not about
// the semaphore's weight, and for a line of sarama not about a shorter interval.
func TestLibraries(t *testing.T) {
	in := func(fn, calls string) *report.Site {
		return &report.Site{Func: fn, File: "x.go", Line: 7, Module: "dep.org/x", CalledFrom: &report.Caller{Func: "main.load", File: "/src/main.go", Line: 5, Calls: calls}}
	}
	const sem = "golang.org/x/sync/semaphore.(*Weighted).Acquire"
	for _, c := range []struct {
		name     string
		cause    report.Cause
		turns    []queues.ServiceStats
		fix      string
		unwanted string
	}{
		{"pgxpool uses a semaphore",
			report.Cause{Cause: "network", Kind: "outbound", Site: in("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).Read", "github.com/jackc/pgx/v5/pgxpool.(*Pool).Query"),
				Via: []report.Via{{Wait: "select", Site: in(sem, "github.com/jackc/pgx/v5/pgxpool.(*Pool).Query")}}, TotalNS: ms(3000)},
			[]queues.ServiceStats{{Requests: 100, OtherRequestShare: 0.9, WaitersPerServer: 2, BatchSize: 1}},
			"raise MaxConns (pool_max_conns in pgxpool's URL)", "weight"},
		{"a semaphore in the service",
			report.Cause{Cause: "network", Kind: "outbound", Site: site("ask@3"), Via: []report.Via{{Wait: "select", Site: in(sem, sem)}}, TotalNS: ms(3000)},
			[]queues.ServiceStats{{Requests: 100, OtherRequestShare: 0.9, WaitersPerServer: 2, BatchSize: 1}},
			"raise the weight of the semaphore", "MaxConns"},
		{"go-redis calls its server",
			report.Cause{Cause: "network", Kind: "outbound", Site: in("github.com/redis/go-redis/v9/internal/proto.(*Reader).PeekReplyType", "github.com/redis/go-redis/v9.cmdable.Get"), TotalNS: ms(3000)},
			nil, "Pipelined", ""},
		{"a driver of database/sql",
			report.Cause{Cause: "network", Kind: "outbound", Site: in("github.com/lib/pq.(*conn).recvMessage", "database/sql.(*DB).QueryContext"), TotalNS: ms(3000)},
			nil, "in database/sql: ask for several things in one statement", ""},
		{"sarama pauses",
			report.Cause{Cause: "sleep", Call: "time.Sleep", Site: in("github.com/IBM/sarama.(*client).tryRefreshMetadata", "github.com/IBM/sarama.NewClient"), TotalNS: ms(3000)},
			nil, "Metadata.Retry", "instead of polling"},
		{"a batch of bbolt",
			report.Cause{Cause: "sleep", Call: "time.Sleep", Site: in("go.etcd.io/bbolt.(*batch).trigger", "go.etcd.io/bbolt.(*DB).Batch"), TotalNS: ms(3000)},
			nil, "lower DB.MaxBatchDelay from 10ms (the default) to 1ms", "retry"},
		{"etcd's lock",
			report.Cause{Cause: "network", Kind: "outbound", Site: in("google.golang.org/grpc/internal/transport.(*http2Client).reader", ""), Via: []report.Via{{Wait: "chan", Site: in("go.etcd.io/etcd/client/v3/concurrency.waitDelete", "go.etcd.io/etcd/client/v3/concurrency.(*Mutex).Lock")}}, TotalNS: ms(3000)},
			nil, "in etcd's locks: take a lock for each thing that changes instead of one for many", "record the server"},
		{"a batch of dataloader",
			report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: in("github.com/graph-gophers/dataloader/v7.(*Loader[...]).sleeper", ""), TotalNS: ms(3000)},
			nil, "lower dataloader.WithWait from 16ms (the default) to 1ms", "retry"},
		{"a batch of Pub/Sub",
			report.Cause{Cause: "sleep", Call: "time.AfterFunc", Site: in("google.golang.org/api/support/bundler.(*Bundler).tryHandleBundles", ""), TotalNS: ms(3000)},
			nil, "in Pub/Sub: lower PublishSettings.DelayThreshold of the topic's publisher from 10ms (the default) to 1ms", "retry"},
		{"the Azure SDK retries",
			report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: in("github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime.(*retryPolicy).Do", "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob.(*Client).DownloadStream"), TotalNS: ms(3000)},
			nil, "lower ClientOptions.Retry.RetryDelay from 800ms (the default) to 8ms", "option of the library"},
		{"a flush of Sentry",
			report.Cause{Cause: "network", Kind: "outbound", Site: in("github.com/getsentry/sentry-go.(*HTTPTransport).worker", ""), Via: []report.Via{{Wait: "select", Site: in("github.com/getsentry/sentry-go.(*HTTPTransport).FlushWithContext", "github.com/getsentry/sentry-go.Flush")}}, TotalNS: ms(3000)},
			nil, "in Sentry: do not call Flush in requests", "record the server"},
		{"NATS answers",
			report.Cause{Cause: "network", Kind: "outbound", Site: in("github.com/nats-io/nats%2ego.(*Conn).readLoop", ""), Via: []report.Via{{Wait: "chan", Site: in("github.com/nats-io/nats%2ego.(*Conn).newRequestAndMsg", "github.com/nats-io/nats%2ego.(*Conn).Request")}}, TotalNS: ms(3000)},
			nil, "in NATS: publish without waiting for each answer", "record the server"},
		{"brotli of quality 11",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/andybalholm/brotli.updateNodes", ""), TotalNS: ms(3000)},
			nil, "lower the writer's quality to 4 or 5", "make"},
		{"a query of bolthold",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/timshannon/bolthold.DefaultDecode", "github.com/timshannon/bolthold.(*Store).Find"), TotalNS: ms(3000)},
			nil, "name the index in the query", "make"},
		{"go-deadlock stores call stacks",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/sasha-s/go-deadlock.callers", "github.com/sasha-s/go-deadlock.(*Mutex).Lock"), TotalNS: ms(3000)},
			nil, "set deadlock.Opts.Disable in production", "make"},
		{"decimals with very many digits",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/shopspring/decimal.pow10", "github.com/shopspring/decimal.Decimal.Add"), TotalNS: ms(3000)},
			nil, "round intermediate results", "make"},
		{"other work with decimals",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/shopspring/decimal.Decimal.rescale", "github.com/shopspring/decimal.Decimal.Add"), TotalNS: ms(3000)},
			nil, "make main.load cheaper", "round"},
		{"most of the time in an iterator of badger",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/dgraph-io/badger/v4/table.(*Iterator).next", "github.com/dgraph-io/badger/v4.(*Iterator).Next"), TotalNS: ms(3000)},
			nil, "begin the iterator behind what is deleted", "make"},
		{"viper in requests",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/spf13/viper.(*Viper).find", "github.com/spf13/viper.GetString"), TotalNS: ms(3000)},
			nil, "read the configuration once", "make"},
		{"goproxy without a store of certificates",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/elazarl/goproxy/internal/signer.SignHost", ""), TotalNS: ms(3000)},
			nil, "set CertStore of the ProxyHttpServer", "limit what one may ask for"},
		{"gopsutil measures",
			report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: in("github.com/shirou/gopsutil/v4/internal/common.Sleep", "github.com/shirou/gopsutil/v4/cpu.Percent"), TotalNS: ms(3000)},
			nil, "pass an interval of 0 to cpu.Percent", "retry"},
		{"MongoDB answers",
			report.Cause{Cause: "network", Kind: "outbound", Site: in("go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology.(*connection).read", "go.mongodb.org/mongo-driver/v2/mongo.(*Collection).FindOne"), TotalNS: ms(3000)},
			nil, "in the MongoDB driver: ask for several documents at once", "record the server"},
		{"a Summary with objectives",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/beorn7/perks/quantile.(*stream).merge", ""), Via: []report.Via{{Wait: "lock", Call: "sync.(*Mutex).Lock", Site: in("github.com/prometheus/client_golang/prometheus.(*summary).Observe", "github.com/prometheus/client_golang/prometheus.(*summary).Observe")}}, TotalNS: ms(3000)},
			nil, "in a Prometheus Summary: use a Histogram", "background"},
		{"bbolt has one writer",
			report.Cause{Cause: "syscall", Call: "syscall.Fdatasync", Site: in("go.etcd.io/bbolt.fdatasync", "go.etcd.io/bbolt.(*DB).Update"), Via: []report.Via{{Wait: "lock", Call: "sync.(*Mutex).Lock", Site: in("go.etcd.io/bbolt.(*DB).beginRWTx", "go.etcd.io/bbolt.(*DB).Update")}}, TotalNS: ms(3000)},
			nil, "use DB.Batch instead of Update", "background"},
		{"bbolt's batches have one writer",
			report.Cause{Cause: "syscall", Call: "syscall.Fdatasync", Site: in("go.etcd.io/bbolt.fdatasync", ""), Via: []report.Via{
				{Wait: "chan", Call: "runtime.chanrecv1", Site: in("go.etcd.io/bbolt.(*DB).Batch", "go.etcd.io/bbolt.(*DB).Batch")},
				{Wait: "lock", Call: "sync.(*Mutex).Lock", Site: in("go.etcd.io/bbolt.(*DB).beginRWTx", "")}}, TotalNS: ms(3000)},
			nil, "have the library do that in the background", "Update"},
		{"regexp2 backtracks",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/dlclark/regexp2/syntax.CharSet.CharIn", "github.com/dlclark/regexp2.(*Regexp).Replace"), TotalNS: ms(3000)},
			nil, "use package regexp", "make"},
		{"a percentile of go-metrics",
			report.Cause{Cause: "cpu", SiteFrom: "sample", Site: in("github.com/rcrowley/go-metrics.int64Slice.Less", "github.com/rcrowley/go-metrics.(*StandardHistogram).Percentile"), TotalNS: ms(3000)},
			nil, "compute the percentile in the background", "make"},
		{"a limiter of go.uber.org/ratelimit",
			report.Cause{Cause: "sleep", Call: "time.Sleep", Site: in("go.uber.org/ratelimit.(*atomicInt64Limiter).Take", "go.uber.org/ratelimit.(*atomicInt64Limiter).Take"), TotalNS: ms(3000)},
			nil, "give each client a limiter of its own", "retry"},
		{"zerolog writes to a pipe",
			report.Cause{Cause: "syscall", Call: "os.(*File).Write", Site: in("github.com/rs/zerolog.LevelWriterAdapter.WriteLevel", "github.com/rs/zerolog.(*Event).Msg"), TotalNS: ms(3000)},
			nil, "diode.Writer", "less often"},
		{"go-redis retries",
			report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: in("github.com/redis/go-redis/v9/internal.Sleep", "github.com/redis/go-redis/v9.cmdable.Get"), TotalNS: ms(3000)},
			nil, "find out why the first try fails; until then, in go-redis's retries: lower MinRetryBackoff of redis.Options from 10ms (the default) to 1ms", "option of the library"},
		{"retry-go retries",
			report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: in("github.com/avast/retry-go/v4.DoWithData[...]", "github.com/avast/retry-go/v4.DoWithData[...]"), TotalNS: ms(3000)},
			nil, "find out why the first try fails, and do not retry after errors that another try cannot change (retry.RetryIf, or retry.Unrecoverable)", "option of the library"},
		{"etcd's client retries over gRPC",
			report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: in("go.etcd.io/etcd/client/v3.waitRetryBackoff", "go.etcd.io/etcd/client/v3.(*kv).Get"), TotalNS: ms(3000)},
			nil, "lower BackoffWaitBetween", "retryPolicy"},
		{"the AWS SDK retries",
			report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: in("github.com/aws/aws-sdk-go-v2/internal/sdk.sleepWithContext", "github.com/aws/aws-sdk-go-v2/service/s3.(*Client).GetObject"), TotalNS: ms(3000)},
			nil, "retry.AddWithMaxBackoffDelay", "option of the library"},
		{"gRPC's first address does not answer",
			report.Cause{Cause: "sleep", Site: in("google.golang.org/grpc/balancer/pickfirst.(*pickfirstBalancer).scheduleNextConnectionLocked.func1", ""), TotalNS: ms(3000)},
			nil, "address that does not answer", "keepalive"},
		{"a call of drpc behind another",
			report.Cause{Cause: "network", Kind: "outbound", Site: in("storj.io/drpc/drpcwire.(*Reader).read", ""), Via: []report.Via{{Wait: "select", Site: in("storj.io/drpc/drpcmanager.(*Manager).acquireSemaphore", "storj.io/drpc/drpcconn.(*Conn).Invoke")}}, TotalNS: ms(3000)},
			[]queues.ServiceStats{{Requests: 100, OtherRequestShare: 0.9, WaitersPerServer: 2, BatchSize: 1}},
			"use several connections where there is one now, such as those of a drpcpool", "goroutines"},
		{"Sentry delivers what all have queued",
			report.Cause{Cause: "network", Kind: "outbound", Site: in("net/http.(*persistConn).roundTrip", ""), Via: []report.Via{{Wait: "select", Site: in("github.com/getsentry/sentry-go.(*HTTPTransport).flushInternal", "github.com/getsentry/sentry-go.(*Hub).Flush")}}, TotalNS: ms(3000)},
			[]queues.ServiceStats{{Requests: 100, OtherRequestShare: 0.9, WaitersPerServer: 2, BatchSize: 1}},
			"in Sentry: do not call Flush in requests", "goroutines"},
		{"sarama gathers a batch",
			report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: in("github.com/IBM/sarama.(*brokerProducer).run", ""), Via: []report.Via{{Wait: "chan", Site: in("github.com/IBM/sarama.(*syncProducer).SendMessage", "")}}, TotalNS: ms(3000)},
			[]queues.ServiceStats{{Requests: 100, PeriodNS: 109e6, WaitedSleepNS: 50e6, Servers: 1, BatchSize: 3, BegunEarlyShare: 1}},
			"leave Producer.Flush.Frequency of its Config unset", "109ms"},
		{"gRPC retries",
			report.Cause{Cause: "sleep", Site: in("google.golang.org/grpc.(*csAttempt).shouldRetry", "google.golang.org/grpc.(*ClientConn).Invoke"), TotalNS: ms(3000)},
			nil, "retryPolicy", "instead of polling"},
	} {
		for i := range c.turns {
			c.turns[i].Cause, c.turns[i].Site = string(c.cause.Cause), c.cause.Site
		}
		found := findAll(t, &Input{Report: oneGroup(c.cause), Process: &process.Stats{}, Services: c.turns}, append(rulesWithPrefix("WL2"), rulesByCode(report.RuleComputes)...))
		if len(found) != 1 || !strings.Contains(found[0].Fix, c.fix) || c.unwanted != "" && strings.Contains(found[0].Fix, c.unwanted) {
			t.Errorf("%s: %d findings: %+v", c.name, len(found), found)
		}
	}
}

// TestCallLines: the lines of one function that call a library are named, with their shares of its work.
func TestCallLines(t *testing.T) {
	calledSite := func(fn string, line int) *report.Site {
		callee := inModule(fn+"@9", "github.com/go-pdf/fpdf")
		callee.CalledFrom = &report.Caller{Func: "main.render", File: "/src/main.go", Line: line, Calls: fn}
		return callee
	}
	cpuCause := func(callee *report.Site, milliseconds int64) report.Cause {
		return report.Cause{Cause: report.CauseCPU, SiteFrom: "sample", Site: callee, TotalNS: ms(milliseconds), Samples: int(milliseconds / 10)}
	}
	rep := oneGroup(cpuCause(calledSite("github.com/go-pdf/fpdf.(*utf8FontFile).generateSCCSDictionaries", 134), 1400), cpuCause(calledSite("github.com/go-pdf/fpdf.generateFontID", 97), 500), cpuCause(calledSite("github.com/go-pdf/fpdf.(*Fpdf).Cell", 99), 100))
	findings := findAll(t, &Input{Report: rep, Process: &process.Stats{}}, rulesWithPrefix("WL1008"))
	check.True(t, len(findings) == 1 && strings.HasSuffix(findings[0].Title, "for each document at main.render (main.go:134), and at main.go:97") && strings.HasPrefix(findings[0].Fix, "use the core fonts") &&
		slices.ContainsFunc(findings[0].Evidence, func(e report.Evidence) bool {
			return strings.HasSuffix(e.Text, "main.go:134 70%, main.go:97 25%, main.go:99 5%")
		}), "%+v", findings)
}

// TestCostlyWork: needless work of a library is reported from a fifth of the slow requests' time on, and at most medium below a half.
func TestCostlyWork(t *testing.T) {
	for _, c := range []struct {
		share float64
		want  report.Severity
	}{{0.6, report.SeverityHigh}, {0.3, report.SeverityMedium}, {0.15, ""}} {
		copied := site("github.com/mitchellh/reflectwalk.walk@9")
		copied.Module, copied.CalledFrom = "github.com/mitchellh/reflectwalk", &report.Caller{Func: "main.load", File: "/src/main.go", Line: 5, Calls: "github.com/mitchellh/copystructure.Copy"}
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: copied, SiteFrom: "sample", TotalNS: int64(c.share * 4e9)},
			report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: site("ask@3"), TotalNS: int64((1 - c.share) * 4e9)})
		severity := report.Severity("")
		for _, v := range Find(&Input{Report: rep, Process: &process.Stats{}}, rulesByCode(report.RuleComputes)) {
			severity = v.Severity
		}
		check.Equal(t, severity, c.want, "%.2f", c.share)
	}
}

// TestLeastShare: an iterator's work is needless only where hardly any time is left for the entries that it found.
func TestLeastShare(t *testing.T) {
	for share, want := range map[float64]bool{0.9: true, 0.6: false} {
		walk := site("github.com/syndtr/goleveldb/leveldb.(*dbIter).next@223")
		walk.Module, walk.CalledFrom = "github.com/syndtr/goleveldb", &report.Caller{Func: "main.pop", File: "/src/main.go", Line: 5, Calls: "github.com/syndtr/goleveldb/leveldb.(*dbIter).Next"}
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: walk, SiteFrom: "sample", TotalNS: int64(share * 4e9)},
			report.Cause{Cause: report.CauseCPU, Site: site("decode@3"), SiteFrom: "sample", TotalNS: int64((1 - share) * 4e9)})
		costly, _ := costlyLibrary(&rep.Groups[0], func(*report.Cause) bool { return true })
		check.Equal(t, costly != nil, want, "%.1f", share)
	}
}

// TestLibraryPause checks the advice for a library that pauses before a retry: its user can neither wait for an event
// there nor change the lines.
func TestLibraryPause(t *testing.T) {
	retrySite := site("github.com/cenkalti/backoff/v5.Retry@133")
	retrySite.Module = "github.com/cenkalti/backoff/v5"
	for _, c := range []struct {
		site           *report.Site
		want, unwanted string
	}{{retrySite, "find out why the first try fails, and do not retry after errors that another try cannot change (backoff.Permanent); until then, in backoff: lower", "wait for the event"}, {site("pause@7"), "also wait for the event itself", "first try"}} {
		found := findAll(t, &Input{Report: oneGroup(report.Cause{Cause: "sleep", Site: c.site, Call: "runtime.selectgo", TotalNS: ms(6000)}), Process: &process.Stats{}}, rulesWithPrefix("WL2001"))
		if len(found) != 1 || !strings.Contains(found[0].Fix, c.want) || strings.Contains(found[0].Fix, c.unwanted) {
			t.Errorf("%s: %+v", c.site.Func, found)
		}
		// Where the first try succeeds, there is no pause.
		check.Equal(t, strings.HasSuffix(found[0].Changes[0].Text, "=gone"), true, "%s", found[0].Changes[0].Text)
	}
}

// TestPauseOfALibrary: a library's default is not advised where the pauses are far shorter, because the service's authors set them.
// Such a finding is low, however much of the requests' time the pauses are.
func TestPauseOfALibrary(t *testing.T) {
	for _, c := range []struct {
		seenNS   int64
		severity report.Severity
		text     string
		change   string // the end of the change that is predicted
	}{
		{1e9, report.SeverityHigh, "in kafka-go: lower Writer.BatchTimeout from 1s (the default) to 10ms where the Writer is created", "=10ms"},
		{0, report.SeverityHigh, "in kafka-go: lower Writer.BatchTimeout from 1s (the default) to 10ms where the Writer is created", "=10ms"},
		{20e6, report.SeverityLow, "in kafka-go: lower Writer.BatchTimeout from 20ms (the default: 1s) to 2ms where the Writer is created", "=2ms"},
		{3e9, report.SeverityHigh, "in kafka-go: lower Writer.BatchTimeout from over 3s (the default: 1s) to 10ms where the Writer is created", "=10ms"},
	} {
		cause := report.Cause{Cause: "sleep", Call: "runtime.selectgo", TotalNS: ms(3000), Via: via("select write@5 runtime.selectgo"),
			Site: &report.Site{Func: "github.com/segmentio/kafka-go.(*partitionWriter).awaitBatch", File: "x.go", Line: 7, Module: "dep.org/x"}}
		in := &Input{Report: oneGroup(cause), Process: &process.Stats{}}
		if c.seenNS != 0 {
			in.Services = []queues.ServiceStats{{Cause: "sleep", Site: cause.Site, Requests: 100, Sleeps: 50, SleepNS: c.seenNS, BatchSize: 1}}
		}
		found := findAll(t, in, rulesWithPrefix("WL2001"))
		if len(found) != 1 || found[0].Severity != c.severity || !strings.HasPrefix(found[0].Fix, c.text) || len(found[0].Changes) != 1 || !strings.HasSuffix(found[0].Changes[0].Text, c.change) {
			t.Errorf("pauses of %d ns: %+v", c.seenNS, found)
		}
	}
}

// TestEscapedNames: the linker's escapes in the path of a package are not shown.
func TestEscapedNames(t *testing.T) {
	cpu := report.Cause{Cause: "cpu", Site: site("github.com/nats-io/nats%2ego.(*Conn).processMsg@1"), TotalNS: ms(3000)}
	found := findAll(t, &Input{Report: oneGroup(cpu), Process: &process.Stats{}}, rulesWithPrefix("WL1008"))
	check.True(t, len(found) == 1 && found[0].Title == "nats.go.(*Conn).processMsg computes", "%+v", found)
}
