package otlphttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/output/otlphttp"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// A receiver is an OTLP/HTTP endpoint that returns the given answers.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex // the client retries an aborted request while the server still handles it
	bodies   [][]byte
	header   http.Header
	answers  []answer // one for each request; the last one for all further requests
	requests int
}

type answer struct {
	status            int
	body, contentType string
	retryAfter        string
}

func newReceiver(t *testing.T, start func(*httptest.Server), answers ...answer) *receiver {
	t.Helper()
	r := &receiver{answers: answers}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bodies, r.header = append(r.bodies, body), req.Header
		if req.URL.Path == "/moved" {
			http.Redirect(w, req, "/v1/traces", http.StatusTemporaryRedirect)
			return
		}
		a := r.answers[min(r.requests, len(r.answers)-1)]
		r.requests++
		if a.contentType != "" {
			w.Header().Set("Content-Type", a.contentType)
		}
		if a.retryAfter != "" {
			w.Header().Set("Retry-After", a.retryAfter)
		}
		if a.status < 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(a.status)
		io.WriteString(w, a.body)
	}))
	start(r.Server)
	t.Cleanup(r.Close)
	return r
}

// sample is a report with requests in full.
func sample(t *testing.T) *report.Report {
	t.Helper()
	data := must.Have(os.ReadFile("../../../report/testdata/pubsub.json"))(t)
	return must.Have(report.ReadJSON(bytes.NewReader(data)))(t)
}

func plainHTTP(s *httptest.Server) { s.Start() }

// sendAll sends a report's requests and returns the waits before retries.
func sendAll(url, encoding string, r *report.Report, conf *tls.Config) (*otlphttp.Client, []time.Duration, error) {
	c, err := otlphttp.NewClient(url, encoding, http.Header{"X-Key": {"hidden"}}, conf)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	var waits []time.Duration
	c.Wait = func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}
	s, err := export.NewSpans(r, encoding, true, func(body []byte, spans int) error { return c.Send(context.Background(), body, spans) })
	if err != nil {
		return nil, nil, err
	}
	err = s.FromReport(r)
	return c, waits, err
}

func TestSendOTLP(t *testing.T) {
	r := sample(t)
	srv := newReceiver(t, plainHTTP, answer{status: 200, body: "{}"})
	url := strings.Replace(srv.URL, "http://", "http://user:secret@", 1)
	if _, _, err := sendAll(url+"/v1/traces", "json", r, nil); err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	must.Do(t, export.OTLP(&written, r))
	if !bytes.Equal(bytes.Join(srv.bodies, nil), written.Bytes()) || srv.header.Get("X-Key") != "hidden" || srv.header.Get("Content-Type") != "application/json" {
		t.Errorf("%d bodies arrived, with %v", len(srv.bodies), srv.header)
	}
	if _, _, err := sendAll(url+"/v1/traces", "protobuf", r, nil); err != nil {
		t.Fatal(err)
	}
	check.Equal(t, srv.header.Get("Content-Type"), "application/x-protobuf", "protocol buffers go with %v", srv.header)
	for _, c := range []struct {
		name, path string
		answer     answer
		want       string
	}{
		{"refused", "/v1/traces", answer{status: 403, body: "no"}, "403"},
		{"a redirect", "/moved", answer{status: 200}, "307"},
		{"always busy", "/v1/traces", answer{status: 429, body: "wait"}, "429"},
	} {
		srv.answers, srv.requests = []answer{c.answer}, 0
		_, _, err := sendAll(url+c.path, "json", r, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", c.name, err, c.want)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: the error contains a credential: %v", c.name, err)
		}
	}
	srv.Close()
	if _, _, err := sendAll(url+"/v1/traces", "json", r, nil); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("no server listens: error %v", err)
	}
	for _, bad := range []string{"localhost:4318", "ftp://x/", "http://"} {
		if _, err := otlphttp.NewClient(bad, "json", nil, nil); err == nil {
			t.Errorf("%q is taken as an endpoint", bad)
		}
	}
}

