// Package work explains the recordings of the queue and writes their rows. Each recording is explained in a child process with
// bounded memory and CPU time, so a hostile recording harms only itself. The package also applies the retention to files and
// rows.
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
	"github.com/whylate/whylate/internal/output/bounded"
	"github.com/whylate/whylate/report"
)

// VerbArgument is the first argument of a child. With it the program runs the verb of whylate that follows.
const VerbArgument = "whylate-verb"

const (
	childTimeout   = 2 * time.Minute  // bounds the run of a child
	lease          = 30 * time.Second // after it, another worker claims the recording of a worker that ended
	maxFailures    = 3                // failed explanations before a recording is poison
	maxDeaths      = 10               // ended workers before their recording is poison
	maxReportBytes = 64 << 20
	idlePause      = 500 * time.Millisecond
)

// A Worker explains recordings in up to MaxChildren children at a time.
type Worker struct {
	Store       *store.Store
	Files       raw.Store
	Log         *slog.Logger
	Metrics     *metrics.Metrics
	MaxChildren int // each with one CPU
	// Exports receive rows and report of each recording before they are stored. With ExportOnly, sums and findings are not
	// stored.
	Exports    []func(ctx context.Context, id string, l rows.Labels, r *rows.Rows, rep *report.Report) error
	ExportOnly bool

	childSlots chan struct{}
	runVerb    func(ctx context.Context, args ...string) ([]byte, error) // RunVerb if nil
}

// Run explains the recordings of the queue until ctx ends.
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

// pause returns after d, or as soon as ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// explainNext claims and explains the next recording of the queue, and ends the claim. It reports whether there was one; a recording that cannot be
// explained is no error.
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
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) { // the storage failed, not the recording
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
	rep.Input.Name = r.ID[:12] + ".whylate" // not the local path
	var folded bool
	recordingRows := rows.FromReport(r.Labels, r.Received, rep)
	if err = w.export(ctx, r, recordingRows, rep); err == nil {
		err = w.saveReport(ctx, r.ID, rep)
	}
	if w.ExportOnly {
		recordingRows = &rows.Rows{Start: recordingRows.Start, DurationNS: recordingRows.DurationNS, Requests: recordingRows.Requests, Cause: recordingRows.Cause, Headroom: recordingRows.Headroom}
	}
	if err == nil {
		folded, err = w.Store.Finish(ctx, r, recordingRows)
	}
	if err != nil { // most likely a full disk, so the recording is not at fault
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

// runExplain explains a recording, whose file is at path, in a child and returns the report as JSON. It waits for one of the slots for children.
// During that time it renews the claim, and it stops when another worker holds the claim.
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
	w.childSlots <- struct{}{} // other claims read files and write rows during the wait
	defer func() { <-w.childSlots }()
	limited, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	run := w.runVerb
	if run == nil {
		run = RunVerb
	}
	return run(limited, "explain", "--json", "--capacity", "--max-memory=512MB", path)
}

// export passes rows and report to all Exports. It skips a recording that already has a report: its rows were exported before,
// and the receivers cannot replace them.
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

// saveReport stores the report, compressed, next to the recording.
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

// VerbCommand returns the command of a child, not yet started, that runs a verb of whylate with one CPU and bounded memory until ctx ends. messages
// receives the beginning of its error output.
func VerbCommand(ctx context.Context, args ...string) (c *exec.Cmd, messages *bounded.Buffer, err error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	c = exec.CommandContext(ctx, executable, append([]string{VerbArgument}, args...)...)
	c.Env = []string{"TMPDIR=" + os.TempDir(), "GOMAXPROCS=1"}
	c.WaitDelay = time.Second
	messages = &bounded.Buffer{Limit: 4 << 10, DropsRest: true}
	c.Stderr = messages
	return c, messages, nil
}

// RunVerb runs a verb of whylate in a child, and returns the child's standard output.
func RunVerb(ctx context.Context, args ...string) ([]byte, error) {
	c, stderr, err := VerbCommand(ctx, args...)
	if err != nil {
		return nil, err
	}
	stdout := &bounded.Buffer{Limit: maxReportBytes}
	c.Stdout = stdout
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("explaining: %w: %s", errors.Join(ctx.Err(), err), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
