//go:build go1.25

package flight

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

const mountedDir = "WHYLATE_TEST_FLIGHT_MOUNT"

// withOwnMounts runs a test in a child process that is root in a separate mount namespace,
// with a directory to mount on.
func withOwnMounts(t *testing.T, f func(t *testing.T, dir string)) {
	if dir := os.Getenv(mountedDir); dir != "" {
		f(t, dir)
		return
	}
	self := must.Have(os.Executable())(t)
	// The child has a time limit, because a test that is killed does not kill its children.
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), mountedDir+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		Pdeathsig:   syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Skipf("no namespace of its own: %v", err)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	} else if strings.Contains(string(out), "--- SKIP") {
		t.Skipf("%s", out)
	}
}

// mountTmpfs mounts a file system in memory, and returns a function that remounts it
// read-only or writable.
func mountTmpfs(t *testing.T, dir, options string) (readOnly func(readOnly bool)) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return func(readOnly bool) {
		t.Helper()
		flags := uintptr(syscall.MS_REMOUNT)
		if readOnly {
			flags |= syscall.MS_RDONLY
		}
		must.Do(t, syscall.Mount("", dir, "", flags, ""))
	}
}

// TestFullDisk runs a recorder in a directory of four megabytes. If the disk is full, the
// oldest recordings are deleted. If other files fill it, or it is read-only, State reports
// it. No part file remains.
func TestFullDisk(t *testing.T) { withOwnMounts(t, testSmallDisk) }

// TestNoMoreFiles runs a recorder on a disk that has free space but no free inodes, so that
// neither a recording nor the directory can be created.
func TestNoMoreFiles(t *testing.T) {
	withOwnMounts(t, func(t *testing.T, disc string) {
		mountTmpfs(t, disc, "size=64m,nr_inodes=8") // two of them for the root and the directory
		dir := filepath.Join(disc, "flight")
		r := start(t, Options{Dir: dir, NoHost: true, MinAge: time.Second})
		capture := func() error { _, err := r.Capture(context.Background(), "x"); return err }
		for range 20 {
			must.Do(t, capture())
		}
		fill := func() (names []string) {
			for i := 0; ; i++ {
				name := filepath.Join(disc, "other"+strconv.Itoa(i))
				f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
				switch {
				case err == nil:
					f.Close()
					names = append(names, name)
				case !os.IsExist(err):
					return names
				}
			}
		}
		for range 5 { // the oldest are deleted until two remain
			fill()
			must.Do(t, capture())
		}
		files, err := listRecordings(dir)
		must.True(t, err == nil && len(files) == 2, "%d recordings are left, %v", len(files), err)
		for _, f := range files {
			if f.name != r.State().Last {
				must.Do(t, os.Remove(filepath.Join(dir, f.name)))
			}
		}
		fill()
		check.Error(t, capture(), "it was kept although the newest one stays")
		if s := r.State(); s.Failed != 1 || !strings.Contains(s.LastError, "no space") || !s.Recording {
			t.Errorf("where others have all files the state is %+v", s)
		}
		if files, _ := listRecordings(dir); len(files) == 0 {
			t.Error("the newest recording is gone")
		}
		must.Do(t, os.RemoveAll(dir))
		fill()
		check.Error(t, capture(), "it was kept although no directory can be created")
		for i := range 8 {
			_ = os.Remove(filepath.Join(disc, "other"+strconv.Itoa(i)))
		}
		if err := capture(); err != nil {
			t.Errorf("when there is room again: %v", err)
		}
		if partFiles, _ := filepath.Glob(filepath.Join(dir, "*"+partInfix+"*")); len(partFiles) > 0 {
			t.Errorf("part files remain: %v", partFiles)
		}
	})
}

