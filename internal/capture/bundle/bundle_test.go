package bundle

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/modules"
)

var sampleMeta = Meta{
	Tool: "v1.2.3", URL: "http://svc:6060/debug/pprof/trace",
	Start:       time.Date(2026, 11, 21, 4, 5, 6, 7000, time.UTC),
	RequestedNS: 1_500_000_000, WindowNS: 2_000_000_000, ReceivedNS: 2_013_000_000,
	TraceVersion: "go 1.26",
	Kernel:       &Kernel{Schema: "whylate.kernel/v1", Events: 7, Programs: []KernelProgram{{Name: "sched_switch", IsAttached: true}, {Name: "sk_data_ready", Reason: "EPERM"}}},
	Warnings:     []Warning{{Code: "rounded", Text: "recording 2 s instead of 1.5s"}},
}

func sample(t testing.TB, trace []byte) []byte {
	var buf bytes.Buffer
	w := must.Have(NewWriter(&buf, sampleMeta.Start))(t)
	// In pieces, as it streams.
	for rest := trace; len(rest) > 0; {
		n := min(len(rest), 1000)
		must.Have(w.Write(rest[:n]))(t)
		rest = rest[n:]
	}
	must.Do(t, w.Add(NameCPU, []byte("cpu")))
	must.Do(t, w.Add(NameKernel, []byte("events")))
	if err := w.Add(NameAllocs, nil); err != nil { // nothing recorded: no entry
		t.Fatal(err)
	}
	must.Do(t, w.Close(sampleMeta))
	return buf.Bytes()
}

func TestRoundTrip(t *testing.T) {
	trace := bytes.Repeat([]byte("go 1.26 trace\x00\x00\x00"), 1000)
	data := sample(t, trace)
	check.True(t, HasMagic(data[:35]) && IsZip(data), "the first 35 bytes are not recognized")
	check.True(t, bytes.Contains(data, trace), "the trace is not stored as it is")
	b := must.Have(New(bytes.NewReader(data), int64(len(data))))(t)
	want := sampleMeta
	want.Schema = Schema
	if got := b.Meta(); !reflect.DeepEqual(got, want) {
		t.Errorf("metadata\n%+v\nwant\n%+v", got, want)
	}
	r, size, err := b.Trace()
	must.Do(t, err)
	got, err := io.ReadAll(r)
	check.True(t, err == nil && bytes.Equal(got, trace) && size == int64(len(trace)),
		"trace: %d bytes, announced %d, error %v; want %d", len(got), size, err, len(trace))
	if cpu, err := b.CPUProfile(); err != nil || string(cpu) != "cpu" {
		t.Errorf("CPU profile: %q, %v", cpu, err)
	}
	if _, err := b.AllocsProfile(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a profile that was not recorded: %v, want ErrNotExist", err)
	}
	if events, err := b.KernelEvents(); err != nil || string(events) != "events" {
		t.Errorf("the kernel's events: %q, %v", events, err)
	}
	if _, err := b.HostStream(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a stream of host samples that were not recorded: %v, want ErrNotExist", err)
	}
	if _, err := b.HostSamples(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("host samples that were not recorded: %v, want ErrNotExist", err)
	}
}

func TestWriterOrder(t *testing.T) {
	w := must.Have(NewWriter(io.Discard, time.Time{}))(t)
	must.Do(t, w.Add(NameCPU, []byte("x")))
	if _, err := w.Write([]byte("late")); err == nil {
		t.Error("trace bytes after another entry were accepted")
	}
	check.Error(t, w.Add(NameCPU, []byte("x")), "a second CPU profile was accepted")
}

// Other programs read the format, so the test has its own list of the field names.
func TestMetaFieldNames(t *testing.T) {
	data := must.Have(json.Marshal(Meta{Schema: Schema, Tool: "t", TraceVersion: "v", Go: "g", Warnings: []Warning{{"c", "t"}}}))(t)
	const want = `{"schema":"whylate.bundle/v1","tool":"t","url":"","start":"0001-01-01T00:00:00Z","asked_ns":0,"window_ns":0,` +
		`"got_ns":0,"truncated":false,"trace_version":"v","go":"g","warnings":[{"code":"c","text":"t"}]}`
	check.True(t, string(data) == want, "metadata is written as\n%s\nwant\n%s", data, want)
}

