package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/outgoing"
	"github.com/whylate/whylate/fleet/internal/policy"
	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // the example of the specification

// A receiver answers with its statuses in turn, then with 204, and keeps requests and bodies.
type receiver struct {
	*httptest.Server
	statuses []int
	requests []*http.Request
	bodies   [][]byte
}

func newReceiver(t *testing.T, statuses ...int) *receiver {
	r := &receiver{statuses: statuses}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		r.requests, r.bodies = append(r.requests, q), append(r.bodies, body)
		status := 204
		if len(r.statuses) > 0 {
			status, r.statuses = r.statuses[0], r.statuses[1:]
		}
		w.Header().Set("Location", r.URL+"/elsewhere")
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

func newNotifier(t *testing.T, receiverURL string) *Notifier {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), filepath.Join(dir, "fleet.db"), "")
	must.Do(t, err)
	t.Cleanup(func() { _ = st.Close() })
	file := filepath.Join(dir, "secrets")
	must.Do(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	secrets, err := ReadSecrets(file)
	must.Do(t, err)
	allowed, err := outgoing.ParseRanges("127.0.0.0/8")
	must.Do(t, err)
	return &Notifier{Store: st, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: metrics.New(st), ReceiverURL: receiverURL, Secrets: secrets, PublicURL: "https://fleet.example.com/", AllowedRanges: allowed,
		Compare: func(context.Context, string, string, string, string) (*compare.Diff, error) {
			return new(compare.Diff), nil
		}}
}

var recordingNumber int

// addRecording adds an explained recording, with a finding if title is not empty.
func (n *Notifier) addRecording(t *testing.T, received time.Time, version, title string) {
	t.Helper()
	recordingNumber++
	id := fmt.Sprintf("%032x", recordingNumber)
	if err := n.Store.AddRecording(t.Context(), store.Recording{ID: id, Labels: rows.Labels{Service: "shop", Version: version, Pod: "p"}, Received: received}); err != nil {
		t.Fatal(err)
	}
	r, err := n.Store.Claim(t.Context(), received, time.Minute)
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	out := &rows.Rows{Start: received, DurationNS: 1e9, Requests: 10}
	if title != "" {
		out.Findings = []rows.Finding{{Problem: title, Group: "GET /", Code: "WL2002", Cause: "lock", Severity: "high", Title: title, Requests: 10, WinNS: 1e8}}
	}
	if _, err := n.Store.Finish(t.Context(), r, out); err != nil {
		t.Fatal(err)
	}
}

// checkAndDeliver runs a check, delivers all due messages, and returns their events.
func (n *Notifier) checkAndDeliver(t *testing.T, r *receiver, clock time.Time) (out []string) {
	t.Helper()
	must.Do(t, n.EnqueueEvents(t.Context(), clock))
	first := len(r.bodies)
	for s := n.newSender(); ; {
		found := must.Have(s.deliverNext(t.Context(), clock))(t)
		if !found {
			break
		}
	}
	for _, body := range r.bodies[first:] {
		var e struct {
			Type string
			Data struct{ Problem, Version, URL string }
		}
		if err := json.Unmarshal(body, &e); err != nil {
			t.Error(err)
		}
		out = append(out, strings.TrimSpace(e.Type+" "+e.Data.Problem+" "+e.Data.Version))
	}
	return out
}

