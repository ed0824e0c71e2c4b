package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestLoadExplain loads a service of this process and explains the recording of the load.
func TestLoadExplain(t *testing.T) {
	if testing.Short() {
		t.Skip("records for seconds")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/slow", scriptSlow)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := httptest.NewServer(mux)
	defer server.Close()
	var out, errs bytes.Buffer
	status := Run(t.Context(), []string{"load", "--explain", "--closed", "2", "-d", "2s", server.URL + "/slow"}, strings.NewReader(""), &out, &errs, allVerbs()...)
	load, answer, ok := strings.Cut(out.String(), "\n\nthe service during the load:\n\n")
	check.True(t, status == ExitOK && ok && strings.Contains(load, "requests") && strings.Contains(answer, "cli.scriptSleep"),
		"status %d, want an answer that names cli.scriptSleep after the result\n%s%s", status, &out, &errs)
}
