package export_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// A readSpan is a span decoded from JSON or protocol buffers.
type readSpan struct {
	service                 string
	trace, id, parent, name string
	kind                    int
	start, end              int64
	attributes              map[string]string
}

func spansOfJSON(t *testing.T, data []byte) (out []readSpan) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		var doc struct {
			ResourceSpans []struct {
				Resource struct {
					Attributes []struct {
						Value struct{ StringValue string }
					}
				}
				ScopeSpans []struct {
					Spans []struct {
						TraceID, SpanID, ParentSpanID, Name string
						Kind                                int
						StartTimeUnixNano, EndTimeUnixNano  int64 `json:",string"`
						Attributes                          []struct {
							Key   string
							Value struct {
								StringValue, IntValue *string
							}
						}
					}
				}
			}
		}
		if err := dec.Decode(&doc); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		for _, from := range doc.ResourceSpans {
			for _, s := range from.ScopeSpans[0].Spans {
				x := readSpan{from.Resource.Attributes[0].Value.StringValue, s.TraceID, s.SpanID, s.ParentSpanID, s.Name, s.Kind, s.StartTimeUnixNano, s.EndTimeUnixNano, map[string]string{}}
				for _, a := range s.Attributes {
					if a.Value.StringValue != nil {
						x.attributes[a.Key] = *a.Value.StringValue
					} else {
						x.attributes[a.Key] = *a.Value.IntValue
					}
				}
				out = append(out, x)
			}
		}
	}
}

func spansOfProtobuf(t *testing.T, data []byte) (out []readSpan) {
	t.Helper()
	request := must.Have(readSchema(t, "testdata/otlp.schema").decode("ExportTraceServiceRequest", data))(t)
	for from := range request.all("resource_spans") {
		service := ""
		for a := range from.msg("resource").all("attributes") {
			if a.text("key") == "service.name" {
				service = a.msg("value").text("string_value")
			}
		}
		for scope := range from.all("scope_spans") {
			for s := range scope.all("spans") {
				x := readSpan{
					service,
					hex.EncodeToString([]byte(s.text("trace_id"))), hex.EncodeToString([]byte(s.text("span_id"))), hex.EncodeToString([]byte(s.text("parent_span_id"))), s.text("name"),
					int(s.uint("kind")), int64(s.uint("start_time_unix_nano")), int64(s.uint("end_time_unix_nano")), map[string]string{},
				}
				for a := range s.all("attributes") {
					v := a.msg("value")
					x.attributes[a.text("key")] = v.text("string_value")
					if v.hasField("int_value") {
						x.attributes[a.text("key")] = strconv.FormatInt(int64(v.uint("int_value")), 10)
					}
				}
				out = append(out, x)
			}
		}
	}
	return out
}

// TestOTLPEncodingsAgree reads both encodings back.
func TestOTLPEncodingsAgree(t *testing.T) {
	for name, r := range reports(t) {
		if r.Input.Start == nil {
			continue
		}
		var out [2]bytes.Buffer
		for i, enc := range []string{"json", "protobuf"} {
			s := must.Have(export.NewSpans(r, enc, true, export.ToWriter(&out[i])))(t)
			must.Do(t, s.FromReport(r))
		}
		a, b := spansOfJSON(t, out[0].Bytes()), spansOfProtobuf(t, out[1].Bytes())
		if len(a) == 0 && len(r.Groups) > 0 || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%s: %d spans as JSON, %d as protocol buffers, or not the same", name, len(a), len(b))
		}
	}
}

// TestOTLPBatches: messages are bounded, and no span is lost between them.
func TestOTLPBatches(t *testing.T) {
	start := time.Now()
	r := &report.Report{Input: report.Input{Name: "x", Start: &start}}
	g := report.Group{ID: "g", Name: "g", Kind: "task"}
	for i := range 5 {
		q := report.Request{ID: fmt.Sprint(i), LatencyNS: 3000}
		for k := range 1500 {
			q.Segments = append(q.Segments, report.Segment{StartNS: int64(2 * k), DurationNS: 2, Cause: "cpu", Site: &report.Site{Func: strings.Repeat("f", 900)}})
		}
		g.Slowest = append(g.Slowest, q)
	}
	r.Groups = []report.Group{g}
	for _, enc := range []string{"json", "protobuf"} {
		total, messages := 0, 0
		s, err := export.NewSpans(r, enc, true, func(body []byte, spans int) error {
			total += spans
			messages++
			check.True(t, len(body) <= 3<<20 && spans <= 2000, "a message of %d bytes, %d spans", len(body), spans)
			return nil
		})
		must.Do(t, err)
		if err := s.FromReport(r); err != nil || total != 5*1501 || messages < 5 {
			t.Errorf("%d spans in %d messages, error %v", total, messages, err)
		}
	}
}
