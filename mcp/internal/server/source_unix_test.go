//go:build unix

package server

import (
	"os"
	"path/filepath"
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
