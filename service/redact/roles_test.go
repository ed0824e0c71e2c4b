package redact

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/internal/tracebatch"
)

var update = flag.Bool("update", false, "write the golden files")

// TestRoles compares each form of text in each role, and in several roles, with a golden file, while one kind of text is
// hidden.
func TestRoles(t *testing.T) {
	var b bytes.Buffer
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	names := []string{"func", "reason", "file", "task", "key", "message"}
	forms := []string{"word", hostStart, hostSample, markSpan, markBegin + "http GET /a", markBegin + "http", markEnd + "http 2xx GET /a", markEnd + "http 2xx", markEnd + "word", parent, `{"kind":"sample"}`, `{"kind":"other"}`, "/home/ann/shop/x.go"}
	for _, o := range []Options{{Logs: Drop}, {Tasks: Drop}, {Routes: Drop}, {Parents: Drop}, {Files: Drop}, {Files: Trim}, {Logs: Hash, Parents: Hash, Routes: Hash}} {
		o.Key = []byte("key")
		fmt.Fprintf(&b, "Logs %d, Tasks %d, Routes %d, Parents %d, Files %d:\n", o.Logs, o.Tasks, o.Routes, o.Parents, o.Files)
		for roles := range role(1 << len(names)) {
			var combination []string
			if roles&(asFunc|asReason) != 0 && roles != asFunc && roles != asReason {
				continue // as either alone
			}
			for i, n := range names {
				if roles&(1<<i) != 0 {
					combination = append(combination, n)
				}
			}
			keys := []string{"word"}
			if roles&asMessage != 0 {
				keys = []string{"word", hostStart, hostSample, markSpan, markBegin + "http GET /a"}
			}
			for _, key := range keys {
				var redactedText []string
				for _, form := range forms {
					x := newTexts(&o)
					x.byID[1], x.byID[2], x.byID[3] = form, "shop.example.F", key
					x.uses[1] = use{role: roles, fn: 2, key: 3}
					got := x.redacted(1, form)
					switch {
					case got == form:
						got = "="
					case got == "":
						got = "-"
					case len(combination) > 1:
						got = "~"
					}
					redactedText = append(redactedText, got)
				}
				fmt.Fprintf(&b, "%s under %q: %s\n", strings.Join(combination, "+"), strings.TrimPrefix(key, "whylate."), strings.Join(redactedText, "|"))
			}
		}
	}
	must.Golden(t, *update, "testdata/roles.txt", b.Bytes())
}

