package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

func write(t *testing.T, f *File, s string) {
	t.Helper()
	must.Have(f.Write([]byte(s)))(t)
}

// wantFiles fails unless dir has exactly the named files.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries := must.Have(os.ReadDir(dir))(t)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	check.Equal(t, strings.Join(got, " "), strings.Join(want, " "), "directory holds %q, want %q", got, want)
}

func TestCommitReplacesAtOnce(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x.trace")
	must.Do(t, os.WriteFile(name, []byte("old"), 0o640))
	f := must.Have(Create(name))(t)
	write(t, f, "new")
	if b, _ := os.ReadFile(name); string(b) != "old" {
		t.Errorf("before Commit the file reads %q, want the old content", b)
	}
	must.Do(t, f.Commit())
	f.Discard() // deferred in practice: must not undo Commit
	if b, _ := os.ReadFile(name); string(b) != "new" {
		t.Errorf("after Commit the file reads %q", b)
	}
	if info, _ := os.Stat(name); runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
		t.Errorf("permissions became %v, want the old file's 0640", info.Mode().Perm())
	}
	wantFiles(t, dir, "x.trace")
}

// TestOnDiskFirst: Commit flushes the content before it replaces an older file, and keeps the older
// file if flushing fails. A file system without support is no failure, and a device is not flushed.
func TestOnDiskFirst(t *testing.T) {
	defer func(original func(*os.File) error) { syncToDisk = original }(syncToDisk)
	for _, c := range []struct {
		fails error
		want  string
	}{{nil, "new"}, {syscall.EIO, "old"}, {syscall.ENOSPC, "old"}, {syscall.EINVAL, "new"}, {&fs.PathError{Op: "sync", Err: errors.ErrUnsupported}, "new"}} {
		dir := t.TempDir()
		name := filepath.Join(dir, "x.trace")
		must.Do(t, os.WriteFile(name, []byte("old"), 0o600))
		syncs := 0
		syncToDisk = func(f *os.File) error {
			syncs++
			if tmp, _ := os.ReadFile(f.Name()); string(tmp) != "new" {
				t.Errorf("%q is to be on the disk", tmp)
			}
			if b, _ := os.ReadFile(name); string(b) != "old" {
				t.Errorf("before the commit the file has %q", b)
			}
			return c.fails
		}
		f := must.Have(Create(name))(t)
		write(t, f, "new")
		err := f.Commit()
		if b, _ := os.ReadFile(name); string(b) != c.want || syncs != 1 || (err != nil) != (c.want == "old") || err != nil && !strings.Contains(err.Error(), "writing "+name) {
			t.Errorf("%v: the file reads %q, error %v, asked %d times", c.fails, b, err, syncs)
		}
		wantFiles(t, dir, "x.trace")
		if runtime.GOOS != "windows" {
			must.Do(t, must.Have(Create(os.DevNull))(t).Commit())
		}
		check.Equal(t, syncs, 1, "a device was asked")
	}
}

func TestDiscardLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "x.trace")
	must.Do(t, os.WriteFile(name, []byte("old"), 0o600))
	f := must.Have(Create(name))(t)
	write(t, f, "half")
	f.Discard()
	if err := f.Commit(); err != nil {
		t.Errorf("Commit after Discard: %v", err)
	}
	if b, _ := os.ReadFile(name); string(b) != "old" {
		t.Errorf("after Discard the file reads %q, want the old content", b)
	}
	wantFiles(t, dir, "x.trace")
}

func TestSymbolicLinkIsFollowed(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	must.Do(t, os.WriteFile(real, nil, 0o600))
	if err := os.Symlink(real, link); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	f := must.Have(Create(link))(t)
	write(t, f, "x")
	must.Do(t, f.Commit())
	if info, _ := os.Lstat(link); info.Mode()&fs.ModeSymlink == 0 {
		t.Error("the link was replaced by a file")
	}
	if b, _ := os.ReadFile(real); string(b) != "x" {
		t.Errorf("the link's target reads %q", b)
	}
}

func TestDeviceIsWrittenNotReplaced(t *testing.T) {
	info, err := os.Stat(os.DevNull)
	if err != nil || info.Mode().IsRegular() || runtime.GOOS == "windows" {
		t.Skip("no null device of the usual kind")
	}
	f := must.Have(Create(os.DevNull))(t)
	write(t, f, "x")
	must.Do(t, f.Commit())
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Fatalf("the null device became a file: %v, %v", info, err)
	}
}

func TestCreateErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Create(dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := Create(filepath.Join(dir, "none", "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such directory: %v", err)
	}
	if _, err := Create(""); err == nil {
		t.Error("an empty name was accepted")
	}
	wantFiles(t, dir)
}
