package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestGreetDemo: off loopback, the printed password is a reader's token.
func TestGreetDemo(t *testing.T) {
	st := must.Have((&config{dir: t.TempDir()}).openStore(t.Context(), false))(t)
	defer st.Close()
	var out strings.Builder
	must.Do(t, greetDemo(t.Context(), &out, "http://127.0.0.1:4319", st))
	check.True(t, strings.HasPrefix(out.String(), "The fleet is at http://127.0.0.1:4319. ") && !strings.Contains(out.String(), "password"), "on loopback: %s", &out)
	must.Do(t, greetDemo(t.Context(), &out, "http://[::]:4319", st))
	_, password, _ := strings.Cut(out.String(), "The password of its pages is ")
	password, _, _ = strings.Cut(password, ",")
	check.Equal(t, must.Have(st.TokenName(t.Context(), password, store.ReadScope, time.Now()))(t), "demo", "reader with password %q", password)
}

// TestStock: a request of the bad deploy holds the lock for 4 ms, and those of other versions hold none.
func TestStock(t *testing.T) {
	for locked, want := range map[bool]time.Duration{false: 0, true: 4 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s, begin, done := &stock{locked: locked}, time.Now(), make(chan bool)
			go func() { s.reserve(); close(done) }()
			synctest.Wait()
			check.Equal(t, s.mu.TryLock(), !locked, "the lock is free, locked: %v", locked)
			<-done
			check.Equal(t, time.Since(begin), want, "a request, locked: %v", locked)
			check.Equal(t, s.mu.TryLock(), locked, "the lock is free afterwards, locked: %v", locked)
		})
	}
}

// TestGenerateLoad: six clients send requests at the same time, again and again, until the end.
func TestGenerateLoad(t *testing.T) {
	arrived, proceed := make(chan bool), make(chan bool)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived <- true; <-proceed }))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan bool)
	go func() { generateLoad(ctx, s.URL); close(ended) }()
	for round := range 2 {
		for range 6 {
			<-arrived
		}
		select {
		case <-arrived:
			t.Error("a seventh client")
		case <-time.After(50 * time.Millisecond):
		}
		if round == 1 {
			cancel()
		}
		for range 6 {
			proceed <- true
		}
	}
	<-ended
}

// TestDemoService: a service of the demo prints its address, answers under its name, and keeps recordings of its version.
func TestDemoService(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "token"), []byte("token"), 0o600))
	t.Setenv("DEMO_VERSION", "v2")
	out, in, err := os.Pipe()
	must.Do(t, err)
	defer func(f *os.File) { os.Stdout = f }(os.Stdout)
	os.Stdout = in
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{demoService, "checkout", "http://127.0.0.1:1", dir}) }()
	line := must.Have(bufio.NewReader(out).ReadString('\n'))(t)
	address := strings.TrimSpace(line)
	must.True(t, strings.HasPrefix(address, "http://127.0.0.1:") && strings.HasSuffix(address, "/checkout"), "%q", line)
	for suffix, want := range map[string]string{"": "200 ok\n", "/x": "404 404 page not found\n"} {
		res := must.Have(http.Get(address + suffix))(t)
		body := must.Have(io.ReadAll(res.Body))(t)
		_ = res.Body.Close()
		check.Equal(t, fmt.Sprintf("%d %s", res.StatusCode, body), want, "%s", suffix)
	}
	must.Have(os.Stat(filepath.Join(dir, "spool-v2")))(t)
	cancel()
	check.True(t, <-ended == nil, "the end of a service")
	must.Do(t, os.Remove(filepath.Join(dir, "token")))
	check.Error(t, runDemoService(t.Context(), "x", "fleet", dir), "an address that is none")
}

// TestOpenStore: with Kafka, a receiver needs no ClickHouse, and the other parts do.
func TestOpenStore(t *testing.T) {
	cluster := must.Have(kfake.NewCluster(kfake.NumBrokers(1)))(t)
	defer cluster.Close()
	address, _ := enginetest.S3(t)
	for target, ok := range map[string]bool{"ingest": true, "scrape": true, "work": false, "query": false, "all": false} {
		c := &config{dir: t.TempDir(), target: target, kafkaAddress: "kafka://" + cluster.ListenAddrs()[0] + "/whylate?partitions=1", s3Address: address, clickhouseAddress: "clickhouse://127.0.0.1:1/x"}
		st, err := c.openStore(t.Context(), true)
		check.True(t, (err == nil) == ok && (ok || strings.Contains(err.Error(), "ClickHouse")), "%s: %v", target, err)
		if err == nil {
			must.Do(t, st.Close())
		}
		files, err := c.openFiles(t.Context())
		check.True(t, err == nil && files != nil, "%s: %v", target, err)
		c.s3Address = "s3://"
		_, err = c.openStore(t.Context(), true)
		check.Error(t, err, "a bucket without a name")
		_, err = c.openFiles(t.Context())
		check.Error(t, err, "a bucket without a name")
	}
}
