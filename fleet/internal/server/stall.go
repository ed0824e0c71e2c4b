package server

import (
	"bytes"
	"net/http"
	"time"
)

// maxWriteBytes is the number of bytes that a client must read within the server's readTimeout: 2 kB in a second.
const maxWriteBytes = 64 << 10

// endStalled ends the answer to a client that does not read it. One deadline for the whole answer would be too short for a large
// file and a slow client, and too long for a page. So each write of maxWriteBytes has its own deadline.
func (s *Server) endStalled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &stallWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: s.readTimeout}
		p.extend() // the connection still has the deadline of its previous answer
		defer p.extend()
		next.ServeHTTP(p, r)
	})
}

type stallWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// extend sets the deadline of the next write. A test may use a writer without deadlines.
func (p *stallWriter) extend() { _ = p.control.SetWriteDeadline(time.Now().Add(p.timeout)) }

// Write writes b in parts, each with a new deadline, so a slow client may take long but a stalled one is cut off.
func (p *stallWriter) Write(b []byte) (n int, err error) {
	for {
		p.extend()
		m, err := p.ResponseWriter.Write(b[n:min(n+maxWriteBytes, len(b))])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// Unwrap is called by http.ResponseController.
func (p *stallWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// bufferAnswer returns a handler that keeps the answer of next in memory and writes it when next has returned. A handler that limits its concurrency
// must not wait for a client that reads slowly.
func bufferAnswer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &bufferedWriter{header: w.Header(), status: http.StatusOK}
		next.ServeHTTP(b, r)
		w.WriteHeader(b.status)
		_, _ = w.Write(b.Bytes())
	})
}

type bufferedWriter struct {
	bytes.Buffer
	header http.Header
	status int
}

func (b *bufferedWriter) Header() http.Header    { return b.header }
func (b *bufferedWriter) WriteHeader(status int) { b.status = status }
