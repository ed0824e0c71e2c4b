package record

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
)

// A Kind classifies the failure of a recording for programs. Error.Error has the text for users.
type Kind string

const (
	Usage        Kind = "usage"        // a wrong URL, option or file of credentials
	NotFound     Kind = "not-found"    // 404: no profiling handlers there
	Unauthorized Kind = "unauthorized" // 401, 407: credentials missing or wrong
	Forbidden    Kind = "forbidden"    // 403
	Busy         Kind = "busy"         // another program is tracing the same process
	TooLong      Kind = "too-long"     // the service's WriteTimeout does not allow the duration
	Status       Kind = "status"       // any other HTTP status
	NotATrace    Kind = "not-a-trace"  // another answer than a trace, such as a login page or a profile
	OldTrace     Kind = "old-trace"    // a trace of a Go version before 1.22
	DNS          Kind = "dns"          // the name does not resolve
	Refused      Kind = "refused"      // no process listens
	Unreachable  Kind = "unreachable"  // no route, connection reset, and the like
	TLS          Kind = "tls"          // certificates or protocol
	Timeout      Kind = "timeout"      // no connection, answer, or progress within the time allowed
	Proxy        Kind = "proxy"        // the proxy refused
	Redirect     Kind = "redirect"     // too many redirects, or an invalid target
	Cut          Kind = "cut"          // the trace ended early
	Interrupted  Kind = "interrupted"  // the context was cancelled
	Write        Kind = "write"        // the output could not be written
	NoProcess    Kind = "no-process"   // no such process, or one that is no Go program that can be recorded from outside
	Capability   Kind = "capability"   // the kernel's permissions do not allow to record a process from outside
	Costly       Kind = "costly"       // recording from outside would take too much of the process's CPU time
	Unsupported  Kind = "unsupported"  // the system cannot record a process from outside
	Empty        Kind = "empty"        // the flight recorder has no data: it is off, or has just started
)

// An Error is the error of every function of this package. No part of it contains credentials, and it
// unwraps to no error that does.
type Error struct {
	Kind   Kind
	Op     string // the operation
	URL    string // the redacted input of the operation
	Text   string // the failure
	Remedy string // advice; may be empty
	Err    error  // cause, may be nil

	isProfilerBusy bool // another CPU profile of the process is running
}

