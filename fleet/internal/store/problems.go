package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// A Problem is a finding with sums over all recordings that have it.
type Problem struct {
	Problem     string    `json:"problem"`
	Service     string    `json:"service"`
	Environment string    `json:"environment"`
	Group       string    `json:"group"`
	Code        string    `json:"code"`
	Cause       string    `json:"cause"`
	Site        string    `json:"site"`
	Severity    string    `json:"severity"`
	Title       string    `json:"title"`
	Fix         string    `json:"fix"`
	First       time.Time `json:"first"`
	Last        time.Time `json:"last"`
	Versions    []string  `json:"versions" doc:"the oldest first"`
	Replaced    bool      `json:"gone" doc:"all of these versions are replaced"`
	Pods        int64     `json:"pods" doc:"that have it, on the day when most did"`
	Recordings  int64     `json:"recordings"`
	// WinPerSecond is the time that a fix would save in each second: requests in a second times predicted gain.
	WinPerSecond      float64 `json:"win_per_second" doc:"seconds that requests would wait less, in each second, by all pods together"`
	GainNS            int64   `json:"gain_ns" doc:"a request of the group, on average"`
	RequestsPerSecond float64 `json:"requests_per_second" doc:"of the group, by all pods together, while recorded"`
	Recording         string  `json:"recording" doc:"the newest"`
	Owner             string  `json:"owner,omitempty" doc:"of the service, by the policy"`
	Mute              *Mute   `json:"muted,omitempty" doc:"why the policy mutes it"`
}

// A Mute is the reason and the end of the time in which a finding is hidden.
type Mute struct {
	LastDay string `json:"until" doc:"the last day"`
	Reason  string `json:"reason"`
}

// applyPolicy sets the owners and present mutes of problems, in place.
func (s *Store) applyPolicy(problems []Problem) {
	current := s.Policy.Current()
	for i := range problems {
		p := &problems[i]
		p.Owner = current.OwnerOf(p.Service)
		if m := current.MuteOf(p.Service, p.Environment, p.Code, p.Site, time.Now()); m != nil {
			p.Mute = &Mute{m.LastDay, m.Reason}
		}
	}
}

// newStamp joins a time and a recording id into a text that sorts by time.
func newStamp(start time.Time, id string) string { return fmt.Sprintf("%019d", start.UnixNano()) + id }

// parseStamp splits a stamp into time and recording id; both are zero for a text that is shorter than a stamp's time.
func parseStamp(stamp string) (time.Time, string) {
	if len(stamp) < 19 {
		return time.Time{}, ""
	}
	ns, _ := strconv.ParseInt(stamp[:19], 10, 64)
	return time.Unix(0, ns), stamp[19:]
}

// A Sighting has the sums of a finding in one version.
type Sighting struct {
	Version                    string
	First, Last                time.Time
	Oldest, Newest             string // ids of recordings
	Pods, Recordings, Requests int64
	GainNS                     int64 // of one request
}

// Finding returns a problem, nil if the selection does not contain it, and its sums by version, the newest version first.
func (s *Store) Finding(ctx context.Context, sel Selection, problem string) (*Problem, []Sighting, error) {
	found := []Problem{{Problem: problem}}
	if err := s.addDescriptions(ctx, found); err != nil || found[0].Code == "" {
		return nil, nil, err
	}
	inSelection, args := s.selectionCondition("seen", sel, day)
	sightings, err := queryAll(ctx, s.rowReader, func(scan func(...any) error) (v Sighting, err error) {
		var oldest, newest string
		var ns int64
		err = scan(&found[0].Service, &found[0].Environment, &v.Version, &v.Recordings, &v.Requests, &ns, &oldest, &newest, &v.Pods)
		v.First, v.Oldest = parseStamp(oldest)
		v.Last, v.Newest = parseStamp(newest)
		v.GainNS = ns / max(1, v.Requests)
		if found[0].Code == rows.OtherLabel { // (other) is one problem of all environments
			found[0].Environment = ""
		}
		return v, err
	}, `SELECT service, environment, version, `+s.sumExpr("n")+`, `+s.sumExpr("requests")+`, `+s.sumExpr("ns")+`, min(oldest), max(newest), max(pods) FROM `+s.tableExpr("seen")+`
		WHERE problem=? AND `+inSelection+` GROUP BY service, environment, version ORDER BY min(oldest) DESC`, append([]any{problem}, args...)...)
	if err != nil || len(sightings) == 0 {
		return nil, nil, err
	}
	sel.Service, sel.Environment = found[0].Service, found[0].Environment
	all, _, err := s.Overview(ctx, sel)
	for i := range all {
		if all[i].Problem == problem {
			found[0] = all[i]
		}
	}
	return &found[0], sightings, err
}

// addDescriptions sets group, code, cause, site, severity and texts of problems, in place, by their ids.
func (s *Store) addDescriptions(ctx context.Context, list []Problem) error {
	if len(list) == 0 {
		return nil
	}
	index, ids := make(map[string]int), make([]string, len(list))
	for i, p := range list {
		index[p.Problem], ids[i] = i, p.Problem
	}
	condition, args := inCondition("problem", ids)
	return eachRow(ctx, s.rowReader, func(scan func(...any) error) error {
		var p Problem
		if err := scan(&p.Problem, &p.Group, &p.Code, &p.Cause, &p.Site, &p.Severity, &p.Title, &p.Fix); err != nil {
			return err
		}
		described := &list[index[p.Problem]]
		if p.Code == rows.OtherLabel { // (other) is one problem of all environments
			described.Environment = ""
		}
		described.Group, described.Code, described.Cause, described.Site, described.Severity, described.Title, described.Fix = p.Group, p.Code, p.Cause, p.Site, p.Severity, p.Title, p.Fix
		return nil
	}, `SELECT problem, grp, code, cause, site, severity, title, fix FROM `+s.tableExpr("problems")+` WHERE `+condition, args...)
}
