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

// FieldDir is the directory of the recordings of third-party programs, relative to the repository's
// root. lab/field writes them, and TestField in internal/acceptance judges the reports on them.
const FieldDir = Dir + "/field"

// A FieldCase is the truth about a recording of a third-party program: NAME.json next to
// NAME.whylate.xz. Only KnownWrong depends on whylate's output.
type FieldCase struct {
	Name        string `json:"-"`
	Program     string `json:"program"`
	Module      string `json:"module"` // path@version of the examined module
	Description string `json:"about"`  // the fault, in one sentence
	Fault       string `json:"fault"`
	Go          string `json:"go"`
	Machine     string `json:"machine"`
	Date        string `json:"date"`
	Seconds     int    `json:"seconds"`
	Healthy     bool   `json:"healthy"`
	OtherLoad   string `json:"beside"` // other load on the machine
	// Story names the story and its arm if the recording is part of one; then Truth has the story's
	// expectation.
	Story string `json:"story,omitempty"`
	// Client has the measurements by the clients' clocks during the trace.
	Client FieldClient `json:"client"`
	Truth  FieldTruth  `json:"truth"`
	// KnownWrong has the known deviations of the report, by subject: the present output and, after
	// "Why: ", a reason written by hand.
	KnownWrong map[string]string `json:"known_wrong,omitempty"`
}

// A FieldClient sums up the requests that were answered during the trace.
type FieldClient struct {
	Kind     string        `json:"kind"` // kind of request, for the client
	Requests int           `json:"requests"`
	Errors   int           `json:"errors"`
	P50      time.Duration `json:"p50_ns"`
	P90      time.Duration `json:"p90_ns"`
	P99      time.Duration `json:"p99_ns"`
	Max      time.Duration `json:"max_ns"`
}

// A FieldTruth is what a report must contain. Group, Site, OwnSite and Cause are regular expressions;
// an empty one is not checked.
type FieldTruth struct {
	Group string `json:"group"` // name of the group with these requests
	// Cause is the first cause of the group's slow requests, Site the site where they wait or work
	// ("func file:line"), OwnSite the site in the program's own code that its developer can change.
	Cause   string `json:"cause"`
	Site    string `json:"site"`
	OwnSite string `json:"own"`
	// Code is the rule of the first finding.
	Code string `json:"code"`
	// For an arm of a story, the first finding is the first one above severity info. The finding of a
	// busy machine, which runs clients and servers, too, counts only if there is no other. Finding is
	// its site, and IsOnlyLoud means that no other finding may be loud.
	Finding    string `json:"finding,omitempty"`
	IsOnlyLoud bool   `json:"only,omitempty"`
	// AllowedTexts are true statements that may occur in addition: each a regular expression for the
	// start of "CODE place < line of the program's own" of a loud finding, or of "sentence CAUSE place
	// < line".
	AllowedTexts []string `json:"may_say,omitempty"`
	// ForbiddenText is a regular expression that no sentence of the group's verdict and no loud
	// finding, with its advice, may match without a hedge.
	ForbiddenText string `json:"must_not,omitempty"`
	// RequiredText is a regular expression that the verdict, or a finding with its evidence and advice,
	// must match. Loud means that the first finding must have severity medium or high.
	RequiredText string `json:"must_say,omitempty"`
	Loud         bool   `json:"loud,omitempty"`
	// MinP50 is a lower bound of the group's median after any change. A loud finding that promises a
	// lower one is false. 0 is not checked.
	MinP50 time.Duration `json:"least_p50_ns,omitempty"`
	// The largest allowed deviations of the group's count and percentiles from the clients', as a
	// fraction of the clients'. 0 is not checked, for the reason SkipReason.
	CountWithin float64 `json:"count_within"`
	P50Within   float64 `json:"p50_within"`
	P99Within   float64 `json:"p99_within"`
	SkipReason  string  `json:"why_not,omitempty"`
}

// ReadField reads the truth about the recording of that name in a directory.
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

// WriteRecording stores a packed recording in a directory.
func (f *FieldCase) WriteRecording(dir string, data []byte) error {
	packed, err := Pack(data)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, f.Name+fieldExt+Packed), packed, 0o666)
}

// FieldRecording returns the path of the unpacked recording of that name in a directory.
func FieldRecording(t testing.TB, dir, name string) string {
	t.Helper()
	return must.Have(unpackedPath(filepath.Join(dir, name+fieldExt)))(t)
}

// Corpus returns the directory of the recordings of third-party programs, and their names. It skips
// the test if only the tool's module is present.
func Corpus(t testing.TB) (dir string, names []string) {
	t.Helper()
	dir = filepath.Join(RecordingsDir(t), "field")
	names, err := FieldNames(dir)
	must.True(t, err == nil && len(names) != 0, "there are no recordings in %s: %v", dir, err)
	return dir, names
}

const fieldExt = ".whylate"

// FieldNames returns the sorted names of the recordings in a directory, none if the directory does not
// exist.
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
