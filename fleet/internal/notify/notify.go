// Package notify says by webhooks what is new: findings, findings that came back, and versions that are slower than the one before. It
// looks at what the store knows, and remembers there what it has said; so nothing is lost while it does not run, and no part that
// writes rows has to know of it.
package notify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/outgoing"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/judge/compare"
)

const (
	checkInterval = 30 * time.Second   // it looks
	lookback      = 7 * 24 * time.Hour // how far back: as the start page does
	minAbsence    = 24 * time.Hour     // a finding that was not seen for so long has come back
	minRecordings = 3                  // recordings of a version, to be compared
	maxUnsent     = 1000               // messages that may wait: what comes then is said when there is room
	pollInterval  = time.Second        // it asks for messages that are due
)

// A Notifier says what is new.
type Notifier struct {
	Store   *store.Store
	Log     *slog.Logger
	Metrics *metrics.Metrics
	// ReceiverURL is the address of the receiver, Secrets its keys: a message is signed with each, so one can take the other's place.
	ReceiverURL string
	Secrets     []Secret
	// PublicURL is the fleet's own address in links.
	PublicURL     string
	AllowedRanges outgoing.AllowedRanges
	// Compare compares two versions of a service.
	Compare func(ctx context.Context, service, environment, old, new string) (*compare.Diff, error)
}

// An Event is what a message says, in the form of https://www.standardwebhooks.com.
type Event struct {
	Type string    `json:"type"` // finding.new, finding.back or version.slower
	Time time.Time `json:"timestamp"`
	Data any       `json:"data"`
}

// A Finding is the data of finding.new and finding.back.
type Finding struct {
	store.Problem
	Version string `json:"version"` // the newest with it
	URL     string `json:"url"`
}

// A Regression is the data of version.slower.
type Regression struct {
	Service         string  `json:"service"`
	Environment     string  `json:"environment"`
	Version         string  `json:"version"`
	PreviousVersion string  `json:"before"` // the version that it replaces
	Groups          []Group `json:"groups"`
	URL             string  `json:"url"`
}

// A Group is a group of requests that is slower: for each percentile what it was, is, and the bounds of the difference.
type Group struct {
	Group string         `json:"group"`
	P50   compare.Change `json:"p50"`
	P99   compare.Change `json:"p99"`
	Cause string         `json:"cause"` // on which requests spend more than before
	Site  string         `json:"site"`
}

