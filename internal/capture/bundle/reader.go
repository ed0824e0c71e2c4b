package bundle

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A Bundle is a recording opened for reading. Its methods may be called concurrently.
type Bundle struct {
	meta    Meta
	entries map[string]*zip.File
}

// New reads the directory and the metadata of a recording of the given size. Errors wrap
// [ErrNotBundle] if the input is invalid. Memory is bounded by the size of the file, for any content.
func New(r io.ReaderAt, size int64) (*Bundle, error) {
	z, err := ReadDirectory(r, size)
	if err != nil {
		return nil, err
	}
	b := &Bundle{entries: make(map[string]*zip.File, len(z.File))}
	for _, f := range z.File {
		if b.entries[f.Name] != nil {
			return nil, fmt.Errorf("%w: it has two entries named %q", ErrNotBundle, clip(f.Name))
		}
		b.entries[f.Name] = f
	}
	if b.entries[NameServices] != nil && b.entries[NameTrace] == nil {
		return nil, fmt.Errorf("%w: %w", ErrNotBundle, ErrServices)
	}
	for _, name := range []string{NameMeta, NameTrace} {
		if b.entries[name] == nil {
			return nil, fmt.Errorf("%w: a zip file without an entry %q (if it holds a plain trace, unpack it first)", ErrNotBundle, name)
		}
	}
	data, err := b.read(NameMeta, maxMeta)
	if err != nil {
		return nil, err
	}
	if b.meta, err = parseMeta(data); err != nil {
		return nil, err
	}
	return b, nil
}

// ReadDirectory reads the directory of a zip file with at most as many entries as a recording may
// have. Errors wrap [ErrNotBundle], and [ErrDirectory] if there are more entries. Memory is bounded
// for any content.
func ReadDirectory(r io.ReaderAt, size int64) (*zip.Reader, error) {
	d := &directoryReader{ReaderAt: r, remaining: maxDirectory}
	z, err := zip.NewReader(d, size)
	if errors.Is(err, ErrDirectory) {
		return nil, fmt.Errorf("%w: it has more than %d entries: %w", ErrNotBundle, maxEntries, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: reading it as a zip file: %w (was it copied or downloaded completely?)", ErrNotBundle, err)
	}
	if len(z.File) > maxEntries {
		return nil, fmt.Errorf("%w: it has %d entries, more than %d: %w", ErrNotBundle, len(z.File), maxEntries, ErrDirectory)
	}
	d.isComplete = true
	return z, nil
}

// A directoryReader stops the zip reader's search for entries after a number of bytes. Without it the
// zip reader reads as long as it finds entries, whatever number the file's last record claims.
type directoryReader struct {
	io.ReaderAt
	remaining  int
	isComplete bool // the directory has been read; further reads are unlimited
}

// ReadAt reads from the file. Until isComplete is set, it returns ErrDirectory after maxDirectory bytes, and for a zip64 record that claims more than
// maxEntries entries.
func (d *directoryReader) ReadAt(p []byte, off int64) (int, error) {
	if d.isComplete {
		return d.ReaderAt.ReadAt(p, off)
	}
	if d.remaining -= len(p); d.remaining < 0 {
		return 0, ErrDirectory
	}
	n, err := d.ReaderAt.ReadAt(p, off)
	// The zip reader allocates 8 bytes for each entry that the zip64 record at the end claims, up to a quarter of the file's size.
	// Source: PKWARE APPNOTE.TXT 6.3.10, section 4.3.14.
	const signature, records, length = "PK\x06\x06", 32, 56
	if n == length && string(p[:4]) == signature && binary.LittleEndian.Uint64(p[records:]) > maxEntries {
		return 0, ErrDirectory
	}
	return n, err
}

// UnfinishedTrace returns the trace of a recording whose writer was killed. Such a file lacks the
// directory at its end, but its first entry is the unpacked trace. The result extends to the end of
// the input; entries behind the trace look like damage. ok is false if the input does not begin with a
// trace.
func UnfinishedTrace(r io.ReaderAt, size int64) (trace *io.SectionReader, ok bool) {
	var head [MagicLen]byte
	if _, err := r.ReadAt(head[:], 0); err != nil || !HasMagic(head[:]) || binary.LittleEndian.Uint16(head[8:]) != zip.Store {
		return nil, false
	}
	start := MagicLen + int64(binary.LittleEndian.Uint16(head[28:])) // behind the extra field
	if start > size {
		return nil, false
	}
	return io.NewSectionReader(r, start, size-start), true
}

// A File is a Bundle of an open file.
type File struct {
	*Bundle
	f *os.File
}

// Open opens the bundle in a file. The caller closes it.
func Open(name string) (*File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("opening a recording: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		var b *Bundle
		if b, err = New(f, info.Size()); err == nil {
			return &File{b, f}, nil
		}
	}
	f.Close()
	return nil, fmt.Errorf("opening %s: %w", name, err)
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// Meta returns the metadata.
func (b *Bundle) Meta() Meta { return b.meta }

// Trace returns the trace as a stream, and its length. The stream ends with an error if its bytes do
// not match the checksum or the length in the zip's directory.
func (b *Bundle) Trace() (io.ReadCloser, int64, error) {
	f := b.entries[NameTrace]
	r, err := f.Open()
	if err != nil {
		return nil, 0, fmt.Errorf("%w: opening its trace: %w", ErrNotBundle, err)
	}
	// A length above that of any file would turn negative.
	if f.UncompressedSize64 > 1<<62 {
		r.Close()
		return nil, 0, fmt.Errorf("%w: its trace claims %d bytes", ErrNotBundle, f.UncompressedSize64)
	}
	return traceReader{r}, int64(f.UncompressedSize64), nil
}

// A traceReader adds context to errors.
type traceReader struct{ io.ReadCloser }

// Read implements io.Reader.
func (t traceReader) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("reading the recording's trace: %w", err)
	}
	return n, err
}

