package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// TestDiskFullOrReadOnly runs every verb that writes a file on a disk that is full, and on one that is read-only. Each reports
// the file and the reason, with exit status 3; an older file stays unchanged, and no other file remains. A full disk accepts a
// file's name: only writing its bytes fails.
func TestDiskFullOrReadOnly(t *testing.T) {
	testfull.Need(t, "root, for a small file system of its own")
	if os.Getuid() != 0 {
		t.Skip("only root can mount")
	}
	trace := filepath.Join(t.TempDir(), "x.trace")
	data := must.Have(aTrace())(t)
	must.Do(t, os.WriteFile(trace, data, 0o644))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(data) }))
	defer srv.Close()
	for _, disk := range []struct {
		name, reason string
	}{{"full", "no space left on device"}, {"read-only", "read-only file system"}} {
		dir := t.TempDir()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Skip("no file system of its own here: ", err)
		}
		t.Cleanup(func() { must.Do(t, syscall.Unmount(dir, 0)) })
		at := func(name string) string { return filepath.Join(dir, name) }
		const old = "\n" // a ledger without verdicts, too
		verbs := [][]string{
			{"explain", "-o", "old.json", trace}, {"explain", "-o", "old.html", trace}, {"explain", "--html", "old.html", trace}, {"export", "--to", "perfetto", "-o", "old.pftrace", trace},
			{"cut", trace, "old.trace", "--to", "1h"}, {"redact", trace, "old.trace"}, {"verify", "--ledger", "old.jsonl", trace, trace},
			{"record", "-d", "1s", "--no-cpu", "--no-host", "-o", "old.whylate", srv.URL},
		}
		for _, name := range []string{"old.json", "old.html", "old.pftrace", "old.trace", "old.jsonl", "old.whylate"} {
			must.Do(t, os.WriteFile(at(name), []byte(old), 0o644))
		}
		if disk.name == "full" {
			fill := must.Have(os.Create(at("fill")))(t)
			if _, err := io.Copy(fill, bytes.NewReader(make([]byte, 1<<20))); err == nil {
				t.Fatal("a disk of 64 kB holds 1 MB")
			}
			fill.Close()
		} else {
			must.Do(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
		}
		before := must.Have(os.ReadDir(dir))(t)
		for _, verb := range verbs {
			for _, fresh := range []bool{false, true} {
				args, name := append([]string(nil), verb...), ""
				for i, a := range args {
					if strings.HasPrefix(a, "old.") {
						if name = a; fresh {
							name = "new" + strings.TrimPrefix(a, "old")
						}
						args[i] = at(name)
					}
				}
				var errs bytes.Buffer
				status := Run(context.Background(), args, nil, io.Discard, &errs)
				if status != ExitFailed || !strings.Contains(errs.String(), disk.reason) || !strings.Contains(errs.String(), name) || strings.Contains(errs.String(), ".part-") {
					t.Errorf("%s disk, %s: exit status %d, standard error %q", disk.name, strings.Join(verb, " "), status, errs.String())
				}
				after := must.Have(os.ReadDir(dir))(t)
				must.True(t, len(after) == len(before), "%s disk, %s: %v are left, want %v", disk.name, strings.Join(verb, " "), after, before)
				if b, err := os.ReadFile(at("old" + filepath.Ext(name))); err != nil || string(b) != old {
					t.Errorf("%s disk, %s: the old file holds %.20q, %v", disk.name, strings.Join(verb, " "), b, err)
				}
			}
		}
	}
}
