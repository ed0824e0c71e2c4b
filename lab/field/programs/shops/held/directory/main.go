// Directory finds people by their names, in a tree of google/btree that is read
// anew again and again from elsewhere.
//
// Faults: reload (readers are locked out while the tree is built, for 20 ms
// every 120 ms; without the fault it is built beside, and then put in place).
package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/google/btree"

	"shop.example/shops/internal/run"
)

type person struct{ name, room string }

type tree = btree.BTreeG[person]

type directory struct {
	mu     sync.RWMutex
	people *tree
}

func (d *directory) find(w http.ResponseWriter, r *http.Request) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	p, ok := d.people.Get(person{name: r.FormValue("name")})
	if !ok {
		http.NotFound(w, r)
		return
	}
	fmt.Fprintln(w, p.room)
}

// build makes the tree; a list in memory stands for where people come from.
func build() *tree {
	t := btree.NewG(32, func(a, b person) bool { return cmp.Less(a.name, b.name) })
	for _, i := range list {
		t.ReplaceOrInsert(person{names[i], "room"})
	}
	return t
}

var (
	names []string
	list  = rand.Perm(25000)
)

func (d *directory) reload() {
	for range time.Tick(120 * time.Millisecond) {
		if run.Fault("reload") {
			d.mu.Lock()
			d.people = build()
			d.mu.Unlock()
			continue
		}
		t := build()
		d.mu.Lock()
		d.people = t
		d.mu.Unlock()
	}
}

func main() {
	run.Parse("reload")
	for i := range list {
		names = append(names, fmt.Sprint("person ", i))
	}
	d := &directory{people: build()}
	go d.reload()
	run.ServePath("/find", http.HandlerFunc(d.find))
}
