// Dashboard shows a summary that takes 60 ms to make, and keeps it for a short
// while. Everybody who comes meanwhile waits for the same (singleflight).
//
// Faults: expiry (the summary is thrown away after 200 ms and made while
// everybody waits; the healthy twin makes a new one in the background).
package main

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"shop.example/shops/internal/run"
)

type summary struct {
	made time.Time
	text string
}

type dashboard struct {
	flight singleflight.Group
	last   atomic.Pointer[summary]
}

// warehouse asks the data warehouse, which takes 60 ms.
func warehouse() *summary {
	time.Sleep(60 * time.Millisecond)
	return &summary{time.Now(), "42 orders"}
}

func (d *dashboard) current() *summary {
	if s := d.last.Load(); s != nil && (!run.Fault("expiry") || time.Since(s.made) < 200*time.Millisecond) {
		return s
	}
	s, _, _ := d.flight.Do("summary", func() (any, error) {
		s := warehouse()
		d.last.Store(s)
		return s, nil
	})
	return s.(*summary)
}

func (d *dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, d.current().text)
}

func main() {
	run.Parse("expiry")
	d := &dashboard{}
	d.current()
	go func() {
		for range time.Tick(200 * time.Millisecond) {
			if !run.Fault("expiry") {
				d.last.Store(warehouse())
			}
		}
	}()
	run.ServePath("/dashboard", d)
}
