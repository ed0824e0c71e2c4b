// Package work explains the recordings of the queue, each in a child process: a hostile one costs itself only. It also removes
// what is no longer kept.
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
	"os/exec"
	"sync"
	"time"

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/report"
)

// VerbArgument makes the program one of whylate's verbs; the worker starts it so.
const VerbArgument = "whylate-verb"

const (
	childTimeout   = 2 * time.Minute  // of a child
	lease          = 30 * time.Second // a recording whose worker is gone is taken again after it
	maxFailures    = 3                // that a recording makes an explanation fail
	maxDeaths      = 10               // of its workers, before it is held to be the reason
	maxReportBytes = 64 << 20
	idlePause      = 500 * time.Millisecond
)

// A Worker explains.
type Worker struct {
	Store       *store.Store
	Files       raw.Store
	Log         *slog.Logger
	Metrics     *metrics.Metrics
	MaxChildren int // of children at the same time, each with one CPU
	// Exports gets the rows and the report of each recording before they are kept; with ExportOnly the rows are not kept.
	Exports    []func(ctx context.Context, id string, l rows.Labels, r *rows.Rows, rep *report.Report) error
	ExportOnly bool

	childSlots chan struct{}
}

// Run explains what waits in the queue until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	var loops sync.WaitGroup
	w.childSlots = make(chan struct{}, w.MaxChildren)
	for range w.MaxChildren * w.Store.ClaimsPerChild() {
		loops.Go(func() {
			for ctx.Err() == nil {
				found, err := w.explainNext(ctx)
				if err != nil && ctx.Err() == nil {
					w.Log.Error("work", "error", err)
				}
				if !found || err != nil {
					pause(ctx, idlePause)
				}
			}
		})
	}
	loops.Go(func() {
		for ctx.Err() == nil {
			if err := w.Store.RollUp(ctx, time.Now()); err != nil && ctx.Err() == nil {
				w.Log.Error("adding up", "error", err)
			}
			pause(ctx, 5*time.Second)
		}
	})
	loops.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// explainNext explains one recording, if one waits.
func (w *Worker) explainNext(ctx context.Context) (found bool, err error) {
	r, err := w.Store.Claim(ctx, time.Now(), lease)
	if r == nil || err != nil {
		return false, err
	}
	log := w.Log.With("recording", r.ID, "service", r.Service, "version", r.Version)
	begin := time.Now()
	fail := func(poison bool, cause error) error {
		outcome := "failed"
		if poison {
			outcome = "poison"
		}
		w.Metrics.Explanations.WithLabelValues(outcome).Inc()
		log.Warn("not explained", "try", r.Tries, "poison", poison, "error", cause)
		return w.Store.Fail(ctx, r, poison, cause.Error())
	}
	if r.Tries > maxDeaths {
		return true, fail(true, errors.New("its workers died"))
	}
	path, release, err := w.Files.LocalPath(ctx, r.ID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) { // no fault of the recording's
		return true, errors.Join(fmt.Errorf("its file: %w", err), w.Store.Release(context.WithoutCancel(ctx), r))
	}
	var body []byte
	if err == nil {
		body, err = w.runExplain(ctx, r, path)
		release()
	}
	if ctx.Err() != nil {
		return true, w.Store.Release(context.WithoutCancel(ctx), r)
	}
	if err != nil {
		return true, fail(r.Tries >= maxFailures, err)
	}
	rep, err := report.ReadJSON(bytes.NewReader(body))
	if err != nil {
		return true, fail(r.Tries >= maxFailures, err)
	}
	rep.Input.Name = r.ID[:12] + ".whylate" // not where the file lies here
	var folded bool
	recordingRows := rows.FromReport(r.Labels, r.Received, rep)
	if err = w.export(ctx, r, recordingRows, rep); err == nil {
		err = w.saveReport(ctx, r.ID, rep)
	}
	if w.ExportOnly {
		recordingRows = &rows.Rows{Start: recordingRows.Start, DurationNS: recordingRows.DurationNS, Requests: recordingRows.Requests, Cause: recordingRows.Cause}
	}
	if err == nil {
		folded, err = w.Store.Finish(ctx, r, recordingRows)
	}
	if err != nil { // a full disk, most likely: no fault of the recording's
		return true, errors.Join(fmt.Errorf("keeping rows and report: %w", err), w.Store.Release(context.WithoutCancel(ctx), r))
	}
	if folded {
		w.Metrics.FoldedRecordings.Inc()
		log.Warn("the service has too many versions, environments, pods, nodes and groups, or findings; new ones are counted as (other)", "most", store.MaxSeries, "findings", store.MaxProblems)
	}
	w.Metrics.Explanations.WithLabelValues("done").Inc()
	w.Metrics.ExplainSeconds.Observe(time.Since(begin).Seconds())
	log.Info("explained", "findings", len(rep.Findings), "took", time.Since(begin).Round(time.Millisecond))
	return true, nil
}

// runExplain runs the verb, and holds the claim meanwhile.
func (w *Worker) runExplain(ctx context.Context, r *store.Recording, path string) ([]byte, error) {
	var renewing sync.WaitGroup
	defer renewing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	renewing.Go(func() {
		for ctx.Err() == nil {
			pause(ctx, lease/4)
			if held, err := w.Store.Renew(ctx, r, time.Now().Add(lease)); err == nil && !held {
				stop()
			}
		}
	})
	w.childSlots <- struct{}{} // others meanwhile get files and write rows
	defer func() { <-w.childSlots }()
	limited, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	return RunVerb(limited, "explain", "--json", "--max-memory=512MB", path)
}

// export hands rows on, unless the recording has a report already: its rows were, and sums elsewhere cannot be replaced.
func (w *Worker) export(ctx context.Context, r *store.Recording, recordingRows *rows.Rows, rep *report.Report) error {
	if len(w.Exports) == 0 {
		return nil
	}
	f, err := w.Files.Open(ctx, raw.ReportName(r.ID))
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, send := range w.Exports {
		if err := send(ctx, r.ID, r.Labels, recordingRows, rep); err != nil {
			return err
		}
	}
	return nil
}

// saveReport keeps the report of a recording beside it.
func (w *Worker) saveReport(ctx context.Context, id string, rep *report.Report) error {
	f, err := w.Files.CreateTemp()
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	z := gzip.NewWriter(f)
	if err := report.WriteJSON(z, rep); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return w.Files.Save(ctx, f, raw.ReportName(id))
}

// RunVerb runs one of whylate's verbs in a child with bounds of memory and one CPU, and returns what it printed.
func RunVerb(ctx context.Context, args ...string) ([]byte, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, executable, append([]string{VerbArgument}, args...)...)
	c.Env = []string{"TMPDIR=" + os.TempDir(), "GOMAXPROCS=1"}
	c.WaitDelay = time.Second
	stdout, stderr := &boundedBuffer{maxBytes: maxReportBytes}, &boundedBuffer{maxBytes: 4 << 10}
	c.Stdout, c.Stderr = stdout, stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("explaining: %w: %s", errors.Join(ctx.Err(), err), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// A bounded buffer takes no more than max bytes.
type boundedBuffer struct {
	bytes.Buffer
	maxBytes int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.maxBytes {
		return 0, errors.New("too much output")
	}
	return b.Buffer.Write(p)
}
