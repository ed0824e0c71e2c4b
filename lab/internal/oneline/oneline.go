// Package oneline changes one place of a Go package's source and runs the go command with the change, without writing to the
// source file, for lab/mutants.
package oneline

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Place is a range of a file that a change replaces.
type Place struct {
	Pkg, File string
	Line      int
	Text      string // of the line, up to the range's end
	From, To  int    // offsets in bytes
	Old       string
}

// An Edit is a place and the text that replaces it.
type Edit struct {
	Place
	New string
}

// Write writes files with edits, which must not overlap, and additional files to a directory, and returns the file for go's
// -overlay flag.
func Write(dir string, edits []Edit, additional map[string]string) (overlay string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	edits = slices.SortedFunc(slices.Values(edits), func(a, b Edit) int { return cmp.Or(cmp.Compare(a.File, b.File), b.From-a.From) })
	contents := maps.Clone(additional)
	if contents == nil {
		contents = map[string]string{}
	}
	for _, e := range edits { // from the last of a file to the first
		if _, isRead := contents[e.File]; !isRead {
			data, err := os.ReadFile(e.File)
			if err != nil {
				return "", err
			}
			contents[e.File] = string(data)
		}
		contents[e.File] = contents[e.File][:e.From] + e.New + contents[e.File][e.To:]
	}
	replace := map[string]string{}
	for file, content := range contents {
		path, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[path] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(replace[path], []byte(content), 0o666); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, list, 0o666)
}

// A File is a parsed file of a package.
type File struct {
	Pkg, Name string
	Tree      *ast.File
	set       *token.FileSet
	data      []byte
}

// Place returns the range between two positions.
func (f *File) Place(from, to token.Pos) Place {
	p, e := f.set.Position(from), f.set.Position(to)
	return Place{Pkg: f.Pkg, File: f.Name, Line: p.Line, Text: string(f.data[p.Offset-p.Column+1 : e.Offset]), From: p.Offset, To: e.Offset, Old: string(f.data[p.Offset:e.Offset])}
}

// Line returns the line of a position.
func (f *File) Line(p token.Pos) int { return f.set.Position(p).Line }

// Files parses a package's files except tests, generated files, and those of another system or Go version: no test here would
// notice a change of these.
func Files(pkg string) ([]*File, error) {
	names, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	var out []*File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if matches, err := build.Default.MatchFile(pkg, filepath.Base(name)); err != nil || !matches {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if bytes.HasPrefix(data, []byte("// Code generated")) {
			continue
		}
		f := &File{Pkg: pkg, Name: name, set: token.NewFileSet(), data: data}
		if f.Tree, err = parser.ParseFile(f.set, name, data, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// interrupted is done when this process is to end.
var interrupted, _ = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)

// Go runs the go command as Run does.
func Go(timeout time.Duration, args ...string) ([]byte, error) {
	return Run(timeout, "", nil, "go", args...)
}

// Run runs a command in a directory with additional variables of the environment. After the timeout it ends the command with
// the error context.DeadlineExceeded. If this process is interrupted, it ends the command and exits.
func Run(timeout time.Duration, dir string, env []string, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(interrupted, timeout)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	// The process group contains go test and the tests that it started: an endless loop would continue otherwise.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if interrupted.Err() != nil {
		os.Exit(1)
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return out, err
}

// TimedOut reports whether a run was ended by its timeout.
func TimedOut(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
