package flight

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/service/internal/guard"
)

// UploadPath is the path at which a collector receives recordings.
const UploadPath = "/v1/recordings"

// UploadOptions say where recordings are sent.
type UploadOptions struct {
	// URL is the collector's, "https://collector:4319". UploadPath is added to a
	// URL without a path.
	URL string
	// TokenFile holds a bearer token. It is read for every request, so it may
	// change. CAFile holds certificates in PEM that are trusted in addition to the
	// system's. It is read at the start.
	TokenFile, CAFile string
	// Timeout bounds one request: 30 s.
	Timeout time.Duration
}

// An uploader sends the recordings of a directory to a collector. The directory
// is the spool: a recording that could not be sent stays there, also over a
// restart, until it is sent or deleted because of Options.MaxDisk. Each is sent at
// least once, with an id by which the collector recognises repetitions.
// docs/flight.md describes the protocol.
type uploader struct {
	dir    string
	opts   UploadOptions
	url    string
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	queue  sendQueue // used by the uploader's goroutine only
	guard  guard.Guard

	mu    sync.Mutex
	state UploadState
}

// UploadState counts the results of uploads.
type UploadState struct {
	Sent uint64 `json:"sent"`
	// Refused counts recordings that the collector refused; they are not sent
	// again. Failed counts the attempts that failed otherwise.
	Refused uint64 `json:"refused"`
	Failed  uint64 `json:"failed"`
	// Waiting is the number of recordings that are still to be sent. Held is the
	// number of these that the collector answered with 401, 403, 404 or 405: they
	// wait for another token, or until the collector accepts another recording.
	Waiting   int    `json:"waiting,omitempty"`
	Held      int    `json:"held,omitempty"`
	LastError string `json:"last_error,omitempty"`
}

// Infixes before the suffix in the names of recordings that are not sent any more.
const (
	sentMark    = ".sent"
	refusedMark = ".refused"
)

// startUploader starts an uploader for the recordings of a directory. It returns
// an error if an option is invalid or a file cannot be read.
func startUploader(dir string, opts UploadOptions) (*uploader, error) {
	up, err := newUploader(dir, opts)
	if err == nil {
		go up.run()
	}
	return up, err
}

// newUploader returns an uploader of the recordings in dir; run sends them. It returns an
// error for an invalid URL or file of certificates.
func newUploader(dir string, opts UploadOptions) (*uploader, error) {
	u, err := url.Parse(opts.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("flight: the collector's URL is not http://HOST or https://HOST")
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = UploadPath
	}
	transport := newTransport()
	if opts.CAFile != "" {
		pem, err := os.ReadFile(opts.CAFile)
		if err != nil {
			return nil, fmt.Errorf("flight: reading the collector's certificates: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("flight: %s holds no certificate in PEM", opts.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	opts.Timeout = cmp.Or(opts.Timeout, 30*time.Second)
	up := &uploader{dir: dir, opts: opts, url: u.String(), done: make(chan struct{}), client: &http.Client{
		Transport: transport, Timeout: opts.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this host only
	}}
	up.ctx, up.cancel = context.WithCancel(context.Background())
	return up, nil
}

// newTransport returns a transport with the standard library's settings. It does not copy http.DefaultTransport, because
// services may have replaced it, for example by one that traces requests.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		MaxIdleConns: 2, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
		MaxResponseHeaderBytes: 64 << 10, // a collector must not fill the service's memory
	}
}

// stop ends the uploader. It cancels a running request; the next uploader of the
// directory sends that recording again.
func (u *uploader) stop() {
	u.cancel()
	<-u.done
	u.client.CloseIdleConnections()
}

// currentState returns a copy of the state.
func (u *uploader) currentState() UploadState {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}

// pollInterval is the interval at which the directory is listed.
const pollInterval = time.Second

// run sends waiting recordings, at once and then at each pollInterval, until the uploader
// is stopped. It reports a panic as the state's error.
func (u *uploader) run() {
	defer close(u.done)
	for wait := time.Duration(0); sleep(u.ctx, wait); wait = pollInterval {
		if err := u.guard.Do("flight: sending recordings", u.sendAll); err != nil {
			u.updateState(func(s *UploadState) { s.LastError = err.Error() })
		}
	}
}

// sendAll sends recordings one after the other, in the order of the queue, until none may be sent now.
func (u *uploader) sendAll() {
	for u.ctx.Err() == nil && !time.Now().Before(u.queue.nextAllowed) {
		waiting, err := u.listWaiting()
		if err != nil {
			u.updateState(func(s *UploadState) { s.LastError = err.Error() })
			return
		}
		token, err := u.token()
		if err != nil {
			u.updateState(func(s *UploadState) { s.LastError, s.Waiting = err.Error(), len(waiting) })
			return
		}
		name := u.queue.nextRecording(waiting, token, time.Now())
		held := u.queue.countHeld(waiting, token)
		u.updateState(func(s *UploadState) { s.Waiting, s.Held = len(waiting), held })
		if name == "" {
			return
		}
		u.sendOne(name, token)
	}
}

// listWaiting returns the names of the recordings that are still to be sent, the oldest first; nil if nothing was kept yet. It also renames those
// that could not be renamed after they were sent.
func (u *uploader) listWaiting() (names []string, err error) {
	files, err := listRecordings(u.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // nothing was kept yet
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b recordingFile) int { return cmp.Or(a.modTime.Compare(b.modTime), cmp.Compare(a.name, b.name)) })
	for _, f := range files {
		stem := strings.TrimSuffix(f.name, nameSuffix)
		if strings.HasSuffix(stem, sentMark) || strings.HasSuffix(stem, refusedMark) {
			continue
		}
		names = append(names, f.name)
	}
	u.queue.retain(names)
	return slices.DeleteFunc(names, func(name string) bool {
		o := u.queue.result(name)
		if o != retryLater {
			u.markDone(name, o) // the last attempt to rename it failed
		}
		return o != retryLater
	}), nil
}

