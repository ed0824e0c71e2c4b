package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestFleet: a version in a fleet is an input like a file; errors of the fleet are reported.
func TestFleet(t *testing.T) {
	var asked []string
	fleet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String()+" "+r.Header.Get("Authorization"))
		if r.FormValue("version") != "v1+a" {
			http.Error(w, "no report of shop is kept", http.StatusNotFound)
			return
		}
		_ = report.WriteJSON(w, &report.Report{Schema: report.Schema})
	}))
	defer fleet.Close()
	t.Setenv(envFleet, fleet.URL+"/")
	t.Setenv(envFleetToken, "secret")
	s := &streams{command.Streams{Out: io.Discard, Err: new(bytes.Buffer)}}
	in, err := s.openInput(context.Background(), "fleet://shop@v1+a")
	if err != nil || !in.isReport {
		t.Fatal(in, err)
	}
	defer in.Close()
	if _, err := report.ReadJSON(in); err != nil {
		t.Error(err)
	}
	for name, says := range map[string]string{"fleet://shop@v9": "no report of shop is kept", "fleet://shop": "SERVICE@VERSION", "fleet://@v1": "SERVICE@VERSION"} {
		if _, err := s.openInput(context.Background(), name); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	check.True(t, len(asked) == 2 && asked[0] == "/v1/report?service=shop&version=v1%2Ba Bearer secret", "asked %q", asked)
}
