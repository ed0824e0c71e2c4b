package testprog

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// TestRecordings reads every recording, and finds no recording that no test uses.
func TestRecordings(t *testing.T) {
	knownNames := map[string]bool{}
	for _, p := range Programs() {
		knownNames[p.Name] = true
		trace, metadata := readRecording(t, "programs", p.Name)
		if !bytes.HasPrefix(trace, []byte("go 1.")) || metadata.Program != p.Package() || !reflect.DeepEqual(metadata.Args, p.Args) || metadata.Facts == nil || metadata.Facts.Bytes != int64(len(trace)) {
			t.Errorf("%s: %d bytes, %+v", p.Name, len(trace), metadata)
		}
	}
	for _, r := range Runs() {
		knownNames[r.Name] = true
		if rec := Service(t, r.Name); r.Client != (rec.Client != nil) {
			t.Errorf("%s: the client's measurements are stored: %v", r.Name, rec.Client != nil)
		}
	}
	services := 0
	for _, name := range Services(t) {
		trace, metadata := readRecording(t, "truth", name)
		if run := RunFor(name); !knownNames[name] {
			services++
			if knownNames[name] = true; !reflect.DeepEqual(metadata.Args, append([]string{"run"}, run.Args...)) {
				t.Errorf("%s was recorded by %q", name, metadata.Args)
			}
		}
		if !bytes.HasPrefix(trace, []byte("go 1.")) || metadata.Program != "lab/truth" || metadata.Go == "" || metadata.Date == "" || metadata.Machine == "" {
			t.Errorf("%s: %d bytes, %+v", name, len(trace), metadata)
		}
	}
	check.True(t, services >= 80, "%d services", services)
	dir, names := Corpus(t)
	for _, name := range names {
		f := must.Have(ReadField(dir, name))(t)
		if b, err := os.ReadFile(FieldRecording(t, dir, name)); err != nil || !bundle.HasMagic(b) {
			t.Errorf("%s is no recording: %v", name, err)
		}
		if knownNames[name] = true; f.Program == "" || !strings.Contains(f.Module, "@") || f.Description == "" || f.Healthy != (f.Fault == "") || f.Go == "" || f.Date == "" || f.Machine == "" || f.Client.Kind == "" || f.Client.Requests == 0 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	knownNames["server"], knownNames["gateway"], knownNames["peers"], knownNames["page"], knownNames["python"] = true, true, true, true, true
	for name, s := range Settings(t) {
		if knownNames[name] = true; s.Group == "" || s.Client.Count == 0 || len(s.Changes) == 0 {
			t.Errorf("%s: %+v", name, s.Changes)
		}
	}
	size := int64(0)
	files := must.Have(filepath.Glob(filepath.Join(RecordingsDir(t), "*", "*")))(t)
	for _, f := range files {
		if name, _, _ := strings.Cut(filepath.Base(f), "."); !knownNames[name] && !slices.Contains([]string{"capacity", "cases", "shop", "strangers"}, filepath.Base(filepath.Dir(f))) {
			t.Errorf("%s is of no program that tests ask for", f)
		}
		info := must.Have(os.Stat(f))(t)
		size += info.Size()
	}
	check.True(t, size <= 15<<20, "the recordings take %d bytes", size)
}

func TestWithService(t *testing.T) {
	truth := `{"share":0.5,"service":{"name":"x","truth":{"cause":"cpu","site":{"func":"f","line":7},"or_sites":[{"func":"g","line":8},{"func":"h","line":9}]}}}`
	updated := `{"name":"x","truth":{"cause":"lock","site":{"func":"f","line":70},"or_sites":[{"func":"g","line":80},{"func":"i","line":90}]}}`
	got := must.Have(WithService([]byte(truth), []byte(updated)))(t)
	var a, b any
	must.Do(t, errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(
		`{"share":0.5,"service":{"name":"x","truth":{"cause":"lock","site":{"func":"f","line":7},"or_sites":[{"func":"g","line":8},{"func":"i","line":90}]}}}`), &b)))
	check.True(t, reflect.DeepEqual(a, b), "got %s", got)
}

func TestBuildOnce(t *testing.T) {
	testfull.Need(t, "to build a program twice")
	first := Build(t, "lab/traceprog")
	before := must.Have(os.Stat(first))(t)
	second, err := build("lab/traceprog") // as another test process would
	must.Do(t, err)
	after := must.Have(os.Stat(second))(t)
	check.True(t, first == second && os.SameFile(before, after), "the same program built twice is stored as %s and %s", first, second)
}

func TestBuildFails(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the go tool")
	}
	if path, err := build("lab/nosuchprogram"); err == nil {
		t.Errorf("a program that does not exist was built as %s", path)
	}
}
