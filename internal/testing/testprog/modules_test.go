package testprog

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestAbsentModules: a module is absent only if its directory is missing, and IsBelow covers paths in such directories only.
func TestAbsentModules(t *testing.T) {
	root := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(root, "go.work"), []byte("go 1.26.0\n\nuse (\n\t.\n\t./here\n\t./lab\n\t./adapters/otel\n)\n\nreplace (\n\tx => ./y\n)\n"), 0o644))
	must.Do(t, os.MkdirAll(filepath.Join(root, "here"), 0o755))
	absent := must.Have(AbsentModules(root))(t)
	if want := []string{"lab", filepath.FromSlash("adapters/otel")}; !slices.Equal(absent, want) {
		t.Fatalf("%q, want %q", absent, want)
	}
	for path, want := range map[string]bool{"lab": true, "lab/x/y.md": true, "labels": false, "here/x": false, "adapters/otel/z": true, "adapters/z": false, "../lab": false} {
		check.Equal(t, IsBelow(path, absent), want, "%s: %v", path, !want)
	}
}