// TestFindingEvents: findings before the first check cause no event. A new finding causes one event, and one more when it comes
// back.
func TestFindingEvents(t *testing.T) {
	r := newReceiver(t)
	n := newNotifier(t, r.URL)
	clock := time.Now().Add(-5 * 24 * time.Hour).Truncate(time.Minute)
	n.addRecording(t, clock, "v1", "old")
	checkEvents := func(situation string, want ...string) {
		t.Helper()
		if got := n.checkAndDeliver(t, r, clock); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, want %q", situation, got, want)
		}
	}
	checkEvents("at first")
	n.addRecording(t, clock, "v1", "new")
	checkEvents("a new one", "finding.new new v1")
	n.addRecording(t, clock.Add(time.Second), "v1", "new")
	checkEvents("the same finding again")
	clock = clock.Add(10 * time.Minute)
	n.addRecording(t, clock, "v2", "")
	checkEvents("its version is replaced")
	n.addRecording(t, clock, "v2", "new")
	checkEvents("the finding is in the next version", "finding.back new v2")
	checkEvents("after that event")
	for range 4 { // checks without new recordings
		clock = clock.Add(8 * time.Hour)
		checkEvents("no recordings")
	}
	n.addRecording(t, clock, "v2", "new")
	checkEvents("after a day", "finding.back new v2")
	ids := make(map[string]bool)
	for _, q := range r.requests {
		ids[q.Header.Get("webhook-id")] = true
	}
	check.Equal(t, len(ids), 3, "ids of three events")
	clock = clock.Add(30 * time.Hour)
	n.addRecording(t, clock, "v2", "new")
	checkEvents("after a day without checks")
}

// TestMutedFinding: a muted finding causes no event. When its mute ends, it is a new finding.
func TestMutedFinding(t *testing.T) {
	r := newReceiver(t)
	n := newNotifier(t, r.URL)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	must.Do(t, os.WriteFile(file, []byte("mutes: [{service: shop, rule: WL2002, until: 2999-01-01, reason: known}]\n"), 0o600))
	n.Store.Policy = must.Have(policy.Open(file, n.Log))(t)
	clock := time.Now().Add(-time.Hour)
	n.addRecording(t, clock, "v1", "")
	check.Equal(t, len(n.checkAndDeliver(t, r, clock)), 0, "events of the first check")
	n.addRecording(t, clock, "v1", "muted")
	check.Equal(t, len(n.checkAndDeliver(t, r, clock)), 0, "events of a muted finding")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	check.Equal(t, strings.Join(n.checkAndDeliver(t, r, clock), ", "), "finding.new muted v1", "events after the mute")
}

// TestSlowerVersion: a version that is slower than the previous one causes one event, once it has enough recordings.
func TestSlowerVersion(t *testing.T) {
	r := newReceiver(t)
	n := newNotifier(t, r.URL)
	comparisons := 0
	ms := func(i int64) *int64 { i *= 1e6; return &i }
	slower := compare.Change{Old: ms(10), New: ms(20), Delta: ms(10), Low: ms(8), High: ms(12), Evidence: true}
	change := compare.Change{Old: ms(20), New: ms(10), Delta: ms(-10), Low: ms(-12), High: ms(-8), Evidence: true}
	n.Compare = func(_ context.Context, service, _, old, new string) (*compare.Diff, error) {
		if comparisons++; service != "shop" || old != "v1" || new != "v2" {
			t.Error(service, old, new)
		}
		return &compare.Diff{Groups: []compare.Group{{Name: "GET /", P50: change, P99: change}, {Name: "GET /cart", P50: change, P99: slower, Causes: []compare.Row{{Cause: "cpu", DeltaNS: -1}, {Cause: "lock", DeltaNS: 8e6, NewSite: &report.Site{Func: "main.f", File: "/src/main.go", Line: 7}}, {Cause: "gc", DeltaNS: 1}}}}}, nil
	}
	clock := time.Now().Add(-time.Hour)
	if got := n.checkAndDeliver(t, r, clock); len(got) > 0 {
		t.Error(got)
	}
	for i, want := range []string{"", "", "", "", "", "version.slower  v2", "", "", "", "", "", ""} {
		clock = clock.Add(time.Second)
		n.addRecording(t, clock, []string{"v1", "v2"}[min(i/3, 1)], "")
		check.Equal(t, strings.Join(n.checkAndDeliver(t, r, clock), ", "), want, "recording %d", i)
		if i == 5 { // from here on no comparison is expected
			slower = change
		}
	}
	check.True(t, comparisons == 1, "compared %d times", comparisons)
	var e struct{ Data Regression }
	if err := json.Unmarshal(r.bodies[0], &e); err != nil || len(e.Data.Groups) != 1 || e.Data.Groups[0].Cause != "lock" || e.Data.Groups[0].Site != "main.f (/src/main.go:7)" || e.Data.PreviousVersion != "v1" ||
		e.Data.URL != "https://fleet.example.com/compare?new=v2&old=v1&service=shop" {
		t.Errorf("%v %+v", err, e)
	}
}