// TestReadOnlyDisk starts a recorder on a read-only disk whose directory is over its budget and
// has a part file. The recorder runs, State reports the error, and the directory is cleaned
// up when the disk is writable again.
func TestReadOnlyDisk(t *testing.T) {
	withOwnMounts(t, func(t *testing.T, dir string) {
		readOnly := mountTmpfs(t, dir, "size=64m")
		for n := range 4 {
			putRecording(t, dir, n, strings.Repeat("x", 1000))
		}
		half := filepath.Join(dir, fileName(time.Unix(1, 0), KindSlow, 1, 9)+partInfix+"1")
		must.Do(t, os.WriteFile(half, nil, 0o600))
		readOnly(true)
		r := start(t, Options{Dir: dir, NoHost: true, MinAge: time.Second, MaxDisk: 2000})
		if _, err := r.Capture(context.Background(), "x"); err == nil {
			t.Error("it was kept on a read-only disk")
		}
		if s := r.State(); s.Failed != 1 || !strings.Contains(s.LastError, "read-only") || !s.Recording || len(recordingNames(t, dir)) != 4 {
			t.Errorf("the state is %+v", s)
		}
		var b bytes.Buffer
		a := &captureRequest{trigger: Trigger{Kind: KindAsked}, dst: &b, done: make(chan struct{})}
		if _, err := r.requestCapture(t.Context(), a); err != nil || a.err != nil || b.Len() == 0 {
			t.Errorf("a snapshot by GET: %v, %v", err, a.err)
		}
		readOnly(false)
		if _, err := r.Capture(context.Background(), "x"); err != nil || len(recordingNames(t, dir)) > 2 {
			t.Errorf("when it can be written: %v, there are %q", err, recordingNames(t, dir))
		}
		r.Stop()
		start(t, Options{Dir: dir, NoHost: true})
		if _, err := os.Stat(half); err == nil {
			t.Error("a part file remains")
		}
	})
}

// TestReadOnlySpool makes the disk read-only after a recording was sent: the recording is sent
// once, and renamed when the disk is writable again.
func TestReadOnlySpool(t *testing.T) {
	withOwnMounts(t, func(t *testing.T, dir string) {
		readOnly := mountTmpfs(t, dir, "size=1m")
		name := putRecording(t, dir, 1, "x")
		refusedOne := putRecording(t, dir, 2, "y")
		requests := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			readOnly(true)
			if requests++; q.Header.Get("Whylate-Recording-Name") == refusedOne {
				w.WriteHeader(http.StatusUnprocessableEntity)
			}
		}))
		defer srv.Close()
		up := must.Have(newUploader(dir, UploadOptions{URL: srv.URL}))(t)
		for range 4 {
			sendAllNow(up)
		}
		if s := up.currentState(); requests != 2 || s.Sent != 1 || s.Refused != 1 || s.Failed != 0 || s.Waiting != 0 || !strings.Contains(s.LastError, "read-only") || !slices.Equal(recordingNames(t, dir), []string{name, refusedOne}) {
			t.Errorf("%d requests, the state is %+v, there are %q", requests, s, recordingNames(t, dir))
		}
		readOnly(false)
		sendAllNow(up)
		stem := func(name string) string { return strings.TrimSuffix(name, nameSuffix) }
		if got, want := recordingNames(t, dir), []string{stem(name) + sentMark + nameSuffix, stem(refusedOne) + refusedMark + nameSuffix}; requests != 2 || !slices.Equal(got, want) {
			t.Errorf("after %d requests there are %q, want %q", requests, got, want)
		}
	})
}

func testSmallDisk(t *testing.T, dir string) {
	readOnly := mountTmpfs(t, dir, "size=4m")
	r := start(t, Options{Dir: dir, NoHost: true, MinAge: time.Second})
	parts := func() {
		t.Helper()
		if partFiles, _ := filepath.Glob(filepath.Join(dir, "*"+partInfix+"*")); len(partFiles) > 0 {
			t.Errorf("part files remain: %v", partFiles)
		}
	}
	// Write three times the size of the disk.
	last := ""
	all := int64(0)
	for n := 0; all < 12<<20; all += r.State().LastBytes {
		if n++; n > 5000 {
			t.Fatalf("%d recordings have %d bytes", n, all)
		}
		name, err := r.Capture(context.Background(), strings.Repeat("x", 300))
		must.True(t, err == nil, "after %d bytes: %v", all, err)
		last = name
	}
	parts()
	if files, err := listRecordings(dir); err != nil || len(files) == 0 || r.State().Failed != 0 {
		t.Errorf("%d files, %v, %+v", len(files), err, r.State())
	}
	if data, err := os.ReadFile(filepath.Join(dir, last)); err != nil || len(zipEntries(t, data)) != 2 {
		t.Errorf("the last one: %v", err)
	}
	// Another file fills the disk.
	f, err := os.Create(filepath.Join(dir, "other"))
	must.Do(t, err)
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
	if files, _ := listRecordings(dir); len(files) == 0 {
		t.Error("the newest recording is gone")
	}
	must.Do(t, os.Remove(filepath.Join(dir, "other")))
	if _, err := r.Capture(context.Background(), "x"); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
	readOnly(true)
	before := r.State()
	if _, err := r.Capture(context.Background(), "x"); err == nil {
		t.Error("it was kept on a read-only disk")
	}
	if s := r.State(); s.Failed != before.Failed+1 || !strings.Contains(s.LastError, "read-only") || !s.Recording {
		t.Errorf("on a read-only disk the state is %+v", s)
	}
}
