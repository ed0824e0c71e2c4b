package work

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/trace"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestMain makes the test binary run the verb in children of the worker.
func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], []string{VerbArgument, "complain"}) {
		fmt.Print("answer")
		fmt.Fprint(os.Stderr, strings.Repeat("warning\n", 1<<13))
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == VerbArgument {
		if err := LimitProcess(); err != nil {
			os.Exit(3)
		}
		os.Args = append(os.Args[:1], os.Args[2:]...)
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

func newWorker(t *testing.T) *Worker {
	t.Helper()
	dir := t.TempDir()
	st := must.Have(store.Open(t.Context(), filepath.Join(dir, "fleet.db"), ""))(t)
	t.Cleanup(func() { _ = st.Close() })
	files := filepath.Join(dir, "raw")
	must.Do(t, os.Mkdir(files, 0o700))
	return &Worker{Store: st, Files: raw.Dir(files), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: metrics.New(st), MaxChildren: 1, childSlots: make(chan struct{}, 1)}
}

func addRecording(t *testing.T, w *Worker, id string, body []byte) string {
	t.Helper()
	id += strings.Repeat("0", 32-len(id))
	must.Do(t, os.WriteFile(filepath.Join(string(w.Files.(raw.Dir)), id), body, 0o600))
	must.Do(t, w.Store.AddRecording(t.Context(), store.Recording{ID: id, Labels: rows.Labels{Service: "shop"}, Received: time.Now(), Bytes: int64(len(body))}))
	return id
}

// TestPoison: recordings that cannot be explained become poison, and the next recording is explained.
func TestPoison(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	w := newWorker(t)
	var goodTrace bytes.Buffer
	if err := trace.Start(&goodTrace); err != nil {
		t.Skip("another execution trace is running:", err)
	}
	trace.Stop()
	badIDs := map[string]string{
		addRecording(t, w, "a", []byte("go 1.26 trace\x00\x00\x00"+strings.Repeat("\xff", 1000))): "",
		addRecording(t, w, "b", []byte("PK\x03\x04"+strings.Repeat("x", 1000))):                   "",
		addRecording(t, w, "c", []byte("hello")):                                                  "",
	}
	goodID := addRecording(t, w, "d", goodTrace.Bytes())
	for found := true; found; {
		var err error
		if found, err = w.explainNext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for id := range badIDs {
		r, err := w.Store.Recording(t.Context(), id)
		check.True(t, err == nil && r.State == store.Poison && r.Error != "" && r.Raw && r.Tries == maxFailures, "%+v %v", r, err)
	}
	check.Equal(t, testutil.ToFloat64(w.Metrics.Explanations.WithLabelValues("poison")), float64(len(badIDs)), "are poison")
	if r, err := w.Store.Recording(t.Context(), goodID); err != nil || r.State != store.Done {
		t.Errorf("%+v %v", r, err)
	}
	f, err := w.Files.Open(t.Context(), raw.ReportName(goodID))
	must.Do(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must.Do(t, err)
	if rep, err := report.ReadJSON(z); err != nil || rep.Input.Name != goodID[:12]+".whylate" {
		t.Errorf("the report: %v %+v", err, rep)
	}
}

// TestPause: a worker pauses when the queue is empty, and not before. Files that are gone fail without a child process.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t)
		ids := []string{addRecording(t, w, "a", nil), addRecording(t, w, "b", nil), addRecording(t, w, "c", nil)}
		for _, id := range ids {
			must.Do(t, os.Remove(filepath.Join(string(w.Files.(raw.Dir)), id)))
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go w.Run(ctx)
		synctest.Wait() // returns at the first pause, and not if there is none
		for _, id := range ids {
			r, err := w.Store.Recording(t.Context(), id)
			check.True(t, err == nil && r.State == store.Poison, "%+v, %v", r, err)
		}
		stop()
		synctest.Wait()
	})
}

// TestWarningsOfChild: a child that writes more warnings than are shown still answers.
func TestWarningsOfChild(t *testing.T) {
	out, err := RunVerb(t.Context(), "complain")
	check.True(t, err == nil && string(out) == "answer", "%q %v", out, err)
}

// TestExport: rows are exported before they are stored. Exporting is retried until it succeeds, and happens once, also if the
// recording is explained again.
func TestExport(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	w := newWorker(t)
	var body bytes.Buffer
	if err := trace.Start(&body); err != nil {
		t.Skip("another execution trace is running:", err)
	}
	trace.Stop()
	id := addRecording(t, w, "a", body.Bytes())
	failuresLeft, exported := 1, 0
	w.ExportOnly, w.Exports = true, []func(context.Context, string, rows.Labels, *rows.Rows, *report.Report) error{func(_ context.Context, exportedID string, l rows.Labels, r *rows.Rows, _ *report.Report) error {
		if failuresLeft--; failuresLeft >= 0 {
			return errors.New("the collector is down")
		}
		if exported++; exportedID != id || l.Service != "shop" || r.DurationNS == 0 {
			t.Error(exportedID, l, r)
		}
		return nil
	}}
	if _, err := w.explainNext(t.Context()); err == nil {
		t.Error("a failure is no error")
	}
	if r, err := w.Store.Recording(t.Context(), id); err != nil || r.State != store.Waiting || r.Tries != 0 {
		t.Errorf("%+v %v", r, err)
	}
	for range 2 {
		must.Have(w.explainNext(t.Context()))(t)
		if r, err := w.Store.Recording(t.Context(), id); err != nil || r.State != store.Done || exported != 1 {
			t.Errorf("%+v %v, exported %d times", r, err, exported)
		}
		if n, err := w.Store.Requeue(t.Context(), "", time.Now().Add(-time.Hour)); n != 1 || err != nil {
			t.Error(n, err)
		}
	}
	if err := w.Store.VisitSums(t.Context(), func(string, string, int64, int64, int64) { t.Error("a sum is kept here, too") }); err != nil {
		t.Error(err)
	}
}

// TestRetainOnce: files are removed with their recordings, and files without a recording when they are old.
func TestRetainOnce(t *testing.T) {
	w := newWorker(t)
	id := addRecording(t, w, "a", []byte("hello"))
	dir := string(w.Files.(raw.Dir))
	for _, name := range []string{raw.ReportName(id), "new-123", strings.Repeat("b", 32), raw.ReportName(strings.Repeat("b", 32)), "notes.txt", "new-notes", "new-", strings.Repeat("b", 30)} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	retention := Retention{FileAge: 24 * time.Hour, FileBytes: 1 << 30, RowAge: 48 * time.Hour}
	countFiles := func() (n int) {
		list := must.Have(os.ReadDir(dir))(t)
		return len(list)
	}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{time.Minute, 9}, {2 * time.Hour, 6}, {30 * time.Hour, 6}} { // the waiting recording and four files of others stay
		if err := w.RetainOnce(t.Context(), retention, time.Now().Add(c.after), true); err != nil || countFiles() != c.want {
			t.Errorf("after %v: %d files, want %d, %v", c.after, countFiles(), c.want, err)
		}
	}
	r := must.Have(w.Store.Claim(t.Context(), time.Now(), time.Minute))(t)
	must.Do(t, w.Store.Fail(t.Context(), r, true, "why"))
	if err := w.RetainOnce(t.Context(), retention, time.Now().Add(30*time.Hour), true); err != nil || countFiles() != 4 {
		t.Errorf("%d files, %v", countFiles(), err)
	}
	if _, err := w.Files.Open(t.Context(), id); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestCheckFiles: it is an error if the store knows none of the recordings. Files of others, and an orphan next to a known
// recording, are no error.
func TestCheckFiles(t *testing.T) {
	w := newWorker(t)
	createFile := func(name string) {
		must.Do(t, os.WriteFile(filepath.Join(string(w.Files.(raw.Dir)), name), nil, 0o600))
	}
	for _, name := range []string{"notes.txt", "new-123"} {
		createFile(name)
	}
	if err := CheckFiles(t.Context(), w.Store, w.Files); err != nil {
		t.Error("without recordings:", err)
	}
	createFile(strings.Repeat("b", 32))
	createFile(raw.ReportName(strings.Repeat("b", 32)))
	if err := CheckFiles(t.Context(), w.Store, w.Files); err == nil || !strings.Contains(err.Error(), "2 files") || !strings.Contains(err.Error(), "Put their store back") {
		t.Error("an empty store:", err)
	}
	addRecording(t, w, "a", nil)
	if err := CheckFiles(t.Context(), w.Store, w.Files); err != nil {
		t.Error("a store that knows one:", err)
	}
}

// TestFolded: a service whose recordings have two million group names stays within the bound on series, and the metric counts
// it.
func TestFolded(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 20,000 series, and starts a process")
	}
	w := newWorker(t)
	const groupsPerRecording, totalGroups = 10_000, 2_000_000
	for n := 0; n < totalGroups; n += groupsPerRecording {
		id := fmt.Sprintf("%032x", n+1)
		must.Do(t, w.Store.AddRecording(t.Context(), store.Recording{ID: id, Labels: rows.Labels{Service: "shop", Pod: fmt.Sprint(n)}, Received: time.Now()}))
		r, err := w.Store.Claim(t.Context(), time.Now(), time.Minute)
		if err != nil || r == nil {
			t.Fatal(r, err)
		}
		rep := &report.Report{Groups: make([]report.Group, groupsPerRecording)}
		for i := range rep.Groups {
			rep.Groups[i] = report.Group{Name: fmt.Sprint("g", n+i), Count: 1, TotalNS: 10, Histogram: [][2]int64{{10, 1}}}
		}
		must.Have(w.Store.Finish(t.Context(), r, rows.FromReport(r.Labels, r.Received, rep)))(t)
	}
	groups, requests := make(map[string]bool), int64(0)
	if err := w.Store.VisitSums(t.Context(), func(group, cause string, _, n, _ int64) {
		groups[group] = true
		requests += n
	}); err != nil || len(groups) > store.MaxSeries || requests != totalGroups {
		t.Errorf("%d groups, %d requests, %v", len(groups), requests, err)
	}
	var body bytes.Buffer
	if err := trace.Start(&body); err != nil {
		t.Skip("another execution trace is running:", err)
	}
	trace.Stop()
	id := strings.Repeat("f", 32)
	must.Do(t, os.WriteFile(filepath.Join(string(w.Files.(raw.Dir)), id), body.Bytes(), 0o600))
	must.Do(t, w.Store.AddRecording(t.Context(), store.Recording{ID: id, Labels: rows.Labels{Service: "shop", Pod: "new"}, Received: time.Now()}))
	if _, err := w.explainNext(t.Context()); err != nil || testutil.ToFloat64(w.Metrics.FoldedRecordings) != 1 {
		t.Errorf("%v folded, %v", testutil.ToFloat64(w.Metrics.FoldedRecordings), err)
	}
}
