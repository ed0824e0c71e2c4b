// Package html writes a report as one HTML file that needs no network, no server
// and no other file. The file contains the report's JSON, which can be copied
// from it, and its content security policy forbids it to load or send anything.
//
// Every number on the page is in the report or is a sum of such numbers, and the
// page explains how each was computed. The page's sources are the style sheet and
// the ECMAScript modules under page/. This package joins the modules into one
// script, so that building needs no JavaScript tools.
package html

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Options say how a page is written. The zero value is ready for use.
type Options struct {
	// Command is the command that gives this report, such as "whylate explain
	// x.trace"; the page shows it. It must contain no credentials.
	Command string
	// Version is the version of whylate that writes the page.
	Version string
	// Before, if not nil, is an earlier report of the same service. The page compares
	// the flame graphs and percentiles of its groups with those of r.
	Before *report.Report
	// Judged says that Changed lists the groups of r, by their ids, that changed
	// by the evidence of both recordings.
	Judged  bool
	Changed []string
	// Servers are comparisons of all requests of a server, for the page's table before those of groups. Moved lists the groups of r, by
	// their ids, that are not compared because requests moved between them.
	Servers []Server
	Moved   []string
	// Live adds the parts for which the page asks a server: the page of "whylate
	// view". It sends requests to its own origin only.
	Live bool
	// Editor is the editor in which sites open: vscode, idea, or a URL that contains
	// {file} and {line}. Empty is none.
	Editor string
	// Recording, on a live page that may ask for a new recording, is the number
	// of this one.
	Recording int
	// Services, on a live page, are the names of the recordings in the file of this one, which the page may ask for.
	Services []string
}

// A Server is all requests of a server, before and after.
type Server struct {
	Name     string         `json:"name"`
	OldCount int            `json:"old_count"`
	NewCount int            `json:"new_count"`
	Old      report.Latency `json:"old"`
	New      report.Latency `json:"new"`
	Changed  bool           `json:"changed"`
}

// A rule is the documentation of a finding's code on the page.
type rule struct {
	Code    report.RuleCode `json:"code"`
	Name    string          `json:"name"`
	Summary string          `json:"summary"`
	finding.Doc
}

// pageData returns the JSON of the page's data other than the report.
func (o *Options) pageData(r *report.Report) ([]byte, error) {
	rules := []rule{}
	for _, k := range finding.All() {
		if slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Code == k.Code }) {
			rules = append(rules, rule{k.Code, k.Name, k.Summary, k.Doc})
		}
	}
	nouns := map[report.Kind]string{}
	for _, kind := range report.Kinds() {
		nouns[kind] = kind.RequestNoun()
	}
	valid := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
	return json.Marshal(map[string]any{"command": valid(o.Command), "version": valid(o.Version), "rules": rules, "before": o.comparison(r), "recording": o.Recording, "services": o.Services, "editor": valid(o.Editor), "words": glossary(), "nouns": nouns, "outcome": verdict.NewOutcome(r, r.Verdict), "compared": verdict.CompareGroups(r, r.Verdict)})
}

// glossary returns words.Glossary as pairs of word and meaning.
func glossary() [][2]string {
	var out [][2]string
	for _, t := range words.Glossary() {
		out = append(out, [2]string{t.Word, t.Meaning})
	}
	return out
}

// beforeGroup is the data of a group of an earlier report. ID is also the id of
// the same group in the current report.
type beforeGroup struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Count     int            `json:"count"`
	LatencyNS report.Latency `json:"latency_ns"`
	Histogram [][2]int64     `json:"histogram"`
	Bands     []report.Band  `json:"bands"`
}

// removedFinding is a finding of the earlier report that the current one does not
// have.
type removedFinding struct {
	Code     report.RuleCode `json:"code"`
	Severity report.Severity `json:"severity"`
	Title    string          `json:"title"`
	Group    string          `json:"group"`
}

