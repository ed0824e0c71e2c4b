package flight

import (
	"cmp"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
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

// selectSurplus returns the files to delete so that the rest take at most budget bytes: the oldest first, but the newest of each kind stays. latest
// is the file written last. Files with a later time were written before the clock was set back, and are deleted first. If all others are deleted, the
// rest may still take more.
func selectSurplus(files []recordingFile, budget int64, latest string) []recordingFile {
	files = slices.Clone(files)
	latestTime := time.Time{}
	if i := slices.IndexFunc(files, func(f recordingFile) bool { return f.name == latest }); i >= 0 {
		latestTime = files[i].modTime
	}
	futureRank := func(f recordingFile) int { return boolToInt(!latestTime.IsZero() && f.modTime.After(latestTime)) }
	slices.SortFunc(files, func(a, b recordingFile) int {
		return cmp.Or(cmp.Compare(boolToInt(a.name == latest), boolToInt(b.name == latest)), cmp.Compare(futureRank(b), futureRank(a)), a.modTime.Compare(b.modTime), cmp.Compare(a.name, b.name))
	})
	total := int64(0)
	newest := make(map[Kind]string)
	for _, f := range files {
		total += f.size
		newest[kindOf(f.name)] = f.name
	}
	var deleted []recordingFile
	for _, f := range files {
		if total <= budget {
			break
		}
		if newest[kindOf(f.name)] != f.name {
			deleted = append(deleted, f)
			total -= f.size
		}
	}
	return deleted
}

// boolToInt returns 1 for true and 0 for false.
func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
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

// enforceBudget deletes recordings until the directory is within its budget, of this many bytes, and returns the size of the remaining ones in bytes.
// latest is the file written last, if any. Another process may delete files at the same time.
func enforceBudget(dir string, budget int64, latest string) (remaining int64, err error) {
	files, err := listRecordings(dir)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		remaining += f.size
	}
	for _, f := range selectSurplus(files, budget, latest) {
		if err := os.Remove(filepath.Join(dir, f.name)); err != nil && !os.IsNotExist(err) {
			return remaining, err
		}
		remaining -= f.size
	}
	return remaining, nil
}

// processStart is about when this process started. Where files cannot be locked, an older
// part file belongs to an earlier process with the same pid, which is 1 in every container.
var processStart = time.Now()

// makeRoom deletes half of the directory's recordings by size, in the order of
// enforceBudget, and reports whether it deleted any.
func makeRoom(dir string) bool {
	before, err := enforceBudget(dir, math.MaxInt64, "")
	if err != nil {
		return false
	}
	remaining, _ := enforceBudget(dir, before/2, "")
	return remaining < before
}

// removeParts deletes part files of killed processes in dir. A writer holds the lock of its
// part file. Where files cannot be locked, a part file of this process (pid) or of another
// running one stays until it is older than maxPartAge.
func removeParts(dir string, pid int, processExists func(pid int) bool, now time.Time) {
	const maxPartAge = 10 * time.Minute
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name, pidText, ok := strings.Cut(e.Name(), partInfix)
		if !ok || kindOf(name) == "" {
			continue
		}
		writer, err := strconv.Atoi(pidText)
		if err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		partPath := filepath.Join(dir, e.Name())
		f, abandoned, lockable := tryLockFile(partPath)
		if !lockable {
			abandoned = writer == pid && info.ModTime().Before(processStart) || writer != pid && !processExists(writer) || now.Sub(info.ModTime()) > maxPartAge
		}
		if abandoned {
			_ = os.Remove(partPath) // the next start tries again
		}
		if f != nil {
			_ = f.Close() // after the removal, so that a process in createLocked notices it
		}
	}
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

// processExists reports whether a process exists. Without /proc it returns true, because
// it cannot know.
func processExists(pid int) bool {
	if _, err := os.Stat("/proc/self"); err != nil {
		return true
	}
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return !os.IsNotExist(err)
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