// unzip, an independent reader, finds the same entries in the file.
func TestUnzipReadsIt(t *testing.T) {
	unzip, err := exec.LookPath("unzip")
	if err != nil {
		unzip, err = exec.LookPath("python3")
	}
	if err != nil {
		t.Skip("neither unzip nor python3 here")
	}
	name := filepath.Join(t.TempDir(), "x.whylate")
	trace := bytes.Repeat([]byte("abc"), 5000)
	must.Do(t, os.WriteFile(name, sample(t, trace), 0o600))
	cmd := exec.Command(unzip, "-p", name, "trace")
	if strings.HasSuffix(unzip, "python3") {
		cmd = exec.Command(unzip, "-c", "import sys,zipfile; z=zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; sys.stdout.buffer.write(z.read('trace'))", name)
	}
	out, err := cmd.Output()
	check.True(t, err == nil && bytes.Equal(out, trace), "%s gave %d bytes, error %v; want the %d of the trace", cmd.Args[0], len(out), err, len(trace))
}

type entry struct {
	name   string
	data   string
	method uint16
}

func zipOf(t testing.TB, entries ...entry) []byte {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, e := range entries {
		w := must.Have(z.CreateHeader(&zip.FileHeader{Name: e.name, Method: e.method}))(t)
		must.Have(io.WriteString(w, e.data))(t)
	}
	must.Do(t, z.Close())
	return buf.Bytes()
}

const goodMeta = `{"schema":"whylate.bundle/v1","later":{"field":1}}`

func TestBadInput(t *testing.T) {
	good := sample(t, []byte("trace"))
	flipped := bytes.Clone(good)
	flipped[bytes.Index(flipped, []byte("schema"))] ^= 1
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "completely?"},
		{"not a zip", []byte("go 1.26 trace\x00\x00\x00"), "completely?"},
		{"cut", good[:len(good)-10], "completely?"},
		{"a zip of something else", zipOf(t, entry{"x.trace", "x", zip.Store}), `without an entry "meta.json"`},
		{"no trace", zipOf(t, entry{"meta.json", goodMeta, zip.Store}), `without an entry "trace"`},
		{"two traces", zipOf(t, entry{"trace", "a", zip.Store}, entry{"trace", "b", zip.Store}, entry{"meta.json", goodMeta, 0}), "two entries"},
		{"newer", zipOf(t, entry{"trace", "", 0}, entry{"meta.json", `{"schema":"whylate.bundle/v9"}`, 0}), "use a newer whylate"},
		{"foreign schema", zipOf(t, entry{"trace", "", 0}, entry{"meta.json", `{"schema":"x"}`, 0}), `schema in its meta.json is "x"`},
		{"meta is no JSON", zipOf(t, entry{"trace", "", 0}, entry{"meta.json", `{`, 0}), "reading its meta.json"},
		{"checksum", flipped, "checksum"},
		{"metadata that unpacks to 4 MB", zipOf(t, entry{"trace", "", 0}, entry{"meta.json", strings.Repeat(" ", 4<<20), zip.Deflate}), "larger than 1 MiB"},
		{"an unknown compression", unknownMethod(t), "unsupported compression"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(bytes.NewReader(c.data), int64(len(c.data)))
			check.True(t, err != nil && strings.Contains(err.Error(), c.want) && errors.Is(err, ErrNotBundle),
				"error %v\nwant one that wraps ErrNotBundle and says %q", err, c.want)
		})
	}
}

func unknownMethod(t testing.TB) []byte {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for _, name := range []string{"trace", "meta.json"} {
		w := must.Have(z.CreateRaw(&zip.FileHeader{Name: name, Method: 99, CompressedSize64: 4, UncompressedSize64: 4}))(t)
		must.Have(w.Write([]byte("four")))(t)
	}
	must.Do(t, z.Close())
	return buf.Bytes()
}

// A recording that another tool has packed again, compressed and in another order, is readable.
func TestRepackedReads(t *testing.T) {
	data := zipOf(t, entry{"meta.json", goodMeta, zip.Deflate}, entry{"extra", "?", zip.Deflate}, entry{"trace", "the trace", zip.Deflate})
	check.False(t, HasMagic(data), "recognized as a recording by its first bytes, although the trace is not first")
	b := must.Have(New(bytes.NewReader(data), int64(len(data))))(t)
	r, _, err := b.Trace()
	must.Do(t, err)
	if got, err := io.ReadAll(r); err != nil || string(got) != "the trace" {
		t.Errorf("trace %q, %v", got, err)
	}
}

