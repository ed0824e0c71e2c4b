package server

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	"modernc.org/sqlite"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/capture/bundle"
)

const (
	maxBody  = 64 << 20  // as sent
	maxFile  = 256 << 20 // unpacked
	maxLabel = 128       // bytes
	maxMeta  = 1 << 20
	atOnce   = 64 // recordings being received
	ofOne    = 16 // of a service: slow senders must not hold up others
)

// Bounds are of each service.
type Bounds struct {
	Recordings int   // a minute
	Bytes      int64 // a minute, unpacked
	Queued     int   // that wait to be explained
	Room       int64 // bytes that are left free on the disk
}

// A limiter holds what one service may still send.
type limiter struct {
	recordings, bytes *rate.Limiter
	receiving         chan struct{}
}

type limiters struct {
	mu sync.Mutex
	of map[string]*limiter // of services with a token, so bounded by these
}

func (l *limiters) get(service string, b Bounds) *limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.of[service]
	if one == nil {
		if l.of == nil {
			l.of = make(map[string]*limiter)
		}
		one = &limiter{rate.NewLimiter(rate.Limit(b.Recordings)/60, b.Recordings), rate.NewLimiter(rate.Limit(b.Bytes)/60, int(max(b.Bytes, maxFile))), make(chan struct{}, ofOne)}
		l.of[service] = one
	}
	return one
}

// A refusal is an error with its status, the metric's word for it, and when to try again.
type refusal struct {
	status int
	answer string
	text   string
	after  time.Duration
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, answer, format string, args ...any) error {
	return &refusal{status: status, answer: answer, text: fmt.Sprintf(format, args...)}
}

func later(status int, answer string, after time.Duration, format string, args ...any) error {
	return &refusal{status, answer, fmt.Sprintf(format, args...), after}
}

func (s *Server) ingest(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	id, err := s.take(w, r)
	s.Metrics.IngestSeconds.Observe(time.Since(begin).Seconds())
	if err == nil {
		s.Metrics.ReceivedRecordings.WithLabelValues("accepted").Inc()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": id})
		return
	}
	var no *refusal
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &no):
	case errors.As(err, &large):
		no = &refusal{http.StatusRequestEntityTooLarge, "large", fmt.Sprintf("a recording has at most %d bytes as it is sent", maxBody), 0}
	case isFull(err):
		no = &refusal{http.StatusInsufficientStorage, "disk", "the fleet's disk is full; send it again later", time.Minute}
		s.Log.Error("the disk is full", "error", err)
	case r.Context().Err() != nil:
		no = &refusal{http.StatusServiceUnavailable, "error", "the request was given up", 0}
	default:
		no = &refusal{http.StatusServiceUnavailable, "error", "the recording could not be kept; send it again later", 30 * time.Second}
		s.Log.Error("ingest", "error", err)
	}
	s.Metrics.ReceivedRecordings.WithLabelValues(no.answer).Inc()
	if no.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(no.after.Seconds()))))
	}
	http.Error(w, no.text, no.status)
}

// isFull reports whether a disk or quota is full.
func isFull(err error) bool {
	const sqliteFull = 13
	var se *sqlite.Error
	return errors.Is(err, syscall.ENOSPC) || errors.As(err, &se) && se.Code()&0xff == sqliteFull
}

// take keeps a recording. When it returns without error, the file and its place in the queue are durable.
func (s *Server) take(w http.ResponseWriter, r *http.Request) (id string, err error) {
	service, err := s.sender(r, time.Now())
	if err != nil {
		return "", err
	}
	return s.accept(r.Context(), service, http.MaxBytesReader(w, r.Body, maxBody), r.ContentLength, r.Header)
}

// Accept takes a recording in that the fleet has made itself, within the bounds of its service.
func (s *Server) Accept(ctx context.Context, service string, body io.Reader) (id string, err error) {
	return s.accept(ctx, service, body, -1, nil)
}

// accept takes a body in, of a length that is known or below 0.
func (s *Server) accept(ctx context.Context, service string, body io.Reader, length int64, h http.Header) (id string, err error) {
	now := time.Now()
	limit := s.limits.get(service, s.Bounds)
	if debt := -limit.bytes.TokensAt(now); debt > 0 {
		return "", later(http.StatusTooManyRequests, "rate", time.Duration(debt/float64(limit.bytes.Limit())*1e9), "the service sends more than %d bytes a minute", s.Bounds.Bytes)
	}
	if turn := limit.recordings.ReserveN(now, 1); turn.DelayFrom(now) > 0 {
		after := turn.DelayFrom(now)
		turn.CancelAt(now)
		return "", later(http.StatusTooManyRequests, "rate", after, "the service sends more than %d recordings a minute", s.Bounds.Recordings)
	}
	queued, err := s.Store.CountQueued(ctx, service)
	if err != nil {
		return "", err
	}
	if queued >= s.Bounds.Queued {
		return "", later(http.StatusTooManyRequests, "queue", 30*time.Second, "%d recordings of the service wait to be explained", queued)
	}
	for _, slots := range []chan struct{}{limit.receiving, s.receiving} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-time.After(s.patience):
			return "", later(http.StatusServiceUnavailable, "busy", 5*time.Second, "too many recordings are being received; send it again later")
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	reserved, err := s.reserve(length)
	if err != nil {
		return "", err
	}
	defer reserved.release()
	f, err := s.Raw.CreateTemp()
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	rec := store.Recording{Labels: rows.Labels{Service: service}, Received: now}
	if rec.ID, rec.Bytes, err = receive(body, h.Get("Content-Encoding"), reserved.writer(f)); err != nil {
		return "", err
	}
	limit.bytes.ReserveN(now, int(rec.Bytes))
	if err := describe(&rec, f, h); err != nil {
		return "", err
	}
	if known, err := s.Store.IsKnown(ctx, rec.ID); known || err != nil {
		return rec.ID, err // its file was durable before it was known
	}
	// From here on, who sends may go: what is half done would be sent again.
	ctx = context.WithoutCancel(ctx)
	if err := s.Raw.Save(ctx, f, rec.ID); err != nil {
		return "", err
	}
	s.Metrics.ReceivedBytes.Add(float64(rec.Bytes))
	return rec.ID, s.Store.AddRecording(ctx, rec)
}

