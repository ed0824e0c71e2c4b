package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// The test program is also the child process that runs verbs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == VerbArg {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		if file := os.Getenv(answerVariable); file != "" {
			data, err := os.ReadFile(file)
			for _, arg := range os.Args {
				if output, ok := strings.CutPrefix(arg, "--output="); ok {
					size, _ := strconv.ParseInt(os.Getenv(sizeVariable), 10, 64)
					err = errors.Join(err, os.WriteFile(output, nil, 0o600), os.Truncate(output, size))
				}
			}
			if err = errors.Join(err, os.WriteFile(file+".args", []byte(strings.Join(os.Args[1:], " ")), 0o600)); err == nil {
				_, err = os.Stdout.Write(data)
			}
			if err != nil {
				os.Exit(1)
			}
			os.Exit(0)
		}
		for os.Args[1] == endlessVerb {
			if _, err := os.Stdout.Write(make([]byte, 1<<20)); err != nil {
				os.Exit(1)
			}
		}
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// answerVariable names the file whose content each verb of the test program prints.
const answerVariable = "WHYLATE_TEST_ANSWER"

// sizeVariable is the size of the file that the test program writes as the verb record.
const sizeVariable = "WHYLATE_TEST_SIZE"

// endlessVerb is a verb of the test program whose output has no end.
const endlessVerb = "endless"

// TestTooMuchOutput: a verb that answers with more than the server keeps is ended, and the error names the verb.
func TestTooMuchOutput(t *testing.T) {
	r := &verbs{timeout: time.Minute, slots: make(chan struct{}, 1)}
	var answer any
	err := r.run(t.Context(), 0, &answer, endlessVerb, "x.trace")
	check.True(t, err != nil && err.Error() == "whylate endless answered with more than 64 MB", "%v", err)
}

// connect returns a client's session with a server of the configuration. The client's user answers a
// question with action; with "" the client cannot ask its user.
func connect(t *testing.T, c Config, action string) *mcp.ClientSession {
	t.Helper()
	if action == "" {
		return connectUser(t, c, nil)
	}
	return connectUser(t, c, func(string) string { return action })
}

// connectUser is connect with a user that answers each question with the result of answer.
func connectUser(t *testing.T, c Config, answer func(question string) string) *mcp.ClientSession {
	t.Helper()
	if c.MaxFile == 0 {
		c.MaxFile = 64 << 20
	}
	c.MaxRecord, c.Timeout = 5*time.Second, time.Minute
	s, err := New(c)
	must.Do(t, err)
	var opts mcp.ClientOptions
	if answer != nil {
		opts.ElicitationHandler = func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: answer(q.Params.Message)}, nil
		}
	}
	a, b := mcp.NewInMemoryTransports()
	must.Have(s.mcp.Connect(t.Context(), a, nil))(t)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, &opts).Connect(t.Context(), b, nil)
	must.Do(t, err)
	t.Cleanup(func() { session.Close() })
	return session
}

// ask calls a tool and returns its text, and whether that is an error.
func ask(t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) (string, bool) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return err.Error(), true
	}
	var text strings.Builder
	for _, c := range res.Content {
		text.WriteString(c.(*mcp.TextContent).Text)
	}
	check.False(t, strings.ContainsAny(text.String(), "\x1b\x00\u202e"), "%s %v: control characters in %q", tool, args, text.String())
	return text.String(), res.IsError
}

// answer calls a tool that must succeed and decodes its answer.
func answer[T any](t *testing.T, s *mcp.ClientSession, tool string, args map[string]any) *T {
	t.Helper()
	text, failed := ask(t, s, tool, args)
	must.False(t, failed, "%s %v: %s", tool, args, text)
	v := new(T)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%s %v: %v", tool, args, err)
	}
	return v
}

