// Mail delivers what is published on a subject of NATS, whose server is in the
// same process. A request is a letter: from when it is published until it is delivered.
//
// Faults: serial (one subscription handles all messages, one after the other,
// and each takes 4 ms; without it there are sixteen that share them).
package main

import (
	"fmt"
	"log"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"shop.example/shops/internal/run"
)

// deliver hands a letter to the mail server, which takes 4 ms.
func deliver(letter []byte) { time.Sleep(4 * time.Millisecond) }

func handle(m *nats.Msg) {
	deliver(m.Data)
	m.Respond([]byte("delivered"))
}

func split(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(p)
	return host, port, err
}

func main() {
	run.Parse("serial")
	if *run.Load != "" {
		c := run.Must(nats.Connect("nats://" + *run.Load))
		run.Clients(12, 40*time.Millisecond, func(i int) error {
			_, err := c.Request("letters", []byte(fmt.Sprint("letter ", i)), 5*time.Second)
			return err
		})
	}
	host, port, err := split(*run.Listen)
	run.Check(err)
	s := run.Must(server.NewServer(&server.Options{Host: host, Port: port, NoSigs: true}))
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		log.Fatal("the server does not start")
	}
	n := 16
	if run.Fault("serial") {
		n = 1
	}
	c := run.Must(nats.Connect(s.ClientURL()))
	for range n {
		run.Must(c.QueueSubscribe("letters", "mail", handle))
	}
	run.Profiles()
	select {}
}