// Run looks and delivers until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	delivery, nextCheck := n.newSender(), time.Time{}
	for ctx.Err() == nil {
		now, delivered, err := time.Now(), false, error(nil)
		notifies := n.Store.IsNotifier()
		if notifies && !now.Before(nextCheck) {
			nextCheck = now.Add(checkInterval)
			if err := n.EnqueueEvents(ctx, now); err != nil && ctx.Err() == nil {
				n.Log.Error("looking for what webhooks have to say", "error", err)
			}
		}
		if notifies {
			delivered, err = delivery.deliverNext(ctx, now)
		}
		if err != nil && ctx.Err() == nil {
			n.Log.Error("webhooks", "error", err)
		}
		if delivered && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// A finding's state is that it is seen, or gone with its versions; a version's is of how many recordings it was judged.
const (
	stateSeen     = "seen"
	stateReplaced = "gone"
	stateSlower   = "slower"
)

// EnqueueEvents puts what is new into the outbox. What is there when it looks for the first time is nothing new.
func (n *Notifier) EnqueueEvents(ctx context.Context, now time.Time) error {
	if waiting, err := n.Store.CountUnsent(ctx); err != nil || waiting >= maxUnsent {
		return err
	}
	problems, versions, err := n.Store.Overview(ctx, store.Selection{From: now.Add(-lookback), To: now.Add(time.Minute)})
	if err != nil {
		return err
	}
	keys := []string{""}
	for _, p := range problems {
		keys = append(keys, findingKey(&p))
	}
	for i := range versions {
		if old := previousVersion(versions, i); old != nil {
			keys = append(keys, versionKey(&versions[i], old))
		}
	}
	savedMarks, err := n.Store.Marks(ctx, keys)
	if err != nil {
		return err
	}
	lastCheck, checkedBefore := savedMarks[""]
	newMarks := map[string]store.Mark{"": {State: stateSeen, LastSeen: now}}
	var messages []store.Message
	for _, p := range problems {
		key, version := findingKey(&p), p.Versions[len(p.Versions)-1]
		savedMark, hasMark := savedMarks[key]
		newMark := store.Mark{State: stateSeen, LastSeen: p.Last}
		eventType, occurrence := "", time.Time{}
		switch {
		case p.Replaced:
			newMark.State = stateReplaced
		case !checkedBefore:
		case !hasMark:
			eventType, occurrence = "finding.new", p.First
		// A finding that others than this look have seen meanwhile has not come back.
		case savedMark.State == stateReplaced, p.Last.Sub(savedMark.LastSeen) > minAbsence && now.Sub(lastCheck.LastSeen) < minAbsence:
			eventType, occurrence = "finding.back", savedMark.LastSeen
		}
		if hasMark && savedMark == newMark {
			continue
		}
		newMarks[key] = newMark
		if eventType != "" {
			page := n.pageURL("/service/"+url.PathEscape(p.Service), "environment", p.Environment)
			messages = append(messages, newMessage(Event{eventType, now, Finding{p, version, page}}, p.Problem, strconv.FormatInt(occurrence.UnixNano(), 10)))
		}
	}
	for i := range versions {
		if old := previousVersion(versions, i); old != nil {
			n.compareVersion(ctx, now, !checkedBefore, &versions[i], old, savedMarks, newMarks, &messages)
		}
	}
	return n.Store.SaveMarks(ctx, newMarks, messages)
}

// findingKey and version are the names by which it is kept what was said.
func findingKey(p *store.Problem) string { return "finding " + p.Problem }

func versionKey(v, old *store.Version) string {
	return strings.Join([]string{"version", v.Service, v.Environment, v.Version, old.Version}, "\x00")
}

// previousVersion is the version before versions[i], if that is the newest of its service and environment.
func previousVersion(versions []store.Version, i int) *store.Version {
	isSameService := func(j int) bool {
		return j >= 0 && j < len(versions) && versions[j].Service == versions[i].Service && versions[j].Environment == versions[i].Environment
	}
	if isSameService(i-1) || !isSameService(i+1) {
		return nil
	}
	return &versions[i+1]
}

// compareVersion compares the newest version of a service with the one before: when it has enough recordings, and each time that they have
// doubled, until it is known to be slower.
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
	if err != nil { // reports that are no longer kept, most likely: it is judged when there are more
		n.Log.Warn("a version could not be compared", "service", version.Service, "version", version.Version, "before", previous.Version, "error", err)
		return
	}
	regression := Regression{Service: version.Service, Environment: version.Environment, Version: version.Version, PreviousVersion: previous.Version,
		URL: n.pageURL("/compare", "service", version.Service, "environment", version.Environment, "old", previous.Version, "new", version.Version)}
	for i := range diff.Groups {
		g := &diff.Groups[i]
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

// newMessage makes a message of an event, whose id is that of what it says: said twice, it is one.
func newMessage(e Event, identity ...string) store.Message {
	sum := sha256.Sum256([]byte(e.Type + "\x00" + strings.Join(identity, "\x00")))
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // of texts and numbers
	}
	return store.Message{ID: "msg_" + hex.EncodeToString(sum[:16]), Body: body, Created: e.Time}
}

// pageURL is the address of a page of the fleet; empty values are left out.
func (n *Notifier) pageURL(path string, values ...string) string {
	q := make(url.Values)
	for i := 0; i+1 < len(values); i += 2 {
		if values[i+1] != "" {
			q.Set(values[i], values[i+1])
		}
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return strings.TrimSuffix(n.PublicURL, "/") + path
}
