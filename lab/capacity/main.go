// Command capacity is a service with one known limit, by -kind. Its knee is measured with "whylate load --closed 64", and
// compared with what "whylate capacity" says from a recording at a fraction of that load: see docs/capacity.md.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	_ "net/http/pprof"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A service serves its routes with a limit of the given work.
type service struct {
	work   time.Duration // at the limit, per request
	random bool          // exponentially distributed, instead of constant
	mu     sync.Mutex
	second sync.Mutex
	table  sync.RWMutex
	shards [4]sync.Mutex
	slots  chan struct{}
	jobs   chan job
	wait   *sync.Cond
	free   int
	db     *sql.DB
	client *http.Client
	kept   [][]byte
}

type job struct {
	work time.Duration
	done chan struct{}
}

// spin uses about this much CPU time: the number of steps is fixed, so that other processes do not shorten the work.
func spin(d time.Duration) {
	x := uint64(1)
	for range d.Nanoseconds() {
		x = x*6364136223846793005 + 1442695040888963407
	}
	steps.Store(x)
}

var steps atomic.Uint64

func (s *service) length() time.Duration {
	if s.random {
		return time.Duration(rand.ExpFloat64() * float64(s.work))
	}
	return s.work
}

// kinds are the handlers by the limit that they have.
var kinds = map[string]func(s *service, n int) http.HandlerFunc{
	"lock": func(s *service, _ int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { s.appendJournal(s.length()) }
	},
	"lockcpu": func(s *service, _ int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			spin(s.length())
			s.mu.Unlock()
			time.Sleep(2 * time.Millisecond)
		}
	},
	"semaphore": func(s *service, n int) http.HandlerFunc {
		s.slots = make(chan struct{}, n)
		return func(w http.ResponseWriter, r *http.Request) {
			s.slots <- struct{}{}
			time.Sleep(s.length())
			<-s.slots
		}
	},
	"cond": func(s *service, n int) http.HandlerFunc {
		s.free, s.wait = n, sync.NewCond(&s.second)
		return func(w http.ResponseWriter, r *http.Request) {
			s.acquire()
			time.Sleep(s.length())
			s.release()
		}
	},
	"pool": func(s *service, n int) http.HandlerFunc {
		sql.Register("slow", slowDriver{s})
		s.db, _ = sql.Open("slow", "")
		s.db.SetMaxOpenConns(n)
		s.db.SetMaxIdleConns(n)
		return func(w http.ResponseWriter, r *http.Request) {
			if _, err := s.db.ExecContext(r.Context(), "update"); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	},
	"stage": func(s *service, n int) http.HandlerFunc {
		s.jobs = make(chan job, 64)
		for range n {
			go s.serveJobs()
		}
		return func(w http.ResponseWriter, r *http.Request) {
			j := job{s.length(), make(chan struct{})}
			s.jobs <- j
			<-j.done
		}
	},
	"batch": func(s *service, n int) http.HandlerFunc {
		s.jobs = make(chan job, 1024)
		go s.serveBatches(n)
		return func(w http.ResponseWriter, r *http.Request) {
			j := job{s.length(), make(chan struct{})}
			s.jobs <- j
			<-j.done
		}
	},
	"cpu": func(s *service, _ int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			spin(s.length() / 2)
			time.Sleep(time.Millisecond)
			spin(s.length() / 2)
		}
	},
	"gc": func(s *service, n int) http.HandlerFunc {
		s.kept = make([][]byte, 200_000)
		for i := range s.kept {
			s.kept[i] = make([]byte, 64)
		}
		return func(w http.ResponseWriter, r *http.Request) {
			for range n {
				s.mu.Lock()
				s.kept[rand.IntN(len(s.kept))] = make([]byte, 1024)
				s.mu.Unlock()
			}
		}
	},
	"rwlock": func(s *service, n int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if rand.IntN(n) == 0 {
				s.rebuildTable(s.length())
			} else {
				s.readTable(s.length())
			}
		}
	},
	"shards": func(s *service, n int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			shard := &s.shards[rand.IntN(len(s.shards))]
			shard.Lock()
			time.Sleep(s.length())
			shard.Unlock()
		}
	},
	"two": func(s *service, n int) http.HandlerFunc {
		s.slots = make(chan struct{}, n)
		return func(w http.ResponseWriter, r *http.Request) {
			s.appendJournal(s.length())
			s.slots <- struct{}{}
			time.Sleep(s.length() * time.Duration(n) * 8 / 10)
			<-s.slots
		}
	},
	"mix": func(s *service, _ int) http.HandlerFunc {
		http.HandleFunc("/cheap", func(w http.ResponseWriter, r *http.Request) { time.Sleep(time.Millisecond) })
		http.HandleFunc("/dear", func(w http.ResponseWriter, r *http.Request) { s.appendJournal(3 * s.length()) })
		return func(w http.ResponseWriter, r *http.Request) { s.appendJournal(s.length()) }
	},
	"peer": func(s *service, n int) http.HandlerFunc {
		s.client = &http.Client{Transport: &http.Transport{MaxConnsPerHost: n, MaxIdleConnsPerHost: n}}
		return func(w http.ResponseWriter, r *http.Request) {
			answer, err := s.client.Get(os.Getenv("PEER"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
	},
	"none": func(s *service, _ int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { time.Sleep(s.length()) }
	},
}

func (s *service) appendJournal(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(d)
}

func (s *service) rebuildTable(d time.Duration) {
	s.table.Lock()
	defer s.table.Unlock()
	time.Sleep(d)
}

func (s *service) readTable(d time.Duration) {
	s.table.RLock()
	defer s.table.RUnlock()
	time.Sleep(d)
}

func (s *service) acquire() {
	s.second.Lock()
	for s.free == 0 {
		s.wait.Wait()
	}
	s.free--
	s.second.Unlock()
}

func (s *service) release() {
	s.second.Lock()
	s.free++
	s.second.Unlock()
	s.wait.Signal()
}

func (s *service) serveJobs() {
	for j := range s.jobs {
		time.Sleep(j.work)
		close(j.done)
	}
}

// serveBatches works once for up to n jobs that are waiting.
func (s *service) serveBatches(n int) {
	for first := range s.jobs {
		batch := []job{first}
		for len(batch) < n && len(s.jobs) > 0 {
			batch = append(batch, <-s.jobs)
		}
		time.Sleep(first.work)
		for _, j := range batch {
			close(j.done)
		}
	}
}

// A slowDriver is a database whose every statement takes the service's work.
type slowDriver struct{ s *service }

func (d slowDriver) Open(string) (driver.Conn, error) { return slowConn(d), nil }

type slowConn struct{ s *service }

func (slowConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (slowConn) Close() error                        { return nil }
func (slowConn) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }

// ExecContext implements driver.ExecerContext.
func (c slowConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	time.Sleep(c.s.length())
	return driver.ResultNoRows, nil
}

func main() {
	address := flag.String("addr", "127.0.0.1:8080", "address to serve")
	kind := flag.String("kind", "lock", "the limit")
	work := flag.Duration("work", 2*time.Millisecond, "work at the limit, per request")
	random := flag.Bool("random", false, "exponentially distributed work")
	n := flag.Int("n", 4, "slots, workers, jobs of a batch, or allocations per request")
	flag.Parse()
	newHandler, ok := kinds[*kind]
	if !ok {
		log.Fatalf("no kind %q", *kind)
	}
	s := &service{work: *work, random: *random}
	http.HandleFunc("/", newHandler(s, *n))
	fmt.Println("serving", *kind, "on", *address)
	log.Fatal(http.ListenAndServe(*address, nil))
}
