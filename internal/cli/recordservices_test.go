package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// shopServers serve the recordings of two services of lab/shop of which one calls the other.
func shopServers(t *testing.T) (audit, stock string) {
	t.Helper()
	for role, url := range map[string]*string{"audit": &audit, "stock": &stock} {
		*url = serveRecorded(t, must.Have(os.ReadFile(testprog.Recording(t, "shop/"+role+".trace")))(t), nil).URL
	}
	return audit, stock
}

// runVerb runs a command line.
func runVerb(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = Run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

// TestRecordServices: services with names are recorded into one file, which verbs read: explain, check, diff and export all services
// of it, and each verb one that the argument names. A service that does not answer is a warning, and the others are kept.
func TestRecordServices(t *testing.T) {
	audit, stock := shopServers(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "shop.whylate")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	status, stdout, stderr := runRecord(t.Context(), "--no-host", "-d", "1s", "-o", file, "audit="+audit, "stock="+stock, "gone="+closed.URL)
	check.Equal(t, status, ExitFailed, "with a service that does not answer: %s", stderr)
	check.True(t, strings.Contains(stdout, file+"#stock") && strings.Contains(stderr, "refused"), "output %q, messages %q", stdout, stderr)
	if left := must.Have(os.ReadDir(dir))(t); len(left) != 1 {
		t.Errorf("there are %d files, want one: %v", len(left), left)
	}
	explained := func(args ...string) *report.Report {
		t.Helper()
		status, stdout, stderr := runVerb(t, append([]string{"explain", "--json"}, args...)...)
		must.True(t, status == ExitOK, "%v: status %d: %s", args, status, stderr)
		return must.Have(report.ReadJSON(strings.NewReader(stdout)))(t)
	}
	rep := explained(file)
	must.True(t, len(rep.Services) == 2 && rep.Services[0].Name == "audit" && rep.Services[0].Calls[0].Service == "stock", "services %+v", rep.Services)
	if !slices.ContainsFunc(rep.Input.Warnings, func(w report.Warning) bool {
		return w.Code == "service" && strings.HasPrefix(w.Text, "gone was not recorded: ")
	}) {
		t.Errorf("no warning about the missing service: %v", rep.Input.Warnings)
	}
	if one := explained(file + "#stock"); one.Services != nil || one.Input.Service["service.name"] != "stock" {
		t.Errorf("one of the services: %v, %+v", one.Input.Service, one.Services)
	}
	for _, args := range [][]string{
		{"check", "--fail-on", "high", file}, {"check", "--fail-on", "high", file + "#audit"}, {"diff", file, file},
		{"export", "--to", "csv", file}, {"export", "--to", "csv", file + "#audit"},
		{"export", "--to", "otlp", file + "#audit", file + "#stock"}, {"check", "--fail-on", "high", file + "#audit", file + "#stock"},
	} {
		if status, _, stderr := runVerb(t, args...); status != ExitOK && status != ExitCheck {
			t.Errorf("%v: status %d: %s", args, status, stderr)
		}
	}
	checkSwitch(t, file)
	for _, c := range []struct {
		says string
		args []string
	}{
		{"no recording of price, but of audit, stock", []string{"explain", file + "#price"}},
		{"only one recording: leave out #x", []string{"explain", testprog.Recording(t, "shop/stock.trace") + "#x"}},
		{"name it, as in", []string{"export", "--to", "jsonl", "--all", file}},
	} {
		if status, _, stderr := runVerb(t, c.args...); status == ExitOK || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: status %d: %s", c.args, status, stderr)
		}
	}
}

// TestRecordServicesRefused: wrong names are refused before anything is recorded, and without any recording there is no file.
func TestRecordServicesRefused(t *testing.T) {
	audit, stock := shopServers(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "shop.whylate")
	for says, args := range map[string][]string{
		"has no name":       {"-o", file, "audit=" + audit, stock},
		"are named a":       {"-o", file, "a=" + audit, "a=" + stock},
		"name it x.whylate": {"-o", filepath.Join(dir, "x.trace"), "a=" + audit, "b=" + stock},
		"is given twice":    {"-o", file, "a=" + audit, "b=" + audit},
		"explain the file":  {"-o", file, "--json", "--explain", "a=" + audit, "b=" + stock},
	} {
		if status, _, stderr := runRecord(t.Context(), args...); status != ExitUsage || !strings.Contains(stderr, says) {
			t.Errorf("%v: status %d: %s", args, status, stderr)
		}
	}
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	if status, _, stderr := runRecord(t.Context(), "--no-host", "-o", file, "a="+closed.URL); status != ExitFailed {
		t.Errorf("status %d: %s", status, stderr)
	}
	if left := must.Have(os.ReadDir(dir))(t); len(left) != 0 {
		t.Errorf("there are files: %v", left)
	}
}

// TestFlightServices: the recordings of several flight recorders are fetched into one file.
func TestFlightServices(t *testing.T) {
	flight := flightFile(t, must.Have(os.ReadFile(testprog.Recording(t, "shop/stock.trace")))(t))
	serve := func() string {
		return serveRecorded(t, nil, func(w http.ResponseWriter, _ *http.Request) { w.Write(flight) }).URL
	}
	file := filepath.Join(t.TempDir(), "x.whylate")
	if status, _, stderr := runRecord(t.Context(), "--flight", "-o", file, "a="+serve(), "b="+serve()); status != ExitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	f := must.Have(os.Open(file))(t)
	defer f.Close()
	info := must.Have(f.Stat())(t)
	services := must.Have(bundle.ReadServices(f, info.Size()))(t)
	if names := services.Names(); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("the services are %v", names)
	}
	recording, size := services.Recording("b")
	check.True(t, must.Have(bundle.New(recording, size))(t).Meta().Flight != nil, "the recording is not that of the flight recorder")
}

// checkSwitch views a file with the recordings of audit and stock: first that of audit, then on demand that of stock.
func checkSwitch(t *testing.T, file string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, outWriter := io.Pipe()
	ended := make(chan struct{})
	go func() {
		Run(ctx, []string{"view", file}, nil, outWriter, io.Discard)
		outWriter.Close()
		close(ended)
	}()
	defer func() { cancel(); <-ended }()
	line, err := bufio.NewReader(out).ReadString('\n')
	must.Do(t, err)
	url := strings.TrimSpace(line)
	get := func(path string) string {
		res := must.Have(http.Get(url + path))(t)
		defer res.Body.Close()
		return string(must.Have(io.ReadAll(res.Body))(t))
	}
	shows := func(service string) {
		t.Helper()
		for strings.Contains(get("api/reading"), `"reading":true`) {
			time.Sleep(time.Millisecond)
		}
		if page := get(""); !strings.Contains(page, `"services":["audit","stock"]`) || !strings.Contains(page, file+"#"+service) {
			t.Errorf("the page is not that of %s", service)
		}
	}
	shows("audit")
	for _, c := range []struct {
		service string
		status  int
	}{{"price", http.StatusNotFound}, {"stock", http.StatusAccepted}} {
		q := must.Have(http.NewRequest(http.MethodPost, url+"api/again?service="+c.service, nil))(t)
		q.Header.Set("Origin", strings.TrimSuffix(url, "/"))
		res := must.Have(http.DefaultClient.Do(q))(t)
		res.Body.Close()
		check.True(t, res.StatusCode == c.status, "the answer to a request for %s is %s", c.service, res.Status)
	}
	shows("stock")
}
