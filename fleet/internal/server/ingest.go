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
	maxBodyBytes           = 64 << 20  // of a body as sent
	maxFileBytes           = 256 << 20 // of a recording, unpacked
	maxLabelBytes          = 128
	maxMetaBytes           = 1 << 20
	maxReceiving           = 64 // concurrent uploads
	maxReceivingPerService = 16 // so that slow senders of one service do not block others
)

// Bounds limit what each service may send.
type Bounds struct {
	RecordingsPerMinute int
	BytesPerMinute      int64 // unpacked
	MaxQueued           int   // recordings that wait to be explained
	MinFreeBytes        int64 // of the disk, after the upload
}

// A limiter limits the rate and the concurrent uploads of one service.
type limiter struct {
	recordings, bytes *rate.Limiter
	receiveSlots      chan struct{}
}

type limiters struct {
	mu        sync.Mutex
	byService map[string]*limiter // bounded by the number of services with a token
}

// limiterOf returns the limiter of a service, and creates it with the bounds b at the first call; later calls ignore b.
func (l *limiters) limiterOf(service string, b Bounds) *limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.byService[service]
	if limit == nil {
		if l.byService == nil {
			l.byService = make(map[string]*limiter)
		}
		limit = &limiter{rate.NewLimiter(rate.Limit(b.RecordingsPerMinute)/60, b.RecordingsPerMinute), rate.NewLimiter(rate.Limit(b.BytesPerMinute)/60, int(max(b.BytesPerMinute, maxFileBytes))), make(chan struct{}, maxReceivingPerService)}
		l.byService[service] = limit
	}
	return limit
}

// A refusal is an error with the status of the answer, the label of the metric, and the time after which the client may try
// again.
type refusal struct {
	status      int
	metricLabel string
	text        string
	retryAfter  time.Duration
}

func (r *refusal) Error() string { return r.text }

// refuse returns a refusal after which a retry is of no use: the HTTP status, the label of the reason in the metrics, and the
// text for the client.
func refuse(status int, metricLabel, format string, args ...any) error {
	return &refusal{status: status, metricLabel: metricLabel, text: fmt.Sprintf(format, args...)}
}

// refuseWithRetry returns a refusal as refuse does, with the time after which the client may try again.
func refuseWithRetry(status int, metricLabel string, retryAfter time.Duration, format string, args ...any) error {
	return &refusal{status, metricLabel, fmt.Sprintf(format, args...), retryAfter}
}

// serveUpload accepts a recording and answers with its id, or with the status of the refusal.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	id, err := s.acceptUpload(w, r)
	s.Metrics.IngestSeconds.Observe(time.Since(begin).Seconds())
	if err == nil {
		s.Metrics.ReceivedRecordings.WithLabelValues("accepted").Inc()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": id})
		return
	}
	var refused *refusal
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &refused):
	case errors.As(err, &tooLarge):
		refused = &refusal{http.StatusRequestEntityTooLarge, "large", fmt.Sprintf("a recording has at most %d bytes as it is sent", maxBodyBytes), 0}
	case isFull(err):
		refused = &refusal{http.StatusInsufficientStorage, "disk", "the fleet's disk is full; send it again later", time.Minute}
		s.Log.Error("the disk is full", "error", err)
	case r.Context().Err() != nil:
		refused = &refusal{http.StatusServiceUnavailable, "error", "the request was given up", 0}
	default:
		refused = &refusal{http.StatusServiceUnavailable, "error", "the recording could not be kept; send it again later", 30 * time.Second}
		s.Log.Error("ingest", "error", err)
	}
	s.Metrics.ReceivedRecordings.WithLabelValues(refused.metricLabel).Inc()
	if refused.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(refused.retryAfter.Seconds()))))
	}
	http.Error(w, refused.text, refused.status)
}

// isFull reports whether the error is that a disk or quota is full.
func isFull(err error) bool {
	const sqliteFull = 13
	var se *sqlite.Error
	return errors.Is(err, syscall.ENOSPC) || errors.As(err, &se) && se.Code()&0xff == sqliteFull
}

// acceptUpload accepts the recording of a request. When it returns without error, the file and its entry in the queue are
// durable.
func (s *Server) acceptUpload(w http.ResponseWriter, r *http.Request) (id string, err error) {
	service, err := s.serviceOf(r, time.Now())
	if err != nil {
		return "", err
	}
	return s.acceptBody(r.Context(), service, http.MaxBytesReader(w, r.Body, maxBodyBytes), r.ContentLength, r.Header)
}

// Accept accepts a recording that the fleet itself has taken, within the bounds of its service.
func (s *Server) Accept(ctx context.Context, service string, body io.Reader) (id string, err error) {
	return s.acceptBody(ctx, service, body, -1, nil)
}

