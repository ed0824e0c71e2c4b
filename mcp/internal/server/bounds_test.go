package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestOffer: testdata/offer.txt has all that a client sees before its first call: instructions, tools with their schemas and
// annotations, prompts and resources.
func TestOffer(t *testing.T) {
	s := connect(t, Config{Roots: []string{t.TempDir()}, Fleet: "http://127.0.0.1:1", Recordings: t.TempDir()}, "")
	ctx := t.Context()
	offer := []any{s.InitializeResult().Instructions, s.InitializeResult().Capabilities,
		must.Have(s.ListPrompts(ctx, nil))(t).Prompts, must.Have(s.ListResources(ctx, nil))(t).Resources, must.Have(s.ListResourceTemplates(ctx, nil))(t).ResourceTemplates}
	for _, tool := range must.Have(s.ListTools(ctx, nil))(t).Tools {
		offer = append(offer, tool)
	}
	for _, name := range []string{"why-is-this-service-slow", "is-this-change-slower"} {
		offer = append(offer, must.Have(s.GetPrompt(ctx, &mcp.GetPromptParams{Name: name, Arguments: map[string]string{"source": "x", "before": "x", "after": "y"}}))(t))
	}
	var got strings.Builder
	for _, part := range offer {
		got.Write(append(must.Have(json.Marshal(part))(t), '\n'))
	}
	must.Golden(t, *update, "testdata/offer.txt", []byte(got.String()))
}

// TestVerbEnds: a verb that takes too long, or whose client has gone, ends with the reason.
func TestVerbEnds(t *testing.T) {
	r := &verbs{timeout: time.Millisecond, slots: make(chan struct{}, 1)}
	var answer any
	err := r.run(t.Context(), 2*time.Millisecond, &answer, endlessVerb)
	check.True(t, err != nil && err.Error() == "whylate endless took longer than 3ms and was stopped", "%v", err)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	r.timeout = time.Minute
	check.True(t, errors.Is(r.run(canceled, 0, &answer, endlessVerb), context.Canceled) && len(r.slots) == 0, "a client that has gone")
	r.slots <- struct{}{}
	check.True(t, errors.Is(r.run(canceled, 0, &answer, endlessVerb), context.Canceled) && len(r.slots) == 1, "a client that has gone while another verb ran")
	<-r.slots
	file := filepath.Join(t.TempDir(), "answer")
	must.Do(t, os.WriteFile(file, []byte("no JSON"), 0o600))
	t.Setenv(answerVariable, file)
	err = r.run(t.Context(), 0, &answer, "explain")
	check.True(t, err != nil && strings.HasPrefix(err.Error(), "reading what whylate explain answered: "), "%v", err)
	for text, want := range map[string]string{"": "", "whylate: x\n": "x", "a\nwhylate: b\n\n": "b", "whylate: a\nb": "b"} {
		check.Equal(t, lastLine(text), want, "%q", text)
	}
}

// TestShortened: what an answer loses first if it is too long.
func TestShortened(t *testing.T) {
	long := strings.Repeat("\u1e81", 2000) // three bytes a column
	newReport := func(groups, findings, verdicts, evidence int) *report.Report {
		r := &report.Report{}
		for i := range groups {
			r.Groups = append(r.Groups, report.Group{ID: fmt.Sprint(i), Name: long})
		}
		for i := range findings {
			r.Findings = append(r.Findings, report.Finding{Code: "WL2001", Title: fmt.Sprint(i, long), Fix: long, Site: &report.Site{Func: long}, Evidence: slices.Repeat([]report.Evidence{{Text: long}}, evidence)})
		}
		for range verdicts {
			r.Verdict = append(r.Verdict, report.Verdict{Text: long})
		}
		return r
	}
	for _, c := range []struct{ groups, findings, verdicts, evidence, wantGroups, wantFindings, wantVerdicts, wantMore int }{
		{12, 1, 1, 0, 12, 1, 1, 0}, {12, 2, 1, 0, 12, 2, 1, 0}, {12, 3, 1, 0, 4, 3, 1, 0}, {12, 8, 1, 0, 3, 3, 1, 5}, {3, 8, 1, 5, 3, 1, 1, 7}, {3, 8, 3, 5, 3, 1, 1, 7}, {1, 1, 3, 5, 1, 1, 1, 0}, {0, 1, 3, 0, 0, 1, 3, 0}, {2, 2, 0, 5, 2, 1, 0, 1},
	} {
		e := newExplanation("x", newReport(c.groups, c.findings, c.verdicts, c.evidence))
		got := []int{len(e.Groups), len(e.Findings), len(e.Verdict), e.MoreFindings}
		check.True(t, slices.Equal(got, []int{c.wantGroups, c.wantFindings, c.wantVerdicts, c.wantMore}), "%+v: %v, %d bytes", c, got, jsonSize(e))
	}
}

