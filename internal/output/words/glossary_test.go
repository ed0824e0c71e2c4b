package words_test

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

var update = flag.Bool("update", false, "rewrite docs/glossary.md")

// TestGlossary: docs/glossary.md is the table of terms, which is in alphabetical order.
func TestGlossary(t *testing.T) {
	list := words.Glossary()
	check.True(t, slices.IsSortedFunc(list, func(a, b words.Term) int { return strings.Compare(strings.ToLower(a.Word), strings.ToLower(b.Word)) }),
		"the terms are not in the order of the alphabet")
	var b strings.Builder
	b.WriteString("# Glossary\n\nFor readers of reports, of the page and of the viewer: the words that they use. `whylate help glossary` prints the same.\n\n| word | what it means |\n|---|---|\n")
	for _, w := range list {
		b.WriteString("| " + w.Word + " | " + w.Meaning + " |\n")
	}
	must.Golden(t, *update, filepath.Join("..", "..", "..", "docs", "glossary.md"), []byte(b.String()))
}
