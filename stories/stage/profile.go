package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
)

// A Profile is a CPU profile.
type Profile struct {
	Total  time.Duration
	stacks []stack
}

type stack struct {
	cpuTime time.Duration
	frames  []string // root first
}

// Profile reads the CPU profile of a recording, by go tool pprof.
func (s *Stage) Profile(ctx context.Context, recording string) (*Profile, error) {
	b, err := bundle.Open(recording)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	data, err := b.CPUProfile()
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%s holds no CPU profile", recording)
	}
	return s.profile(ctx, data)
}

// TakeProfile takes a CPU profile of a service that serves net/http/pprof at host:port.
func (s *Stage) TakeProfile(ctx context.Context, address string, d time.Duration) (*Profile, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, int(d.Seconds())), nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Timeout: d + 20*time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("taking a CPU profile: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("taking a CPU profile: %w", err)
	}
	return s.profile(ctx, data)
}

func (s *Stage) profile(ctx context.Context, data []byte) (*Profile, error) {
	file := filepath.Join(s.dir, "cpu.pb.gz")
	if err := os.WriteFile(file, data, 0o666); err != nil {
		return nil, err
	}
	out, err := s.output(ctx, "go", "tool", "pprof", "-traces", "-unit=ms", "-symbolize=none", file)
	if err != nil {
		return nil, fmt.Errorf("reading a CPU profile: %w", err)
	}
	return parseTraces(string(out))
}

// parseTraces parses the output of pprof -traces -unit=ms: stacks between lines of dashes, leaf first, with the value in front
// of the leaf.
func parseTraces(text string) (*Profile, error) {
	p := &Profile{}
	parts := strings.Split(text, "-----------+")
	for _, part := range parts[min(1, len(parts)):] {
		var one stack
		for i, line := range strings.Split(part, "\n") {
			fields := strings.Fields(strings.TrimSuffix(line, " (inline)"))
			switch {
			case i == 0 || len(fields) == 0: // the rest of the dashes
			case len(one.frames) == 0 && strings.HasSuffix(fields[0], "ms") && len(fields) > 1:
				ms, err := strconv.ParseFloat(strings.TrimSuffix(fields[0], "ms"), 64)
				if err != nil {
					return nil, fmt.Errorf("a profile's stack: %w", err)
				}
				one.cpuTime = time.Duration(ms * 1e6)
				one.frames = append(one.frames, fields[1])
			case one.cpuTime > 0:
				one.frames = append(one.frames, fields[0])
			}
		}
		if one.cpuTime == 0 {
			continue
		}
		slices.Reverse(one.frames)
		p.Total += one.cpuTime
		p.stacks = append(p.stacks, one)
	}
	return p, nil
}

// TimeIn returns the CPU time of stacks with a matching function.
func (p *Profile) TimeIn(matches func(function string) bool) (d time.Duration) {
	for _, s := range p.stacks {
		if slices.ContainsFunc(s.frames, matches) {
			d += s.cpuTime
		}
	}
	return d
}

// Busiest returns the function with the most CPU time of its own frames.
func (p *Profile) Busiest() (name string, cpuTime time.Duration) {
	self := map[string]time.Duration{}
	for _, s := range p.stacks {
		self[s.frames[len(s.frames)-1]] += s.cpuTime
	}
	for f, d := range self {
		if d > cpuTime || d == cpuTime && f < name {
			name, cpuTime = f, d
		}
	}
	return name, cpuTime
}

// Scheduler returns the share of CPU time that the runtime's scheduler took to find goroutines and to wait for them.
func (p *Profile) Scheduler() float64 {
	in := p.TimeIn(func(f string) bool { return f == "runtime.schedule" || f == "runtime.findRunnable" })
	return float64(in) / float64(max(1, p.Total))
}

// A node is a function in the flame graph, with its callees.
type node struct {
	cpuTime  time.Duration
	children map[string]*node
}

// WriteFlame writes a flame graph to the output directory and returns its file's name; "" without such a directory.
func (s *Stage) WriteFlame(p *Profile, name string) (string, error) {
	if s.keep == "" {
		return "", nil
	}
	root := &node{cpuTime: p.Total, children: map[string]*node{}}
	for _, one := range p.stacks {
		current := root
		for _, f := range one.frames {
			if current.children[f] == nil {
				current.children[f] = &node{children: map[string]*node{}}
			}
			current = current.children[f]
			current.cpuTime += one.cpuTime
		}
	}
	const width, row = 1180, 16
	var b strings.Builder
	deepest := 0
	var draw func(n *node, x float64, depth int)
	draw = func(n *node, x float64, depth int) {
		names := slices.SortedFunc(maps.Keys(n.children), func(a, b string) int {
			return cmp.Or(cmp.Compare(n.children[b].cpuTime, n.children[a].cpuTime), cmp.Compare(a, b))
		})
		for _, f := range names {
			c := n.children[f]
			w := width * float64(c.cpuTime) / float64(max(1, p.Total))
			if w < 1 {
				continue
			}
			deepest = max(deepest, depth)
			label := f[strings.LastIndexByte(f, '/')+1:]
			if letters := int(w / 6.5); len(label) > letters {
				label = label[:max(0, letters)]
			}
			fmt.Fprintf(&b, `<g><title>%s, %v</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="hsl(%d 70%% 65%%)"/><text x="%.1f" y="%d">%s</text></g>`+"\n",
				template.HTMLEscapeString(f), c.cpuTime, x, depth*row, max(0.5, w-1), row-1, 15+len(f)*7%40, x+3, depth*row+12, template.HTMLEscapeString(label))
			draw(c, x, depth+1)
			x += w
		}
	}
	draw(root, 0, 0)
	file := filepath.Join(s.keep, name+".svg")
	svg := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="monospace" font-size="11">`+"\n%s</svg>\n", width, (deepest+1)*row, b.String())
	return filepath.Base(file), os.WriteFile(file, []byte(svg), 0o666)
}
