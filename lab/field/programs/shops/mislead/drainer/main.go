// Drainer has one worker for the jobs that clients hand in. A client does not
// wait for its job, and the worker keeps a pace of 80 a second.
//
// Faults: sleep (clients wait for their job, and the worker rests for 7 ms
// after each).
package main

import (
	"fmt"
	"hash/crc32"
	"net/http"
	"time"

	"shop.example/shops/internal/run"
)

type job struct {
	body []byte
	done chan uint32
}

type drainer struct {
	jobs chan job
	quit chan struct{}
}

func (d *drainer) enqueue(w http.ResponseWriter, r *http.Request) {
	j := job{make([]byte, 200<<10), make(chan uint32, 1)}
	d.jobs <- j
	if run.Fault("sleep") {
		fmt.Fprintln(w, <-j.done)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// work does the jobs.
func (d *drainer) work() {
	pace := time.NewTimer(0)
	for j := range d.jobs {
		if run.Fault("sleep") {
			j.done <- crc32.ChecksumIEEE(j.body)
			d.rest()
			continue
		}
		j.done <- crc32.ChecksumIEEE(j.body)
		pace.Reset(12 * time.Millisecond)
		select {
		case <-pace.C:
		case <-d.quit:
			return
		}
	}
}

// rest lets others have the disk.
func (d *drainer) rest() { time.Sleep(7 * time.Millisecond) }

func main() {
	run.Parse("sleep")
	d := &drainer{make(chan job, 1000), make(chan struct{})}
	http.HandleFunc("/job", d.enqueue)
	go d.work()
	run.ServeRequests(nil)
}
