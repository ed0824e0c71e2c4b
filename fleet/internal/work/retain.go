package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/store"
)

// Keep says what is kept for how long.
type Keep struct {
	RawAge   time.Duration // recordings and reports
	RawBytes int64         // recordings
	Rows     time.Duration
}

// orphan is how old a file is that no recording is known of, when it is removed: its sender has got no answer long before, and
// sends it again.
const orphan = time.Hour

// CheckFiles returns an error where there are files of recordings and the store knows none of them: it is empty, or another fleet's.
// Retention would remove them all.
func CheckFiles(ctx context.Context, st *store.Store, files raw.Store) error {
	known, unknown := errors.New("known"), 0
	err := files.List(ctx, func(name string, _ time.Time) error {
		if !raw.IsRecordingFile(name) {
			return nil
		}
		r, err := st.Recording(ctx, raw.RecordingID(name))
		if r != nil && err == nil {
			return known
		}
		unknown++
		return err
	})
	if err == nil && unknown > 0 {
		return fmt.Errorf("the store knows none of the recordings that are kept (%d files): it is empty, or another fleet's, and they would be removed. "+
			"Put their store back, such as the copy of whylate-fleet backup, or move the files elsewhere", unknown)
	}
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// Retain removes what is no longer kept, every five minutes, until ctx ends.
func (w *Worker) Retain(ctx context.Context, k Keep) {
	for round := 0; ctx.Err() == nil; round++ {
		if err := w.RetainOnce(ctx, k, time.Now(), round%12 == 0); err != nil && ctx.Err() == nil {
			w.Log.Error("retention", "error", err)
		}
		pause(ctx, 5*time.Minute)
	}
}

// RetainOnce removes what is no longer kept now. What takes long, rows and orphans, is left out unless all is asked for.
func (w *Worker) RetainOnce(ctx context.Context, k Keep, now time.Time, all bool) error {
	for {
		dropped, err := w.Store.Drop(ctx, now, k.RawAge, k.RawBytes)
		for _, d := range dropped {
			w.Metrics.Dropped.WithLabelValues(d.Why).Inc()
			// A file that is left by an error here is an orphan.
			err = errors.Join(err, w.Raw.Remove(ctx, d.ID), w.Raw.Remove(ctx, raw.ReportName(d.ID)))
		}
		if err != nil {
			return err
		}
		if len(dropped) > 0 {
			w.Log.Info("removed recordings that are no longer kept", "number", len(dropped))
			continue
		}
		break
	}
	if !all {
		return nil
	}
	err := w.Raw.List(ctx, func(name string, changed time.Time) error {
		if now.Sub(changed) < orphan || !raw.IsRecordingFile(name) && !raw.IsUnfinished(name) { // the operator's own
			return nil
		}
		if has, err := w.Store.Has(ctx, raw.RecordingID(name), now.Sub(changed), k.RawAge); has || err != nil {
			return err
		}
		w.Metrics.Dropped.WithLabelValues("orphan").Inc()
		return w.Raw.Remove(ctx, name)
	})
	return errors.Join(err, w.Store.Forget(ctx, now, now.Add(-k.Rows)))
}
