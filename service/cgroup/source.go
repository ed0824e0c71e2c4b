package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// ErrNotMeasurable reports that limits cannot be read here: not Linux, no /proc, or
// no cgroup file that this process may open. Callers should continue without
// limits.
var ErrNotMeasurable = errors.New("not measurable here")

var errTooLarge = errors.New("file is larger than any that the kernel writes")

// Maximum sizes of the kernel's files. mountinfo has a line for each mount (the
// default limit is 10^5 mounts); the others have a few kilobytes.
const (
	maxMountinfo = 16 << 20
	maxSmall     = 1 << 20
)

// A source is a tree of files: the real one, or an fs.FS in tests. Names are
// absolute and slash-separated.
type source interface {
	open(name string) (handle, error)
	isDir(name string) bool
}

// A handle reads one file repeatedly from its beginning.
type handle interface {
	// readAt fills buf from offset off; n < len(buf) means the end.
	readAt(buf []byte, off int64) (int, error)
	// sample reads a cgroup file with a single read from its beginning: the
	// kernel writes such a file as one record, so a short read has the whole
	// file.
	sample(buf []byte) (int, error)
	close() error
}

// readFile reads a whole file. A file of limit bytes or more is an error.
func readFile(src source, name string, limit int) ([]byte, error) {
	h, err := src.open(name)
	if err != nil {
		return nil, err
	}
	defer h.close()
	buf := make([]byte, 4096)
	n := 0
	for {
		m, err := h.readAt(buf[n:], int64(n))
		if err != nil {
			return nil, err
		}
		n += m
		if n < len(buf) {
			return buf[:n], nil
		}
		if n >= limit {
			return nil, &fs.PathError{Op: "read", Path: name, Err: errTooLarge}
		}
		grown := make([]byte, min(2*len(buf), limit))
		copy(grown, buf)
		buf = grown
	}
}

// fsSource reads an fs.FS whose root is "/".
type fsSource struct{ fsys fs.FS }

// name returns the path within the fs.FS of an absolute name; an error for a relative one.
func (s fsSource) name(name string) (string, error) {
	p := cmp.Or(strings.TrimPrefix(path.Clean(name), "/"), ".")
	if !fs.ValidPath(p) {
		return "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return p, nil
}

// open checks that name is a regular file. The handle opens it again for each read.
func (s fsSource) open(name string) (handle, error) {
	p, err := s.name(name)
	if err != nil {
		return nil, err
	}
	f, err := s.fsys.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("not a regular file (%v)", st.Mode().Type())}
	}
	return &fsHandle{fsys: s.fsys, name: p}, nil
}

// isDir reports whether name is a directory, false if it cannot be read.
func (s fsSource) isDir(name string) bool {
	p, err := s.name(name)
	if err != nil {
		return false
	}
	st, err := fs.Stat(s.fsys, p)
	return err == nil && st.IsDir()
}

// fsHandle opens the file again for each read: an fs.File cannot seek, and a
// test changes its file system between two samples.
type fsHandle struct {
	fsys fs.FS
	name string
}

// readAt opens the file and fills buf from offset off; fewer bytes, without an error, are
// the end.
func (h *fsHandle) readAt(buf []byte, off int64) (int, error) {
	f, err := h.fsys.Open(h.name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if off > 0 {
		if _, err := io.CopyN(io.Discard, f, off); err != nil {
			if err == io.EOF {
				return 0, nil
			}
			return 0, err
		}
	}
	n, err := io.ReadFull(f, buf)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}

func (h *fsHandle) sample(buf []byte) (int, error) { return h.readAt(buf, 0) }

func (h *fsHandle) close() error { return nil }
