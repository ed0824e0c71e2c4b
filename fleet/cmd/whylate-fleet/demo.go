package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/capture/wire"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/mark"
)

// demoService is the first argument of the processes that are services of the demo.
const demoService = "demo-service"

// serveDemo serves a fleet from a temporary directory and starts three services that send to it. After 20 s it replaces version
// v1 of checkout by v2, which holds a lock.
func serveDemo(ctx context.Context, c *config) error {
	dir, err := os.MkdirTemp("", "whylate-fleet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var services sync.WaitGroup
	defer services.Wait()
	defer cancel()
	c.dir = dir
	return serve(ctx, c, func(address string, st *store.Store) error {
		if err := greetDemo(ctx, os.Stdout, address, st); err != nil {
			return err
		}
		runVersion := func(ctx context.Context, name, version string) {
			c := exec.CommandContext(ctx, executable, demoService, name, address, filepath.Join(dir, name))
			c.Env = append(os.Environ(), "OTEL_SERVICE_NAME="+name, "OTEL_RESOURCE_ATTRIBUTES=service.version="+version, "POD_NAME="+name+"-"+version, "DEMO_VERSION="+version)
			c.Stderr = os.Stderr
			out, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			if err == nil {
				if lines := bufio.NewScanner(out); lines.Scan() {
					generateLoad(ctx, lines.Text())
				}
				err = c.Wait()
			}
			if err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "whylate-fleet:", name, version, "ended:", err)
			}
		}
		for _, name := range []string{"catalog", "checkout", "shipping"} {
			token := rand.Text()
			if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name, "token"), []byte(token), 0o600); err != nil {
				return err
			}
			if err := st.AddToken(ctx, token, store.SendScope, name, time.Now().Add(24*time.Hour)); err != nil {
				return err
			}
			services.Go(func() {
				if name != "checkout" {
					runVersion(ctx, name, "v1")
					return
				}
				firstCtx, stopFirst := context.WithTimeout(ctx, 20*time.Second)
				defer stopFirst()
				runVersion(firstCtx, name, "v1")
				if ctx.Err() == nil {
					fmt.Println("Checkout v2 is deployed.")
					runVersion(ctx, name, "v2")
				}
			})
		}
		return nil
	})
}

// greetDemo prints where the demo's fleet is, and off loopback the password of its pages.
func greetDemo(ctx context.Context, w io.Writer, address string, st *store.Store) error {
	fmt.Fprintf(w, "The fleet is at %s. Checkout v2, a bad deploy, comes in 20 s. Ctrl-C ends it.\n", address)
	u, err := url.Parse(address)
	if err != nil || net.ParseIP(u.Hostname()).IsLoopback() {
		return err
	}
	password := rand.Text()
	fmt.Fprintf(w, "The password of its pages is %s, with any name.\n", password)
	return st.AddToken(ctx, password, store.ReadScope, "demo", time.Now().Add(24*time.Hour))
}

// generateLoad sends requests from six concurrent clients until ctx ends.
func generateLoad(ctx context.Context, url string) {
	var clients sync.WaitGroup
	client := wire.Client(wire.DefaultTransport())
	for range 6 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if res, err := client.Get(url); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	clients.Wait()
}

// runDemoService serves the path /name at an address that it prints, until ctx ends, and uploads the recordings of its flight
// recorder to the fleet at that URL. dir holds the recordings and the file with the token.
func runDemoService(ctx context.Context, name, fleet, dir string) error {
	rec, err := flight.Start(flight.Options{
		Dir: filepath.Join(dir, "spool-"+os.Getenv("DEMO_VERSION")), Slow: 50 * time.Microsecond, MinAge: 2 * time.Second, Gap: 10 * time.Second, PerHour: -1, PerDay: -1, Budget: -1,
		Upload: &flight.UploadOptions{URL: fleet, TokenFile: filepath.Join(dir, "token")},
	})
	if err != nil {
		return err
	}
	defer rec.Stop()
	m := http.NewServeMux()
	stock := &stock{locked: name == "checkout" && os.Getenv("DEMO_VERSION") == "v2"}
	m.HandleFunc("GET /"+name, func(w http.ResponseWriter, _ *http.Request) {
		stock.reserve()
		_, _ = io.WriteString(w, "ok\n")
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h := &http.Server{Handler: mark.Handler(m), ReadHeaderTimeout: time.Second}
	fmt.Printf("http://%s/%s\n", l.Addr(), name)
	go func() {
		<-ctx.Done()
		_ = h.Close()
	}()
	_ = h.Serve(l)
	return nil
}

// A stock answers requests from memory. If locked is set, each request holds the lock during a call to another service.
type stock struct {
	mu     sync.Mutex
	locked bool
	page   [64 << 10]byte
}

// reserve does the work of one request: a short computation. In a locked stock (version v2) it holds the lock for 4 ms before that.
func (s *stock) reserve() {
	if s.locked {
		s.mu.Lock()
		defer s.mu.Unlock()
		time.Sleep(4 * time.Millisecond) // the call to the other service
	}
	sha256.Sum256(s.page[:])
}
