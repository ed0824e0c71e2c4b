package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
)

// Options says how to record. The zero value records for [DefaultDuration] with both profiles and no credentials.
type Options struct {
	// Duration of the trace; 0 means DefaultDuration. The endpoint takes whole seconds, so it is rounded up.
	Duration time.Duration
	// NoCPU leaves out the CPU profile, and with it the CPU samples in the trace; NoAllocs the allocation profile.
	NoCPU, NoAllocs bool

	// NoHost leaves out samples of the host; PID is the process to sample, 0 the one that listens where the URL leads,
	// if that is this host. HostWriter, if not nil, gets host.jsonl when the recording has ended.
	NoHost     bool
	PID        int
	HostWriter io.Writer

	// Header is sent with every request to the endpoint's own host; Host in it replaces the request's host name.
	Header http.Header
	// Login is sent as basic authentication, instead of one in the URL. Token is sent as "Authorization: Bearer".
	Login *Login
	Token string
	// TLS holds what differs from the system's defaults.
	TLS TLSFiles
	// Proxy is the URL of an HTTP, HTTPS or SOCKS5 proxy; empty: as the environment says (HTTP_PROXY, HTTPS_PROXY,
	// NO_PROXY); "none": no proxy.
	Proxy string
	// NoRedirects makes an answer that redirects an error of kind [Redirect]: no other address is asked.
	NoRedirects bool

	// ConnectTimeout bounds connecting, and the TLS handshake again; 0 means 10 s. Grace is how long beyond the
	// recording's end the server may stay silent; 0 means 15 s.
	ConnectTimeout, Grace time.Duration

	// MaxBytes ends a trace that becomes larger; 0 means only what no service sends.
	MaxBytes int64

	// Progress, if set, is called about ten times a second while recording, and once at the end, never concurrently.
	Progress func(Progress)
	// UserAgent is sent to the server.
	UserAgent string

	// Dial, if set, makes the connections. An [*Error] that it or a connection's Read returns keeps its kind and text.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Service says what is recorded and where it runs, for a recording's metadata, with OpenTelemetry's names.
	Service map[string]string
	// ExplainCut, if set, is asked when a trace is cut: it returns what became of the service, "" if nothing is known.
	ExplainCut func(ctx context.Context) string
}

// TLSFiles names files in PEM format.
type TLSFiles struct {
	CACert     string // trust the authorities in this file instead of the system's
	Cert, Key  string // client certificate and its key
	ServerName string // name expected in the server's certificate
	Insecure   bool   // do not verify the server's certificate
}

// Progress is how far a recording has come.
type Progress struct {
	Bytes   int64         // of the trace, as received
	Elapsed time.Duration // since the trace was asked for; 0 while still connecting
	Total   time.Duration // what the trace will take
	Done    bool          // the last call
}

// DefaultDuration is long enough for some hundred requests of a quiet service and ten generations of the trace.
const DefaultDuration = 10 * time.Second

// maxDuration keeps the sum of seconds within what servers parse; a day is far beyond any use.
const maxDuration = 24 * time.Hour

func (o *Options) setDefaults() error {
	o.Duration, o.UserAgent = cmp.Or(o.Duration, DefaultDuration), cmp.Or(o.UserAgent, "whylate")
	if o.Duration < 0 || o.Duration > maxDuration {
		return &Error{Kind: Usage, Op: "recording", Text: fmt.Sprintf("a duration of %v is not possible", o.Duration), Remedy: "give one from 1s to 24h with -d"}
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 10 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 15 * time.Second
	}
	return nil
}

// seconds is what the endpoint is asked for.
func (o *Options) seconds() int { return int(math.Ceil(o.Duration.Seconds())) }

// AddHeaders adds headers written as "Name: value", one a string. Errors name the header's number in the list, never its
// content. From says where the list comes from, for errors.
func AddHeaders(h http.Header, source string, lines []string) error {
	for i, line := range lines {
		name, value, found := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !found || !isToken(name) {
			return &Error{Kind: Usage, Op: "reading headers", URL: source, Text: fmt.Sprintf("number %d is not of the form 'Name: value'", i+1)}
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return &Error{Kind: Usage, Op: "reading headers", URL: source, Text: fmt.Sprintf("number %d has a control character in its value", i+1)}
		}
		h.Add(name, value)
	}
	return nil
}

// isToken tells whether s may be the name of a header (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return false
		}
		return !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// SplitHeaderLines splits the content of a file or variable of headers: one a line, blank lines and lines that begin with #
// left out.
func SplitHeaderLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// ReadSecretFile reads a password, a token, or headers from a file, "-" being standard input: at most 64 KiB, without the
// line end.
func ReadSecretFile(name string, stdin io.Reader) (string, error) {
	const limit = 64 << 10
	var r = stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", &Error{Kind: Usage, Op: "reading credentials", Text: err.Error(), Err: err}
		}
		defer f.Close()
		r = f
	}
	b, err := wire.ReadAll(r, limit)
	if errors.Is(err, wire.ErrLarge) {
		return "", &Error{Kind: Usage, Op: "reading credentials from", URL: name, Text: "the file is larger than 64 KiB: is it the right one?"}
	}
	if err != nil {
		return "", &Error{Kind: Usage, Op: "reading credentials from", URL: name, Text: err.Error(), Err: err}
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}
