package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// A Selection restricts a query to a period, a service and an environment. An empty service or environment selects all.
type Selection struct {
	From, To             time.Time
	Service, Environment string
}

// selectionCondition returns the SQL condition of a selection for a table, and its arguments. The begin of the period is rounded down to a multiple
// of unit; its end is not part of it.
func (s *databases) selectionCondition(table string, sel Selection, unit time.Duration) (string, []any) {
	column, from := map[string]string{"seen": "day"}[table], sel.From.Truncate(unit).Unix()
	if column == "" {
		column = "minute"
	}
	condition, args := column+">=? AND "+column+"<?", []any{from, sel.To.Unix()}
	if s.clickhouse != nil && (table == "sums" || table == "costs") { // uses the key: a recording is received after it begins
		condition, args = condition+" AND received>=?", append(args, from*int64(time.Second))
	}
	if sel.Service != "" {
		condition, args = condition+" AND service=?", append(args, sel.Service)
	}
	if sel.Environment != "" {
		condition, args = condition+" AND environment=?", append(args, sel.Environment)
	}
	return condition, args
}

// replacedAfter is the time without recordings after which a version counts as replaced, if a newer version has sent some since.
const replacedAfter = 5 * time.Minute

// A Version is a version of a service in an environment, with sums of its recordings. Quantiles are upper bounds of latency
// buckets.
type Version struct {
	Service     string    `json:"service"`
	Environment string    `json:"environment"`
	Version     string    `json:"version"`
	First       time.Time `json:"first"`
	Last        time.Time `json:"last"`
	Replaced    bool      `json:"replaced" doc:"a newer version sends, and this one has not for 5 minutes"`
	Pods        int64     `json:"pods" doc:"that sent recordings, on the day when most did"`
	Recordings  int64     `json:"recordings"`
	RecordedNS  int64     `json:"recorded_ns"`
	Requests    int64     `json:"requests"`
	P50NS       int64     `json:"p50_ns"`
	P99NS       int64     `json:"p99_ns"`
	Recording   string    `json:"recording" doc:"the newest"`
	Headroom    *Headroom `json:"headroom,omitempty" doc:"of versions that are not replaced"`
}

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

type problemSum struct {
	service, environment, version, problem, oldest, newest string
	recordings, requests, ns, pods                         int64
}

// Overview returns the findings and versions of a selection. Findings are ordered by WinPerSecond; those of replaced versions
// come last.
func (s *Store) Overview(ctx context.Context, sel Selection) (problems []Problem, versions []Version, err error) {
	recordings, err := s.problemSums(ctx, sel, "problem=''")
	if err != nil {
		return nil, nil, err
	}
	type key struct{ service, environment, version string }
	versionByKey := make(map[key]*Version)
	for _, r := range recordings {
		v := Version{Service: r.service, Environment: r.environment, Version: r.version, Pods: r.pods, Recordings: r.recordings, RecordedNS: r.ns}
		v.First, _ = parseStamp(r.oldest)
		v.Last, v.Recording = parseStamp(r.newest)
		versions = append(versions, v)
	}
	slices.SortFunc(versions, func(a, b Version) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Environment, b.Environment), b.First.Compare(a.First))
	})
	var newest *Version
	for i := range versions {
		v := &versions[i]
		versionByKey[key{v.Service, v.Environment, v.Version}] = v
		if newest != nil && newest.Service == v.Service && newest.Environment == v.Environment {
			v.Replaced = v.Last.Add(replacedAfter).Before(newest.Last)
		}
		if newest == nil || newest.Service != v.Service || newest.Environment != v.Environment || v.Last.After(newest.Last) {
			newest = v
		}
	}
	if err := s.addQuantiles(ctx, sel, func(service, environment, version string) *Version {
		return versionByKey[key{service, environment, version}]
	}); err != nil {
		return nil, nil, err
	}
	if err := s.addHeadrooms(ctx, sel, versions); err != nil {
		return nil, nil, err
	}
	candidates, err := s.candidates(ctx, sel, versions)
	if err != nil {
		return nil, nil, err
	}
	if problems, err = s.rankProblems(ctx, candidates, func(r *problemSum) *Version { return versionByKey[key{r.service, r.environment, r.version}] }); err != nil {
		return nil, nil, err
	}
	s.applyPolicy(problems)
	return problems, versions, nil
}

