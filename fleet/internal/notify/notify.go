// Package notify sends webhooks about new findings, findings that came back, and versions that are slower than the previous one.
// It polls the store and saves there, as marks, the states that it has reported. So no event is lost while no notifier runs, and the
// packages that write rows need not know about webhooks.
package notify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	checkInterval = 30 * time.Second   // between checks for events
	lookback      = 7 * 24 * time.Hour // of a check; the start page shows as much
	minAbsence    = 24 * time.Hour     // after it, a finding that is seen again has come back
	minRecordings = 3                  // of a version, to compare it
	maxUnsent     = 1000               // messages in the outbox; while it is full, no check runs
	pollInterval  = time.Second        // between queries for due messages
)

// A Notifier polls the store for events and delivers them to one receiver.
type Notifier struct {
	Store   *store.Store
	Log     *slog.Logger
	Metrics *metrics.Metrics
	// ReceiverURL is the address of the receiver. Each message is signed with all Secrets, so that a key can be replaced while
	// both are valid.
	ReceiverURL string
	Secrets     []Secret
	// PublicURL is the address of the fleet in links.
	PublicURL     string
	AllowedRanges outgoing.AllowedRanges
	// Compare compares two versions of a service.
	Compare func(ctx context.Context, service, environment, old, new string) (*compare.Diff, error)
}

// An Event is the body of a message, in the form of https://www.standardwebhooks.com.
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

// A Group is a group of requests that became slower: each percentile before and after, with a confidence interval of the
// difference.
type Group struct {
	Group string         `json:"group"`
	P50   compare.Change `json:"p50"`
	P99   compare.Change `json:"p99"`
	Cause string         `json:"cause"` // the cause with the largest increase
	Site  string         `json:"site"`
}

// Run polls for events and delivers messages until ctx ends, while this process is the store's notifier. Errors are only logged.
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

// The state of a finding is stateSeen, or stateReplaced if all versions with it are replaced. The state of a version is the
// number of recordings at its last comparison, or stateSlower.
const (
	stateSeen     = "seen"
	stateReplaced = "gone"
	stateSlower   = "slower"
)

// EnqueueEvents puts messages about new events into the outbox. The first check of a store only saves marks: it reports nothing. While maxUnsent
// messages wait, it does nothing.
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
		if p.Mute != nil {
			continue // without a mark: a finding that outlives its mute is new, or back
		}
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
		// A pause of the checks must not look like an absence of the finding: it comes back only if the last check is recent.
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

// findingKey and versionKey return the keys of marks.
func findingKey(p *store.Problem) string { return "finding " + p.Problem }

// newMessage returns the message of an event. Its id is a hash of type and identity, so the outbox keeps one message of two with
// the same identity.
func newMessage(e Event, identity ...string) store.Message {
	sum := sha256.Sum256([]byte(e.Type + "\x00" + strings.Join(identity, "\x00")))
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // cannot happen: an event holds texts and numbers
	}
	return store.Message{ID: "msg_" + hex.EncodeToString(sum[:16]), Body: body, Created: e.Time}
}

// pageURL returns the address of a page of the fleet. values alternates names and values; empty values are omitted.
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
