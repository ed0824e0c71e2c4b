// Chat sends what one says to all in the room, over WebSockets. A request is a
// message: from when it is sent until its sender has it back.
//
// Faults: slow (a member reads slowly, and the room is locked while a message
// is written to everybody).
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"shop.example/shops/internal/run"
)

type member struct {
	conn *websocket.Conn
	out  chan []byte // what the member's writer has to send; without the fault
}

type room struct {
	mu      sync.Mutex
	members map[*member]bool
}

// broadcast sends a message to everybody.
func (r *room) broadcast(message []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for m := range r.members {
		if run.Fault("slow") {
			m.conn.WriteMessage(websocket.TextMessage, message)
			continue
		}
		select {
		case m.out <- message:
		default: // too slow: the message is lost for this member
		}
	}
}

func (m *member) write() {
	for message := range m.out {
		m.conn.WriteMessage(websocket.TextMessage, message)
	}
}

var upgrader = websocket.Upgrader{WriteBufferSize: 4096}

func (r *room) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	conn, err := upgrader.Upgrade(w, req, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	conn.NetConn().(*net.TCPConn).SetWriteBuffer(128 << 10) // so that slow members do not fill the kernel's memory
	m := &member{conn, make(chan []byte, 64)}
	go m.write()
	r.mu.Lock()
	r.members[m] = true
	r.mu.Unlock()
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			break
		}
		r.broadcast(message)
	}
	r.mu.Lock()
	delete(r.members, m)
	r.mu.Unlock()
	close(m.out)
}

func dial() *websocket.Conn {
	conn, _, err := (&websocket.Dialer{}).Dial("ws://"+*run.Load+"/room", nil)
	run.Check(err)
	return conn
}

// lazy reads four messages and then nothing for a while, again and again.
func lazy() {
	conn := dial()
	conn.UnderlyingConn().(interface{ SetReadBuffer(int) error }).SetReadBuffer(256 << 10)
	for i := 0; ; i++ {
		if _, _, err := conn.ReadMessage(); err != nil {
			log.Fatal(err)
		}
		if i%4 == 0 {
			time.Sleep(25 * time.Millisecond)
		}
	}
}

// talker says something and waits until it hears that itself.
type talker struct {
	conn *websocket.Conn
	name string
	back chan error
}

func (t *talker) say() error {
	if err := t.conn.WriteMessage(websocket.TextMessage, []byte(t.name+strings.Repeat(" bla", 1000))); err != nil {
		return err
	}
	return <-t.back
}

func (t *talker) listen() {
	for {
		_, message, err := t.conn.ReadMessage()
		if err != nil || strings.HasPrefix(string(message), t.name+" ") {
			t.back <- err
		}
		if err != nil {
			return
		}
	}
}

func main() {
	run.Parse("slow")
	if *run.Load != "" {
		go lazy()
		const talkers = 6
		var talk [talkers]*talker
		for i := range talk {
			talk[i] = &talker{conn: dial(), name: fmt.Sprint("talker ", i), back: make(chan error)}
			go talk[i].listen()
		}
		run.Clients(talkers, 20*time.Millisecond, func(i int) error { return talk[i].say() })
	}
	run.ServePath("/room", &room{members: map[*member]bool{}})
}
