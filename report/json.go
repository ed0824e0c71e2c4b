package report

import (
	"bufio"
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/whylate/whylate/internal/output/jsontext"
)

//go:embed report.schema.json
var jsonSchema string

// JSONSchema returns the JSON Schema (draft 2020-12) of a report.
func JSONSchema() []byte { return []byte(jsonSchema) }

// WriteJSON writes r as JSON, laid out for reading, with a line feed at its end. Equal reports give equal bytes; empty lists are [],
// never null; names are valid UTF-8, and characters that could disturb a terminal are \u escapes. It fails if a number is not finite
// or if writing fails.
func WriteJSON(w io.Writer, r *Report) error {
	rest, groups, err := encodeParts(r, layOut)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	if len(groups) > 0 {
		before, after, _ := bytes.Cut(rest, []byte(`"groups": []`))
		fmt.Fprintf(out, "%s\"groups\": [\n    ", before)
		for i, g := range groups {
			if i > 0 {
				out.WriteString(",\n    ")
			}
			out.Write(g)
		}
		out.WriteString("\n  ]")
		rest = after
	}
	out.Write(rest)
	out.WriteByte('\n')
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing a report as JSON: %w", err)
	}
	return nil
}

// CompactJSON returns what WriteJSON writes, but in one line without blanks, for programs.
func CompactJSON(r *Report) ([]byte, error) {
	rest, groups, err := encodeParts(r, func(data []byte, _ int) []byte { return data })
	if err != nil {
		return nil, err
	}
	before, after, _ := bytes.Cut(rest, []byte(`"groups":[]`))
	return slices.Concat(before, []byte(`"groups":[`), bytes.Join(groups, []byte(",")), []byte("]"), after), nil
}

// encodeParts returns the JSON of a report with an empty list of groups, which is the first list of this name in it, and that of each group.
// Groups have most of a report, so they are encoded concurrently. format lays out a part, which is in depth objects and lists.
func encodeParts(r *Report, format func(data []byte, depth int) []byte) (rest []byte, groups [][]byte, err error) {
	encode := func(v any, depth int) ([]byte, error) {
		var compact bytes.Buffer
		enc := json.NewEncoder(&compact)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(withoutNil(reflect.ValueOf(v)).Interface()); err != nil {
			return nil, fmt.Errorf("writing a report as JSON: %w", err)
		}
		return format(jsontext.Escape(bytes.TrimSuffix(compact.Bytes(), []byte("\n"))), depth), nil
	}
	groups = make([][]byte, len(r.Groups))
	errs := make([]error, len(r.Groups))
	var encoders sync.WaitGroup
	for i := range r.Groups {
		encoders.Go(func() { groups[i], errs[i] = encode(r.Groups[i], 2) })
	}
	remainder := *r
	remainder.Groups = nil
	rest, err = encode(remainder, 0)
	encoders.Wait()
	return rest, groups, cmp.Or(cmp.Or(errs...), err)
}

// maxJSON is the largest report that is read, in bytes. Reports of the longest traces have a few MB.
const maxJSON = 256 << 20

// ReadJSON reads one report, of 256 MiB at most. It ignores unknown fields, so that it can read reports of later versions with the same
// schema. Errors say whether the input is not JSON, cut off, not a report, a report of another schema, or one that breaks the
// contract (see CheckValid).
func ReadJSON(r io.Reader) (*Report, error) { return readJSON(r, maxJSON) }

// readJSON is ReadJSON with another limit than 256 MiB.
func readJSON(r io.Reader, maxBytes int64) (*Report, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading a report: %w", err)
	}
	if int64(len(data)) > maxBytes {
		return nil, fmt.Errorf("reading a report: it is longer than %d MiB", maxBytes>>20)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // some editors put it there
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("reading a report: the input is empty")
	}
	rep := new(Report)
	err = json.Unmarshal(data, rep)
	if err == nil && rep.Schema == Schema {
		if err := rep.CheckValid(); err != nil {
			return nil, fmt.Errorf("reading a report: it contradicts itself: %w", err)
		}
		return rep, nil
	}
	// An error about the schema comes before one about a field: fields of another schema may have other types.
	firstError := err
	var head struct {
		Schema *string `json:"schema"`
	}
	err = json.Unmarshal(data, &head)
	var syntax *json.SyntaxError
	var typeError *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(data)):
		return nil, fmt.Errorf("reading a report: the JSON is cut off after %d bytes", len(data))
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(data[:syntax.Offset], []byte("\n"))
		return nil, fmt.Errorf("reading a report: not valid JSON (line %d, byte %d): %w", line, syntax.Offset, err)
	case errors.As(err, &typeError), err == nil && head.Schema == nil:
		return nil, fmt.Errorf("reading a report: this is JSON, but not a whylate report: no field %q with the value %q", "schema", Schema)
	case err != nil:
		return nil, fmt.Errorf("reading a report: %w", err)
	case *head.Schema != Schema && strings.HasPrefix(*head.Schema, schemaFamily):
		return nil, fmt.Errorf("reading a report: its schema is %.60q, this version reads %q: use another version of whylate", *head.Schema, Schema)
	case *head.Schema != Schema:
		return nil, fmt.Errorf("reading a report: its schema is %.60q, want %q", *head.Schema, Schema)
	}
	if errors.As(firstError, &typeError) {
		return nil, fmt.Errorf("reading a report: field %s (byte %d) holds a %s where the schema has another type", typeError.Field, typeError.Offset, typeError.Value)
	}
	return nil, fmt.Errorf("reading a report: %w", firstError)
}

