package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// Factors of the estimate. A flight recorder keeps at most 48 recordings a day by default, and the fleet keeps files for 14 days
// and rows for 90. Prices are those of AWS in us-east-1: m7g.large at 0.0816 USD an hour for two CPUs (price lists of
// 2026-06-17), gp3, S3 Standard and its PUTs (unchanged for years).
const (
	recordingsPerDay, rawDays, rowDays         = 48, 14, 90
	cpuMonth, diskGB, objectGB, perPut         = 0.0816 / 2 * 730, 0.08, 0.023, 0.005 / 1000
	clickHouseRow                              = 20.0 // bytes of a sum, an assumption: the regular sums of TestHundredMillion take 1.2
	senders, copies                            = 8, 3
	kB                                 float64 = 1000
)

// TestCost measures CPU, memory and disk space that recordings of real servers take in the roles ingest, work and query, and
// extrapolates to many pods. go test -run TestCost -v ./cmd/whylate-fleet prints the tables of docs/internals/measurements.md.
func TestCost(t *testing.T) {
	testfull.Need(t, "two minutes, and a free machine for its figures")
	files, err := filepath.Glob("../../../lab/recordings/field/*.whylate.xz")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var bodies [][]byte
	var bytesPerRecording float64
	for _, f := range files {
		out := must.Have(testprog.Unpack(must.Have(os.ReadFile(f))(t)))(t)
		for i := range uint32(copies) {
			// Bytes after the end of a zip do not change the recording, but give it another id.
			bodies = append(bodies, binary.BigEndian.AppendUint32(slices.Clone(out), i))
		}
		bytesPerRecording += float64(len(out)) / float64(len(files))
	}
	dir := t.TempDir()
	st, err := (&config{dir: dir}).openStore(t.Context(), false)
	must.Do(t, err)
	defer st.Close()
	must.Do(t, st.AddToken(t.Context(), "token", store.SendScope, "shop", time.Now().Add(time.Hour)))
	startRole := func(target string, workers int) (string, *os.Process) {
		port := must.Have(freeport.Find(1))(t)
		c := exec.Command(os.Args[0], "-dir", dir, "-listen", "127.0.0.1:"+port[0], "-target", target, "-workers", strconv.Itoa(workers), "-max-recordings", "1000000", "-max-bytes", "1TB", "serve")
		must.Do(t, c.Start())
		t.Cleanup(func() {
			_ = c.Process.Kill()
			_ = c.Wait()
		})
		url := "http://127.0.0.1:" + port[0]
		for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			if res, err := http.Get(url + "/readyz"); err == nil {
				_ = res.Body.Close()
				return url, c.Process
			}
			must.True(t, time.Since(begin) <= time.Minute, "it does not answer")
		}
	}

	url, ingest := startRole("ingest", 1)
	var took []time.Duration
	var mu sync.Mutex
	var all sync.WaitGroup
	next := make(chan []byte)
	begin := time.Now()
	for range senders {
		all.Go(func() {
			for body := range next {
				begin := time.Now()
				_, status := post(url, body)
				mu.Lock()
				took = append(took, time.Since(begin))
				mu.Unlock()
				check.Equal(t, status, http.StatusAccepted, "refused")
			}
		})
	}
	for _, body := range bodies {
		next <- body
	}
	close(next)
	all.Wait()
	n := float64(len(bodies))
	perSecond := n / time.Since(begin).Seconds()
	slices.Sort(took)
	ingestCPU := cpuSeconds(t, ingest.Pid) / n

	// One, two and four workers explain the same recordings.
	var explainCPU, explainMemory float64
	var growth []string
	for _, workers := range []int{1, 2, 4} {
		if workers > 1 {
			must.Have(st.Requeue(t.Context(), "", time.Unix(0, 0)))(t)
		}
		begin := time.Now()
		var processes []*os.Process
		for range workers {
			_, p := startRole("work", 1)
			processes = append(processes, p)
		}
		for {
			states := must.Have(st.CountByState(t.Context()))(t)
			if states[store.Waiting]+states[store.Working] == 0 {
				if states[store.Done] != int64(n) {
					t.Fatal(states)
				}
				break
			}
			time.Sleep(100 * time.Millisecond) // the time limit of the test ends the loop
		}
		growth = append(growth, fmt.Sprintf("%d: %.1f/s", workers, n/time.Since(begin).Seconds()))
		if workers == 1 {
			explainCPU, explainMemory = cpuSeconds(t, processes[0].Pid)/n, peakMemoryMB(t, processes[0].Pid)
		}
		for _, p := range processes {
			_ = p.Kill()
		}
	}
	url, query := startRole("query", 1)
	for range 20 {
		for _, path := range []string{"/", "/service/shop"} {
			res := must.Have(http.Get(url + path))(t)
			_ = res.Body.Close()
		}
	}
	var sums float64
	must.Do(t, st.VisitSums(t.Context(), func(string, string, int64, int64, int64) { sums++ }))
	copyFile := filepath.Join(t.TempDir(), "copy.db")
	must.Do(t, st.Backup(t.Context(), copyFile))
	info, err := os.Stat(copyFile)
	must.Do(t, err)
	var reports float64
	must.Do(t, filepath.WalkDir(filepath.Join(dir, "raw"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), "report") {
			var i fs.FileInfo
			if i, err = d.Info(); err == nil {
				reports += float64(i.Size()) / n
			}
		}
		return err
	}))
	sumsPerRecording := sums / float64(len(files)) // copies of a recording add to the same sums
	storeBytesPerRecording := float64(info.Size()) / n

	var out bytes.Buffer
	row := func(label, format string, v ...any) {
		fmt.Fprintf(&out, "| %s | "+format+" |\n", append([]any{label}, v...)...)
	}
	fmt.Fprintf(&out, "\n| measured, %d recordings of real servers, %.0f kB each | |\n|---|---|\n", len(bodies), bytesPerRecording/kB)
	row("ingest", "%.0f recordings/s; an answer takes %v in the middle, %v at the 99th percentile", perSecond, took[len(took)/2].Round(time.Millisecond), took[len(took)*99/100].Round(time.Millisecond))
	row("CPU of ingest, and of explaining", "%.1f ms and %.0f ms a recording: %.0f explained a second and core", ingestCPU*1e3, explainCPU*1e3, 1/explainCPU)
	row("workers, each a process with one child", "%s", strings.Join(growth, "; "))
	row("a recording in files", "%.0f kB, its report %.0f kB", bytesPerRecording/kB, reports/kB)
	row("a recording in SQLite", "%.1f kB: %.0f sums, and what it was counted as", storeBytesPerRecording/kB, sumsPerRecording)
	row("memory at most", "ingest %.0f MB, work %.0f MB and its children, query %.0f MB", peakMemoryMB(t, ingest.Pid), explainMemory, peakMemoryMB(t, query.Pid))
	fmt.Fprintf(&out, "\n| multiplied, %d recordings a pod and day | 100 pods | 1,000 | 10,000 |\n|---|---|---|---|\n", recordingsPerDay)
	rowPerPods := func(label, format string, f func(pods float64) float64) {
		row(label, format+" | "+format+" | "+format, f(100), f(1000), f(10000))
	}
	cpus := func(pods float64) float64 { return pods * recordingsPerDay / 86400 * (ingestCPU + explainCPU) }
	filesGB := func(pods float64) float64 {
		return pods * recordingsPerDay * rawDays * (bytesPerRecording + reports) / 1e9
	}
	sqliteGB := func(pods float64) float64 { return pods * recordingsPerDay * rowDays * storeBytesPerRecording / 1e9 }
	clickhouseGB := func(pods float64) float64 {
		return pods * recordingsPerDay * rowDays * sumsPerRecording * clickHouseRow / 1e9
	}
	rowPerPods("recordings a second", "%.2f", func(pods float64) float64 { return pods * recordingsPerDay / 86400 })
	rowPerPods("network, MB/s", "%.2f", func(pods float64) float64 { return pods * recordingsPerDay / 86400 * bytesPerRecording / 1e6 })
	rowPerPods("CPUs, busy", "%.2f", cpus)
	rowPerPods(fmt.Sprintf("recordings and reports of %d days, GB", rawDays), "%.0f", filesGB)
	rowPerPods(fmt.Sprintf("rows of %d days in SQLite, GB", rowDays), "%.1f", sqliteGB)
	rowPerPods(fmt.Sprintf("rows of %d days in ClickHouse, of 20 bytes, GB", rowDays), "%.1f", clickhouseGB)
	rowPerPods("USD a month: CPUs twice those busy, two at least", "%.0f", func(pods float64) float64 { return max(2, 2*cpus(pods)) * cpuMonth })
	rowPerPods("USD a month: files in S3", "%.0f", func(pods float64) float64 { return filesGB(pods)*objectGB + 2*pods*recordingsPerDay*30.4*perPut })
	rowPerPods("USD a month: rows on disk, of ClickHouse", "%.0f", func(pods float64) float64 { return clickhouseGB(pods) * diskGB })
	t.Log(out.String())
}

// cpuSeconds returns the CPU time of a process and its ended children.
func cpuSeconds(t *testing.T, pid int) (seconds float64) {
	t.Helper()
	text := must.Have(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t)
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	for _, ticks := range f[11:15] {
		v := must.Have(strconv.ParseFloat(ticks, 64))(t)
		seconds += v / 100
	}
	return seconds
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMemoryMB returns the peak of the resident memory of a process in MB.
func peakMemoryMB(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	m := highWater.FindSubmatch(text)
	if err != nil || m == nil {
		t.Fatal(err, string(text))
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	must.Do(t, err)
	return v * 1024 / 1e6
}
