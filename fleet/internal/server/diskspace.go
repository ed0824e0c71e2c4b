package server

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// reserveStep is the number of bytes that a body of unknown length reserves at a time.
const reserveStep = 1 << 20

// diskSpace counts the bytes of the disk that are reserved and not yet written.
type diskSpace struct {
	mu       sync.Mutex
	reserved int64
}

// A reservation is one body's share of the reserved bytes.
type reservation struct {
	server    *Server
	unwritten int64
}

// reserve reserves disk space for a body. length is below 0 if unknown. It fails if Bounds.MinFreeBytes would not stay free
// after all reserved bytes are written.
func (s *Server) reserve(length int64) (*reservation, error) {
	reserved := &reservation{server: s}
	return reserved, reserved.extend(min(max(length, reserveStep), maxFileBytes))
}

// extend reserves n more bytes of disk space for the recording, or refuses with status 507 if less than that is free in addition to other
// reservations and the minimum.
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

// release returns the bytes that were not written.
func (r *reservation) release() { r.consume(r.unwritten) }

// consume subtracts n bytes that were written from the reserved ones, at most to 0.
func (r *reservation) consume(n int64) {
	n = min(n, r.unwritten)
	r.server.diskSpace.mu.Lock()
	r.server.diskSpace.reserved -= n
	r.server.diskSpace.mu.Unlock()
	r.unwritten -= n
}

// writer returns a writer that consumes the reservation. It extends the reservation if the body is longer than announced: the
// length after unpacking is unknown in advance.
func (r *reservation) writer(w io.Writer) io.Writer { return &reservedWriter{w, r} }

type reservedWriter struct {
	io.Writer
	reservation *reservation
}

// Write extends the reservation if it does not cover p, and writes p. It fails without writing if the disk has no space for that.
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
