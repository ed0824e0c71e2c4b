package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/report"
)

// A recording on this host is explained with what the kernel counted; one whose
// samples are damaged without, and says so.
func TestExplainWithHostSamples(t *testing.T) {
	url := pprofServer(t)
	dir := t.TempDir()
	name := filepath.Join(dir, "x.whylate")
	if status, _, stderr := runRecord(context.Background(), url, "-d", "1s", "-o", name); status != ExitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	explained := func(name string, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		if status := Run(context.Background(), append([]string{"explain", name}, args...), strings.NewReader(""), &out, &errs); status != ExitOK {
			t.Fatalf("status %d: %s", status, errs.String())
		}
		return out.String(), errs.String()
	}
	text, _ := explained(name)
	if !strings.Contains(text, "\nhost ") || !strings.Contains(text, "threads lost ") {
		t.Errorf("no host section in\n%s", text)
	}
	var rep report.Report
	data, _ := explained(name, "--json")
	if err := json.Unmarshal([]byte(data), &rep); err != nil {
		t.Fatal(err)
	}
	if rep.Host == nil || rep.Host.PID != os.Getpid() || rep.Host.Clock != "monotonic" || rep.Host.Coverage < 0.9 {
		t.Fatalf("host %+v", rep.Host)
	}

	whole, err := bundle.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	trace, _, err := whole.Trace()
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	var b bytes.Buffer
	w, err := bundle.NewWriter(&b, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, trace); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(bundle.NameHost, []byte("\x00garbage")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(whole.Meta()); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(dir, "damaged.whylate")
	if err := os.WriteFile(damaged, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	data, _ = explained(damaged, "--json")
	rep = report.Report{}
	if err := json.Unmarshal([]byte(data), &rep); err != nil {
		t.Fatal(err)
	}
	said := false
	for _, w := range rep.Input.Warnings {
		said = said || w.Code == "host-samples" && strings.Contains(w.Text, "no host samples")
	}
	if rep.Host != nil || !said {
		t.Errorf("host %+v, warnings %v", rep.Host, rep.Input.Warnings)
	}
}

func TestHostFlagsThatExclude(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--pid 1 --no-host -o x.whylate h:1", "give one of them"},
		{"--pid -1 -o x.whylate h:1", "give one of them"},
		{"--pid 1 h:1 h:2", "2 services"},
	} {
		if status, _, stderr := runRecord(context.Background(), strings.Fields(c.args)...); status != ExitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %q, want %q", c.args, status, stderr, c.want)
		}
	}
}
