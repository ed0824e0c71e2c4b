// Package html writes a report as one HTML file that needs nothing else: no
// network, no server, no other file. It opens from disk, holds the report's
// JSON so that it can be copied out again, and forbids itself, by its content
// security policy, to load or send anything.
//
// It is a view: every number on the page stands in the report or is a sum of
// such numbers, and the page says of each how it was computed. The page's
// sources are the plain files under page/: style sheet and ECMAScript modules,
// joined here into one script, so that building needs no JavaScript tools.
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
	// Command is how the report can be had again, such as "whylate explain
	// x.trace"; the page shows it. It must hold no credentials.
	Command string
	// Version is the version of whylate that writes the page.
	Version string
	// Before, if not nil, is what the page compares the flame graphs and
	// percentiles of r's groups with: a report of the same service, earlier.
	Before *report.Report
	// Judged says that Changed lists the groups of r, by their ids, that changed
	// by the evidence of both recordings.
	Judged  bool
	Changed []string
	// Live adds what only a server can answer, for the page that "whylate view"
	// serves: it asks its own origin, and nobody else.
	Live bool
	// Editor opens places of the code: vscode, idea, or an address with {file}
	// and {line} in it. Empty is none.
	Editor string
	// Recording, on a live page that may ask for a new recording, is the number
	// of this one.
	Recording int
}

// A rule is what the page says of the code of a finding.
type rule struct {
	Code    report.RuleCode `json:"code"`
	Name    string          `json:"name"`
	Summary string          `json:"summary"`
	finding.Doc
}

// pageData is what the page says of itself.
func (o *Options) pageData(r *report.Report) ([]byte, error) {
	rules := []rule{}
	for _, k := range finding.All() {
		if slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Code == k.Code }) {
			rules = append(rules, rule{k.Code, k.Name, k.Summary, k.Doc})
		}
	}
	valid := func(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
	return json.Marshal(map[string]any{"command": valid(o.Command), "version": valid(o.Version), "rules": rules, "before": o.comparison(r), "recording": o.Recording, "editor": valid(o.Editor), "words": glossary()})
}

// glossary is words.Glossary for the page.
func glossary() [][2]string {
	var out [][2]string
	for _, t := range words.Glossary() {
		out = append(out, [2]string{t.Word, t.Means})
	}
	return out
}

// beforeGroup is what the page needs of a group of an earlier report. ID is
// that of the same group now.
type beforeGroup struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Count     int            `json:"count"`
	LatencyNS report.Latency `json:"latency_ns"`
	Histogram [][2]int64     `json:"histogram"`
	Bands     []report.Band  `json:"bands"`
}

// removedFinding is a finding that only the earlier report has.
type removedFinding struct {
	Code     report.RuleCode `json:"code"`
	Severity report.Severity `json:"severity"`
	Title    string          `json:"title"`
	Group    string          `json:"group"`
}

// comparison is what the page needs of an earlier report: groups and findings
// belong together by their ids.
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
		if slices.ContainsFunc(before.Findings, func(f report.Finding) bool { return f.ID == r.Findings[i].ID }) {
			common = append(common, r.Findings[i].ID)
		} else {
			added = append(added, r.Findings[i].ID)
		}
	}
	for i := range before.Findings {
		f := &before.Findings[i]
		if slices.ContainsFunc(r.Findings, func(n report.Finding) bool { return n.ID == f.ID }) {
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
		"came": added, "stayed": common, "went": removed, "judged": o.Judged, "changed": append([]string{}, o.Changed...),
	}
}

//go:embed page live waiting
var sources embed.FS

// embedded returns a file of the sources.
func embedded(name string) []byte {
	b, err := sources.ReadFile(name)
	if err != nil {
		panic(err) // the name is wrong
	}
	return b
}

// Style returns the style sheet, for other pages that are to look the same.
func Style() string { return string(embedded("page/style.css")) }

// modules are the page's scripts, each after those that it imports from.
var modules = [...]string{
	"format", "causes", "dom", "how", "model", "state", "listing", "said", "sourcelinks", "site", "verdict", "findings", "groups", "distribution", "waterfall", "requests", "flame", "moments", "compared", "overtime",
	"host", "method", "main",
}

// liveModules are the modules that are only on the page of a server, in order. They
// run when the page is there.
var liveModules = [...]string{"ask", "picked", "allrequests", "tiles", "paint", "area", "timelines", "functions", "live"}

// Write writes r as a page to w. Names in r stay text, whatever characters
// they hold. It fails if a number of r is not finite or if writing fails.
func Write(w io.Writer, r *report.Report, opts Options) error {
	if err := write(w, r, opts); err != nil {
		return fmt.Errorf("writing a report as HTML: %w", err)
	}
	return nil
}

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
		// A block of its own: its names are not the page's.
		script = slices.Concat(script, []byte("{\n"), joinModules("live", liveModules[:]...), []byte("}\n"))
	}
	parts := map[string][]byte{"style": style, "script": script, "report": data.Bytes(), "about": pageData, "type": []byte(dataType)}
	return fillFrame(w, "page/page.html", connectPolicy, parts)
}

// Waiting writes the page that a server shows while it reads a trace: it asks
// api/reading, and loads itself again when that is done.
func Waiting(w io.Writer) error {
	parts := map[string][]byte{"style": embedded("page/style.css"), "script": joinModules("waiting", "waiting")}
	return fillFrame(w, "waiting/waiting.html", "; connect-src 'self'", parts)
}

// fillFrame writes a page: its parts where the frame has their names, and a policy
// that allows this script and style only, and what more says.
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

// A report of up to plainSize bytes stands in the page as it is, so that other
// programs find it there; a larger one would make the page slow to send, and
// is compressed: gzip, then base64, in an element of type packedType.
const (
	plainSize  = 1 << 20
	packedType = "application/gzip;base64"
)

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

// placeholder stands in page.html where a part goes.
var placeholder = regexp.MustCompile(`\{\{(policy|style|script|report|about|type)\}\}`)

// policyHash is what a content security policy calls an inline element's text.
func policyHash(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// joinModules makes one module of all: an element's module cannot import from
// another element's, and one from disk may not import from files either.
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

// importLine is a line of a module that names what it takes from another.
var importLine = regexp.MustCompile(`^import \{.*\} from '\.\.?/(?:page/)?[a-z]+\.js';`)
