package cli

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestDocsAreUpToDate compares docs/cli with what the help says now.
func TestDocsAreUpToDate(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "cli")
	want := pages(newRoot(&streams{}, allVerbs()...), "markdown")
	if *update {
		must.Do(t, os.MkdirAll(dir, 0o755))
		for name, page := range want {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), page, 0o644))
		}
	}
	files := must.Have(filepath.Glob(filepath.Join(dir, "*.md")))(t)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if names := slices.Sorted(maps.Keys(want)); !slices.Equal(files, names) {
		t.Errorf("docs/cli holds %q, should hold %q", files, names)
	}
	for name, page := range want {
		if got, _ := os.ReadFile(filepath.Join(dir, name)); !bytes.Equal(got, page) {
			t.Errorf("docs/cli/%s is not what the help says: go run ./cmd/whylate docs markdown docs/cli", name)
		}
	}
}

// TestEveryVerbIsDocumented: a short line, a long text and an example that begins with the command, none too wide.
func TestEveryVerbIsDocumented(t *testing.T) {
	for _, c := range newRoot(&streams{}, allVerbs()...).Commands() {
		if !c.IsAvailableCommand() || c.Name() == "help" {
			continue
		}
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || c.Long == "" {
			t.Errorf("%s: short text %q, long text of %d bytes", c.Name(), c.Short, len(c.Long))
		}
		check.True(t, strings.Contains(c.Example, "whylate "+c.Name()), "%s: its examples do not call it:\n%s", c.Name(), c.Example)
		for _, line := range strings.Split(c.Long+"\n"+c.Example, "\n") {
			check.True(t, termtext.Width(line) <= 130, "%s: a line of its help is %d columns wide: %s", c.Name(), termtext.Width(line), line)
		}
	}
}

func TestManPages(t *testing.T) {
	all := pages(newRoot(&streams{}, allVerbs()...), "man")
	for _, name := range []string{"whylate.1", "whylate-explain.1", "whylate-record.1"} {
		page := string(all[name])
		for _, want := range []string{".TH ", ".SH NAME\n", ".SH OPTIONS\n", ".SH EXAMPLES\n"} {
			check.True(t, strings.Contains(page, want), "%s has no %q", name, want)
		}
		for i, line := range strings.Split(page, "\n") {
			if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !strings.HasPrefix(line, ".S") && !strings.HasPrefix(line, ".T") && !strings.HasPrefix(line, ".B ") &&
				line != ".PP" && line != ".nf" && line != ".fi" {
				t.Errorf("%s:%d: a line that roff would obey: %s", name, i+1, line)
			}
		}
	}
}
