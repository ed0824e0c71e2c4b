package mark

import (
	"net/http"
	"strings"

	"github.com/whylate/whylate/service/internal/guard"
)

// An Option changes what Handler does.
type Option func(*handler)

// Route sets the names of requests for routers that do not set Request.Pattern.
// f is called after the handler has returned. It returns the route's pattern, never
// the path, or "" if it does not know the pattern.
//
//	mark.Handler(r, mark.Route(func(q *http.Request) string { return chi.RouteContext(q.Context()).RoutePattern() }))
func Route(f func(*http.Request) string) Option { return func(h *handler) { h.route = f } }

// Mux gives requests the pattern that mux has for them. It is needed if middleware
// between Handler and mux passes on a copy of the request, so that the original
// does not have the pattern. It costs a second search.
func Mux(mux *http.ServeMux) Option {
	return Route(func(q *http.Request) string {
		_, pattern := mux.Handler(q)
		return pattern
	})
}

// Handler marks every request that next handles. A request's name is its method
// and pattern, "GET /items/{id}", and its status is the class of the response's,
// such as "2xx", or "panic".
//
// Wrap the http.ServeMux itself, or each of its handlers, and put other
// middleware outside: the pattern is read from the same *http.Request that
// the mux is given. See Mux and Route otherwise.
//
// While a trace is recorded, handlers get a ResponseWriter of this package. It
// implements what net/http's own does: Flusher, Hijacker, ReaderFrom, Pusher, and
// Unwrap for http.ResponseController.
func Handler(next http.Handler, opts ...Option) http.Handler {
	h := &handler{next: next}
	for _, o := range opts {
		o(h)
	}
	return h
}

type handler struct {
	next    http.Handler
	route   func(*http.Request) string
	guard   guard.Guard
	endings growingMap[routeKey, ending]
}

type routeKey struct {
	method, pattern string
	class           uint8
}

// An ending has the texts for requests with the same method, pattern and status class.
type ending struct{ text, name, status string }

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !Active() {
		h.next.ServeHTTP(w, r)
		return
	}
	h.serveMarked(w, r)
}

// serveMarked calls the next handler with a mark.
func (h *handler) serveMarked(w http.ResponseWriter, r *http.Request) {
	traceparent := ""
	if v := r.Header["Traceparent"]; len(v) == 1 {
		traceparent = v[0]
	}
	name := ""
	if r.Pattern != "" {
		name = routeName(r.Method, r.Pattern)
	}
	// The writer is wrapped before the mark begins, so that the mark excludes it.
	status, wrapped := wrap(w)
	m := begin(HTTP, name, traceparent)
	class := uint8(classPanic)
	defer func() {
		e := h.endingOf(r, class)
		m.end(e.text, e.name, e.status)
	}()
	h.next.ServeHTTP(wrapped, r)
	class = status.class()
}

const classPanic = 6

var classes = [...]string{"unknown", "1xx", "2xx", "3xx", "4xx", "5xx", Panic}

// endingOf returns the encoded texts for a finished request with a status of this class (2 of 2xx), from the map or new.
func (h *handler) endingOf(r *http.Request, class uint8) *ending {
	pattern := r.Pattern
	if pattern == "" && h.route != nil {
		// Without a trace it is not called, so a panic in it must not end requests while one is recorded.
		_ = h.guard.Do("mark.Route", func() { pattern = h.route(r) })
	}
	k := routeKey{r.Method, pattern, class}
	if e := h.endings.get(slotNumber(k.pattern)+3*slotNumber(k.method)+uint(class), k); e != nil {
		return e
	}
	return h.addEnding(k)
}

// addEnding returns the texts for a new key, and stores them unless the map is closed. If another goroutine has stored some since, it returns those.
func (h *handler) addEnding(k routeKey) *ending {
	name := routeName(k.method, k.pattern)
	e := &ending{markTexts.endText(HTTP, name, classes[k.class]), name, classes[k.class]}
	if h.endings.closed.Load() {
		return e
	}
	h.endings.mu.Lock()
	defer h.endings.mu.Unlock()
	if existing := h.endings.getAdded(k); existing != nil {
		return existing
	}
	k.method, k.pattern = strings.Clone(k.method), strings.Clone(k.pattern)
	h.endings.add(k, *e, maxTexts)
	return e
}

// routeName returns the method and the pattern. Methods that HTTP does not define get
// one name, because clients may send any word.
func routeName(method, pattern string) string {
	if strings.IndexByte(pattern, ' ') > 0 {
		return pattern // it names the method itself
	}
	switch method {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE":
	case "":
		method = "GET"
	default:
		method = "(other method)"
	}
	if pattern == "" {
		pattern = "(no route)"
	}
	return method + " " + pattern
}
