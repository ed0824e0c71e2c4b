// Booking books seats under a lock in Redis, by go-redsync, so that several of
// its kind may run. Another service writes the ticket, which takes 5 ms.
//
// Faults: one (there is one lock for all seats; who does not get it tries again
// after 15 ms).
package main

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"shop.example/shops/internal/run"
)

type booking struct {
	locks  *redsync.Redsync
	client *http.Client
}

func (b *booking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := b.book(r.Context(), r.FormValue("seat")); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "booked\n")
}

func (b *booking) book(ctx context.Context, seat string) error {
	name := "seat " + seat
	if run.Fault("one") {
		name = "seats"
	}
	m := b.locks.NewMutex(name, redsync.WithExpiry(2*time.Second), redsync.WithTries(60), redsync.WithRetryDelay(15*time.Millisecond))
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	defer m.UnlockContext(ctx)
	return b.ticket(seat)
}

func (b *booking) ticket(seat string) error {
	resp, err := b.client.Get("http://" + *run.Peer + "/ticket/" + seat)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func main() {
	run.Parse("one")
	run.AnswerAsPeer(5*time.Millisecond, "ticket")
	b := &booking{redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{Addr: *run.Backend, PoolSize: 50}))), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}}
	run.ServePath("/book", b)
}
