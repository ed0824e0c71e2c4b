// Package atomicfile writes files that are either complete or absent.
//
// A File writes to a temporary file in the target's directory. [File.Commit] flushes it to the disk
// and renames it to the target, so a reader never sees a partial file, and an older file of that name
// survives a failed run. After a power failure the target is the older file or the complete new one.
package atomicfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// unfinished has the names of all temporary files, for RemoveUnfinished.
var unfinished sync.Map

// RemoveUnfinished removes all temporary files that are neither committed nor discarded. A process
// calls it before it exits while other goroutines still write files; later calls of Commit fail.
func RemoveUnfinished() {
	unfinished.Range(func(tmp, _ any) bool {
		_ = os.RemoveAll(tmp.(string))
		return true
	})
}

// A File is an output file under construction. It is not safe for concurrent use.
type File struct {
	file     *os.File
	target   string // the new name at Commit; empty if the bytes go directly to the target
	name     string // as the caller named it
	tempName string
	isClosed bool
}

// Create begins a file that will get the given name. At Commit it replaces a regular file of that
// name, or the file that a symbolic link of that name leads to, and keeps its permissions. A new file
// gets 0666 less the umask.
//
// If the name belongs to another kind of file (a device such as /dev/null, a named pipe), renaming
// cannot replace that. Then Create opens it, and Discard cannot undo its writes.
func Create(name string) (*File, error) {
	if name == "" {
		return nil, errors.New("creating an output file: its name is empty")
	}
	target, mode := name, fs.FileMode(0o666)
	if resolved, err := filepath.EvalSymlinks(name); err == nil {
		target = resolved
	}
	var keepMode bool
	switch info, err := os.Stat(target); {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("creating %s: it is a directory: name a file in it", name)
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(target, os.O_WRONLY, 0)
		if err != nil {
			return nil, fmt.Errorf("creating an output file: %w", err)
		}
		return &File{file: f, name: name}, nil
	case err == nil:
		mode, keepMode = info.Mode().Perm(), true
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("creating an output file: %w", err)
	}
	// os.CreateTemp would create the file with 0600 and so override the user's umask.
	for try := 0; ; try++ {
		tmp := target + ".part-" + strconv.FormatUint(rand.Uint64(), 36)
		f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) && try < 100 {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("creating %s: %w", name, withoutPath(err))
		}
		if keepMode {
			// Best effort: a file system without permissions is no reason to fail.
			_ = f.Chmod(mode)
		}
		unfinished.Store(tmp, true)
		return &File{file: f, target: target, name: name, tempName: tmp}, nil
	}
}

// WriteTo creates a file and calls write with it. If write fails, an older file of that name stays.
func WriteTo(name string, write func(io.Writer) error) error {
	f, err := Create(name)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := write(f); err != nil {
		return err
	}
	return f.Commit()
}

// CreateDir creates a directory for the parts of a file of the given name, next to it. remove removes the directory with its content; so does
// [RemoveUnfinished].
func CreateDir(name string) (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp(filepath.Dir(name), filepath.Base(name)+".part-*"); err != nil {
		return "", nil, fmt.Errorf("creating a directory for the parts of %s: %w", name, withoutPath(err))
	}
	unfinished.Store(dir, true)
	return dir, func() {
		_ = os.RemoveAll(dir)
		unfinished.Delete(dir)
	}, nil
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	if err != nil {
		return n, fmt.Errorf("writing %s: %w", f.name, withoutPath(err))
	}
	return n, nil
}

// syncToDisk waits until a file's content is on the disk. Tests replace it.
var syncToDisk = (*os.File).Sync

// Commit flushes and closes the file and gives it its name. After an error the temporary file is gone
// and the target is unchanged. After Commit or Discard it does nothing.
func (f *File) Commit() error {
	if f.isClosed {
		return nil
	}
	f.isClosed = true
	defer unfinished.Delete(f.tempName)
	var err error
	if f.tempName != "" {
		if err = syncToDisk(f.file); errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
			err = nil // the file system does not support it
		}
	}
	if err := cmp.Or(err, f.file.Close()); err != nil {
		if f.tempName != "" {
			_ = os.Remove(f.tempName)
		}
		return fmt.Errorf("writing %s: %w", f.name, withoutPath(err))
	}
	if f.tempName == "" {
		return nil
	}
	if err := os.Rename(f.tempName, f.target); err != nil {
		_ = os.Remove(f.tempName)
		return fmt.Errorf("giving %s its name: %w", f.name, withoutPath(err))
	}
	return nil
}

// Discard closes and removes the temporary file; the target stays unchanged. After Commit it does nothing, so callers can defer it.
func (f *File) Discard() {
	if f.isClosed {
		return
	}
	f.isClosed = true
	defer unfinished.Delete(f.tempName)
	_ = f.file.Close()
	if f.tempName != "" {
		_ = os.Remove(f.tempName)
	}
}

// withoutPath returns the cause of a *fs.PathError or *os.LinkError, because the temporary name in its text means nothing to the user; any other
// error unchanged.
func withoutPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return le.Err
	}
	return err
}