// comparison returns, for the page's JSON, the data of the earlier report and the ids of findings that are new or in both; nil if there is no earlier
// report. Groups of the two reports with equal ids correspond, and findings of one fault.
func (o *Options) comparison(r *report.Report) any {
	before := o.Before
	if before == nil {
		return nil
	}
	groups, vanished := []beforeGroup{}, []beforeGroup{}
	for i := range before.Groups {
		g := &before.Groups[i]
		if slices.ContainsFunc(r.Groups, func(n report.Group) bool { return n.ID == g.ID }) {
			groups = append(groups, beforeGroup{g.ID, g.Name, g.Count, g.LatencyNS, g.Histogram, g.Bands})
		} else {
			vanished = append(vanished, beforeGroup{ID: g.ID, Name: g.Name, Count: g.Count})
		}
	}
	added, common, removed := []string{}, []string{}, []removedFinding{}
	for i := range r.Findings {
		if slices.ContainsFunc(before.Findings, func(f report.Finding) bool { return f.SameFault(&r.Findings[i]) }) {
			common = append(common, r.Findings[i].ID)
		} else {
			added = append(added, r.Findings[i].ID)
		}
	}
	for i := range before.Findings {
		f := &before.Findings[i]
		if slices.ContainsFunc(r.Findings, func(n report.Finding) bool { return n.SameFault(f) }) {
			continue
		}
		name := f.Group
		for k := range before.Groups {
			if before.Groups[k].ID == f.Group {
				name = before.Groups[k].Name
			}
		}
		removed = append(removed, removedFinding{f.Code, f.Severity, f.Title, name})
	}
	return map[string]any{
		"name": strings.ToValidUTF8(before.Input.Name, "\ufffd"), "groups": groups, "vanished": vanished,
		"came": added, "stayed": common, "went": removed, "judged": o.Judged, "changed": append([]string{}, o.Changed...), "servers": append([]Server{}, o.Servers...), "moved": append([]string{}, o.Moved...),
	}
}

//go:embed page live waiting
var sources embed.FS

// embedded returns a file of the sources. A wrong name panics.
func embedded(name string) []byte {
	b, err := sources.ReadFile(name)
	if err != nil {
		panic(err) // the name is wrong
	}
	return b
}

// Style returns the style sheet, for other pages with the same appearance.
func Style() string { return string(embedded("page/style.css")) }

// modules are the page's scripts, each after those from which it imports.
var modules = [...]string{
	"format", "causes", "dom", "how", "model", "state", "listing", "sentence", "sourcelinks", "site", "verdict", "findings", "groups", "distribution", "waterfall", "requests", "flame", "moments", "capacity", "compared", "overtime",
	"host", "method", "keys", "main",
}

// liveModules are the modules that only the page of a server has, in order. They
// run after the others.
var liveModules = [...]string{"server", "openedrequest", "allrequests", "tiles", "paint", "area", "areaflame", "timelines", "functions", "live"}

// Write writes r as a page to w. Names in r never become markup, whatever their
// characters. It fails if a number of r is not finite or if writing fails.
func Write(w io.Writer, r *report.Report, opts Options) error {
	if err := write(w, r, opts); err != nil {
		return fmt.Errorf("writing a report as HTML: %w", err)
	}
	return nil
}

