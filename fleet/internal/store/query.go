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

// A Range is what a question is about. Empty texts mean all.
type Range struct {
	From, To             time.Time
	Service, Environment string
}

// where returns the condition of a range over the rows of a table, in whole units of time.
func (s *databases) where(table string, in Range, unit time.Duration) (string, []any) {
	column, from := map[string]string{"seen": "day"}[table], in.From.Truncate(unit).Unix()
	if column == "" {
		column = "minute"
	}
	q, args := column+">=? AND "+column+"<?", []any{from, in.To.Unix()}
	if s.click != nil && (table == "sums" || table == "costs") { // by its key: a recording is received after it begins
		q, args = q+" AND received>=?", append(args, from*int64(time.Second))
	}
	if in.Service != "" {
		q, args = q+" AND service=?", append(args, in.Service)
	}
	if in.Environment != "" {
		q, args = q+" AND environment=?", append(args, in.Environment)
	}
	return q, args
}

// quiet is for how long the older version of two has sent nothing, while the newer one has, to be out of service.
const quiet = 5 * time.Minute

// A Version is a version of a service in an environment: its recordings, and the quantiles of the requests in them as upper bounds of
// latency buckets.
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
}

// A Problem is a finding over all its recordings.
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
	Gone        bool      `json:"gone" doc:"all of these versions are replaced"`
	Pods        int64     `json:"pods" doc:"that have it, on the day when most did"`
	Recordings  int64     `json:"recordings"`
	// WinPerSecond is the time that a fix would win a second: requests a second times predicted gain.
	WinPerSecond  float64 `json:"win_per_second" doc:"seconds that requests would wait less, in each second, by all pods together"`
	GainNS        int64   `json:"gain_ns" doc:"a request of the group, on average"`
	RequestsEvery float64 `json:"requests_per_second" doc:"of the group, by all pods together, while recorded"`
	Recording     string  `json:"recording" doc:"the newest"`
}

// stampOf is a time and an id, in the order of time.
func stampOf(at time.Time, id string) string { return fmt.Sprintf("%019d", at.UnixNano()) + id }

// stamp takes them apart.
func stamp(s string) (time.Time, string) {
	if len(s) < 19 {
		return time.Time{}, ""
	}
	ns, _ := strconv.ParseInt(s[:19], 10, 64)
	return time.Unix(0, ns), s[19:]
}

type seenRow struct {
	service, environment, version, problem, oldest, newest string
	n, requests, ns, pods                                  int64
}

// Overview returns what was found and the versions in a range. The problems come first whose fix would win most; those of replaced
// versions are last.
func (s *Store) Overview(ctx context.Context, in Range) (problems []Problem, versions []Version, err error) {
	recordings, err := s.seen(ctx, in, "problem=''")
	if err != nil {
		return nil, nil, err
	}
	type key struct{ service, environment, version string }
	of := make(map[key]*Version)
	for _, r := range recordings {
		v := Version{Service: r.service, Environment: r.environment, Version: r.version, Pods: r.pods, Recordings: r.n, RecordedNS: r.ns}
		v.First, _ = stamp(r.oldest)
		v.Last, v.Recording = stamp(r.newest)
		versions = append(versions, v)
	}
	slices.SortFunc(versions, func(a, b Version) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Environment, b.Environment), b.First.Compare(a.First))
	})
	var newer *Version
	for i := range versions {
		v := &versions[i]
		of[key{v.Service, v.Environment, v.Version}] = v
		if newer != nil && newer.Service == v.Service && newer.Environment == v.Environment {
			v.Replaced = v.Last.Add(quiet).Before(newer.Last)
		}
		if newer == nil || newer.Service != v.Service || newer.Environment != v.Environment || v.Last.After(newer.Last) {
			newer = v
		}
	}
	if err := s.quantiles(ctx, in, func(service, environment, version string) *Version { return of[key{service, environment, version}] }); err != nil {
		return nil, nil, err
	}
	found, err := s.candidates(ctx, in, versions)
	if err != nil {
		return nil, nil, err
	}
	if problems, err = s.rank(ctx, found, func(r *seenRow) *Version { return of[key{r.service, r.environment, r.version}] }); err != nil {
		return nil, nil, err
	}
	return problems, versions, nil
}

