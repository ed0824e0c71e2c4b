package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/capture/wire"
)

// maxTargets bounds the targets of a run, because each has a histogram.
const maxTargets = 100

// maxBody bounds the body of one target, in bytes.
const maxBody = 64 << 20

// A Target is one kind of request.
type Target struct {
	Name   string // for results; empty: method and path
	Method string // empty: GET, or POST with a body
	URL    string
	Header http.Header // Host in it replaces the URL's host name
	Body   []byte
	Weight int // relative frequency; 0 means 1
}

// method returns the HTTP method: that of the target, else POST with a body and GET without.
func (t *Target) method() string {
	switch {
	case t.Method != "":
		return t.Method
	case len(t.Body) > 0:
		return http.MethodPost
	}
	return http.MethodGet
}

// name returns the name of the target in results: its own, else its method and path.
func (t *Target) name() string {
	if t.Name != "" {
		return t.Name
	}
	if u, err := url.Parse(t.URL); err == nil {
		return t.method() + " " + u.EscapedPath()
	}
	return t.method()
}

// parse returns the target's URL. Its errors do not contain a password.
func (t *Target) parse() (*url.URL, error) {
	u, err := url.Parse(t.URL)
	switch {
	case err != nil:
		return nil, errors.New("a target's URL cannot be read: write it as http://localhost:8080/path")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("the URL %s: write it as http://localhost:8080/path", u.Redacted())
	}
	return u, nil
}

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 3)) }

// ReadTargets reads a list of targets. A target is a line
//
//	[WEIGHT] [METHOD] URL [@FILE]
//
// where URL may be a path relative to base, and FILE, relative to dir, has the body. Indented lines
// after it are its headers, "Name: value". Empty lines and lines that begin with # are skipped.
func ReadTargets(r io.Reader, base, dir string) ([]Target, error) {
	var out []Target
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		text := strings.TrimSpace(line)
		if text == "" || text[0] == '#' {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			name, value, ok := strings.Cut(text, ":")
			if !ok || len(out) == 0 {
				return nil, fmt.Errorf("line %d: an indented line is a header of the target above, written as Name: value", n)
			}
			t := &out[len(out)-1]
			if t.Header == nil {
				t.Header = http.Header{}
			}
			t.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
			continue
		}
		t, err := parseTarget(strings.Fields(text), base, dir)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if out = append(out, t); len(out) > maxTargets {
			return nil, fmt.Errorf("line %d: there are more than %d targets", n, maxTargets)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading targets: %w", err)
	}
	if len(out) == 0 {
		return nil, errors.New("it has no target: write lines of the form [WEIGHT] [METHOD] URL [@BODYFILE]")
	}
	return out, nil
}

// parseTarget parses a line of a file of targets, [WEIGHT] [METHOD] URL [@BODYFILE]. A path is relative to the URL base, the
// file of a body to the directory dir.
func parseTarget(fields []string, base, dir string) (t Target, err error) {
	t.Weight = 1
	if w, err := strconv.Atoi(fields[0]); err == nil {
		if w < 1 || w > 1_000_000 {
			return t, fmt.Errorf("a weight of %d: give 1 to 1000000", w)
		}
		t.Weight, fields = w, fields[1:]
	}
	if len(fields) > 0 && fields[0] == strings.ToUpper(fields[0]) && !strings.ContainsAny(fields[0], "/:@") {
		t.Method, fields = fields[0], fields[1:]
	}
	if len(fields) > 1 && strings.HasPrefix(fields[1], "@") {
		name := fields[1][1:]
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		if t.Body, err = ReadBody(name); err != nil {
			return t, err
		}
		fields = fields[:1]
	}
	if len(fields) != 1 {
		return t, errors.New("write [WEIGHT] [METHOD] URL [@BODYFILE]")
	}
	t.URL = fields[0]
	if strings.HasPrefix(t.URL, "/") {
		if base == "" {
			return t, fmt.Errorf("%s is a path: give the service's URL beside the file", t.URL)
		}
		u, err := url.Parse(base)
		if err != nil {
			return t, errors.New("the service's URL is not valid")
		}
		rel, err := u.Parse(t.URL)
		if err != nil {
			return t, fmt.Errorf("the path %s is not valid", t.URL)
		}
		t.URL = rel.String()
	}
	_, err = t.parse()
	return t, err
}

// ReadBody reads a file, of at most maxBody bytes, with the body of a request.
func ReadBody(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading a body: %w", err)
	}
	defer f.Close()
	b, err := wire.ReadAll(f, maxBody)
	if errors.Is(err, wire.ErrLarge) {
		return nil, fmt.Errorf("the body %s is larger than %d MiB", name, maxBody>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a body: %w", err)
	}
	return b, nil
}

// AreLoopback reports whether all targets are localhost or addresses of the loopback interface.
func AreLoopback(targets []Target) bool {
	for i := range targets {
		u, err := targets[i].parse()
		if err != nil || !isLoopbackHost(u.Hostname()) {
			return false
		}
	}
	return true
}

// isLoopbackHost reports whether a host without a port is localhost or a loopback address.
func isLoopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
