package testprog

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

// A Setting is the recording of a service of lab/truth, with the client's measurements of further runs
// in which one setting was changed.
type Setting struct {
	Trace []byte `json:"-"`
	// Group is the function of the slow requests.
	Group string `json:"group"`
	// Tail means that only the slowest requests are comparable, because the setting changes which other
	// requests have their handler in a stack.
	Tail    bool    `json:"tail"`
	Client  Figures `json:"client"`
	Changes []struct {
		Question string  `json:"asked"` // the change, as an argument of --what-if
		Client   Figures `json:"client"`
	} `json:"then"`
}

// Figures are a client's measurements of the slow requests of a run.
type Figures struct {
	Count int   `json:"count"`
	P50NS int64 `json:"p50_ns"`
	P99NS int64 `json:"p99_ns"`
}

// Settings returns the recordings of services with changed settings, by name.
func Settings(t testing.TB) map[string]*Setting {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(RecordingsDir(t), "settings", "*.json"))
	must.True(t, err == nil && len(files) != 0, "no recordings of settings: %v", err)
	out := map[string]*Setting{}
	for _, f := range files {
		b := must.Have(os.ReadFile(f))(t)
		s := new(Setting)
		must.Do(t, json.Unmarshal(b, s), f)
		s.Trace = readPacked(t, strings.TrimSuffix(f, ".json")+".trace", false)
		out[strings.TrimSuffix(filepath.Base(f), ".json")] = s
	}
	return out
}

// A Side is one of two processes that were recorded at the same time, with its measurement of its
// calls or answers.
type Side struct {
	Trace []byte
	Count int
	NS    int64
}

// Sides returns the recordings of a server and of the gateway that calls it, from lab/peers.
func Sides(t testing.TB) (server, gateway Side) {
	t.Helper()
	dir := filepath.Join(RecordingsDir(t), "peers")
	b := must.Have(os.ReadFile(filepath.Join(dir, "peers.json")))(t)
	var measured struct {
		Sides map[string]struct {
			Count int   `json:"count"`
			NS    int64 `json:"ns"`
		} `json:"sides"`
	}
	must.Do(t, json.Unmarshal(b, &measured))
	side := func(name string) Side {
		s := measured.Sides[name]
		return Side{Trace: readPacked(t, filepath.Join(dir, name+".trace"), false), Count: s.Count, NS: s.NS}
	}
	return side("server"), side("gateway")
}
