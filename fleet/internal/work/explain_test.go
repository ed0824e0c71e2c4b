package work

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// brokenFiles is a store for files whose methods fail if their error is set.
type brokenFiles struct {
	raw.Store
	path, temp, open error
}

func (f *brokenFiles) LocalPath(ctx context.Context, name string) (string, func(), error) {
	if f.path != nil {
		return "", nil, f.path
	}
	return f.Store.LocalPath(ctx, name)
}

func (f *brokenFiles) CreateTemp() (*os.File, error) {
	if f.temp != nil {
		return nil, f.temp
	}
	return f.Store.CreateTemp()
}

func (f *brokenFiles) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if f.open != nil {
		return nil, f.open
	}
	return f.Store.Open(ctx, name)
}

// TestOutcomes: how the explanation of a recording ends, by what its child answers and what fails around it.
func TestOutcomes(t *testing.T) {
	var answer bytes.Buffer
	must.Do(t, report.WriteJSON(&answer, &report.Report{Schema: report.Schema, Input: report.Input{Name: "/secret/path", DurationNS: 5, Events: 7}, Groups: []report.Group{{ID: "g", Name: "GET /", Kind: report.KindMark, Count: 3, TotalNS: 30, Histogram: [][2]int64{{10, 3}}, Bands: []report.Band{}, Blocks: []report.Block{}, Slowest: []report.Request{}}}}))
	errDown := errors.New("it is down")
	for _, c := range []struct {
		situation string
		answer    string
		err       error
		tries     int // before this one
		files     brokenFiles
		export    error
		want      string // state and tries
		says      string // the error, or what is logged
		outcome   string // of the metric
	}{
		{"an answer", answer.String(), nil, 0, brokenFiles{}, nil, "done 1", "msg=explained", "done"},
		{"an answer after others have failed", answer.String(), nil, 2, brokenFiles{}, nil, "done 3", "findings=0", "done"},
		{"a child that fails", "", errDown, 0, brokenFiles{}, nil, "waiting 1", "poison=false error=\"it is down\"", "failed"},
		{"a child that fails again", "", errDown, 1, brokenFiles{}, nil, "waiting 2", "not explained", "failed"},
		{"a child that fails a third time", "", errDown, 2, brokenFiles{}, nil, "poison 3", "poison=true", "poison"},
		{"no JSON", "x", nil, 0, brokenFiles{}, nil, "waiting 1", "not explained", "failed"},
		{"no JSON, for the third time", "x", nil, 2, brokenFiles{}, nil, "poison 3", "try=3", "poison"},
		{"workers that died ten times", answer.String(), nil, maxDeaths - 1, brokenFiles{}, nil, "done 10", "msg=explained", "done"},
		{"workers that died eleven times", answer.String(), nil, maxDeaths, brokenFiles{}, nil, "poison 11", "its workers died", "poison"},
		{"a storage that fails", answer.String(), nil, 0, brokenFiles{path: errDown}, nil, "waiting 0", "its file: it is down", ""},
		{"a file that is gone", answer.String(), nil, 0, brokenFiles{path: fs.ErrNotExist}, nil, "waiting 1", "file does not exist", "failed"},
		{"a name that cannot be", answer.String(), nil, 2, brokenFiles{path: fs.ErrInvalid}, nil, "poison 3", "invalid argument", "poison"},
		{"a full disk", answer.String(), nil, 0, brokenFiles{temp: errDown}, nil, "waiting 0", "keeping rows and report: it is down", ""},
		{"a collector that fails", answer.String(), nil, 0, brokenFiles{}, errDown, "waiting 0", "keeping rows and report: it is down", ""},
		{"a storage that does not list the report", answer.String(), nil, 0, brokenFiles{open: errDown}, nil, "waiting 0", "keeping rows and report: it is down", ""},
	} {
		w := newWorker(t)
		var logged bytes.Buffer
		w.Log = slog.New(slog.NewTextHandler(&logged, nil))
		id := addRecording(t, w, "a", []byte("x"))
		for range c.tries {
			must.Have(w.Store.Claim(t.Context(), time.Now().Add(time.Hour), -time.Hour))(t)
		}
		c.files.Store = w.Files
		w.Files = &c.files
		var asked []string
		exports := 0
		w.Exports = append(w.Exports, func(_ context.Context, exported string, l rows.Labels, r *rows.Rows, rep *report.Report) error {
			check.True(t, exported == id && l.Service == "shop" && r.Requests == 3 && rep.Input.Name == id[:12]+".whylate", "%s: exported %s %+v", c.situation, exported, rep.Input)
			exports++
			return c.export
		})
		w.runVerb = func(ctx context.Context, args ...string) ([]byte, error) {
			deadline, ok := ctx.Deadline()
			check.True(t, ok && time.Until(deadline) <= childTimeout && time.Until(deadline) > childTimeout/2 && len(w.childSlots) == 1, "%s: until %v, %d children", c.situation, deadline, len(w.childSlots))
			asked = args
			return []byte(c.answer), c.err
		}
		found, err := w.explainNext(t.Context())
		text := logged.String() + fmt.Sprint(err)
		check.True(t, found && strings.Contains(text, c.says) && (err != nil) == (c.outcome == ""), "%s: %s", c.situation, text)
		r := must.Have(w.Store.Recording(t.Context(), id))(t)
		check.Equal(t, fmt.Sprint(r.State, " ", r.Tries), c.want, "%s", c.situation)
		for _, outcome := range []string{"done", "failed", "poison"} {
			want := 0.0
			if outcome == c.outcome {
				want = 1
			}
			check.Equal(t, testutil.ToFloat64(w.Metrics.Explanations.WithLabelValues(outcome)), want, "%s: %s", c.situation, outcome)
		}
		check.True(t, len(w.childSlots) == 0 && (asked == nil || slices.Equal(asked, []string{"explain", "--json", "--capacity", "--max-memory=512MB", filepath.Join(string(c.files.Store.(raw.Dir)), id)})), "%s: %q", c.situation, asked)
		f, err := c.files.Store.Open(t.Context(), raw.ReportName(id))
		check.Equal(t, err == nil, r.State == store.Done, "%s: a report is kept", c.situation)
		if err == nil {
			rep := must.Have(report.ReadJSON(must.Have(gzip.NewReader(f))(t)))(t)
			check.True(t, rep.Input.Name == id[:12]+".whylate" && rep.Input.Events == 7 && exports == 1, "%s: %+v, exported %d times", c.situation, rep.Input, exports)
			_ = f.Close()
		}
		found, err = w.explainNext(t.Context())
		check.True(t, found == (r.State == store.Waiting), "%s: another one: %v %v", c.situation, found, err)
	}
}