// markDone marks the file name of a recording as sent or refused. A failure is
// reported in LastError; the next process then sends the recording again.
func (u *uploader) markDone(name string, o outcome) {
	mark := sentMark
	if o == refused {
		mark = refusedMark
	}
	err := os.Rename(filepath.Join(u.dir, name), filepath.Join(u.dir, strings.TrimSuffix(name, nameSuffix)+mark+nameSuffix))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		u.updateState(func(s *UploadState) { s.LastError = err.Error() })
	}
}

// token reads the bearer token, "" without a TokenFile.
func (u *uploader) token() (string, error) {
	if u.opts.TokenFile == "" {
		return "", nil
	}
	token, err := os.ReadFile(u.opts.TokenFile)
	return strings.TrimSpace(string(token)), err
}

// updateState calls f with the state, under its lock.
func (u *uploader) updateState(f func(*UploadState)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f(&u.state)
}

// sendOne reads and sends the recording name with the token, updates the queue and the state by the answer, and marks the file if the answer is
// final. A file that was deleted is skipped.
func (u *uploader) sendOne(name, token string) {
	data, err := os.ReadFile(filepath.Join(u.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return // it was deleted to stay within MaxDisk
	}
	var status int
	var header http.Header
	if err == nil {
		status, header, err = u.send(name, token, data)
	}
	if u.ctx.Err() != nil {
		return
	}
	now := time.Now()
	o := u.queue.handleAnswer(name, token, outcomeOf(status), retryAfter(header, now), now, rand.Float64())
	u.updateState(func(s *UploadState) {
		switch o {
		case accepted:
			s.Sent++
			return
		case refused:
			s.Refused++
		default:
			s.Failed++
		}
		s.LastError = err.Error()
	})
	if o == accepted || o == refused {
		u.markDone(name, o)
	}
}

// send sends data as the recording name in one request, with the token as its authorization
// ("" for none), and returns the answer's status, 0 if there is no answer. err is nil only
// if the collector accepted the recording.
func (u *uploader) send(name, token string, data []byte) (status int, header http.Header, err error) {
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	if _, err := z.Write(data); err != nil {
		return 0, nil, err
	}
	if err := z.Close(); err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(u.ctx, http.MethodPost, u.url, &body)
	if err != nil {
		return 0, nil, err
	}
	sum := sha256.Sum256(data)
	req.Header.Set("Content-Type", "application/vnd.whylate.recording+zip")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("Whylate-Recording-Id", hex.EncodeToString(sum[:16]))
	req.Header.Set("Whylate-Recording-Name", name)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := u.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 4<<10)) // so that the connection can be reused
	if outcomeOf(res.StatusCode) != accepted {
		err = fmt.Errorf("flight: the collector answered %s to %s", res.Status, name)
	}
	if to := res.Header.Get("Location"); res.StatusCode/100 == 3 && to != "" {
		err = fmt.Errorf("%w; its redirect to %q is not followed", err, clip(to))
	}
	return res.StatusCode, res.Header, err
}
