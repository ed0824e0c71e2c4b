package store

import (
	"encoding/json"
	"flag"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

var update = flag.Bool("update", false, "rewrite testdata/queries.txt")

// TestQueries: testdata/queries.txt has the answers to all queries about twelve recordings of two services.
func TestQueries(t *testing.T) {
	defer func(l *time.Location) { time.Local = l }(time.Local)
	time.Local = time.UTC
	s, begin := openTestStore(t), time.Date(2026, 5, 4, 18, 0, 0, 0, time.UTC)
	for i := range 12 {
		n := int64(i)
		l := rows.Labels{Service: []string{"bank", "shop", "shop"}[i%3], Version: fmt.Sprint("v", 1+i/6), Environment: []string{"live", "test"}[i/2%2], Pod: fmt.Sprint("p", i%4), Node: fmt.Sprint("n", i%2)}
		r := &rows.Rows{Start: begin.Add(time.Duration(i) * 40 * time.Minute), DurationNS: 1e9, Requests: 10 + n, Cause: "lock", Headroom: rows.Headroom{Times: float64(i), Limit: "cpu"},
			Sums: []rows.Sum{{Group: "GET /", Bucket: 1000, N: 9 + n}, {Group: "GET /", Bucket: 9000, N: 1}, {Group: "GET /", Cause: "lock", Bucket: 1000, NS: 5000 + n}, {Group: "GET /", Cause: "cpu", Bucket: 9000, NS: 100}}}
		for k, problem := range []string{"always", "v1 only", "v2 only"} {
			if k == 0 || k == 1+i/6 {
				r.Findings = append(r.Findings, rows.Finding{Problem: l.Service + " " + l.Environment + " " + problem, Group: "GET /", Code: "WL2001", Cause: "lock", Severity: "high", Title: fmt.Sprint("title ", i), Site: "f", Fix: "fix", Requests: 10 + n, WinNS: 1e6 * (1 + n)})
			}
		}
		for k, trace := range []string{"abc", ""} {
			r.SlowRequests = append(r.SlowRequests, rows.SlowRequest{Request: fmt.Sprint("r", k), Group: "GET /", Cause: "lock", Site: "f", Trace: trace, Start: r.Start.Add(time.Duration(k) * time.Second), NS: 9000 - n*int64(1-2*k)})
		}
		addExplained(t, s, fmt.Sprint(i), l, r)
	}
	var got strings.Builder
	write := func(name string, list any, err error) {
		must.Do(t, err, name)
		fmt.Fprintln(&got, name)
		for v, i := reflect.ValueOf(list), 0; i < v.Len(); i++ {
			fmt.Fprintf(&got, "\t%s\n", must.Have(json.Marshal(v.Index(i).Interface()))(t))
		}
	}
	ctx, end := t.Context(), begin.Add(24*time.Hour)
	for _, sel := range []Selection{{From: begin, To: end}, {From: begin.Add(3 * time.Hour), To: begin.Add(7 * time.Hour), Service: "shop"}, {From: begin, To: begin.Add(6 * time.Hour), Environment: "live"}} {
		fmt.Fprintf(&got, "\n%s to %s, service %q, environment %q\n", sel.From, sel.To, sel.Service, sel.Environment)
		problems, versions, err := s.Overview(ctx, sel)
		write("findings", problems, err)
		write("versions", versions, err)
		for _, step := range []time.Duration{time.Hour, day} {
			points, err := s.Series(ctx, sel, step)
			write(fmt.Sprint("series ", step), points, err)
		}
		pods, err := s.Pods(ctx, sel)
		write("pods", pods, err)
		for _, trace := range []string{"", "abc"} {
			moments, err := s.Moments(ctx, sel, trace, 3)
			write("moments "+trace, moments, err)
		}
		for _, problem := range []string{"shop live always", "bank test v1 only"} {
			p, sightings, err := s.Finding(ctx, sel, problem)
			write("finding "+problem, []*Problem{p}, err)
			write("sightings", sightings, err)
		}
	}
	for _, environment := range []string{"", "live"} {
		list, err := s.NewestRecordings(ctx, "shop", "v1", environment, 3)
		write("recordings of shop v1 "+environment, list, err)
	}
	must.Golden(t, *update, "testdata/queries.txt", []byte(got.String()))
}

// TestOutbox: a message is claimed when it is due, the first first, and hidden until it is due again; marks are replaced.
func TestOutbox(t *testing.T) {
	s, ctx, now := openTestStore(t), t.Context(), time.Now()
	mark := Mark{"seen", time.Unix(5, 0)}
	messages := []Message{{ID: "late", Body: []byte("l"), Created: now.Add(time.Minute)}, {ID: "early", Body: []byte("e"), Created: now}}
	for range 2 {
		must.Do(t, s.SaveMarks(ctx, map[string]Mark{"k": mark}, messages))
		mark.State = "gone"
	}
	marks := must.Have(s.Marks(ctx, []string{"k", "none"}))(t)
	check.True(t, len(marks) == 1 && marks["k"] == Mark{"gone", time.Unix(5, 0)}, "%v", marks)
	check.Equal(t, len(must.Have(s.Marks(ctx, nil))(t)), 0, "marks without keys")
	claim := func(after time.Duration) *Message {
		return must.Have(s.ClaimMessage(ctx, now.Add(after), now.Add(time.Hour)))(t)
	}
	check.True(t, claim(-1) == nil, "a message is claimed before it is due")
	first, second := claim(2*time.Minute), claim(2*time.Minute)
	must.True(t, first != nil && second != nil && claim(2*time.Minute) == nil, "%+v, %+v", first, second)
	check.True(t, first.ID == "early" && string(first.Body) == "e" && first.Tries == 1 && first.Created.Equal(time.Unix(0, now.UnixNano())) && second.ID == "late", "%+v, %+v", first, second)
	must.Do(t, s.RetryMessage(ctx, first, now.Add(3*time.Minute)))
	again := claim(3 * time.Minute)
	must.True(t, again != nil && again.ID == "early" && again.Tries == 2, "%+v", again)
	must.Do(t, s.RemoveMessage(ctx, again))
	check.Equal(t, must.Have(s.CountUnsent(ctx))(t), 1, "messages")
}

// TestQueueCounts: which recordings count as waiting, known and poison.
func TestQueueCounts(t *testing.T) {
	s, ctx, now := openTestStore(t), t.Context(), time.Now()
	for i, id := range []string{"a", "b", "c", "d"} {
		must.Do(t, s.AddRecording(ctx, Recording{ID: id, Labels: rows.Labels{Service: "shop"}, Received: now.Add(time.Duration(i))}))
	}
	for i := range 2 {
		r := must.Have(s.Claim(ctx, now, time.Minute))(t)
		must.Do(t, s.Fail(ctx, r, true, strings.Repeat("x", 1000+i)))
	}
	must.Have(s.Claim(ctx, now, time.Minute))(t)
	list := must.Have(s.PoisonRecordings(ctx, 1))(t)
	check.True(t, len(list) == 1 && list[0].ID == "b" && len(list[0].Error) == 1000, "%+v", list)
	check.Equal(t, must.Have(s.CountQueued(ctx, "shop"))(t), 2, "queued")
	check.Equal(t, must.Have(s.CountQueued(ctx, "bank"))(t), 0, "queued of another service")
	check.True(t, must.Have(s.IsKnown(ctx, "a"))(t) && !must.Have(s.IsKnown(ctx, "e"))(t), "known")
}
