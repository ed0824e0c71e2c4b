package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
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
	secrets, scraped := file("whsec_"+strings.Repeat("QUJD", 8)), file("scrape_configs: [{job_name: x, static_configs: [{targets: [a]}]}]")
	for args, says := range map[string]string{ // says is "" for flags that are right, at their bounds
		"-workers=1 -max-recordings=1 -max-bytes=1 -max-queued=1": "", "-keep-raw=1ns -keep-raw-bytes=1 -keep-rows=24h -expires=1ns -since=1ns -drain=0": "", "-log=json -target=ingest": "",
		"-scrape-length=1s -scrape-budget=1s -scrape-share=0": "", "-scrape-length=1m -scrape-budget=1m -scrape-share=1": "", "-target=scrape -scrape=" + scraped: "", "-max-bytes=1EiB": "", "-store=otlp -otlp=http://x": "",
		"-webhook=http://x/y -public=https://x -pyroscope=http://x -webhook-secrets=" + secrets: "", "-target=work -webhook=https://x -webhook-secrets=" + secrets: "-public", "-kafka=kafka://x/y -s3=s3://x -clickhouse=clickhouse://x": "",
		"-tls-cert=" + secrets + " -tls-key=x": "", "-tls-cert=/none -tls-key=x": "-tls-cert: ", "-tls-key=x": "-tls-cert", "-kafka=kafka://x/y -s3=s3://x": "-clickhouse", "-kafka=kafka://x/y -clickhouse=x": "-s3",
		"-max-bytes=0": "-max-bytes", "-max-queued=0": "-max-queued", "-expires=0": "-expires", "-since=0": "-since", "-keep-raw-bytes=0": "-keep-raw-bytes", "-max-bytes=2EiB": "not a size", "-scrape-length=999ms": "-scrape-length",
		"-scrape-length=61s -scrape-budget=1h": "-scrape-length", "-scrape-length=5s -scrape-budget=4s": "-scrape-budget", "-scrape-share=-0.1": "-scrape-share", "-webhook-secrets=" + secrets: "-webhook", "-webhook=https://x -webhook-secrets=/none": "-webhook-secrets: ",
		"-policy=/none": "-policy: ", "-policy=" + file("owners: []"): "", "-policy=" + file("owners: 3"): "-policy: ",
		"-otlp=http://": "-otlp", "-pyroscope=ftp://x": "-pyroscope", "-public=http://a b": "-public",
		"-target=x": "-target", "-log=x": "-log", "-tls-cert=x": "-tls-key", "-listen=x": "-listen", "-workers=0": "-workers", "-max-recordings=0": "-max-recordings",
		"-keep-raw=0": "-keep-raw", "-keep-raw-bytes=x": "keep-raw-bytes", "-keep-rows=1h": "-keep-rows", "-drain=-1s": "-drain", "-unknown": "unknown",
		"-config=" + file("unknown 1"): "unknown", "-config=" + file("max-bytes many"): "max-bytes", "-config=/none": "none",
		"-kafka=kafka://x/y": "-s3",
		"-webhook=ftp://x":   "-webhook", "-webhook=https://x": "-webhook-secrets", "-public=x": "-public", "-allow-private=10.0.0.1": "range",
		"-store=x": "-store", "-store=otlp": "-otlp", "-otlp=collector": "-otlp", "-scrape=/none": "-scrape", "-target=scrape": "-scrape", "-scrape-budget=1s": "-scrape-budget", "-scrape-share=2": "-scrape-share",
	} {
		_, _, err := parseConfig(strings.Split(strings.ReplaceAll(args, " -", "\n-"), "\n"))
		check.True(t, (err == nil) == (says == "") && strings.Contains(fmt.Sprint(err), says), "%s: %v, want %q", args, err, says)
	}
}

// TestFlagsAfterTheVerb: flags count before and after the verb and its argument.
func TestFlagsAfterTheVerb(t *testing.T) {
	for _, args := range [][]string{
		{"-listen", "127.0.0.1:1", "-plain", "token", "shop"}, {"token", "-listen", "127.0.0.1:1", "-plain", "shop"}, {"token", "shop", "--listen=127.0.0.1:1", "-plain"},
	} {
		c, rest, err := parseConfig(args)
		check.True(t, err == nil && c.listenAddress == "127.0.0.1:1" && slices.Equal(rest, []string{"token", "shop"}),
			"%q: listen %q, arguments %q, %v", args, c.listenAddress, rest, err)
	}
	for _, c := range []struct{ args, want string }{ // a value follows all flags but boolean ones, and the last
		{"serve -plain -listen x:1", "-plain -listen x:1 -- serve"}, {"- -listen=x:1 a -dir b", "-listen=x:1 -dir b -- - a"}, {"a -unknown b", "-unknown -- a b"}, {"a -listen", "-listen -- a"},
	} {
		check.Equal(t, strings.Join(flagsFirst(newFlagSet(new(config)), strings.Fields(c.args)), " "), c.want, "%s", c.args)
	}
	if _, rest, err := parseConfig([]string{"token", "--", "-shop"}); err != nil || !slices.Equal(rest, []string{"token", "-shop"}) {
		t.Errorf("after --: %q, %v", rest, err)
	}
}
