// Package bundle reads and writes recordings: zip files, usually named x.whylate, with an execution
// trace, profiles and host samples of the same time, and metadata about their origin. docs/bundle.md
// describes the format.
//
// The trace is the first entry and is stored without compression. So a writer can stream it, a reader
// needs no copy of it, and `unzip -p x.whylate trace` gives a file for any other tool.
package bundle

import (
	"bytes"
	"errors"
)

// Schema is the value of Meta.Schema in files that this package writes.
const Schema = "whylate.bundle/v1"

const schemaFamily = "whylate.bundle/"

// Names of the entries. Only trace and meta.json are mandatory. Readers ignore unknown names.
const (
	NameTrace  = "trace"        // the execution trace, as the runtime wrote it
	NameCPU    = "cpu.pb.gz"    // CPU profile of the same time, gzipped pprof
	NameAllocs = "allocs.pb.gz" // allocations of the same time (a difference of two profiles), gzipped pprof
	NameHost   = "host.jsonl"   // samples of the host or container, one JSON object a line (package host)
	NameKernel = "kernel.bin"   // events of the kernel (package kernelevents)
	NameMeta   = "meta.json"    // Meta
)

// Limits of a reader. Traces have no limit, because they are streamed.
const (
	maxMeta    = 1 << 20  // a few hundred bytes in practice
	maxProfile = 64 << 20 // the largest profiles of real services are some MB
	maxHost    = 256 << 20
	maxKernel  = 64 << 20 // packed; ten seconds at 50,000 events a second take 4 MiB
	maxEntries = 1024     // six in practice; the rest is for later versions
	// maxDirectory bounds the bytes that are read to find the entries: 67 KiB at the end of the file,
	// and 300 bytes an entry.
	maxDirectory = 384 << 10
)

// ErrNotBundle is wrapped by errors about input that is not a complete recording of a known version.
var ErrNotBundle = errors.New("not a whylate recording")

// ErrDirectory is wrapped, with [ErrNotBundle], by errors about a zip file with more entries than any recording has.
var ErrDirectory = errors.New("its directory is larger than that of any recording")

// MagicLen is the number of bytes that HasMagic needs.
const MagicLen = 35

// HasMagic reports, from the first MagicLen bytes of a file, whether it is a recording: a zip file
// whose first entry is the trace. For a zip file that was packed again, with the entries in another
// order, only [IsZip] is true.
func HasMagic(prefix []byte) bool {
	// A zip's local file header: signature, 22 bytes of fields, length of the name (2), length of the extra field (2),
	// name. Source: PKWARE APPNOTE.TXT 6.3.10, section 4.3.7.
	const header = 30
	return IsZip(prefix) && len(prefix) >= header+len(NameTrace) &&
		prefix[26] == byte(len(NameTrace)) && prefix[27] == 0 &&
		string(prefix[header:header+len(NameTrace)]) == NameTrace
}

// IsZip reports whether the bytes begin like a zip file with at least one entry.
func IsZip(prefix []byte) bool { return bytes.HasPrefix(prefix, []byte("PK\x03\x04")) }
