package flight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/whylate/whylate/service/internal/guard"
	"github.com/whylate/whylate/service/redact"
)

// A captureRequest asks the recorder's goroutine for a recording. With dst the recording is
// written there and not kept.
type captureRequest struct {
	trigger       Trigger
	otherTriggers []Trigger
	heldCounts    map[Kind]uint64 // its triggers by kind; nil for KindAsked
	dst           io.Writer
	name          string
	err           error
	done          chan struct{} // closed after name and err were set
}

// Capture keeps a recording at once; PerHour and PerDay do not apply. It returns the
// recording's name after the recording was written and Sink has returned.
func (r *Recorder) Capture(ctx context.Context, reason string) (name string, err error) {
	return r.requestCapture(ctx, &captureRequest{trigger: Trigger{Kind: KindAsked, Text: reason, At: time.Now()}, done: make(chan struct{})})
}

// requestCapture passes req to the recorder's goroutine and blocks until the recording is written and Sink has returned, until ctx ends, or until the
// recorder is stopped. name is that of the recording.
func (r *Recorder) requestCapture(ctx context.Context, req *captureRequest) (name string, err error) {
	if r == nil || !supported {
		return "", errors.New("flight: " + r.State().Why)
	}
	requests := r.captures
	if req.dst != nil {
		requests = r.fetchRequests
	}
	select {
	case requests <- req:
	case <-ctx.Done():
		return "", ctx.Err()
	case <-r.ctx.Done():
		return "", errors.New("flight: the recorder was stopped")
	}
	select {
	case <-req.done:
		return req.name, req.err
	case <-ctx.Done():
		return "", ctx.Err()
	case <-r.sinkAbandoned:
		return "", errors.New("flight: the recorder was stopped, and the sink has not returned")
	}
}

// capture writes a recording, to req.dst if that is set, and sets req.name and req.err. If sinking is true, Sink is still running, and req is
// completed (req.done is closed) when Sink returns, otherwise when capture returns.
func (r *Recorder) capture(req *captureRequest) (sinking bool) {
	req.err = errors.New("flight: the recorder ended by a panic") // replaced below unless a panic prevents it
	defer func() {
		if !sinking {
			close(req.done)
		}
	}()
	if !r.ring.enabled() {
		req.err = errors.New("flight: nothing is recorded: " + r.State().Why)
		r.mu.Lock()
		r.countMissed(req.heldCounts)
		r.mu.Unlock()
		return false
	}
	// JSON cannot represent some zones that time.Local may have.
	req.trigger.At = req.trigger.At.UTC()
	for i := range req.otherTriggers {
		req.otherTriggers[i].At = req.otherTriggers[i].At.UTC()
	}
	r.recordings++
	req.name = fileName(req.trigger.At, req.trigger.Kind, os.Getpid(), r.recordings)
	r.mu.Lock()
	missed := maps.Clone(r.missedSinceLast) // fire changes it while this recording is written
	if req.dst == nil {
		r.missedSinceLast = make(map[Kind]uint64)
	}
	r.mu.Unlock()
	age := min(time.Since(r.ringStarted), r.opts.MinAge)
	meta := &recordingMeta{
		Start:   time.Now().UTC().Add(-age),
		AskedNS: int64(r.opts.MinAge), WindowNS: int64(r.opts.MinAge), GotNS: int64(age), Go: runtime.Version(), Host: r.hostFacts,
		Flight: flightMeta{Reason: req.trigger, OtherTriggers: req.otherTriggers, HeldCounts: req.heldCounts, MissedCounts: missed, Service: r.service},
	}
	write := func(w io.Writer) (err error) {
		if err := r.guard.Do("flight: writing a recording", func() { err = writeBundle(w, meta, r.writeTrace) }); err != nil {
			return err
		}
		return err
	}
	if req.dst != nil {
		req.err = write(req.dst)
		return false
	}
	size, recording, err := r.storeRecording(req.name, write)
	finish := func(err error) {
		req.err = err
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			for k, n := range missed { // the next recording reports them
				r.missedSinceLast[k] += n
			}
			r.noteFailure(err, req.heldCounts)
			return
		}
		r.state.Kept++
		r.state.Last, r.state.LastAt, r.state.LastBytes, r.state.LastSnapshot = req.name, req.trigger.At, size, time.Duration(meta.Flight.SnapshotNS)
	}
	if err != nil || r.opts.Sink == nil {
		finish(err)
		return false
	}
	r.sinkCalls.Add(1)
	go func() {
		err := errors.New("flight: the sink ended its goroutine")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("flight: the sink panicked: %s", clip(fmt.Sprint(p)))
			}
			if c, ok := recording.(io.Closer); ok {
				_ = c.Close() // the file was only read
			}
			finish(err)
			close(req.done)
			r.sinkDone <- struct{}{}
			r.sinkCalls.Done()
		}()
		err = r.opts.Sink(r.ctx, req.name, recording)
	}()
	return true
}

// writeTrace writes the runtime's trace, redacted as Options.Redact says.
func (r *Recorder) writeTrace(w io.Writer) error {
	if !r.opts.Redact.Hides() {
		_, err := r.ring.writeTo(w)
		return err
	}
	hide := redact.NewWriter(w, r.opts.Redact)
	if _, err := r.ring.writeTo(&guardedWriter{hide, &r.guard}); err != nil {
		return err
	}
	return hide.Close()
}

// A guardedWriter turns a panic of redact.Options.Allow into an error. The panic would leave the runtime's recorder unusable.
type guardedWriter struct {
	io.Writer
	guard *guard.Guard
}

// Write writes p; a panic, of a function in the service's options, becomes an error.
func (g *guardedWriter) Write(p []byte) (n int, err error) {
	if err := g.guard.Do("flight: redact.Options.Allow", func() { n, err = g.Writer.Write(p) }); err != nil {
		return 0, err
	}
	return n, err
}

// storeRecording writes a recording into Dir, or into memory if there is no Dir, and opens it for Sink; recording is nil with a Dir and no Sink. size
// is in bytes. If the disk is full, it deletes earlier recordings and repeats the write once.
func (r *Recorder) storeRecording(name string, write func(io.Writer) error) (size int64, recording io.Reader, err error) {
	if r.opts.Dir == "" {
		var b bytes.Buffer
		err := write(&b)
		return int64(b.Len()), &b, err
	}
	writeFile := func() error {
		if err := os.MkdirAll(r.opts.Dir, 0o700); err != nil {
			return err
		}
		return writeAtomically(r.opts.Dir, name, os.Getpid(), func(f *os.File) error {
			err := write(f)
			if info, serr := f.Stat(); serr == nil {
				size = info.Size()
			}
			return err
		})
	}
	if err = writeFile(); isFull(err) && makeRoom(r.opts.Dir) {
		err = writeFile()
	}
	if err != nil {
		return 0, nil, err
	}
	diskBytes, err := enforceBudget(r.opts.Dir, r.opts.MaxDisk, name)
	r.mu.Lock()
	if r.state.DiskBytes = diskBytes; err != nil {
		r.state.LastError = err.Error() // the recording was kept nevertheless
	}
	r.mu.Unlock()
	if r.opts.Sink == nil {
		return size, nil, nil
	}
	recording, err = os.Open(filepath.Join(r.opts.Dir, name))
	return size, recording, err
}
