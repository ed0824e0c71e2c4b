package server

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// step is how much of the disk a body of unknown length reserves at a time.
const step = 1 << 20

// space is what bodies have reserved of the disk and not written yet.
type space struct {
	mu       sync.Mutex
	reserved int64
}

// A reservation is a body's part of it.
type reservation struct {
	s    *Server
	left int64
}

// reserve reserves bytes of the disk for a body, whose length is known or below 0, as far as it is left free with those of all others.
func (s *Server) reserve(length int64) (*reservation, error) {
	r := &reservation{s: s}
	return r, r.more(min(max(length, step), maxFile))
}

func (r *reservation) more(n int64) error {
	s := r.s
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	room, err := s.Raw.FreeBytes()
	if err != nil {
		return err
	}
	if room-s.space.reserved < s.Bounds.Room+n {
		return later(http.StatusInsufficientStorage, "disk", time.Minute, "the fleet's disk is nearly full; send it again later")
	}
	s.space.reserved += n
	r.left += n
	return nil
}

// release gives back what is not written.
func (r *reservation) release() { r.written(r.left) }

func (r *reservation) written(n int64) {
	n = min(n, r.left)
	r.s.space.mu.Lock()
	r.s.space.reserved -= n
	r.s.space.mu.Unlock()
	r.left -= n
}

// writer writes within the reservation, and lengthens it where a body is longer: what it unpacks to is not known before.
func (r *reservation) writer(w io.Writer) io.Writer { return &reservedWriter{w, r} }

type reservedWriter struct {
	io.Writer
	r *reservation
}

func (w *reservedWriter) Write(p []byte) (int, error) {
	if missing := int64(len(p)) - w.r.left; missing > 0 {
		if err := w.r.more(max(missing, step)); err != nil {
			return 0, err
		}
	}
	n, err := w.Writer.Write(p)
	w.r.written(int64(n))
	return n, err
}