// seen returns what was found in a range, as far as a condition holds, by version.
func (s *Store) seen(ctx context.Context, in Range, condition string, more ...any) ([]seenRow, error) {
	where, args := s.where("seen", in, day)
	// Pods that replace each other do not run at the same time: those of the day with most are the factor, not all of a week.
	return collect(ctx, s.q, func(scan func(...any) error) (r seenRow, err error) {
		err = scan(&r.service, &r.environment, &r.version, &r.problem, &r.n, &r.requests, &r.ns, &r.oldest, &r.newest, &r.pods)
		return r, err
	}, `SELECT service, environment, version, problem, `+s.sum("n")+`, `+s.sum("requests")+`, `+s.sum("ns")+`, min(oldest), max(newest), max(pods) FROM `+s.from("seen")+`
		WHERE `+where+` AND `+condition+` GROUP BY service, environment, version, problem`, append(args, more...)...)
}

// candidates returns the findings among which are all that rank puts first. There may be hundreds of thousands: SQLite orders them
// itself, as rank does, and only the first ones are read. ClickHouse keeps MaxProblems of a service, and all are read.
func (s *Store) candidates(ctx context.Context, in Range, versions []Version) ([]seenRow, error) {
	if s.click != nil {
		return s.seen(ctx, in, "problem<>''")
	}
	factors := make([][]any, len(versions))
	for i, v := range versions {
		factor := 0.0
		if v.RecordedNS > 0 {
			factor = float64(v.Pods) / float64(v.RecordedNS)
		}
		factors[i] = []any{v.Service, v.Environment, v.Version, factor, number(v.Replaced)}
	}
	list, err := json.Marshal(factors)
	if err != nil {
		return nil, err
	}
	where, args := s.where("seen", in, day)
	ids, err := collect(ctx, s.q, func(scan func(...any) error) (id string, err error) {
		var gone int
		var win float64
		var newest string
		err = scan(&id, &gone, &win, &newest)
		return id, err
	}, `WITH factors AS MATERIALIZED (SELECT value->>0 AS of_service, value->>1 AS of_environment, value->>2 AS of_version, value->>3 AS factor, value->>4 AS replaced FROM json_each(?))
		SELECT problem, min(replaced) AS gone, iif(min(replaced), total(ns*factor), total(iif(replaced, 0.0, ns*factor))) AS win, max(newest) AS newest
		FROM seen JOIN factors ON of_service=service AND of_environment=environment AND of_version=version
		WHERE problem<>'' AND `+where+` GROUP BY problem ORDER BY 2, 3 DESC, 4 DESC, 1 LIMIT ?`, append(append([]any{string(list)}, args...), maxProblems)...)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	which, these := among("problem", ids)
	return s.seen(ctx, in, which, these...)
}

// A Sighting is what is known of a finding in one version.
type Sighting struct {
	Version                    string
	First, Last                time.Time
	Oldest, Newest             string // recordings
	Pods, Recordings, Requests int64
	GainNS                     int64 // a request
}

// Finding returns a problem of a range, nil if it has not been seen, and where it was, the newest version first.
func (s *Store) Finding(ctx context.Context, in Range, problem string) (*Problem, []Sighting, error) {
	one := []Problem{{Problem: problem}}
	if err := s.describe(ctx, one); err != nil || one[0].Code == "" {
		return nil, nil, err
	}
	where, args := s.where("seen", in, day)
	list, err := collect(ctx, s.q, func(scan func(...any) error) (v Sighting, err error) {
		var oldest, newest string
		var ns int64
		err = scan(&one[0].Service, &one[0].Environment, &v.Version, &v.Recordings, &v.Requests, &ns, &oldest, &newest, &v.Pods)
		v.First, v.Oldest = stamp(oldest)
		v.Last, v.Newest = stamp(newest)
		v.GainNS = ns / max(1, v.Requests)
		if one[0].Code == rows.OtherLabel { // of all environments
			one[0].Environment = ""
		}
		return v, err
	}, `SELECT service, environment, version, `+s.sum("n")+`, `+s.sum("requests")+`, `+s.sum("ns")+`, min(oldest), max(newest), max(pods) FROM `+s.from("seen")+`
		WHERE problem=? AND `+where+` GROUP BY service, environment, version ORDER BY min(oldest) DESC`, append([]any{problem}, args...)...)
	if err != nil || len(list) == 0 {
		return nil, nil, err
	}
	in.Service, in.Environment = one[0].Service, one[0].Environment
	all, _, err := s.Overview(ctx, in)
	for i := range all {
		if all[i].Problem == problem {
			one[0] = all[i]
		}
	}
	return &one[0], list, err
}

