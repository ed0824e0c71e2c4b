package view

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
)

// TestReading follows a server from the begin of reading over a failure and a second recording to the page.
func TestReading(t *testing.T) {
	rep, tr, fileServer := newShownServer(t, Options{})
	// Fail waits for the timeout of pages that no longer poll.
	synctest.Test(t, func(t *testing.T) { checkProgress(t, rep, tr, fileServer) })
}

func checkProgress(t *testing.T, rep *report.Report, tr *inspect.Trace, fileServer *Server) {
	requests := 0
	s := must.Have(New(Options{ReadAgain: func(string) { requests++ }}))(t)
	page := func() string {
		return string(must.Have(io.ReadAll(call(s, "GET", "/", nil).Body))(t))
	}
	if got := page(); !strings.Contains(got, "<progress") || strings.Contains(got, `id="report"`) {
		t.Errorf("before the trace is read: %.300s", got)
	}
	check.Equal(t, call(s, "GET", "/api/requests", nil).StatusCode, http.StatusServiceUnavailable, "a request before the trace is read")
	unwatched := must.Have(New(Options{}))(t)
	unwatched.Fail(errors.New("no page is open")) // must return at once
	unwatched.SetProgress("late", "progress after the end", -1)
	if got := answer[Progress](t, unwatched, "/api/reading"); got.Reading || got.Error == "" {
		t.Errorf("after a failure: %+v", got)
	}
	s.SetProgress("<b>x.trace", "35% of 84.0 MB", 0.35)
	check.Equal(t, answer[Progress](t, s, "/api/reading"), Progress{Reading: true, Label: "<b>x.trace", Text: "35% of 84.0 MB", Share: 0.35},
		"a third is read")
	// An open page receives a failure before Fail returns.
	var shown atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for answer[Progress](t, s, "/api/reading").Error == "" {
		}
		shown.Store(true)
	}()
	s.Fail(errors.New("the disk burns"))
	<-done
	check.True(t, shown.Load() && strings.Contains(page(), "<progress"), "a failure is not shown")

	must.Do(t, s.Show(tr, rep))
	if got := answer[Progress](t, s, "/api/reading"); got.Reading || got.Error != "" || !strings.Contains(page(), `id="report"`) {
		t.Errorf("when it is read: %+v", got)
	}
	for target, want := range map[string]int{"/api/facts?recording=1": 200, "/api/facts?recording=2": 410, "/api/facts": 410} {
		check.Equal(t, call(s, "GET", target, nil).StatusCode, want, "%s", target)
	}
	from := func(origin string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Origin", origin) }
	}
	for _, tc := range []struct {
		method, origin string
		want           int
	}{
		{"GET", "http://127.0.0.1:8080", 405}, {"POST", "", 403}, {"POST", "http://evil.example", 403}, {"POST", "null", 403}, {"POST", "http://127.0.0.1:8080", 202}, {"POST", "http://127.0.0.1:8080", 409},
	} {
		check.Equal(t, call(s, tc.method, "/api/again", from(tc.origin)).StatusCode, tc.want, "%s /api/again from %q", tc.method, tc.origin)
	}
	check.True(t, requests == 1 && strings.Contains(page(), "<progress"), "%d new recordings were requested", requests)
	// After a failed recording, the earlier trace remains.
	s.Fail(errors.New("connection refused"))
	if got := answer[Progress](t, s, "/api/reading"); got.Error == "" || !got.Before || !strings.Contains(page(), `id="report"`) {
		t.Errorf("after a recording that failed: %+v", got)
	}
	check.Equal(t, call(fileServer, "POST", "/api/again", from("http://127.0.0.1:8080")).StatusCode, 405, "a file is recorded again")
}
