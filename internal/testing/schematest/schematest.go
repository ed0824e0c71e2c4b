// Package schematest checks JSON reports against the published schema, in tests.
package schematest

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// Compile returns the report's schema, ready to validate values that jsonschema.UnmarshalJSON made.
func Compile(t testing.TB) *jsonschema.Schema {
	t.Helper()
	return compile(t, report.JSONSchema())
}

// compiled has the schemas that this process has read: a test validates many documents by one.
var compiled sync.Map // the schema's text -> *jsonschema.Schema

func compile(t testing.TB, schema []byte) *jsonschema.Schema {
	t.Helper()
	if s, ok := compiled.Load(string(schema)); ok {
		return s.(*jsonschema.Schema)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatalf("the schema is not JSON: %v", err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	const name = "schema.json"
	must.Do(t, c.AddResource(name, doc))
	s, err := c.Compile(name)
	if err != nil {
		t.Fatalf("the schema is not valid: %v", err)
	}
	compiled.Store(string(schema), s)
	return s
}

// Report fails the test if r breaks a promise of the contract (see report.Report.CheckValid). Tests that make reports of
// traces call it on every one.
func Report(t testing.TB, r *report.Report) {
	t.Helper()
	if err := r.CheckValid(); err != nil {
		t.Errorf("the report of %s: %v", r.Input.Name, err)
	}
}

// Validate fails the test unless data is one JSON report that the schema allows. The name says which, in messages.
func Validate(t testing.TB, name string, data []byte) {
	t.Helper()
	ValidateBy(t, report.JSONSchema(), name, data)
}

// Closed reads a schema and closes it for the test: a field that it does not describe breaks it, too.
func Closed(t testing.TB, file string) []byte {
	t.Helper()
	text := must.Have(os.ReadFile(file))(t)
	return bytes.ReplaceAll(text, []byte(`"type": "object",`), []byte(`"type": "object", "additionalProperties": false,`))
}

// ValidateBy is Validate for another schema.
func ValidateBy(t testing.TB, schema []byte, name string, data []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Errorf("%s is not JSON: %v", name, err)
		return
	}
	if err := compile(t, schema).Validate(v); err != nil {
		t.Errorf("%s breaks the schema: %v", name, err)
	}
}