// write writes the page without the context that Write adds to errors. A report without a verdict, of an earlier version, gets
// one.
func write(w io.Writer, r *report.Report, opts Options) error {
	if r.Verdict == nil && len(r.Groups) > 0 { // of an earlier version
		completed := *r
		completed.Verdict = verdict.Verdicts(r)
		r = &completed
	}
	compact, err := report.CompactJSON(r)
	if err != nil {
		return err
	}
	var data bytes.Buffer
	// <, >, & and the line separators become \u escapes: JSON has them in
	// strings only, and no string can then end the element that holds it.
	json.HTMLEscape(&data, compact)
	dataType := "application/json"
	if data.Len() > plainSize {
		packed, err := compress(compact)
		if err != nil {
			return err
		}
		data, dataType = *bytes.NewBuffer(packed), packedType
	}
	pageData, err := opts.pageData(r)
	if err != nil {
		return err
	}
	script, style, connectPolicy := joinModules("page", modules[:]...), embedded("page/style.css"), ""
	if opts.Live {
		connectPolicy = "; connect-src 'self'"
		style = slices.Concat(style, embedded("live/live.css"))
		// A block keeps the names of these modules separate from the page's.
		script = slices.Concat(script, []byte("{\n"), joinModules("live", liveModules[:]...), []byte("}\n"))
	}
	parts := map[string][]byte{"style": style, "script": script, "report": data.Bytes(), "about": pageData, "type": []byte(dataType)}
	return fillFrame(w, "page/page.html", connectPolicy, parts)
}

// Waiting writes the page that a server shows while it reads a trace. The page
// polls api/reading, and reloads when the trace has been read.
func Waiting(w io.Writer) error {
	parts := map[string][]byte{"style": embedded("page/style.css"), "script": joinModules("waiting", "waiting")}
	return fillFrame(w, "waiting/waiting.html", "; connect-src 'self'", parts)
}

// fillFrame writes a page: the frame with its placeholders replaced by the parts,
// and a policy that allows only this script and style, plus extraPolicy.
func fillFrame(w io.Writer, frameFile, extraPolicy string, parts map[string][]byte) error {
	frame := embedded(frameFile)
	parts["policy"] = []byte("default-src 'none'; script-src " + policyHash(parts["script"]) + "; style-src " + policyHash(parts["style"]) + "; base-uri 'none'; form-action 'none'" + extraPolicy)
	for {
		match := placeholder.FindSubmatchIndex(frame)
		if match == nil {
			_, err := w.Write(frame)
			return err
		}
		if _, err := w.Write(frame[:match[0]]); err != nil {
			return err
		}
		if _, err := w.Write(parts[string(frame[match[2]:match[3]])]); err != nil {
			return err
		}
		frame = frame[match[1]:]
	}
}

// The page contains a report of up to plainSize bytes as plain JSON, so that other
// programs can read it. A larger report is compressed, because it would make the
// page slow to send: gzip, then base64, in an element of type packedType.
const (
	plainSize  = 1 << 20
	packedType = "application/gzip;base64"
)

// compress returns data in gzip and base64.
func compress(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return base64.StdEncoding.AppendEncode(nil, packed.Bytes()), nil
}

// placeholder matches the positions of parts in page.html.
var placeholder = regexp.MustCompile(`\{\{(policy|style|script|report|about|type)\}\}`)

// policyHash returns the hash of an inline element's text for a content security
// policy.
func policyHash(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// joinModules joins modules into one. An inline module cannot be imported, and a
// page opened from disk may not import files.
func joinModules(dir string, names ...string) []byte {
	var out bytes.Buffer
	for _, m := range names {
		fmt.Fprintf(&out, "\n// %s.js\n", m)
		for line := range bytes.Lines(embedded(dir + "/" + m + ".js")) {
			if !importLine.Match(line) {
				out.Write(bytes.TrimPrefix(line, []byte("export ")))
			}
		}
	}
	return out.Bytes()
}

// importLine matches an import of a module from another one.
var importLine = regexp.MustCompile(`^import \{.*\} from '\.\.?/(?:page/)?[a-z]+\.js';`)

// causeColor matches the color of a cause in the style sheet: its name, and the pair of colors for light and dark.
var causeColor = regexp.MustCompile(`--([a-z-]+): (light-dark\([^)]*\)); --on-`)

// CauseColors returns the CSS colors of causes on the page, as pairs of name and color.
func CauseColors() (colors [][2]string) {
	for _, match := range causeColor.FindAllStringSubmatch(Style(), -1) {
		colors = append(colors, [2]string{match[1], match[2]})
	}
	return colors
}
