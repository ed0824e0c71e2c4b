package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

var update = flag.Bool("update", false, "write the reference of docs/fleet-flags.md")

// TestReference: docs/fleet-flags.md lists all flags.
func TestReference(t *testing.T) {
	const file, begin, end = "../../../docs/fleet-flags.md", "-update -->\n", "<!-- end -->"
	data := must.Have(os.ReadFile(file))(t)
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	must.True(t, ok && ok2, "the place for flags is gone")
	var list strings.Builder
	fmt.Fprint(&list, "| flag | what | default |\n|---|---|---|\n")
	newFlagSet(new(config)).VisitAll(func(f *flag.Flag) {
		kind, text := flag.UnquoteUsage(f)
		value := f.DefValue
		if t, d, ok := strings.Cut(text, " (default "); ok {
			text, value = t, strings.TrimSuffix(d, ")")
		}
		if f.Name == "workers" {
			value = "one a CPU"
		}
		fmt.Fprintf(&list, "| `-%s` %s | %s | %s |\n", f.Name, kind, text, value)
	})
	want := before + begin + list.String() + end + after
	if *update {
		must.Do(t, os.WriteFile(file, []byte(want), 0o644))
	} else if string(data) != want {
		t.Error("docs/fleet-flags.md is not as the flags are: go test ./cmd/whylate-fleet -run Reference -update")
	}
}

// TestConfig: parseConfig rejects invalid flags, and the error names the flag.
func TestConfig(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(dir, fmt.Sprintf("%x", text))
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	t.Setenv("WHYLATE_FLEET_MAX_QUEUED", "7")
	c, rest, err := parseConfig([]string{"-config", file("keep-raw 48h\nkeep-raw-bytes 1GiB\nmax-queued 3\nworkers 9\n"), "-workers", "2", "serve"})
	if err != nil || c.retention.FileAge.Hours() != 48 || c.retention.FileBytes != 1<<30 || c.bounds.MaxQueued != 7 || c.workers != 2 || len(rest) != 1 {
		t.Errorf("%+v %q %v", c, rest, err)
	}
	for args, says := range map[string]string{
		"-target=x": "-target", "-log=x": "-log", "-tls-cert=x": "-tls-key", "-listen=x": "-listen", "-workers=0": "-workers", "-max-recordings=0": "-max-recordings",
		"-keep-raw=0": "-keep-raw", "-keep-raw-bytes=x": "keep-raw-bytes", "-keep-rows=1h": "-keep-rows", "-drain=-1s": "-drain", "-unknown": "unknown",
		"-config=" + file("unknown 1"): "unknown", "-config=" + file("max-bytes many"): "max-bytes", "-config=/none": "none",
		"-kafka=kafka://x/y": "-s3",
		"-webhook=ftp://x":   "-webhook", "-webhook=https://x": "-webhook-secrets", "-public=x": "-public", "-allow-private=10.0.0.1": "range",
		"-store=x": "-store", "-store=otlp": "-otlp", "-otlp=collector": "-otlp", "-scrape=/none": "-scrape", "-target=scrape": "-scrape", "-scrape-budget=1s": "-scrape-budget", "-scrape-share=2": "-scrape-share",
	} {
		if _, _, err := parseConfig([]string{args}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestFlagsAfterTheVerb: flags count before and after the verb and its argument.
func TestFlagsAfterTheVerb(t *testing.T) {
	for _, args := range [][]string{
		{"-listen", "127.0.0.1:1", "-plain", "token", "shop"}, {"token", "-listen", "127.0.0.1:1", "-plain", "shop"}, {"token", "shop", "--listen=127.0.0.1:1", "-plain"},
	} {
		c, rest, err := parseConfig(args)
		if err != nil || c.listenAddress != "127.0.0.1:1" || !slices.Equal(rest, []string{"token", "shop"}) {
			t.Errorf("%q: listen %q, arguments %q, %v", args, c.listenAddress, rest, err)
		}
	}
	if _, rest, err := parseConfig([]string{"token", "--", "-shop"}); err != nil || !slices.Equal(rest, []string{"token", "-shop"}) {
		t.Errorf("after --: %q, %v", rest, err)
	}
}
