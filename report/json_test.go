package report_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/report"
)

// schemaDef is the part of a schema's object that the tests check.
type schemaDef struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

func readSchema(t *testing.T) map[string]schemaDef {
	t.Helper()
	var s struct {
		Defs map[string]schemaDef `json:"$defs"`
	}
	must.Do(t, json.Unmarshal(report.JSONSchema(), &s))
	return s.Defs
}

// TestSchemaHasTheTypesFields compares every struct of the report with the schema's definition of the same name: the
// same fields, and required exactly where Go always writes one.
func TestSchemaHasTheTypesFields(t *testing.T) {
	defs := readSchema(t)
	visited := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			walk(typ.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if visited[typ] || typ == reflect.TypeFor[time.Time]() {
			return
		}
		visited[typ] = true
		def, ok := defs[typ.Name()]
		if !ok {
			// Types have the same names in Go and in the schema.
			t.Errorf("the schema has no $defs/%s", typ.Name())
			return
		}
		var fields, required []string
		for f := range typ.Fields() {
			name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			check.True(t, name != "" && name != "-", "%s.%s has no JSON name", typ.Name(), f.Name)
			fields = append(fields, name)
			if opts != "omitempty" {
				required = append(required, name)
			}
			walk(f.Type)
		}
		var props []string
		for name := range def.Properties {
			props = append(props, name)
		}
		compare(t, typ.Name()+": fields", fields, props)
		compare(t, typ.Name()+": required", required, def.Required)
	}
	walk(reflect.TypeFor[report.Report]())
	for name, def := range defs {
		if def.Properties != nil && !slices.ContainsFunc(slices.Collect(mapKeys(visited)), func(typ reflect.Type) bool { return typ.Name() == name }) {
			t.Errorf("$defs/%s is no type of the report", name)
		}
	}
}

