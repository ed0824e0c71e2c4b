package testprog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/must"
)

// FieldDir is where recordings of programs that nobody here wrote are kept, relative to the repository's root. The maker,
// lab/field, writes them; TestField in internal/acceptance judges them.
const FieldDir = Dir + "/field"

// A Field is the truth of a recording of a real program: NAME.json beside NAME.whylate.xz. Nothing in it but KnownWrong
// comes from what whylate says.
type FieldCase struct {
	Name        string `json:"-"`
	Program     string `json:"program"`
	Module      string `json:"module"` // path@version of what is looked at
	Description string `json:"about"`  // what is wrong with it, in a sentence
	Fault       string `json:"fault"`
	Go          string `json:"go"`
	Machine     string `json:"machine"`
	Date        string `json:"date"`
	Seconds     int    `json:"seconds"`
	Healthy     bool   `json:"healthy"`
	OtherLoad   string `json:"beside"` // what ran beside it on the machine
	// Story is the story and its arm of which this is a part, if it is of one: then Truth is what the story expects.
	Story string `json:"story,omitempty"`
	// Client is what the clients' own clocks measured while the trace was recorded.
	Client FieldClient `json:"client"`
	Truth  FieldTruth  `json:"truth"`
	// KnownWrong holds what is not said as it should be, by what it is about: what is said instead, and after "Why: " by hand why.
	KnownWrong map[string]string `json:"known_wrong,omitempty"`
}

// A FieldClient sums up requests that were answered within the trace.
type FieldClient struct {
	Kind     string        `json:"kind"` // what a request is to the client
	Requests int           `json:"requests"`
	Errors   int           `json:"errors"`
	P50      time.Duration `json:"p50_ns"`
	P90      time.Duration `json:"p90_ns"`
	P99      time.Duration `json:"p99_ns"`
	Max      time.Duration `json:"max_ns"`
}

// A FieldTruth is what must be said. Group, Site, Own and Cause are regular expressions; an empty one is not judged.
type FieldTruth struct {
	Group string `json:"group"` // of the name of the group that is these requests
	// Cause is the first cause of its slow requests, Site the place where they wait or work ("func file:line"), Own the
	// place in the program's own code that a reader can change.
	Cause   string `json:"cause"`
	Site    string `json:"site"`
	OwnSite string `json:"own"`
	// Code is the rule of the first finding.
	Code string `json:"code"`
	// Of an arm of a story the first finding is the first that is louder than info; the busy machine, on which clients and servers run
	// beside it, counts where there is no other. Finding is its place, Only says that nothing else may be loud.
	Finding    string `json:"finding,omitempty"`
	IsOnlyLoud bool   `json:"only,omitempty"`
	// AllowedTexts are true things that may be said beside what must be said: each a regular expression for the beginning of
	// "CODE place < line of the program's own" of a loud finding, or of "sentence CAUSE place < line".
	AllowedTexts []string `json:"may_say,omitempty"`
	// ForbiddenText is what no sentence of the verdict about such a group and no loud finding, with its advice, may contain without a
	// hedge: a regular expression.
	ForbiddenText string `json:"must_not,omitempty"`
	// RequiredText is what the verdict or a finding with its evidence and advice must contain: a regular expression. Loud says that the
	// first finding must be of severity medium or high.
	RequiredText string `json:"must_say,omitempty"`
	Loud         bool   `json:"loud,omitempty"`
	// MinP50 is what no change can bring the group's median below: a loud finding that promises less is false. 0 is not judged.
	MinP50 time.Duration `json:"least_p50_ns,omitempty"`
	// The group's count and percentiles are at most so far from the clients', as a part of theirs. 0 is not judged, and
	// SkipReason says why.
	CountWithin float64 `json:"count_within"`
	P50Within   float64 `json:"p50_within"`
	P99Within   float64 `json:"p99_within"`
	SkipReason  string  `json:"why_not,omitempty"`
}

// ReadField reads the truth of the recording of that name, from the directory given.
func ReadField(dir, name string) (*FieldCase, error) {
	data, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if err != nil {
		return nil, err
	}
	f := &FieldCase{Name: name}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("reading the truth of %s: %w", name, err)
	}
	return f, nil
}

// Write writes the truth into a directory.
func (f *FieldCase) Write(dir string) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(f); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, f.Name+".json"), []byte(b.String()), 0o666)
}

// WriteRecording keeps a recording in a directory, packed.
func (f *FieldCase) WriteRecording(dir string, data []byte) error {
	packed, err := Pack(data)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, f.Name+fieldExt+Packed), packed, 0o666)
}

// FieldRecording returns the path of the recording of that name, unpacked, from the directory given.
func FieldRecording(t testing.TB, dir, name string) string {
	t.Helper()
	file := must.Have(unpackedPath(filepath.Join(dir, name+fieldExt)))(t)
	return file
}

// Corpus returns the directory of the recordings that are kept, and their names. It skips the test where the tool's module
// is alone.
func Corpus(t testing.TB) (dir string, names []string) {
	t.Helper()
	dir = filepath.Join(recordingsDir(t), "field")
	names, err := FieldNames(dir)
	if err != nil || len(names) == 0 {
		t.Fatalf("there are no recordings in %s: %v", dir, err)
	}
	return dir, names
}

const fieldExt = ".whylate"

// FieldNames returns the names of the recordings in a directory, in order. There are none if there is no such directory.
func FieldNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			names = append(names, name)
		}
	}
	return names, nil
}