// TestLearn tests the uses of texts in batches, complete and cut at any byte: damage is an error, never a panic.
func TestLearn(t *testing.T) {
	n := func(v ...uint64) (b []byte) {
		for _, x := range v {
			b = binary.AppendUvarint(b, x)
		}
		return b
	}
	cat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	stacks := cat([]byte{evStacks, evStack}, n(300, 2, 0x400000, 7, 8, 12, 0x500000, 9, 8, 13), []byte{evStack}, n(301, 1, 1, 10, 11, 1))
	texts := cat([]byte{evStrings, evString}, n(7, 3), []byte("abc"), []byte{evString}, n(8, 0), []byte{evString}, n(200, 1), []byte("d"))
	events := cat([]byte{evGoStop}, n(1, 20, 0), []byte{evGoBlock}, n(1, 21, 0), []byte{evSTWBegin}, n(1, 22, 0), []byte{evGoLabel}, n(1, 23), []byte{evUserTaskBegin}, n(1, 5, 0, 24, 0),
		[]byte{evUserRegionBegin}, n(1, 5, 25, 0), []byte{evUserRegionEnd}, n(1, 5, 26, 0), []byte{evUserLog}, n(1, 5, 27, 28, 0))
	o := &Options{}
	learn := func(typ byte, data []byte) (*texts0, error) {
		x := newTexts(o)
		err := x.readUses(&tracebatch.Batch{Type: typ, Data: data})
		return &texts0{x.uses, x.byID}, err
	}
	got, err := learn(tracebatch.Events, stacks)
	if want := map[uint64]use{7: {role: asFunc}, 8: {role: asFile, fn: 7}, 9: {role: asFunc}, 10: {role: asFunc}, 11: {role: asFile, fn: 10}}; err != nil || fmt.Sprint(got.uses) != fmt.Sprint(want) {
		t.Errorf("%v, %v, want %v", got.uses, err, want)
	}
	got, err = learn(tracebatch.Events, texts)
	check.True(t, err == nil && fmt.Sprint(got.text) == "map[7:abc 8: 200:d]", "%v, %v", got.text, err)
	got, err = learn(tracebatch.Events, events)
	want := map[uint64]use{20: {role: asReason}, 21: {role: asReason}, 22: {role: asReason}, 23: {role: asReason}, 24: {role: asTask}, 25: {role: asTask}, 26: {role: asTask}, 27: {role: asKey}, 28: {role: asMessage, key: 27}}
	check.True(t, err == nil && fmt.Sprint(got.uses) == fmt.Sprint(want), "%v, %v, want %v", got.uses, err, want)
	for name, data := range map[string][]byte{"stacks": stacks, "strings": texts} {
		wholes := 0
		for cut := 1; cut < len(data); cut++ {
			if _, err := learn(tracebatch.Events, data[:cut]); err == nil {
				wholes++
			} else if err != errDamaged {
				t.Errorf("%s cut at %d: %v", name, cut, err)
			}
		}
		if want := map[string]int{"stacks": 2, "strings": 3}[name]; wholes != want { // behind each of its parts but the last, and before the first
			t.Errorf("%s: %d cuts are no damage, want %d", name, wholes, want)
		}
		if _, err := learn(tracebatch.Events, append(bytes.Clone(data), 99)); err != errDamaged {
			t.Errorf("%s with something else behind: %v", name, err)
		}
	}
	for cut := range events {
		if _, err := learn(tracebatch.Events, events[:cut]); err != nil {
			t.Errorf("events cut at %d: %v", cut, err)
		}
	}
	for name, c := range map[string]struct {
		typ  byte
		data []byte
	}{"experiments": {tracebatch.Experimental, texts}, "none": {tracebatch.Events, nil}, "samples": {tracebatch.Events, cat([]byte{evCPUSamples}, events)}, "the clock": {tracebatch.Events, cat([]byte{evFrequency}, events)}, "a sync": {tracebatch.Events, cat([]byte{evSync}, events)}, "an unknown event": {tracebatch.Events, cat([]byte{255}, events)}} {
		if got, err := learn(c.typ, c.data); err != nil || len(got.uses)+len(got.text) > 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

type texts0 struct {
	uses map[uint64]use
	text map[uint64]string
}

// TestRewrite tests that longer texts lead to several batches within the format's bound, and that a text is cut to the maximum.
func TestRewrite(t *testing.T) {
	o := &Options{Logs: Hash, Key: []byte("k")}
	x := newTexts(o)
	data := []byte{evStrings}
	const count = 9000
	for id := range uint64(count) {
		x.uses[id] = use{role: asKey}
		data = append(binary.AppendUvarint(binary.AppendUvarint(append(data, evString), id), 1), 'a'+byte(id%20))
	}
	long := strings.Repeat("x", maxText+1)
	x.uses[count] = use{role: asFunc}
	data = append(binary.AppendUvarint(binary.AppendUvarint(append(data, evString), count), uint64(len(long))), long...)
	head := []byte{tracebatch.Events, 1, 2, 3}
	out := must.Have(x.rewrite(&tracebatch.Batch{Type: tracebatch.Events, Head: head, Data: data}))(t)
	texts, batches := map[uint64]string{}, 0
	for len(out) > 0 {
		b := must.Have(tracebatch.Parse(out))(t)
		must.True(t, b.Len != 0 && bytes.Equal(b.Head, head) && len(b.Data) <= tracebatch.MaxData,
			"batch %d: %d bytes, head %v", batches, len(b.Data), b.Head)
		must.Do(t, x.forEachText(b.Data, func(id uint64, text []byte) error { texts[id] = string(text); return nil }))
		out, batches = out[b.Len:], batches+1
	}
	if batches != 3 || len(texts) != count+1 || texts[count] != long[:maxText] || texts[0] != o.hashedText("a") || texts[count-1] != o.hashedText(string('a'+byte((count-1)%20))) {
		t.Errorf("%d batches, %d texts, the first %q, the last of %d bytes", batches, len(texts), texts[0], len(texts[count]))
	}
	if _, err := x.rewrite(&tracebatch.Batch{Type: tracebatch.Events, Head: head, Data: data[:len(data)-1]}); err != errDamaged {
		t.Errorf("cut: %v", err)
	}
}

// TestParentForms tests that a text which differs from a traceparent in one character or its length is not one.
func TestParentForms(t *testing.T) {
	o := Options{Parents: Drop}
	const p = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for i := range p {
		for _, c := range "0f9a-g/:`A" {
			s := p[:i] + string(c) + p[i+1:]
			dash := i == 2 || i == 35 || i == 52
			want := dash == (c == '-') && (dash || c >= '0' && c <= '9' || c >= 'a' && c <= 'f')
			if out, ok := o.redactTraceparent(s); ok != want || out != "" {
				t.Errorf("%s: %q, %v", s, out, ok)
			}
		}
	}
	for _, s := range []string{p[1:], p + "0", p[:54]} {
		if _, ok := o.redactTraceparent(s); ok {
			t.Errorf("%s is a traceparent", s)
		}
	}
	if _, ok := o.redactTraceparent(""); !ok {
		t.Error("none at all is hidden as it is")
	}
	for _, mode := range []Mode{Keep, Hash} {
		o := Options{Parents: mode, Key: []byte("k")}
		if out, ok := o.redactTraceparent(p); !ok || len(out) != len(p) || (out == p) != (mode == Keep) {
			t.Errorf("mode %d: %q, %v", mode, out, ok)
		}
	}
}
