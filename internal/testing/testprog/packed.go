package testprog

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ulikunitz/xz"
)

// Packed is the suffix of packed recordings: xz of columns (columns.go). To read one:
// go run ./lab/recordings -unpack FILE | whylate explain -
const Packed = ".xz"

// Pack packs a recording with the xz command. It stores the entries of a bundle uncompressed, because xz then
// makes them smaller. A reader allocates the dictionary size of the file's header, so Pack limits it to the
// size of the data.
func Pack(data []byte) (_ []byte, err error) {
	if bytes.HasPrefix(data, []byte("PK\x03\x04")) {
		if data, err = storeUncompressed(data); err != nil {
			return nil, err
		}
	}
	data = splitColumns(data)
	dict := 1 << max(12, bits.Len(uint(len(data))))
	// lc, pb and mf are the best for a tenth of the recordings.
	cmd := exec.Command("xz", "--stdout", "--check=crc32", fmt.Sprintf("--lzma2=preset=9e,dict=%d,lc=1,pb=0,mf=bt3", dict))
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(data), &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("packing with the xz command: %w\n%s", err, stderr.Bytes())
	}
	return out, nil
}

// storeUncompressed rewrites a bundle with uncompressed entries and profiles, and without spaces in JSON.
func storeUncompressed(data []byte) ([]byte, error) {
	in, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	out := zip.NewWriter(&b)
	for _, f := range in.File {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		switch filepath.Ext(f.Name) {
		case ".json":
			data, err = compactJSON(data)
		case ".gz":
			data, err = storeGzip(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		w, err := out.CreateHeader(&zip.FileHeader{Name: f.Name, Method: zip.Store, Modified: f.Modified})
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func compactJSON(data []byte) ([]byte, error) {
	var b bytes.Buffer
	err := json.Compact(&b, data)
	return b.Bytes(), err
}

// storeGzip returns a gzip file with the content of another, uncompressed.
func storeGzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(w, r); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

// Unpack returns the content of a file that Pack wrote.
func Unpack(packed []byte) ([]byte, error) {
	r, err := xz.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return joinColumns(data)
}

// reduceGC makes garbage collections less frequent in tests that read recordings, whose heaps are
// small: that saves a sixth of their CPU time.
var reduceGC = sync.OnceFunc(func() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
})

// unpackedPath returns the path of an unpacked recording, given its path without Packed. Unpacking is
// the largest cost of many tests, so test processes share unpacked files.
func unpackedPath(path string) (string, error) {
	reduceGC()
	packed, err := os.ReadFile(path + Packed)
	if err != nil {
		return "", err
	}
	shared, err := sharedDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(packed)
	dir := filepath.Join(shared, fmt.Sprintf("unpacked-%x", sum[:8]))
	file := filepath.Join(dir, filepath.Base(path))
	if _, err := os.Stat(file); err == nil {
		accessed := time.Now()
		os.Chtimes(dir, accessed, accessed) // still in use; failing only makes it go earlier
		return file, nil
	}
	data, err := Unpack(packed)
	if err != nil {
		return "", fmt.Errorf("unpacking %s: %w", path+Packed, err)
	}
	// Other test processes may do the same concurrently, so write a temporary file and rename it.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(dir, "unpacking")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", err
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		if _, statErr := os.Stat(file); statErr != nil {
			return "", err
		}
	}
	return file, nil
}
