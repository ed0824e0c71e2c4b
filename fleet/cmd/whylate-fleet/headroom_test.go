package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestHeadroom: recordings that services send to a fleet rank these services by the load that they will take. Measured were 3.1 times the recorded load
// for the semaphore and 2.8 times for the lock; see the acceptance test of capacity.
func TestHeadroom(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir := t.TempDir()
	st := must.Have((&config{dir: dir}).openStore(t.Context(), false))(t)
	defer st.Close()
	traces := map[string][]byte{"few": recordTrace(t, 5)}
	for _, name := range []string{"mix", "semaphore"} {
		traces[name] = must.Have(os.ReadFile(testprog.Recording(t, filepath.Join("capacity", name+".trace"))))(t)
	}
	url, c := startFleet(t, dir)
	for service, trace := range traces {
		must.Do(t, st.AddToken(t.Context(), "token-"+service, store.SendScope, service, time.Now().Add(time.Hour)))
		_, status := postAs(url, "token-"+service, newRecording(t, trace, service, "pod", 0))
		must.Equal(t, status, http.StatusAccepted, "%s", service)
	}
	for done := int64(0); done < int64(len(traces)); time.Sleep(50 * time.Millisecond) { // the time limit of the test ends the loop
		states := must.Have(st.CountByState(t.Context()))(t)
		must.Equal(t, states[store.Poison], int64(0), "recordings are poison")
		done = states[store.Done]
	}
	get := func(path string) []byte {
		res := must.Have(http.Get(url + path))(t)
		defer res.Body.Close()
		return must.Have(io.ReadAll(res.Body))(t)
	}
	const since = "?from=2020-01-01T00:00:00Z" // the recordings are old
	var versions []store.Version
	must.Do(t, json.Unmarshal(get("/v1/versions"+since), &versions))
	must.Equal(t, len(versions), len(traces), "versions")
	for _, v := range versions {
		switch h := v.Headroom; v.Service {
		case "few":
			check.True(t, h.Times == 0 && h.Reason == "too few requests (5) in a recording", "%+v", h)
		case "mix":
			check.True(t, h.Times > 2.2 && h.Times < 3.4 && h.Low < h.Times && h.High > h.Times && strings.HasPrefix(h.Limit, "lock main.") && strings.HasSuffix(h.Limit, " main.go:194"), "%+v", h)
		case "semaphore":
			check.True(t, h.Times > 2.5 && h.Times < 3.7 && strings.HasPrefix(h.Limit, "pool of 3 main.") && strings.HasSuffix(h.Limit, " main.go:78"), "%+v", h)
		}
	}
	page := strings.Join(strings.Fields(string(get("/"+since))), " ")
	last := 0
	for _, want := range []string{">mix</a>", "</span> <small>(", "lock main.", "main.go:194", ">semaphore</a>", "pool of 3", "main.go:78", ">few</a>", "not judged: too few requests (5)"} {
		i := strings.Index(page[last:], want)
		must.True(t, i >= 0, "the page lacks %q after %q", want, page[max(0, last-100):last])
		last += i
	}
	_ = c.Process.Kill()
	_ = c.Wait()
}