// sender returns the service whose token a request has.
func (s *Server) sender(r *http.Request, now time.Time) (service string, err error) {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		if service, err = s.Store.TokenName(r.Context(), token, store.SendScope, now); err != nil {
			return "", err
		}
	}
	if service == "" {
		return "", refuse(http.StatusUnauthorized, "token", "no valid token: make one with whylate-fleet token SERVICE")
	}
	return service, nil
}

// receive writes a body, unpacked, and returns its id and size.
func receive(body io.Reader, encoding string, f io.Writer) (id string, n int64, err error) {
	switch encoding {
	case "gzip":
		if body, err = gzip.NewReader(body); err != nil {
			return "", 0, refuse(http.StatusBadRequest, "damaged", "the body is not gzip")
		}
	case "", "identity":
	default:
		return "", 0, refuse(http.StatusUnsupportedMediaType, "damaged", "the body's encoding is not known: send gzip or none")
	}
	sum := sha256.New()
	n, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(body, maxFile+1))
	var large *http.MaxBytesError
	var path *os.PathError
	var full *refusal
	switch {
	case errors.As(err, &large) || errors.As(err, &path) || errors.As(err, &full):
		return "", 0, err
	case err != nil:
		return "", 0, refuse(http.StatusBadRequest, "damaged", "the body ends early or is damaged")
	case n > maxFile:
		return "", 0, refuse(http.StatusRequestEntityTooLarge, "large", "a recording has at most %d bytes unpacked", maxFile)
	}
	return idOf(sum), n, nil
}

// idOf is the id of what was hashed, as flight's Whylate-Recording-Id.
func idOf(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)[:16]) }

// describe reads who sent a recording: what it says itself, and headers where it is a bare trace.
func describe(rec *store.Recording, f *os.File, h http.Header) error {
	var meta struct {
		Service map[string]string `json:"service"` // of a recording made from outside, such as by kubectl whylate
		Flight  struct {
			Service map[string]string `json:"service"`
		} `json:"flight"`
	}
	head := make([]byte, 4)
	if _, err := f.ReadAt(head, 0); err != nil {
		return refuse(http.StatusBadRequest, "damaged", "the body is no recording: it is empty")
	}
	switch string(head) {
	case "go 1":
	case "PK\x03\x04":
		z, err := bundle.Directory(f, rec.Bytes)
		if errors.Is(err, bundle.ErrDirectory) {
			return refuse(http.StatusRequestEntityTooLarge, "large", "the body is %v", err)
		}
		if err != nil {
			return refuse(http.StatusBadRequest, "damaged", "the body is no recording: its zip is damaged")
		}
		m, err := z.Open("meta.json")
		if err != nil {
			return refuse(http.StatusBadRequest, "damaged", "the body is no recording: it has no meta.json")
		}
		defer m.Close()
		if err := json.NewDecoder(io.LimitReader(m, maxMeta)).Decode(&meta); err != nil {
			return refuse(http.StatusBadRequest, "damaged", "the recording's meta.json is damaged")
		}
		// What a child would unpack: a bomb is refused before.
		var unpacked uint64
		for _, e := range z.File {
			if unpacked += e.UncompressedSize64; e.UncompressedSize64 > maxFile || unpacked > maxFile {
				return refuse(http.StatusRequestEntityTooLarge, "large", "a recording has at most %d bytes unpacked", maxFile)
			}
		}
	default:
		return refuse(http.StatusUnsupportedMediaType, "damaged", "the body is neither a .whylate file nor a Go execution trace")
	}
	get := func(key, header string) string {
		return rows.CleanText(cmp.Or(meta.Service[key], meta.Flight.Service[key], h.Get(header)), maxLabel)
	}
	if meta.Service["service.name"] == "" && meta.Flight.Service["service.name"] == "" {
		// Other services may send the same bytes, and each is to count them.
		sum := sha256.New()
		_, _ = io.WriteString(sum, rec.ID+"\x00"+rec.Service)
		rec.ID = idOf(sum)
	}
	if name := get("service.name", "Whylate-Service"); name != "" && name != rec.Service {
		return refuse(http.StatusForbidden, "service", "the token is another service's")
	}
	rec.Version = get("service.version", "Whylate-Version")
	rec.Environment = get("deployment.environment.name", "Whylate-Environment")
	rec.Pod = get("k8s.pod.name", "Whylate-Pod")
	rec.Node = get("k8s.node.name", "Whylate-Node")
	return nil
}
