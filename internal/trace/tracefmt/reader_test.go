package tracefmt_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// sampleTrace returns a trace of n generations.
func sampleTrace(t testing.TB, minor, n int) []byte {
	t.Helper()
	b := tracetext.New(minor)
	th := b.Thread(1)
	for k := range n {
		if k > 0 {
			b.NextGeneration(int64(k) * 1e6)
		}
		for i := range int64(200) {
			th.HeapAlloc(int64(k)*1e6+i, uint64(i)*4096)
		}
		th.Stop(int64(k)*1e6+500, "preempted", fmt.Sprintf("main.f%d:%d", k, k))
		th.Start(int64(k)*1e6+600, 1)
	}
	return must.Have(b.Bytes())(t)
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	must.Have(w.Write(data))(t)
	must.Do(t, w.Close())
	return b.Bytes()
}

// readAll returns copies of all generations' bytes and the error at the end, nil for a clean end.
func readAll(r io.Reader, opts tracefmt.Options) (gens [][]byte, err error) {
	rd, err := tracefmt.NewReader(r, opts)
	if err != nil {
		return nil, err
	}
	for {
		g, err := rd.Next()
		if errors.Is(err, io.EOF) {
			return gens, nil
		}
		if err != nil {
			return gens, err
		}
		gens = append(gens, bytes.Join(g.Parts, nil))
		g.Release()
	}
}

func TestReadsAnySource(t *testing.T) {
	for _, minor := range []int{22, 23, 25, 26} {
		data := sampleTrace(t, minor, 5)
		want, err := readAll(bytes.NewReader(data), tracefmt.Options{})
		must.True(t, err == nil && len(want) == 5 && bytes.Equal(bytes.Join(want, nil), data[16:]),
			"go 1.%d: %d generations, %v", minor, len(want), err)
		var two bytes.Buffer // a gzip file of two members
		half := len(data) / 2
		two.Write(gzipped(t, data[:half]))
		two.Write(gzipped(t, data[half:]))
		for name, r := range map[string]io.Reader{
			"a byte at a time":      iotest.OneByteReader(bytes.NewReader(data)),
			"data with the end":     iotest.DataErrReader(bytes.NewReader(data)),
			"half reads":            iotest.HalfReader(bytes.NewReader(data)),
			"gzip":                  bytes.NewReader(gzipped(t, data)),
			"gzip, two members":     &two,
			"gzip a byte at a time": iotest.OneByteReader(bytes.NewReader(gzipped(t, data))),
		} {
			got, err := readAll(r, tracefmt.Options{})
			if err != nil || len(got) != len(want) {
				t.Errorf("go 1.%d, %s: %d generations, %v", minor, name, len(got), err)
				continue
			}
			for k := range want {
				check.True(t, bytes.Equal(got[k], want[k]), "go 1.%d, %s: generation %d differs", minor, name, k)
			}
		}
	}
}

// TestLiveGenerationComesAtOnce feeds a trace through a pipe and expects each generation as soon as its last byte
// is written.
func TestLiveGenerationComesAtOnce(t *testing.T) {
	data := sampleTrace(t, 26, 3)
	chunks := must.Have(tracetext.Split(data))(t)
	pr, pw := io.Pipe()
	defer pw.Close()
	from := 0
	ends := make(chan int)
	go func() {
		for to := range ends {
			pw.Write(data[from:to])
			from = to
		}
	}()
	defer close(ends)
	ends <- 16
	rd := must.Have(tracefmt.NewReader(pr, tracefmt.Options{}))(t)
	n := 0
	for _, c := range chunks {
		if c.Type != tracefmt.EvEndOfGeneration {
			continue
		}
		ends <- c.End
		g, err := rd.Next() // would block if it needed one byte more
		must.True(t, err == nil && g.Num == uint64(n+1), "generation %d: %v", n+1, err)
		n++
	}
	must.Equal(t, n, 3, "generations")
}

