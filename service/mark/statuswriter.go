//lint:file-ignore SA1019 handlers may still use http.CloseNotifier, which a wrapped writer must implement

package mark

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// statusWriter keeps a response's status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader keeps the status, unless it is informational.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteString implements io.StringWriter.
func (w *statusWriter) WriteString(s string) (int, error) { return io.WriteString(w.ResponseWriter, s) }

// class returns the first digit of the status, 0 for one outside of 100 to 599. Without a call of WriteHeader the status is 200.
func (w *statusWriter) class() uint8 {
	switch {
	case w.status == 0:
		return 2
	case w.status < 100 || w.status > 599:
		return 0
	}
	return uint8(w.status / 100)
}

// Handlers use further methods of a ResponseWriter by type assertion. The wrapper must
// have the same methods as the server's writer: with fewer, io.Copy would not use
// sendfile and a WebSocket would fail.
type (
	http1Writer struct{ *statusWriter }
	http2Writer struct{ *statusWriter }
	flushWriter struct{ *statusWriter }
)

// closeNotifier has the method of http.CloseNotifier, which is deprecated, but
// frameworks still ask for it, some without a check.
type closeNotifier interface{ CloseNotify() <-chan bool }

type http1Server interface {
	http.Flusher
	http.Hijacker
	io.ReaderFrom
	closeNotifier
}

type http2Server interface {
	http.Flusher
	http.Pusher
	closeNotifier
}

// wrap returns a writer that passes everything to w and keeps the status, and the same as a ResponseWriter with the optional methods (Flush,
// Hijack...) that w has.
func wrap(w http.ResponseWriter) (*statusWriter, http.ResponseWriter) {
	inner := &statusWriter{ResponseWriter: w}
	switch w.(type) {
	case http1Server:
		return inner, http1Writer{inner}
	case http2Server:
		return inner, http2Writer{inner}
	case http.Flusher:
		return inner, flushWriter{inner}
	}
	return inner, inner
}

func (w http1Writer) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

// Hijack takes over the connection; the request's status then is 101 unless a status was
// written before.
func (w http1Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols // the connection now has another protocol
	}
	return conn, rw, err
}

func (w http1Writer) ReadFrom(r io.Reader) (int64, error) {
	return w.ResponseWriter.(io.ReaderFrom).ReadFrom(r)
}

func (w http1Writer) CloseNotify() <-chan bool { return closeNotify(w.ResponseWriter) }

func (w http2Writer) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func (w http2Writer) Push(target string, opts *http.PushOptions) error {
	return w.ResponseWriter.(http.Pusher).Push(target, opts)
}

func (w http2Writer) CloseNotify() <-chan bool { return closeNotify(w.ResponseWriter) }

func (w flushWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func closeNotify(w http.ResponseWriter) <-chan bool {
	return w.(closeNotifier).CloseNotify()
}
