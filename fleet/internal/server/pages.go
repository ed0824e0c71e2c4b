package server

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/output/difftext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

//go:embed pages
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"duration":    formatDuration,
	"clock":       func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"isNew":       func(state string) bool { return strings.HasPrefix(state, "new") },
	"times":       formatTimes,
	"causeClass":  causeClass,
	"causeColors": causeColors,
	"rate":        func(perSecond float64) string { return fmt.Sprintf("%.3g", perSecond) },
	"short":       func(s string) string { return s[:min(len(s), 8)] },
	"minute":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") },
	"withView": func(v *view, list any) any {
		return struct {
			V    *view
			List any
		}{v, list}
	},
	"previousVersion": func(list []store.Version, i int) *store.Version { // list has the newest version of an environment first
		if i+1 < len(list) && list[i+1].Environment == list[i].Environment {
			return &list[i+1]
		}
		return nil
	},
	"or": cmp.Or[string],
}).ParseFS(files, "pages/*.html"))

// formatDuration formats a duration in ns with three to four digits.
func formatDuration(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Nanosecond).String()
}

// formatTimes formats a factor, such as 1.5×.
func formatTimes(factor float64) string {
	if factor < 9.95 {
		return fmt.Sprintf("%.1f×", factor)
	}
	return words.Number(int64(math.Round(factor))) + "×"
}

// A view is the data that all pages have in common.
type view struct {
	SelectionQuery
	Selection store.Selection
	Path      string
	query     url.Values
	Host      string
	Title     string
	States    map[string]int64
	Data      any
}

// TimeSpans returns the periods that a page links to.
func (v *view) TimeSpans() []string { return []string{"1h", "24h", "168h", "720h"} }

// LinkSince returns the address of this page with another begin of the period, such as "24h".
func (v *view) LinkSince(from string) string {
	var params []string
	for name := range v.query {
		params = append(params, name, v.query.Get(name))
	}
	return v.Link(v.Path, append(params, "from", from)...)
}

