package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime/trace"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/service/mark"
)

// hostileName has what a terminal obeys or what hides a text: an escape sequence, the same by one character of C1, and by its bare byte, a
// backspace, a carriage return, a bell, directions of writing, a separator of lines, and no UTF-8.
const hostileName = "\x1b[31mred \u009b31m \x9b31m \u0085 \b\b\r\a\x7f \u202eevil\u2066 \u2028 \ufeff \xff"

// hostileTrace returns a trace whose names (of functions, files, tasks, regions, marks, messages) are hostile.
func hostileTrace(t *testing.T) []byte {
	t.Helper()
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	var out bytes.Buffer
	must.Do(t, trace.Start(&out))
	for range 30 {
		ctx, task := trace.NewTask(context.Background(), hostileName+"task")
		trace.WithRegion(ctx, hostileName+"region", func() { hostileSleep() })
		trace.Log(ctx, hostileName+"category", hostileName+"message")
		task.End()
		trace.WithRegion(context.Background(), hostileName+"alone", hostileSleep)
		_ = mark.Do(context.Background(), hostileName+"mark", func(context.Context) error { hostileSleep(); return nil })
	}
	trace.Stop()
	data := out.Bytes()
	// The names of the program cannot be hostile, so they are replaced in the trace by hostile ones of the same length.
	for _, name := range []string{"hostileSleep", "control_test.go"} {
		with := []byte("\x1b[2J\u009b\u202e\x9b.go" + "------")[:len(name)]
		must.True(t, bytes.Contains(data, []byte(name)), "%s is not in the trace", name)
		data = bytes.ReplaceAll(data, []byte(name), with)
	}
	return data
}

//go:noinline
func hostileSleep() { time.Sleep(100 * time.Microsecond) }

// interpretedSequences returns the first place in a text that a terminal interprets or that hides text.
func interpretedSequences(out []byte) (surrounding string, bad bool) {
	for i := 0; i < len(out); {
		r, n := utf8.DecodeRune(out[i:])
		if r == utf8.RuneError && n == 1 || r != '\n' && r != ' ' && !unicode.IsPrint(r) {
			return string(out[max(0, i-40):min(len(out), i+20)]), true
		}
		i += n
	}
	return "", false
}

