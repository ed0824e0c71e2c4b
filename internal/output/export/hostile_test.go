package export_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/trace"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// hostile are names as a trace may hold them.
var hostile = []string{
	"<script>alert(1)</script>", `quote " and ' and \`, "line\nbreak\r\ttab", "\x1b[31mred\x07\x00", "::error file=x::y", `=HYPERLINK("http://x")`, "+1+1", "-2", "@SUM(A1)",
	"\tindented", "not \xff\xfe UTF-8", "a,b;c", strings.Repeat("long", 200), "%s%n", "${x} $(x) `x`", "\u202eright to left", "",
}

// TestHostileNames writes tasks with hostile names in every format and parses the output: the names are complete and never
// markup, commands or formulas.
func TestHostileNames(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	var out bytes.Buffer
	must.Do(t, trace.Start(&out))
	for range 15 {
		for _, name := range hostile {
			_, task := trace.NewTask(context.Background(), name)
			task.End()
		}
	}
	trace.Stop()
	data := out.Bytes()
	rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{Name: "<x>\"\n=1.trace"}))(t)
	names := map[string]bool{}
	for _, g := range rep.Groups {
		names[g.Name] = true
	}
	for _, name := range hostile {
		check.False(t, name != "" && !names[name] && !names[strings.ToValidUTF8(name, "\ufffd")], "no group of tasks named %.40q", name)
	}
	text := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

	t.Run("pprof", func(t *testing.T) {
		p := must.Have(profile.ParseData(write(t, export.Pprof, rep)))(t)
		must.Do(t, p.CheckValid())
		groupNames := map[string]bool{}
		for _, s := range p.Sample {
			groupNames[s.Label["group"][0]] = true
		}
		for name := range names {
			check.False(t, !groupNames[name] && !groupNames[text(name)], "%.40q is missing", name)
		}
	})
	t.Run("perfetto", func(t *testing.T) {
		data, _ := replayed(t, data, func(w io.Writer, r *report.Report) export.Sink {
			return export.NewPerfettoTrace(w, r, export.Options{All: true})
		})
		s := showPerfetto(t, data)
		root := s.byName(0, "requests")
		for name := range names {
			check.True(t, s.byName(root.uuid, text(name)) != nil, "%.40q is missing", name)
		}
		showPerfetto(t, write(t, export.Perfetto, rep))
	})
	t.Run("otlp", func(t *testing.T) {
		for _, enc := range []string{"json", "protobuf"} {
			data, r := replayed(t, data, func(w io.Writer, r *report.Report) export.Sink {
				if r.Input.Start == nil {
					t.Skip("this Go version's traces do not know the time of day")
				}
				return must.Have(export.NewSpans(r, enc, true, export.ToWriter(w)))(t)
			})
			read := spansOfJSON
			if enc == "protobuf" {
				read = spansOfProtobuf
			}
			spanCount := map[string]int{}
			for _, s := range read(t, data) {
				if s.attributes["whylate.request"] != "" {
					spanCount[s.name]++
				}
			}
			for _, g := range r.Groups {
				check.True(t, spanCount[text(g.Name)] == g.Count, "%s: %d spans of %.40q, want %d", enc, spanCount[text(g.Name)], g.Name, g.Count)
			}
		}
	})
	for _, rows := range []string{export.RowCauses, export.RowRequests} {
		t.Run("csv of "+rows, func(t *testing.T) {
			data := write(t, export.CSV, rep)
			if rows == export.RowRequests {
				data, _ = replayed(t, out.Bytes(), sinkOf(t, "csv", export.Options{Rows: rows}))
			}
			table := must.Have(csv.NewReader(bytes.NewReader(data)).ReadAll())(t)
			spanCount := map[string]bool{}
			for _, row := range table[1:] {
				for i, cell := range row {
					if cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r") {
						t.Errorf("column %s may be taken for a formula: %.40q", table[0][i], cell)
					}
				}
				for i, c := range table[0] {
					if c == "group" {
						spanCount[strings.TrimPrefix(row[i], "'")] = true
					}
				}
			}
			for name := range names {
				check.True(t, spanCount[termtext.Escape(name)], "%.40q is missing", name)
			}
		})
	}
	t.Run("jsonl", func(t *testing.T) {
		data, _ := replayed(t, data, sinkOf(t, "jsonl", export.Options{All: true}))
		spanCount := map[string]bool{}
		for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
			var obj struct{ Type, Name string }
			if err := json.Unmarshal([]byte(line), &obj); err != nil {
				t.Fatalf("line %d: %v", i+1, err)
			}
			check.False(t, strings.ContainsAny(line, "<>\x1b\x00\r"),
				"line %d holds what a page or a terminal may take for its own: %.80q", i+1, line)
			if obj.Type == "group" { // encoding/json has a replacement for each wrong byte
				spanCount[strings.ReplaceAll(obj.Name, "\ufffd\ufffd", "\ufffd")] = true
			}
		}
		for name := range names {
			check.True(t, spanCount[text(name)], "%.40q is missing", name)
		}
	})
}

// TestGoToolPprofDiff lets go tool pprof compare two profiles.
func TestGoToolPprofDiff(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts the go command")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command here")
	}
	dir := t.TempDir()
	one := reports(t)["pubsub.json"]
	var twice report.Report
	copied := must.Have(json.Marshal(one))(t)
	must.Do(t, json.Unmarshal(copied, &twice))
	site := ""
	var added int64
	for i := range twice.Groups {
		for k := range twice.Groups[i].Bands {
			if b := &twice.Groups[i].Bands[k]; i == 0 && b.Band == report.BandAll {
				b.Causes[0].TotalNS += 123456789
				if len(b.Causes[0].Routes) > 0 {
					b.Causes[0].Routes[0].TotalNS += 123456789
				}
				added, site = 123456789, b.Causes[0].Site.Func
			}
		}
	}
	old, young := filepath.Join(dir, "old.pb.gz"), filepath.Join(dir, "new.pb.gz")
	for file, r := range map[string]*report.Report{old: one, young: &twice} {
		must.Do(t, os.WriteFile(file, write(t, export.Pprof, r), 0o644))
	}
	cmd := exec.Command(goTool, "tool", "pprof", "-top", "-unit=ns", "-diff_base="+old, young)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+dir)
	got, err := cmd.CombinedOutput()
	must.True(t, err == nil, "%v: %s", err, got)
	check.True(t, added != 0 && strings.Contains(string(got), "123456789ns") && strings.Contains(string(got), site),
		"the difference of %d ns at %s is not in\n%s", added, site, got)
}
