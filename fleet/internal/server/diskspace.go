package server

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// reserveStep is how much of the disk a body of unknown length reserves at a time.
const reserveStep = 1 << 20

// diskSpace is what bodies have reserved of the disk and not written yet.
type diskSpace struct {
	mu       sync.Mutex
	reserved int64
}

// A reservation is a body's part of it.
type reservation struct {
	server    *Server
	unwritten int64
}

// reserve reserves bytes of the disk for a body, whose length is known or below 0, as far as it is left free with those of all others.
func (s *Server) reserve(length int64) (*reservation, error) {
	reserved := &reservation{server: s}
	return reserved, reserved.extend(min(max(length, reserveStep), maxFileBytes))
}

func (r *reservation) extend(n int64) error {
	server := r.server
	server.diskSpace.mu.Lock()
	defer server.diskSpace.mu.Unlock()
	free, err := server.Files.FreeBytes()
	if err != nil {
		return err
	}
	if free-server.diskSpace.reserved < server.Bounds.MinFreeBytes+n {
		return refuseWithRetry(http.StatusInsufficientStorage, "disk", time.Minute, "the fleet's disk is nearly full; send it again later")
	}
	server.diskSpace.reserved += n
	r.unwritten += n
	return nil
}

// release gives back what is not written.
func (r *reservation) release() { r.consume(r.unwritten) }

func (r *reservation) consume(n int64) {
	n = min(n, r.unwritten)
	r.server.diskSpace.mu.Lock()
	r.server.diskSpace.reserved -= n
	r.server.diskSpace.mu.Unlock()
	r.unwritten -= n
}

// writer writes within the reservation, and lengthens it where a body is longer: what it unpacks to is not known before.
func (r *reservation) writer(w io.Writer) io.Writer { return &reservedWriter{w, r} }

type reservedWriter struct {
	io.Writer
	reservation *reservation
}

func (w *reservedWriter) Write(p []byte) (int, error) {
	if missing := int64(len(p)) - w.reservation.unwritten; missing > 0 {
		if err := w.reservation.extend(max(missing, reserveStep)); err != nil {
			return 0, err
		}
	}
	n, err := w.Writer.Write(p)
	w.reservation.consume(int64(n))
	return n, err
}
