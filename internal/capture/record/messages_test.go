package record

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

var update = flag.Bool("update", false, "write the golden files")

func clientOf(t *testing.T, target string, opt Options) *client {
	t.Helper()
	end, login, err := ParseEndpoint(target)
	must.Do(t, err)
	return must.Have(newClient(t.Context(), end, login, opt))(t)
}

// TestMessages compares the messages about answers and failed requests, with their advice, with a
// golden file.
func TestMessages(t *testing.T) {
	var b bytes.Buffer
	write := func(situation string, e *Error) {
		fmt.Fprintf(&b, "%s\n  %s: %s\n", situation, e.Kind, e)
		if e.isProfilerBusy {
			b.WriteString("  another CPU profile\n")
		}
	}
	const target = "http://service:6060"
	anonymous, authenticated := clientOf(t, target, quickOptions()), clientOf(t, "http://ann:secret@service:6060", quickOptions())
	answer := func(c *client, status int, header, body, from string) *Error {
		u := must.Have(url.Parse(from + "/debug/pprof/trace?seconds=5"))(t)
		resp := &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: &http.Request{URL: u}}
		if k, v, ok := strings.Cut(header, ": "); ok {
			resp.Header.Set(k, v)
		}
		return c.statusError("recording", resp, 5)
	}
	for _, status := range []int{299, 300, 301, 399, 400, 401, 403, 404, 405, 407, 500, 501, 502, 503, 504} {
		write(fmt.Sprint(status), answer(anonymous, status, "", "why", target))
	}
	for _, status := range []int{401, 403, 404} {
		write(fmt.Sprint(status, " with credentials"), answer(authenticated, status, "", "", target))
		write(fmt.Sprint(status, " of another host"), answer(authenticated, status, "", "ann:secret", "http://elsewhere"))
	}
	write("404 of pprof", answer(anonymous, 404, "X-Go-Pprof: 1", "Unknown profile", target))
	for _, body := range []string{"Could not enable tracing: tracing is already enabled", "Could not enable CPU profiling: cpu profiling already in use", "could not enable cpu profiling: no", "profile duration exceeds server's WriteTimeout",
		"Client sent an HTTP request to an HTTPS server.", "<html><TITLE lang=x>a login</title>", "<html><title", "<html><title>", "<html>no title", "\x1b[2J", strings.Repeat("x", 5000)} {
		write(fmt.Sprintf("400 with %.60q", body), answer(anonymous, 400, "", body, target))
	}
	op := func(op string, err error) error {
		return &url.Error{Op: "Get", URL: target, Err: &net.OpError{Op: op, Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6060}, Err: err}}
	}
	for _, err := range []error{
		op("dial", syscall.ECONNREFUSED), op("proxyconnect", syscall.ECONNREFUSED), errors.New("it was refused"), op("dial", &net.DNSError{Name: "nowhere", Err: "no such host"}), op("dial", &net.DNSError{Name: "slow", IsTimeout: true}),
		op("dial", os.ErrDeadlineExceeded), io.EOF, io.ErrUnexpectedEOF, op("read", syscall.ECONNRESET), errors.New("what else"), errors.New("remote error: tls: bad certificate"), errors.New("remote error: tls: protocol version"),
		errors.New("http: server gave HTTP response to HTTPS client"), tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, x509.UnknownAuthorityError{}, &tls.CertificateVerificationError{Err: errors.New("bad")},
		x509.CertificateInvalidError{Reason: x509.Expired, Detail: "long ago"}, x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"other"}}, Host: "service"},
		&Error{Kind: Redirect, Op: "x", URL: "y", Text: "ten redirects"},
	} {
		write(fmt.Sprintf("%.80v", err), anonymous.describe(t.Context(), "recording", target, err))
	}
	secret := authenticated.describe(t.Context(), "recording", target, errors.New("the password secret was wrong"))
	write("a secret", secret)
	check.True(t, secret.Err == nil && !strings.Contains(b.String(), "secret was"), "%v, because of %v", secret, secret.Err)
	for _, cause := range []error{errNoProgress, context.DeadlineExceeded, errFinished} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		write(fmt.Sprint("ended by ", cause), anonymous.describe(ctx, "recording", target, io.EOF))
	}
	certClient := clientOf(t, "https://service:6060", quickOptions())
	certClient.certRequested.Store(true)
	write("after a request for a certificate", certClient.describeRequest(t.Context(), "recording", target, io.EOF))
	write("refused all the same", certClient.describeRequest(t.Context(), "recording", target, syscall.ECONNREFUSED))
	write("without such a wish", anonymous.describeRequest(t.Context(), "recording", target, io.EOF))
	certClient.options.TLS.Cert = "x.pem"
	write("with a certificate", certClient.describe(t.Context(), "recording", target, errors.New("remote error: tls: unknown certificate authority")))
	must.Golden(t, *update, "testdata/messages.txt", b.Bytes())
}