// TestSendRetries checks when messages are sent again, and after which time.
func TestSendRetries(t *testing.T) {
	r := sample(t)
	ok := answer{status: 200, body: "{}"}
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		name    string
		answers []answer
		waits   []time.Duration
		fails   bool
	}{
		{"busy once", []answer{{status: 429, retryAfter: "7"}, ok}, []time.Duration{7 * time.Second}, false},
		{"busy without a time", []answer{{status: 503}, {status: 502}, {status: 504}, ok}, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, false},
		{"a long time", []answer{{status: 503, retryAfter: "250"}, ok}, []time.Duration{250 * time.Second}, false},
		{"a time beyond all patience", []answer{{status: 503, retryAfter: "86400"}, ok}, nil, true},
		{"a date", []answer{{status: 503, retryAfter: date}, ok}, nil, true},
		{"a date that is past", []answer{{status: 503, retryAfter: "Sat, 01 Jan 2000 00:00:00 GMT"}, ok}, []time.Duration{1}, false},
		{"nonsense", []answer{{status: 429, retryAfter: "soon"}, ok}, []time.Duration{time.Second}, false},
		{"not to be sent again", []answer{{status: 404}, ok}, nil, true},
		{"busy forever", []answer{{status: 429}}, []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9}, true},
	} {
		srv := newReceiver(t, plainHTTP, c.answers...)
		client, waits, err := sendAll(srv.URL, "json", r, nil)
		check.True(t, (err != nil) == c.fails && fmt.Sprint(waits) == fmt.Sprint(c.waits) && client.Retries == len(c.waits),
			"%s: waits %v, error %v; want %v, failure %v", c.name, waits, err, c.waits, c.fails)
		check.False(t, !c.fails && !bytes.Equal(srv.bodies[0], srv.bodies[len(srv.bodies)-1]), "%s: another body was sent again", c.name)
	}
	// The client retries with an endpoint that has accepted spans and closes its connections.
	reset := newReceiver(t, plainHTTP, ok, answer{status: -1}, answer{status: -1}, ok)
	client := must.Have(otlphttp.NewClient(reset.URL, "json", nil, nil))(t)
	defer client.Close()
	client.Wait = func(context.Context, time.Duration) error { return nil }
	for range 2 {
		if err := client.Send(context.Background(), []byte("{}"), 1); err != nil {
			t.Error(err)
		}
	}
	check.True(t, client.Spans == 2 && client.Retries != 0,
		"%d spans are sent with %d retries over connections that are closed", client.Spans, client.Retries)
	// An interrupted client does not wait.
	srv := newReceiver(t, plainHTTP, answer{status: 429, retryAfter: "30"})
	ctx, stop := context.WithCancel(context.Background())
	client = must.Have(otlphttp.NewClient(srv.URL, "json", nil, nil))(t)
	time.AfterFunc(10*time.Millisecond, stop)
	if err := client.Send(ctx, []byte("{}"), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: error %v", err)
	}
}

// TestSendRefused: a refused message does not prevent the others, and is reported.
func TestSendRefused(t *testing.T) {
	ok := answer{status: 200, body: "{}"}
	for _, refused := range []answer{{status: 400, body: "\x08\x03\x12\x07bad \"x\"", contentType: "application/x-protobuf"}, {status: 413, body: `bad "x"`}, {status: 422, body: `bad "x"`}, {status: 500, body: `bad "x"`}} {
		srv := newReceiver(t, plainHTTP, ok, refused, refused, ok)
		c := must.Have(otlphttp.NewClient(srv.URL, "json", nil, nil))(t)
		for range 4 {
			if err := c.Send(context.Background(), []byte("{}"), 10); err != nil {
				t.Fatalf("status %d: %v", refused.status, err)
			}
		}
		c.Close()
		if srv.requests != 4 || c.Spans != 20 || c.Refused != 2 || c.Refusal == nil || !strings.Contains(c.Refusal.Error(), `bad "x"`) || !strings.Contains(c.Refusal.Error(), strconv.Itoa(refused.status)) {
			t.Errorf("status %d: asked %d times, %d spans, %d refused: %v", refused.status, srv.requests, c.Spans, c.Refused, c.Refusal)
		}
	}
}

// TestSendPartialSuccess: spans that an endpoint rejects are counted.
func TestSendPartialSuccess(t *testing.T) {
	r := sample(t)
	for _, c := range []struct {
		name     string
		answer   answer
		rejected int64
		message  string
	}{
		{"none", answer{status: 200, body: `{"partialSuccess":{}}`}, 0, ""},
		{"text", answer{status: 200, body: `{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}`}, 3, "too old"},
		{"number", answer{status: 202, body: `{"partialSuccess":{"rejectedSpans":3}}`}, 3, ""},
		{"a warning", answer{status: 200, body: `{"partialSuccess":{"rejectedSpans":"0","errorMessage":"slow down"}}`}, 0, "slow down"},
		{"protocol buffers", answer{status: 200, contentType: "application/x-protobuf", body: "\x0a\x0b\x08\x03\x12\x07too old"}, 3, "too old"},
		{"broken protocol buffers", answer{status: 200, contentType: "application/x-protobuf", body: "\x0a\x7f\x08\x03"}, 0, ""},
		{"no JSON", answer{status: 200, body: "thanks"}, 0, ""},
		{"empty", answer{status: 200}, 0, ""},
	} {
		srv := newReceiver(t, plainHTTP, c.answer)
		client, _, err := sendAll(srv.URL, "json", r, nil)
		check.True(t, err == nil && client.Rejected == c.rejected && client.Message == c.message && client.Spans != 0,
			"%s: %d rejected, %q, error %v; want %d, %q", c.name, client.Rejected, client.Message, err, c.rejected, c.message)
	}
}

// TestSendTLS checks a private certificate authority and a client's certificate.
func TestSendTLS(t *testing.T) {
	r := sample(t)
	srv := newReceiver(t, func(s *httptest.Server) {
		s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are the test
		s.StartTLS()
	}, answer{status: 200, body: "{}"})
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	certificate := srv.TLS.Certificates[0]
	if _, _, err := sendAll(srv.URL, "json", r, nil); err == nil {
		t.Error("an unknown authority is trusted")
	}
	if _, _, err := sendAll(srv.URL, "json", r, &tls.Config{RootCAs: pool}); err == nil {
		t.Error("the client's certificate was not asked for")
	}
	if _, _, err := sendAll(srv.URL, "json", r, &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}}); err != nil {
		t.Error(err)
	}
	if _, err := otlphttp.NewClient("http://x/", "json", nil, &tls.Config{}); err == nil {
		t.Error("TLS for http://")
	}
}