func TestBadInput(t *testing.T) {
	trace := sampleTrace(t, 26, 2)
	claim := append(tracetext.Header(26), 1, 1, 1, 1)
	claim = binary.AppendUvarint(claim, 5e12) // bytes
	pprof := []byte{0x0a, 0x04, 0x08, 0x01, 0x10, 0x02, 0x12, 0x06}
	tests := []struct {
		name string
		data []byte
		kind tracefmt.Kind
		text string
	}{
		{"empty", nil, tracefmt.Empty, "nothing to read"},
		{"half a header", trace[:9], tracefmt.Truncated, "header"},
		{"header only, cut", append(tracetext.Header(26), 1), tracefmt.Truncated, "cut"},
		{"pprof, gzip", gzipped(t, append(pprof, make([]byte, 200)...)), tracefmt.NotTrace, "pprof profile"},
		{"pprof", append(pprof, make([]byte, 200)...), tracefmt.NotTrace, "pprof profile"},
		{"HTML", []byte("<!DOCTYPE html>\n<html><body>404 page not found</body></html>"), tracefmt.NotTrace, "HTML page"},
		{"text", []byte("404 page not found\n"), tracefmt.NotTrace, `"404 page not found"`},
		{"tracing disabled", []byte("Could not enable tracing: tracing is already enabled\n"), tracefmt.NotTrace, "already enabled"},
		{"JSON", []byte(`{"traceEvents": []}`), tracefmt.NotTrace, "JSON"},
		{"zip", []byte("PK\x03\x04and much more to come"), tracefmt.NotTrace, "zip file"},
		{"executable", []byte("\x7fELF\x02\x01\x01 and more behind it"), tracefmt.NotTrace, "executable"},
		{"goroutine dump", []byte("goroutine 1 [running]:\nmain.main()\n"), tracefmt.NotTrace, "profile in text form"},
		{"random bytes", []byte{0x9c, 0x11, 0xfe, 3, 4, 5, 6, 7, 8, 9, 10, 200, 201, 202, 203, 204, 205}, tracefmt.NotTrace, "not a Go execution trace"},
		{"old format", append([]byte("go 1.21 trace\x00\x00\x00"), 1, 2, 3), tracefmt.OldFormat, "Go 1.22 and later"},
		{"oldest format", append([]byte("go 1.11 trace\x00\x00\x00"), 1, 2, 3), tracefmt.OldFormat, "Go 1.22 and later"},
		{"a size of terabytes", claim, tracefmt.Damaged, "5000000000000 bytes"},
		{"garbage behind the header", append(tracetext.Header(26), "garbage"...), tracefmt.Damaged, "batch was expected"},
		{"generation 0", append(tracetext.Header(26), 1, 0, 1, 1, 0), tracefmt.Damaged, "generation 0"},
		{"a number of eleven bytes", append(tracetext.Header(26), append([]byte{1}, bytes.Repeat([]byte{0xff}, 12)...)...), tracefmt.Damaged, "too long"},
		{"no clock", append(tracetext.Header(26), 1, 1, 1, 1, 0, byte(tracefmt.EvEndOfGeneration)), tracefmt.Damaged, "clock"},
		{"nothing but ends", append(tracetext.Header(26), bytes.Repeat([]byte{byte(tracefmt.EvEndOfGeneration)}, 1000)...), tracefmt.Damaged, "has not begun"},
		{"a mark in an old version", append(tracetext.Header(25), byte(tracefmt.EvEndOfGeneration)), tracefmt.Damaged, "mark"},
	}
	for _, tt := range tests {
		gens, err := readAll(bytes.NewReader(tt.data), tracefmt.Options{})
		check.True(t, tracefmt.KindOf(err) == tt.kind && err != nil && strings.Contains(err.Error(), tt.text) && len(gens) == 0,
			"%s: %d generations, kind %d, %v; want kind %d and %q", tt.name, len(gens), tracefmt.KindOf(err), err, tt.kind, tt.text)
	}
	if gens, err := readAll(bytes.NewReader(tracetext.Header(26)), tracefmt.Options{}); err != nil || gens != nil {
		t.Errorf("a trace without a generation: %d, %v", len(gens), err)
	}
}

// TestGenerationsBeforeDamage reads two whole generations that are followed by damaged bytes.
func TestGenerationsBeforeDamage(t *testing.T) {
	for _, minor := range []int{22, 23, 25, 26} {
		whole := sampleTrace(t, minor, 2)
		third := sampleTrace(t, minor, 3)[len(whole):]
		for name, damage := range map[string][]byte{
			"garbage":              []byte("\xff\xff\xff\xff"),
			"a batch too large":    binary.AppendUvarint([]byte{1, 3, 1, 1}, 1<<40),
			"generations in a mix": {1, 9, 1, 1, 0},
			"half a generation":    third[:len(third)/2],
		} {
			data := append(bytes.Clone(whole), damage...)
			gens, err := readAll(bytes.NewReader(data), tracefmt.Options{})
			want := 2
			if minor < 26 && name == "generations in a mix" {
				want = 1 // no mark ends the second one, and nonsense follows it
			}
			if err == nil && minor >= 26 || len(gens) != want {
				t.Errorf("go 1.%d, %s: %d generations, %v; want %d and an error", minor, name, len(gens), err, want)
			}
		}
	}
}

