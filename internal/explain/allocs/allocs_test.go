package allocs

import (
	"bytes"
	"compress/gzip"
	"errors"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestFewSamples: a profile in which one sample has all bytes names no site; eleven samples do. It fails if stacks are
// counted as samples, or if the size of objects is ignored.
func TestFewSamples(t *testing.T) {
	f := &profile.Function{ID: 1, Name: "main.f", Filename: "/src/f.go"}
	location := &profile.Location{ID: 1, Line: []profile.Line{{Function: f, Line: 7}}}
	for _, tc := range []struct {
		objects, size, period int64
		want                  error
	}{
		{200, 4096, 512 << 10, ErrFewSamples}, // 1.6 samples of small objects
		{9, 64 << 20, 512 << 10, ErrFewSamples},
		{11, 64 << 20, 512 << 10, nil},
		{1500, 4096, 512 << 10, nil}, // 11.7 samples
		{200, 4096, 1, nil},          // each allocation was recorded
	} {
		prof := &profile.Profile{
			SampleType: []*profile.ValueType{{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"}},
			PeriodType: &profile.ValueType{Type: "space", Unit: "bytes"}, Period: tc.period,
			Function: []*profile.Function{f}, Location: []*profile.Location{location},
			Sample: []*profile.Sample{{Location: []*profile.Location{location}, Value: []int64{tc.objects, tc.objects * tc.size}}},
		}
		var buf bytes.Buffer
		must.Do(t, prof.Write(&buf))
		if _, err := Read(&buf, nil); !errors.Is(err, tc.want) {
			t.Errorf("%d objects of %d bytes: %v, want %v", tc.objects, tc.size, err, tc.want)
		}
	}
}

// TestRead reads a profile in which one site allocates in the standard library and another one directly. A difference
// of two profiles holds a negative sample, and what the handler of the trace allocates is that of the recording.
func TestRead(t *testing.T) {
	fn := func(id uint64, name, file string) *profile.Function {
		return &profile.Function{ID: id, Name: name, Filename: file}
	}
	record := fn(5, "net/http/pprof.Trace", "pprof.go")
	sprintf, log, fill, mainMain := fn(1, "fmt.Sprintf", "print.go"), fn(2, "example.org/x.(*L).Debug", "/src/log.go"), fn(3, "main.fill", "/src/fill.go"), fn(4, "main.main", "/src/main.go")
	loc := func(id uint64, f *profile.Function, line int64) *profile.Location {
		return &profile.Location{ID: id, Line: []profile.Line{{Function: f, Line: line}}}
	}
	l1, l2, l3, l4, l5 := loc(1, sprintf, 1), loc(2, log, 7), loc(3, fill, 9), loc(4, mainMain, 3), loc(5, record, 1)
	prof := &profile.Profile{
		DurationNanos: 5e9,
		SampleType:    []*profile.ValueType{{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"}, {Type: "inuse_space", Unit: "bytes"}},
		Function:      []*profile.Function{sprintf, log, fill, mainMain, record}, Location: []*profile.Location{l1, l2, l3, l4, l5},
		Sample: []*profile.Sample{
			{Location: []*profile.Location{l1, l2, l4}, Value: []int64{10, 700, 1}},
			{Location: []*profile.Location{l2, l4}, Value: []int64{5, 100, 1}},
			{Location: []*profile.Location{l3, l4}, Value: []int64{2, 300, 1}},
			{Location: []*profile.Location{l3, l4}, Value: []int64{-2, -50, 0}},
			{Location: []*profile.Location{l1, l5}, Value: []int64{9, 900, 1}},
		},
	}
	var buf bytes.Buffer
	must.Do(t, prof.Write(&buf))
	got, err := Read(&buf, func(s report.Site) report.Site {
		s.File = strings.TrimPrefix(s.File, "/src/")
		return s
	})
	must.Do(t, err)
	must.True(t, got.Bytes == 1100 && len(got.Sites) == 2, "read %+v", got)
	if s, want := got.Sites[0], (Site{Site: report.Site{Func: "example.org/x.(*L).Debug", File: "log.go", Line: 7}, Call: "fmt.Sprintf", Bytes: 800, Caller: report.Site{Func: "main.main", File: "main.go", Line: 3}}); s != want {
		t.Errorf("the first site is %+v, want %+v", s, want)
	}
	if s, want := got.Sites[1], (Site{Site: report.Site{Func: "main.fill", File: "fill.go", Line: 9}, Bytes: 300, Caller: report.Site{Func: "main.main", File: "main.go", Line: 3}}); s != want {
		t.Errorf("the second site is %+v, want %+v", s, want)
	}
}

// TestStackOfDependency: a stack leads through dependencies up to the service's first function, but not to the server that called that one.
func TestStackOfDependency(t *testing.T) {
	sample, want := &profile.Sample{}, []string{"strings.Clone", "go.yaml.in/yaml/v4.node", "example.org/api.Load", "example.org/service/gate.load"}
	for _, f := range [][2]string{{want[0], "/go/src/strings/clone.go"}, {want[1], "/mod/go.yaml.in/yaml/v4@v4.0.0/node.go"}, {want[2], "example.org/api@v1.2.0/load.go"}, {want[3], "/src/gate/gate.go"}, {"net/http.(*conn).serve", "/go/src/net/http/server.go"}, {"main.main", "/src/main.go"}} {
		sample.Location = append(sample.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: f[0], Filename: f[1]}, Line: 7}}})
	}
	site, caller, _, funcs := allocationSite(sample)
	check.True(t, site.Func == want[1] && caller.Func == want[2] && slices.Equal(funcs, want[1:]), "%+v %+v %v", site, caller, funcs)
}

var sink [][]byte

//go:noinline
func hoard() {
	for range 64 {
		sink = append(sink, make([]byte, 1<<20))
	}
}

// TestReadReal reads a profile of this process and finds the function that allocated.
func TestReadReal(t *testing.T) {
	hoard()
	sink = nil
	runtime.GC() // the profile is that of the last collection
	runtime.GC()
	var buf bytes.Buffer
	must.Do(t, pprof.Lookup("allocs").WriteTo(&buf, 0))
	p := must.Have(Read(&buf, nil))(t)
	check.True(t, len(p.Sites) != 0 && strings.HasSuffix(p.Sites[0].Site.Func, "allocs.hoard") && p.Sites[0].Bytes >= 48<<20,
		"the profile begins with %+v", p.Sites[:min(len(p.Sites), 3)])
}

func TestReadBad(t *testing.T) {
	if _, err := Read(strings.NewReader(""), nil); !errors.Is(err, ErrEmpty) {
		t.Errorf("nothing: %v", err)
	}
	for name, text := range map[string]string{"no profile": "hello, this is not a profile", "a cut gzip": "\x1f\x8b\x08\x00\x00\x00\x00\x00"} {
		if p, err := Read(strings.NewReader(text), nil); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	must.Have(z.Write(make([]byte, 2<<20)))(t)
	must.Do(t, z.Close())
	if _, err := gunzip(bomb.Bytes(), 1<<20); err == nil || !strings.Contains(err.Error(), "1 MiB") {
		t.Errorf("what unpacks to more than it may: %v", err)
	}
	if out, err := gunzip(bomb.Bytes(), 2<<20); err != nil || len(out) != 2<<20 {
		t.Errorf("what unpacks to as much as it may: %d bytes, %v", len(out), err)
	}
	var buf bytes.Buffer
	cpu := &profile.Profile{SampleType: []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}}}
	must.Do(t, cpu.Write(&buf))
	if _, err := Read(&buf, nil); err == nil || !strings.Contains(err.Error(), "alloc_space") {
		t.Errorf("a CPU profile: %v", err)
	}
}

// FuzzRead: no input may cause a panic, and sites are sorted by bytes.
func FuzzRead(f *testing.F) {
	var buf bytes.Buffer
	must.Do(f, pprof.Lookup("allocs").WriteTo(&buf, 0))
	f.Add(buf.Bytes())
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Read(bytes.NewReader(data), nil)
		if err != nil {
			return
		}
		for i := 1; i < len(p.Sites); i++ {
			check.True(t, p.Sites[i].Bytes <= p.Sites[i-1].Bytes, "site %d has more bytes than the one before", i)
		}
	})
}