// TestNothingObeyed passes names with terminal commands to every verb and every format of text. No output contains them
// unescaped, not even JSON, whose syntax allows U+009B in strings.
func TestNothingObeyed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "\x1b[31m \u009b31m \b\r\n \u202eevil")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip(err) // a file system that takes no such names
	}
	file, saved := filepath.Join(dir, "x.trace"), filepath.Join(dir, "x.json")
	data := hostileTrace(t)
	must.Do(t, os.WriteFile(file, data, 0o644))
	var rec bytes.Buffer
	w := must.Have(bundle.NewWriter(&rec, time.Now()))(t)
	w.Write(data)
	must.Do(t, w.Close(bundle.Meta{URL: "http://" + hostileName, Warnings: []bundle.Warning{{Code: hostileName, Text: hostileName}}}))
	for name, b := range map[string][]byte{"x.whylate": rec.Bytes(), "cut.trace": data[:len(data)/2], "header.trace": []byte("go 1.26 " + hostileName), "text.trace": []byte(hostileName)} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	// The message of an error quotes the argument that is no number, file or group: arguments are hostile too.
	for _, args := range [][]string{
		{"explain", "--json", "-o", saved, file},
		{"explain", file}, {"explain", "--json", file}, {"explain", "--request", ".", file}, {"explain", "--band", "all", "--slowest", "5", file},
		{"explain", "--what-if", "sleep@----=gone", file}, {"explain", "--what-if", hostileName + "=gone", file}, {"explain", "--group", "task", file},
		{"explain", "--group", regexp.QuoteMeta("no" + strings.ToValidUTF8(hostileName, "")), file}, {"explain", "--request", hostileName + "(", file}, {"explain", "--band", hostileName, file}, {"explain", "--trace-id", hostileName, file},
		{"explain", "--module", hostileName, file}, {"explain", "--path-map", hostileName + "=" + hostileName, file}, {"explain", "--ignore", hostileName, file},
		{"explain", "--max-memory", hostileName, file}, {"explain", "--slo", hostileName, file}, {"explain", "--peer", file, file}, {"explain", "--no-marks", file},
		{"explain", filepath.Join(dir, "cut.trace")}, {"explain", filepath.Join(dir, "header.trace")}, {"explain", filepath.Join(dir, "text.trace")}, {"explain", dir},
		{"explain", hostileName}, {"explain", "http://127.0.0.1:1/" + hostileName},
		{"explain", filepath.Join(dir, "x.whylate")}, {"explain", "--json", filepath.Join(dir, "x.whylate")}, {"diff", saved, filepath.Join(dir, "x.whylate")},
		{"report", saved}, {"report", "--band", "all", saved}, {"report", file},
		{"diff", file, file}, {"diff", "--full", file, saved}, {"diff", "--json", saved, file}, {"diff", file, hostileName},
		{"check", "--budget", "p99=1ns,sleep=1%", "--fail-on", "low", file}, {"check", "--budget", "p99=1ns", "--baseline", saved, "--format", "json", file},
		{"check", "--budget", "p99=1ns", "--format", "sarif", file}, {"check", "--budget", "p99=1ns", "--format", "github", file},
		{"check", "--budget", "group=" + hostileName + ",p99=1ns", "--format", "github", file}, {"check", "--format", hostileName, file}, {"check", "--budget", hostileName, file},
		{"export", "--to", "csv", file}, {"export", "--to", "csv", "--rows", "requests", file}, {"export", "--to", "jsonl", "--all", file},
		{"export", "--to", "otlp", "--all", file}, {"export", "--to", "otlp", "--service", hostileName, file}, {"export", "--to", hostileName, file}, {"export", "--to", "csv", "--rows", hostileName, file},
		{"export", "--to", "perfetto", "-o", filepath.Join(dir, "out"), file}, {"export", "--to", "pprof", "-o", filepath.Join(dir, "no", "out"), file},
		{"verify", saved, file}, {"verify", "--json", saved, file}, {"verify", "--ledger", filepath.Join(dir, "no", "l"), saved, file},
		{"view", filepath.Join(dir, "text.trace")}, {"view", hostileName},
		{"record", "-o", filepath.Join(dir, "r"), "http://127.0.0.1:1/" + hostileName}, {"record", "--proxy", hostileName, "http://127.0.0.1:1"}, {"record", "-H", hostileName, "http://127.0.0.1:1"},
		{"rules", hostileName}, {"limits", hostileName}, {"load", hostileName}, {"sweep", hostileName}, {"sweep", "--", hostileName}, {"watch", hostileName}, {"completion", hostileName},
		{hostileName}, {"--" + hostileName}, {"help", hostileName}, {"explain", "--" + hostileName},
	} {
		var out, errs bytes.Buffer
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		Run(ctx, args, strings.NewReader(""), &out, &errs, allVerbs()...)
		cancel()
		for name, text := range map[string][]byte{"output": out.Bytes(), "error": errs.Bytes()} {
			if surrounding, bad := interpretedSequences(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))); bad {
				t.Errorf("%.60q: standard %s has %q", args, name, surrounding)
			}
		}
		check.False(t, out.Len()+errs.Len() == 0 && !strings.Contains(strings.Join(args, " "), "-o"), "%.60q said nothing", args)
	}
	if b, err := os.ReadFile(saved); err != nil {
		t.Error(err)
	} else if !bytes.Contains(b, []byte(`\u009b31m`)) || !bytes.Contains(b, []byte(`\u009b\u202e`)) {
		t.Error("the hostile names are not in the report: this tests nothing")
	}
}