// corpus are recordings of programs with one known fault each, for every kind of cause.
var corpus = []string{
	"ants-few", "badger", "cache-sweep", "caddy-gzip", "caddy-slow-upstream", "checker-herd", "chi-lock", "controller-few-qps", "coredns-erratic",
	"coredns-slow-upstream", "cron-lock", "dns-lock", "dns-upstream", "etcd-defragment", "fasthttp-lock", "nats-sync-always", "redis-pool",
	"slog-pipe", "sql-pool", "transport-conns", "websocket-broadcast",
}

// TestCorpus follows the skill's instructions, explain and then request, and checks that the answers
// have the known cause and line.
func TestCorpus(t *testing.T) {
	dir, names := testprog.Corpus(t)
	type askedCase struct {
		name string
		f    *testprog.FieldCase
	}
	var list []askedCase
	for _, name := range names {
		f := must.Have(testprog.ReadField(dir, name))(t)
		if slices.Contains(corpus, name) && !f.Healthy && len(f.KnownWrong) == 0 {
			list = append(list, askedCase{name, f})
		}
	}
	if testing.Short() {
		list = list[:min(len(list), 2)]
	}
	found := 0
	for _, a := range list {
		path := testprog.FieldRecording(t, dir, a.name)
		s := connect(t, Config{Roots: []string{filepath.Dir(path)}}, "")
		first, failed := ask(t, s, "explain", map[string]any{"source": path})
		if failed {
			t.Errorf("%s: %s", a.name, first)
			continue
		}
		var e Explanation
		must.Do(t, json.Unmarshal([]byte(first), &e))
		next, failed := ask(t, s, "request", map[string]any{"report": e.Report})
		check.False(t, failed, "%s: %s", a.name, next)
		all := first + next
		missing := []string{}
		for part, want := range map[string]string{"cause": a.f.Truth.Cause, "site": a.f.Truth.Site, "own": a.f.Truth.OwnSite, "code": a.f.Truth.Code} {
			if ok, err := regexp.MatchString(want, all); err != nil || !ok {
				missing = append(missing, part)
			}
		}
		if len(missing) == 0 {
			found++
		} else {
			t.Logf("%s: not in the answers: %v", a.name, missing)
		}
		for tool, text := range map[string]string{"explain": first, "request": next} {
			check.True(t, len(text) <= maxAnswer, "%s: %s answers with %d bytes", a.name, tool, len(text))
		}
		t.Logf("%-24s explain %5d bytes, request %5d", a.name, len(first), len(next))
	}
	check.True(t, found*20 >= len(list)*18, "cause and line were found for %d of %d recordings, want 18 of 20", found, len(list))
}