// acceptBody receives a recording, stores the file and adds it to the queue, unless it is known already. length, in bytes, is below 0 if unknown. A
// refusal is an error with a status.
func (s *Server) acceptBody(ctx context.Context, service string, body io.Reader, length int64, header http.Header) (id string, err error) {
	now := time.Now()
	limit := s.limiters.limiterOf(service, s.Bounds)
	if debt := -limit.bytes.TokensAt(now); debt > 0 {
		return "", refuseWithRetry(http.StatusTooManyRequests, "rate", time.Duration(debt/float64(limit.bytes.Limit())*1e9), "the service sends more than %d bytes a minute", s.Bounds.BytesPerMinute)
	}
	if permit := limit.recordings.ReserveN(now, 1); permit.DelayFrom(now) > 0 {
		delay := permit.DelayFrom(now)
		permit.CancelAt(now)
		return "", refuseWithRetry(http.StatusTooManyRequests, "rate", delay, "the service sends more than %d recordings a minute", s.Bounds.RecordingsPerMinute)
	}
	queued, err := s.Store.CountQueued(ctx, service)
	if err != nil {
		return "", err
	}
	if queued >= s.Bounds.MaxQueued {
		return "", refuseWithRetry(http.StatusTooManyRequests, "queue", 30*time.Second, "%d recordings of the service wait to be explained", queued)
	}
	for _, slots := range []chan struct{}{limit.receiveSlots, s.receiveSlots} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-time.After(s.slotTimeout):
			return "", refuseWithRetry(http.StatusServiceUnavailable, "busy", 5*time.Second, "too many recordings are being received; send it again later")
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	reserved, err := s.reserve(length)
	if err != nil {
		return "", err
	}
	defer reserved.release()
	file, err := s.Files.CreateTemp()
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	rec := store.Recording{Labels: rows.Labels{Service: service}, Received: now}
	if rec.ID, rec.Bytes, err = unpackBody(body, header.Get("Content-Encoding"), reserved.writer(file)); err != nil {
		return "", err
	}
	limit.bytes.ReserveN(now, int(rec.Bytes))
	if err := readLabels(&rec, file, header); err != nil {
		return "", err
	}
	if isKnown, err := s.Store.IsKnown(ctx, rec.ID); isKnown || err != nil {
		return rec.ID, err // the file is durable: Save precedes AddRecording
	}
	// The rest does not stop if the client disconnects: a partial result would only make the client send again.
	ctx = context.WithoutCancel(ctx)
	if err := s.Files.Save(ctx, file, rec.ID); err != nil {
		return "", err
	}
	s.Metrics.ReceivedBytes.Add(float64(rec.Bytes))
	return rec.ID, s.Store.AddRecording(ctx, rec)
}

// unpackBody writes a body, unpacked by its Content-Encoding, to out, and returns the id of the recording, a hash of it, and its unpacked size in
// bytes. The error has a status, or is one of writing.
func unpackBody(body io.Reader, encoding string, out io.Writer) (id string, n int64, err error) {
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
	n, err = io.Copy(io.MultiWriter(out, sum), io.LimitReader(body, maxFileBytes+1))
	var tooLarge *http.MaxBytesError
	var pathErr *os.PathError
	var refused *refusal
	switch {
	case errors.As(err, &tooLarge) || errors.As(err, &pathErr) || errors.As(err, &refused):
		return "", 0, err
	case err != nil:
		return "", 0, refuse(http.StatusBadRequest, "damaged", "the body ends early or is damaged")
	case n > maxFileBytes:
		return "", 0, refuse(http.StatusRequestEntityTooLarge, "large", "a recording has at most %d bytes unpacked", maxFileBytes)
	}
	return recordingID(sum), n, nil
}

// recordingID returns the first half of a SHA-256 sum in hexadecimal digits, as in the header Whylate-Recording-Id of flight.
func recordingID(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)[:16]) }

// readLabels checks the format of a recording and sets its labels: from the recording's metadata if they are there, otherwise
// from headers, which serve bare traces.
func readLabels(rec *store.Recording, file *os.File, header http.Header) error {
	var meta struct {
		Service map[string]string `json:"service"` // of a recording that another program has taken, such as kubectl whylate
		Flight  struct {
			Service map[string]string `json:"service"`
		} `json:"flight"`
	}
	head := make([]byte, 4)
	if _, err := file.ReadAt(head, 0); err != nil {
		return refuse(http.StatusBadRequest, "damaged", "the body is no recording: it is empty")
	}
	switch string(head) {
	case "go 1":
	case "PK\x03\x04":
		z, err := bundle.ReadDirectory(file, rec.Bytes)
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
		if err := json.NewDecoder(io.LimitReader(m, maxMetaBytes)).Decode(&meta); err != nil {
			return refuse(http.StatusBadRequest, "damaged", "the recording's meta.json is damaged")
		}
		// Check what a child would unpack, so that a zip bomb is refused here.
		var unpacked uint64
		for _, e := range z.File {
			if unpacked += e.UncompressedSize64; e.UncompressedSize64 > maxFileBytes || unpacked > maxFileBytes {
				return refuse(http.StatusRequestEntityTooLarge, "large", "a recording has at most %d bytes unpacked", maxFileBytes)
			}
		}
	default:
		return refuse(http.StatusUnsupportedMediaType, "damaged", "the body is neither a .whylate file nor a Go execution trace")
	}
	label := func(key, headerName string) string {
		return rows.CleanText(cmp.Or(meta.Service[key], meta.Flight.Service[key], header.Get(headerName)), maxLabelBytes)
	}
	if meta.Service["service.name"] == "" && meta.Flight.Service["service.name"] == "" {
		// Several services may send the same bytes. An id for each service makes all of them count.
		sum := sha256.New()
		_, _ = io.WriteString(sum, rec.ID+"\x00"+rec.Service)
		rec.ID = recordingID(sum)
	}
	if name := label("service.name", "Whylate-Service"); name != "" && name != rec.Service {
		return refuse(http.StatusForbidden, "service", "the token is another service's")
	}
	rec.Version = label("service.version", "Whylate-Version")
	rec.Environment = label("deployment.environment.name", "Whylate-Environment")
	rec.Pod = label("k8s.pod.name", "Whylate-Pod")
	rec.Node = label("k8s.node.name", "Whylate-Node")
	return nil
}
