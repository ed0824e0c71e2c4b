package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestRemoveUnfinished: after RemoveUnfinished only committed files exist.
func TestRemoveUnfinished(t *testing.T) {
	dir := t.TempDir()
	open := must.Have(atomicfile.Create(filepath.Join(dir, "open")))(t)
	defer open.Discard()
	done := must.Have(atomicfile.Create(filepath.Join(dir, "done")))(t)
	must.Do(t, done.Commit())
	atomicfile.RemoveUnfinished()
	files, err := os.ReadDir(dir)
	check.True(t, err == nil && len(files) == 1 && files[0].Name() == "done", "%v, %v are left", files, err)
}
