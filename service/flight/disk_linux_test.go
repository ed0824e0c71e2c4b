//go:build go1.25

package flight

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const mountedDir = "WHYLATE_TEST_FLIGHT_MOUNT"

// TestFullDisk runs a recorder in a folder of four megabytes, which only this test's own
// child process sees: its oldest recordings give way when the disk is full, a disk that
// somebody else fills, or that can be read only, is told, and nothing half written stays.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(mountedDir); dir != "" {
		onSmallDisk(t, dir)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), mountedDir+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		t.Skipf("no namespace of its own: %v", err)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	} else if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
}

func onSmallDisk(t *testing.T, dir string) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("no mount: %v", err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	r := start(t, Options{Dir: dir, NoHost: true, MinAge: time.Second})
	parts := func() {
		t.Helper()
		if left, _ := filepath.Glob(filepath.Join(dir, "*"+partInfix+"*")); len(left) > 0 {
			t.Errorf("half written is %v", left)
		}
	}
	// Long enough for several times of that.
	last := ""
	for all := int64(0); all < 12<<20; all += r.State().LastBytes {
		name, err := r.Capture(context.Background(), strings.Repeat("x", 300))
		if err != nil {
			t.Fatalf("after %d bytes: %v", all, err)
		}
		last = name
	}
	parts()
	if files, err := list(dir); err != nil || len(files) == 0 || r.State().Failed != 0 {
		t.Errorf("%d files, %v, %+v", len(files), err, r.State())
	}
	if data, err := os.ReadFile(filepath.Join(dir, last)); err != nil || len(entries(t, data)) != 2 {
		t.Errorf("the last one: %v", err)
	}
	// Somebody else fills it.
	f, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	failed := false
	for range 200 {
		if _, err := r.Capture(context.Background(), "x"); err != nil {
			failed = true
			break
		}
		if f, err = os.OpenFile(filepath.Join(dir, "other"), os.O_WRONLY|os.O_APPEND, 0); err == nil {
			for err == nil {
				_, err = f.Write(make([]byte, 4096))
			}
			f.Close()
		}
	}
	if s := r.State(); !failed || s.Failed != 1 || !strings.Contains(s.LastError, "no space") || !s.Recording {
		t.Errorf("on a full disk the state is %+v", s)
	}
	parts()
	if files, _ := list(dir); len(files) == 0 {
		t.Error("the newest recording is gone")
	}
	if err := os.Remove(filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Capture(context.Background(), "x"); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	before := r.State()
	if _, err := r.Capture(context.Background(), "x"); err == nil {
		t.Error("it was kept where nothing can be written")
	}
	if s := r.State(); s.Failed != before.Failed+1 || !strings.Contains(s.LastError, "read-only") || !s.Recording {
		t.Errorf("where nothing can be written the state is %+v", s)
	}
}
