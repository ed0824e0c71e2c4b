package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var kinds = []string{
	"http", "calls", "streams", "inside", "twenty", "tickers", "pipeline", "fanout", "mutex", "syscalls", "echo", "published",
}

// traceSizes returns the sizes of a kind's traces, in bytes.
func traceSizes(kind string, n int64) []int64 {
	switch kind {
	case "inside":
		return []int64{n * 71 / 104}
	case "http", "calls", "streams":
		return []int64{n / 4, n, 4 * n}
	case "mutex":
		return []int64{n / 52} // its goroutines have few events
	}
	return []int64{n / 4}
}

// makeTrace returns a trace with at least n bytes from the cache, or records it. Kind is "http", a busy server; "calls", whose
// handlers call another server twice; "streams", the same handlers as "http" over HTTP/2; or one of recordOwnTrace.
func makeTrace(c config, kind string, n int64, progress io.Writer) (name string, err error) {
	name = filepath.Join(c.cache, fmt.Sprintf("%s-%dMB.trace", kind, n/1e6))
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	if !slices.Contains(kinds, kind) {
		return "", fmt.Errorf("the kind %q: there are %s", kind, strings.Join(kinds, ", "))
	}
	if err := os.MkdirAll(c.cache, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding this program: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("making a trace: %w", err)
		}
	}()
	fmt.Fprintf(progress, "making %s\n", name)
	var running []*exec.Cmd
	defer func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill() // without an error, the server has already ended
			_ = cmd.Wait()
		}
	}()
	// start starts a child and, if it listens, returns its address.
	start := func(listens bool, args ...string) (*exec.Cmd, string, error) {
		cmd := exec.Command(exe, append([]string{"-child"}, args...)...)
		cmd.Stderr = progress
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return nil, "", err
		}
		if err := cmd.Start(); err != nil {
			return nil, "", err
		}
		running = append(running, cmd)
		if !listens {
			return cmd, "", nil
		}
		addr, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			return nil, "", fmt.Errorf("%s does not say where it listens: %w", args[0], err)
		}
		return cmd, strings.TrimSpace(addr), nil
	}
	args := []string{"serve", name + ".part", strconv.FormatInt(n, 10)}
	if len(traceSizes(kind, n)) == 1 {
		args[0] = kind
		program, _, err := start(false, args...)
		if err == nil {
			err = program.Wait()
		}
		if err != nil {
			return "", err
		}
		return name, os.Rename(name+".part", name)
	}
	if kind == "calls" {
		_, addr, err := start(true, "backend")
		if err != nil {
			return "", err
		}
		args = append(args, addr)
	}
	server, addr, err := start(true, args...)
	if err != nil {
		return "", err
	}
	paths := []string{"/self", "/pool", "/fan"}
	if kind == "calls" {
		paths = []string{"/calls"}
	}
	load := "load"
	if kind == "streams" {
		load = "streams"
	}
	if _, _, err := start(false, append([]string{load, addr}, paths...)...); err != nil {
		return "", err
	}
	if err := server.Wait(); err != nil { // ends when the trace is long enough
		return "", err
	}
	return name, os.Rename(name+".part", name)
}

// sizeLimit counts written bytes and closes done when there are enough.
type sizeLimit struct {
	w         io.Writer
	remaining atomic.Int64
	done      chan struct{}
	closeOnce sync.Once
}

func (l *sizeLimit) Write(p []byte) (int, error) {
	if l.remaining.Add(-int64(len(p))) <= 0 {
		l.closeOnce.Do(func() { close(l.done) })
	}
	return l.w.Write(p)
}

// runServer runs the busy server and traces it.
func runServer(args []string) error {
	if len(args) != 2 && len(args) != 3 {
		return fmt.Errorf("serve takes a file, a size and perhaps a backend's address, not %q", args)
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("the size %q: %w", args[1], err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Println(ln.Addr())
	srv := &http.Server{Handler: handler(strings.Join(args[2:], "")), ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	time.Sleep(200 * time.Millisecond) // for connections
	return writeTrace(args[0], n, ended)
}

// handler answers four kinds of requests: itself, through a pool of workers, with two goroutines under a lock, and with two
// parallel calls to a backend.
func handler(backend string) http.Handler {
	type job struct {
		in  []byte
		out chan [32]byte
	}
	jobs := make(chan job, 32)
	for range 16 {
		go func() {
			for j := range jobs {
				j.out <- sha256.Sum256(j.in)
			}
		}()
	}
	var mu sync.Mutex
	counts := make(map[string]int)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /self", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256(bytes.Repeat([]byte(r.URL.Path), 20))
		fmt.Fprintf(w, "%x\n", sum)
	})
	mux.HandleFunc("GET /pool", func(w http.ResponseWriter, r *http.Request) {
		j := job{bytes.Repeat([]byte("x"), 500), make(chan [32]byte, 1)}
		select {
		case jobs <- j:
		case <-r.Context().Done():
			return
		}
		fmt.Fprintf(w, "%x\n", <-j.out)
	})
	mux.HandleFunc("GET /fan", func(w http.ResponseWriter, r *http.Request) {
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				mu.Lock()
				counts[strconv.Itoa(i)]++
				mu.Unlock()
			})
		}
		wg.Wait()
		fmt.Fprintln(w, "done")
	})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, r *http.Request) {
		var wg sync.WaitGroup
		var failed atomic.Bool
		for range 2 {
			wg.Go(func() {
				res, err := client.Get("http://" + backend + "/self")
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				if err != nil {
					failed.Store(true)
				}
			})
		}
		if wg.Wait(); failed.Load() {
			http.Error(w, "the backend failed", http.StatusBadGateway)
			return
		}
		fmt.Fprintln(w, "done")
	})
	return mux
}

// runBackend serves the calls of the handler "calls" until it is killed.
func runBackend() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Println(ln.Addr())
	return (&http.Server{Handler: handler(""), ReadHeaderTimeout: time.Minute}).Serve(ln)
}

// sendRequests sends requests over 64 connections until it is killed.
func sendRequests(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("load takes an address and paths, not %q", args)
	}
	ended := make(chan error)
	for i := range 64 {
		go func() {
			ended <- sendRequestsOver(args[0], args[1+i%(len(args)-1)])
		}()
	}
	return <-ended
}

// sendStreams sends requests over eight HTTP/2 connections, eight streams on each, until it is killed.
func sendStreams(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("streams takes an address and paths, not %q", args)
	}
	ended := make(chan error)
	for range 8 {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
		for i := range 8 {
			go func() {
				for {
					if err := get(client, "http://"+args[0]+args[1+i%(len(args)-1)]); err != nil {
						ended <- err
					}
				}
			}()
		}
	}
	return <-ended
}

func get(client *http.Client, url string) error {
	res, err := client.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return fmt.Errorf("receiving: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return nil
}

func sendRequestsOver(addr, path string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close()
	req := []byte("GET " + path + " HTTP/1.1\r\nHost: bench\r\n\r\n")
	br := bufio.NewReader(conn)
	for {
		if _, err := conn.Write(req); err != nil {
			return fmt.Errorf("sending: %w", err)
		}
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", path, res.Status)
		}
		res.Body.Close()
	}
}
