package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// TestNothingLost: a hundred pods send recordings while ingest and work are killed (-9) in turn and the disk fills up. Each
// answer 202 yields one explained recording whose rows count once, and the sums equal those of explaining each recording alone.
func TestNothingLost(t *testing.T) {
	testfull.Need(t, "minutes, and a disk that is full")
	const pods, recordingsPerPod, kinds = 100, 20, 8
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=400m"); err != nil {
		t.Skip("no tmpfs can be mounted:", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	st, err := (&config{dir: dir}).openStore(t.Context(), false)
	must.Do(t, err)
	defer st.Close()
	must.Do(t, st.AddToken(t.Context(), "token", store.SendScope, "shop", time.Now().Add(time.Hour)))
	var traces [kinds][]byte
	var explained [kinds]*rows.Rows
	for i := range traces {
		traces[i] = recordTrace(t, 20+i)
		explained[i] = explainAlone(t, traces[i])
	}
	port, err := freeport.Find(3)
	must.Do(t, err)
	url := "http://127.0.0.1:" + port[0]
	startRole := func(target, port string) *exec.Cmd {
		c := exec.Command(os.Args[0], "-dir", dir, "-listen", "127.0.0.1:"+port, "-target", target, "-min-free", "1MB", "-max-recordings", "1000000", "serve")
		must.Do(t, c.Start())
		return c
	}
	sent := make(map[string]int) // by id: index of the trace
	var mu sync.Mutex
	var senders sync.WaitGroup
	var refused atomic.Int64
	for pod := range pods {
		senders.Go(func() {
			for i := range recordingsPerPod {
				kind := (pod + i) % kinds
				time.Sleep(time.Duration(pod*37%100) * 5 * time.Millisecond) // pods send at different times
				body := shopRecording(t, traces[kind], fmt.Sprintf("pod-%d", pod), i)
				for {
					id, status := post(url, body)
					if status == http.StatusAccepted {
						mu.Lock()
						sent[id] = kind
						mu.Unlock()
						break
					}
					if status == http.StatusInsufficientStorage {
						refused.Add(1)
					}
					time.Sleep(200 * time.Millisecond) // the time limit of the test bounds the retries
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { senders.Wait(); close(done) }()
	roles := map[string]*exec.Cmd{"ingest": startRole("ingest", port[0]), "work": startRole("work", port[1])}
	kills, fills := 0, 0
	fill := filepath.Join(dir, "fill")
	for round, ended := 0, false; !ended || round < 6; round++ {
		name, p := "ingest", port[0]
		if round%2 == 1 {
			name, p = "work", port[1]
		}
		switch round % 3 {
		case 0:
			fillDisk(fill)
			fills++
		case 1:
			_ = os.Remove(fill)
		}
		time.Sleep(1500 * time.Millisecond) // time between kills
		_ = roles[name].Process.Kill()
		_ = roles[name].Wait()
		kills++
		roles[name] = startRole(name, p)
		select {
		case <-done:
			ended = true
		default:
		}
	}
	_ = os.Remove(fill)
	for {
		states := must.Have(st.CountByState(t.Context()))(t)
		if states[store.Waiting]+states[store.Working] == 0 {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	for _, c := range roles {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	t.Logf("%d recordings, %d kills, %d times a full disk, which refused %d", len(sent), kills, fills, refused.Load())

	states, err := st.CountByState(t.Context())
	check.True(t, refused.Load() != 0, "the disk was never full")
	check.True(t, err == nil && states[store.Done] == int64(len(sent)) && len(states) == 1 && len(sent) == pods*recordingsPerPod,
		"states %v, %v; %d were accepted", states, err, len(sent))
	for id := range sent {
		if r, err := st.Recording(t.Context(), id); err != nil || r == nil || r.State != store.Done {
			t.Errorf("%s: %+v %v", id, r, err)
		}
	}
	checkSums(t, st, sent, explained[:])
	// Only the recordings and their reports are left.
	w := &work.Worker{Store: st, Files: raw.Dir(filepath.Join(dir, "raw")), Log: slog.New(slog.DiscardHandler), Metrics: metrics.New(st)}
	if err := w.RetainOnce(t.Context(), work.Retention{FileAge: 100 * time.Hour, FileBytes: 1 << 60, RowAge: 100 * time.Hour}, time.Now().Add(2*time.Hour), true); err != nil {
		t.Error(err)
	}
	var files []string
	if err := w.Files.List(t.Context(), func(name string, _ time.Time) error { files = append(files, name); return nil }); err != nil || len(files) != 2*len(sent) {
		slices.Sort(files)
		t.Errorf("%d files of %d recordings, %v", len(files), len(sent), err)
	}
}

// fillDisk writes a file until the disk is full.
func fillDisk(name string) {
	f, err := os.Create(name)
	if err != nil {
		return // the disk is full already
	}
	defer f.Close()
	for block := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(block)
	}
}
