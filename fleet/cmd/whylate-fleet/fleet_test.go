package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
)

var (
	recordings = flag.Int("recordings", 2000, "TestFleet: recordings that pods send")
	pods       = flag.Int("pods", 1000, "TestFleet: pods")
	outage     = flag.Duration("outage", 10*time.Second, "TestFleet: how long Kafka and ClickHouse are stopped")
	life       = flag.Duration("life", 5*time.Second, "TestFleet: how long it is until the next process is killed")
	calm       = flag.Bool("calm", false, "TestFleet: kill nothing, to measure")
)

// TestFleet: many pods send recordings to a fleet in roles over Kafka, ClickHouse and S3, while each role is killed (-9) in turn, and
// each engine as well. Each 202 is one recording that is explained, its rows count once, and all sums are those of explaining each
// recording alone.
func TestFleet(t *testing.T) {
	testfull.Need(t, "Kafka, ClickHouse and MinIO, and minutes")
	kafka, click, minio := enginetest.Kafka(t), enginetest.ClickHouse(t), enginetest.MinIO(t)
	dir := t.TempDir()
	args := func(part string) []string {
		return []string{"-dir", filepath.Join(dir, part), "-kafka", kafka.Address, "-clickhouse", click.Address, "-s3", minio.Address}
	}
	c, _, err := parse(args("admin"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.open(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	services := []string{"cart", "catalog", "checkout", "shop"}
	for _, s := range services {
		if err := st.AddToken(t.Context(), "token-"+s, store.Send, s, time.Now().Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"pubsub", "cpu-hogs", "slow-reader", "queue-worker", "jobs", "open-queue"}
	traces, kinds := make([][]byte, len(names)), make([]*rows.Rows, len(names))
	for i, name := range names {
		traces[i] = testprog.Service(t, name).Trace
		kinds[i] = alone(t, traces[i])
	}

	// The roles, each with the port that its predecessor had.
	parts, port := []string{"ingest", "work", "query", "work"}, make([]string, 4)
	running := make([]*exec.Cmd, len(parts))
	for i := range port {
		port[i] = enginetest.Port(t)
	}
	run := func(i int) {
		log, err := os.OpenFile(filepath.Join(dir, fmt.Sprint("log", i)), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		p := exec.Command(os.Args[0], append(args(fmt.Sprint("part", i)), "-target", parts[i], "-listen", "127.0.0.1:"+port[i], "-workers", "2", "-max-recordings", "1000000", "-max-bytes", "1TiB", "-max-queued", "1000000000", "serve")...)
		p.Stderr = log
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		running[i] = p
	}
	kill := func(i int) {
		_ = running[i].Process.Kill()
		_ = running[i].Wait()
	}
	for i := range parts {
		run(i)
		defer kill(i)
	}

	var mu sync.Mutex
	sent := make(map[string]int) // id to kind
	var took []time.Duration
	var again, failed atomic.Int64
	var senders sync.WaitGroup
	url, slots := "http://127.0.0.1:"+port[0], make(chan struct{}, 16)
	begin := time.Now()
	for pod := range *pods {
		senders.Go(func() {
			for n := pod; n < *recordings; n += *pods {
				kind, service := n%len(names), services[pod%len(services)]
				body := recordingOf(t, traces[kind], service, fmt.Sprint("pod-", pod), n)
				for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) { // as long as it takes: the test has a limit
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
						again.Add(1)
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
	for round := 0; !*calm && (round < 8 || !ended()); round++ {
		time.Sleep(*life)
		i := round % (len(parts) + 1)
		if i < len(parts) {
			kill(i)
			run(i)
			kills++
			continue
		}
		engine := []*enginetest.Engine{kafka, click, minio}[round/(len(parts)+1)%3]
		engine.Kill()
		time.Sleep(*outage)
		engine.Start()
	}
	<-done
	accepted := time.Since(begin)
	var states map[string]int64
	for last := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		if states, err = st.States(t.Context()); err != nil {
			t.Fatal(err)
		}
		if states[store.Waiting]+states[store.Working] == 0 {
			break
		}
		if time.Since(last) > 30*time.Second {
			last = time.Now()
			t.Log(time.Since(begin).Round(time.Second), states)
		}
	}
	slices.Sort(took)
	t.Logf("%d recordings of %d pods accepted in %v, explained after %v; %d kills; %d answers were no 202, %d were sent twice; an answer took %v in the median, %v at the 99th percentile",
		len(sent), *pods, accepted.Round(time.Second), time.Since(begin).Round(time.Second), kills, failed.Load(), again.Load(), took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond))
	for i := range parts {
		kill(i)
	}

	if len(sent) != *recordings || states[store.Done] != int64(len(sent)) || states[store.Poison] != 0 {
		t.Errorf("%d of %d were accepted; states %v", len(sent), *recordings, states)
	}
	nothingLost(t, st, sent, kinds)
	files, err := c.files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	if err := files.List(t.Context(), func(string, time.Time) error { kept++; return nil }); err != nil || kept != 2*len(sent) {
		t.Errorf("%d files of %d recordings, %v", kept, len(sent), err)
	}
	if t.Failed() {
		for i := range parts {
			said, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint("log", i)))
			t.Logf("%s:\n%s", parts[i], said[max(0, len(said)-3000):])
		}
	}
}
