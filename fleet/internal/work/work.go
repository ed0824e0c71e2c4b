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

// VerbArg makes the program one of whylate's verbs; the worker starts it so.
const VerbArg = "whylate-verb"

const (
	timeout   = 2 * time.Minute  // of a child
	lease     = 30 * time.Second // a recording whose worker is gone is taken again after it
	tries     = 3                // that a recording makes an explanation fail
	deaths    = 10               // of its workers, before it is held to be the reason
	maxReport = 64 << 20
	idle      = 500 * time.Millisecond
)

// A Worker explains.
type Worker struct {
	Store   *store.Store
	Raw     raw.Store
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Number  int // of children at the same time, each with one CPU
	// Export gets the rows and the report of each recording before they are kept; with ExportOnly the rows are not kept.
	Export     []func(ctx context.Context, id string, l rows.Labels, r *rows.Rows, rep *report.Report) error
	ExportOnly bool

	children chan struct{}
}

// Run explains what waits in the queue until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	var all sync.WaitGroup
	w.children = make(chan struct{}, w.Number)
	for range w.Number * w.Store.Depth() {
		all.Go(func() {
			for ctx.Err() == nil {
				found, err := w.once(ctx)
				if err != nil && ctx.Err() == nil {
					w.Log.Error("work", "error", err)
				}
				if !found || err != nil {
					pause(ctx, idle)
				}
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			if err := w.Store.Roll(ctx, time.Now()); err != nil && ctx.Err() == nil {
				w.Log.Error("adding up", "error", err)
			}
			pause(ctx, 5*time.Second)
		}
	})
	all.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// once explains one recording, if one waits.
func (w *Worker) once(ctx context.Context) (found bool, err error) {
	r, err := w.Store.Claim(ctx, time.Now(), lease)
	if r == nil || err != nil {
		return false, err
	}
	log := w.Log.With("recording", r.ID, "service", r.Service, "version", r.Version)
	begin := time.Now()
	fail := func(poison bool, why error) error {
		outcome := "failed"
		if poison {
			outcome = "poison"
		}
		w.Metrics.Explained.WithLabelValues(outcome).Inc()
		log.Warn("not explained", "try", r.Tries, "poison", poison, "error", why)
		return w.Store.Fail(ctx, r, poison, why.Error())
	}
	if r.Tries > deaths {
		return true, fail(true, errors.New("its workers died"))
	}
	path, release, err := w.Raw.LocalPath(ctx, r.ID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid) { // no fault of the recording's
		return true, errors.Join(fmt.Errorf("its file: %w", err), w.Store.Release(context.WithoutCancel(ctx), r))
	}
	var body []byte
	if err == nil {
		body, err = w.explain(ctx, r, path)
		release()
	}
	if ctx.Err() != nil {
		return true, w.Store.Release(context.WithoutCancel(ctx), r)
	}
	if err != nil {
		return true, fail(r.Tries >= tries, err)
	}
	rep, err := report.ReadJSON(bytes.NewReader(body))
	if err != nil {
		return true, fail(r.Tries >= tries, err)
	}
	rep.Input.Name = r.ID[:12] + ".whylate" // not where the file lies here
	var folded bool
	add := rows.FromReport(r.Labels, r.Received, rep)
	if err = w.export(ctx, r, add, rep); err == nil {
		err = w.keep(ctx, r.ID, rep)
	}
	if w.ExportOnly {
		add = &rows.Rows{Start: add.Start, DurationNS: add.DurationNS, Requests: add.Requests, Cause: add.Cause}
	}
	if err == nil {
		folded, err = w.Store.Finish(ctx, r, add)
	}
	if err != nil { // a full disk, most likely: no fault of the recording's
		return true, errors.Join(fmt.Errorf("keeping rows and report: %w", err), w.Store.Release(context.WithoutCancel(ctx), r))
	}
	if folded {
		w.Metrics.Folded.Inc()
		log.Warn("the service has too many versions, environments, pods, nodes and groups, or findings; new ones are counted as (other)", "most", store.MaxSeries, "findings", store.MaxProblems)
	}
	w.Metrics.Explained.WithLabelValues("done").Inc()
	w.Metrics.Explaining.Observe(time.Since(begin).Seconds())
	log.Info("explained", "findings", len(rep.Findings), "took", time.Since(begin).Round(time.Millisecond))
	return true, nil
}

// explain runs the verb, and holds the claim meanwhile.
func (w *Worker) explain(ctx context.Context, r *store.Recording, path string) ([]byte, error) {
	var renewing sync.WaitGroup
	defer renewing.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	renewing.Go(func() {
		for ctx.Err() == nil {
			pause(ctx, lease/4)
			if held, err := w.Store.Renew(ctx, r, time.Now().Add(lease)); err == nil && !held {
				end()
			}
		}
	})
	w.children <- struct{}{} // others meanwhile get files and write rows
	defer func() { <-w.children }()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return Verb(limited, "explain", "--json", "--max-memory=512MB", path)
}

// export hands rows on, unless the recording has a report already: its rows were, and sums elsewhere cannot be replaced.
func (w *Worker) export(ctx context.Context, r *store.Recording, add *rows.Rows, rep *report.Report) error {
	if len(w.Export) == 0 {
		return nil
	}
	f, err := w.Raw.Open(ctx, raw.ReportName(r.ID))
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, send := range w.Export {
		if err := send(ctx, r.ID, r.Labels, add, rep); err != nil {
			return err
		}
	}
	return nil
}

// keep keeps the report of a recording beside it.
func (w *Worker) keep(ctx context.Context, id string, rep *report.Report) error {
	f, err := w.Raw.CreateTemp()
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
	return w.Raw.Save(ctx, f, raw.ReportName(id))
}

// Verb runs one of whylate's verbs in a child with bounds of memory and one CPU, and returns what it printed.
func Verb(ctx context.Context, args ...string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, self, append([]string{VerbArg}, args...)...)
	c.Env = []string{"TMPDIR=" + os.TempDir(), "GOMAXPROCS=1"}
	c.WaitDelay = time.Second
	out, said := &bounded{max: maxReport}, &bounded{max: 4 << 10}
	c.Stdout, c.Stderr = out, said
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("explaining: %w: %s", errors.Join(ctx.Err(), err), said.Bytes())
	}
	return out.Bytes(), nil
}

// A bounded buffer takes no more than max bytes.
type bounded struct {
	bytes.Buffer
	max int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.max {
		return 0, errors.New("too much output")
	}
	return b.Buffer.Write(p)
}
