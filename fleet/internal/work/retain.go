package work

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/store"
)

// Retention bounds the age and the size of files and rows.
type Retention struct {
	FileAge   time.Duration // recordings and reports
	FileBytes int64         // recordings
	RowAge    time.Duration
}

// orphanAge is the age at which a file without a known recording is removed. By then its sender has long seen an error and sends
// the recording again.
const orphanAge = time.Hour

// CheckFiles returns an error if there are recordings and the store knows none of them. Then the store is empty or belongs to
// another fleet, and retention would remove all files.
func CheckFiles(ctx context.Context, st *store.Store, files raw.Store) error {
	errKnown, unknown := errors.New("known"), 0
	err := files.List(ctx, func(name string, _ time.Time) error {
		if !raw.IsRecordingFile(name) {
			return nil
		}
		r, err := st.Recording(ctx, raw.RecordingID(name))
		if r != nil && err == nil {
			return errKnown
		}
		unknown++
		return err
	})
	if err == nil && unknown > 0 {
		return fmt.Errorf("the store knows none of the recordings that are kept (%d files): it is empty, or another fleet's, and they would be removed. "+
			"Put their store back, such as the copy of whylate-fleet backup, or move the files elsewhere", unknown)
	}
	if errors.Is(err, errKnown) {
		return nil
	}
	return err
}

// Retain calls RetainOnce every five minutes until ctx ends, once an hour with rows and orphans, and logs errors.
func (w *Worker) Retain(ctx context.Context, retention Retention) {
	for round := 0; ctx.Err() == nil; round++ {
		if err := w.RetainOnce(ctx, retention, time.Now(), round%12 == 0); err != nil && ctx.Err() == nil {
			w.Log.Error("retention", "error", err)
		}
		pause(ctx, 5*time.Minute)
	}
}

// RetainOnce removes files that exceed the retention. If withRowsAndOrphans is set, it also removes old rows, and files without
// a known recording, which takes longer.
func (w *Worker) RetainOnce(ctx context.Context, retention Retention, now time.Time, withRowsAndOrphans bool) error {
	for {
		dropped, err := w.Store.DropFiles(ctx, now, retention.FileAge, retention.FileBytes)
		for _, d := range dropped {
			w.Metrics.DroppedFiles.WithLabelValues(d.Reason).Inc()
			// If removing fails here, the file becomes an orphan.
			err = errors.Join(err, w.Files.Remove(ctx, d.ID), w.Files.Remove(ctx, raw.ReportName(d.ID)))
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
	if !withRowsAndOrphans {
		return nil
	}
	err := w.Files.List(ctx, func(name string, changed time.Time) error {
		if now.Sub(changed) < orphanAge || !raw.IsRecordingFile(name) && !raw.IsUnfinished(name) { // another file is the operator's
			return nil
		}
		if isKept, err := w.Store.IsFileKept(ctx, raw.RecordingID(name), now.Sub(changed), retention.FileAge); isKept || err != nil {
			return err
		}
		w.Metrics.DroppedFiles.WithLabelValues("orphan").Inc()
		return w.Files.Remove(ctx, name)
	})
	return errors.Join(err, w.Store.DeleteOldRows(ctx, now, now.Add(-retention.RowAge)))
}
