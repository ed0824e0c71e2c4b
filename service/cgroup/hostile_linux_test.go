package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// plant writes a fixture's files below a real directory.
func plant(t *testing.T, f *fixture) string {
	t.Helper()
	root := t.TempDir()
	for name, file := range f.files {
		p := filepath.Join(root, name)
		must.Do(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must.Do(t, os.WriteFile(p, file.Data, 0o644))
	}
	return root
}

// The real file system gives the same answers as fs.FS.
func TestFixturesAsRealFiles(t *testing.T) {
	for _, name := range fixtures(t) {
		f := readFixture(t, name)
		if strings.Contains(f.want, "error: ") {
			continue // the text of the system's errors differs
		}
		o := f.options(t)
		o.FS, o.root = nil, plant(t, f)
		l, err := Read(o)
		check.Equal(t, render(l, err), f.want, "%s", name)
	}
}

// runWithTimeout fails a test that hangs instead of waiting for go test's own limit.
func runWithTimeout(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("hangs")
	}
}

// Every file in turn is replaced by something that is no file of the
// kernel's. Nothing hangs, panics or invents a limit.
func TestHostileFiles(t *testing.T) {
	hostile := map[string]func(p string) error{
		"named pipe":        func(p string) error { return syscall.Mkfifo(p, 0o644) },
		"directory":         func(p string) error { return os.Mkdir(p, 0o755) },
		"symlink to itself": func(p string) error { return os.Symlink(filepath.Base(p), p) },
		"endless device":    func(p string) error { return os.Symlink("/dev/zero", p) },
		"empty":             func(p string) error { return os.WriteFile(p, nil, 0o644) },
		"NULs":              func(p string) error { return os.WriteFile(p, make([]byte, 9000), 0o644) },
		"one long line":     func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("9", 300_000)), 0o644) },
		"huge and sparse":   func(p string) error { return truncate(p, 1<<40) },
		"binary":            func(p string) error { return os.WriteFile(p, []byte("\xff\xfe\x00\x80 \n\xff:\xff:/\xff\n"), 0o644) },
		"a million colons":  func(p string) error { return os.WriteFile(p, []byte(strings.Repeat(":", 900_000)), 0o644) },
		"a very deep path":  func(p string) error { return os.WriteFile(p, []byte("0::"+strings.Repeat("/a", 200_000)+"\n"), 0o644) },
		"no permission":     func(p string) error { return os.WriteFile(p, []byte("0::/\n"), 0) },
		"negative numbers":  func(p string) error { return os.WriteFile(p, []byte("-5 -5\n"), 0o644) },
		"numbers beyond 2^64": func(p string) error {
			return os.WriteFile(p, []byte("99999999999999999999 99999999999999999999\n"), 0o644)
		},
	}
	for _, name := range []string{"docker-v1", "docker-v2-host-namespace"} {
		f := readFixture(t, filepath.Join("testdata", name+".txtar"))
		whole := must.Have(Read(f.options(t)))(t)
		root := plant(t, f)
		for file := range f.files {
			p := filepath.Join(root, file)
			for content, make := range hostile {
				must.Do(t, os.Remove(p))
				must.Do(t, make(p))
				o := f.options(t)
				o.FS, o.root = nil, root
				runWithTimeout(t, func() {
					l, err := Read(o)
					switch {
					case err != nil:
						check.True(t, errors.Is(err, ErrNotMeasurable), "%s, %s is %s: %v", name, file, content, err)
					default:
						checkInvariants(t, l)
						if q := l.CPU.Quota; q != 0 && q < whole.CPU.Quota {
							t.Errorf("%s, %s is %s: quota %v, was %v", name, file, content, q, whole.CPU.Quota)
						}
					}
					if s, err := NewSampler(o); err == nil {
						var st Stat
						var b Tightest
						var m MemoryStat
						s.Sample(&st)
						s.SampleLimits(&b)
						s.SampleMemory(&m)
						s.Close()
					}
				})
				must.Do(t, os.RemoveAll(p))
				must.Do(t, os.WriteFile(p, f.files[file].Data, 0o644))
			}
		}
	}
}

func truncate(p string, n int64) error {
	f, err := os.Create(p)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(n), f.Close())
}

// Reading must not leave files open.
func TestNoFilesLeftOpen(t *testing.T) {
	open := func() int {
		ents, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(ents)
	}
	before := open()
	for range 20 {
		Read(Options{})
		if s, err := NewSampler(Options{}); err == nil {
			s.Close()
		}
		NewSampler(Options{root: t.TempDir()})
	}
	if after := open(); after > before+3 {
		t.Errorf("%d files open, %d before", after, before)
	}
}

func TestNoSuchProcess(t *testing.T) {
	for _, pid := range []int{-1, 1 << 30} {
		if _, err := Read(Options{PID: pid}); err == nil || !strings.Contains(err.Error(), "process") {
			t.Errorf("process %d: %v", pid, err)
		}
	}
}
