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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// testBothStores runs a test on a directory and on a MinIO server.
func testBothStores(t *testing.T, test func(t *testing.T, s Store)) {
	t.Run("directory", func(t *testing.T) { test(t, Dir(t.TempDir())) })
	t.Run("S3", func(t *testing.T) {
		testfull.Need(t, "a MinIO server, whose build takes minutes")
		s := must.Have(OpenS3(t.Context(), enginetest.MinIO(t).Address, Dir(t.TempDir())))(t)
		test(t, s)
		if leftovers, err := os.ReadDir(string(s.spool)); err != nil || len(leftovers) > 0 {
			t.Errorf("left in the spool: %v %v", leftovers, err)
		}
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
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	must.Do(t, s.Save(t.Context(), f, name))
}

func listNames(t *testing.T, s Store) (names []string) {
	t.Helper()
	if err := s.List(t.Context(), func(name string, changed time.Time) error {
		if age := time.Since(changed); age < -time.Minute || age > time.Hour {
			t.Errorf("%s is %v old", name, age)
		}
		names = append(names, name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// TestStore: files are saved, read, listed and removed, also files larger than one part of an upload, saved twice, or empty.
func TestStore(t *testing.T) {
	testBothStores(t, func(t *testing.T, s Store) {
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
	testfull.Need(t, "a MinIO server, whose build takes minutes")
	s := must.Have(OpenS3(t.Context(), enginetest.MinIO(t).Address, Dir(t.TempDir())))(t)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	raw := s.WithPrefix("raw")
	saveFile(t, raw, "a", []byte("a"))
	saveFile(t, s.WithPrefix("tokens"), "b", []byte("b"))
	if got := listNames(t, raw); !slices.Equal(got, []string{"a"}) {
		t.Error(got)
	}
	name := contentID([]byte("sent"))
	if _, err := s.client.PutObject(context.Background(), s.bucket, raw.prefix+name, strings.NewReader("rotten"), 6, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := raw.LocalPath(t.Context(), name); err == nil {
		t.Error("a changed file is taken")
	}
	elsewhere := *s
	elsewhere.bucket = "elsewhere"
	if err := elsewhere.Ping(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
