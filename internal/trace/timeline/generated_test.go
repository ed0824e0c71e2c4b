package timeline

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/whylate/whylate/internal/trace/timeline/casegen"
)

var update = flag.Bool("update", false, "rewrite chain.go")

// TestGenerated holds chain.go against its template and the event table.
func TestGenerated(t *testing.T) {
	template, err := os.ReadFile("chain.go.in")
	if err != nil {
		t.Fatal(err)
	}
	want, err := casegen.Generate(template)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("chain.go", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("chain.go"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("chain.go is not what chain.go.in and the event table make of it (%v): run this test with -update", err)
	}
}
