// Frames has a protocol of its own: frames of a number and a length, many under
// way on one connection, each handled by a goroutine.
//
// Faults: slow (a frame's name is looked up, which takes 9 ms).
package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"shop.example/shops/internal/run"
)

type session struct {
	conn net.Conn
	mu   sync.Mutex // of writing
}

func read(r io.Reader) (id uint32, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint32(head[4:]))
	_, err = io.ReadFull(r, body)
	return binary.BigEndian.Uint32(head[:]), body, err
}

func frame(id uint32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, id)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(body))), body...)
}

func (s *session) loop() {
	defer s.conn.Close()
	for r := bufio.NewReader(s.conn); ; {
		id, body, err := read(r)
		if err != nil {
			return
		}
		go s.handle(id, body)
	}
}

func (s *session) handle(id uint32, body []byte) {
	name := lookup(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn.Write(frame(id, name))
}

func lookup(body []byte) []byte {
	if run.Fault("slow") {
		time.Sleep(9 * time.Millisecond)
	}
	return append(body, '!')
}

func main() {
	run.Parse("slow")
	if *run.Load != "" {
		type half struct {
			c  net.Conn
			mu sync.Mutex
			at map[uint32]chan []byte
			n  uint32
		}
		c := run.Must(net.Dial("tcp", *run.Load))
		h := &half{c: c, at: map[uint32]chan []byte{}}
		go func() {
			for r := bufio.NewReader(c); ; {
				id, body, err := read(r)
				if err != nil {
					return
				}
				h.mu.Lock()
				h.at[id] <- body
				delete(h.at, id)
				h.mu.Unlock()
			}
		}()
		run.Clients(5, 25*time.Millisecond, func(int) error {
			answer := make(chan []byte, 1)
			h.mu.Lock()
			h.n++
			h.at[h.n] = answer
			h.c.Write(frame(h.n, []byte("name")))
			h.mu.Unlock()
			<-answer
			return nil
		})
	}
	l := run.Must(net.Listen("tcp", *run.Listen))
	run.Profiles()
	for {
		c := run.Must(l.Accept())
		go (&session{conn: c}).loop()
	}
}
