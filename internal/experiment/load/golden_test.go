package load

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

var update = flag.Bool("update", false, "write the golden files")

// TestText compares the text of results with all parts and with the fewest parts with golden files.
func TestText(t *testing.T) {
	var b bytes.Buffer
	write := func(title string, r *Result) {
		fmt.Fprintf(&b, "-- %s\n", title)
		must.Do(t, WriteText(&b, r, "http://h/\x1b"))
		must.Do(t, WriteBench(&b, r, "/a b\tc\x7f"))
	}
	full := &Result{Arrivals: Poisson, DurationNS: 10e9, Requests: 100, Errors: 3, Dropped: 2, RequestedPerS: 10.25, AchievedPerS: 9.71, Valid: false,
		Intended: Percentiles{1e6, 2e6, 3e6, 4e6, 5e6}, Service: Percentiles{6e5, 7e5, 8e5, 9e5, 1e6}, Lateness: Percentiles{1, 2, 3, 4, 5},
		Phases:   []PhaseResult{{FromPerS: 5, ToPerS: 5, Intended: Percentiles{1, 1, 1, 1, 1}}, {FromPerS: 5, ToPerS: 20.5, Intended: Percentiles{2, 2, 2, 2, 2}}},
		Targets:  []TargetResult{{Name: "GET /\x1b", Requests: 7, Intended: Percentiles{3, 3, 3, 3, 3}}},
		Reasons:  []Reason{{"refused \x1b", 2}, {"reset", 1}},
		Warnings: []Warning{{"few", "text \x1b"}}, intended: newHistogram(), answered: 97}
	for i := range int64(97) {
		recordValue(full.intended, (i+1)*1e5)
	}
	write("all", full)
	closed := &Result{Loop: "closed", Clients: 4, DurationNS: 5e8, Valid: true, AchievedPerS: 1e5, intended: newHistogram(), answered: 19}
	write("closed, too few for a spectrum", closed)
	closed.answered = 20
	for range 20 {
		recordValue(closed.intended, 1e6)
	}
	write("just enough", closed)
	check.False(t, bytes.ContainsRune(b.Bytes(), '\x1b'), "a control character came through")
	must.Golden(t, *update, "testdata/text.txt", b.Bytes())
	check.True(t, WriteText(failingWriter{}, full, "") != nil && WriteBench(failingWriter{}, full, "") != nil && WriteHDR(failingWriter{}, full) != nil,
		"a failed write is no error")
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

// TestReasons: errors of the same kind have one text.
func TestReasons(t *testing.T) {
	op := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	wrapped := func(err error) error { return &url.Error{Op: "Get", URL: "http://10.0.0.1:1234/", Err: op(err)} }
	for _, c := range []struct {
		err  error
		want string
	}{
		{context.DeadlineExceeded, "no answer within the time-out"}, {wrapped(context.DeadlineExceeded), "no answer within the time-out"}, {wrapped(os.ErrDeadlineExceeded), "no answer within the time-out"},
		{wrapped(syscall.ECONNREFUSED), "connection refused"}, {op(syscall.ECONNRESET), "connection reset by the server"}, {op(syscall.EPIPE), "connection reset by the server"},
		{io.EOF, "connection closed by the server"}, {wrapped(io.ErrUnexpectedEOF), "connection closed by the server"},
		{op(syscall.EMFILE), "no more open files for this process: raise the limit (ulimit -n) or lower --max-in-flight"}, {op(syscall.ENFILE), "no more open files for this process: raise the limit (ulimit -n) or lower --max-in-flight"},
		{op(syscall.EADDRNOTAVAIL), "no free local port: reuse connections"}, {wrapped(&net.DNSError{Name: "nowhere"}), "no such host: nowhere"},
		{wrapped(errors.New("a\n b")), "a b"}, {errors.New(strings.Repeat("x", 201)), strings.Repeat("x", 200)}, {errors.New("status 500"), "status 500"},
	} {
		check.Equal(t, errorText(c.err), c.want, "%v", c.err)
	}
}

// TestTargetFields: each field of a target's line, and the ends of its range.
func TestTargetFields(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "b"), []byte("body"), 0o600))
	for line, want := range map[string]string{
		"http://h/x": "GET http://h/x 1 ", "1 http://h/": "GET http://h/ 1 ", "1000000 PUT http://h/": "PUT http://h/ 1000000 ", "http://h/ @b": "POST http://h/ 1 body", "PATCH /y @" + filepath.Join(dir, "b"): "PATCH http://base/y 1 body",
		"1000001 http://h/": "a weight of 1000001: give 1 to 1000000", "-1 http://h/": "a weight of -1: give 1 to 1000000", "GET GET http://h/": "write [WEIGHT] [METHOD] URL [@BODYFILE]", "7": "write [WEIGHT] [METHOD] URL [@BODYFILE]", "/%zz": "the path /%zz is not valid",
	} {
		target, err := parseTarget(strings.Fields(line), "http://base/", dir)
		got := fmt.Sprintf("%s %s %d %s", target.method(), target.URL, target.Weight, target.Body)
		if err != nil {
			got = err.Error()
		}
		check.Equal(t, got, want, "%s", line)
	}
	if _, err := parseTarget([]string{"/x"}, "http://%zz", dir); err == nil || !strings.Contains(err.Error(), "the service's URL is not valid") {
		t.Errorf("a base that is none: %v", err)
	}
	for n, ok := range map[int]bool{maxTargets: true, maxTargets + 1: false} {
		list, err := ReadTargets(strings.NewReader(strings.Repeat("http://h/\n", n)), "", dir)
		if (err == nil) != ok || ok && len(list) != n || !ok && !strings.HasPrefix(err.Error(), fmt.Sprintf("line %d: there are more than %d", n, maxTargets)) {
			t.Errorf("%d targets: %d, %v", n, len(list), err)
		}
	}
	if _, err := ReadTargets(strings.NewReader(strings.Repeat("x", 2<<20)), "", dir); err == nil || !strings.HasPrefix(err.Error(), "reading targets") {
		t.Errorf("a line of two megabytes: %v", err)
	}
	f := must.Have(os.Create(filepath.Join(dir, "large")))(t)
	defer f.Close()
	for size, ok := range map[int64]bool{maxBody: true, maxBody + 1: false} {
		must.Do(t, f.Truncate(size))
		if b, err := ReadBody(f.Name()); (err == nil) != ok || ok && int64(len(b)) != size {
			t.Errorf("a body of %d bytes: %v", size, err)
		}
	}
	for target, want := range map[*Target]string{{Name: "n", URL: "http://h/x"}: "n", {URL: "http://h/a%20b", Method: "PUT"}: "PUT /a%20b", {URL: "http://%zz"}: "GET"} {
		check.Equal(t, target.name(), want, "%+v is called", target)
	}
}