func mapKeys(m map[reflect.Type]bool) func(func(reflect.Type) bool) {
	return func(yield func(reflect.Type) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func compare(t *testing.T, subject string, inGo, inSchema []string) {
	t.Helper()
	slices.Sort(inGo)
	slices.Sort(inSchema)
	check.True(t, slices.Equal(inGo, inSchema), "%s: Go has %q, the schema %q", subject, inGo, inSchema)
}

// TestSchemaKnowsTheVocabulary compares the schema's lists of names with those in Go.
func TestSchemaKnowsTheVocabulary(t *testing.T) {
	var s struct {
		Defs map[string]struct {
			Enum       []string `json:"enum"`
			Properties map[string]struct {
				Enum []string `json:"enum"`
			} `json:"properties"`
		} `json:"$defs"`
	}
	must.Do(t, json.Unmarshal(report.JSONSchema(), &s))
	property := func(def, name string) []string { return s.Defs[def].Properties[name].Enum }
	sameList(t, "causes", report.Causes(), s.Defs["cause"].Enum)
	sameList(t, "bands", report.BandNames(), property("Band", "band"))
	sameList(t, "kinds", report.Kinds(), property("Group", "kind"))
	sameList(t, "roles", report.Roles(), property("Group", "role"))
	sameList(t, "reasons to leave out", report.LeftOutReasons(), property("LeftOut", "why"))
	sameList(t, "severities", report.Severities(), property("Finding", "severity"))
	sameList(t, "kinds of changes", report.ChangeKinds(), property("Change", "kind"))
	sameList(t, "verdicts about throttling", report.ThrottleVerdicts(), property("Throttle", "verdict"))
	sameList(t, "the host's verdicts about throttling", report.ThrottleVerdicts(), property("HostQuota", "verdict"))
	sameList(t, "verdicts about the network", report.NetworkVerdicts(), property("HostNetwork", "verdict"))
}

func sameList[S ~string](t *testing.T, subject string, inGo []S, inSchema []string) {
	t.Helper()
	check.Equal(t, words.List(inGo), words.List(inSchema), "%s: Go has %q, the schema %q", subject, inGo, inSchema)
}

// samples returns the hand-written reports of testdata.
func samples(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.json")
	must.True(t, err == nil && len(names) != 0, "no samples in testdata: %v", err)
	return names
}

func TestSamplesAreValidAndSurviveARoundTrip(t *testing.T) {
	for _, name := range samples(t) {
		data := must.Have(os.ReadFile(name))(t)
		schematest.Validate(t, name, data)
		r, err := report.ReadJSON(bytes.NewReader(data))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var out bytes.Buffer
		if err := report.WriteJSON(&out, r); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		schematest.Validate(t, name+", written again", out.Bytes())
		reread, err := report.ReadJSON(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Errorf("%s: reading what was written: %v", name, err)
			continue
		}
		var out2 bytes.Buffer
		if err := report.WriteJSON(&out2, reread); err != nil || !bytes.Equal(out.Bytes(), out2.Bytes()) {
			t.Errorf("%s: written twice, different bytes (error %v)", name, err)
		}
		// No value of the sample is lost: the types have every field of it.
		var want, got any
		must.Do(t, json.Unmarshal(data, &want))
		must.Do(t, json.Unmarshal(out.Bytes(), &got))
		check.True(t, reflect.DeepEqual(want, got), "%s: reading and writing changed the values", name)
	}
}

func TestSchemaRefusesWhatBreaksTheContract(t *testing.T) {
	base := must.Have(os.ReadFile("testdata/pubsub.json"))(t)
	schema := schematest.Compile(t)
	for name, change := range map[string]func(m map[string]any){
		"another schema":   func(m map[string]any) { m["schema"] = "whylate.report/v2" },
		"no groups":        func(m map[string]any) { delete(m, "groups") },
		"null groups":      func(m map[string]any) { m["groups"] = nil },
		"a share of 64":    func(m map[string]any) { firstCause(m)["share"] = 64.0 },
		"a cause by name":  func(m map[string]any) { firstCause(m)["cause"] = "mutex" },
		"fractions of ns":  func(m map[string]any) { firstCause(m)["total_ns"] = 1.5 },
		"a site as text":   func(m map[string]any) { firstCause(m)["site"] = "main.go:5" },
		"start by seconds": func(m map[string]any) { m["input"].(map[string]any)["start"] = "12:30" },
	} {
		var m map[string]any
		must.Do(t, json.Unmarshal(base, &m))
		must.Do(t, schema.Validate(m), "the unchanged sample")
		change(m)
		check.Error(t, schema.Validate(m), "%s: the schema allows it", name)
	}
}

func firstCause(m map[string]any) map[string]any {
	group := m["groups"].([]any)[0].(map[string]any)
	band := group["bands"].([]any)[0].(map[string]any)
	return band["causes"].([]any)[0].(map[string]any)
}

func TestWriteJSONOfTheZeroReport(t *testing.T) {
	r := &report.Report{Schema: report.Schema, Groups: make([]report.Group, 1), Findings: make([]report.Finding, 1)}
	r.Groups[0].Kind = report.KindHTTP1
	r.Groups[0].Bands = []report.Band{{Band: report.BandAll, Causes: []report.Cause{{Cause: "cpu"}}}}
	r.Groups[0].Slowest = make([]report.Request, 1)
	r.Groups[0].Blocks = make([]report.Block, 1)
	r.Findings[0] = report.Finding{Severity: report.SeverityLow, Predicted: &report.Predicted{}}
	r.Runtime.Throttle.Verdict = "unknown"
	var out bytes.Buffer
	must.Do(t, report.WriteJSON(&out, r))
	schematest.Validate(t, "a report with nil lists", out.Bytes())
	check.True(t, r.Groups[0].Bands[0].Causes[0].Via == nil && r.Input.Warnings == nil && r.Groups[0].Blocks[0].Causes == nil,
		"WriteJSON changed the report it was given")
	check.False(t, strings.Contains(out.String(), "ran_meanwhile"), "an empty list that may be left out was written")
}

func TestWriteJSONOfHostileNames(t *testing.T) {
	name := "a\x1b[31m\u009b2J\u202e\u2028\x7f\xff\U000e0041\"\\{[,:]}<&>处理"
	r := &report.Report{Schema: report.Schema}
	r.Input.Name = name
	var out bytes.Buffer
	must.Do(t, report.WriteJSON(&out, r))
	for _, c := range out.String() {
		check.False(t, !unicode.IsPrint(c) && c != '\n', "the output contains %U", c)
	}
	back := must.Have(report.ReadJSON(&out))(t)
	check.Equal(t, back.Input.Name, strings.ToValidUTF8(name, "\ufffd"), "the name came back as")
}

func TestWriteJSONRefusesNaN(t *testing.T) {
	r := &report.Report{Schema: report.Schema}
	r.Runtime.Sched.PsIdle = math.NaN()
	check.Error(t, report.WriteJSON(&bytes.Buffer{}, r), "no error")
}

// TestLayoutKeepsTheJSON compares laid out with compact for awkward values.
func TestLayoutKeepsTheJSON(t *testing.T) {
	r := &report.Report{Schema: report.Schema}
	for _, s := range []string{"", `"`, `\`, `\\"`, "[", "{,", "]", "a: b, c", strings.Repeat("x", 200), "\n"} {
		r.Input.Warnings = append(r.Input.Warnings, report.Warning{Code: s, Text: s + s})
	}
	var out, compact bytes.Buffer
	must.Do(t, report.WriteJSON(&out, r))
	if err := json.Compact(&compact, out.Bytes()); err != nil {
		t.Fatalf("%v in\n%s", err, out.Bytes())
	}
	var a, b any
	check.True(t, json.Unmarshal(out.Bytes(), &a) == nil && json.Unmarshal(compact.Bytes(), &b) == nil && reflect.DeepEqual(a, b),
		"the layout changed the values:\n%s", out.Bytes())
	back, err := report.ReadJSON(&out)
	check.True(t, err == nil && reflect.DeepEqual(back.Input.Warnings, r.Input.Warnings),
		"the warnings came back as %q, error %v", back.Input.Warnings, err)
}

func TestReadJSONErrors(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", "the input is empty"},
		{"blanks", " \n", "the input is empty"},
		{"no JSON", "go 1.26 trace", "not valid JSON (line 1, byte 1)"},
		{"an error further down", "{\n\"schema\":\n oops}", "line 3"},
		{"cut off", `{"schema": "whylate.report/v1", "input": {"name": "x`, "cut off after 52 bytes"},
		{"other JSON", `{"a": 1}`, `no field "schema"`},
		{"a list", `[1]`, "not a whylate report"},
		{"a later schema", `{"schema": "whylate.report/v2", "groups": 7}`, `its schema is "whylate.report/v2", this version reads "whylate.report/v1"`},
		{"another schema", `{"schema": "whylate.bundle/v1"}`, `its schema is "whylate.bundle/v1", want "whylate.report/v1"`},
		{"a wrong type", `{"schema": "whylate.report/v1", "groups": [{"name": 5}]}`, "field groups.name (byte 53) holds a number"},
		{"two reports", `{"schema": "whylate.report/v1"} {}`, "not valid JSON"},
	} {
		_, err := report.ReadJSON(strings.NewReader(c.in))
		check.True(t, err != nil && strings.Contains(err.Error(), c.want) && strings.HasPrefix(err.Error(), "reading a report: "),
			"%s: error %v, want one that says %q", c.name, err, c.want)
	}
	if _, err := report.ReadJSON(strings.NewReader("\ufeff" + `{"schema": "whylate.report/v1", "later_field": [1]}`)); err != nil {
		t.Errorf("an unknown field and a byte order mark: %v", err)
	}
}

func FuzzReadJSON(f *testing.F) {
	names, _ := filepath.Glob("testdata/*.json")
	for _, name := range names {
		if data, err := os.ReadFile(name); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := report.ReadJSON(bytes.NewReader(data))
		if err != nil {
			return
		}
		var out bytes.Buffer
		must.Do(t, report.WriteJSON(&out, r))
		must.Have(report.ReadJSON(&out))(t)
	})
}
