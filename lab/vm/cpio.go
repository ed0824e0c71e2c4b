//go:build linux

package vm

import (
	"compress/gzip"
	"fmt"
	"io"
)

// A file of an initramfs.
type initFile struct {
	name string
	mode uint32 // with the file type, as in stat
	data []byte
}

const (
	modeDir  = 0o040755
	modeExec = 0o100755
)

// writeInitramfs writes the files as a gzipped cpio archive in the "newc"
// format, the one that the kernel unpacks (Documentation/driver-api/
// early-userspace/buffer-format.rst).
func writeInitramfs(w io.Writer, files []initFile) error {
	zw, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	for i, f := range append(files, initFile{name: "TRAILER!!!"}) {
		// Thirteen fields of eight hexadecimal digits; both header with name
		// and data are padded to four bytes.
		head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			i+1, f.mode, 0, 0, 1, 0, len(f.data), 0, 0, 0, 0, len(f.name)+1, 0) + f.name + "\x00"
		if err := writePadded(zw, []byte(head)); err != nil {
			return err
		}
		if err := writePadded(zw, f.data); err != nil {
			return err
		}
	}
	return zw.Close()
}

func writePadded(w io.Writer, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err := w.Write(make([]byte, (4-len(b)%4)%4))
	return err
}