// TestNotAllowed requests files and addresses that the server may not use.
func TestNotAllowed(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) string {
		p := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(p, []byte(text), 0o600))
		return p
	}
	secret := write(outside, "secret.trace", "secret")
	write(outside, "secret.go", "package secret // hidden\n")
	if err := os.Symlink(filepath.Join(outside, "secret.go"), filepath.Join(root, "link.go")); err != nil {
		t.Skip(err)
	}
	write(root, "no.trace", "\x1b]0;hostile\u202e\x07 this is no trace")
	if err := os.Symlink(secret, filepath.Join(root, "link.trace")); err != nil {
		t.Skip(err)
	}
	must.Do(t, os.Symlink(outside, filepath.Join(root, "dir")))
	large := must.Have(os.Create(filepath.Join(root, "large.trace")))(t)
	if err := large.Truncate(2 << 30); err != nil {
		t.Skip(err)
	}
	large.Close()
	s := connect(t, Config{Roots: []string{root}, URLs: []string{"http://127.0.0.1:1/debug"}, Recordings: filepath.Join(t.TempDir(), "new")}, "accept")
	for _, c := range []struct{ tool, arg, value, want string }{
		{"explain", "source", secret, "outside"},
		{"explain", "source", "../" + filepath.Base(outside) + "/secret.trace", "outside"},
		{"explain", "source", "link.trace", "outside"},
		{"explain", "source", "dir/secret.trace", "outside"},
		{"explain", "source", "/proc/self/environ", "outside"},
		{"explain", "source", root, "not a regular file"},
		{"explain", "source", "large.trace", "more than the"},
		{"explain", "source", "absent.trace", "does not exist"},
		{"explain", "source", "no.trace", "trace"},
		{"explain", "source", "--output=x", "does not exist"},
		{"explain", "source", "http://127.0.0.1:1/debug", "call record first"},
		{"record", "url", "http://127.0.0.1:2/debug", "was not allowed"},
		{"record", "url", "http://127.0.0.1:1/debug/../../admin", "was not allowed"},
		{"record", "url", "http://127.0.0.1:1/debugger", "was not allowed"},
		{"record", "url", "https://127.0.0.1:1/debug", "was not allowed"},
		{"record", "url", "http://user:pw@127.0.0.1:1/debug", "credentials"},
		{"record", "url", "file:///etc/passwd", "neither http nor https"},
		{"record", "url", "http://127.0.0.1:1/debug", "refused"}, // allowed, but no process listens
		{"request", "report", "nothing", "explain first"},
	} {
		text, failed := ask(t, s, c.tool, map[string]any{c.arg: c.value})
		check.True(t, failed && strings.Contains(text, c.want),
			"%s %s: %v, %q; want an error with %q", c.tool, c.value, failed, text, c.want)
	}
	for _, file := range []string{filepath.Join(outside, "secret.go"), "secret.go", "../secret.go", "link.go", filepath.Join(root, "link.go")} {
		if text, failed := ask(t, s, "source", map[string]any{"file": file, "line": 1}); !failed || !strings.HasPrefix(text, "no file of the directories") {
			t.Errorf("source %s: %q", file, text)
		}
	}
	if text, failed := ask(t, s, "source", map[string]any{"file": "no.trace", "line": 1}); !failed || !strings.Contains(text, "not a Go source file") {
		t.Errorf("source of a trace: %q", text)
	}
}

// service serves profiles as a Go service does.
func service(t *testing.T) string {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestRecordAsks: a service is recorded only if the client's user agrees.
func TestRecordAsks(t *testing.T) {
	if testing.Short() {
		t.Skip("records for a second")
	}
	address := service(t)
	for action, want := range map[string]string{"": "cannot ask", "decline": "did not agree", "cancel": "did not agree"} {
		s := connect(t, Config{Roots: []string{t.TempDir()}, URLs: []string{address}, Recordings: t.TempDir()}, action)
		if text, failed := ask(t, s, "record", map[string]any{"url": address, "seconds": 1}); !failed || !strings.Contains(text, want) {
			t.Errorf("action %q: %q", action, text)
		}
	}
	s := connect(t, Config{Roots: []string{t.TempDir()}, URLs: []string{address}, Recordings: t.TempDir()}, "accept")
	if text, failed := ask(t, s, "record", map[string]any{"url": address, "seconds": 60}); !failed || !strings.Contains(text, "from 1 to 5 seconds") {
		t.Errorf("a minute: %q", text)
	}
	rec := answer[Recording](t, s, "record", map[string]any{"url": address, "seconds": 1})
	if e := answer[Explanation](t, s, "explain", map[string]any{"source": rec.File}); e.Report == "" || !strings.Contains(e.Recorded, "Go 1.") {
		t.Errorf("explain of what was recorded: %+v", e)
	}
	res, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: recordingsURI})
	check.True(t, err == nil && strings.Contains(res.Contents[0].Text, filepath.Base(rec.File)),
		"the recording is not in the list: %v, %v", res, err)
}

