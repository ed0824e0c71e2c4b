// Mailroom sends letters by workers that take them from a channel, each by
// go-resty to another service, which takes 8 ms.
//
// Faults: few (there are two workers for all letters).
package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-resty/resty/v2"

	"shop.example/shops/internal/run"
)

type letter struct {
	to   string
	sent chan error
}

type mailroom struct {
	letters chan letter
	client  *resty.Client
}

func (m *mailroom) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := letter{r.FormValue("to"), make(chan error, 1)}
	m.letters <- l
	if err := <-l.sent; err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	io.WriteString(w, "sent\n")
}

func (m *mailroom) work() {
	for l := range m.letters {
		l.sent <- m.send(l.to)
	}
}

func (m *mailroom) send(to string) error {
	resp, err := m.client.R().SetBody("Dear " + to).Post("http://" + *run.Peer + "/send")
	if err == nil && resp.IsError() {
		err = fmt.Errorf("sending to %s: %s", to, resp.Status())
	}
	return err
}

func main() {
	run.Parse("few")
	run.AnswerAsPeer(8*time.Millisecond, "ok")
	m := &mailroom{make(chan letter), resty.NewWithClient(&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}})}
	workers := 50
	if run.Fault("few") {
		workers = 2
	}
	for range workers {
		go m.work()
	}
	run.ServePath("/letter", m)
}
