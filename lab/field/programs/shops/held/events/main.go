// Events keeps events in dgraph-io/badger: a request writes one and reads
// another.
//
// Faults: sync (SyncWrites: every write waits for the disk).
package main

import (
	"encoding/binary"
	"io"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"shop.example/shops/internal/run"
)

type events struct {
	db   *badger.DB
	last atomic.Uint64
}

func (e *events) post(w http.ResponseWriter, r *http.Request) {
	n := e.last.Add(1)
	err := e.save(n)
	if err == nil {
		err = e.look(n / 2)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	io.WriteString(w, "kept\n")
}

func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (e *events) save(n uint64) error {
	return e.db.Update(func(tx *badger.Txn) error { return tx.Set(key(n), make([]byte, 200)) })
}

func (e *events) look(n uint64) error {
	return e.db.View(func(tx *badger.Txn) error {
		_, err := tx.Get(key(n))
		if err == badger.ErrKeyNotFound {
			return nil
		}
		return err
	})
}

func main() {
	run.Parse("sync")
	dir := run.Must(os.MkdirTemp(".", "events"))
	db := run.Must(badger.Open(badger.DefaultOptions(dir).WithSyncWrites(run.Fault("sync")).WithLoggingLevel(badger.ERROR)))
	e := &events{db: db}
	run.ServePath("/event", http.HandlerFunc(e.post))
}