// If the directory claims fewer bytes than the entry unpacks to, reading stops there.
func TestTraceLongerThanClaimed(t *testing.T) {
	body := bytes.Repeat([]byte{0}, 1<<20)
	packed := zipOf(t, entry{"trace", string(body), zip.Deflate})
	zr := must.Have(zip.NewReader(bytes.NewReader(packed), int64(len(packed))))(t)
	raw := must.Have(zr.File[0].OpenRaw())(t)
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	w, err := z.CreateRaw(&zip.FileHeader{Name: "trace", Method: zip.Deflate, CRC32: crc32.ChecksumIEEE(body),
		CompressedSize64: zr.File[0].CompressedSize64, UncompressedSize64: 1000})
	must.Do(t, err)
	must.Have(io.Copy(w, raw))(t)
	w = must.Have(z.Create("meta.json"))(t)
	must.Have(io.WriteString(w, goodMeta))(t)
	must.Do(t, z.Close())
	b := must.Have(New(bytes.NewReader(buf.Bytes()), int64(buf.Len())))(t)
	r, _, err := b.Trace()
	must.Do(t, err)
	got, err := io.ReadAll(r)
	check.True(t, err != nil && len(got) <= 1000, "read %d bytes with error %v, want at most 1000 and an error", len(got), err)
}

func TestOpenFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.whylate")
	if _, err := Open(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
	must.Do(t, os.WriteFile(name, sample(t, []byte("trace")), 0o600))
	f := must.Have(Open(name))(t)
	check.Equal(t, f.Meta().Tool, "v1.2.3", "metadata %+v", f.Meta())
	must.Do(t, f.Close())
}

// FuzzRead: no input panics, exceeds the limits of memory, or gives more trace bytes than announced.
func FuzzRead(f *testing.F) {
	f.Add(sample(f, []byte("go 1.26 trace\x00\x00\x00")))
	f.Add(zipOf(f, entry{"meta.json", goodMeta, zip.Deflate}, entry{"trace", strings.Repeat("x", 5000), zip.Deflate}))
	f.Add(unknownMethod(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		HasMagic(data)
		b, err := New(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		must.True(t, b.Meta().Schema == Schema, "accepted schema %q", b.Meta().Schema)
		if h, err := b.HostStream(); err == nil {
			if n, err := io.Copy(io.Discard, h); n > maxHost || n > 1032*int64(len(data)) {
				t.Fatalf("%d bytes of host samples from %d, %v", n, len(data), err)
			}
			h.Close()
		}
		if p, err := b.CPUProfile(); err == nil && len(p) > maxProfile {
			t.Fatalf("profile of %d bytes", len(p))
		}
		r, size, err := b.Trace()
		if err != nil {
			return
		}
		defer r.Close()
		// Deflate gives at most 1032 bytes for one (zlib's documentation, "Maximum Compression Factor").
		n, err := io.Copy(io.Discard, r)
		if n > size || (err == nil && n != size) || n > 1032*int64(len(data)) {
			t.Fatalf("%d trace bytes of %d announced, from %d of input, error %v", n, size, len(data), err)
		}
	})
}

// TestProgram: a recording has the build information of its program, or, if a service kept it itself,
// its module.
func TestProgram(t *testing.T) {
	build := &modules.Build{Main: modules.Module{Path: "shop.org/s"}, Deps: []modules.Module{{Path: "dep.org/x", Version: "v1.0.0"}}}
	flight := &Flight{Service: map[string]string{"module": "shop.org/s"}}
	for _, c := range []struct {
		name string
		meta Meta
		deps int
		main string
	}{
		{"of a process on this host", Meta{Host: &Host{Build: build}, Flight: flight}, 1, "shop.org/s"},
		{"kept by the service", Meta{Flight: flight}, 0, "shop.org/s"},
		{"of a service elsewhere", Meta{Host: &Host{}}, 0, ""},
	} {
		b := c.meta.Program()
		if (b == nil) != (c.main == "") || b != nil && (b.Main.Path != c.main || len(b.Deps) != c.deps) {
			t.Errorf("%s: %+v", c.name, b)
		}
	}
}
