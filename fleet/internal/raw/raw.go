// Package raw keeps files: recordings and their reports, in a directory or in S3-compatible storage.
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

// ReportName is the name of the file with the report of a recording.
func ReportName(id string) string { return id + ".report.gz" }

// RecordingID is the recording that a file is of.
func RecordingID(name string) string { return strings.TrimSuffix(name, ".report.gz") }

// IsRecordingFile reports whether a name is that of a recording or its report.
func IsRecordingFile(name string) bool {
	id := RecordingID(name)
	_, err := hex.DecodeString(id)
	return err == nil && len(id) == 32
}

// IsUnfinished reports whether a name is that of a file that Create made in a directory and Keep has not renamed.
func IsUnfinished(name string) bool {
	number, ok := strings.CutPrefix(name, unfinishedPrefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// A Store keeps files by name. They are whole or not there.
type Store interface {
	// CreateTemp makes a temporary file, which the caller closes and removes, or gives to Keep.
	CreateTemp() (*os.File, error)
	// Save keeps a temporary file's content under a name. When it returns without error, that is durable.
	Save(ctx context.Context, f *os.File, name string) error
	// Open reads a file. The error is fs.ErrNotExist if there is none.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// LocalPath returns a path of a file for another process, and what to call when it is done.
	LocalPath(ctx context.Context, name string) (path string, release func(), err error)
	// Remove removes a file, if there is one.
	Remove(ctx context.Context, name string) error
	// List calls a function with each file, also temporary ones.
	List(ctx context.Context, visit func(name string, changed time.Time) error) error
	// FreeBytes is how many bytes can still be written, as far as that is known.
	FreeBytes() (int64, error)
}

// Dir is a directory.
type Dir string

const unfinishedPrefix = "new-"

func (d Dir) CreateTemp() (*os.File, error) { return os.CreateTemp(string(d), unfinishedPrefix+"*") }

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

func (d Dir) LocalPath(_ context.Context, name string) (string, func(), error) {
	path := filepath.Join(string(d), name)
	_, err := os.Stat(path)
	return path, func() {}, err
}

func (d Dir) Remove(_ context.Context, name string) error {
	if err := os.Remove(filepath.Join(string(d), name)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

func (d Dir) List(ctx context.Context, visit func(string, time.Time) error) error {
	dir, err := os.Open(string(d))
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		list, err := dir.ReadDir(1000) // not all at once: there may be very many
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
