package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
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
	must.Do(t, n.Store.AddRecording(t.Context(), store.Recording{ID: id, Labels: rows.Labels{Service: "shop", Version: version, Pod: "p"}, Received: received}))
	r, err := n.Store.Claim(t.Context(), received, time.Minute)
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	out := &rows.Rows{Start: received, DurationNS: 1e9, Requests: 10}
	if title != "" {
		out.Findings = []rows.Finding{{Problem: title, Group: "GET /", Code: "WL2002", Cause: "lock", Severity: "high", Title: title, Requests: 10, WinNS: 1e8}}
	}
	must.Have(n.Store.Finish(t.Context(), r, out))(t)
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
