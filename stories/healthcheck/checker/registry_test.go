package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

func in(t *testing.T, r *registry) (names []string) {
	t.Helper()
	w := httptest.NewRecorder()
	r.list(w, httptest.NewRequest("GET", "/targets", nil))
	var got []target
	must.Do(t, json.Unmarshal(w.Body.Bytes(), &got))
	for _, g := range got {
		names = append(names, g.Name)
	}
	return names
}

// TestRegistry: only consecutive failures remove a target, only consecutive good checks return it, and a removed target stays
// removed over a restart, also if a crash cut the last line of the journal.
func TestRegistry(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	r := must.Have(newRegistry([]string{"a:1", "b:1"}, 3, 2, journal, log))(t)
	for _, step := range []struct {
		good bool
		want string
	}{{false, "a:1 b:1"}, {false, "a:1 b:1"}, {true, "a:1 b:1"}, {false, "a:1 b:1"}, {false, "a:1 b:1"}, {false, "b:1"}, {true, "b:1"}, {false, "b:1"}, {true, "b:1"}, {true, "a:1 b:1"}, {false, "a:1 b:1"}, {false, "a:1 b:1"}, {false, "b:1"}} {
		r.checked(0, step.good)
		if got := strings.Join(in(t, r), " "); got != step.want {
			t.Fatalf("after a check %v: %q are in, want %q", step.good, got, step.want)
		}
	}
	// Not closed: killed, in the middle of a line.
	f, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0)
	must.Do(t, err)
	f.WriteString(`{"target":"b:1","in":fal`)
	f.Close()
	for range 2 { // a cut line does not damage the next one
		if r, err = newRegistry([]string{"a:1", "b:1"}, 3, 2, journal, log); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(in(t, r), " "); got != "b:1" {
			t.Fatalf("after a restart %q are in", got)
		}
		r.checked(0, true)
		r.checked(0, true)
		r.checked(0, false)
		r.checked(0, false)
		r.checked(0, false)
	}
}

// TestMetrics: the bound of a bucket is not below its values, and at most a quarter above.
func TestMetrics(t *testing.T) {
	for d := 4 * time.Nanosecond; d < time.Hour; d = d*13/11 + 1 {
		if u := upper(bucket(d)); u < d || u > d*5/4+1 {
			t.Errorf("%v is counted as at most %v", d, u)
		}
	}
	m := &metrics{}
	m.checked(time.Millisecond, false)
	m.checked(time.Second, true)
	w := httptest.NewRecorder()
	m.serve(w, nil)
	for _, want := range []string{"check_seconds_count 2\n", "check_failed_total 1\n", `le="+Inf"} 2` + "\n"} {
		check.True(t, strings.Contains(w.Body.String(), want), "no %q in\n%s", want, w.Body)
	}
}