// TestSourceFails expects the source's error.
func TestSourceFails(t *testing.T) {
	fail := errors.New("the cable was pulled")
	data := sampleTrace(t, 26, 3)
	for _, n := range []int{0, 5, 16, 100, len(data) - 1} {
		_, err := readAll(io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(fail)), tracefmt.Options{})
		check.True(t, errors.Is(err, fail), "after %d bytes: %v", n, err)
	}
	broken := gzipped(t, data)
	broken[len(broken)/2] ^= 0x55
	if _, err := readAll(bytes.NewReader(broken), tracefmt.Options{}); err == nil {
		t.Error("damaged gzip: no error")
	}
}

func TestSkipsLargeGenerations(t *testing.T) {
	data := sampleTrace(t, 26, 3)
	rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{MaxGeneration: 100}))(t)
	var sum int64
	for k := range 3 {
		g, err := rd.Next()
		must.True(t, err == nil && g.Skipped && g.Num == uint64(k+1) && len(g.Batches) == 0, "generation %d: %+v, %v", k+1, g, err)
		sum += g.Bytes
		g.Release()
	}
	if _, err := rd.Next(); err != io.EOF {
		t.Fatalf("behind the last: %v", err)
	}
	// All bytes except the header and the marks, which belong to no batch.
	check.Equal(t, sum, int64(len(data)-16-3), "bytes skipped")
	if w := rd.Warnings(); len(w) != 3 || w[0].Code != "skipped-generation" {
		t.Errorf("warnings %v", w)
	}
	check.True(t, rd.Consumed() == int64(len(data)) && rd.Unpacked() == int64(len(data)),
		"consumed %d, unpacked %d of %d", rd.Consumed(), rd.Unpacked(), len(data))
}

// TestNewerFormat reads a trace with the header of a future version.
func TestNewerFormat(t *testing.T) {
	data := sampleTrace(t, 26, 2)
	copy(data, tracetext.Header(29))
	rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
	for range 2 {
		must.Have(rd.Next())(t)
	}
	if w := rd.Warnings(); len(w) != 1 || w[0].Code != "newer-format" {
		t.Errorf("warnings %v", w)
	}
}

// TestMemoryFollowsInput reads files of a few bytes that claim large sizes.
func TestMemoryFollowsInput(t *testing.T) {
	var m0, m1 runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m0)
	for _, size := range []uint64{1 << 16, 1 << 20, 1 << 40, 1<<64 - 1} {
		data := append(tracetext.Header(26), 1, 1, 1, 1)
		data = binary.AppendUvarint(data, size)
		if _, err := readAll(bytes.NewReader(data), tracefmt.Options{}); err == nil {
			t.Errorf("size %d: no error", size)
		}
	}
	runtime.ReadMemStats(&m1)
	if got := m1.TotalAlloc - m0.TotalAlloc; got > 64<<20 {
		t.Errorf("%d bytes were allocated for four files of thirty bytes", got)
	}
}

// longTrace returns a trace of n generations of more than 2 MB each.
func longTrace(t *testing.T, n int64) []byte {
	t.Helper()
	b := tracetext.New(26)
	thread := b.Thread(1)
	for k := range n {
		if k > 0 {
			b.NextGeneration(k << 20)
		}
		for i := range int64(1 << 18) {
			thread.HeapAlloc(k<<20+i, uint64(i)<<30)
		}
	}
	return must.Have(b.Bytes())(t)
}

// TestGenerationsInChunks: the parts of generations of several chunks are all bytes of the trace in order, also if chunks are reused, and their
// batches refer to them.
func TestGenerationsInChunks(t *testing.T) {
	data := longTrace(t, 3)
	for _, isReleased := range []bool{false, true} {
		rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
		begin := 16
		for range 3 {
			g := must.Have(rd.Next())(t)
			whole := bytes.Join(g.Parts, nil)
			must.True(t, len(g.Parts) > 2 && bytes.Equal(whole, data[begin:begin+len(whole)]), "%d parts are not the bytes from %d to %d", len(g.Parts), begin, begin+len(whole))
			begin += len(whole)
			offset := 0
			for _, b := range g.Batches {
				i := bytes.Index(whole[offset:], b.Data)
				must.True(t, i >= 0 && cap(b.Data) >= len(b.Data)+tracefmt.Pad, "a batch of %d bytes, capacity %d, is at %d", len(b.Data), cap(b.Data), i)
				offset += i + len(b.Data)
			}
			if isReleased {
				g.Release()
			}
		}
		check.Equal(t, begin, len(data), "bytes of all generations")
	}
}

