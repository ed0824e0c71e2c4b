package main

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// messageStream answers each message of a stream, which has the ids of the calls that it is for.
var messageStream = grpc.StreamDesc{
	StreamName: "Messages", ServerStreams: true, ClientStreams: true,
	Handler: func(srv any, stream grpc.ServerStream) error {
		for {
			ids := new(wrapperspb.StringValue)
			if err := stream.RecvMsg(ids); err != nil {
				return err
			}
			if err := srv.(shopServer).call(ids.GetValue()); err != nil {
				return err
			}
			if err := stream.SendMsg(ids); err != nil {
				return err
			}
		}
	},
}

// A messenger makes the calls of a service to another one by one long stream: a goroutine sends all calls that wait in one message,
// as the client of PD does for timestamps, and another one receives the answers.
type messenger struct {
	calls chan messageCall
	sent  chan []messageCall
	slots chan struct{} // of messages without an answer
}

type messageCall struct {
	id   string
	done chan error
}

func newMessenger(conn *grpc.ClientConn, flying int) *messenger {
	m := &messenger{make(chan messageCall, 1000), make(chan []messageCall, flying), make(chan struct{}, flying)}
	go m.run(conn)
	return m
}

func (m *messenger) call(id string) error {
	c := messageCall{id, make(chan error, 1)}
	m.calls <- c
	return <-c.done
}

func (m *messenger) run(conn *grpc.ClientConn) {
	for {
		stream, err := conn.NewStream(context.Background(), &messageStream, "/shop.Shop/Messages")
		if err != nil {
			time.Sleep(10 * time.Millisecond) // the server may not be there yet
			continue
		}
		go m.receive(stream)
		m.send(stream)
		return
	}
}

func (m *messenger) send(stream grpc.ClientStream) {
	for {
		m.slots <- struct{}{}
		first := <-m.calls
		batch, ids := []messageCall{first}, first.id
		for range len(m.calls) {
			c := <-m.calls
			batch, ids = append(batch, c), ids+" "+c.id
		}
		m.sent <- batch
		if stream.SendMsg(wrapperspb.String(ids)) != nil {
			return
		}
	}
}

func (m *messenger) receive(stream grpc.ClientStream) {
	for {
		answer := new(wrapperspb.StringValue)
		err := stream.RecvMsg(answer)
		batch := <-m.sent
		if err == nil && len(strings.Fields(answer.GetValue())) != len(batch) {
			panic("an answer is for another message")
		}
		for _, c := range batch {
			c.done <- err
		}
		if err != nil {
			return
		}
		<-m.slots
	}
}
