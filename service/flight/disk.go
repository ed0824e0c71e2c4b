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

// Names of recordings: flight-TIME-KIND-PID-N.whylate. One that is being
// written has another name until it is whole.
const (
	namePrefix = "flight-"
	nameSuffix = ".whylate"
	partInfix  = ".part-"
)

func fileName(at time.Time, kind Kind, pid, n int) string {
	return fmt.Sprintf("%s%s-%s-%d-%d%s", namePrefix, at.UTC().Format("20060102T150405.000"), kind, pid, n, nameSuffix)
}

// kindOf returns the kind of trigger in a recording's name; "" if it is none.
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

// A file is a recording in the directory.
type file struct {
	name string
	size int64
	mod  time.Time
}

// surplus returns the files to delete so that the rest take no more than budget bytes: the
// oldest first, but the newest of each kind stays. latest is the newest even if other files
// have later times: those were written before the clock was set back.
func surplus(files []file, budget int64, latest string) []file {
	files = slices.Clone(files)
	now := time.Time{}
	if i := slices.IndexFunc(files, func(f file) bool { return f.name == latest }); i >= 0 {
		now = files[i].mod
	}
	later := func(f file) int { return btoi(!now.IsZero() && f.mod.After(now)) }
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(cmp.Compare(btoi(a.name == latest), btoi(b.name == latest)), cmp.Compare(later(b), later(a)), a.mod.Compare(b.mod), cmp.Compare(a.name, b.name))
	})
	total := int64(0)
	newest := make(map[Kind]string)
	for _, f := range files {
		total += f.size
		newest[kindOf(f.name)] = f.name
	}
	var out []file
	for _, f := range files {
		if total <= budget {
			break
		}
		if newest[kindOf(f.name)] != f.name {
			out = append(out, f)
			total -= f.size
		}
	}
	return out
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func list(dir string) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []file
	for _, e := range entries {
		if kindOf(e.Name()) == "" {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			out = append(out, file{e.Name(), info.Size(), info.ModTime()})
		}
	}
	return out, nil
}

// tidy keeps the directory within its budget and returns the size of its files. latest is
// the file written last, if any. Another process may tidy the directory at the same time.
func tidy(dir string, budget int64, latest string) (kept int64, err error) {
	files, err := list(dir)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		kept += f.size
	}
	for _, f := range surplus(files, budget, latest) {
		if err := os.Remove(filepath.Join(dir, f.name)); err != nil && !os.IsNotExist(err) {
			return kept, err
		}
		kept -= f.size
	}
	return kept, nil
}

// loaded is about when this process started. Where files cannot be locked, it separates a
// part file of an earlier process with the same pid, which is 1 in every container.
var loaded = time.Now()

// makeRoom deletes half of the directory's recordings by size, as tidy does, and reports
// whether it deleted any.
func makeRoom(dir string) bool {
	all, err := tidy(dir, math.MaxInt64, "")
	if err != nil {
		return false
	}
	left, _ := tidy(dir, all/2, "")
	return left < all
}

// removeParts deletes part files that a killed process left. A writer holds the lock of its
// file. Where files cannot be locked, a part of this process or of one that is alive stays
// until it is old.
func removeParts(dir string, pid int, alive func(pid int) bool, now time.Time) {
	const old = 10 * time.Minute
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		name, by, ok := strings.Cut(e.Name(), partInfix)
		if !ok || kindOf(name) == "" {
			continue
		}
		writer, err := strconv.Atoi(by)
		if err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		left := filepath.Join(dir, e.Name())
		f, gone, known := claim(left)
		if !known {
			gone = writer == pid && info.ModTime().Before(loaded) || writer != pid && !alive(writer) || now.Sub(info.ModTime()) > old
		}
		if gone {
			_ = os.Remove(left) // the next start tries again
		}
		if f != nil {
			_ = f.Close() // last: who makes a file of this name meanwhile sees that it is another
		}
	}
}

// claim takes the lock of a file that another process may be writing.
func claim(name string) (f *os.File, mine, known bool) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, false, false
	}
	if mine, known = lock(f); !known {
		_ = f.Close() // what is open cannot be removed on every system
		return nil, false, false
	}
	return f, mine, known
}

// alive reports whether a process exists. Without /proc it returns true.
func alive(pid int) bool {
	if _, err := os.Stat("/proc/self"); err != nil {
		return true
	}
	_, err := os.Stat("/proc/" + strconv.Itoa(pid))
	return !os.IsNotExist(err)
}

// atomically writes a file under another name and renames it when it is whole.
// Nothing of it is left if that fails.
func atomically(dir, name string, pid int, write func(*os.File) error) error {
	part := filepath.Join(dir, name+partInfix+strconv.Itoa(pid))
	f, err := create(part)
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
		err = os.Rename(part, filepath.Join(dir, name))
	}
	if err != nil {
		_ = os.Remove(part)
	}
	return err
}

// create makes a file and holds its lock. A process that starts may take a file
// between the two for one that was left, and remove it.
func create(name string) (*os.File, error) {
	for tries := 0; ; tries++ {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, fs.FileMode(0o600))
		if err != nil {
			return nil, err
		}
		mine, known := lock(f)
		if !known {
			return f, nil
		}
		a, errA := f.Stat()
		b, errB := os.Stat(name)
		if mine && errA == nil && errB == nil && os.SameFile(a, b) {
			return f, nil
		}
		_ = f.Close()
		if tries == 3 {
			return nil, fmt.Errorf("flight: another process removes %s while it is written", name)
		}
	}
}
