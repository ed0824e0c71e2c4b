//go:build unix

package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestModeIsKept: a replaced file keeps its permissions, whatever the umask leaves of them for a new
// file.
func TestModeIsKept(t *testing.T) {
	for _, mode := range []os.FileMode{0o777, 0o600, 0o666} {
		name := filepath.Join(t.TempDir(), "x")
		must.Do(t, errors.Join(os.WriteFile(name, []byte("old"), 0o600), os.Chmod(name, mode)))
		must.Do(t, WriteTo(name, func(w io.Writer) error { _, err := io.WriteString(w, "new"); return err }))
		info, err := os.Stat(name)
		data, rerr := os.ReadFile(name)
		check.True(t, err == nil && rerr == nil && info.Mode().Perm() == mode && string(data) == "new",
			"of mode %v there is %v with %q, %v", mode, info.Mode(), data, err)
	}
}

// TestWriteTo: a file that cannot be created or written is an error, and the older file stays.
func TestWriteTo(t *testing.T) {
	dir := t.TempDir()
	name, full := filepath.Join(dir, "x"), errors.New("full")
	called := false
	if err := WriteTo(filepath.Join(dir, "none", "x"), func(io.Writer) error { called = true; return nil }); err == nil || called {
		t.Errorf("in a folder that is none: %v, written %v", err, called)
	}
	if err := WriteTo(name, func(w io.Writer) error { io.WriteString(w, "half"); return full }); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("there are %v", files)
	}
}

// TestAllUnfinished: RemoveUnfinished removes the files that are neither committed nor discarded, and
// no others.
func TestAllUnfinished(t *testing.T) {
	dir := t.TempDir()
	var open []*File
	for _, name := range []string{"a", "b", "c", "kept"} {
		f := must.Have(Create(filepath.Join(dir, name)))(t)
		open = append(open, f)
	}
	must.Do(t, open[3].Commit())
	RemoveUnfinished()
	files, err := os.ReadDir(dir)
	check.True(t, err == nil && len(files) == 1 && files[0].Name() == "kept", "there are %v, %v", files, err)
	for _, f := range open {
		f.Discard()
	}
}
