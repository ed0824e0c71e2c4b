package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

// Bounds of the tool source.
const (
	maxSource   = 4 << 20 // bytes of a file
	maxLines    = 80
	maxLine     = 240 // columns
	defaultSide = 12  // lines before and after the requested one
	maxDepth    = 12  // depth of searched directories
	maxFiles    = 50_000
)

type sourceIn struct {
	File    string `json:"file" jsonschema:"file of a place, as a report names it"`
	Line    int    `json:"line"`
	Context int    `json:"around,omitempty" jsonschema:"lines before and after it (default: 12)"`
}

// A Source has lines of a file.
type Source struct {
	File  string   `json:"file" jsonschema:"the file that was read"`
	Lines []string `json:"lines" jsonschema:"each begins with its number; > marks the one that was asked for"`
	Note  string   `json:"note,omitempty"`
}

// sourceTool returns lines of a source file that a report names. Recordings have the file names of the
// service's build, on another machine or with -trimpath, so sourceTool searches the file below the
// roots by the longest common end of its path.
func (s *Server) sourceTool(ctx context.Context, in sourceIn) (*Source, error) {
	if in.Line < 1 {
		return nil, errors.New("lines count from 1")
	}
	path, note, err := s.policy.findSource(ctx, in.File)
	if err != nil {
		return nil, err
	}
	f, err := s.policy.openFile(path, maxSource)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	side := in.Context
	if side <= 0 {
		side = defaultSide
	}
	side = min(side, maxLines/2)
	out := &Source{File: path, Lines: []string{}, Note: note}
	lines := bufio.NewScanner(io.LimitReader(f, maxSource))
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		if n++; n < in.Line-side || n > in.Line+side {
			continue
		}
		mark := " "
		if n == in.Line {
			mark = ">"
		}
		out.Lines = append(out.Lines, fmt.Sprintf("%s%5d  %s", mark, n, shorten(strings.ReplaceAll(lines.Text(), "\t", "    "), maxLine)))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if n < in.Line {
		return nil, fmt.Errorf("%s has %d lines only: the checkout is not at the recorded version", path, n)
	}
	return out, nil
}

// findSource returns the path of the Go source file below a root whose path has the longest common end with a report's file name, with a note if it
// may be another file. If there is none, it is an error.
func (a *accessPolicy) findSource(ctx context.Context, name string) (path, note string, err error) {
	if !strings.HasSuffix(name, ".go") {
		return "", "", fmt.Errorf("%q is not a Go source file", name)
	}
	if filepath.IsAbs(name) {
		if real, err := filepath.EvalSymlinks(name); err == nil && a.isBelowRoot(real) {
			return real, "", nil
		}
	}
	parts := strings.Split(strings.Trim(filepath.ToSlash(name), "/"), "/")
	base := parts[len(parts)-1]
	bestParts, equalMatches, visited := 0, 0, 0
	for _, root := range a.roots {
		_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // skip unreadable directories
			}
			if visited++; visited > maxFiles || ctx.Err() != nil {
				return filepath.SkipAll
			}
			if d.IsDir() {
				if n := d.Name(); p != root && (strings.HasPrefix(n, ".") || n == "node_modules") || strings.Count(p[len(root):], string(filepath.Separator)) > maxDepth {
					return filepath.SkipDir
				}
				return nil
			}
			if d.Name() != base || !d.Type().IsRegular() {
				return nil
			}
			switch k := commonEnd(strings.Split(filepath.ToSlash(p), "/"), parts); {
			case k > bestParts:
				bestParts, equalMatches, path = k, 1, p
			case k == bestParts:
				equalMatches++
			}
			return nil
		})
	}
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case path == "":
		return "", "", fmt.Errorf("no file of the directories that this server may read is called %s: the code is not checked out there, or is a dependency's", shorten(base, maxName))
	case equalMatches > 1:
		note = fmt.Sprintf("%d files end as %q does; this may be another one", equalMatches, shorten(name, maxName))
	case bestParts < len(parts):
		note = fmt.Sprintf("found by the last %d of %d parts of its name", bestParts, len(parts))
	}
	return path, note, nil
}

// commonEnd returns the number of equal parts at the ends of two paths, which are divided into their parts.
func commonEnd(a, b []string) (n int) {
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
