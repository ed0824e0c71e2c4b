// Package schematest checks JSON reports against the published schema, in tests.
package schematest

import (
	"bytes"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/whylate/whylate/report"
)

// Compile returns the report's schema, ready to validate values that jsonschema.UnmarshalJSON made.
func Compile(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(report.JSONSchema()))
	if err != nil {
		t.Fatalf("report.schema.json is not JSON: %v", err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("report.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("report.schema.json")
	if err != nil {
		t.Fatalf("report.schema.json is not a valid schema: %v", err)
	}
	return s
}

// Validate fails the test unless data is one JSON report that the schema allows. The name says which, in messages.
func Validate(t testing.TB, name string, data []byte) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Errorf("%s is not JSON: %v", name, err)
		return
	}
	if err := Compile(t).Validate(v); err != nil {
		t.Errorf("%s breaks the schema: %v", name, err)
	}
}
