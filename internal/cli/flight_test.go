package cli

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// A recorded is a service that serves existing recordings, so that tests do not wait.
type recorded struct {
	*httptest.Server
	traces, flights atomic.Int32
}

// serveRecorded serves a trace at pprof's path, and the handler flight, if it is not nil, at the flight recorder's path.
func serveRecorded(t *testing.T, trace []byte, flight http.HandlerFunc) *recorded {
	t.Helper()
	s := &recorded{}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/trace", func(w http.ResponseWriter, _ *http.Request) {
		s.traces.Add(1)
		w.Write(trace)
	})
	if flight != nil {
		mux.HandleFunc("/debug/flight", func(w http.ResponseWriter, r *http.Request) {
			s.flights.Add(1)
			flight(w, r)
		})
	}
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// flightFile returns a recording as a flight recorder serves it.
func flightFile(t *testing.T, trace []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := must.Have(bundle.NewWriter(&b, time.Now()))(t)
	w.Write(trace)
	m := bundle.Meta{ReceivedNS: 9.7e9, Flight: new(bundle.Flight)}
	m.Flight.Reason.Text = "asked over HTTP"
	must.Do(t, w.Close(m))
	return b.Bytes()
}

// TestExplainFlight: a URL is explained immediately from the service's flight recorder. It is explained from a trace if the
// service has no flight recorder, if that is empty, and if a flag requires a trace.
func TestExplainFlight(t *testing.T) {
	trace := testprog.Trace(t, "marked")
	file := flightFile(t, trace)
	whole := func(w http.ResponseWriter, _ *http.Request) { w.Write(file) }
	off := func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "off: its cost is above the budget", http.StatusServiceUnavailable)
	}
	page := func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>" + strings.Repeat("hello ", 50))) }
	for _, c := range []struct {
		name            string
		flight          http.HandlerFunc
		path            string
		flags           []string
		status          int
		flights, traces int32
		said, reason    string // in the first line; in the report
	}{
		{"served", whole, "", nil, ExitOK, 1, 0, "the last 9.7s that its flight recorder holds, without waiting (-d 10s records the next seconds instead)", "asked over HTTP"},
		{"named", whole, "/debug/flight", nil, ExitOK, 1, 0, "without waiting", "asked over HTTP"},
		{"not served", nil, "", nil, ExitOK, 0, 1, "", ""},
		{"off", off, "/", nil, ExitOK, 1, 1, "its flight recorder is empty (off: its cost is above the budget): recording 10s instead", ""},
		{"a page there", page, "", nil, ExitOK, 1, 1, "", ""},
		{"a trace is asked for", whole, "", []string{"-d", "2s"}, ExitOK, 0, 1, "", ""},
		{"a trace's path", whole, "/debug/pprof/trace", nil, ExitOK, 0, 1, "", ""},
		{"named, not served", nil, "/debug/flight", nil, ExitFailed, 0, 0, "there is no flight recorder", ""},
		{"named, off", off, "/debug/flight", nil, ExitFailed, 1, 0, "is empty", ""},
		{"named, and a duration", whole, "/debug/flight", []string{"-d", "2s"}, ExitUsage, 0, 0, "names a flight recorder", ""},
	} {
		s := serveRecorded(t, trace, c.flight)
		var out, errs bytes.Buffer
		args := append([]string{"explain", "--json"}, c.flags...)
		status := Run(context.Background(), append(args, s.URL+c.path), strings.NewReader(""), &out, &errs)
		first, _, _ := strings.Cut(errs.String(), "\n")
		if status != c.status || s.flights.Load() != c.flights || s.traces.Load() != c.traces || !strings.Contains(first, c.said) || c.said == "" && strings.Contains(first, "flight") {
			t.Errorf("%s: status %d, %d snapshots, %d traces, said %q", c.name, status, s.flights.Load(), s.traces.Load(), first)
		}
		check.False(t, c.reason != "" && !strings.Contains(out.String(), c.reason),
			"%s: the report does not say why the recording was kept", c.name)
	}
}

// TestFlightThatHangs: a service that does not answer the request for a flight recorder is recorded nevertheless.
func TestFlightThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for seconds")
	}
	trace := testprog.Trace(t, "marked")
	s := serveRecorded(t, trace, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	var out, errs bytes.Buffer
	if status := Run(context.Background(), []string{"explain", s.URL}, strings.NewReader(""), &out, &errs); status != ExitOK || s.traces.Load() != 1 {
		t.Errorf("status %d, %d traces: %s", status, s.traces.Load(), errs.String())
	}
}

// TestSpanIDs checks the values of --trace-id.
func TestSpanIDs(t *testing.T) {
	trace, span := [16]byte{0: 0x4b, 15: 0x36}, [8]byte{0: 0xa0, 7: 0x0b}
	const t32, s16 = "4b000000000000000000000000000036", "a00000000000000b"
	for text, want := range map[string]struct {
		trace [16]byte
		span  [8]byte
		err   error
	}{
		"": {}, t32: {trace: trace}, s16: {span: span}, " " + strings.ToUpper(t32) + "\n": {trace: trace}, "00-" + t32 + "-" + s16 + "-01": {trace: trace},
		t32[1:]: {err: errors.New("")}, strings.Repeat("0", 32): {err: errors.New("")}, strings.Repeat("0", 16): {err: errors.New("")}, "g" + s16[1:]: {err: errors.New("")}, "00--" + s16 + "-01": {err: errors.New("")},
	} {
		gotTrace, gotSpan, err := spanIDs(text)
		check.True(t, gotTrace == want.trace && gotSpan == want.span && (err == nil) == (want.err == nil),
			"%q: %x %x %v", text, gotTrace, gotSpan, err)
	}
}
