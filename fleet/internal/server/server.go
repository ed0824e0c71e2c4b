// Package server takes recordings in and answers what the fleet knows, over HTTP.
package server

import (
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
	"github.com/whylate/whylate/service/flight"
)

const (
	maxBody   = 64 << 20  // as sent
	maxFile   = 256 << 20 // unpacked
	maxQueued = 1000      // of a service
	maxLabel  = 128       // bytes
)

// A Server has one store and one directory of raw recordings.
type Server struct {
	Store *store.Store
	Raw   string
	Log   *slog.Logger
}

// Handler answers all paths.
func (s *Server) Handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST "+flight.UploadPath, s.ingest)
	m.HandleFunc("GET /{$}", s.page)
	m.HandleFunc("GET /service/{service}", s.page)
	m.HandleFunc("GET /recordings/{id}/raw", s.raw)
	m.HandleFunc("GET /recordings/{id}/report", s.report)
	m.HandleFunc("GET /v1/findings", s.findings)
	m.HandleFunc("GET /v1/versions", s.versions)
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A page elsewhere whose name leads to this machine must not read what is here.
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this fleet answers on loopback only: ask for localhost or 127.0.0.1", http.StatusForbidden)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		m.ServeHTTP(w, r)
	})
}

// A refusal is an error with its status.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func (s *Server) ingest(w http.ResponseWriter, r *http.Request) {
	id, err := s.take(w, r)
	var no *refusal
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		http.Error(w, fmt.Sprintf("a recording has at most %d bytes as it is sent", maxBody), http.StatusRequestEntityTooLarge)
	case errors.As(err, &no):
		if no.status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "30")
		}
		http.Error(w, no.text, no.status)
	case err != nil:
		s.Log.Error("ingest", "error", err)
		w.Header().Set("Retry-After", "30")
		http.Error(w, "the recording could not be kept; send it again later", http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": id})
	}
}

// take keeps a recording. When it returns without error, the file and its place in the queue are on disk.
func (s *Server) take(w http.ResponseWriter, r *http.Request) (id string, err error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	service := ""
	if ok {
		if service, err = s.Store.TokenService(r.Context(), token, time.Now()); err != nil {
			return "", err
		}
	}
	if service == "" {
		return "", &refusal{http.StatusUnauthorized, "no valid token: make one with whylate-fleet token SERVICE"}
	}
	queued, err := s.Store.Queued(r.Context(), service)
	if err != nil {
		return "", err
	}
	if queued >= maxQueued {
		return "", &refusal{http.StatusTooManyRequests, "too many recordings of this service wait"}
	}
	var body io.Reader = http.MaxBytesReader(w, r.Body, maxBody)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return "", &refusal{http.StatusBadRequest, "the body is not gzip"}
		}
	}
	f, err := os.CreateTemp(s.Raw, "new-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(body, maxFile+1))
	var large *http.MaxBytesError
	var path *os.PathError
	switch {
	case errors.As(err, &large) || errors.As(err, &path):
		return "", err
	case err != nil:
		return "", &refusal{http.StatusBadRequest, "the body ends early or is damaged"}
	case n > maxFile:
		return "", &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("a recording has at most %d bytes unpacked", maxFile)}
	}
	rec := store.Recording{ID: hex.EncodeToString(sum.Sum(nil)), Service: service, Received: time.Now(), Bytes: n}
	if err := describe(&rec, f, r.Header); err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	if err := os.Rename(f.Name(), filepath.Join(s.Raw, rec.ID)); err != nil {
		return "", err
	}
	dir, err := os.Open(s.Raw)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return "", err
	}
	return rec.ID, s.Store.Add(r.Context(), rec)
}

// describe reads who sent a recording: what it says itself, and headers where it is a bare trace.
func describe(rec *store.Recording, f *os.File, h http.Header) error {
	var meta struct {
		Flight struct {
			Service map[string]string `json:"service"`
		} `json:"flight"`
	}
	head := make([]byte, 4)
	if _, err := f.ReadAt(head, 0); err != nil {
		return &refusal{http.StatusBadRequest, "the body is no recording: it is empty"}
	}
	switch string(head) {
	case "go 1":
	case "PK\x03\x04":
		z, err := zip.NewReader(f, rec.Bytes)
		if err != nil {
			return &refusal{http.StatusBadRequest, "the body is no recording: its zip is damaged"}
		}
		m, err := z.Open("meta.json")
		if err != nil {
			return &refusal{http.StatusBadRequest, "the body is no recording: it has no meta.json"}
		}
		defer m.Close()
		if err := json.NewDecoder(io.LimitReader(m, 1<<20)).Decode(&meta); err != nil {
			return &refusal{http.StatusBadRequest, "the recording's meta.json is damaged"}
		}
	default:
		return &refusal{http.StatusUnsupportedMediaType, "the body is neither a .whylate file nor a Go execution trace"}
	}
	get := func(key, header string) string {
		v := meta.Flight.Service[key]
		if v == "" {
			v = h.Get(header)
		}
		return strings.ToValidUTF8(v[:min(len(v), maxLabel)], "")
	}
	if name := get("service.name", "Whylate-Service"); name != "" && name != rec.Service {
		return &refusal{http.StatusForbidden, "the token is another service's"}
	}
	rec.Version = get("service.version", "Whylate-Version")
	rec.Environment = get("deployment.environment.name", "Whylate-Environment")
	rec.Pod = get("k8s.pod.name", "Whylate-Pod")
	rec.Node = get("k8s.node.name", "Whylate-Node")
	return nil
}

// file returns the file of a recording; the error says that the id is none.
func (s *Server) file(w http.ResponseWriter, r *http.Request) (string, bool) {
	id := r.PathValue("id")
	if b, err := hex.DecodeString(id); err != nil || len(b) != sha256.Size {
		http.Error(w, "a recording's id has 64 hexadecimal digits", http.StatusNotFound)
		return "", false
	}
	name := filepath.Join(s.Raw, strings.ToLower(id))
	if _, err := os.Stat(name); err != nil {
		http.Error(w, "there is no such recording", http.StatusNotFound)
		return "", false
	}
	return name, true
}

func (s *Server) raw(w http.ResponseWriter, r *http.Request) {
	if name, ok := s.file(w, r); ok {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="`+filepath.Base(name)[:12]+`.whylate"`)
		http.ServeFile(w, r, name)
	}
}

func (s *Server) report(w http.ResponseWriter, r *http.Request) {
	name, ok := s.file(w, r)
	if !ok {
		return
	}
	out, err := work.Verb(r.Context(), "explain", "--max-memory=512MB", name)
	if err != nil {
		s.Log.Error("report", "error", err)
		http.Error(w, "the recording cannot be explained", http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(out)
}

func (s *Server) findings(w http.ResponseWriter, r *http.Request) {
	list, err := s.Store.Findings(r.Context(), r.FormValue("service"))
	s.json(w, list, err)
}

func (s *Server) versions(w http.ResponseWriter, r *http.Request) {
	list, err := s.Store.Versions(r.Context(), r.FormValue("service"))
	s.json(w, list, err)
}

func (s *Server) json(w http.ResponseWriter, v any, err error) {
	if err != nil {
		s.Log.Error("query", "error", err)
		http.Error(w, "the store does not answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
