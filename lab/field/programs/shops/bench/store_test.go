// Bench is a package whose benchmark is looked at: how long does bbolt take to
// store a value? It commits every value, and waits for the disk each time. A
// request is an iteration.
package bench

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// put stores one value in a transaction of its own.
func put(db *bbolt.DB, key uint64) error {
	return db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("values"))
		if err != nil {
			return err
		}
		return b.Put(binary.BigEndian.AppendUint64(nil, key), make([]byte, 100))
	})
}

func BenchmarkPut(b *testing.B) {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "db"), 0o600, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	type sample struct {
		end  time.Time
		took time.Duration
	}
	var took []sample
	for b.Loop() {
		start := time.Now()
		if err := put(db, uint64(len(took))); err != nil {
			b.Fatal(err)
		}
		end := time.Now()
		took = append(took, sample{end, end.Sub(start)})
	}
	for _, s := range took {
		fmt.Println("sample", s.end.UnixNano(), s.took.Nanoseconds(), "ok")
	}
}
