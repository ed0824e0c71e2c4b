package bundle

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// A hugeZip is a zip file with many entries of 46 bytes in its directory, and with last records that
// claim a number of them. It generates its content as it is read.
type hugeZip struct {
	head, entry, tail []byte
	entries           int
}

func (c *hugeZip) size() int64 { return int64(len(c.head) + c.entries*len(c.entry) + len(c.tail)) }

func (c *hugeZip) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		position, begin := off+int64(n), int64(len(c.head))
		end := begin + int64(c.entries*len(c.entry))
		switch {
		case position < begin:
			n += copy(p[n:], c.head[position:])
		case position < end:
			n += copy(p[n:], c.entry[(position-begin)%int64(len(c.entry)):])
		case position < c.size():
			n += copy(p[n:], c.tail[position-end:])
		default:
			return n, io.EOF
		}
	}
	return n, nil
}

// newHugeZip returns a zip file with a trace of some bytes, whose last record claims a number of
// entries. A zip64 other than 0 adds the 64-bit record, which claims that number.
func newHugeZip(trace, entries int, claim uint16, zip64 uint64) *hugeZip {
	c := &hugeZip{head: make([]byte, MagicLen+trace), entry: make([]byte, 46), entries: entries}
	copy(c.head, "PK\x03\x04")
	c.head[26] = byte(len(NameTrace))
	copy(c.head[30:], NameTrace)
	copy(c.entry, "PK\x01\x02")
	end := make([]byte, 22)
	copy(end, "PK\x05\x06")
	binary.LittleEndian.PutUint16(end[10:], claim)
	binary.LittleEndian.PutUint32(end[12:], uint32(entries*len(c.entry)))
	binary.LittleEndian.PutUint32(end[16:], uint32(len(c.head)))
	if zip64 > 0 {
		record, locator := make([]byte, 56), make([]byte, 20)
		copy(record, "PK\x06\x06")
		binary.LittleEndian.PutUint64(record[32:], zip64)
		binary.LittleEndian.PutUint64(record[40:], uint64(entries*len(c.entry)))
		binary.LittleEndian.PutUint64(record[48:], uint64(len(c.head)))
		copy(locator, "PK\x06\x07")
		binary.LittleEndian.PutUint64(locator[8:], uint64(c.size()))
		locator[16] = 1
		binary.LittleEndian.PutUint16(end[10:], 0xffff)
		c.tail = append(record, locator...)
	}
	c.tail = append(c.tail, end...)
	return c
}

// TestDirectoryIsBounded: a directory of a million entries is refused before it is read, whatever
// number the last record claims, and a claim of millions of entries allocates nothing.
func TestDirectoryIsBounded(t *testing.T) {
	const million = 1 << 20
	for claim, c := range map[string]*hugeZip{
		"the number, as far as 16 bits hold it": newHugeZip(0, million+5, 5, 0),
		"two entries":                           newHugeZip(0, million, 2, 0),
		"no entry":                              newHugeZip(0, million, 0, 0),
		"as many as a recording has":            newHugeZip(0, million, 1024, 0),
		"the number, in 64 bits":                newHugeZip(0, million, 0, million),
		"a lie in 64 bits":                      newHugeZip(0, million, 0, 5),
		"millions of two entries":               newHugeZip(64<<20, 2, 0, 2<<20),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := New(c, c.size())
		runtime.ReadMemStats(&after)
		check.True(t, errors.Is(err, ErrNotBundle), "%s: %v", claim, err)
		if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
			t.Errorf("%s: reading it allocates %d MiB", claim, used>>20)
		}
		check.True(t, errors.Is(err, ErrDirectory) && strings.Contains(err.Error(), "more than 1024 entries"),
			"%s: %v, want that it has too many entries", claim, err)
	}
}
