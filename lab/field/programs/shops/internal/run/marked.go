package run

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/whylate/whylate/service/mark"
)

// ListenAndServe serves requests, which are marked if that was asked for.
func ListenAndServe(h http.Handler) error { return http.ListenAndServe(*Listen, Marked(h, nil)) }

// Marked marks the requests that h handles, and logs them, if that was asked
// for. Route is for routers that do not set Request.Pattern.
func Marked(h http.Handler, route func(*http.Request) string) http.Handler {
	if !*marked {
		return h
	}
	logged := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		h.ServeHTTP(w, r)
		end := time.Now()
		name := r.Pattern
		if route != nil {
			name = route(r)
		}
		served.mu.Lock()
		served.list = append(served.list, answer{end, end.Sub(start), r.Method + " " + name})
		served.mu.Unlock()
	})
	if route != nil {
		return mark.Handler(logged, mark.Route(route))
	}
	return mark.Handler(logged)
}

type answer struct {
	end  time.Time
	took time.Duration
	name string
}

var served struct {
	mu   sync.Mutex
	list []answer
}

func tellLog(w io.Writer) {
	served.mu.Lock()
	defer served.mu.Unlock()
	b := bufio.NewWriter(w)
	defer b.Flush()
	for _, a := range served.list {
		fmt.Fprintln(b, "log", a.end.UnixNano(), a.took.Nanoseconds(), a.name)
	}
}