// TestRates: the ends of the ranges of rates and schedules, and the requests of a ramp over time.
func TestRates(t *testing.T) {
	steps := func(n int) string { return strings.TrimSuffix(strings.Repeat("1,", n), ",") }
	for s, ok := range map[string]bool{"0.001": true, fmt.Sprint(MaxRate): true, fmt.Sprint(MaxRate + 1): false, steps(maxPhases): true, steps(maxPhases + 1): false, "1..2..3": false, " 1 , 2 ": true} {
		if _, err := ParseRate(s, time.Second); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
	for d, ok := range map[time.Duration]bool{1: true, MaxDuration: true, MaxDuration + 1: false, 0: false} {
		if _, err := ParseRate("1", d); (err == nil) != ok {
			t.Errorf("for %v: %v", d, err)
		}
	}
	for _, p := range [][]Phase{{{0, 1, 1}}, {{1, 0, 1}}, {{1, 1, 0}}, {{1, 1, -1}}, {{1, 1, MaxDuration}, {1, 1, 1}}, {{MaxRate, MaxRate, 10*time.Second + time.Microsecond}}, nil} {
		if _, err := NewSchedule(p, Constant, 1, nil); err == nil {
			t.Errorf("%v makes sense", p)
		}
	}
	if s, err := NewSchedule([]Phase{{1e-3, 1e-3, MaxDuration}}, Constant, 1, nil); err != nil || s.Len() != 4 {
		t.Errorf("%v, %v", s, err)
	}
	for _, c := range []struct {
		p        Phase
		n, after float64
	}{{Phase{10, 10, 2 * time.Second}, 5, 0.5}, {Phase{10, 10, 2 * time.Second}, 20, 2}, {Phase{10, 10, 2 * time.Second}, 99, 2}, {Phase{10, 30, 2 * time.Second}, 15, 1}, {Phase{30, 10, 2 * time.Second}, 25, 1}, {Phase{10, 30, 2 * time.Second}, 40, 2}, {Phase{}, 0, 0}} {
		if got := c.p.timeOf(c.n); got < c.after-1e-9 || got > c.after+1e-9 {
			t.Errorf("%v: %v requests after %v s, want %v", c.p, c.n, got, c.after)
		}
	}
	var b strings.Builder
	s := must.Have(NewSchedule([]Phase{{2, 4, 2 * time.Second}, {5, 5, time.Second}}, Constant, 1, []int{1, 2}))(t)
	for i := range s.Len() {
		fmt.Fprintf(&b, " %.0f/%d", float64(s.dueTimes[i])/1e6, s.targets[i])
	}
	check.Equal(t, b.String(), " 0/1 449/1 828/1 1162/1 1464/0 1742/0 2000/1 2200/1 2400/0 2600/0 2800/1", "due")
	for _, w := range [][]int{nil, {5}, {0, 0}} {
		for _, target := range drawTargets(50, w, newRandom(1)) {
			check.True(t, target == 0, "of %v target %d is drawn", w, target)
		}
	}
	counts := map[uint16]int{}
	for _, target := range drawTargets(7000, []int{1, 2, 4}, newRandom(1)) {
		counts[target]++
	}
	check.True(t, counts[0] >= 900 && counts[0] <= 1100 && counts[1] >= 1900 && counts[1] <= 2100 && counts[0]+counts[1]+counts[2] == 7000,
		"drawn are %v", counts)
}

// TestPacer: in a synctest bubble a pacer waits exactly until the due time, with every pace, and stops
// when its context ends.
func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(PaceTimer)
		for _, d := range []time.Duration{-time.Second, 0, 1, time.Millisecond, maxSleep, maxSleep + 1, time.Hour} {
			begin := time.Now()
			check.True(t, p.waitUntil(t.Context(), begin.Add(d)) && time.Since(begin) == max(0, d), "%v after %v", time.Since(begin), d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if p.waitUntil(ctx, begin.Add(time.Minute)) || time.Since(begin) != time.Second || p.waitUntil(ctx, begin) {
			t.Errorf("after its context ended it waited %v", time.Since(begin))
		}
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, pace := range []Pace{PaceSleep, PaceSpin} {
		p := newPacer(pace)
		begin := time.Now()
		if !p.waitUntil(t.Context(), begin.Add(3*time.Millisecond)) || time.Since(begin) < 3*time.Millisecond || (p.spinTime > 0) != (pace == PaceSpin) && pace == PaceSleep || p.spinTime > time.Since(begin) {
			t.Errorf("%s: %v, spun for %v", pace, time.Since(begin), p.spinTime)
		}
		if p.waitUntil(ended, time.Now().Add(time.Hour)) || p.waitUntil(ended, time.Now()) || p.waitUntil(ended, time.Now().Add(time.Millisecond)) {
			t.Errorf("%s: it is due although its context has ended", pace)
		}
	}
}

// TestRecorders: a failed request has no latency, a timed-out one has, kinds of errors are bounded,
// and a merge adds all counters.
func TestRecorders(t *testing.T) {
	samples := []struct {
		s           Sample
		half, phase int
	}{
		{Sample{Target: 0, Due: 10, Start: 12, End: 30, Lateness: 2, Status: 200}, 0, 0}, {Sample{Target: 1, Due: 20, Start: 20, End: 25, Status: 200}, 1, 1},
		{Sample{Target: 1, Due: 30, Start: 31, End: 90, Status: 500, Err: errors.New("status 500")}, 1, 1}, {Sample{Target: 0, Due: 40, Start: 40, End: 1040, Err: context.DeadlineExceeded, TimedOut: true}, 1, 1},
	}
	summary := func(r *recorder) string {
		part := func(h []*hdr.Histogram) (n []int64) {
			for _, h := range h {
				if h == nil {
					n = append(n, -1)
				} else {
					n = append(n, h.TotalCount())
				}
			}
			return n
		}
		return fmt.Sprintf("sent %d answered %d failed %d timed out %d last %d status %v errs %v targets %v %v; latency %d to %d of %d, service %d, late %d, halves %d %d, phases %v targets %v", r.sent, r.answered, r.failed, r.timedOut, r.lastEnd, r.statusCounts, r.errorCounts,
			r.targetCounts, r.targetErrors, r.intended.Min(), r.intended.Max(), r.intended.TotalCount(), r.service.Max(), r.lateness.Max(), r.halves[0].TotalCount(), r.halves[1].TotalCount(), part(r.phases), part(r.targets))
	}
	whole, a, b := newRecorder(2, 2), newRecorder(2, 2), newRecorder(2, 2)
	for i, s := range samples {
		whole.add(&s.s, s.half, s.phase)
		[]*recorder{a, b}[i/2].add(&s.s, s.half, s.phase)
	}
	const want = "sent 4 answered 2 failed 2 timed out 1 last 30 status map[200:2 500:1] errs map[no answer within the time-out:1 status 500:1] targets [2 2] [1 1]; latency 5 to 1000 of 3, service 1000, late 2, halves 1 2, phases [1 2] targets [2 1]"
	if got := summary(whole); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	a.merge(b)
	check.Equal(t, summary(a), want, "merged")
	if b = newRecorder(2, 2); summary(b) == "" || b.phases[0] != nil {
		t.Error(summary(b))
	}
	b.merge(whole)
	check.Equal(t, summary(b), want, "merged into an empty one")
	one := newRecorder(1, 1)
	for i := range maxErrorKinds + 3 {
		one.add(&Sample{Err: fmt.Errorf("error %d", i)}, 0, 0)
	}
	one.add(&Sample{Err: errors.New("error 0")}, 0, 0)
	if len(one.errorCounts) != maxErrorKinds+1 || one.errorCounts["other errors"] != 3 || one.errorCounts["error 0"] != 2 || one.phases != nil || one.targets != nil {
		t.Errorf("%v", one.errorCounts)
	}
}
