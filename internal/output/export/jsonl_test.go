package export

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// texts are what names may be.
var texts = []string{"", "main.handler.func4", "/src/a b.go", `"\`, "<b>&", "\x00\x1f\x7f", "é\u2028\u2029", "\xff\xfe", "=1+1", "a\nb\tc"}

// fill sets every field of v to a random value, sometimes to zero.
func fill(v reflect.Value, rnd *rand.Rand) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(texts[rnd.IntN(len(texts))])
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(rnd.Uint64()) >> rnd.IntN(64))
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Uint64:
		v.SetUint(rnd.Uint64() >> rnd.IntN(64))
	case reflect.Pointer:
		if rnd.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), rnd)
		}
	case reflect.Slice:
		if n := rnd.IntN(5) - 1; n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(v.Index(i), rnd)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), rnd)
		}
	case reflect.Map: // of joined segments, which have no row
	default:
		panic("a field of a new kind: " + v.Type().String())
	}
}

// TestRows: the types of rows have every field of requests and segments.
func TestRows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	n := 5000
	if testing.Short() {
		n = 500
	}
	for range n {
		var q report.Request
		var s report.Segment
		fill(reflect.ValueOf(&q).Elem(), rnd)
		fill(reflect.ValueOf(&s).Elem(), rnd)
		g := report.Group{ID: texts[rnd.IntN(len(texts))], Name: texts[rnd.IntN(len(texts))]}
		s.Joined, q.Segments, q.Lanes, q.Wakes, q.CPUs, q.Pools = nil, nil, nil, nil, nil, nil

		var want bytes.Buffer
		slow := newJSONLines(&want, &report.Report{})
		must.Do(t, slow.buf.Flush())
		want.Reset()
		slow.writeTyped("request", q, map[string]any{"group_id": g.ID, "group": g.Name})
		slow.writeTyped("segment", s, map[string]any{"request_id": q.ID})
		must.Do(t, slow.Close(0))
		var got bytes.Buffer
		fast := newJSONLines(&got, &report.Report{})
		must.Do(t, fast.buf.Flush())
		got.Reset()
		fast.writeLine(rowOfRequest(&g, &q))
		fast.writeLine(rowOfSegment(q.ID, &s))
		must.Do(t, fast.Close(0))
		must.True(t, got.String() == want.String(), "as rows\n%sfield by field\n%s", got.Bytes(), want.Bytes())
	}
}
