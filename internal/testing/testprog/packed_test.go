package testprog

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestUnpackedPath: the unpacked file has the content of the present packed file. The test fails if a
// file is found by name although the packed one has changed, if a damaged file is accepted at once or
// later, and if two processes that unpack concurrently disturb each other.
func TestUnpackedPath(t *testing.T) {
	readPackedTrace := func(name string) []byte {
		return must.Have(os.ReadFile(filepath.Join(RecordingsDir(t), "programs", name+".trace"+Packed)))(t)
	}
	one, two := readPackedTrace("cgo-block"), readPackedTrace("http1")
	file := filepath.Join(t.TempDir(), "x.trace")
	write := func(b []byte) {
		must.Do(t, os.WriteFile(file+Packed, b, 0o600))
	}
	for _, packed := range [][]byte{one, two, one} {
		write(packed)
		want := must.Have(Unpack(packed))(t)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				path, err := unpackedPath(file)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) || filepath.Base(path) != "x.trace" {
					t.Errorf("%s: %d bytes of %d, %v", path, len(got), len(want), err)
				}
			})
		}
		all.Wait()
	}
	for _, position := range []int{3, len(one) / 2, len(one) - 10} {
		damaged := bytes.Clone(one)
		damaged[position] ^= 0x40
		write(damaged)
		for range 2 {
			if path, err := unpackedPath(file); err == nil {
				t.Errorf("a file with a damaged byte %d was unpacked as %s", position, path)
			}
		}
	}
	write(one[:len(one)/2])
	if path, err := unpackedPath(file); err == nil {
		t.Errorf("half a file was unpacked as %s", path)
	}
}

// TestPack: the reader unpacks the output of the xz command, for data of any size.
func TestPack(t *testing.T) {
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("needs the xz command, as who records does")
	}
	for _, n := range []int{0, 1, 4095, 4097, 1 << 20} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i * i >> 7)
		}
		packed := must.Have(Pack(data))(t)
		if got, err := Unpack(packed); err != nil || !bytes.Equal(got, data) {
			t.Errorf("of %d bytes come %d: %v", n, len(got), err)
		}
	}
}