// TestComparedVersions: versions are compared when both have enough recordings, and again when their number has doubled. A message
// names at most twenty groups. Versions from before the first check are not compared.
func TestComparedVersions(t *testing.T) {
	r := newReceiver(t)
	low := int64(1)
	for situation, c := range map[string]struct {
		before, after int // recordings of v2 at the first check, and then
		err           error
		change        compare.Change
		want          string
	}{
		"slower":               {0, 3, nil, compare.Change{Evidence: true, Low: &low}, "compared at 3, version.slower v2 of 20 groups"},
		"known at first":       {3, 12, nil, compare.Change{Evidence: true, Low: &low}, ""},
		"without evidence":     {0, 7, nil, compare.Change{Low: &low}, "compared at 3, compared at 6"},
		"without an interval":  {0, 3, nil, compare.Change{Evidence: true}, "compared at 3"},
		"reports were removed": {0, 12, errors.New("gone"), compare.Change{}, "compared at 3, compared at 6, compared at 12"},
	} {
		n, clock, recordings := newNotifier(t, r.URL), time.Now().Add(-time.Hour), 0
		var got []string
		n.Compare = func(context.Context, string, string, string, string) (*compare.Diff, error) {
			got = append(got, fmt.Sprint("compared at ", recordings))
			return &compare.Diff{Groups: slices.Repeat([]compare.Group{{P50: c.change}}, 21)}, c.err
		}
		add := func(version string) {
			clock = clock.Add(time.Second)
			n.addRecording(t, clock, version, "")
		}
		for range 3 {
			add("v1")
		}
		for recordings < c.after {
			if recordings == c.before {
				n.checkAndDeliver(t, r, clock)
			}
			add("v2")
			if recordings++; recordings > c.before {
				for _, event := range n.checkAndDeliver(t, r, clock) {
					var e struct{ Data Regression }
					must.Do(t, json.Unmarshal(r.bodies[len(r.bodies)-1], &e))
					got = append(got, fmt.Sprint(strings.Join(strings.Fields(event), " "), " of ", len(e.Data.Groups), " groups"))
				}
			}
		}
		check.Equal(t, strings.Join(got, ", "), c.want, "%s", situation)
	}
}

// TestPreviousVersion: only the newest version of a service and environment has a previous one.
func TestPreviousVersion(t *testing.T) {
	list := []store.Version{{Service: "a", Version: "2"}, {Service: "a", Version: "1"}, {Service: "a", Version: "0"}, {Service: "a", Environment: "live", Version: "3"}, {Service: "b", Version: "2"}, {Service: "b", Version: "1"}}
	for i, want := range []int{1, -1, -1, -1, 5, -1} {
		got := previousVersion(list, i)
		check.True(t, (got == nil) == (want < 0) && (got == nil || got == &list[want]), "%d: %+v", i, got)
	}
}