// TestTools calls every tool for one recording, and checks the tools' descriptions.
func TestTools(t *testing.T) {
	dir, _ := testprog.Corpus(t)
	file := testprog.FieldRecording(t, dir, "sql-pool")
	workDir, err := os.Getwd()
	must.Do(t, err)
	s := connect(t, Config{Roots: []string{filepath.Dir(file), workDir}}, "")
	e := answer[Explanation](t, s, "explain", map[string]any{"source": filepath.Base(file)})
	second := answer[Explanation](t, s, "explain", map[string]any{"source": file})
	check.True(t, second.Report == e.Report, "the same file is report %s and %s", e.Report, second.Report)
	slow := answer[Path](t, s, "request", map[string]any{"report": e.Report, "group": e.Groups[0].Name})
	check.True(t, len(slow.Segments) != 0 && len(slow.OtherIDs) != 0, "path: %+v", slow)
	if otherPath := answer[Path](t, s, "request", map[string]any{"report": e.Report, "id": slow.OtherIDs[0]}); otherPath.ID != slow.OtherIDs[0] {
		t.Errorf("requested %s, got %s", slow.OtherIDs[0], otherPath.ID)
	}
	d := answer[Comparison](t, s, "diff", map[string]any{"before": file, "after": file})
	check.True(t, len(d.Changed) == 0 && len(d.Unchanged) != 0, "diff of a recording with itself: %+v", d)
	if p := answer[Proof](t, s, "verify", map[string]any{"before": file, "after": file}); len(p.Verdicts) == 0 {
		t.Errorf("verify: %+v", p)
	}
	if w := answer[WhatIf](t, s, "what_if", map[string]any{"source": file, "changes": []string{"network@=50%"}}); len(w.Groups) == 0 {
		t.Errorf("what_if: %+v", w)
	}
	if c := answer[Capacity](t, s, "capacity", map[string]any{"source": file, "goals": "p99=1s"}); len(c.Limits) == 0 || len(c.Latencies) == 0 || len(c.Goals) != 1 {
		t.Errorf("capacity: %+v", c)
	}
	if text, failed := ask(t, s, "what_if", map[string]any{"source": file, "changes": []string{"nowhere=5ms"}}); !failed || !strings.Contains(text, "nowhere") {
		t.Errorf("a change that meets nothing: %q", text)
	}
	if text, failed := ask(t, s, "explain", map[string]any{"source": file, "group": "("}); !failed || !strings.Contains(text, "regular expression") && !strings.Contains(text, "missing") {
		t.Errorf("a group that is no expression: %q", text)
	}
	if r := answer[Rules](t, s, "rules", nil); len(r.Rules) != len(report.RuleCodes()) || r.Rules[0].Means != "" {
		t.Errorf("rules: %d of %d", len(r.Rules), len(report.RuleCodes()))
	}
	if r := answer[Rules](t, s, "rules", map[string]any{"codes": []string{"WL2003"}}); len(r.Rules) != 1 || r.Rules[0].Means == "" {
		t.Errorf("rules WL2003: %+v", r)
	}
	if l := answer[Limits](t, s, "limits", nil); l.CPU == "" || l.Memory == "" {
		t.Errorf("limits: %+v", l)
	}
	src := answer[Source](t, s, "source", map[string]any{"file": "github.com/whylate/whylate/mcp/internal/server/server_test.go", "line": 1, "around": 1})
	check.True(t, len(src.Lines) == 2 && src.Lines[0] == ">    1  package server", "source: %q", src.Lines)
	if text, failed := ask(t, s, "source", map[string]any{"file": "server_test.go", "line": 100000}); !failed || !strings.Contains(text, "lines only") {
		t.Errorf("a line beyond the end: %q", text)
	}
	for code, ok := range map[string]bool{"WL2001": true, "WL9": false, "--json": false} {
		if _, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: ruleURI + code}); (err == nil) != ok {
			t.Errorf("resource of rule %s: %v", code, err)
		}
	}
	tools, err := s.ListTools(t.Context(), nil)
	must.Do(t, err)
	for _, tool := range tools.Tools {
		a := tool.Annotations
		if a == nil || a.ReadOnlyHint != (tool.Name != "record") || a.OpenWorldHint == nil || *a.OpenWorldHint || tool.OutputSchema == nil || tool.Description == "" {
			t.Errorf("tool %s: annotations %+v, schema %v", tool.Name, a, tool.OutputSchema != nil)
		}
	}
	for _, name := range []string{"why-is-this-service-slow", "is-this-change-slower"} {
		p, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: name, Arguments: map[string]string{"source": "x.trace", "before": "x.trace", "after": "y.trace"}})
		check.True(t, err == nil && strings.Contains(p.Messages[0].Content.(*mcp.TextContent).Text, "x.trace"),
			"prompt %s: %v, %v", name, p, err)
	}
}

