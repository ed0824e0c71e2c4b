package testprog

import (
	"bytes"
	"crypto/sha256"
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

// Packed is the suffix of packed recordings. xz makes a trace a third smaller than gzip. To read one:
// xz -dc FILE | whylate explain -
const Packed = ".xz"

// Pack packs a recording with the xz command. A reader allocates the dictionary size of the file's
// header, so Pack limits it to the size of the data.
func Pack(data []byte) ([]byte, error) {
	dict := 1 << max(12, bits.Len(uint(len(data))))
	cmd := exec.Command("xz", "--stdout", "--check=crc32", fmt.Sprintf("--lzma2=preset=9e,dict=%d", dict))
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(data), &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("packing with the xz command: %w\n%s", err, stderr.Bytes())
	}
	return out, nil
}

// Unpack returns the content of a file that Pack wrote.
func Unpack(packed []byte) ([]byte, error) {
	r, err := xz.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
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
