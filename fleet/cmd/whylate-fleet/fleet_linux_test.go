package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/service/mark"
)

var (
	recordings       = flag.Int("recordings", 2000, "TestKilledFleet: recordings that pods send")
	pods             = flag.Int("pods", 1000, "TestKilledFleet: pods")
	outage           = flag.Duration("outage", 10*time.Second, "TestKilledFleet: how long Kafka and ClickHouse are stopped")
	timeBetweenKills = flag.Duration("life", 5*time.Second, "TestKilledFleet: how long it is until the next process is killed")
	growth           = flag.Int("growth", 600, "TestFleetGrowth: recordings that are explained three times")
	noKills          = flag.Bool("calm", false, "TestKilledFleet: kill nothing, to measure")
)

// A fleet has the servers of a test, and the roles that use them. Each is a process.
type fleet struct {
	t                        *testing.T
	kafka, clickhouse, minio *enginetest.Engine
	dir                      string
	st                       *store.Store
	files                    raw.Store
	ports                    map[string]string // by name of a role: a restarted role keeps its port
	processes                map[string]*exec.Cmd
}

func newFleet(t *testing.T, services ...string) *fleet {
	t.Helper()
	testfull.Need(t, "Kafka, ClickHouse and MinIO, and minutes")
	f := &fleet{t: t, kafka: enginetest.Kafka(t), clickhouse: enginetest.ClickHouse(t), minio: enginetest.MinIO(t), dir: t.TempDir(), ports: make(map[string]string), processes: make(map[string]*exec.Cmd)}
	c, _, err := parseConfig(f.args("admin"))
	if err == nil {
		f.st, err = c.openStore(t.Context(), false)
	}
	if err == nil {
		t.Cleanup(func() { _ = f.st.Close() })
		f.files, err = c.openFiles(t.Context())
	}
	for _, s := range services {
		if err == nil {
			err = f.st.AddToken(t.Context(), "token-"+s, store.SendScope, s, time.Now().Add(24*time.Hour))
		}
	}
	must.Do(t, err)
	t.Cleanup(func() {
		for name := range f.processes {
			f.kill(name)
			if logText, err := os.ReadFile(f.logFile(name)); t.Failed() && err == nil {
				t.Logf("%s:\n%s", name, logText[max(0, len(logText)-3000):])
			}
		}
	})
	return f
}

func (f *fleet) args(name string) []string {
	return []string{"-dir", filepath.Join(f.dir, name), "-kafka", f.kafka.Address, "-clickhouse", f.clickhouse.Address, "-s3", f.minio.Address}
}

func (f *fleet) logFile(name string) string { return filepath.Join(f.dir, name+".log") }

func (f *fleet) url(name string) string { return "http://127.0.0.1:" + f.ports[name] }

// startRole starts a role. name is the role, optionally with a digit.
func (f *fleet) startRole(name string, extraArgs ...string) {
	f.t.Helper()
	if f.ports[name] == "" {
		f.ports[name] = enginetest.FreePort(f.t)
	}
	log := must.Have(os.OpenFile(f.logFile(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600))(f.t)
	defer log.Close()
	p := exec.Command(os.Args[0], slices.Concat(f.args(name), []string{"-target", strings.TrimRight(name, "0123456789"), "-listen", "127.0.0.1:" + f.ports[name],
		"-max-recordings", "1000000", "-max-bytes", "1TiB", "-max-queued", "1000000000"}, extraArgs, []string{"serve"})...)
	p.Stderr = log
	must.Do(f.t, p.Start())
	f.processes[name] = p
}

func (f *fleet) kill(name string) {
	_ = f.processes[name].Process.Kill()
	_ = f.processes[name].Wait()
}

// waitForQueue waits until at most maxQueued recordings are not explained, and returns the states. The time limit of the test
// bounds the wait.
func (f *fleet) waitForQueue(maxQueued int64) (states map[string]int64) {
	f.t.Helper()
	for last := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		states := must.Have(f.st.CountByState(f.t.Context()))(f.t)
		if states[store.Waiting]+states[store.Working] <= maxQueued {
			return states
		}
		if time.Since(last) > 30*time.Second {
			last = time.Now()
			f.t.Log(states)
		}
	}
}

// smallTraces returns traces of a few kB from services of lab/truth.
func smallTraces(t *testing.T) (traces [][]byte) {
	for _, name := range []string{"pubsub", "cpu-hogs", "slow-reader", "queue-worker", "jobs", "open-queue"} {
		traces = append(traces, testprog.Service(t, name).Trace)
	}
	return traces
}

