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

// asked is a recording to be made. If to is set, it is written there and not kept.
type asked struct {
	trigger Trigger
	also    []Trigger
	held    map[Kind]uint64 // all its triggers; nil for KindAsked
	to      io.Writer
	name    string
	err     error
	done    chan struct{} // closed when name and err are set
}

// Capture keeps a recording at once, whatever PerHour and PerDay say. It returns the
// recording's name after it was written and Sink has returned.
func (r *Recorder) Capture(ctx context.Context, reason string) (name string, err error) {
	return r.request(ctx, &asked{trigger: Trigger{Kind: KindAsked, Text: reason, At: time.Now()}, done: make(chan struct{})})
}

// request lets the recorder's goroutine make a recording, and waits for it.
func (r *Recorder) request(ctx context.Context, a *asked) (name string, err error) {
	if r == nil || !supported {
		return "", errors.New("flight: " + r.State().Why)
	}
	to := r.ask
	if a.to != nil {
		to = r.fetch
	}
	select {
	case to <- a:
	case <-ctx.Done():
		return "", ctx.Err()
	case <-r.ctx.Done():
		return "", errors.New("flight: the recorder was stopped")
	}
	select {
	case <-a.done:
		return a.name, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	case <-r.left:
		return "", errors.New("flight: the recorder was stopped, and the sink has not returned")
	}
}

// capture makes a recording. It reports whether the sink is running for it now.
func (r *Recorder) capture(a *asked) (sinking bool) {
	a.err = errors.New("flight: the recorder ended by a panic") // if nothing below sets it
	defer func() {
		if !sinking {
			close(a.done)
		}
	}()
	if !r.rt.enabled() {
		a.err = errors.New("flight: nothing is recorded: " + r.State().Why)
		r.mu.Lock()
		r.lose(a.held)
		r.mu.Unlock()
		return false
	}
	// In UTC, because JSON has no form for some of the zones that time.Local may have.
	a.trigger.At = a.trigger.At.UTC()
	for i := range a.also {
		a.also[i].At = a.also[i].At.UTC()
	}
	r.n++
	a.name = fileName(a.trigger.At, a.trigger.Kind, os.Getpid(), r.n)
	r.mu.Lock()
	missed := maps.Clone(r.missed) // fire changes it while this one is written
	if a.to == nil {
		r.missed = make(map[Kind]uint64)
	}
	r.mu.Unlock()
	age := min(time.Since(r.began), r.opts.MinAge)
	m := &meta{
		Start:   time.Now().UTC().Add(-age),
		AskedNS: int64(r.opts.MinAge), WindowNS: int64(r.opts.MinAge), GotNS: int64(age), Go: runtime.Version(), Host: r.facts,
		Flight: flightMeta{Reason: a.trigger, Also: a.also, Held: a.held, Missed: missed, Service: r.service},
	}
	write := func(w io.Writer) (err error) {
		if err := r.guard.Do("flight: writing a recording", func() { err = writeBundle(w, m, r.writeTrace) }); err != nil {
			return err
		}
		return err
	}
	if a.to != nil {
		a.err = write(a.to)
		return false
	}
	size, made, err := r.keep(a.name, write)
	finish := func(err error) {
		a.err = err
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			for k, n := range missed { // for the next recording
				r.missed[k] += n
			}
			r.fail(err, a.held)
			return
		}
		r.state.Kept++
		r.state.Last, r.state.LastAt, r.state.LastBytes, r.state.LastSnapshot = a.name, a.trigger.At, size, time.Duration(m.Flight.SnapshotNS)
	}
	if err != nil || r.opts.Sink == nil {
		finish(err)
		return false
	}
	r.sinking.Add(1)
	go func() {
		err := errors.New("flight: the sink ended its goroutine")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("flight: the sink panicked: %s", clip(fmt.Sprint(p)))
			}
			if c, ok := made.(io.Closer); ok {
				_ = c.Close() // it was only read
			}
			finish(err)
			close(a.done)
			r.sunk <- struct{}{}
			r.sinking.Done()
		}()
		err = r.opts.Sink(r.ctx, a.name, made)
	}()
	return true
}

// writeTrace writes the runtime's trace, without what Options.Redact hides.
func (r *Recorder) writeTrace(w io.Writer) error {
	if !r.opts.Redact.Hides() {
		_, err := r.rt.writeTo(w)
		return err
	}
	hide := redact.NewWriter(w, r.opts.Redact)
	if _, err := r.rt.writeTo(&guardedWriter{hide, &r.guard}); err != nil {
		return err
	}
	return hide.Close()
}

// A guardedWriter keeps a panic of redact.Options.Allow from the runtime's recorder, which could not be used after it.
type guardedWriter struct {
	io.Writer
	guard *guard.Guard
}

func (g *guardedWriter) Write(p []byte) (n int, err error) {
	if err := g.guard.Do("flight: redact.Options.Allow", func() { n, err = g.Writer.Write(p) }); err != nil {
		return 0, err
	}
	return n, err
}

// keep writes a recording into Dir, or into memory without one, and opens it for the
// sink.
func (r *Recorder) keep(name string, write func(io.Writer) error) (size int64, made io.Reader, err error) {
	if r.opts.Dir == "" {
		var b bytes.Buffer
		err := write(&b)
		return int64(b.Len()), &b, err
	}
	put := func() error {
		if err := os.MkdirAll(r.opts.Dir, 0o700); err != nil {
			return err
		}
		return atomically(r.opts.Dir, name, os.Getpid(), func(f *os.File) error {
			err := write(f)
			if info, serr := f.Stat(); serr == nil {
				size = info.Size()
			}
			return err
		})
	}
	if err = put(); isFull(err) && makeRoom(r.opts.Dir) {
		err = put()
	}
	if err != nil {
		return 0, nil, err
	}
	left, err := tidy(r.opts.Dir, r.opts.MaxDisk, name)
	r.mu.Lock()
	if r.state.DiskBytes = left; err != nil {
		r.state.LastError = err.Error() // the recording is kept all the same
	}
	r.mu.Unlock()
	if r.opts.Sink == nil {
		return size, nil, nil
	}
	made, err = os.Open(filepath.Join(r.opts.Dir, name))
	return size, made, err
}
