package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == work.VerbArgument {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// TestView: a finding leads to the lane of the request that waits, in a viewer of its recording that the server runs; the viewer ends
// with the server.
func TestView(t *testing.T) {
	s, h := newTestServer(t)
	defer s.EndViewers()
	packed := must.Have(os.ReadFile("../../../internal/acceptance/testdata/demo.trace.gz"))(t)
	trace := must.Have(io.ReadAll(must.Have(gzip.NewReader(bytes.NewReader(packed)))(t)))(t)
	rep := must.Have(whylate.Explain(t.Context(), bytes.NewReader(trace), whylate.Options{}))(t)
	id := addExplained(t, s, h, string(trace), "v1", rep)
	from := rep.Input.Start.Add(-time.Hour)
	problems, _, err := s.Store.Overview(t.Context(), store.Selection{From: from, To: time.Now().Add(time.Hour)})
	must.True(t, err == nil && len(problems) > 1, "%d findings, %v", len(problems), err)
	for _, p := range problems {
		location := must.Have(url.Parse(request(h, "GET", "/recordings/"+id+"/view?problem="+p.Problem, "").Header().Get("Location")))(t)
		shown := must.Have(url.ParseQuery(location.Fragment))(t)
		g, at, ok := strings.Cut(strings.TrimPrefix(shown.Get("lanes.at"), "g"), "@")
		must.True(t, ok && location.Path == "/recordings/"+id+"/view/", "%s leads to %s", p.Title, location)
		// The report's link names a finding that the report has.
		fragment := must.Have(url.Parse(request(h, "GET", "/recordings/"+id+"/report?problem="+p.Problem, "").Header().Get("Location")))(t).Fragment
		found := false
		for i := range rep.Findings {
			found = found || "finding="+rep.Findings[i].ID == fragment && string(rep.Findings[i].Code) == p.Code
		}
		check.True(t, found, "the report of %s: %q", p.Title, fragment)
		var answer struct{ Moment struct{ State string } }
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // while the trace is read, there is no answer
			w := request(h, "GET", fmt.Sprintf("%sapi/moment?g=%s&t=%s", location.Path, g, at), "")
			if w.Code == http.StatusOK {
				must.Do(t, json.Unmarshal(w.Body.Bytes(), &answer))
				break
			}
			must.True(t, w.Code == http.StatusServiceUnavailable && time.Now().Before(deadline), "%d %s", w.Code, w.Body)
		}
		check.True(t, slices.Contains([]string{"waiting", "runnable"}, answer.Moment.State), "at %s the request is %s", shown.Get("lanes.at"), answer.Moment.State)
	}
	page := request(h, "GET", "/recordings/"+id+"/view/", "")
	policies := page.Header().Values("Content-Security-Policy")
	check.True(t, page.Code == http.StatusOK && len(policies) == 1 && strings.Contains(policies[0], "frame-ancestors 'none'") && strings.Contains(page.Body.String(), "whylate"), "%d with %q", page.Code, policies)
	for _, path := range []string{"/recordings/" + strings.Repeat("0", 32) + "/view/", "/recordings/x/view/", "/recordings/" + id + "/view/api/none"} {
		check.Equal(t, request(h, "GET", path, "").Code, http.StatusNotFound, "%s", path)
	}
	s.EndViewers()
	check.Equal(t, len(s.viewers.byID), 0, "viewers after the end")
}

// TestDamagedView: the viewer of a damaged recording ends.
func TestDamagedView(t *testing.T) {
	s, h := newTestServer(t)
	defer s.EndViewers()
	id := addExplained(t, s, h, bareTrace+"1", "v1", hostileReport(1e6))
	w := request(h, "GET", "/recordings/"+id+"/view/", "")
	check.True(t, w.Code == http.StatusInternalServerError || w.Code == http.StatusBadGateway || w.Code == http.StatusOK, "%d %s", w.Code, w.Body)
	s.viewers.ends.Wait() // without a reason from outside
}

// TestViewerBounds: the viewer that was used longest ago makes place for another one; while all have requests, there is an error.
func TestViewerBounds(t *testing.T) {
	s := &Server{}
	l := &s.viewers
	run := func(ctx context.Context, v *viewer) {
		close(v.listens)
		<-ctx.Done()
	}
	var releases []func()
	for i := range maxViewers {
		_, release, err := l.acquire(fmt.Sprint(i), run)
		must.Do(t, err)
		releases = append(releases, release)
	}
	if _, _, err := l.acquire("more", run); !errors.Is(err, errViewersInUse) {
		t.Errorf("with %d viewers in use: %v", maxViewers, err)
	}
	first, release, err := l.acquire("0", run)
	must.Do(t, err)
	for _, release := range append(releases[1:], releases[0], release) {
		release()
	}
	_, release, err = l.acquire("more", run)
	must.Do(t, err)
	check.True(t, len(l.byID) == maxViewers && l.byID["0"] == first && l.byID["1"] == nil, "%d viewers", len(l.byID))
	release()
	s.EndViewers()
	check.Equal(t, len(l.byID), 0, "viewers after the end")
}