// problemSums returns sums of each problem by version, in no order, for the rows of a selection that meet a condition (SQL, with extraArgs).
func (s *Store) problemSums(ctx context.Context, sel Selection, condition string, extraArgs ...any) ([]problemSum, error) {
	inSelection, args := s.selectionCondition("seen", sel, day)
	// Over a week, pods replace each other. The factor is the number of pods on the day with most, not all pods of the week.
	return queryAll(ctx, s.rowReader, func(scan func(...any) error) (r problemSum, err error) {
		err = scan(&r.service, &r.environment, &r.version, &r.problem, &r.recordings, &r.requests, &r.ns, &r.oldest, &r.newest, &r.pods)
		return r, err
	}, `SELECT service, environment, version, problem, `+s.sumExpr("n")+`, `+s.sumExpr("requests")+`, `+s.sumExpr("ns")+`, min(oldest), max(newest), max(pods) FROM `+s.tableExpr("seen")+`
		WHERE `+inSelection+` AND `+condition+` GROUP BY service, environment, version, problem`, append(args, extraArgs...)...)
}

// candidates returns problems that include all those which rankProblems puts first. SQLite may have hundreds of thousands, so it
// orders them as rankProblems does, and only the first ones are read. ClickHouse keeps at most MaxProblems of a service, which
// are all read.
func (s *Store) candidates(ctx context.Context, sel Selection, versions []Version) ([]problemSum, error) {
	if s.clickhouse != nil {
		return s.problemSums(ctx, sel, "problem<>''")
	}
	factors := make([][]any, len(versions))
	for i, v := range versions {
		factor := 0.0
		if v.RecordedNS > 0 {
			factor = float64(v.Pods) / float64(v.RecordedNS)
		}
		factors[i] = []any{v.Service, v.Environment, v.Version, factor, boolToInt(v.Replaced)}
	}
	list, err := json.Marshal(factors)
	if err != nil {
		return nil, err
	}
	inSelection, args := s.selectionCondition("seen", sel, day)
	ids, err := queryAll(ctx, s.rowReader, func(scan func(...any) error) (id string, err error) {
		var replaced int
		var win float64
		var newest string
		err = scan(&id, &replaced, &win, &newest)
		return id, err
	}, `WITH factors AS MATERIALIZED (SELECT value->>0 AS of_service, value->>1 AS of_environment, value->>2 AS of_version, value->>3 AS factor, value->>4 AS replaced FROM json_each(?))
		SELECT problem, min(replaced) AS gone, iif(min(replaced), total(ns*factor), total(iif(replaced, 0.0, ns*factor))) AS win, max(newest) AS newest
		FROM seen JOIN factors ON of_service=service AND of_environment=environment AND of_version=version
		WHERE problem<>'' AND `+inSelection+` GROUP BY problem ORDER BY 2, 3 DESC, 4 DESC, 1 LIMIT ?`, append(append([]any{string(list)}, args...), maxListedProblems)...)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	condition, conditionArgs := inCondition("problem", ids)
	return s.problemSums(ctx, sel, condition, conditionArgs...)
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

// maxListedProblems bounds the findings that Overview returns.
const maxListedProblems = 200

// rankProblems adds up the sums of each problem over its versions and returns the first maxListedProblems in Overview's order. version returns the
// version of a sum, nil if the sum does not count. If a problem has current versions, replaced ones do not add to its win.
func (s *Store) rankProblems(ctx context.Context, sums []problemSum, version func(*problemSum) *Version) ([]Problem, error) {
	problems := make(map[string]*Problem)
	var oldestFirst []*problemSum
	for i := range sums {
		if sums[i].problem != "" && version(&sums[i]) != nil {
			oldestFirst = append(oldestFirst, &sums[i])
		}
	}
	slices.SortFunc(oldestFirst, func(a, b *problemSum) int { return strings.Compare(a.oldest, b.oldest) })
	type problemTotal struct {
		win, requests int64
		newest        string
	}
	totals := make(map[string]*problemTotal)
	for _, r := range oldestFirst {
		v := version(r)
		p, total := problems[r.problem], totals[r.problem]
		if p == nil {
			p, total = &Problem{Problem: r.problem, Service: r.service, Environment: r.environment, Replaced: true}, new(problemTotal)
			p.First, _ = parseStamp(r.oldest)
			problems[r.problem], totals[r.problem] = p, total
		}
		p.Versions = append(p.Versions, r.version)
		p.Recordings = rows.AddClamped(p.Recordings, r.recordings)
		if p.Replaced && !v.Replaced { // from here on only current versions count
			p.Replaced, p.Pods, p.WinPerSecond, p.RequestsPerSecond, *total = false, 0, 0, 0, problemTotal{newest: total.newest}
		}
		total.newest = max(total.newest, r.newest)
		if !p.Replaced && v.Replaced {
			continue
		}
		p.Pods = rows.AddClamped(p.Pods, r.pods)
		total.win = rows.AddClamped(total.win, r.ns)
		total.requests = rows.AddClamped(total.requests, r.requests)
		if v.RecordedNS > 0 {
			p.WinPerSecond += float64(r.ns) / float64(v.RecordedNS) * float64(v.Pods)
			p.RequestsPerSecond += 1e9 * float64(r.requests) / float64(v.RecordedNS) * float64(v.Pods)
		}
	}
	out := make([]Problem, 0, len(problems))
	for id, p := range problems {
		p.Last, p.Recording = parseStamp(totals[id].newest)
		p.GainNS = totals[id].win / max(1, totals[id].requests)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Problem) int {
		if a.Replaced != b.Replaced {
			return map[bool]int{true: 1, false: -1}[a.Replaced]
		}
		return cmp.Or(cmp.Compare(b.WinPerSecond, a.WinPerSecond), b.Last.Compare(a.Last), strings.Compare(a.Problem, b.Problem))
	})
	out = out[:min(len(out), maxListedProblems)]
	return out, s.addDescriptions(ctx, out)
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

// addQuantiles sets requests and latency quantiles of the versions that version finds by their names; it may return nil.
func (s *Store) addQuantiles(ctx context.Context, sel Selection, version func(service, environment, version string) *Version) error {
	inSelection, args := s.selectionCondition("days", sel, day)
	type bucket struct{ upper, n int64 }
	bucketsOf := make(map[*Version][]bucket)
	err := eachRow(ctx, s.rowReader, func(scan func(...any) error) error {
		var service, environment, name string
		var b bucket
		if err := scan(&service, &environment, &name, &b.upper, &b.n); err != nil {
			return err
		}
		if v := version(service, environment, name); v != nil {
			bucketsOf[v] = append(bucketsOf[v], b)
			v.Requests = rows.AddClamped(v.Requests, b.n)
		}
		return nil
	}, `SELECT service, environment, version, bucket, `+s.sumExpr("n")+` FROM `+s.tableExpr("days")+` WHERE cause='' AND `+inSelection+` GROUP BY service, environment, version, bucket ORDER BY bucket`, args...)
	for v, buckets := range bucketsOf {
		cumulative := int64(0)
		for _, b := range buckets {
			cumulative = rows.AddClamped(cumulative, b.n)
			if v.P50NS == 0 && cumulative >= v.Requests-cumulative {
				v.P50NS = b.upper
			}
			if v.P99NS == 0 && float64(cumulative)*100 >= float64(v.Requests)*99 {
				v.P99NS = b.upper
			}
		}
	}
	return err
}

// A Point is a sum over an interval of time.
type Point struct {
	Start    time.Time `json:"start"`
	Version  string    `json:"version"`
	Cause    string    `json:"cause" doc:"empty: N counts the requests"`
	Requests int64     `json:"requests"`
	NS       int64     `json:"ns"`
}

// Series returns the numbers of requests and their time in ns, by interval of length step, version and cause. Points without requests are missing.
func (s *Store) Series(ctx context.Context, sel Selection, step time.Duration) ([]Point, error) {
	table := "costs"
	if step >= day {
		table = "days"
	}
	inSelection, args := s.selectionCondition(table, sel, step)
	return queryAll(ctx, s.rowReader, func(scan func(...any) error) (p Point, err error) {
		var interval int64
		err = scan(&interval, &p.Version, &p.Cause, &p.Requests, &p.NS)
		p.Start = time.Unix(interval*int64(step/time.Second), 0)
		return p, err
	}, `SELECT `+s.divExpr("minute")+` AS at, version, cause, `+s.sumExpr("n")+`, `+s.sumExpr("ns")+` FROM `+s.tableExpr(table)+` WHERE `+inSelection+` GROUP BY at, version, cause ORDER BY at, version, cause`,
		append([]any{int64(step / time.Second)}, args...)...)
}

// tableExpr returns the SQL expression for a table. The table costs has sums over all groups and buckets. In ClickHouse, FINAL
// omits rows that newer ones replaced. It is not hidden in a view, because ClickHouse 18.16 would then read all rows for every
// query.
func (s *databases) tableExpr(table string) string {
	if s.clickhouse == nil {
		return strings.Replace(table, "costs", "sums", 1)
	}
	const sums = `sums.version AS version, sums.environment AS environment, sums.cause AS cause, sums.bucket AS bucket, sums.n AS n, sums.ns AS ns`
	return map[string]string{
		"headrooms": `headrooms_rows FINAL`,
		"problems":  `problems_rows FINAL`,
		"sums":      `explained_rows FINAL ARRAY JOIN sums.grp AS grp, sums.cause AS cause, sums.bucket AS bucket, sums.n AS n, sums.ns AS ns`,
		"costs":     `explained_rows FINAL ARRAY JOIN costs.cause AS cause, costs.n AS n, costs.ns AS ns`,
		"found":     `explained_rows FINAL ARRAY JOIN found.problem AS problem, found.requests AS requests, found.ns AS ns`,
		"slow": `explained_rows FINAL ARRAY JOIN slow.request AS request, slow.grp AS grp, slow.moment AS moment, slow.ns AS ns, slow.cause AS cause, slow.site AS site,
			slow.trace AS trace`,
		"hours": `hours_rows FINAL ARRAY JOIN ` + sums,
		"days":  `days_rows FINAL ARRAY JOIN ` + sums,
		"seen": `found_rows FINAL ARRAY JOIN found.version AS version, found.environment AS environment, found.problem AS problem, found.n AS n, found.requests AS requests,
			found.ns AS ns, found.oldest AS oldest, found.newest AS newest, found.pods AS pods`,
	}[table]
}

// sumExpr returns the SQL expression for the sum of a column, bounded to rows.MaxSum. Beyond 64 bits, SQLite's sum fails and
// ClickHouse's wraps around.
func (s *databases) sumExpr(column string) string {
	if s.clickhouse != nil {
		return fmt.Sprintf("greatest(toInt64(0), if(sum(toFloat64(%[1]s))>=%[2]d, toInt64(%[2]d), sum(%[1]s)))", column, int64(rows.MaxSum))
	}
	return fmt.Sprintf("CAST(max(0, min(total(%s), %d)) AS INTEGER)", column, int64(rows.MaxSum))
}

// divExpr returns the SQL expression for the integer division of a column by an argument (?), which the databases write
// differently.
func (s *databases) divExpr(column string) string {
	if s.clickhouse != nil {
		return "intDiv(" + column + ", ?)"
	}
	return column + " / ?"
}

// A Pod is a pod of a service with the time of its requests by cause.
type Pod struct {
	Pod      string           `json:"pod"`
	Node     string           `json:"node"`
	Version  string           `json:"version"`
	Requests int64            `json:"requests"`
	NS       map[string]int64 `json:"ns" doc:"by cause"`
}

// Pods returns the pods of a selection, one for each version of a pod, in the order of their names, with their requests and their time in ns by
// cause.
func (s *Store) Pods(ctx context.Context, sel Selection) ([]Pod, error) {
	inSelection, args := s.selectionCondition("costs", sel, time.Minute)
	type key struct{ pod, node, version string }
	index := make(map[key]int)
	var out []Pod
	err := eachRow(ctx, s.rowReader, func(scan func(...any) error) error {
		var k key
		var cause string
		var n, ns int64
		if err := scan(&k.pod, &k.node, &k.version, &cause, &n, &ns); err != nil {
			return err
		}
		i, ok := index[k]
		if !ok {
			i = len(out)
			index[k] = i
			out = append(out, Pod{Pod: k.pod, Node: k.node, Version: k.version, NS: make(map[string]int64)})
		}
		out[i].Requests = rows.AddClamped(out[i].Requests, n)
		if cause != "" {
			out[i].NS[cause] = rows.AddClamped(out[i].NS[cause], ns)
		}
		return nil
	}, `SELECT pod, node, version, cause, `+s.sumExpr("n")+`, `+s.sumExpr("ns")+` FROM `+s.tableExpr("costs")+` WHERE `+inSelection+` GROUP BY pod, node, version, cause ORDER BY pod, node, version, cause`, args...)
	return out, err
}

// A Moment is a slow request.
type Moment struct {
	Recording   string    `json:"recording"`
	Request     string    `json:"request"`
	Service     string    `json:"service"`
	Environment string    `json:"environment"`
	Version     string    `json:"version"`
	Pod         string    `json:"pod"`
	Node        string    `json:"node"`
	Group       string    `json:"group"`
	Start       time.Time `json:"at"`
	NS          int64     `json:"ns"`
	Cause       string    `json:"cause" doc:"of its longest segment"`
	Site        string    `json:"site"`
	Trace       string    `json:"trace"`
}

// Moments returns requests of a selection, the slowest first, at most limit; with a trace id ("" for any) only those of that trace.
func (s *Store) Moments(ctx context.Context, sel Selection, trace string, limit int) ([]Moment, error) {
	condition, args := "moment>=? AND moment<?", []any{sel.From.UnixNano(), sel.To.UnixNano()}
	if s.clickhouse != nil { // uses the key: no recording is longer than an hour
		condition, args = condition+" AND received>=?", append(args, sel.From.Add(-time.Hour).UnixNano())
	}
	for _, c := range []struct{ column, value string }{{"service", sel.Service}, {"environment", sel.Environment}, {"trace", trace}} {
		if c.value != "" {
			condition, args = condition+" AND "+c.column+"=?", append(args, c.value)
		}
	}
	return queryAll(ctx, s.rowReader, func(scan func(...any) error) (m Moment, err error) {
		var start int64
		err = scan(&m.Recording, &m.Request, &m.Service, &m.Environment, &m.Version, &m.Pod, &m.Node, &m.Group, &start, &m.NS, &m.Cause, &m.Site, &m.Trace)
		m.Start = time.Unix(0, start)
		return m, err
	}, `SELECT recording, request, service, environment, version, pod, node, grp, moment, ns, cause, site, trace FROM `+s.tableExpr("slow")+` WHERE `+condition+` ORDER BY ns DESC LIMIT `+strconv.Itoa(limit), args...)
}

// VisitSums calls visit with the number of requests (n) and their time (ns) over all recordings, by group, cause and bucket.
func (s *Store) VisitSums(ctx context.Context, visit func(group, cause string, bucket, n, ns int64)) error {
	return eachRow(ctx, s.rowReader, func(scan func(...any) error) error {
		var group, cause string
		var bucket, n, ns int64
		if err := scan(&group, &cause, &bucket, &n, &ns); err != nil {
			return err
		}
		visit(group, cause, bucket, n, ns)
		return nil
	}, `SELECT grp, cause, bucket, `+s.sumExpr("n")+`, `+s.sumExpr("ns")+` FROM `+s.tableExpr("sums")+` GROUP BY grp, cause, bucket`)
}
