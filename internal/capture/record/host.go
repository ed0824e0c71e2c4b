package record

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	hostsamples "github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/wire"
)

// A Watch takes host samples of the recorded process while its trace is
// recorded, if that process is on this host. It never fails a recording: what
// could not be sampled is a warning.
type Watch struct {
	sampler  *hostsamples.Sampler
	several  []int // that listen on the port: the trace's connection will tell which
	warnings []bundle.Warning
	late     func() string // a check that is left for the trace's end

	once sync.Once
	rec  *hostsamples.Recording
}

// WatchHost begins to sample the process that target leads to, if it is on this
// host, or Options.PID. Nil, which all methods accept, means that there is
// nothing to sample.
func WatchHost(ctx context.Context, target string, opt Options) *Watch {
	if opt.NoHost {
		return nil
	}
	w := &Watch{}
	if opt.PID > 0 {
		w.start(opt.PID) // the user's choice is not to be doubted
		return w
	}
	end, inURL, err := ParseEndpoint(target)
	if err != nil || opt.Proxy != "" && opt.Proxy != "none" {
		return nil
	}
	_, name, portText := origin(&end.base)
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil
	}
	addrs := hostsamples.LocalAddrs(ctx, name)
	if len(addrs) == 0 {
		return nil // another machine
	}
	found, err := hostsamples.Listeners(addrs, uint16(port))
	switch {
	case err != nil:
		w.warn(err.Error())
	case len(found.PIDs) == 1:
		// Before the trace begins: the question would be one of its requests.
		if w.start(found.PIDs[0]); w.sampler != nil {
			if why := checkFirst(ctx, end, inURL, opt, found.PIDs[0]); why != "" {
				w.sampler.Stop()
				w.sampler = nil
				w.warn(why)
			}
		}
	case len(found.PIDs) > 1:
		w.several = found.PIDs
	case found.Unreadable > 0:
		w.warn(fmt.Sprintf("this user may not see which process listens on port %d: run as the service's user or as root, or name the process with --pid", port))
	default:
		w.warn(fmt.Sprintf("no visible process listens on port %d (is it forwarded into a container?): name it with --pid, or leave the samples out with --no-host", port))
	}
	return w
}

func (w *Watch) warn(text string) {
	w.warnings = append(w.warnings, bundle.Warning{Code: hostsamples.WarnHost, Text: "no host samples: " + text})
}

func (w *Watch) start(pid int) {
	s, err := hostsamples.Start(hostsamples.Options{PID: pid})
	if err != nil {
		w.warn(err.Error())
		return
	}
	w.sampler = s
}

// Opened tells the watch of the trace's connection: of several processes that
// listen, who has accepted it is the one to be sampled.
func (w *Watch) Opened(s *Stream) {
	if w == nil {
		return
	}
	if w.several != nil {
		w.choose(s)
	}
	if w.sampler == nil {
		return
	}
	w.sampler.SetTraceRequest(s.Result().Start)
	if w.several != nil {
		w.late = func() string { return s.c.check(s.ctx, w.sampler.PID()) }
	}
}

// acceptPatience is how long a service may take to accept a connection that it
// has answered on already.
const acceptPatience = 300 * time.Millisecond

// choose finds, of several processes that share a port, the one that sends the
// trace.
func (w *Watch) choose(s *Stream) {
	local, remote, ok := s.ends()
	for deadline := time.Now().Add(acceptPatience); ok && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		found, err := hostsamples.Acceptor(local, remote)
		if err != nil {
			break
		}
		if len(found.PIDs) == 1 {
			w.start(found.PIDs[0])
			return
		}
	}
	list := make([]string, 0, len(w.several))
	for _, pid := range w.several[:min(len(w.several), 10)] {
		list = append(list, strconv.Itoa(pid))
	}
	w.warn(fmt.Sprintf("%d processes listen on this port (%s): name one with --pid", len(w.several), strings.Join(list, ", ")))
}

// Finish ends sampling and returns what it gave; nil if there is nothing, then
// only warnings may be.
func (w *Watch) Finish() (*hostsamples.Recording, []bundle.Warning) {
	if w == nil {
		return nil, nil
	}
	w.once.Do(func() {
		if w.sampler == nil {
			return
		}
		w.rec = w.sampler.Stop()
		w.warnings = append(w.warnings, w.rec.Warnings...)
		if w.late != nil {
			if why := w.late(); why != "" {
				w.rec, w.warnings = nil, nil
				w.warn(why)
			}
		}
	})
	return w.rec, w.warnings
}

// Data ends sampling and returns host.jsonl.
func (w *Watch) Data() []byte {
	if rec, _ := w.Finish(); rec != nil {
		return rec.Data
	}
	return nil
}

// checkPatience bounds how long a recording waits for the answer to check.
const checkPatience = time.Second

// checkFirst is check by a client of its own.
func checkFirst(ctx context.Context, end Endpoint, inURL *Login, opt Options, pid int) string {
	c, err := newClient(ctx, end, inURL, opt)
	if err != nil {
		return "" // the recording itself says what is wrong
	}
	defer c.transport.CloseIdleConnections()
	c.findHandlers(ctx)
	return c.check(ctx, pid)
}

// check compares what the service says its command line is with that of the
// process that listens: behind a proxy, or a port that is forwarded, they
// differ. A program may have taken its verb out of os.Args.
// Services that do not tell are believed.
func (c *client) check(ctx context.Context, pid int) string {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	resp, err := c.get(ctx, c.end.address("cmdline", 0))
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		return ""
	}
	r, err := decoded(resp)
	if err != nil {
		return ""
	}
	const limit = 256 << 10
	b, err := wire.All(r, limit)
	if err != nil || len(b) < 2 {
		return ""
	}
	own, ok := hostsamples.CommandLine(pid)
	if !ok || withoutVerb(string(b), own) {
		return ""
	}
	return fmt.Sprintf("the process that listens on this port (%d, %s) is not the one that answers: a proxy, or a port that is forwarded; name the service's process with --pid", pid, clean(hostsamples.ProgramName(pid), 40))
}

// withoutVerb reports whether a command line is another one, or that without one argument that is no flag. NUL stands between arguments.
func withoutVerb(some, all string) bool {
	if some == all {
		return true
	}
	args := strings.Split(all, "\x00")
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") && some == strings.Join(slices.Delete(slices.Clone(args), i, i+1), "\x00") {
			return true
		}
	}
	return false
}

// ends returns both ends of the trace's connection.
func (s *Stream) ends() (local, remote netip.AddrPort, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return local, remote, false
	}
	a, ok1 := s.conn.LocalAddr().(*net.TCPAddr)
	b, ok2 := s.conn.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return local, remote, false
	}
	return a.AddrPort(), b.AddrPort(), true
}
