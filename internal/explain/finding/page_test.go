package finding

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/findings.md")

func TestPage(t *testing.T) {
	file := filepath.Join("..", "..", "..", "docs", "findings.md")
	got := Page(All())
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what the rules say: go test ./internal/explain/finding -update", file)
	}
}
