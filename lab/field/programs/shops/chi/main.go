// Chi is a shop behind go-chi/chi with its usual middleware and two wrappers
// of its own. All pages are behind one handler that switches by path.
//
// Faults: lock (the price list is locked for 3 ms while an order is saved, and
// everybody who asks for a price waits).
package main

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"shop.example/shops/internal/run"
)

type shop struct {
	mu     sync.RWMutex
	prices map[string]int
	taken  atomic.Int64
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch chi.URLParam(r, "page") {
	case "price":
		fmt.Fprintln(w, s.price(r.FormValue("item")))
	case "order":
		s.order(r.FormValue("item"))
		fmt.Fprintln(w, "ok")
	default:
		http.NotFound(w, r)
	}
}

func (s *shop) price(item string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.prices[item]
}

// order raises the price of what is wanted.
func (s *shop) order(item string) {
	s.mu.Lock()
	s.prices[item]++
	if run.Fault("lock") {
		save()
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	save()
}

// save stands for a write that takes 3 ms.
func save() { time.Sleep(3 * time.Millisecond) }

// counted counts requests.
func (s *shop) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.taken.Add(1)
		next.ServeHTTP(w, r)
	})
}

// signed puts a name into every answer.
func signed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "shop")
		next.ServeHTTP(w, r)
	})
}

func main() {
	run.Parse("lock")
	s := &shop{prices: map[string]int{}}
	r := chi.NewRouter()
	r.Use(middleware.RequestID, middleware.RealIP, middleware.Recoverer, middleware.Timeout(time.Minute), s.counted, signed)
	r.Get("/{page}", s.ServeHTTP)
	// All pages have one pattern.
	run.ServeRequests(r)
}