// CPUProfile returns the gzipped pprof profile of the CPU; the error wraps [fs.ErrNotExist] if none was recorded.
func (b *Bundle) CPUProfile() ([]byte, error) { return b.read(NameCPU, maxProfile) }

// AllocsProfile returns the gzipped pprof profile of the window's allocations; the error wraps [fs.ErrNotExist] if none
// was recorded.
func (b *Bundle) AllocsProfile() ([]byte, error) { return b.read(NameAllocs, maxProfile) }

// HostSamples returns the host samples, one JSON object a line; the error wraps [fs.ErrNotExist] if none were recorded.
func (b *Bundle) HostSamples() ([]byte, error) { return b.read(NameHost, maxHost) }

// HostStream returns the host samples as a stream, which ends with an error at the limit.
func (b *Bundle) HostStream() (io.ReadCloser, error) { return b.stream(NameHost, maxHost) }

// KernelEvents returns the kernel's events; the error wraps [fs.ErrNotExist] if none were recorded.
func (b *Bundle) KernelEvents() ([]byte, error) { return b.read(NameKernel, maxKernel) }

// read returns a whole entry; fs.ErrNotExist if there is none of that name, ErrNotBundle if it is damaged or longer than limit bytes.
func (b *Bundle) read(name string, limit int64) ([]byte, error) {
	r, err := b.stream(name, limit)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil && !errors.Is(err, ErrNotBundle) {
		err = fmt.Errorf("%w: unpacking its %s: %w", ErrNotBundle, name, err)
	}
	return data, err
}

// stream opens an entry; fs.ErrNotExist if there is none of that name. Reading more than limit bytes of it is an error. The caller closes it.
func (b *Bundle) stream(name string, limit int64) (io.ReadCloser, error) {
	f := b.entries[name]
	if f == nil {
		return nil, fmt.Errorf("reading %s from a recording: %w", name, fs.ErrNotExist)
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: opening its %s: %w", ErrNotBundle, name, err)
	}
	return &limitedEntry{r, name, limit, limit}, nil
}

// A limitedEntry ends with an error if an entry unpacks to more than its limit, whatever length the
// zip's directory claims.
type limitedEntry struct {
	io.ReadCloser
	name             string
	remaining, limit int64
}

// Read reads from the entry. It returns an error that wraps ErrNotBundle as soon as the entry is longer than its limit.
func (l *limitedEntry) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.remaining -= int64(n); l.remaining < 0 {
		return 0, fmt.Errorf("%w: its %s is larger than %d MiB", ErrNotBundle, l.name, l.limit>>20)
	}
	return n, err
}
