package notify

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/judge/compare"
)

// A Regression is the data of version.slower.
type Regression struct {
	Service         string  `json:"service"`
	Environment     string  `json:"environment"`
	Version         string  `json:"version"`
	PreviousVersion string  `json:"before"` // the version that Version replaces
	Groups          []Group `json:"groups"`
	URL             string  `json:"url"`
}

func versionKey(v, old *store.Version) string {
	return strings.Join([]string{"version", v.Service, v.Environment, v.Version, old.Version}, "\x00")
}

// previousVersion returns the version before versions[i] if versions[i] is the newest of its service and environment, nil
// otherwise.
func previousVersion(versions []store.Version, i int) *store.Version {
	isSameService := func(j int) bool {
		return j >= 0 && j < len(versions) && versions[j].Service == versions[i].Service && versions[j].Environment == versions[i].Environment
	}
	if isSameService(i-1) || !isSameService(i+1) {
		return nil
	}
	return &versions[i+1]
}

// compareVersion compares the newest version of a service with the previous one: first when both have enough recordings, then
// each time the number of recordings has doubled, until the version is found slower. It adds to newMarks and messages.
func (n *Notifier) compareVersion(ctx context.Context, now time.Time, firstCheck bool, version, previous *store.Version, savedMarks, newMarks map[string]store.Mark, messages *[]store.Message) {
	key := versionKey(version, previous)
	savedState := savedMarks[key].State
	if comparedRecordings, _ := strconv.ParseInt(savedState, 10, 64); version.Recordings < minRecordings || previous.Recordings < minRecordings || savedState == stateSlower || version.Recordings < 2*comparedRecordings {
		return
	}
	newMarks[key] = store.Mark{State: strconv.FormatInt(version.Recordings, 10), LastSeen: now}
	if firstCheck {
		newMarks[key] = store.Mark{State: stateSlower, LastSeen: now}
		return
	}
	diff, err := n.Compare(ctx, version.Service, version.Environment, previous.Version, version.Version)
	if err != nil { // most likely the reports were removed; the next comparison has more recordings
		n.Log.Warn("a version could not be compared", "service", version.Service, "version", version.Version, "before", previous.Version, "error", err)
		return
	}
	regression := Regression{Service: version.Service, Environment: version.Environment, Version: version.Version, PreviousVersion: previous.Version,
		URL: n.pageURL("/compare", "service", version.Service, "environment", version.Environment, "old", previous.Version, "new", version.Version)}
	for _, g := range diff.Populations() {
		if !isSlower(&g.P50) && !isSlower(&g.P99) {
			continue
		}
		row := Group{Group: g.Name, P50: g.P50, P99: g.P99}
		for j := range g.Causes {
			if c := &g.Causes[j]; c.DeltaNS > 0 {
				row.Cause = string(c.Cause)
				if s := c.Site(); s != nil {
					row.Site = fmt.Sprintf("%s (%s:%d)", s.Func, s.File, s.Line)
				}
				break
			}
		}
		if regression.Groups = append(regression.Groups, row); len(regression.Groups) == 20 {
			break
		}
	}
	if len(regression.Groups) > 0 {
		newMarks[key] = store.Mark{State: stateSlower, LastSeen: now}
		*messages = append(*messages, newMessage(Event{"version.slower", now, regression}, key))
	}
}

// isSlower reports whether there is evidence that a latency rose.
func isSlower(c *compare.Change) bool { return c.Evidence && c.Low != nil && *c.Low > 0 }
