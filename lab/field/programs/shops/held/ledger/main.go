// Ledger writes orders into bbolt behind gorilla/mux.
//
// Faults: held (the one read-write transaction of the database is held while
// another service is asked for a number, which takes 7 ms).
//
// The database does not wait for the disk, fault or not, so that the disk is
// not what it is about.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/gorilla/mux"
	"go.etcd.io/bbolt"

	"shop.example/shops/internal/run"
)

type ledger struct {
	db     *bbolt.DB
	client *http.Client
}

func (l *ledger) order(w http.ResponseWriter, r *http.Request) {
	if err := l.book(mux.Vars(r)["item"]); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	io.WriteString(w, "booked\n")
}

func (l *ledger) book(item string) error {
	if !run.Fault("held") {
		number, err := l.number()
		if err != nil {
			return err
		}
		return l.db.Update(func(tx *bbolt.Tx) error { return put(tx, number, item) })
	}
	return l.db.Update(func(tx *bbolt.Tx) error {
		number, err := l.number()
		if err != nil {
			return err
		}
		return put(tx, number, item)
	})
}

func put(tx *bbolt.Tx, number, item string) error {
	b, err := tx.CreateBucketIfNotExists([]byte("orders"))
	if err != nil {
		return err
	}
	return b.Put([]byte(number), []byte(item))
}

// number asks the other service for an order's number.
func (l *ledger) number() (string, error) {
	resp, err := l.client.Get("http://" + *run.Peer + "/number")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func main() {
	run.Parse("held")
	if *run.AsPeer {
		log.Fatal(http.ListenAndServe(*run.Listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(7 * time.Millisecond)
			fmt.Fprint(w, time.Now().UnixNano())
		})))
	}
	dir := run.Must(os.MkdirTemp(".", "ledger"))
	db := run.Must(bbolt.Open(filepath.Join(dir, "ledger.db"), 0o600, &bbolt.Options{NoSync: true, NoGrowSync: true}))
	l := &ledger{db, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}}
	r := mux.NewRouter()
	r.HandleFunc("/order/{item}", l.order)
	run.ServeRequests(r)
}