const schemaFamily = "whylate.report/"

// withoutNil returns a copy of v in which slices and maps that are written are never nil. Parts that cannot have nil ones are shared with v.
func withoutNil(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Struct:
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		for _, field := range nilFieldsOf(v.Type()) {
			if f := c.Field(field.index); !field.omitEmpty || !f.IsZero() {
				f.Set(withoutNil(f))
			}
		}
		return c
	case reflect.Slice:
		c := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(c, v)
		if mayHoldNil(v.Type().Elem()) {
			for i := range c.Len() {
				c.Index(i).Set(withoutNil(c.Index(i)))
			}
		}
		return c
	case reflect.Map:
		if v.IsNil() {
			return reflect.MakeMap(v.Type())
		}
	case reflect.Pointer:
		if !v.IsNil() && mayHoldNil(v.Type().Elem()) {
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(withoutNil(v.Elem()))
			return p
		}
	}
	return v
}

// mayHoldNil reports whether a value of type t can hold a nil slice or map. The report's types are a tree, so this ends.
func mayHoldNil(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Map:
		return true
	case reflect.Pointer:
		return t.Elem().Kind() == reflect.Struct && mayHoldNil(t.Elem())
	case reflect.Struct:
		return len(nilFieldsOf(t)) > 0
	}
	return false
}

// A nilField is a field of a struct that may hold a nil slice or map.
type nilField struct {
	index     int
	omitEmpty bool
}

var nilFields sync.Map // of each type of struct, since a report has thousands of some: reflect.Type -> []nilField

// nilFieldsOf returns the fields of the struct type t that may hold a nil slice or map. It computes the list of a type once; it may be called
// concurrently.
func nilFieldsOf(t reflect.Type) []nilField {
	if list, ok := nilFields.Load(t); ok {
		return list.([]nilField)
	}
	var list []nilField
	for f := range t.Fields() {
		if f.IsExported() && mayHoldNil(f.Type) {
			list = append(list, nilField{f.Index[0], strings.Contains(f.Tag.Get("json"), ",omitempty")})
		}
	}
	nilFields.Store(t, list)
	return list
}

// inlineWidth is the longest object or list that is laid out in one line.
const inlineWidth = 110

// layOut lays out compact JSON with two spaces for a level, the first of which is depth, and with every object and list that is short enough in
// one line: sites, buckets and segments read better so, and a report has thousands of them.
func layOut(data []byte, depth int) []byte {
	// For each opening bracket, in order, its closing one if the container is short enough; else, and before that is known, the
	// complement of its offset.
	var ends []int
	var open []int // indexes in ends
	scanJSON(data, func(offset int, c byte) {
		switch c {
		case '{', '[':
			open = append(open, len(ends))
			ends = append(ends, ^offset)
		case '}', ']':
			last := len(open) - 1
			if end := &ends[open[last]]; offset-^*end <= inlineWidth {
				*end = offset
			}
			open = open[:last]
		}
	})
	done, inlineEnd := 0, -1
	text := make([]byte, 0, 2*len(data))
	indent := func() {
		text = append(text, '\n')
		for range depth {
			text = append(text, "  "...)
		}
	}
	scanJSON(data, func(offset int, c byte) {
		text = append(text, data[done:offset]...)
		done = offset + 1
		end := -1
		if c == '{' || c == '[' {
			end, ends = ends[0], ends[1:]
		}
		switch isInline := offset <= inlineEnd; {
		case c == ':', isInline && c == ',':
			text = append(text, c, ' ')
		case isInline:
			text = append(text, c)
		case c == ',':
			text = append(text, c)
			indent()
		case c == '}' || c == ']':
			depth--
			indent()
			text = append(text, c)
		case end >= 0:
			text = append(text, c)
			inlineEnd = end
		default:
			text = append(text, c)
			depth++
			indent()
		}
	})
	return append(text, data[done:]...)
}

// scanJSON calls f for every structural character of compact, valid JSON, with its offset.
func scanJSON(data []byte, f func(offset int, c byte)) {
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '"':
			for i++; data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case '{', '}', '[', ']', ',', ':':
			f(i, c)
		}
	}
}
