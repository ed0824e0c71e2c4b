package record_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestSaveFlight fetches the recording of a flight recorder, and several answers that are not one.
func TestSaveFlight(t *testing.T) {
	var b bytes.Buffer
	w := must.Have(bundle.NewWriter(&b, time.Now()))(t)
	w.Write([]byte("go 1.26 trace\x00\x00\x00"))
	must.Do(t, w.Close(bundle.Meta{}))
	mux := http.NewServeMux()
	whole := func(w http.ResponseWriter, _ *http.Request) { w.Write(b.Bytes()) }
	mux.HandleFunc("/debug/flight", whole)
	mux.HandleFunc("/elsewhere", whole)
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(strings.Repeat("<html>", 100))) })
	mux.HandleFunc("/off", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "off: too costly", http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100000")
		w.Write(b.Bytes())
	})
	mux.HandleFunc("/chunks", func(w http.ResponseWriter, _ *http.Request) { // without a length
		w.Write(b.Bytes()[:b.Len()-1])
		w.(http.Flusher).Flush()
		w.Write(b.Bytes()[b.Len()-1:])
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	maxBytes := int64(0)
	fetch := func(target string) (string, error) {
		name := filepath.Join(t.TempDir(), "x.whylate")
		n, err := record.SaveFlight(context.Background(), target, record.Options{Proxy: "none", MaxBytes: maxBytes}, name, nil)
		data, readErr := os.ReadFile(name)
		if (readErr == nil) != (err == nil) || int64(len(data)) != n && err == nil {
			t.Errorf("%s: %d bytes, %v; the file: %d bytes, %v", target, n, err, len(data), readErr)
		}
		return string(data), err
	}
	for _, target := range []string{srv.URL, strings.TrimPrefix(srv.URL, "http://"), srv.URL + "/", srv.URL + "/elsewhere"} {
		if data, err := fetch(target); err != nil || data != b.String() {
			t.Errorf("%s: %d bytes, %v", target, len(data), err)
		}
	}
	for path, c := range map[string]struct {
		kind record.Kind
		text string
	}{
		"/page": {record.NotATrace, "not a recording"}, "/off": {record.Empty, "too costly"}, "/nowhere": {record.NotFound, "service/flight"}, "/cut": {record.Cut, "cut"},
	} {
		_, err := fetch(srv.URL + path)
		var e *record.Error
		check.True(t, errors.As(err, &e) && e.Kind == c.kind && strings.Contains(err.Error(), c.text), "%s: %v", path, err)
	}
	maxBytes = int64(b.Len())
	_, err := fetch(srv.URL + "/chunks")
	check.True(t, err == nil, "a recording of MaxBytes: %v", err)
	maxBytes--
	_, err = fetch(srv.URL + "/chunks")
	check.True(t, err != nil && strings.Contains(err.Error(), "larger"), "a recording above MaxBytes: %v", err)

	readOnly := must.Have(os.Open(must.Have(filepath.Abs("flight.go"))(t)))(t)
	defer readOnly.Close()
	_, err = record.SaveFlight(context.Background(), srv.URL, record.Options{Proxy: "none"}, "", readOnly)
	wantWriteError := func(file string) {
		t.Helper()
		e, ok := errors.AsType[*record.Error](err)
		check.True(t, ok && e.Kind == record.Write && strings.HasPrefix(err.Error(), "saving the recording") && strings.Contains(err.Error(), file), "a failed write to %s: %v", file, err)
	}
	wantWriteError("flight.go")
	if _, noSuchDevice := os.Stat("/dev/full"); noSuchDevice == nil {
		_, err = record.SaveFlight(context.Background(), srv.URL, record.Options{Proxy: "none"}, "/dev/full", nil)
		wantWriteError("/dev/full")
	}
}

// TestFlightAddress: the end of a path identifies a flight recorder; without a path the usual one is
// possible; any other path leads to a trace.
func TestFlightAddress(t *testing.T) {
	for target, c := range map[string]struct {
		named, may bool
		url        string
	}{
		"h:1": {false, true, "http://h:1/debug/flight"}, "https://h/": {false, true, "https://h/debug/flight"}, "h:1/?seconds=5": {false, true, "http://h:1/debug/flight"},
		"h:1/flight": {true, true, "http://h:1/flight"}, "u:p@h:1/a/debug/flight": {true, true, "http://h:1/a/debug/flight"},
		"h:1/debug/pprof": {false, false, "http://h:1/debug/pprof"}, "h:1/a%20b/debug/flight?k=v": {true, true, "http://h:1/a%20b/debug/flight"},
		"ftp://u:p@h/flight": {false, false, "ftp://xxxxx@h/flight"},
	} {
		named, may := record.MayServeFlight(target)
		if got := record.FlightURL(target); named != c.named || may != c.may || got != c.url {
			t.Errorf("%s: named %v, may %v, %s", target, named, may, got)
		}
	}
}
