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
	every  = 30 * time.Second   // it looks
	look   = 7 * 24 * time.Hour // how far back: as the start page does
	away   = 24 * time.Hour     // a finding that was not seen for so long has come back
	enough = 3                  // recordings of a version, to be compared
	unsent = 1000               // messages that may wait: what comes then is said when there is room
	soon   = time.Second        // it asks for messages that are due
)

// A Notifier says what is new.
type Notifier struct {
	Store   *store.Store
	Log     *slog.Logger
	Metrics *metrics.Metrics
	// To is the address of the receiver, Secrets its keys: a message is signed with each, so one can take the other's place.
	To      string
	Secrets []Secret
	// Public is the fleet's own address in links.
	Public  string
	Allowed outgoing.AllowedRanges
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
	Service     string  `json:"service"`
	Environment string  `json:"environment"`
	Version     string  `json:"version"`
	Before      string  `json:"before"` // the version that it replaces
	Groups      []Group `json:"groups"`
	URL         string  `json:"url"`
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
	send, next := n.sender(), time.Time{}
	for ctx.Err() == nil {
		now, more, err := time.Now(), false, error(nil)
		notifies := n.Store.Notifies()
		if notifies && !now.Before(next) {
			next = now.Add(every)
			if err := n.Look(ctx, now); err != nil && ctx.Err() == nil {
				n.Log.Error("looking for what webhooks have to say", "error", err)
			}
		}
		if notifies {
			more, err = send.one(ctx, now)
		}
		if err != nil && ctx.Err() == nil {
			n.Log.Error("webhooks", "error", err)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(soon):
		}
	}
}

// A finding's state is that it is seen, or gone with its versions; a version's is of how many recordings it was judged.
const (
	seen   = "seen"
	gone   = "gone"
	slower = "slower"
)

// Look puts what is new into the outbox. What is there when it looks for the first time is nothing new.
func (n *Notifier) Look(ctx context.Context, now time.Time) error {
	if waiting, err := n.Store.Unsent(ctx); err != nil || waiting >= unsent {
		return err
	}
	problems, versions, err := n.Store.Overview(ctx, store.Range{From: now.Add(-look), To: now.Add(time.Minute)})
	if err != nil {
		return err
	}
	asked := []string{""}
	for _, p := range problems {
		asked = append(asked, finding(&p))
	}
	for i := range versions {
		if old := replaced(versions, i); old != nil {
			asked = append(asked, version(&versions[i], old))
		}
	}
	told, err := n.Store.Told(ctx, asked)
	if err != nil {
		return err
	}
	last, began := told[""]
	marks := map[string]store.Mark{"": {State: seen, At: now}}
	var out []store.Message
	for _, p := range problems {
		what, version := finding(&p), p.Versions[len(p.Versions)-1]
		was, known := told[what]
		is := store.Mark{State: seen, At: p.Last}
		kind, at := "", time.Time{}
		switch {
		case p.Gone:
			is.State = gone
		case !began:
		case !known:
			kind, at = "finding.new", p.First
		// A finding that others than this look have seen meanwhile has not come back.
		case was.State == gone, p.Last.Sub(was.At) > away && now.Sub(last.At) < away:
			kind, at = "finding.back", was.At
		}
		if known && was == is {
			continue
		}
		marks[what] = is
		if kind != "" {
			page := n.page("/service/"+url.PathEscape(p.Service), "environment", p.Environment)
			out = append(out, message(Event{kind, now, Finding{p, version, page}}, p.Problem, strconv.FormatInt(at.UnixNano(), 10)))
		}
	}
	for i := range versions {
		if old := replaced(versions, i); old != nil {
			n.judge(ctx, now, !began, &versions[i], old, told, marks, &out)
		}
	}
	return n.Store.Tell(ctx, marks, out)
}

// finding and version are the names by which it is kept what was said.
func finding(p *store.Problem) string { return "finding " + p.Problem }

func version(v, old *store.Version) string {
	return strings.Join([]string{"version", v.Service, v.Environment, v.Version, old.Version}, "\x00")
}

// replaced is the version before versions[i], if that is the newest of its service and environment.
func replaced(versions []store.Version, i int) *store.Version {
	same := func(j int) bool {
		return j >= 0 && j < len(versions) && versions[j].Service == versions[i].Service && versions[j].Environment == versions[i].Environment
	}
	if same(i-1) || !same(i+1) {
		return nil
	}
	return &versions[i+1]
}

// judge compares the newest version of a service with the one before: when it has enough recordings, and each time that they have
// doubled, until it is known to be slower.
func (n *Notifier) judge(ctx context.Context, now time.Time, first bool, v, old *store.Version, told, marks map[string]store.Mark, out *[]store.Message) {
	what := version(v, old)
	was := told[what].State
	if judged, _ := strconv.ParseInt(was, 10, 64); v.Recordings < enough || old.Recordings < enough || was == slower || v.Recordings < 2*judged {
		return
	}
	marks[what] = store.Mark{State: strconv.FormatInt(v.Recordings, 10), At: now}
	if first {
		marks[what] = store.Mark{State: slower, At: now}
		return
	}
	d, err := n.Compare(ctx, v.Service, v.Environment, old.Version, v.Version)
	if err != nil { // reports that are no longer kept, most likely: it is judged when there are more
		n.Log.Warn("a version could not be compared", "service", v.Service, "version", v.Version, "before", old.Version, "error", err)
		return
	}
	r := Regression{Service: v.Service, Environment: v.Environment, Version: v.Version, Before: old.Version,
		URL: n.page("/compare", "service", v.Service, "environment", v.Environment, "old", old.Version, "new", v.Version)}
	for i := range d.Groups {
		g := &d.Groups[i]
		if !worse(&g.P50) && !worse(&g.P99) {
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
		if r.Groups = append(r.Groups, row); len(r.Groups) == 20 {
			break
		}
	}
	if len(r.Groups) > 0 {
		marks[what] = store.Mark{State: slower, At: now}
		*out = append(*out, message(Event{"version.slower", now, r}, what))
	}
}

// worse reports whether there is evidence that a latency rose.
func worse(c *compare.Change) bool { return c.Evidence && c.Low != nil && *c.Low > 0 }

// message makes a message of an event, whose id is that of what it says: said twice, it is one.
func message(e Event, what ...string) store.Message {
	sum := sha256.Sum256([]byte(e.Type + "\x00" + strings.Join(what, "\x00")))
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // of texts and numbers
	}
	return store.Message{ID: "msg_" + hex.EncodeToString(sum[:16]), Body: body, Made: e.Time}
}

// page is the address of a page of the fleet; empty values are left out.
func (n *Notifier) page(path string, values ...string) string {
	q := make(url.Values)
	for i := 0; i+1 < len(values); i += 2 {
		if values[i+1] != "" {
			q.Set(values[i], values[i+1])
		}
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return strings.TrimSuffix(n.Public, "/") + path
}