// TestExplainEnds: a worker that stops, or whose claim another one has, gives the recording back or leaves it.
func TestExplainEnds(t *testing.T) {
	w := newWorker(t)
	id := addRecording(t, w, "a", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	w.runVerb = func(ctx context.Context, _ ...string) ([]byte, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	found, err := w.explainNext(ctx)
	r := must.Have(w.Store.Recording(t.Context(), id))(t)
	check.True(t, found && err == nil && r.State == store.Waiting && r.Tries == 0, "%+v %v", r, err)
	check.Equal(t, testutil.ToFloat64(w.Metrics.Explanations.WithLabelValues("failed")), 0, "a worker that stops counts as failed")
}

// TestRun: a worker explains all that waits with as many children as it may have, and logs what fails.
func TestRun(t *testing.T) {
	w := newWorker(t)
	w.MaxChildren = 2
	for i := range 4 {
		addRecording(t, w, fmt.Sprint(i), []byte("x"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan bool, 12)
	proceed := make(chan bool)
	w.runVerb = func(context.Context, ...string) ([]byte, error) {
		running <- true
		<-proceed
		return nil, errors.New("no")
	}
	ended := make(chan bool)
	go func() { w.Run(ctx); close(ended) }()
	<-running
	<-running
	check.True(t, len(running) == 0 && cap(w.childSlots) == 2, "%d children more", len(running))
	for range 12 { // each recording three times
		proceed <- true
	}
	for {
		states := must.Have(w.Store.CountByState(t.Context()))(t)
		if maps.Equal(states, map[string]int64{store.Poison: 4}) {
			break
		}
		time.Sleep(time.Millisecond) // the time limit of the test ends the loop
	}
	cancel()
	<-ended
}

// TestLease: while a child runs, its claim is renewed. A child whose claim another worker has is ended.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t)
		id := addRecording(t, w, "a", []byte("x"))
		claim := func(now time.Time) *store.Recording { return must.Have(w.Store.Claim(t.Context(), now, lease))(t) }
		var ended time.Duration
		w.runVerb = func(ctx context.Context, _ ...string) ([]byte, error) {
			for range 3 {
				time.Sleep(lease - 1)
				check.True(t, claim(time.Now()) == nil, "the claim has ended")
			}
			stolen := claim(time.Now().Add(lease + 1))
			must.True(t, stolen != nil && stolen.Tries == 2, "%+v", stolen)
			begin := time.Now()
			<-ctx.Done()
			ended = time.Since(begin)
			return nil, ctx.Err()
		}
		found, err := w.explainNext(t.Context())
		r := must.Have(w.Store.Recording(t.Context(), id))(t)
		check.True(t, found && err == nil && ended > 0 && ended <= lease/4 && r.State == store.Working && r.Tries == 2, "%v, after %v: %+v", err, ended, r)
		w.runVerb = func(ctx context.Context, _ ...string) ([]byte, error) {
			begin := time.Now()
			<-ctx.Done()
			ended = time.Since(begin)
			return nil, ctx.Err()
		}
		time.Sleep(3 * lease)
		found, err = w.explainNext(t.Context())
		check.True(t, found && err == nil && ended == childTimeout, "%v, after %v", err, ended)
	})
}

// listedFiles counts how often files are listed.
type listedFiles struct {
	raw.Store
	lists atomic.Int64
}

func (f *listedFiles) List(ctx context.Context, visit func(string, time.Time) error) error {
	f.lists.Add(1)
	return f.Store.List(ctx, visit)
}

// TestRetain: files are removed at most five minutes after their age, and orphans are looked for once an hour.
func TestRetain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t)
		id := addRecording(t, w, "a", []byte("x"))
		must.Do(t, w.Store.Fail(t.Context(), must.Have(w.Store.Claim(t.Context(), time.Now(), lease))(t), true, "why"))
		files := &listedFiles{Store: w.Files}
		w.Files = files
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() {
			w.Retain(ctx, Retention{FileAge: 47 * time.Minute, FileBytes: 1 << 30, RowAge: 48 * time.Hour})
			close(ended)
		}()
		for _, c := range []struct {
			after  time.Duration
			isKept bool
			lists  int64
		}{{46 * time.Minute, true, 1}, {50*time.Minute + time.Second, false, 1}, {59 * time.Minute, false, 1}, {time.Hour + time.Second, false, 2}, {3*time.Hour + time.Second, false, 4}} {
			time.Sleep(c.after - time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
			synctest.Wait()
			lists := files.lists.Load()
			r := must.Have(w.Store.Recording(t.Context(), id))(t)
			check.True(t, r.Raw == c.isKept && lists == c.lists, "after %v: %+v, %d lists", c.after, r, lists)
		}
		stop()
		<-ended
	})
}