// TestAnswersFit: newExplanation and newPath shorten a report that does not fit.
func TestAnswersFit(t *testing.T) {
	long := strings.Repeat("\x1b[31mverylongname.", 500)
	r := &report.Report{}
	for i := range 200 {
		site := &report.Site{Func: long, File: long + ".go", Line: i}
		g := report.Group{ID: fmt.Sprint(i), Name: fmt.Sprint(long, i)}
		q := report.Request{ID: "q", LatencyNS: 1e9}
		for k := range 500 {
			q.Segments = append(q.Segments, report.Segment{DurationNS: int64(k), Site: site, Via: []report.Via{{Site: site}, {Site: site}, {Site: site}, {Site: site}}})
		}
		g.Slowest = []report.Request{q}
		r.Groups = append(r.Groups, g)
		r.Findings = append(r.Findings, report.Finding{Code: "WL2001", Title: fmt.Sprint(i, long), Fix: long, Site: site, Group: g.ID, Evidence: []report.Evidence{{Text: long}, {Text: long}, {Text: long}}})
		r.Verdict = append(r.Verdict, report.Verdict{Group: g.ID, Text: long})
	}
	e := newExplanation("x", r)
	if n := jsonSize(e); n > maxAnswer || len(e.Findings) == 0 || len(e.Findings)+e.MoreFindings != len(r.Findings) || strings.Contains(e.Findings[0].Title, "\x1b") {
		t.Errorf("%d bytes, %d findings and %d more", n, len(e.Findings), e.MoreFindings)
	}
	f := &e.Findings[0]
	for text, bound := range map[string]int{f.Title: maxText, f.Fix: maxText, f.Evidence[0]: maxText, f.Site: 2 * maxName, f.File: 2 * maxName, f.Groups[0]: maxName, e.Groups[0].Name: maxName, e.Verdict[0].Text: 2 * maxText, e.Verdict[0].Group: maxName} {
		check.True(t, termtext.Width(text) <= bound && termtext.Width(text) > bound-8, "%d columns, want %d: %s", termtext.Width(text), bound, text)
	}
	p := newPath(&r.Groups[0], &r.Groups[0].Slowest[0])
	if n := jsonSize(p); n > maxAnswer || len(p.Segments) == 0 || len(p.Segments)+p.Shortened != 500 {
		t.Errorf("%d bytes, %d segments and %d more", n, len(p.Segments), p.Shortened)
	}
}

// TestLongestSegmentsStay: a shortened path keeps the longest segments, in order of time.
func TestLongestSegmentsStay(t *testing.T) {
	q := &report.Request{ID: "q"}
	for i := range 3 * maxSegments {
		s := report.Segment{StartNS: int64(i) * 1e6, DurationNS: 1000, Goroutine: uint64(i)}
		if i%3 == 2 {
			s.DurationNS = int64(1e6 + i)
		}
		q.Segments = append(q.Segments, s)
	}
	p := newPath(&report.Group{}, q)
	must.True(t, len(p.Segments) == maxSegments && p.Shortened == 2*maxSegments, "%d segments and %d more", len(p.Segments), p.Shortened)
	for i, s := range p.Segments {
		check.True(t, s.Goroutine == uint64(3*i+2), "segment %d is that of goroutine %d, %s long", i, s.Goroutine, s.Duration)
	}
}

