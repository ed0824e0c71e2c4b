// Lobby is a protocol of lines: "say" is answered at once, "wait" when
// somebody has said something, or after some time.
package main

import (
	"math/rand/v2"
	"sync"
	"time"

	"shop.example/shops/internal/run"
	"shop.example/shops/mislead/wire"
)

type lobby struct {
	mu   sync.Mutex
	next chan struct{} // closed when something is said
}

func (l *lobby) wait() string {
	l.mu.Lock()
	next := l.next
	l.mu.Unlock()
	select {
	case <-next:
		return "said"
	case <-time.After(700 * time.Millisecond):
		return "nothing"
	}
}

func (l *lobby) say() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.next)
	l.next = make(chan struct{})
	return "ok"
}

func (l *lobby) serve(line string) string {
	if line == "say" {
		return l.say()
	}
	return l.wait()
}

func main() {
	run.Parse()
	if *run.Load != "" {
		var conns []*wire.Conn
		for range 21 {
			conns = append(conns, wire.Dial(*run.Load))
		}
		for _, c := range conns[:20] {
			go func() {
				for {
					run.Must(c.Ask("wait"))
				}
			}()
		}
		run.Clients(1, time.Millisecond, func(int) error {
			time.Sleep(time.Duration(150+rand.IntN(600)) * time.Millisecond)
			_, err := conns[20].Ask("say")
			return err
		})
	}
	l := &lobby{next: make(chan struct{})}
	run.Profiles()
	wire.Serve(*run.Listen, l.serve)
}
