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

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/wire"
)

// Options configure a recording. The zero value records for [DefaultDuration] with both profiles and
// no credentials.
type Options struct {
	// Duration of the trace; 0 means DefaultDuration. The endpoint takes whole seconds, so it is rounded up.
	Duration time.Duration
	// NoCPU leaves out the CPU profile, and with it the CPU samples in the trace; NoAllocs the allocation profile.
	NoCPU, NoAllocs bool

	// NoHost leaves out host samples. PID is the process to sample, 0 for the process that listens at
	// the URL, if that is this host. HostWriter, if not nil, gets host.jsonl at the end of the
	// recording.
	NoHost     bool
	PID        int
	HostWriter io.Writer
	// Kernel, if not nil, starts to record the kernel's events about a process of this host.
	Kernel func(pid int) (KernelProbe, error)

	// Header is sent with every request to the endpoint's own host; Host in it replaces the request's host name.
	Header http.Header
	// Login is sent as basic authentication and overrides one in the URL. Token is sent as
	// "Authorization: Bearer".
	Login *Login
	Token string
	// TLS overrides the system's defaults.
	TLS TLSFiles
	// Proxy is the URL of an HTTP, HTTPS or SOCKS5 proxy. "" means the proxy of the environment
	// (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), "none" means no proxy.
	Proxy string
	// NoRedirects makes a redirect an error of kind [Redirect].
	NoRedirects bool

	// ConnectTimeout bounds connecting, and then the TLS handshake; 0 means 10 s. Grace bounds how long
	// the server may be silent after the end of the window; 0 means 15 s.
	ConnectTimeout, Grace time.Duration

	// MaxBytes ends a trace that becomes larger; 0 means a bound above any real trace.
	MaxBytes int64

	// Progress, if not nil, is called about ten times a second during the recording and once at the
	// end, never concurrently.
	Progress func(Progress)
	// UserAgent is sent to the server.
	UserAgent string

	// Dial, if not nil, opens the connections. An [*Error] from it or from a connection's Read keeps
	// its kind and text.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Service describes the service and its environment in the recording's metadata, with
	// OpenTelemetry's names.
	Service map[string]string
	// ExplainCut, if not nil, is called when a trace was cut. It returns the reason why the service
	// ended, "" if unknown.
	ExplainCut func(ctx context.Context) string
}

// A KernelProbe records the kernel's events about a process (package kernelprobe).
type KernelProbe interface {
	// Stop ends recording and returns kernel.bin, its description, and warnings.
	Stop() ([]byte, *bundle.Kernel, []bundle.Warning)
}

// Progress is the state of a running recording.
type Progress struct {
	Bytes   int64         // received bytes of the trace
	Elapsed time.Duration // since the request for the trace; 0 while connecting
	Total   time.Duration // length of the trace
	Done    bool          // the last call
}

// DefaultDuration suffices for some hundred requests of a quiet service and for ten generations of the
// trace.
const DefaultDuration = 10 * time.Second

// maxDuration keeps the sum of seconds in the range that servers parse. A day is far beyond any use.
const maxDuration = 24 * time.Hour

// setDefaults sets options that are zero: the duration, the user agent, the connect timeout (10 s) and the grace time (15 s).
// It returns an error if the duration is negative or too long.
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

// seconds returns the duration to request: Duration rounded up.
func (o *Options) seconds() int { return int(math.Ceil(o.Duration.Seconds())) }

// ReadSecretFile reads a password, a token, or headers from a file, "-" for standard input: at most 64
// KiB, without the line end.
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
