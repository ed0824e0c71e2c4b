package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// readTargets reads a target a line from a file or a URL. Empty lines and lines that begin with # are left out.
func readTargets(ctx context.Context, from string) ([]string, error) {
	var r io.ReadCloser
	switch {
	case from == "":
		return nil, errors.New("-targets is required: a file or URL with a target host:port a line")
	case strings.HasPrefix(from, "http://"), strings.HasPrefix(from, "https://"):
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusOK {
			resp.Body.Close()
			return nil, fmt.Errorf("reading targets from %s: %s", from, resp.Status)
		}
		r = resp.Body
	default:
		f, err := os.Open(from)
		if err != nil {
			return nil, err
		}
		r = f
	}
	defer r.Close()
	var targets []string
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		t := strings.TrimSpace(lines.Text())
		if t == "" || t[0] == '#' {
			continue
		}
		if _, _, err := net.SplitHostPort(t); err != nil {
			return nil, fmt.Errorf("line %d of %s: %w", n, from, err)
		}
		targets = append(targets, t)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", from, err)
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("%s has no target", from)
	}
	return targets, nil
}

// A registry knows which targets are in.
type registry struct {
	fall, rise int
	log        *slog.Logger

	mu      sync.Mutex
	targets []target
	journal *os.File // nil for none
}

type target struct {
	Name    string    `json:"target"`
	In      bool      `json:"in"`
	Since   time.Time `json:"since"`
	against int       // checks in a row that speak against the state
}

// A change is a line of the journal.
type change struct {
	Target string    `json:"target"`
	In     bool      `json:"in"`
	At     time.Time `json:"at"`
}

// newRegistry begins with all targets in, but for those that the journal says are out.
func newRegistry(names []string, fall, rise int, journal string, log *slog.Logger) (*registry, error) {
	r := &registry{fall: fall, rise: rise, log: log, targets: make([]target, len(names))}
	last := map[string]change{}
	if journal != "" {
		var err error
		if last, err = replay(journal); err != nil {
			return nil, err
		}
		if r.journal, err = os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666); err != nil {
			return nil, err
		}
	}
	for i, n := range names {
		r.targets[i] = target{Name: n, In: true, Since: time.Now()}
		if c, ok := last[n]; ok {
			r.targets[i].In, r.targets[i].Since = c.In, c.At
		}
	}
	return r, nil
}

// replay returns each target's last change. A line that was cut by a crash is the last one; it is cut off.
func replay(name string) (map[string]change, error) {
	last := map[string]change{}
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil
	}
	if err != nil {
		return nil, err
	}
	whole := strings.LastIndexByte(string(b), '\n') + 1
	for line := range strings.Lines(string(b[:whole])) {
		var c change
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, fmt.Errorf("reading the journal %s: %w in %q", name, err, strings.TrimSpace(line))
		}
		last[c.Target] = c
	}
	if whole < len(b) {
		return last, os.Truncate(name, int64(whole))
	}
	return last, nil
}

// checked takes the outcome of a check.
func (r *registry) checked(i int, good bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &r.targets[i]
	if good == t.In {
		t.against = 0
		return
	}
	t.against++
	if t.In && t.against < r.fall || !t.In && t.against < r.rise {
		return
	}
	t.In, t.Since, t.against = good, time.Now(), 0
	r.log.Info("target changed", "target", t.Name, "in", t.In)
	if r.journal == nil {
		return
	}
	line, err := json.Marshal(change{t.Name, t.In, t.Since})
	if err == nil {
		_, err = r.journal.Write(append(line, '\n')) // one write: whole or, at a crash, cut at its end
	}
	if err != nil {
		r.log.Error("the journal cannot be written", "err", err)
	}
}

// list serves the targets.
func (r *registry) list(w http.ResponseWriter, q *http.Request) {
	all := q.FormValue("all") != ""
	r.mu.Lock()
	out := make([]target, 0, len(r.targets))
	for _, t := range r.targets {
		if all || t.In {
			out = append(out, t)
		}
	}
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

func (r *registry) close() error {
	if r.journal == nil {
		return nil
	}
	return r.journal.Close()
}
