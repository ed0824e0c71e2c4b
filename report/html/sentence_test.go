package html_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// pageVerdict is the result of page/sentence.js for a verdict.
type pageVerdict struct {
	Lead, Range string
	Causes      []struct{ Share, Each, Words, Rest string }
	Open        string
	Late        bool
}

// TestPageSaysWhatTheTextSays runs the page's module on the verdicts of reports, and compares its sentences with those of the text
// view.
func TestPageSaysWhatTheTextSays(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("the page's module is run by node, which is not installed; lab/browser tests the page itself")
	}
	dir := t.TempDir()
	for _, name := range []string{"sentence.js", "format.js"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), mustRead(t, "page/"+name), 0o644))
	}
	for name, data := range map[string]string{
		"package.json": `{"type":"module"}`,
		"main.js": `import { sentenceOf } from './sentence.js';
import { readFileSync } from 'node:fs';
process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, 'utf8')).map(sentenceOf)));`,
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
	}
	for _, name := range []string{"pubsub", "tso", "none"} {
		t.Run(name, func(t *testing.T) {
			r := must.Have(report.ReadJSON(bytes.NewReader(mustRead(t, "../testdata/"+name+".json"))))(t)
			r.Verdict = verdict.Verdicts(r)
			verdicts := must.Have(json.Marshal(r.Verdict))(t)
			cmd := exec.CommandContext(t.Context(), node, filepath.Join(dir, "main.js"))
			cmd.Stdin = bytes.NewReader(verdicts)
			out := must.Have(cmd.Output())(t)
			var page []pageVerdict
			must.Do(t, json.Unmarshal(out, &page))
			var shown bytes.Buffer
			must.Do(t, text.Write(&shown, r, text.Options{Width: 200, Full: true}))
			var want strings.Builder
			for i := range page {
				s, g := &page[i], r.Group(r.Verdict[i].Group)
				if len(s.Causes) == 0 {
					want.WriteString(" " + names.GroupName(g, 160) + ": no request ended in the trace.")
				} else {
					want.WriteString(" " + s.Lead + " " + names.GroupName(g, 160) + " " + s.Range + " " + verdict.SpentText(&r.Verdict[i], g))
				}
				for _, c := range s.Causes {
					want.WriteString(" " + c.Share + " " + c.Each + " " + c.Words + c.Rest)
				}
				if s.Late {
					want.WriteString(" " + s.Open)
				}
			}
			got := strings.Join(strings.Fields(shown.String()), " ")
			if _, got, _ = strings.Cut(got, " why "); len(page) > 0 && !strings.HasPrefix(" "+got, want.String()) {
				t.Errorf("the page says\n%s\nthe text says\n%.1500s", want.String(), got)
			}
		})
	}
}
