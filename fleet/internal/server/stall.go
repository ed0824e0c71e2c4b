package server

import (
	"bytes"
	"net/http"
	"time"
)

// maxWriteBytes is how many bytes a client must read within the server's stall: 2 kB a second are enough.
const maxWriteBytes = 64 << 10

// endStalled ends the answer to a client that does not read it. A bound of the whole answer would be too short for a slow client and a
// large file, or too long for a page, so each part has its own.
func (s *Server) endStalled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &stallWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: s.readTimeout}
		p.extend() // the connection has the deadline of the answer before
		defer p.extend()
		next.ServeHTTP(p, r)
	})
}

type stallWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// extend sets the deadline of what is written next. A writer without deadlines is a test's.
func (p *stallWriter) extend() { _ = p.control.SetWriteDeadline(time.Now().Add(p.timeout)) }

func (p *stallWriter) Write(b []byte) (n int, err error) {
	for {
		p.extend()
		m, err := p.ResponseWriter.Write(b[n:min(n+maxWriteBytes, len(b))])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (p *stallWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// bufferAnswer answers when the whole answer is known: a handler that bounds how many it answers at once must not wait for clients that
// read slowly.
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