// TestKilledFleet: many pods send recordings to roles over Kafka, ClickHouse and S3, while each role and each server is killed (-9) in
// turn. Each answer 202 yields one explained recording whose rows count once, and the sums equal those of explaining each
// recording alone.
func TestKilledFleet(t *testing.T) {
	services := []string{"cart", "catalog", "checkout", "shop"}
	f := newFleet(t, services...)
	traces := smallTraces(t)
	kinds := make([]*rows.Rows, len(traces))
	for i, trace := range traces {
		kinds[i] = explainAlone(t, trace)
	}
	roles := []string{"ingest", "work", "query", "work2"}
	startRole := func(name string) { f.startRole(name, "-workers", "2") }
	for _, name := range roles {
		startRole(name)
	}

	var mu sync.Mutex
	sent := make(map[string]int) // by id: index of the trace
	var took []time.Duration
	var resent, failed atomic.Int64
	var senders sync.WaitGroup
	url, slots := f.url("ingest"), make(chan struct{}, 16)
	begin := time.Now()
	for pod := range *pods {
		senders.Go(func() {
			for n := pod; n < *recordings; n += *pods {
				kind, service := n%len(kinds), services[pod%len(services)]
				body := newRecording(t, traces[kind], service, fmt.Sprint("pod-", pod), n)
				for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) { // the time limit of the test bounds the retries
					slots <- struct{}{}
					from := time.Now()
					id, status := postAs(url, "token-"+service, body)
					d := time.Since(from)
					<-slots
					if status == http.StatusAccepted {
						mu.Lock()
						sent[id], took = kind, append(took, d)
						mu.Unlock()
						break
					}
					failed.Add(1)
					time.Sleep(wait)
				}
				if n%20 == 0 {
					if _, status := postAs(url, "token-"+service, body); status == http.StatusAccepted {
						resent.Add(1)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { senders.Wait(); close(done) }()
	ended := func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
	kills := 0
	for round := 0; !*noKills && (round < 8 || !ended()); round++ {
		time.Sleep(*timeBetweenKills)
		i := round % (len(roles) + 1)
		if i < len(roles) {
			f.kill(roles[i])
			startRole(roles[i])
			kills++
			continue
		}
		engine := []*enginetest.Engine{f.kafka, f.clickhouse, f.minio}[round/(len(roles)+1)%3]
		engine.Kill()
		time.Sleep(*outage)
		engine.Start()
	}
	<-done
	accepted := time.Since(begin)
	states := f.waitForQueue(0)
	slices.Sort(took)
	t.Logf("%d recordings of %d pods accepted in %v, explained after %v; %d kills; %d answers were no 202, %d were sent twice; an answer took %v in the median, %v at the 99th percentile",
		len(sent), *pods, accepted.Round(time.Second), time.Since(begin).Round(time.Second), kills, failed.Load(), resent.Load(), took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond))
	for _, name := range roles {
		t.Logf("%s: %.0f MB of memory at most, since it was started last", name, peakMemoryMB(t, f.processes[name].Process.Pid))
		f.kill(name)
	}

	if len(sent) != *recordings || states[store.Done] != int64(len(sent)) || states[store.Poison] != 0 {
		t.Errorf("%d of %d were accepted; states %v", len(sent), *recordings, states)
	}
	checkSums(t, f.st, sent, kinds)
	fileCount := 0
	if err := f.files.List(t.Context(), func(string, time.Time) error { fileCount++; return nil }); err != nil || fileCount != 2*len(sent) {
		t.Errorf("%d files of %d recordings, %v", fileCount, len(sent), err)
	}
}

// TestFleetGrowth: one, two and four workers explain the same recordings from a topic of four partitions. It logs throughput and CPU
// time. Throughput grows only on a machine without other load.
func TestFleetGrowth(t *testing.T) {
	f := newFleet(t, "shop")
	f.startRole("ingest")
	traces := smallTraces(t)
	n := *growth
	for i := range n {
		body := newRecording(t, traces[i%len(traces)], "shop", fmt.Sprint("pod-", i%50), i)
		for status := 0; status != http.StatusAccepted; {
			_, status = postAs(f.url("ingest"), "token-shop", body)
		}
	}
	f.kill("ingest")
	for _, workers := range []int{1, 2, 4} {
		if workers > 1 {
			if requeued, err := f.st.Requeue(t.Context(), "", time.Unix(0, 0)); requeued != int64(n) || err != nil {
				t.Fatal(requeued, err)
			}
		}
		for i := range workers {
			f.startRole(fmt.Sprint("work", i), "-workers", "1")
		}
		f.waitForQueue(int64(n * 9 / 10)) // all workers have joined and have partitions
		begin := time.Now()
		cpu := func() (sum float64) {
			for i := range workers {
				sum += cpuSeconds(t, f.processes[fmt.Sprint("work", i)].Process.Pid)
			}
			return sum
		}
		from := cpu()
		f.waitForQueue(int64(n / 10))
		took := time.Since(begin)
		t.Logf("%d workers: %.1f explained a second, %.0f ms of CPU each", workers, float64(n)*0.8/took.Seconds(), (cpu()-from)/float64(n)/0.8*1e3)
		states := f.waitForQueue(0)
		for i := range workers {
			name := fmt.Sprint("work", i)
			t.Logf("%s: %.0f MB of memory at most", name, peakMemoryMB(t, f.processes[name].Process.Pid))
			f.kill(name)
		}
		check.Equal(t, states[store.Done], int64(n), "%d workers: %v", workers, states)
	}
}

// TestScrapedAndNotified: with real servers, one role traces a service with a lock, and workers explain the recordings and send
// a webhook. The sending worker is killed while the receiver has the message and has not answered: the next worker delivers a
// message with the same id.
func TestScrapedAndNotified(t *testing.T) {
	f := newFleet(t)
	var mu sync.Mutex
	deliveries := make(map[string]map[string]int) // by problem and id of the message: number of deliveries
	firstDelivery := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			Type string
			Data struct{ Problem, Service, Version string }
		}
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil || e.Type != "finding.new" || e.Data.Service != "checkout" || e.Data.Version != "v2" {
			t.Errorf("%+v %v", e, err)
		}
		mu.Lock()
		if deliveries[e.Data.Problem] == nil {
			deliveries[e.Data.Problem] = make(map[string]int)
		}
		deliveries[e.Data.Problem][r.Header.Get("webhook-id")]++
		first := len(deliveries) == 1 && deliveries[e.Data.Problem][r.Header.Get("webhook-id")] == 1
		mu.Unlock()
		if first {
			close(firstDelivery)
			<-r.Context().Done() // ends when the worker is killed
		}
	}))
	defer receiver.Close()
	m := http.NewServeMux()
	stock := &stock{locked: true}
	m.HandleFunc("GET /checkout", func(http.ResponseWriter, *http.Request) { stock.reserve() })
	m.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	service := httptest.NewServer(mark.Handler(m))
	defer service.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var visiting sync.WaitGroup
	visiting.Go(func() { generateLoad(ctx, service.URL+"/checkout") })
	defer visiting.Wait()
	defer cancel()

	secrets, config := filepath.Join(f.dir, "secrets"), filepath.Join(f.dir, "scrape.yaml")
	for file, text := range map[string]string{secrets: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", config: fmt.Sprintf(
		"scrape_configs: [{job_name: checkout, static_configs: [{targets: [%q], labels: {version: v2, pod: checkout-1}}]}]\n", service.Listener.Addr())} {
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	workers := []string{"work1", "work2"}
	startWorkers := func() {
		for _, name := range workers {
			f.startRole(name, "-webhook", receiver.URL, "-webhook-secrets", secrets, "-allow-private", "127.0.0.0/8", "-public", "https://fleet.example.com")
		}
	}
	startWorkers()
	for marks := map[string]store.Mark(nil); len(marks) == 0; time.Sleep(200 * time.Millisecond) { // wait for the first check, which reports nothing
		var err error
		if marks, err = f.st.Marks(t.Context(), []string{""}); err != nil {
			t.Fatal(err)
		}
	}
	f.startRole("scrape", "-scrape", config, "-scrape-length", "1s", "-scrape-budget", "10m", "-allow-private", "127.0.0.0/8")
	<-firstDelivery
	for _, name := range workers {
		f.kill(name)
	}
	f.kill("scrape")
	startWorkers()
	f.waitForQueue(0)
	for unsent := 1; unsent > 0; time.Sleep(200 * time.Millisecond) {
		var err error
		if unsent, err = f.st.CountUnsent(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	problems, _, err := f.st.Overview(t.Context(), store.Selection{From: time.Now().Add(-time.Hour), To: time.Now()})
	mu.Lock()
	defer mu.Unlock()
	check.True(t, err == nil && len(problems) != 0 && len(deliveries) != 0 && len(deliveries) <= len(problems),
		"%d findings, %d of them were said, %v", len(problems), len(deliveries), err)
	redelivered := 0
	for problem, ids := range deliveries {
		check.Equal(t, len(ids), 1, "%s was said as %v", problem, ids)
		for _, n := range ids {
			redelivered += n - 1
		}
	}
	check.True(t, redelivered != 0, "what the killed worker was delivering was not delivered again")
	t.Log(len(problems), "findings:", deliveries)
}
