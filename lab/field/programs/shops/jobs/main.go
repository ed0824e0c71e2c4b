// Jobs runs forty reports every second, by robfig/cron. A request is the run
// of a job.
//
// Faults: lock (the reports share one connection: a lock is held while one is
// sent, which takes 10 ms).
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"shop.example/shops/internal/run"
)

type mailer struct {
	mu sync.Mutex
}

// send takes 10 ms for a report.
func (m *mailer) send(report []byte) {
	if run.Fault("lock") {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	time.Sleep(10 * time.Millisecond)
}

// report makes a report and sends it.
func (m *mailer) report(customer int) {
	start := time.Now()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i := range 500 {
		fmt.Fprintf(z, "customer %d bought %d\n", customer, i*customer)
	}
	z.Close()
	m.send(b.Bytes())
	run.Took(start, nil)
}

func main() {
	run.Parse("lock")
	m := &mailer{}
	c := cron.New()
	for customer := range 40 {
		run.Must(c.AddFunc("@every 1s", func() { m.report(customer) }))
	}
	run.Profiles()
	c.Run()
}
