// Server is a service to be loaded and swept: each request computes for a while and allocates, as its query says.
//
//	go run ./lab/sweep/server -addr 127.0.0.1:8080 -live 64
//	curl '127.0.0.1:8080/work?cpu=1ms&alloc=1000000'
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	_ "net/http/pprof"
	"runtime"
	"strconv"
	"time"
)

// piece is the size of an allocation, small enough to be collected like any object.
const piece = 1 << 10

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	live := flag.Int("live", 0, "`MB` of objects that stay alive, for the collector to mark")
	flag.Parse()
	tree := grow(*live << 20)
	http.HandleFunc("/work", work)
	err := http.ListenAndServe(*addr, nil)
	runtime.KeepAlive(tree)
	log.Fatal(err)
}

// grow makes a linked list of objects: marking follows every pointer.
func grow(bytes int) (all []*node) {
	for range bytes / piece {
		all = append(all, new(node))
	}
	for i := range all {
		all[i].next = all[(i*7919+1)%len(all)]
	}
	return all
}

type node struct {
	next *node
	_    [piece - 8]byte
}

// rounds of spin in a microsecond are measured once, while the process is alone: a wall clock would count the time that a
// quota takes away as work done.
var rounds = calibrate()

func calibrate() int {
	const n = 2_000_000
	best := time.Hour
	for range 5 {
		begin := time.Now()
		runtime.KeepAlive(spin(n)) // so that the compiler does not leave it out
		best = min(best, time.Since(begin))
	}
	return max(1, int(float64(n)/float64(best.Microseconds()+1)))
}

func spin(n int) (x uint64) {
	x = 88172645463325252
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

func work(w http.ResponseWriter, r *http.Request) {
	cpu, err := time.ParseDuration(r.FormValue("cpu"))
	if err != nil {
		cpu = time.Millisecond
	}
	alloc, _ := strconv.Atoi(r.FormValue("alloc"))
	var keep [][]byte
	for got := 0; got < alloc; got += piece {
		keep = append(keep, make([]byte, piece))
	}
	x := spin(rounds * int(min(cpu, time.Second).Microseconds()))
	fmt.Fprintln(w, x, len(keep))
}
