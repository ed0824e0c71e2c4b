package bundle

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestServices: the recordings of several services come back from their file, which is no recording of one service.
func TestServices(t *testing.T) {
	recording := func(name string) []byte {
		var b bytes.Buffer
		w := must.Have(NewWriter(&b, time.Now()))(t)
		fmt.Fprintf(w, "the trace of %s", name)
		must.Do(t, w.Close(Meta{URL: "http://" + name}))
		return b.Bytes()
	}
	var b bytes.Buffer
	must.Do(t, WriteServices(&b, Services{Services: []Member{{Name: "a"}, {Name: "b.2"}}, Warnings: []Warning{{"service", "c"}}}, func(name string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(recording(name))), nil
	}))
	file := bytes.NewReader(b.Bytes())
	if _, err := New(file, file.Size()); !errors.Is(err, ErrServices) || !errors.Is(err, ErrNotBundle) {
		t.Errorf("reading it as one recording: %v", err)
	}
	s := must.Have(ReadServices(file, file.Size()))(t)
	r, size := s.Recording("b.2")
	member := must.Have(New(r, size))(t)
	trace, _, err := member.Trace()
	must.Do(t, err)
	if text := must.Have(io.ReadAll(trace))(t); string(text) != "the trace of b.2" || member.Meta().URL != "http://b.2" || s.Warnings[0].Text != "c" {
		t.Errorf("%q, %+v, %+v", text, member.Meta(), s.Warnings)
	}
	if r, _ := s.Recording("c"); r != nil {
		t.Error("there is a recording of c")
	}
}

// TestDamagedServices: a file whose description does not fit its entries is refused.
func TestDamagedServices(t *testing.T) {
	for says, c := range map[string]struct {
		services Services
		method   uint16
	}{
		"use a newer":  {Services{Schema: "whylate.services/v9"}, zip.Store},
		"no service":   {Services{Schema: ServicesSchema}, zip.Store},
		"another":      {Services{Schema: ServicesSchema, Services: []Member{{"a", "a.whylate"}, {"a", "a.whylate"}}}, zip.Store},
		`named "../a"`: {Services{Schema: ServicesSchema, Services: []Member{{"../a", "a.whylate"}}}, zip.Store},
		"unpacked":     {Services{Schema: ServicesSchema, Services: []Member{{"a", "a.whylate"}}}, zip.Deflate},
		"recording of": {Services{Schema: ServicesSchema, Services: []Member{{"a", "b.whylate"}}}, zip.Store},
		"more than":    {Services{Schema: ServicesSchema, Services: make([]Member, MaxServices+1)}, zip.Store},
	} {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		w := must.Have(z.CreateHeader(&zip.FileHeader{Name: "a.whylate", Method: c.method}))(t)
		io.WriteString(w, "x")
		must.Have(must.Have(z.Create(NameServices))(t).Write(must.Have(json.Marshal(c.services))(t)))(t)
		must.Do(t, z.Close())
		if _, err := ReadServices(bytes.NewReader(b.Bytes()), int64(b.Len())); !errors.Is(err, ErrNotBundle) || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
}
