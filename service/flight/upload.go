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
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// UploadPath is where a collector takes recordings.
const UploadPath = "/v1/recordings"

// UploadOptions say where recordings are sent.
type UploadOptions struct {
	// URL is the collector's, "https://collector:4319"; without a path
	// UploadPath is meant.
	URL string
	// TokenFile holds a bearer token; it is read again for every request, so it
	// may change. CAFile holds certificates in PEM that are trusted besides the
	// system's; it is read at the start.
	TokenFile, CAFile string
	// Timeout bounds one request: 30 s.
	Timeout time.Duration
}

// An Uploader sends the recordings of a directory to a collector. The directory
// is the spool: what could not be sent stays there, also over a restart, until
// it is sent or Options.MaxDisk lets it go. Each is sent at least once; the id
// that goes with it lets the collector know it again. Nobody waits for it.
//
//	up, err := flight.NewUploader(dir, flight.UploadOptions{URL: "https://collector:4319"})
//	...
//	defer up.Stop()
//	rec, err := flight.Start(flight.Options{Dir: dir})
//
// docs/flight.md describes the protocol.
type Uploader struct {
	dir    string
	opts   UploadOptions
	url    string
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	state UploadState
}

// UploadState says what an uploader has done.
type UploadState struct {
	Sent uint64 `json:"sent"`
	// Refused counts recordings that the collector does not want; they are not
	// sent again. Failed counts attempts that are made again.
	Refused   uint64 `json:"refused"`
	Failed    uint64 `json:"failed"`
	LastError string `json:"last_error,omitempty"`
}

// Words before the suffix of recordings that were dealt with.
const (
	sentMark    = ".sent"
	refusedMark = ".refused"
)

// NewUploader starts an uploader for the recordings of a directory. The error
// says which option makes no sense, or which file cannot be read.
func NewUploader(dir string, opts UploadOptions) (*Uploader, error) {
	u, err := url.Parse(opts.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("flight: the collector's URL is not http://HOST or https://HOST")
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = UploadPath
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
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
	up := &Uploader{dir: dir, opts: opts, url: u.String(), done: make(chan struct{}), client: &http.Client{
		Transport: transport, Timeout: opts.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this host
	}}
	up.ctx, up.cancel = context.WithCancel(context.Background())
	go up.run()
	return up, nil
}

// Stop ends the uploader; a request that is under way is cut, and made again by
// the next uploader of the directory.
func (u *Uploader) Stop() {
	u.cancel()
	<-u.done
	u.client.CloseIdleConnections()
}

// State returns what the uploader has done.
func (u *Uploader) State() UploadState {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state
}

// lookEvery is how often the directory is looked at.
const lookEvery = time.Second

func (u *Uploader) run() {
	defer close(u.done)
	failures := 0
	for wait := time.Duration(0); ; {
		t := time.NewTimer(wait)
		select {
		case <-u.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		asked, err := u.sendAll()
		if u.ctx.Err() != nil {
			return
		}
		if err == nil {
			failures, wait = 0, lookEvery
			continue
		}
		failures++
		wait = max(backoff(failures, rand.Float64()), min(asked, maxBackoff))
		u.mu.Lock()
		u.state.Failed++
		u.state.LastError = err.Error()
		u.mu.Unlock()
	}
}

const (
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
)

// backoff returns how long to wait after so many failures in a row: twice as
// long each time, and between half and all of that, so that the processes of
// one service do not come back together. at is in [0, 1).
func backoff(failures int, at float64) time.Duration {
	d := maxBackoff
	if failures < 16 {
		d = min(firstBackoff<<(failures-1), maxBackoff)
	}
	return d/2 + time.Duration(at*float64(d/2))
}

// sendAll sends what was not sent yet, the oldest first. It ends at the first
// failure; asked is for how long the collector wants not to be asked.
func (u *Uploader) sendAll() (asked time.Duration, err error) {
	files, err := list(u.dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // nothing was kept yet
	}
	if err != nil {
		return 0, err
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.mod.Compare(b.mod), cmp.Compare(a.name, b.name)) })
	for _, f := range files {
		stem := strings.TrimSuffix(f.name, nameSuffix)
		if strings.HasSuffix(stem, sentMark) || strings.HasSuffix(stem, refusedMark) {
			continue
		}
		name := filepath.Join(u.dir, f.name)
		data, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // it had to go
		}
		if err != nil {
			return 0, err
		}
		refused, asked, err := u.send(f.name, data)
		if err != nil && !refused {
			return asked, err
		}
		mark := sentMark
		u.mu.Lock()
		if refused {
			mark = refusedMark
			u.state.Refused++
			u.state.LastError = err.Error()
		} else {
			u.state.Sent++
		}
		u.mu.Unlock()
		if err := os.Rename(name, filepath.Join(u.dir, stem+mark+nameSuffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
	}
	return 0, nil
}

// send makes one request. refused says that it must not be made again.
func (u *Uploader) send(name string, data []byte) (refused bool, asked time.Duration, err error) {
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	if _, err := z.Write(data); err != nil {
		return false, 0, err
	}
	if err := z.Close(); err != nil {
		return false, 0, err
	}
	req, err := http.NewRequestWithContext(u.ctx, http.MethodPost, u.url, &body)
	if err != nil {
		return false, 0, err
	}
	sum := sha256.Sum256(data)
	req.Header.Set("Content-Type", "application/vnd.whylate.recording+zip")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("Whylate-Recording-Id", hex.EncodeToString(sum[:16]))
	req.Header.Set("Whylate-Recording-Name", name)
	if u.opts.TokenFile != "" {
		token, err := os.ReadFile(u.opts.TokenFile)
		if err != nil {
			return false, 0, err
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	res, err := u.client.Do(req)
	if err != nil {
		return false, 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 4<<10)) // so that the connection can be used again
	switch {
	case res.StatusCode/100 == 2, res.StatusCode == http.StatusConflict: // it has it already
		return false, 0, nil
	case res.StatusCode == http.StatusBadRequest, res.StatusCode == http.StatusRequestEntityTooLarge,
		res.StatusCode == http.StatusUnsupportedMediaType, res.StatusCode == http.StatusUnprocessableEntity:
		return true, 0, fmt.Errorf("flight: the collector refused %s: %s", name, res.Status)
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 && s < 1<<20 {
		asked = time.Duration(s) * time.Second
	}
	return false, asked, fmt.Errorf("flight: the collector answered %s", res.Status)
}
