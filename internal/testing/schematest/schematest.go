// Package schematest checks JSON reports against the published schema, in tests.
package schematest

import (
	"bytes"
	"encoding/json"
	"os"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// Compile returns the report's schema, which validates values from json.Unmarshal.
func Compile(t testing.TB) *jsonschema.Resolved {
	t.Helper()
	return compile(t, report.JSONSchema())
}

// compiled caches the schemas of this process, because a test validates many documents by one schema.
var compiled sync.Map // the schema's text -> *jsonschema.Resolved

// The library ignores formats, so a pattern replaces the only format of the schemas (RFC 3339, section 5.6).
const (
	format  = `"format": "date-time"`
	pattern = `"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"`
)

// compile returns a schema ready to validate, the same one for the same text. It ends the test if the schema is invalid, or has a
// format other than date-time, which the library would not check.
func compile(t testing.TB, schema []byte) *jsonschema.Resolved {
	t.Helper()
	if s, ok := compiled.Load(string(schema)); ok {
		return s.(*jsonschema.Resolved)
	}
	text := bytes.ReplaceAll(schema, []byte(format), []byte(pattern))
	must.False(t, bytes.Contains(text, []byte(`"format":`)), "the schema has a format that is not checked")
	doc := new(jsonschema.Schema)
	must.Do(t, json.Unmarshal(text, doc), "the schema cannot be read:")
	s, err := doc.Resolve(nil)
	must.Do(t, err, "the schema is not valid:")
	compiled.Store(string(schema), s)
	return s
}

// Report fails the test if r violates report.Report.CheckValid. Every test that creates reports from
// traces calls it.
func Report(t testing.TB, r *report.Report) {
	t.Helper()
	if err := r.CheckValid(); err != nil {
		t.Errorf("the report of %s: %v", r.Input.Name, err)
	}
}

// Validate fails the test unless data is one JSON report that conforms to the schema. Messages have
// the name.
func Validate(t testing.TB, name string, data []byte) {
	t.Helper()
	ValidateBy(t, report.JSONSchema(), name, data)
}

// Closed reads a schema and forbids undescribed fields, so that a test finds them.
func Closed(t testing.TB, file string) []byte {
	t.Helper()
	text := must.Have(os.ReadFile(file))(t)
	return bytes.ReplaceAll(text, []byte(`"type": "object",`), []byte(`"type": "object", "additionalProperties": false,`))
}

// ValidateBy is Validate for another schema.
func ValidateBy(t testing.TB, schema []byte, name string, data []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Errorf("%s is not JSON: %v", name, err)
		return
	}
	if err := compile(t, schema).Validate(v); err != nil {
		t.Errorf("%s breaks the schema: %v", name, err)
	}
}
