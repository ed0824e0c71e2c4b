package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/capture/atomicfile"
)

// TestRemoveUnfinished ends a process's files at once: what was not committed is gone, the rest stays.
func TestRemoveUnfinished(t *testing.T) {
	dir := t.TempDir()
	open, err := atomicfile.Create(filepath.Join(dir, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Discard()
	done, err := atomicfile.Create(filepath.Join(dir, "done"))
	if err != nil {
		t.Fatal(err)
	}
	if err := done.Commit(); err != nil {
		t.Fatal(err)
	}
	atomicfile.RemoveUnfinished()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "done" {
		t.Errorf("%v, %v are left", left, err)
	}
}
