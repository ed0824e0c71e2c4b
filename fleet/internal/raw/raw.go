// Package raw stores files, which are recordings and their reports, in a directory or in S3-compatible storage.
package raw

import (
	"context"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ReportName returns the name of the file with the report of a recording.
func ReportName(id string) string { return id + ".report.gz" }

// RecordingID returns the id of the recording that a file belongs to.
func RecordingID(name string) string { return strings.TrimSuffix(name, ".report.gz") }

// IsRecordingFile reports whether a name is the name of a recording or of a report.
func IsRecordingFile(name string) bool {
	id := RecordingID(name)
	_, err := hex.DecodeString(id)
	return err == nil && len(id) == 32
}

// IsUnfinished reports whether a name is the name of a file that CreateTemp created and Save has not renamed.
func IsUnfinished(name string) bool {
	number, ok := strings.CutPrefix(name, unfinishedPrefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// A Store keeps files by name. A file is either complete or absent.
type Store interface {
	// CreateTemp creates a temporary file. The caller passes it to Save, and closes and removes it in any case.
	CreateTemp() (*os.File, error)
	// Save stores the content of a temporary file under a name. When Save returns without error, the content is durable.
	Save(ctx context.Context, f *os.File, name string) error
	// Open opens a file for reading. The error is fs.ErrNotExist if there is none.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// LocalPath returns the path of a copy that another process can open. The caller calls release when that process has ended.
	LocalPath(ctx context.Context, name string) (path string, release func(), err error)
	// Remove removes a file. It is no error if there is none.
	Remove(ctx context.Context, name string) error
	// List calls visit for each file, temporary files included.
	List(ctx context.Context, visit func(name string, changed time.Time) error) error
	// FreeBytes returns the free space of the disk, as far as it is known.
	FreeBytes() (int64, error)
}

// Dir is a Store in a directory.
type Dir string

const unfinishedPrefix = "new-"

func (d Dir) CreateTemp() (*os.File, error) { return os.CreateTemp(string(d), unfinishedPrefix+"*") }

// Save renames the temporary file f to its name in the directory, after a sync of the file, and before one of the directory, so the file survives a
// crash.
func (d Dir) Save(_ context.Context, f *os.File, name string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(string(d), name)); err != nil {
		return err
	}
	dir, err := os.Open(string(d))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func (d Dir) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(d), name))
}

// LocalPath returns the path of the file itself; release does nothing.
func (d Dir) LocalPath(_ context.Context, name string) (string, func(), error) {
	path := filepath.Join(string(d), name)
	_, err := os.Stat(path)
	return path, func() {}, err
}

// Remove removes a file; a missing one is no error.
func (d Dir) Remove(_ context.Context, name string) error {
	if err := os.Remove(filepath.Join(string(d), name)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// List calls visit with the name and the time of the last change of each regular file, in no order, and returns the first error
// of visit.
func (d Dir) List(ctx context.Context, visit func(string, time.Time) error) error {
	dir, err := os.Open(string(d))
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		list, err := dir.ReadDir(1000) // in parts: the directory may have very many files
		for _, e := range list {
			info, err := e.Info()
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			if err := visit(e.Name(), info.ModTime()); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (d Dir) FreeBytes() (int64, error) { return freeBytes(string(d)) }