// maxProblems bounds a list of them.
const maxProblems = 200

func (s *Store) rank(ctx context.Context, found []seenRow, version func(*seenRow) *Version) ([]Problem, error) {
	by := make(map[string]*Problem)
	var list []*seenRow
	for i := range found {
		if found[i].problem != "" && version(&found[i]) != nil {
			list = append(list, &found[i])
		}
	}
	slices.SortFunc(list, func(a, b *seenRow) int { return strings.Compare(a.oldest, b.oldest) })
	type sum struct {
		win, requests int64
		newest        string
	}
	sums := make(map[string]*sum)
	for _, r := range list {
		v := version(r)
		p, all := by[r.problem], sums[r.problem]
		if p == nil {
			p, all = &Problem{Problem: r.problem, Service: r.service, Environment: r.environment, Gone: true}, new(sum)
			p.First, _ = stamp(r.oldest)
			by[r.problem], sums[r.problem] = p, all
		}
		p.Versions = append(p.Versions, r.version)
		p.Recordings = rows.AddClamped(p.Recordings, r.n)
		if p.Gone && !v.Replaced { // of here on only what is still served counts
			p.Gone, p.Pods, p.WinPerSecond, p.RequestsEvery, *all = false, 0, 0, 0, sum{newest: all.newest}
		}
		all.newest = max(all.newest, r.newest)
		if !p.Gone && v.Replaced {
			continue
		}
		p.Pods = rows.AddClamped(p.Pods, r.pods)
		all.win = rows.AddClamped(all.win, r.ns)
		all.requests = rows.AddClamped(all.requests, r.requests)
		if v.RecordedNS > 0 {
			p.WinPerSecond += float64(r.ns) / float64(v.RecordedNS) * float64(v.Pods)
			p.RequestsEvery += 1e9 * float64(r.requests) / float64(v.RecordedNS) * float64(v.Pods)
		}
	}
	out := make([]Problem, 0, len(by))
	for id, p := range by {
		p.Last, p.Recording = stamp(sums[id].newest)
		p.GainNS = sums[id].win / max(1, sums[id].requests)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Problem) int {
		if a.Gone != b.Gone {
			return map[bool]int{true: 1, false: -1}[a.Gone]
		}
		return cmp.Or(cmp.Compare(b.WinPerSecond, a.WinPerSecond), b.Last.Compare(a.Last), strings.Compare(a.Problem, b.Problem))
	})
	out = out[:min(len(out), maxProblems)]
	return out, s.describe(ctx, out)
}

// describe adds to problems what they are.
func (s *Store) describe(ctx context.Context, list []Problem) error {
	if len(list) == 0 {
		return nil
	}
	at, ids := make(map[string]int), make([]string, len(list))
	for i, p := range list {
		at[p.Problem], ids[i] = i, p.Problem
	}
	which, args := among("problem", ids)
	return eachRow(ctx, s.q, func(scan func(...any) error) error {
		var p Problem
		if err := scan(&p.Problem, &p.Group, &p.Code, &p.Cause, &p.Site, &p.Severity, &p.Title, &p.Fix); err != nil {
			return err
		}
		to := &list[at[p.Problem]]
		if p.Code == rows.OtherLabel { // of all environments
			to.Environment = ""
		}
		to.Group, to.Code, to.Cause, to.Site, to.Severity, to.Title, to.Fix = p.Group, p.Code, p.Cause, p.Site, p.Severity, p.Title, p.Fix
		return nil
	}, `SELECT problem, grp, code, cause, site, severity, title, fix FROM `+s.from("problems")+` WHERE `+which, args...)
}

