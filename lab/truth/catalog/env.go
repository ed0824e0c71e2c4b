package catalog

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/lab/truth/wire"
)

// Env is the environment of a started service. Its methods are safe for concurrent use.
type Env struct {
	Fixed bool   // without the fault
	Gone  bool   // with Fixed: what took time takes none
	Dir   string // for files; removed by Close

	mu    sync.Mutex
	peers []*exec.Cmd
	stdin []io.Closer
	units []Unit
}

// NewEnv creates the environment of one service.
func NewEnv(fixed, gone bool) (*Env, error) {
	dir, err := os.MkdirTemp("", "truth")
	if err != nil {
		return nil, fmt.Errorf("creating the service's directory: %w", err)
	}
	return &Env{Fixed: fixed || gone, Gone: gone, Dir: dir}, nil
}

// Close ends the child processes and removes the directory.
func (e *Env) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for i, p := range e.peers {
		e.stdin[i].Close() // a peer ends when its standard input does
		done := make(chan struct{})
		go func() { p.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(2 * time.Second):
			errs = append(errs, p.Process.Kill())
			<-done
		}
	}
	e.peers, e.stdin = nil, nil
	return errors.Join(append(errs, os.RemoveAll(e.Dir))...)
}

// pickDuration returns the faulty duration or, with the fix, the other; none if what took time is gone.
func (e *Env) pickDuration(faulty, fixed time.Duration) time.Duration {
	if e.Gone {
		return 0
	}
	if e.Fixed {
		return fixed
	}
	return faulty
}

func (e *Env) pickNumber(faulty, fixed int) int {
	if e.Fixed {
		return fixed
	}
	return faulty
}

// PeerVerb is the verb of this program that runs a peer of a service. A peer
// must be another process, because its events would be in the trace
// otherwise.
const PeerVerb = "peer"

// startServer starts this program as another process and returns the address that it
// serves.
func (e *Env) startServer(args ...string) (addr string, err error) {
	cmd, in, out, err := e.startProcess(args...)
	if err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("waiting for peer %v (pid %d): %w", args, cmd.Process.Pid, err)
	}
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		return "", fmt.Errorf("peer %v said %q", args, line)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.peers, e.stdin = append(e.peers, cmd), append(e.stdin, in)
	return addr, nil
}

// startClient starts this program as another process, which asks at an address all the time.
func (e *Env) startClient(kind, addr string) error {
	cmd, in, _, err := e.startProcess("ask-"+kind, "6ms", addr)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.peers, e.stdin = append(e.peers, cmd), append(e.stdin, in)
	return nil
}

func (e *Env) startProcess(args ...string) (*exec.Cmd, io.WriteCloser, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("finding this program: %w", err)
	}
	cmd := exec.Command(self, append([]string{PeerVerb}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, fmt.Errorf("starting peer %v: %w", args, err)
	}
	return cmd, in, out, nil
}

// Unit is one unit of work of a service that has no client to time it.
type Unit struct {
	Kind      string    `json:"kind"`
	End       time.Time `json:"end"`
	LatencyNS int64     `json:"latency_ns"`
	BlamedNS  int64     `json:"blamed_ns"`
}

// recordUnit records a unit of work by the service's own clock.
func (e *Env) recordUnit(kind string, latency, blamed time.Duration) {
	u := Unit{Kind: kind, End: time.Now(), LatencyNS: int64(latency), BlamedNS: int64(blamed)}
	e.mu.Lock()
	e.units = append(e.units, u)
	e.mu.Unlock()
}

// recordWhole records a unit of work since a time, all of which the fault took.
func (e *Env) recordWhole(kind string, begin time.Time) {
	took := time.Since(begin)
	e.recordUnit(kind, took, took)
}

// ServeHTTP writes the units recorded so far, as JSON.
func (e *Env) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	units := e.units[:len(e.units):len(e.units)]
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(units)
}

// blame reports to the client how much of the request's time the fault took. It must be called before the body is
// written.
func blame(w http.ResponseWriter, d time.Duration) {
	w.Header().Set(wire.Blamed, strconv.FormatInt(int64(d), 10))
}

// answer ends most handlers: it reports the blame and writes a body.
func answer(w http.ResponseWriter, blamed time.Duration) {
	blame(w, blamed)
	io.WriteString(w, "done\n")
}

// fast is the handler without a fault.
func fast(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") }

// withFast routes /slow to the slow handler and /fast to the fast one.
func withFast(slow http.HandlerFunc) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/slow", slow)
	mux.HandleFunc("/fast", fast)
	return mux
}

// mixedLoad is the usual load: a closed loop with a fast request for each slow one.
func mixedLoad(conns int) Load {
	return Load{Conns: conns, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true}, {Path: "/fast", Weight: 1}}}
}

// slowOnlyLoad is for services whose fault needs every connection to be waiting.
func slowOnlyLoad(conns int) Load {
	return Load{Conns: conns, Rest: time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true}}}
}

// openLoad is an open loop, for services in which a queue would hide the fault.
func openLoad(rate float64) Load {
	return Load{Conns: 8, Rate: rate, Paths: []Path{{Path: "/slow", Weight: 2, Slow: true}, {Path: "/fast", Weight: 1}}}
}

// declareBlame announces that the blame comes after the body, as a trailer.
func declareBlame(w http.ResponseWriter) { w.Header().Set("Trailer", wire.Blamed) }