// Error returns one line: the operation, its input, the failure, and the advice.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.URL != "" {
		b.WriteString(" " + e.URL)
	}
	b.WriteString(": " + e.Text)
	if e.Remedy != "" {
		b.WriteString(": " + e.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Causes for cancelling the context of a request.
var (
	errNoProgress = errors.New("no data arrived in time")
	errFinished   = errors.New("recording finished")
)

// describe converts the error of a request, or of reading its body, to an Error with advice. op is the failed operation
// ("recording the trace at"), url its address without secrets.
func (c *client) describe(ctx context.Context, op, url string, err error) *Error {
	if ownErr, ok := errors.AsType[*Error](err); ok {
		// Returned by checkRedirect or checkProxyAnswer, and wrapped by net/http.
		e := *ownErr
		e.Op, e.URL = op, url
		return &e
	}
	err = withoutURLs(err)
	e := &Error{Kind: Unreachable, Op: op, URL: url, Text: cleanLine(c.secrets.scrub(err.Error()), 300), Err: err}
	if c.secrets.scrub(err.Error()) != err.Error() {
		e.Err = nil // the cause quotes a secret
	}
	// Some texts below quote the cause.
	defer func() { e.Text = c.secrets.scrub(e.Text) }()
	// A cancelled context makes reads and dials fail in many ways, so check it first.
	if cause := context.Cause(ctx); cause != nil {
		switch {
		case errors.Is(cause, errNoProgress):
			e.Kind, e.Err = Timeout, os.ErrDeadlineExceeded
			e.Text = "no answer within " + c.options.Grace.String() + " after the time that the recording takes"
			e.Remedy = "the service may be stuck or very busy: try a shorter duration, or a longer --timeout"
			return e
		case errors.Is(cause, context.DeadlineExceeded):
			e.Kind, e.Text, e.Err = Timeout, "the allowed time is over", cause
			return e
		default:
			e.Kind, e.Text, e.Err = Interrupted, "interrupted", context.Canceled
			return e
		}
	}
	var (
		dns      *net.DNSError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
		verify   *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		netErr   net.Error
		opErr    *net.OpError
	)
	text := err.Error()
	switch {
	case errors.As(err, &dns):
		e.Kind, e.Text = DNS, fmt.Sprintf("the name %q could not be resolved", cleanLine(dns.Name, 80))
		e.Remedy = "check its spelling; a name of a cluster is known only inside it: use a port-forward or --proxy"
		if dns.IsTimeout {
			e.Text += " (the name server did not answer)"
		}
	case errors.As(err, &unknown):
		e.Kind, e.Text = TLS, "its certificate is signed by an authority that is not trusted here"
		e.Remedy = "give the authority's certificate with --cacert, or skip the check with --insecure"
	case errors.As(err, &hostname):
		e.Kind, e.Text = TLS, "its certificate is for another name ("+cleanLine(err.Error(), 200)+")"
		e.Remedy = "use that name in the URL, or say which name to expect with --server-name"
	case errors.As(err, &invalid):
		e.Kind, e.Text = TLS, "its certificate is not valid: "+cleanLine(invalid.Error(), 200)
		e.Remedy = "renew it, check this machine's clock, or skip the check with --insecure"
	case errors.As(err, &verify):
		e.Kind, e.Remedy = TLS, "give the right authority with --cacert, or skip the check with --insecure"
	case errors.As(err, &record), strings.Contains(text, "server gave HTTP response to HTTPS client"):
		e.Kind, e.Text, e.Remedy = TLS, "the server there does not speak TLS", "use http:// instead of https://"
	case strings.Contains(text, "remote error: tls:"):
		e.Kind = TLS
		e.Text = "the server refused the TLS connection: " + cleanLine(text, 200)
		if strings.Contains(text, "certificate") {
			e.Remedy = c.certificateRemedy()
		}
	case errors.Is(err, syscall.ECONNREFUSED), strings.Contains(text, "refused"):
		e.Kind, e.Text = Refused, "connection refused: no process listens there"
		if errors.As(err, &opErr) && opErr.Addr != nil {
			e.Text = "connection to " + opErr.Addr.String() + " refused: no process listens there"
		}
		e.Remedy = "check the host and the port, and that the service is running and lets you reach its profiling port" + tunnelHint(url)
		if errors.As(err, &opErr) && opErr.Op == "proxyconnect" {
			e.Text, e.Remedy = "connection to the proxy refused", "check --proxy, or HTTP_PROXY and HTTPS_PROXY in the environment"
			e.Kind = Proxy
		}
	case errors.As(err, &netErr) && netErr.Timeout():
		e.Kind, e.Text = Timeout, "no connection within "+c.options.ConnectTimeout.String()
		e.Remedy = "check host, port and firewall, or allow more with --timeout" + tunnelHint(url)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		e.Text = "the server closed the connection without an answer"
		e.Remedy = "is it an HTTP port (or https://)? A WriteTimeout shorter than the recording ends it that way too: try -d 1s"
	}
	return e
}

// tunnelHint returns how to reach a port that only the other machine can reach, as the end of a sentence ("; if only ..."); "" if
// the URL is of this machine.
func tunnelHint(target string) string {
	u, err := neturl.Parse(target)
	if err != nil || u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback() {
		return ""
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	host := cleanLine(u.Hostname(), 80)
	return "; if only that machine can reach the port: ssh -L 6060:localhost:" + port + " " + host + ", then " + u.Scheme + "://localhost:6060"
}

// certificateRemedy returns the advice for a server that refuses the client's certificate or lack of
// one.
func (c *client) certificateRemedy() string {
	if c.options.TLS.Cert == "" {
		return "it requires a client certificate: give one with --cert and --key"
	}
	return "check the client certificate given with --cert and --key, and that it is signed by an authority that the server trusts"
}

// describeRequest is describe (with the same op and url) for a request without an answer. In TLS 1.3 a server checks the
// client's certificate after the client has begun to write. If the connection breaks first, the server's reason is lost.
func (c *client) describeRequest(ctx context.Context, op, url string, err error) *Error {
	e := c.describe(ctx, op, url, err)
	if e.Kind == Unreachable && c.certRequested.Load() {
		e.Kind, e.Remedy = TLS, c.certificateRemedy()
		e.Text = "the server asked for a client certificate and then closed the connection"
	}
	return e
}

// statusError converts an answer with another status than 200 to an Error about the operation op. It reads the start of the body, which the caller
// closes. seconds is the length of the recording that was requested.
func (c *client) statusError(op string, resp *http.Response, seconds int) *Error {
	u := resp.Request.URL
	body := c.readErrorBody(resp)
	e := &Error{Kind: Status, Op: op, URL: Redact(u)}
	e.Text = "the server answered " + c.quotableStatus(resp)
	quotedBody := c.secrets.quotable(body, 200)
	isHTML := strings.Contains(strings.ToLower(body), "<html")
	if isHTML {
		quotedBody = c.secrets.quotable(title(body), 100)
	}
	if quotedBody != "" {
		e.Text += " (" + quotedBody + ")"
	}
	redirectNote := ""
	if !c.isTrusted(u) {
		redirectNote = "; credentials were not sent, because a redirect led to another host: give that address directly if you trust it"
	}
	lowerBody := strings.ToLower(body)
	switch {
	case strings.Contains(body, "Client sent an HTTP request to an HTTPS server"):
		e.Kind, e.Remedy = TLS, "use https:// instead of http://"
	case strings.Contains(lowerBody, "could not enable tracing"):
		e.Kind = Busy
		e.Text = "another program is tracing this process (" + quotedBody + ")"
		e.Remedy = "only one can run at a time: wait and try again, or stop the other recorder (a continuous profiler, go tool trace, another whylate)"
	case strings.Contains(lowerBody, "could not enable cpu profiling"):
		e.isProfilerBusy = strings.Contains(lowerBody, "already in use")
	case strings.Contains(lowerBody, "exceeds server's writetimeout"):
		e.Kind = TooLong
		e.Text = fmt.Sprintf("the service's http.Server has a WriteTimeout that does not allow %d s", seconds)
		e.Remedy = "try a shorter -d, raise WriteTimeout, or serve net/http/pprof from a separate http.Server (Go 1.23 and later extend it themselves)"
	case resp.StatusCode == http.StatusUnauthorized:
		e.Kind, e.Remedy = Unauthorized, "give --user, --token-file or --header (see whylate record --help)"
		if c.hasCredentials {
			e.Remedy = "the credentials given were not accepted"
		}
		e.Remedy += redirectNote
	case resp.StatusCode == http.StatusProxyAuthRequired:
		e.Kind, e.Remedy = Unauthorized, "the proxy requires a user and password: put them in --proxy or the environment's proxy URL"
	case resp.StatusCode == http.StatusForbidden:
		e.Kind, e.Remedy = Forbidden, "these credentials, or this client's address, may not use it"
		if !c.hasCredentials {
			e.Remedy = "credentials may be missing (--user, --token-file, --header), or this client's address may not use it"
		}
		e.Remedy += redirectNote
	case resp.StatusCode == http.StatusNotFound && resp.Header.Get("X-Go-Pprof") != "":
		e.Kind = NotFound
		e.Remedy = `the service registers pprof.Index but not the trace handler: add mux.HandleFunc("` + u.EscapedPath() + `", pprof.Trace)`
	case resp.StatusCode == http.StatusNotFound:
		e.Kind = NotFound
		e.Remedy = `no profiling there: in the service, import _ "net/http/pprof" and serve http.DefaultServeMux, or give the full path if it is served elsewhere`
	case resp.StatusCode == http.StatusMethodNotAllowed:
		e.Remedy = "this is not net/http/pprof's trace handler: check the path"
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		e.Kind, e.Remedy = Redirect, "give the address that it leads to"
	case resp.StatusCode == http.StatusBadGateway, resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusGatewayTimeout:
		e.Remedy = "a proxy or load balancer in between has no working connection to the service, or cuts long answers: use the service's own address, or try a shorter -d"
	}
	return e
}

// quotableStatus returns the answer's status line ("404 Not Found"), or only its code if the text contains a secret.
func (c *client) quotableStatus(resp *http.Response) string {
	if s := c.secrets.quotable(resp.Status, 80); s != "" {
		return s
	}
	return strconv.Itoa(resp.StatusCode)
}

// readErrorBody returns at most the first 4096 bytes of an answer's body, for a message, as far as they arrive within two seconds; "" if they cannot
// be read.
func (c *client) readErrorBody(resp *http.Response) string {
	// A server may never end its error page.
	stop := time.AfterFunc(2*time.Second, func() { resp.Body.Close() })
	defer stop.Stop()
	r, err := decodedBody(resp)
	if err != nil {
		return ""
	}
	b, _ := wire.ReadFirst(r, 4096)
	return string(b)
}
