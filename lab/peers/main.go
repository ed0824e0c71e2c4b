// Command peers records both sides of a call at the same time: a gateway, and the
// server that it calls over loopback, each in its own process.
//
//	go run ./lab/peers -o DIR     # server.trace, gateway.trace, truth.json
//
//	go run ./lab/peers -page record -o DIR     # page.trace: a page with parallel calls, one of them to its own process
//	go run ./lab/peers -python -o DIR     # python.whylate, python.json: a gateway whose peer is phases.py, with the kernel's events; needs root
//
// truth.json has the times during the traces by the two programs' own clocks: of
// the server's handler, and of the gateway's call.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/whylate/whylate/lab/internal/child"
)

func main() {
	serve := flag.String("serve", "", "run the server, or the gateway that calls this URL")
	out := flag.String("o", ".", "write to this directory")
	d := flag.Duration("d", 700*time.Millisecond, "length of the recordings")
	takes := flag.Duration("takes", 500*time.Microsecond, "time for which the server's handler computes")
	pageRole := flag.String("page", "", "run the service of the page that calls this URL; \"backend\": run the backend; \"record\": write page.trace, of 1.2 s, to -o")
	python := flag.Bool("python", false, "record a gateway whose peer is in Python")
	flag.Parse()
	run := func() error { return record(*out, *d, *takes) }
	if *serve != "" {
		run = func() error { return side(*serve, *takes) }
	}
	if *python {
		run = func() error { return recordPython(*out) }
	}
	if *pageRole == "record" {
		run = func() error { return recordPage(*out, 1200*time.Millisecond) }
	} else if *pageRole != "" {
		run = func() error { return page(*pageRole) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// A timer adds up durations.
type timer struct {
	mu sync.Mutex
	Sum
}

// Sum is the measurement of one side.
type Sum struct {
	Count int   `json:"count"`
	NS    int64 `json:"ns"`
}

func (t *timer) add(start time.Time) {
	took := time.Since(start)
	t.mu.Lock()
	t.Count, t.NS = t.Count+1, t.NS+int64(took)
	t.mu.Unlock()
}

// side is one of the two processes. It ends when its standard input does.
func side(role string, takes time.Duration) error {
	var t timer
	http.HandleFunc("/ask", func(w http.ResponseWriter, r *http.Request) {
		defer t.add(time.Now())
		if role == "server" {
			answer(takes)
			return
		}
		if err := ask(r.Context(), role); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	http.HandleFunc("/sum", func(w http.ResponseWriter, _ *http.Request) {
		t.mu.Lock()
		defer t.mu.Unlock()
		_ = json.NewEncoder(w).Encode(t.Sum)
		t.Sum = Sum{}
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Printf("http://%s\n", ln.Addr())
	child.EndWithParent()
	return http.Serve(ln, nil)
}

// answer sleeps, so that its request blocks in the trace, and computes.
//
//go:noinline
func answer(takes time.Duration) {
	time.Sleep(takes)
	for t := time.Now(); time.Since(t) < takes; {
	}
}

func ask(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/ask", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func record(dir string, d, takes time.Duration) (err error) {
	server, end, err := child.Start("-serve", "server", "-takes", takes.String())
	if err != nil {
		return err
	}
	defer end()
	gateway, end, err := child.Start("-serve", server, "-takes", takes.String())
	if err != nil {
		return err
	}
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var load sync.WaitGroup
	for range 2 {
		load.Go(func() {
			for ctx.Err() == nil {
				_ = ask(ctx, gateway)
				time.Sleep(3 * time.Millisecond)
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	sides := map[string]string{"server": server, "gateway": gateway}
	truth := map[string]Sum{}
	for _, url := range sides {
		if _, err := child.Get(url + "/sum"); err != nil {
			return err
		}
	}
	if err := child.SaveTraces(dir, d, sides); err != nil {
		return err
	}
	for name, url := range sides {
		b, err := child.Get(url + "/sum")
		if err != nil {
			return err
		}
		var s Sum
		if err := json.Unmarshal(b, &s); err != nil {
			return fmt.Errorf("reading what the %s measured: %w", name, err)
		}
		truth[name] = s
	}
	stop()
	load.Wait()
	b, err := json.MarshalIndent(truth, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "truth.json"), append(b, '\n'), 0o666)
}