// TestBuffersAreDropped: a reader keeps no buffer of a generation after the last one.
func TestBuffersAreDropped(t *testing.T) {
	data := longTrace(t, 1)
	rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
	for g, err := rd.Next(); err == nil; g, err = rd.Next() {
		g.Release()
	}
	var with, without runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&with)
	runtime.KeepAlive(rd)
	runtime.GC()
	runtime.ReadMemStats(&without)
	runtime.KeepAlive(data)
	check.True(t, with.HeapAlloc < without.HeapAlloc+uint64(len(data)/2), "the reader of %d bytes keeps %d at their end", len(data), with.HeapAlloc-without.HeapAlloc)
}

func FuzzReader(f *testing.F) {
	seeds := must.Have(refdata.Seeds())(f)
	for _, s := range seeds {
		f.Add(s, 1000)
	}
	for _, minor := range []int{22, 23, 25, 26} {
		f.Add(sampleTrace(f, minor, 2), 300)
	}
	f.Add(gzipped(f, sampleTrace(f, 26, 1)), 7)
	f.Fuzz(func(t *testing.T, data []byte, split int) {
		if len(data) > 1<<18 {
			return
		}
		opts := tracefmt.Options{MaxGeneration: 1 << 16}
		whole, err := readAll(bytes.NewReader(data), opts)
		// The results must not depend on how the bytes are divided into reads.
		split = max(0, min(split, len(data)))
		parts, err2 := readAll(io.MultiReader(bytes.NewReader(data[:split]), bytes.NewReader(data[split:])), opts)
		must.True(t, fmt.Sprint(err) == fmt.Sprint(err2) && len(whole) == len(parts),
			"%d generations and %v in one read, %d and %v in two", len(whole), err, len(parts), err2)
		total := 0
		for _, g := range whole {
			total += len(g)
		}
		must.False(t, !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) && total > len(data),
			"%d bytes of generations from %d bytes", total, len(data))
		// Reading the tables must not panic.
		rd, err := tracefmt.NewReader(bytes.NewReader(data), opts)
		if err != nil {
			return
		}
		syms, tables := tracefmt.NewSymbols(), new(tracefmt.Tables)
		for {
			g, err := rd.Next()
			if err != nil {
				return
			}
			if tables.Read(g, syms) == nil {
				_ = tables.CheckDefined(g)
			}
			g.Release()
		}
	})
}

// repeatedBatch returns a trace that consists of a header and n copies of a batch.
func repeatedBatch(batch string, n int) io.Reader {
	copies := strings.Repeat(batch, 1+(1<<16)/len(batch))
	in := []io.Reader{strings.NewReader("go 1.26 trace\x00\x00\x00")}
	for range n / (len(copies) / len(batch)) {
		in = append(in, strings.NewReader(copies))
	}
	return io.MultiReader(in...)
}

// TestLargeGenerations reads a generation that does not end. The allocations must stay near the limit: tiny
// batches take more memory in the list of batches than in the trace (4 GB for 268 MB), and a buffer that grows by
// a constant fraction allocates five times its size in total.
func TestLargeGenerations(t *testing.T) {
	for _, c := range []struct {
		name         string
		batch        string
		bytes        int
		max, allowed uint64
	}{
		{"tiny", "\x01\x01\x01\x64\x01\x10", 16 << 20, 16 << 20, 40 << 20},
		{"tiny tables", "\x01\x01\x01\x64\x01\x04", 16 << 20, 16 << 20, 40 << 20},
		{"long", "\x01\x01\x01\x64\xa0\x9c\x01" + strings.Repeat("\x10", 20000), 90 << 20, 96 << 20, 280 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := repeatedBatch(c.batch, c.bytes/len(c.batch))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			rd := must.Have(tracefmt.NewReader(in, tracefmt.Options{MaxGeneration: int(c.max)}))(t)
			g, err := rd.Next()
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > c.allowed {
				t.Errorf("%d bytes were allocated", n)
			}
			if err == nil && !g.Skipped {
				t.Errorf("generation %d has %d batches", g.Num, len(g.Batches))
			}
			check.True(t, rd.Unpacked() >= int64(c.bytes)-1<<20, "%d bytes were read", rd.Unpacked())
		})
	}
}
