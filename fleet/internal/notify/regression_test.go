package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestSlowerVersion: a version that is slower than the previous one causes one event, once it has enough recordings.
func TestSlowerVersion(t *testing.T) {
	r := newReceiver(t)
	n := newNotifier(t, r.URL)
	comparisons := 0
	ms := func(i int64) *int64 { i *= 1e6; return &i }
	slower := compare.Change{Old: ms(10), New: ms(20), Delta: ms(10), Low: ms(8), High: ms(12), Evidence: true}
	change := compare.Change{Old: ms(20), New: ms(10), Delta: ms(-10), Low: ms(-12), High: ms(-8), Evidence: true}
	n.Compare = func(_ context.Context, service, _, old, new string) (*compare.Diff, error) {
		if comparisons++; service != "shop" || old != "v1" || new != "v2" {
			t.Error(service, old, new)
		}
		return &compare.Diff{Groups: []compare.Group{{Name: "GET /", P50: change, P99: change}, {Name: "GET /cart", P50: change, P99: slower, Causes: []compare.Row{{Cause: "cpu", DeltaNS: -1}, {Cause: "lock", DeltaNS: 8e6, NewSite: &report.Site{Func: "main.f", File: "/src/main.go", Line: 7}}, {Cause: "gc", DeltaNS: 1}}}}}, nil
	}
	clock := time.Now().Add(-time.Hour)
	if got := n.checkAndDeliver(t, r, clock); len(got) > 0 {
		t.Error(got)
	}
	for i, want := range []string{"", "", "", "", "", "version.slower  v2", "", "", "", "", "", ""} {
		clock = clock.Add(time.Second)
		n.addRecording(t, clock, []string{"v1", "v2"}[min(i/3, 1)], "")
		check.Equal(t, strings.Join(n.checkAndDeliver(t, r, clock), ", "), want, "recording %d", i)
		if i == 5 { // from here on no comparison is expected
			slower = change
		}
	}
	check.True(t, comparisons == 1, "compared %d times", comparisons)
	var e struct{ Data Regression }
	if err := json.Unmarshal(r.bodies[0], &e); err != nil || len(e.Data.Groups) != 1 || e.Data.Groups[0].Cause != "lock" || e.Data.Groups[0].Site != "main.f (/src/main.go:7)" || e.Data.PreviousVersion != "v1" ||
		e.Data.URL != "https://fleet.example.com/compare?new=v2&old=v1&service=shop" {
		t.Errorf("%v %+v", err, e)
	}
}

// TestComparedVersions: versions are compared when both have enough recordings, and again when their number has doubled. A message
// names at most twenty groups. Versions from before the first check are not compared.
func TestComparedVersions(t *testing.T) {
	r := newReceiver(t)
	low := int64(1)
	for situation, c := range map[string]struct {
		before, after int // recordings of v2 at the first check, and then
		err           error
		change        compare.Change
		want          string
	}{
		"slower":               {0, 3, nil, compare.Change{Evidence: true, Low: &low}, "compared at 3, version.slower v2 of 20 groups"},
		"known at first":       {3, 12, nil, compare.Change{Evidence: true, Low: &low}, ""},
		"without evidence":     {0, 7, nil, compare.Change{Low: &low}, "compared at 3, compared at 6"},
		"without an interval":  {0, 3, nil, compare.Change{Evidence: true}, "compared at 3"},
		"reports were removed": {0, 12, errors.New("gone"), compare.Change{}, "compared at 3, compared at 6, compared at 12"},
	} {
		n, clock, recordings := newNotifier(t, r.URL), time.Now().Add(-time.Hour), 0
		var got []string
		n.Compare = func(context.Context, string, string, string, string) (*compare.Diff, error) {
			got = append(got, fmt.Sprint("compared at ", recordings))
			return &compare.Diff{Groups: slices.Repeat([]compare.Group{{P50: c.change}}, 21)}, c.err
		}
		add := func(version string) {
			clock = clock.Add(time.Second)
			n.addRecording(t, clock, version, "")
		}
		for range 3 {
			add("v1")
		}
		for recordings < c.after {
			if recordings == c.before {
				n.checkAndDeliver(t, r, clock)
			}
			add("v2")
			if recordings++; recordings > c.before {
				for _, event := range n.checkAndDeliver(t, r, clock) {
					var e struct{ Data Regression }
					must.Do(t, json.Unmarshal(r.bodies[len(r.bodies)-1], &e))
					got = append(got, fmt.Sprint(strings.Join(strings.Fields(event), " "), " of ", len(e.Data.Groups), " groups"))
				}
			}
		}
		check.Equal(t, strings.Join(got, ", "), c.want, "%s", situation)
	}
}

// TestPreviousVersion: only the newest version of a service and environment has a previous one.
func TestPreviousVersion(t *testing.T) {
	list := []store.Version{{Service: "a", Version: "2"}, {Service: "a", Version: "1"}, {Service: "a", Version: "0"}, {Service: "a", Environment: "live", Version: "3"}, {Service: "b", Version: "2"}, {Service: "b", Version: "1"}}
	for i, want := range []int{1, -1, -1, -1, 5, -1} {
		got := previousVersion(list, i)
		check.True(t, (got == nil) == (want < 0) && (got == nil || got == &list[want]), "%d: %+v", i, got)
	}
}
