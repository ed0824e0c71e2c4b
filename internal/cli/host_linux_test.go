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
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestExplainWithHostSamples: a recording on this host is explained with the kernel's counters; one whose samples are damaged
// is explained without them, with a warning.
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
	check.True(t, strings.Contains(text, "\nhost ") && strings.Contains(text, "threads lost "), "no host section in\n%s", text)
	var rep report.Report
	data, _ := explained(name, "--json")
	must.Do(t, json.Unmarshal([]byte(data), &rep))
	must.True(t, rep.Host != nil && rep.Host.PID == os.Getpid() && rep.Host.Clock == "monotonic" && rep.Host.Coverage >= 0.9,
		"host %+v", rep.Host)

	whole := must.Have(bundle.Open(name))(t)
	defer whole.Close()
	trace, _, err := whole.Trace()
	must.Do(t, err)
	defer trace.Close()
	var b bytes.Buffer
	w := must.Have(bundle.NewWriter(&b, time.Time{}))(t)
	must.Have(io.Copy(w, trace))(t)
	must.Do(t, w.Add(bundle.NameHost, []byte("\x00garbage")))
	must.Do(t, w.Close(whole.Meta()))
	damaged := filepath.Join(dir, "damaged.whylate")
	must.Do(t, os.WriteFile(damaged, b.Bytes(), 0o600))
	data, _ = explained(damaged, "--json")
	rep = report.Report{}
	must.Do(t, json.Unmarshal([]byte(data), &rep))
	said := false
	for _, w := range rep.Input.Warnings {
		said = said || w.Code == "host-samples" && strings.Contains(w.Text, "no host samples")
	}
	check.True(t, rep.Host == nil && said, "host %+v, warnings %v", rep.Host, rep.Input.Warnings)
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
