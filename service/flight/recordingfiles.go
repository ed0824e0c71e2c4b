package flight

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Names of recordings are flight-TIME-KIND-PID-N.whylate. While a recording is written,
// its name ends with .part-PID (a part file).
const (
	namePrefix = "flight-"
	nameSuffix = ".whylate"
	partInfix  = ".part-"
)

func fileName(end time.Time, kind Kind, pid, n int) string {
	return fmt.Sprintf("%s%s-%s-%d-%d%s", namePrefix, end.UTC().Format("20060102T150405.000"), kind, pid, n, nameSuffix)
}

// kindOf returns the kind of trigger in a recording's name, or "" for any other name.
func kindOf(name string) Kind {
	rest, ok := strings.CutPrefix(name, namePrefix)
	if !ok || !strings.HasSuffix(name, nameSuffix) {
		return ""
	}
	words := strings.Split(rest, "-")
	if len(words) != 4 {
		return ""
	}
	return Kind(words[1])
}

// A recordingFile is a recording in the directory.
type recordingFile struct {
	name    string
	size    int64
	modTime time.Time
}

// listRecordings returns the recordings in a directory by name, without part files.
func listRecordings(dir string) ([]recordingFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var recordings []recordingFile
	for _, e := range entries {
		if kindOf(e.Name()) == "" {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			recordings = append(recordings, recordingFile{e.Name(), info.Size(), info.ModTime()})
		}
	}
	return recordings, nil
}

// tryLockFile opens a file that another process may be writing and tries to lock it. f is nil if the file cannot be opened; lockable is false if the
// file system has no locks.
func tryLockFile(name string) (f *os.File, locked, lockable bool) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, false, false
	}
	if locked, lockable = tryLock(f); !lockable {
		_ = f.Close() // some systems cannot remove an open file
		return nil, false, false
	}
	return f, locked, lockable
}

// writeAtomically writes a part file in dir with the process id pid in its name, syncs it,
// and renames it to name. On an error it removes the part file.
func writeAtomically(dir, name string, pid int, write func(*os.File) error) error {
	partPath := filepath.Join(dir, name+partInfix+strconv.Itoa(pid))
	f, err := createLocked(partPath)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(partPath, filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(partPath)
	}
	return err
}

// createLocked creates a file and locks it. Between the two, another process's removeParts
// may remove the file as abandoned; then createLocked tries again.
func createLocked(name string) (*os.File, error) {
	for tries := 0; ; tries++ {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fs.FileMode(0o600))
		if err != nil {
			return nil, err
		}
		locked, lockable := tryLock(f)
		if !lockable {
			return f, nil
		}
		opened, errA := f.Stat()
		current, errB := os.Stat(name)
		if locked && errA == nil && errB == nil && os.SameFile(opened, current) {
			return f, nil
		}
		_ = f.Close()
		if tries == 3 {
			return nil, fmt.Errorf("flight: another process removes %s while it is written", name)
		}
	}
}
