package server

import (
	"bytes"
	"net/http"
	"time"
)

// part is how many bytes a client must read within the server's stall: 2 kB a second are enough.
const part = 64 << 10

// pace ends the answer to a client that does not read it. A bound of the whole answer would be too short for a slow client and a
// large file, or too long for a page, so each part has its own.
func (s *Server) pace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &pacedWriter{ResponseWriter: w, control: http.NewResponseController(w), stall: s.stall}
		p.extend() // the connection has the deadline of the answer before
		defer p.extend()
		next.ServeHTTP(p, r)
	})
}

type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
}

// extend sets the deadline of what is written next. A writer without deadlines is a test's.
func (p *pacedWriter) extend() { _ = p.control.SetWriteDeadline(time.Now().Add(p.stall)) }

func (p *pacedWriter) Write(b []byte) (n int, err error) {
	for {
		p.extend()
		m, err := p.ResponseWriter.Write(b[n:min(n+part, len(b))])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// buffer answers when the whole answer is known: a handler that bounds how many it answers at once must not wait for clients that
// read slowly.
func buffer(next http.Handler) http.Handler {
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