// TestCheckBoundsLimits: the recording stops just above each bound of duration and size.
func TestCheckBoundsLimits(t *testing.T) {
	c := clientOf(t, "http://service:6060", quickOptions())
	for _, k := range []struct {
		last     time.Duration
		bytes    int64
		maxBytes int64
		want     string
	}{
		{0, 0, 0, ""}, {2*time.Second + 2*c.options.Grace, 0, 0, ""}, {2*time.Second + 2*c.options.Grace + 1, 0, 0, "still sends after"},
		{0, baseBytes + bytesPerSecond, 0, ""}, {0, baseBytes + bytesPerSecond + 1, 0, "an implausible amount"}, {0, 100, 100, ""}, {0, 101, 100, "it is larger than"},
	} {
		c.options.MaxBytes = k.maxBytes
		s := &Stream{client: c, seconds: 1, lastByteTime: k.last, result: Result{Window: time.Second}}
		s.receivedBytes.Store(k.bytes)
		if err := s.checkBounds(); (err != nil) != (k.want != "") || err != nil && !strings.Contains(err.Error(), k.want) {
			t.Errorf("%+v: %v", k, err)
		}
	}
}

// TestFlightAddress: which path of a target is a flight recorder's.
func TestFlightAddress(t *testing.T) {
	for target, want := range map[string]string{
		"h:1": "http://h:1" + FlightPath + " false true", "http://h:1/": "http://h:1" + FlightPath + " false true", "h:1//": "http://h:1" + FlightPath + " false true", "h:1/flight": "http://h:1/flight true true", "http://h:1" + FlightPath + "?x=1": "http://h:1" + FlightPath + " true true",
		"h:1/x" + FlightPath: "http://h:1/x" + FlightPath + " true true", "h:1/debug/pprof/": "http://h:1/debug/pprof/ false false", "http://u:secret@h:1": "http://h:1" + FlightPath + " false true",
	} {
		named, may := MayServeFlight(target)
		got := fmt.Sprint(FlightURL(target), " ", named, " ", may)
		check.True(t, strings.ReplaceAll(got, "u:xxxxx@", "") == want && !strings.Contains(got, "secret"),
			"%s: %s, want %s", target, got, want)
	}
}

// TestHasGeneration: the file of a recording that ended early is usable if it has a complete
// generation; both for a trace and for a bundle.
func TestHasGeneration(t *testing.T) {
	dir := t.TempDir()
	trace := cannedTrace()
	packed := func(trace []byte) []byte {
		var b bytes.Buffer
		w := must.Have(bundle.NewWriter(&b, time.Now()))(t)
		must.Have(w.Write(trace))(t)
		must.Do(t, w.Close(bundle.Meta{}))
		return b.Bytes()
	}
	whole := packed(trace)
	for name, c := range map[string]struct {
		data []byte
		want bool
	}{
		"whole.trace": {trace, true}, "head.trace": {trace[:headerLen], false}, "part.trace": {trace[:headerLen+40], false}, "none.trace": {[]byte("no trace"), false}, "empty.trace": {nil, false},
		"whole" + BundleExt: {whole, true}, "UPPER.WHYLATE": {whole, true}, "head" + BundleExt: {packed(trace[:headerLen]), false}, "cut" + BundleExt: {whole[:len(whole)/2], false}, "trace" + BundleExt: {trace, false}, "recording.trace": {whole, false},
	} {
		name = filepath.Join(dir, name)
		must.Do(t, os.WriteFile(name, c.data, 0o600))
		check.Equal(t, hasGeneration(name), c.want, "%s is of use", filepath.Base(name))
	}
	check.True(t, !hasGeneration(filepath.Join(dir, "missing")) && !hasGeneration(dir), "what is no file is of use")
}

// TestRequestHeaders: which headers every request has, and which it never has.
func TestRequestHeaders(t *testing.T) {
	got := make(chan http.Header, 1)
	s := serveHandler(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	for agent, want := range map[string]string{"": "whylate", "mine/1": "mine/1"} {
		opt := quickOptions()
		opt.UserAgent, opt.Header = agent, http.Header{"X-Mine": {"1"}}
		c := clientOf(t, s.URL, opt)
		resp := must.Have(c.get(t.Context(), c.endpoint.handlerURL("cmdline", 0)))(t)
		resp.Body.Close()
		h := <-got
		check.True(t, h.Get("User-Agent") == want && h.Get("Accept-Encoding") == "identity" && h.Get("Referer") == "" && h.Get("X-Mine") == "1",
			"%q: %v", agent, h)
	}
}