// Link returns the address of a path with the environment and period of this page, and with params, which alternates names and
// values.
func (v *view) Link(path string, params ...string) string {
	q := make(url.Values)
	for _, p := range [][2]string{{"environment", v.Environment}, {"from", v.From}, {"to", v.To}} {
		if p[1] != "" {
			q.Set(p[0], p[1])
		}
	}
	for i := 0; i+1 < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// ServiceLink returns the address of the page of a service.
func (v *view) ServiceLink(service string) string {
	return v.Link("/service/" + url.PathEscape(service))
}

// addPages adds the handlers of all pages and files.
func (s *Server) addPages(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", s.pageHandler("start.html", s.fillStart))
	mux.HandleFunc("GET /service/{service}", s.pageHandler("service.html", s.fillService))
	mux.HandleFunc("GET /moments", s.pageHandler("moments.html", func(ctx context.Context, v *view, r *http.Request) (err error) {
		v.Title = "Slow moments"
		v.Data, err = s.Store.Moments(ctx, v.Selection, r.FormValue("trace"), 100)
		return err
	}))
	mux.HandleFunc("GET /finding/{problem}", s.pageHandler("finding.html", s.fillFinding))
	mux.HandleFunc("GET /compare", s.serveComparison)
	mux.HandleFunc("GET /recordings/{id}", s.pageHandler("recording.html", s.fillRecording))
	mux.HandleFunc("GET /recordings/{id}/report", s.serveReport)
	mux.HandleFunc("GET /recordings/{id}/view", s.redirectToView)
	mux.HandleFunc("GET /recordings/{id}/view/{path...}", s.serveView)
	mux.HandleFunc("GET /recordings/{id}/raw", s.serveFile)
}

var errNotFound = huma.Error404NotFound("there is no such recording, or no such finding in this time")

// pageHandler returns a handler of a page: it reads the selection from the query, calls fillData to set the view's data, and
// executes the template of this name.
func (s *Server) pageHandler(name string, fillData func(context.Context, *view, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := &view{SelectionQuery: SelectionQuery{r.FormValue("service"), r.FormValue("environment"), r.FormValue("from"), r.FormValue("to")}, Path: r.URL.Path, query: r.URL.Query(), Host: r.Host}
		if p := r.PathValue("service"); p != "" {
			v.Service = p
		}
		var err error
		if v.Selection, err = v.selection(time.Now()); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if v.States, err = s.Store.CountByState(r.Context()); err == nil {
			err = fillData(r.Context(), v, r)
		}
		var out bytes.Buffer
		if err == nil {
			err = templates.ExecuteTemplate(&out, name, v)
		}
		if err != nil {
			s.writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(out.Bytes())
	}
}

// severities are those that the start page can be restricted to, with all that are worse.
var severities = []string{string(report.SeverityHigh), string(report.SeverityMedium), string(report.SeverityLow)}

// A filter is a choice on the start page. Name is also that of its parameter.
type filter struct {
	Name, Chosen string
	Values       []string
}

// fillStart sets the data of the start page, of all services.
func (s *Server) fillStart(ctx context.Context, v *view, r *http.Request) error {
	problems, versions, err := s.Store.Overview(ctx, v.Selection)
	if err != nil {
		return err
	}
	services, environments := store.NamesOf(versions)
	if v.Service+v.Environment != "" {
		all := v.Selection
		all.Service, all.Environment = "", ""
		if services, environments, err = s.Store.Names(ctx, all); err != nil {
			return err
		}
	}
	severity := r.FormValue("severity")
	if worst := slices.Index(severities, severity); worst >= 0 {
		problems = slices.DeleteFunc(problems, func(p store.Problem) bool { return !slices.Contains(severities[:worst+1], p.Severity) })
	}
	filters := []filter{{"service", v.Service, services}, {"environment", v.Environment, environments}, {"severity", severity, severities}}
	if owners := s.Store.Policy.Current().OwnerNames(); len(owners) > 0 {
		owner := r.FormValue("owner")
		problems = slices.DeleteFunc(problems, func(p store.Problem) bool { return owner != "" && p.Owner != owner })
		filters = append(filters, filter{"owner", owner, owners})
	}
	findings, err := s.listFindings(ctx, v.Selection, problems, versions)
	if err != nil {
		return err
	}
	slices.SortStableFunc(versions, store.CompareHeadroom)
	poison, err := s.Store.PoisonRecordings(ctx, 10)
	v.Data = &struct {
		findingLists
		Filters  []filter
		Versions []store.Version
		Poison   []store.Recording
	}{findings, filters, versions, poison}
	return err
}

// fillService sets the title and data of the page of the selected service: its findings, versions, pods, moments and chart.
func (s *Server) fillService(ctx context.Context, v *view, _ *http.Request) error {
	v.Title = v.Service
	data := struct {
		findingLists
		Versions []store.Version
		Chart    *chart
		Pods     []PodAnswer
		AllPods  int
		Moments  []store.Moment
	}{}
	problems, versions, err := s.Store.Overview(ctx, v.Selection)
	if err != nil {
		return err
	}
	if data.findingLists, err = s.listFindings(ctx, v.Selection, problems, versions); err != nil {
		return err
	}
	data.Versions = versions
	shown := v.Selection
	if len(versions) > 0 { // a shorter period has finer intervals
		first := slices.MinFunc(versions, func(a, b store.Version) int { return a.First.Compare(b.First) }).First
		if first.After(shown.From) {
			shown.From = first
		}
	}
	step := stepOf(shown)
	points, err := s.Store.Series(ctx, shown, step)
	if err != nil {
		return err
	}
	data.Chart = newChart(points, versions, shown, step)
	pods, err := s.judgedPods(ctx, v.Selection)
	if err != nil {
		return err
	}
	data.AllPods = len(pods)
	data.Pods = pods[:min(len(pods), 20)]
	data.Moments, err = s.Store.Moments(ctx, v.Selection, "", 20)
	v.Data = &data
	return err
}

// fillFinding sets the title and data of the page of the finding whose problem id is in the path, with its sightings and ten
// moments.
func (s *Server) fillFinding(ctx context.Context, v *view, r *http.Request) error {
	p, sightings, err := s.Store.Finding(ctx, v.Selection, r.PathValue("problem"))
	if p == nil && err == nil {
		err = errNotFound
	}
	if err != nil {
		return err
	}
	sel := v.Selection
	sel.Service, sel.Environment = p.Service, p.Environment
	moments, err := s.Store.Moments(ctx, sel, "", 1000)
	moments = slices.DeleteFunc(moments, func(m store.Moment) bool { return m.Group != p.Group || !slices.Contains(p.Versions, m.Version) })
	v.Title = p.Title
	v.Data = struct {
		store.Problem
		Sightings []store.Sighting
		Moments   []store.Moment
	}{*p, sightings, moments[:min(len(moments), 10)]}
	return err
}

// requestedID returns the recording id in the path, "" if it is invalid.
func requestedID(r *http.Request) string {
	id := r.PathValue("id")
	if b, err := hex.DecodeString(id); err != nil || len(b) != 16 || id != strings.ToLower(id) {
		return ""
	}
	return id
}

// fillRecording sets the title and data of the page of the recording whose id is in the path.
func (s *Server) fillRecording(ctx context.Context, v *view, r *http.Request) error {
	rec, err := s.Store.Recording(ctx, requestedID(r))
	if rec == nil && err == nil {
		err = errNotFound
	}
	v.Title, v.Data = "A recording", rec
	return err
}

// openFile opens the file of the requested recording whose name the function name returns for the recording's id. If that fails, it has answered with
// an error and returns false.
func (s *Server) openFile(w http.ResponseWriter, r *http.Request, name func(id string) string) (io.ReadCloser, bool) {
	id := requestedID(r)
	f, err := s.Files.Open(r.Context(), name(id))
	switch {
	case id == "" || errors.Is(err, fs.ErrNotExist):
		http.Error(w, "this file is not kept: there is no such recording, it is not explained yet, or it is too old", http.StatusNotFound)
		return nil, false
	case err != nil:
		s.writeError(w, err)
		return nil, false
	}
	return f, true
}

// serveFile answers with the file of a recording.
func (s *Server) serveFile(w http.ResponseWriter, r *http.Request) {
	f, ok := s.openFile(w, r, func(id string) string { return id })
	if !ok {
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+requestedID(r)[:12]+`.whylate"`)
	_, _ = io.Copy(w, f)
}

// serveReport answers with the page that whylate explain --html writes. With the parameter problem it leads to that finding.
func (s *Server) serveReport(w http.ResponseWriter, r *http.Request) {
	if fragment := s.fragment(r, func(_ *report.Report, f *report.Finding) string { return "finding=" + f.ID }); fragment != "" {
		http.Redirect(w, r, r.URL.Path+fragment, http.StatusFound)
		return
	}
	release, err := s.acquireReportSlot(r.Context())
	if err != nil {
		return
	}
	defer release()
	f, ok := s.openFile(w, r, raw.ReportName)
	if !ok {
		return
	}
	_ = f.Close()
	rep, err := s.readReport(r.Context(), requestedID(r))
	page, err := renderReport(rep, err, html.Options{Command: "whylate explain " + requestedID(r)[:12] + ".whylate"})
	release() // before writing: the client may read slowly
	s.writePage(w, page, err)
}

// serveComparison answers with the page that whylate diff --html writes, for two versions of a service.
func (s *Server) serveComparison(w http.ResponseWriter, r *http.Request) {
	d, old, new, err := s.compareVersions(r.Context(), r.FormValue("service"), r.FormValue("environment"), r.FormValue("old"), r.FormValue("new"))
	var opts html.Options
	if err == nil {
		opts = difftext.PageOptions(d, old)
	}
	page, err := renderReport(new, err, opts)
	s.writePage(w, page, err)
}

// renderReport returns the HTML page of a report, or err if that is not nil.
func renderReport(rep *report.Report, err error, opts html.Options) ([]byte, error) {
	var out bytes.Buffer
	if err == nil {
		err = html.Write(&out, rep, opts)
	}
	return out.Bytes(), err
}

// writePage answers with a page of package html, whose own policy permits its script, or with err if that is not nil.
func (s *Server) writePage(w http.ResponseWriter, page []byte, err error) {
	if err != nil {
		s.writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	_, _ = w.Write(page)
}