// TestRankingFits: the ranking of a fleet loses its last findings if it is too long.
func TestRankingFits(t *testing.T) {
	fleet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := len(r.FormValue("service")); n < 50 {
			http.Error(w, "x", map[string]int{"bad": http.StatusBadRequest, "token": http.StatusUnauthorized, "none": http.StatusNotFound, "down": http.StatusBadGateway}[r.FormValue("service")])
			return
		}
		list := slices.Repeat([]map[string]any{{"title": r.FormValue("service"), "fix": r.FormValue("service")}}, 15)
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer fleet.Close()
	s := connect(t, Config{Fleet: fleet.URL, Recordings: t.TempDir(), Roots: []string{t.TempDir()}}, "")
	for length, want := range map[int]int{50: 15, 500: 15, 700: 14} {
		r := answer[Ranking](t, s, "fleet", map[string]any{"service": strings.Repeat("x", length)})
		check.True(t, len(r.Findings) == want && r.MoreFindings == 15-want, "%d columns: %d findings and %d more", length, len(r.Findings), r.MoreFindings)
	}
	for service, want := range map[string]string{"bad": `400 Bad Request: "from" is`, "token": "401 Unauthorized: the operator sets a reader's token", "none": "404 Not Found: the fleet does not know it", "down": "502 Bad Gateway"} {
		text, failed := ask(t, s, "fleet", map[string]any{"service": service})
		check.True(t, failed && strings.Contains(text, "the fleet answered "+want), "%s: %s", service, text)
	}
}

// TestRecordedSize: a recording is named with its size, and one that is too large for the next step says so.
func TestRecordedSize(t *testing.T) {
	file := filepath.Join(t.TempDir(), "answer")
	must.Do(t, os.WriteFile(file, []byte("{}"), 0o600))
	t.Setenv(answerVariable, file)
	s := connect(t, Config{Roots: []string{t.TempDir()}, URLs: []string{"http://127.0.0.1:1"}, Recordings: t.TempDir()}, "accept")
	t.Setenv(sizeVariable, fmt.Sprint(maxTrace))
	r := answer[Recording](t, s, "record", map[string]any{"url": "http://127.0.0.1:1/x", "seconds": 2})
	check.True(t, r.Bytes == maxTrace && r.Seconds == "2s" && strings.HasPrefix(filepath.Base(r.File), "127.0.0.1_1-"), "%+v", r)
	t.Setenv(sizeVariable, fmt.Sprint(maxTrace+1))
	text, failed := ask(t, s, "record", map[string]any{"url": "http://127.0.0.1:1/x", "seconds": 2})
	check.True(t, failed && strings.Contains(text, "the recording has 256 MB: record for a shorter time"), "%s", text)
}

// TestRecordErrors: the error of a failed recording has no text of the recorded server.
func TestRecordErrors(t *testing.T) {
	output := func(kind record.Kind) error {
		return &verbError{"words of the server", fmt.Appendf(nil, `{"recordings":[{"error":{"kind":%q}}]}`, kind)}
	}
	for _, kind := range slices.Sorted(maps.Keys(failureTexts)) {
		check.Equal(t, recordError(output(kind)).Error(), "recording the service: "+failureTexts[kind], "%v", kind)
	}
	const unknown = "recording the service: what arrived cannot be explained"
	check.Equal(t, recordError(output("new")).Error(), unknown, "an unknown kind")
	check.Equal(t, recordError(&verbError{"words", []byte(`{"recordings":[{}]}`)}).Error(), unknown, "no error")
	for _, err := range []error{errors.New("own words"), &verbError{"own words", nil}, &verbError{"own words", []byte(`{"recordings":[]}`)}} {
		check.Equal(t, recordError(err), err, "it failed before a request")
	}
}
