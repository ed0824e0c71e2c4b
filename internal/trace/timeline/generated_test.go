package timeline

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/casegen"
)

var update = flag.Bool("update", false, "rewrite chain.go")

// TestGenerated holds chain.go against its template and the event table.
func TestGenerated(t *testing.T) {
	template := must.Have(os.ReadFile("chain.go.in"))(t)
	want := must.Have(casegen.Generate(template))(t)
	if *update {
		must.Do(t, os.WriteFile("chain.go", want, 0o644))
	}
	if got, err := os.ReadFile("chain.go"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("chain.go is not what chain.go.in and the event table make of it (%v): run this test with -update", err)
	}
}
