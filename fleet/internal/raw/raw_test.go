package raw

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// testAllStores runs a test on a directory, a bucket in memory, and a MinIO server.
func testAllStores(t *testing.T, test func(t *testing.T, s Store)) {
	t.Run("directory", func(t *testing.T) { test(t, Dir(t.TempDir())) })
	testBuckets(t, func(t *testing.T, s *S3) { test(t, s) })
}

// testBuckets runs a test on a bucket in memory and on a MinIO server.
func testBuckets(t *testing.T, test func(t *testing.T, s *S3)) {
	run := func(t *testing.T, address string) {
		s := must.Have(OpenS3(t.Context(), address, Dir(t.TempDir())))(t)
		test(t, s)
		if leftovers, err := os.ReadDir(string(s.spool)); err != nil || len(leftovers) > 0 {
			t.Errorf("left in the spool: %v %v", leftovers, err)
		}
	}
	t.Run("S3", func(t *testing.T) {
		address, _ := enginetest.S3(t)
		run(t, address)
	})
	t.Run("MinIO", func(t *testing.T) {
		testfull.Need(t, "a MinIO server, whose build takes minutes")
		run(t, enginetest.MinIO(t).Address)
	})
}

func contentID(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:16])
}

func saveFile(t *testing.T, s Store, name string, content []byte) {
	t.Helper()
	f := must.Have(s.CreateTemp())(t)
	defer os.Remove(f.Name())
	defer f.Close()
	must.Have(f.Write(content))(t)
	must.Do(t, s.Save(t.Context(), f, name))
}

func listNames(t *testing.T, s Store) (names []string) {
	t.Helper()
	must.Do(t, s.List(t.Context(), func(name string, changed time.Time) error {
		if age := time.Since(changed); age < -time.Minute || age > time.Hour {
			t.Errorf("%s is %v old", name, age)
		}
		names = append(names, name)
		return nil
	}))
	slices.Sort(names)
	return names
}

// TestStore: files are saved, read, listed and removed, also files larger than one part of an upload, saved twice, or empty.
func TestStore(t *testing.T) {
	testAllStores(t, func(t *testing.T, s Store) {
		small, large := []byte("hello"), bytes.Repeat([]byte("0123456789abcdef"), 2<<20)
		for _, content := range [][]byte{small, large, small, nil} {
			saveFile(t, s, contentID(content), content)
		}
		saveFile(t, s, ReportName(contentID(small)), []byte("a report"))
		want := []string{contentID(small), ReportName(contentID(small)), contentID(large), contentID(nil)}
		slices.Sort(want)
		if got := listNames(t, s); !slices.Equal(got, want) {
			t.Errorf("listed %q, want %q", got, want)
		}
		for name, content := range map[string][]byte{contentID(small): small, contentID(large): large, contentID(nil): nil, ReportName(contentID(small)): []byte("a report")} {
			f, err := s.Open(t.Context(), name)
			must.Do(t, err)
			got, err := io.ReadAll(f)
			if err = errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(content), err)
			}
			path, release, err := s.LocalPath(t.Context(), name)
			must.Do(t, err)
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(content), err)
			}
			release()
		}
		for range 2 { // the second time the file is absent
			if err := s.Remove(t.Context(), contentID(large)); err != nil {
				t.Error(err)
			}
		}
		if _, err := s.Open(t.Context(), contentID(large)); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if _, _, err := s.LocalPath(t.Context(), contentID(large)); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		stop := errors.New("stop")
		if err := s.List(t.Context(), func(string, time.Time) error { return stop }); !errors.Is(err, stop) {
			t.Error(err)
		}
		if room, err := s.FreeBytes(); err != nil || room < 1<<20 {
			t.Errorf("room for %d bytes, %v", room, err)
		}
	})
}

// TestS3: prefixes separate files, a changed file is detected, and invalid addresses are errors.
func TestS3(t *testing.T) {
	for _, address := range []string{"", "http://bucket", "s3://", "s3://key:secret@bucket", "s3://bucket?endpoint=host:9000"} {
		if _, err := OpenS3(t.Context(), address, Dir(t.TempDir())); err == nil {
			t.Errorf("%q is an address", address)
		}
	}
	testBuckets(t, func(t *testing.T, s *S3) {
		check.True(t, s.Ping(t.Context()) == nil, "the bucket does not answer")
		raw := s.WithPrefix("raw")
		saveFile(t, raw, "a", []byte("a"))
		saveFile(t, s.WithPrefix("tokens"), "b", []byte("b"))
		if got := listNames(t, raw); !slices.Equal(got, []string{"a"}) {
			t.Error(got)
		}
		name := contentID([]byte("sent"))
		must.Have(s.client.PutObject(context.Background(), s.bucket, raw.prefix+name, strings.NewReader("rotten"), 6, minio.PutObjectOptions{SendContentMd5: true}))(t)
		if _, _, err := raw.LocalPath(t.Context(), name); err == nil {
			t.Error("a changed file is taken")
		}
		elsewhere := *s
		elsewhere.bucket = "elsewhere"
		if err := elsewhere.Ping(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	spool := Dir(t.TempDir())
	for name, age := range map[string]time.Duration{"new-1": 61 * time.Minute, "new-2": 59 * time.Minute, "notes": 61 * time.Minute} {
		file := filepath.Join(string(spool), name)
		must.Do(t, os.WriteFile(file, nil, 0o600))
		must.Do(t, os.Chtimes(file, time.Time{}, time.Now().Add(-age)))
	}
	address, b := enginetest.S3(t)
	s := must.Have(OpenS3(t.Context(), strings.Replace(address, "/test", "", 1), spool))(t)
	list := must.Have(os.ReadDir(string(spool)))(t)
	check.True(t, len(list) == 2 && list[0].Name() == "new-2" && list[1].Name() == "notes", "in the spool: %v", list)
	b.Objects["/fleet/x.text"] = []byte("x") // a file of others has no sum
	f := must.Have(s.Open(t.Context(), "x.text"))(t)
	check.Equal(t, string(must.Have(io.ReadAll(f))(t)), "x", "content")
	must.Do(t, f.Close())
}

// TestNames: which names are those of recordings, of reports, and of files that are not finished.
func TestNames(t *testing.T) {
	id := strings.Repeat("0a", 16)
	for name, want := range map[string][2]bool{id: {true, false}, ReportName(id): {true, false}, id[1:]: {}, id + "0": {}, id + "00": {}, strings.Repeat("g", 32): {}, "new-12": {false, true}, "new-": {}, "new-1x": {}, "12": {}} {
		check.Equal(t, [2]bool{IsRecordingFile(name), IsUnfinished(name)}, want, "%s", name)
	}
	d := Dir(t.TempDir())
	must.Do(t, os.MkdirAll(filepath.Join(string(d), "a", "b"), 0o700))
	check.True(t, len(listNames(t, d)) == 0, "a directory is listed")
	check.Error(t, d.Remove(t.Context(), "a"), "a directory with content is removed")
}
