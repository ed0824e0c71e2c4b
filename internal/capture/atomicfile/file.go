// Package atomicfile writes files that are either whole or not there.
//
// What is written goes to a temporary file beside the target and takes the target's name only when [File.Commit] is
// called, so a reader never sees half a file, and a failed run leaves an older file of that name as it was. The content is on
// the disk before: a machine that loses power then has the older file or the whole new one.
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

// unfinished holds the names of temporary files, for a process that must end at once.
var unfinished sync.Map

// RemoveUnfinished removes the temporary files of all that is neither committed nor discarded. It is for a process that ends
// without returning from where they are written: they cannot be committed any more.
func RemoveUnfinished() {
	unfinished.Range(func(tmp, _ any) bool {
		_ = os.Remove(tmp.(string))
		return true
	})
}

// File is an output file under construction. It is not safe for concurrent use.
type File struct {
	file     *os.File
	target   string // what Commit renames to; empty when the bytes go to the target directly
	name     string // as the caller named it
	tempName string
	isClosed bool
}

// Create begins a file that will be called name. A regular file of that name, or the file that a symbolic link of that
// name leads to, is replaced at Commit and keeps its permissions; a new file gets 0666 less the umask.
//
// A name that is neither free nor a regular file (a device such as /dev/null, a named pipe) cannot be replaced by
// renaming: it is opened and written directly, and Discard cannot take back what went there.
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
	// os.CreateTemp would give 0600 and so override the user's umask; its naming scheme is easily had.
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

// WriteTo creates the file called name with what write writes.
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

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	if err != nil {
		return n, fmt.Errorf("writing %s: %w", f.name, withoutPath(err))
	}
	return n, nil
}

// syncToDisk waits until a file's content is on the disk.
var syncToDisk = (*os.File).Sync

// Commit closes the file and gives it its name. After an error the temporary file is gone and the target is what it
// was. Commit after Commit or Discard does nothing.
func (f *File) Commit() error {
	if f.isClosed {
		return nil
	}
	f.isClosed = true
	defer unfinished.Delete(f.tempName)
	var err error
	if f.tempName != "" {
		if err = syncToDisk(f.file); errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
			err = nil // a file system that cannot tell
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

// Discard closes and removes the file unless it has been committed, so that it can be deferred.
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

// withoutPath drops the temporary name, which says nothing to the user, from an error.
func withoutPath(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		return le.Err
	}
	return err
}
