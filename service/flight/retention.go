package flight

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

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

// processExists reports whether a process exists. Without /proc it returns true, because
// it cannot know.
func processExists(pid int) bool {
	if _, err := os.Stat("/proc/self"); err != nil {
		return true
	}
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return !os.IsNotExist(err)
}