// quantiles adds to versions how long requests took.
func (s *Store) quantiles(ctx context.Context, in Range, version func(service, environment, version string) *Version) error {
	where, args := s.where("days", in, day)
	type bucket struct{ upper, n int64 }
	of := make(map[*Version][]bucket)
	err := eachRow(ctx, s.q, func(scan func(...any) error) error {
		var service, environment, name string
		var b bucket
		if err := scan(&service, &environment, &name, &b.upper, &b.n); err != nil {
			return err
		}
		if v := version(service, environment, name); v != nil {
			of[v] = append(of[v], b)
			v.Requests = rows.AddClamped(v.Requests, b.n)
		}
		return nil
	}, `SELECT service, environment, version, bucket, `+s.sum("n")+` FROM `+s.from("days")+` WHERE cause='' AND `+where+` GROUP BY service, environment, version, bucket ORDER BY bucket`, args...)
	for v, buckets := range of {
		upto := int64(0)
		for _, b := range buckets {
			upto = rows.AddClamped(upto, b.n)
			if v.P50NS == 0 && upto >= v.Requests-upto {
				v.P50NS = b.upper
			}
			if v.P99NS == 0 && float64(upto)*100 >= float64(v.Requests)*99 {
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

// Series returns what requests of a service spent their time on, over time, by version.
func (s *Store) Series(ctx context.Context, in Range, step time.Duration) ([]Point, error) {
	from := "costs"
	if step >= day {
		from = "days"
	}
	where, args := s.where(from, in, step)
	return collect(ctx, s.q, func(scan func(...any) error) (p Point, err error) {
		var at int64
		err = scan(&at, &p.Version, &p.Cause, &p.Requests, &p.NS)
		p.Start = time.Unix(at*int64(step/time.Second), 0)
		return p, err
	}, `SELECT `+s.div("minute")+` AS at, version, cause, `+s.sum("n")+`, `+s.sum("ns")+` FROM `+s.from(from)+` WHERE `+where+` GROUP BY at, version, cause ORDER BY at, version, cause`,
		append([]any{int64(step / time.Second)}, args...)...)
}

// from names the rows that count: costs are sums of all groups and buckets. ClickHouse leaves out with FINAL what newer rows replaced; in a view, 18.16 would read all rows
// whatever the question is about.
func (s *databases) from(table string) string {
	if s.click == nil {
		return strings.Replace(table, "costs", "sums", 1)
	}
	const sums = `sums.version AS version, sums.environment AS environment, sums.cause AS cause, sums.bucket AS bucket, sums.n AS n, sums.ns AS ns`
	return map[string]string{
		"problems": `problems_rows FINAL`,
		"sums":     `explained_rows FINAL ARRAY JOIN sums.grp AS grp, sums.cause AS cause, sums.bucket AS bucket, sums.n AS n, sums.ns AS ns`,
		"costs":    `explained_rows FINAL ARRAY JOIN costs.cause AS cause, costs.n AS n, costs.ns AS ns`,
		"found":    `explained_rows FINAL ARRAY JOIN found.problem AS problem, found.requests AS requests, found.ns AS ns`,
		"slow": `explained_rows FINAL ARRAY JOIN slow.request AS request, slow.grp AS grp, slow.moment AS moment, slow.ns AS ns, slow.cause AS cause, slow.site AS site,
			slow.trace AS trace`,
		"hours": `hours_rows FINAL ARRAY JOIN ` + sums,
		"days":  `days_rows FINAL ARRAY JOIN ` + sums,
		"seen": `found_rows FINAL ARRAY JOIN found.version AS version, found.environment AS environment, found.problem AS problem, found.n AS n, found.requests AS requests,
			found.ns AS ns, found.oldest AS oldest, found.newest AS newest, found.pods AS pods`,
	}[table]
}

// sum is the sum of a column, at most rows.MaxSum. SQLite's own fails beyond 64 bits, and ClickHouse's begins again below 0.
func (s *databases) sum(column string) string {
	if s.click != nil {
		return fmt.Sprintf("greatest(toInt64(0), if(sum(toFloat64(%[1]s))>=%[2]d, toInt64(%[2]d), sum(%[1]s)))", column, int64(rows.MaxSum))
	}
	return fmt.Sprintf("CAST(max(0, min(total(%s), %d)) AS INTEGER)", column, int64(rows.MaxSum))
}

// div is a division of whole numbers, which both engines write differently.
func (s *databases) div(column string) string {
	if s.click != nil {
		return "intDiv(" + column + ", ?)"
	}
	return column + " / ?"
}

// A Pod is a pod of a service and what its requests took.
type Pod struct {
	Pod      string           `json:"pod"`
	Node     string           `json:"node"`
	Version  string           `json:"version"`
	Requests int64            `json:"requests"`
	NS       map[string]int64 `json:"ns" doc:"by cause"`
}

// Pods returns the pods of a service.
func (s *Store) Pods(ctx context.Context, in Range) ([]Pod, error) {
	where, args := s.where("costs", in, time.Minute)
	type key struct{ pod, node, version string }
	at := make(map[key]int)
	var out []Pod
	err := eachRow(ctx, s.q, func(scan func(...any) error) error {
		var k key
		var cause string
		var n, ns int64
		if err := scan(&k.pod, &k.node, &k.version, &cause, &n, &ns); err != nil {
			return err
		}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, Pod{Pod: k.pod, Node: k.node, Version: k.version, NS: make(map[string]int64)})
		}
		out[i].Requests = rows.AddClamped(out[i].Requests, n)
		if cause != "" {
			out[i].NS[cause] = rows.AddClamped(out[i].NS[cause], ns)
		}
		return nil
	}, `SELECT pod, node, version, cause, `+s.sum("n")+`, `+s.sum("ns")+` FROM `+s.from("costs")+` WHERE `+where+` GROUP BY pod, node, version, cause ORDER BY pod, node, version, cause`, args...)
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
	At          time.Time `json:"at"`
	NS          int64     `json:"ns"`
	Cause       string    `json:"cause" doc:"of its longest segment"`
	Site        string    `json:"site"`
	Trace       string    `json:"trace"`
}

// Moments returns the slowest requests of a range, or those of a trace.
func (s *Store) Moments(ctx context.Context, in Range, trace string, most int) ([]Moment, error) {
	q, args := "moment>=? AND moment<?", []any{in.From.UnixNano(), in.To.UnixNano()}
	if s.click != nil { // by its key: no recording is as long as that
		q, args = q+" AND received>=?", append(args, in.From.Add(-time.Hour).UnixNano())
	}
	for _, c := range []struct{ column, value string }{{"service", in.Service}, {"environment", in.Environment}, {"trace", trace}} {
		if c.value != "" {
			q, args = q+" AND "+c.column+"=?", append(args, c.value)
		}
	}
	return collect(ctx, s.q, func(scan func(...any) error) (m Moment, err error) {
		var at int64
		err = scan(&m.Recording, &m.Request, &m.Service, &m.Environment, &m.Version, &m.Pod, &m.Node, &m.Group, &at, &m.NS, &m.Cause, &m.Site, &m.Trace)
		m.At = time.Unix(0, at)
		return m, err
	}, `SELECT recording, request, service, environment, version, pod, node, grp, moment, ns, cause, site, trace FROM `+s.from("slow")+` WHERE `+q+` ORDER BY ns DESC LIMIT `+strconv.Itoa(most), args...)
}

// EachSum calls a function with what all recordings together sum up to.
func (s *Store) EachSum(ctx context.Context, each func(group, cause string, bucket, n, ns int64)) error {
	return eachRow(ctx, s.q, func(scan func(...any) error) error {
		var group, cause string
		var bucket, n, ns int64
		if err := scan(&group, &cause, &bucket, &n, &ns); err != nil {
			return err
		}
		each(group, cause, bucket, n, ns)
		return nil
	}, `SELECT grp, cause, bucket, `+s.sum("n")+`, `+s.sum("ns")+` FROM `+s.from("sums")+` GROUP BY grp, cause, bucket`)
}
