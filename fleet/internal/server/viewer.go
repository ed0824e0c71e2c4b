package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/whylate/whylate/fleet/internal/work"
	"github.com/whylate/whylate/internal/capture/wire"
)

// Bounds of viewers.
const (
	maxViewers   = 2
	viewerMemory = "--max-memory=256MB"
	viewerStart  = 30 * time.Second // time until the child listens
	viewerIdle   = 5 * time.Minute  // time without a request after which a viewer ends
)

// viewers are child processes, each of which serves one recording as whylate view does, at a socket that only this user can
// reach. When there are too many, the one that was used longest ago ends.
type viewers struct {
	mu   sync.Mutex
	byID map[string]*viewer // by recording
	ends sync.WaitGroup
}

type viewer struct {
	proxy    *httputil.ReverseProxy
	end      context.CancelFunc
	listens  chan struct{} // closed when the child listens or has failed
	err      error         // why it failed
	requests int           // in progress
	idle     *time.Timer
	lastUse  time.Time
}

var errViewersInUse = errors.New("all viewers are in use: try again later")

// acquire returns the viewer of a recording, which may still be starting (v.listens). If there is none, it starts one, which run runs; the error is
// errViewersInUse if too many are in use. The caller calls release after its request.
func (l *viewers) acquire(id string, run func(context.Context, *viewer)) (v *viewer, release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v = l.byID[id]; v == nil {
		if len(l.byID) >= maxViewers && !l.endOldest() {
			return nil, nil, errViewersInUse
		}
		ctx, end := context.WithCancel(context.Background())
		v = &viewer{end: end, listens: make(chan struct{}), idle: time.AfterFunc(viewerIdle, end)}
		if l.byID == nil {
			l.byID = make(map[string]*viewer)
		}
		l.byID[id] = v
		started := v
		l.ends.Go(func() {
			run(ctx, started)
			end()
			started.idle.Stop()
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.byID[id] == started {
				delete(l.byID, id)
			}
		})
	}
	v.requests++
	v.idle.Stop()
	return v, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		v.lastUse = time.Now()
		if v.requests--; v.requests == 0 {
			v.idle.Reset(viewerIdle)
		}
	}, nil
}

// endOldest ends the viewer without requests that was used longest ago, with l.mu held. It reports whether there was one.
func (l *viewers) endOldest() bool {
	oldest := ""
	for id, v := range l.byID {
		if v.requests == 0 && (oldest == "" || v.lastUse.Before(l.byID[oldest].lastUse)) {
			oldest = id
		}
	}
	if oldest == "" {
		return false
	}
	l.byID[oldest].end()
	delete(l.byID, oldest)
	return true
}

// EndViewers ends all viewers. It is called after the last request.
func (s *Server) EndViewers() {
	s.viewers.mu.Lock()
	for _, v := range s.viewers.byID {
		v.end()
	}
	s.viewers.mu.Unlock()
	s.viewers.ends.Wait()
}

// runViewer runs a viewer of a recording until ctx ends or the child does. It closes v.listens when the child listens, or when it
// has failed with v.err.
func (s *Server) runViewer(ctx context.Context, v *viewer, id string) {
	path, release, err := s.Files.LocalPath(ctx, id)
	if err == nil {
		defer release()
		var dir string
		if dir, err = os.MkdirTemp("", "whylate-view-"); err == nil { // which only this user can enter
			defer os.RemoveAll(dir)
			var ended <-chan error
			if ended, err = v.listen(ctx, filepath.Join(dir, "s"), path); err == nil {
				close(v.listens)
				<-ended
				return
			}
		}
	}
	v.err = err
	close(v.listens)
}

// listen starts the child, and returns when it listens at the socket. ended gets the child's end.
func (v *viewer) listen(ctx context.Context, socket, path string) (ended <-chan error, err error) {
	c, messages, err := work.VerbCommand(ctx, "view", "--listen", "unix:"+socket, viewerMemory, filepath.Base(path))
	if err != nil {
		return nil, err
	}
	c.Dir = filepath.Dir(path) // the page shows the argument
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	if err := c.Start(); err != nil {
		return nil, err
	}
	waited := make(chan error, 1)
	go func() { waited <- c.Wait() }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	v.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{Scheme: "http", Host: "127.0.0.1", Path: "/" + r.In.PathValue("path"), RawQuery: r.In.URL.RawQuery}
			r.Out.Host = r.Out.URL.Host // the child answers to addresses only
			r.Out.Header.Del("Authorization")
		},
		Transport: wire.Transport(&http.Transport{DialContext: dial, DisableCompression: true, MaxIdleConns: 8, IdleConnTimeout: viewerIdle}),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "the viewer of this recording has ended: open it again", http.StatusBadGateway)
		},
	}
	for deadline := time.Now().Add(viewerStart); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := dial(ctx, "", ""); err == nil {
			return waited, conn.Close()
		}
		if time.Now().After(deadline) {
			v.end()
		}
		select {
		case err := <-waited:
			return nil, fmt.Errorf("opening it: %w: %s", cmp.Or(ctx.Err(), err, io.EOF), messages.Bytes())
		default:
		}
	}
}

// serveView passes a request on to the viewer of a recording.
func (s *Server) serveView(w http.ResponseWriter, r *http.Request) {
	f, ok := s.openFile(w, r, func(id string) string { return id })
	if !ok {
		return
	}
	_ = f.Close()
	id := requestedID(r)
	v, release, err := s.viewers.acquire(id, func(ctx context.Context, v *viewer) { s.runViewer(ctx, v, id) })
	if err != nil {
		w.Header().Set("Retry-After", "60")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer release()
	select {
	case <-v.listens:
	case <-r.Context().Done():
		return
	}
	if v.err != nil {
		s.Log.Warn("view", "recording", id, "error", v.err)
		http.Error(w, "this recording cannot be shown: the log has the error", http.StatusInternalServerError)
		return
	}
	w.Header().Del("Content-Security-Policy") // the viewer has its own, which permits its script
	v.proxy.ServeHTTP(w, r)
}