// TestChangeText: a comparison reports a lack of evidence of a change, or by how much a latency
// changed.
func TestChangeText(t *testing.T) {
	ns := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		change compare.Change
		want   string
	}{
		{compare.Change{Old: ns(10e6), New: ns(30e6), Low: ns(15e6), High: ns(25e6), Evidence: true}, "10.0ms → 30.0ms (by 15ms to 25ms)"},
		{compare.Change{Old: ns(10e6), New: ns(11e6), Low: ns(-2e6), High: ns(4e6)}, "10.0ms → 11.0ms (no evidence of a change)"},
		{compare.Change{Old: ns(10e6), New: ns(30e6)}, "10.0ms → 30.0ms (too few requests to tell)"},
	} {
		if got := changeText(&c.change); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestStoredReports: the newest reports stay, and a report that is added again counts as new.
func TestStoredReports(t *testing.T) {
	var r reports
	for i := range maxReports {
		r.add(storedReport{id: fmt.Sprint(i)})
	}
	r.add(storedReport{id: "0"})
	r.add(storedReport{id: "new"})
	for id, want := range map[string]bool{"new": true, "0": true, "1": false, "2": true, fmt.Sprint(maxReports - 1): true} {
		if _, err := r.get(id); (err == nil) != want {
			t.Errorf("report %s: %v", id, err)
		}
	}
}

// TestHTTP: the server listens on loopback only and refuses requests from web pages.
func TestHTTP(t *testing.T) {
	s, err := New(Config{Roots: []string{t.TempDir()}, Timeout: time.Minute})
	must.Do(t, err)
	if err := s.ServeHTTP(t.Context(), "0.0.0.0:0", t.Output()); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("serving on all addresses: %v", err)
	}
	output := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeHTTP(ctx, "127.0.0.1:0", lineWriter(output)) }()
	address := regexp.MustCompile(`http://\S+`).FindString(<-output)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: address}, nil)
	must.Do(t, err)
	if r := answer[Rules](t, session, "rules", map[string]any{"codes": []string{"WL2001"}}); len(r.Rules) != 1 {
		t.Errorf("rules over HTTP: %+v", r)
	}
	session.Close()
	for header, value := range map[string]string{"Origin": "http://evil.example", "Host": "evil.example"} {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", address, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if req.Header.Set(header, value); header == "Host" {
			req.Host = value
		}
		res := must.Have(http.DefaultClient.Do(req))(t)
		res.Body.Close()
		check.Equal(t, res.StatusCode, http.StatusForbidden, "a request with %s %s: status", header, value)
	}
	for size, status := range map[int]int{1 << 20: http.StatusBadRequest, 1<<20 + 1: http.StatusRequestEntityTooLarge} { // the first is read, and is no request
		req, _ := http.NewRequestWithContext(t.Context(), "POST", address, strings.NewReader(strings.Repeat("x", size)))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		res := must.Have(http.DefaultClient.Do(req))(t)
		res.Body.Close()
		check.Equal(t, res.StatusCode, status, "a request of %d bytes: status", size)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A lineWriter sends the written texts to a channel.
type lineWriter chan<- string

func (l lineWriter) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

// TestFindingOfSeveralGroups: one fault in several groups is one finding, which names some of the groups.
func TestFindingOfSeveralGroups(t *testing.T) {
	r := &report.Report{}
	for i := range 6 {
		id := string(rune('a' + i))
		r.Groups = append(r.Groups, report.Group{ID: id, Name: "group " + id})
		r.Findings = append(r.Findings, report.Finding{ID: "f" + id, Code: report.RuleLockConvoy, Title: "a lock", Group: id, Site: &report.Site{Func: "main.f", Line: 1}})
	}
	e := newExplanation("r", r)
	check.Equal(t, len(e.Findings), 1, "findings")
	check.Equal(t, strings.Join(e.Findings[0].Groups, ", "), "group a, group b, group c, group d", "groups")
}
