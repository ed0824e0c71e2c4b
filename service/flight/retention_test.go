package flight

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

func TestSelectSurplus(t *testing.T) {
	recordingOf := func(minute int, kind Kind, size int64) recordingFile {
		when := time.Unix(int64(60*minute), 0)
		return recordingFile{fileName(when, kind, 1, minute), size, when}
	}
	files := []recordingFile{recordingOf(3, KindSlow, 10), recordingOf(1, KindFreeze, 10), recordingOf(2, KindSlow, 10), recordingOf(5, KindSlow, 10), recordingOf(4, KindGC, 10)}
	for budget, want := range map[int64][]int{50: nil, 49: {2}, 40: {2}, 39: {2, 3}, 30: {2, 3}, 0: {2, 3}} {
		var got []int
		for _, f := range selectSurplus(files, budget, "") {
			got = append(got, int(f.modTime.Unix()/60))
		}
		check.True(t, slices.Equal(got, want), "budget %d: those of minutes %v go, want %v", budget, got, want)
	}
}

// TestClockBack tests that the file written last is not deleted as the oldest after the
// clock was set back.
func TestClockBack(t *testing.T) {
	recordingOf := func(minute int) recordingFile {
		when := time.Unix(int64(60*minute), 0)
		return recordingFile{fileName(when, KindSlow, 1, minute), 10, when}
	}
	files := []recordingFile{recordingOf(50), recordingOf(51), recordingOf(2)}
	got := selectSurplus(files, 10, recordingOf(2).name)
	check.True(t, len(got) == 2 && got[0].name == recordingOf(50).name && got[1].name == recordingOf(51).name, "%v go", got)
	// The clock was a day ahead for a while: files of that time are deleted before those
	// written after the clock was corrected.
	day := 24 * 60
	files = []recordingFile{recordingOf(50), recordingOf(day + 51), recordingOf(day + 52), recordingOf(53), recordingOf(54)}
	got = selectSurplus(files, 20, recordingOf(54).name)
	if len(got) != 3 || got[0].name != recordingOf(day+51).name || got[1].name != recordingOf(day+52).name || got[2].name != recordingOf(50).name {
		t.Errorf("%v go", got)
	}
}

// TestRemoveParts tests that part files of killed processes are removed, but neither the part
// file of a running process in another container nor other files. The clock may have been
// set back.
func TestRemoveParts(t *testing.T) {
	dir := t.TempDir()
	clock := time.Now()
	recording := fileName(clock, KindSlow, 7, 1)
	for name, age := range map[string]time.Duration{
		recording: time.Hour, recording + ".part-7": time.Hour, recording + ".part-8": -24 * time.Hour, recording + ".part-9": 0,
		"notes.txt": time.Hour, "other.part-7": time.Hour, recording + ".part-x": time.Hour,
	} {
		p := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(p, []byte("x"), 0o600))
		must.Do(t, os.Chtimes(p, clock, clock.Add(-age)))
	}
	remaining := func() (out []string) {
		entries := must.Have(os.ReadDir(dir))(t)
		for _, e := range entries {
			out = append(out, strings.TrimPrefix(e.Name(), recording))
		}
		return out
	}
	// A part file that is being written in another container, whose writer has pid 1 as well.
	writing := must.Have(createLocked(filepath.Join(dir, recording+".part-1")))(t)
	must.Do(t, os.Chtimes(writing.Name(), clock, clock.Add(-time.Hour)))
	_, locks := tryLock(writing)
	noProcess := func(int) bool { return false }
	removeParts(dir, 1, noProcess, clock)
	want := []string{"", ".part-1", ".part-x", "notes.txt", "other.part-7"}
	if got := remaining(); locks && !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	_ = writing.Close() // its writer is killed
	removeParts(dir, 1, noProcess, clock)
	if got, want := remaining(), slices.Delete(want, 1, 2); !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}

// TestConcurrentEnforceBudget tests that several services may clean up one directory.
func TestConcurrentEnforceBudget(t *testing.T) {
	dir := t.TempDir()
	for i := range 300 {
		must.Do(t, os.WriteFile(filepath.Join(dir, fileName(time.Unix(int64(i), 0), KindSlow, 7, i)), []byte("x"), 0o600))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := enforceBudget(dir, 1, ""); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	if files, _ := listRecordings(dir); len(files) != 1 {
		t.Errorf("%d files are left", len(files))
	}
}
