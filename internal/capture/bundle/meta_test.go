package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestDescription: the line has the reason, the count of its kind, and each other kind once.
func TestDescription(t *testing.T) {
	for want, f := range map[string]Flight{
		"slow":                       {Reason: Trigger{Kind: "slow"}},
		"GET /a took 1s":             {Reason: Trigger{Kind: "slow", Text: "GET /a took 1s"}, TriggerCounts: map[string]uint64{"slow": 1, "gc": 7}},
		"a (and 1 more)":             {Reason: Trigger{Kind: "slow", Text: "a"}, TriggerCounts: map[string]uint64{"slow": 2}},
		"a (and 2 more); b; d":       {Reason: Trigger{Kind: "slow", Text: "a"}, TriggerCounts: map[string]uint64{"slow": 3}, OtherTriggers: []Trigger{{Kind: "gc", Text: "b"}, {Kind: "slow", Text: "x"}, {Kind: "gc", Text: "c"}, {Kind: "freeze"}, {Kind: "freeze", Text: "y"}, {Kind: "asked", Text: "d"}}},
		"freeze (and 9223 more); gc": {Reason: Trigger{Kind: "freeze"}, TriggerCounts: map[string]uint64{"freeze": 9224}, OtherTriggers: []Trigger{{Kind: "gc", Text: "gc"}}},
	} {
		if got := f.Description(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestMagic: a recording is recognised by its first MagicLen bytes, with the name of its first entry.
func TestMagic(t *testing.T) {
	head := func(name string) []byte {
		b := make([]byte, 30)
		copy(b, "PK\x03\x04")
		b[26], b[27] = byte(len(name)), byte(len(name)>>8)
		return append(b, name...)
	}
	whole := head(NameTrace)
	check.Equal(t, len(whole), MagicLen, "bytes are recognised as a recording")
	for n := range len(whole) + 1 {
		check.True(t, HasMagic(whole[:n]) == (n == MagicLen) && IsZip(whole[:n]) == (n >= 4),
			"the first %d bytes: %v, a zip: %v", n, HasMagic(whole[:n]), IsZip(whole[:n]))
	}
	long := head(NameTrace + strings.Repeat("x", 256))
	for description, b := range map[string][]byte{"another name": head("other"), "a longer name": head("trace2"), "a very long one": long, "no zip": append([]byte("QK"), whole[2:]...)} {
		check.False(t, HasMagic(b), "%s is a recording", description)
	}
	for n, want := range map[int]int{60: 60, 61: 63} {
		check.Equal(t, len(clip(strings.Repeat("x", n))), want, "%d bytes are clipped to", n)
	}
}

// TestEntries: the maximum number of entries is accepted and one more is refused, as are two entries
// with one name, and a missing entry.
func TestEntries(t *testing.T) {
	meta := fmt.Sprintf(`{"schema":%q}`, Schema)
	bundleWith := func(extra int) []byte {
		list := []entry{{name: NameTrace, data: "t"}, {name: NameMeta, data: meta}}
		for i := range extra {
			list = append(list, entry{name: fmt.Sprint(i)})
		}
		return zipOf(t, list...)
	}
	for extra, ok := range map[int]bool{0: true, maxEntries - 2: true, maxEntries - 1: false} {
		b := bundleWith(extra)
		if _, err := New(strings.NewReader(string(b)), int64(len(b))); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("it has %d entries", maxEntries+1)) {
			t.Errorf("%d more entries: %v", extra, err)
		}
	}
	name := filepath.Join(t.TempDir(), "x.whylate")
	must.Do(t, os.WriteFile(name, bundleWith(0), 0o600))
	f := must.Have(Open(name))(t)
	must.Do(t, f.Close())
	check.Error(t, f.Close(), "a closed file is closed again")
	for _, bad := range []string{filepath.Dir(name), name + "none"} {
		if _, err := Open(bad); err == nil {
			t.Errorf("%s is a recording", bad)
		}
	}
}

// TestServiceAttributes: the recorder's attributes override those that the service reported.
func TestServiceAttributes(t *testing.T) {
	recorder, service := map[string]string{"a": "recorder"}, map[string]string{"a": "service"}
	for _, c := range []struct {
		m    Meta
		want string
	}{{Meta{}, ""}, {Meta{Service: recorder}, "recorder"}, {Meta{Flight: &Flight{Service: service}}, "service"}, {Meta{Service: recorder, Flight: &Flight{Service: service}}, "recorder"}, {Meta{Flight: &Flight{}}, ""}} {
		check.Equal(t, c.m.ServiceAttributes()["a"], c.want, "%+v", c.m)
	}
}

// TestStreams: the stream of host samples has the same bytes as HostSamples; a recording without
// samples has no stream; an unknown method of compression is an error.
func TestStreams(t *testing.T) {
	meta := fmt.Sprintf(`{"schema":%q}`, Schema)
	open := func(entries ...entry) *Bundle {
		b := zipOf(t, append([]entry{{name: NameTrace, data: "t"}, {name: NameMeta, data: meta}}, entries...)...)
		return must.Have(New(strings.NewReader(string(b)), int64(len(b))))(t)
	}
	with := open(entry{name: NameHost, data: "a\nb\n"})
	r := must.Have(with.HostStream())(t)
	streamed := must.Have(io.ReadAll(r))(t)
	if whole := must.Have(with.HostSamples())(t); string(streamed) != "a\nb\n" || string(whole) != string(streamed) {
		t.Errorf("%q and %q", whole, streamed)
	}
	must.Do(t, r.Close())
	if r, err := open().HostStream(); !errors.Is(err, fs.ErrNotExist) || r != nil {
		t.Errorf("without samples: %v", err)
	}
	for n, ok := range map[int]bool{5: true, 6: false} {
		l := &limitedEntry{io.NopCloser(strings.NewReader(strings.Repeat("x", n))), "x", 5, 5}
		if got, err := io.ReadAll(l); (err == nil) != ok || ok && len(got) != n {
			t.Errorf("%d bytes of at most 5: %d, %v", n, len(got), err)
		}
	}
	for name, read := range map[string]func(*Bundle) ([]byte, error){NameCPU: (*Bundle).CPUProfile, NameAllocs: (*Bundle).AllocsProfile, NameHost: (*Bundle).HostSamples} {
		if got := must.Have(read(open(entry{name: name, data: name})))(t); string(got) != name {
			t.Errorf("%s holds %q", name, got)
		}
	}
}
