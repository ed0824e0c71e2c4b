//go:build unix

package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
	deep := strings.Repeat("d/", maxDepth)
	for _, file := range []string{"one/main.go", "two/main.go", "other/pay/main.go", ".git/main.go", "node_modules/main.go", deep + "deep.go", deep + "d/deep.go"} {
		must.Do(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o700))
		must.Do(t, os.WriteFile(filepath.Join(root, file), []byte("package main\n"), 0o600))
	}
	a := must.Have(newAccessPolicy(Config{Roots: []string{root}}))(t)
	for name, want := range map[string]string{
		"/build/app/main.go": `3 files end as "/build/app/main.go" does; this may be another one`,
		"/build/two/main.go": "found by the last 2 of 3 parts of its name",
		"two/main.go":        "",
		"deep.go":            "",
	} {
		_, note, err := a.findSource(t.Context(), name)
		check.True(t, err == nil && note == want, "%s: %q, want %q, %v", name, note, want, err)
	}
	must.Do(t, os.Remove(filepath.Join(root, "one", "main.go")))
	_, note, err := a.findSource(t.Context(), "/build/app/main.go")
	check.True(t, err == nil && strings.HasPrefix(note, "2 files end"), "%q, %v", note, err)
}

// TestRecordings: recordings that explain accepts are offered, the newest first, but none in a directory whose name begins with a dot.
func TestRecordings(t *testing.T) {
	root := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(root, "sub"), 0o700))
	must.Do(t, os.Mkdir(filepath.Join(root, ".git"), 0o700))
	for i, name := range []string{"a.whylate", "sub/b.trace", "c.trace.gz", ".git/x.whylate", "x.gz", "x.go", "large.trace", "d.whylate"} {
		must.Do(t, os.WriteFile(filepath.Join(root, name), make([]byte, 10+i/6%2*(7-i)), 0o600))
		must.Do(t, os.Chtimes(filepath.Join(root, name), time.Time{}, time.Unix(int64(1e9+i), 0)))
	}
	must.Do(t, os.Symlink("a.whylate", filepath.Join(root, "link.whylate")))
	a := must.Have(newAccessPolicy(Config{Roots: []string{root}, MaxFile: 10}))(t)
	var got []string
	for _, r := range a.listRecordings(t.Context()) {
		got = append(got, strings.TrimPrefix(r.File, a.roots[0]+"/")+" "+r.Time)
	}
	check.Equal(t, strings.Join(got, ", "), "d.whylate 2001-09-09T01:46:47Z, c.trace.gz 2001-09-09T01:46:42Z, sub/b.trace 2001-09-09T01:46:41Z, a.whylate 2001-09-09T01:46:40Z", "recordings")
	for i := range maxListed {
		must.Do(t, os.WriteFile(filepath.Join(root, fmt.Sprint(i, ".trace")), nil, 0o600))
	}
	check.Equal(t, len(a.listRecordings(t.Context())), maxListed, "recordings")
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