// TestRun: a notifier checks at its start, and delivers until its context ends.
func TestRun(t *testing.T) {
	delivered := make(chan bool, 1)
	r := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { delivered <- true }))
	defer r.Close()
	n := newNotifier(t, r.URL)
	must.Do(t, n.Store.SaveMarks(t.Context(), nil, []store.Message{{ID: "msg_1", Body: []byte(`{}`), Created: time.Now()}}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() { n.Run(ctx); close(ended) }()
	<-delivered
	for marks := 0; marks == 0; { // the time limit of the test ends the loop
		marks = len(must.Have(n.Store.Marks(t.Context(), []string{""}))(t))
	}
	stop()
	<-ended
}

// TestRetries: the wait after each try doubles twice up to maxWait, and the message is removed after the last try.
func TestRetries(t *testing.T) {
	r := newReceiver(t, slices.Repeat([]int{500}, maxTries)...)
	n := newNotifier(t, r.URL)
	clock := time.Now()
	must.Do(t, n.Store.SaveMarks(t.Context(), nil, []store.Message{{ID: "msg_1", Body: []byte(`{}`), Created: clock}}))
	s := n.newSender()
	for try := 1; try <= maxTries; try++ {
		must.True(t, must.Have(s.deliverNext(t.Context(), clock))(t), "try %d: there is no message", try)
		wait := min(5*time.Second*time.Duration(int64(1)<<(2*min(try-1, 20))), maxWait)
		next := must.Have(n.Store.ClaimMessage(t.Context(), clock.Add(wait-time.Millisecond), clock))(t)
		check.True(t, next == nil, "try %d: due before %v", try, wait)
		clock = clock.Add(wait + wait/4)
	}
	check.Equal(t, must.Have(n.Store.CountUnsent(t.Context()))(t), 0, "messages after the last try")
	for status, want := range map[int]bool{200: true, 204: true, 299: true, 300: false} {
		r.statuses = []int{status}
		check.Equal(t, s.post(t.Context(), "x", nil, clock) == nil, want, "status %d", status)
	}
}

// TestDelivery: a message is signed as the specification says. It is sent with the same id until the receiver accepts it, and
// redirects are not followed.
func TestDelivery(t *testing.T) {
	r := newReceiver(t, 500, 302, 410)
	n := newNotifier(t, r.URL)
	clock := time.Now()
	n.Secrets = append([]Secret{make([]byte, 32)}, n.Secrets...) // a new key in addition to the old one
	must.Do(t, n.Store.SaveMarks(t.Context(), nil, []store.Message{{ID: "msg_1", Body: []byte(`{"type":"x"}`), Created: clock}}))
	library, err := standard.NewWebhook(secret)
	must.Do(t, err)
	s := n.newSender()
	deliveryTime := clock
	for i := 1; i <= 4; i++ {
		if found, err := s.deliverNext(t.Context(), deliveryTime); !found || err != nil || len(r.requests) != i {
			t.Fatalf("delivery %d: %v %v, %d requests", i, found, err, len(r.requests))
		}
		if found, err := s.deliverNext(t.Context(), deliveryTime); found || err != nil {
			t.Errorf("at once: %v %v", found, err)
		}
		deliveryTime = deliveryTime.Add(10 * time.Minute)
	}
	if unsentCount, err := n.Store.CountUnsent(t.Context()); unsentCount != 0 || err != nil {
		t.Errorf("%d are left, %v", unsentCount, err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	must.Do(t, err)
	for i, q := range r.requests {
		check.True(t, q.URL.Path == "/" && q.Method == http.MethodPost && q.Header.Get("webhook-id") == "msg_1",
			"request %d: %s %s %v", i, q.Method, q.URL, q.Header)
		verify := library.VerifyIgnoringTimestamp
		if i == 0 {
			verify = library.Verify // which also checks the time
		}
		if err := verify(r.bodies[i], q.Header); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
		h := hmac.New(sha256.New, key) // computed as the text of the specification says
		h.Write([]byte("msg_1." + q.Header.Get("webhook-timestamp") + "." + string(r.bodies[i])))
		if want := "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil)); !strings.HasSuffix(q.Header.Get("webhook-signature"), " "+want) {
			t.Errorf("request %d is signed %s, want %s", i, q.Header.Get("webhook-signature"), want)
		}
		check.Error(t, verify([]byte(`{"type":"y"}`), q.Header), "another text has the same signature")
	}
	check.Equal(t, testutil.ToFloat64(n.Metrics.WebhookAttempts.WithLabelValues("failed")), 3, "failed")
}

// TestPrivateReceiver: a receiver at a private address that is not listed gets nothing, and the message is given up after all
// tries.
func TestPrivateReceiver(t *testing.T) {
	r := newReceiver(t)
	n := newNotifier(t, r.URL)
	n.AllowedRanges = nil
	clock := time.Now()
	must.Do(t, n.Store.SaveMarks(t.Context(), nil, []store.Message{{ID: "msg_1", Body: []byte(`{}`), Created: clock}}))
	s := n.newSender()
	for i := range maxTries {
		if found, err := s.deliverNext(t.Context(), clock); !found || err != nil {
			t.Fatalf("try %d: %v %v", i, found, err)
		}
		clock = clock.Add(2 * maxWait)
	}
	if found, err := s.deliverNext(t.Context(), clock); found || err != nil || len(r.requests) > 0 {
		t.Errorf("%v %v, asked %d times", found, err, len(r.requests))
	}
	if refused, givenUp := testutil.ToFloat64(n.Metrics.WebhookAttempts.WithLabelValues("refused")), testutil.ToFloat64(n.Metrics.WebhookAttempts.WithLabelValues("given-up")); refused != maxTries-1 || givenUp != 1 {
		t.Errorf("%v refused, %v given up", refused, givenUp)
	}
}

// TestFullOutbox: while the outbox is full, no mark is saved, so the event is sent when there is space.
func TestFullOutbox(t *testing.T) {
	r := newReceiver(t)
	n := newNotifier(t, r.URL)
	clock := time.Now().Add(-time.Hour)
	n.checkAndDeliver(t, r, clock)
	var list []store.Message
	for i := range maxUnsent {
		list = append(list, store.Message{ID: fmt.Sprint("msg_", i), Body: []byte(`{}`), Created: clock.Add(time.Hour)})
	}
	must.Do(t, n.Store.SaveMarks(t.Context(), nil, list))
	n.addRecording(t, clock, "v1", "new")
	if got := n.checkAndDeliver(t, r, clock); len(got) > 0 {
		t.Error(got)
	}
	must.Do(t, n.Store.RemoveMessage(t.Context(), &list[0]))
	if got := n.checkAndDeliver(t, r, clock); fmt.Sprint(got) != "[finding.new new v1]" {
		t.Error(got)
	}
}

func TestReadSecrets(t *testing.T) {
	for text, ok := range map[string]bool{secret: true, secret + "\n" + strings.TrimPrefix(secret, "whsec_") + "\n": true, "": false, "whsec_c2hvcnQ=": false, base64.StdEncoding.EncodeToString(make([]byte, 23)): false, base64.StdEncoding.EncodeToString(make([]byte, 24)): true, base64.StdEncoding.EncodeToString(make([]byte, 64)): true, base64.StdEncoding.EncodeToString(make([]byte, 65)): false, "whsec_???": false} {
		file := filepath.Join(t.TempDir(), "f")
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		if list, err := ReadSecrets(file); (err == nil) != ok {
			t.Errorf("%q: %d, %v", text, len(list), err)
		}
	}
}

// TestLogs: the operator learns from the log which webhooks fail, and that checks fail.
func TestLogs(t *testing.T) {
	r := newReceiver(t, slices.Repeat([]int{500}, maxTries)...)
	n := newNotifier(t, r.URL)
	logged := make(chan string, 100)
	n.Log = slog.New(slog.NewTextHandler(logWriter(logged), nil))
	clock := time.Now()
	must.Do(t, n.Store.SaveMarks(t.Context(), nil, []store.Message{{ID: "msg_1", Body: []byte(`{"type":"x"}`), Created: clock}}))
	s := n.newSender()
	for try := range maxTries {
		must.True(t, must.Have(s.deliverNext(t.Context(), clock))(t), "try %d", try+1)
		want := fmt.Sprintf(`msg="a webhook was not delivered" id=msg_1 try=%d again=`, try+1)
		if try == maxTries-1 {
			want = `msg="a webhook was given up" id=msg_1 event="{\"type\":\"x\"}" error="the receiver answered 500`
		}
		line := <-logged
		check.True(t, strings.Contains(line, want), "try %d: %s", try+1, line)
		clock = clock.Add(2 * maxWait)
	}
	must.Do(t, n.Store.Close())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() { n.Run(ctx); close(ended) }()
	for _, want := range []string{`msg="looking for what webhooks have to say"`, "msg=webhooks error"} {
		line := <-logged
		check.True(t, strings.Contains(line, want), "%s", line)
	}
	stop()
	<-ended
}

// A logWriter sends each line to a channel.
type logWriter chan<- string

func (l logWriter) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }
