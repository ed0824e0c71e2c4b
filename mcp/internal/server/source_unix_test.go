//go:build unix

package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestPipe: a pipe or device with the name of a source file is not read, and the call returns.
func TestPipe(t *testing.T) {
	root := t.TempDir()
	pipe := filepath.Join(root, "pipe.go")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	// A writer that comes and goes ends the wait of a server that does read the pipe.
	done := make(chan struct{})
	go func() {
		defer close(done)
		if w, err := os.OpenFile(pipe, os.O_WRONLY, 0); err == nil {
			w.Close()
		}
	}()
	defer func() {
		if r, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
			<-done
			r.Close()
		}
	}()
	s := connect(t, Config{Roots: []string{root}}, "")
	if text, failed := ask(t, s, "source", map[string]any{"file": pipe, "line": 1}); !failed || !strings.Contains(text, "not a regular file") {
		t.Errorf("%q", text)
	}
	if text, failed := ask(t, s, "source", map[string]any{"file": "pipe.go", "line": 1}); !failed || !strings.Contains(text, "no file") {
		t.Errorf("%q", text)
	}
	if text, failed := ask(t, s, "explain", map[string]any{"source": pipe}); !failed || !strings.Contains(text, "not a regular file") {
		t.Errorf("%q", text)
	}
}

// TestAmbiguousSource: if several files can be the one that a report names, the answer says so.
func TestAmbiguousSource(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"one", "two", "other/pay"} {
		must.Do(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
		must.Do(t, os.WriteFile(filepath.Join(root, dir, "main.go"), []byte("package main\n"), 0o600))
	}
	a := must.Have(newAccessPolicy(Config{Roots: []string{root}}))(t)
	for name, want := range map[string]string{
		"/build/app/main.go": `3 files end as "/build/app/main.go" does; this may be another one`,
		"/build/two/main.go": "found by the last 2 of 3 parts of its name",
		"two/main.go":        "",
	} {
		_, note, err := a.findSource(t.Context(), name)
		check.True(t, err == nil && note == want, "%s: %q, want %q, %v", name, note, want, err)
	}
	must.Do(t, os.Remove(filepath.Join(root, "one", "main.go")))
	_, note, err := a.findSource(t.Context(), "/build/app/main.go")
	check.True(t, err == nil && strings.HasPrefix(note, "2 files end"), "%q, %v", note, err)
}

// TestHiddenRecordings: files in a directory whose name begins with a dot are not offered.
func TestHiddenRecordings(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"", "sub", ".git"} {
		must.Do(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
		must.Do(t, os.WriteFile(filepath.Join(root, dir, "x.whylate"), nil, 0o600))
	}
	var got []string
	for _, r := range must.Have(newAccessPolicy(Config{Roots: []string{root}}))(t).listRecordings(t.Context()) {
		got = append(got, filepath.Base(filepath.Dir(r.File)))
	}
	slices.Sort(got)
	check.True(t, slices.Equal(got, []string{filepath.Base(root), "sub"}), "recordings in %q", got)
}

// TestReplaced: a file that is replaced after resolveFile is not read if it is now a link out of the
// root, a pipe, or too large.
func TestReplaced(t *testing.T) {
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret.go")
	must.Do(t, os.WriteFile(outside, []byte("secret"), 0o600))
	a := must.Have(newAccessPolicy(Config{Roots: []string{root}}))(t)
	link, file := filepath.Join(a.roots[0], "link.go"), filepath.Join(a.roots[0], "file.go")
	if err := os.Symlink(outside, link); err != nil {
		t.Skip(err)
	}
	must.Do(t, os.WriteFile(file, make([]byte, 100), 0o600))
	for _, c := range []struct {
		path  string
		limit int64
		ok    bool
	}{{link, 100, false}, {outside, 100, false}, {a.roots[0], 100, false}, {file, 99, false}, {file, 100, true}} {
		f, err := a.openFile(c.path, c.limit)
		check.Equal(t, err == nil, c.ok, "%s, %d: %v", c.path, c.limit, err)
		if err == nil {
			f.Close()
		}
	}
}
