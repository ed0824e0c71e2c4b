// Jaeger shows that spans written by "whylate export" arrive whole in a real
// Jaeger: it builds one from its Go module, starts it on the loopback
// interface, lets the whylate command given export every request of a trace
// over OTLP/HTTP, once as JSON and once as protocol buffers, asks Jaeger's own
// API for each trace, and compares names, starts and durations, to the
// nanosecond, with the requests that "whylate export --to jsonl --all" lists.
//
//	go build -o /tmp/whylate ./cmd/whylate
//	go run ./lab/jaeger -whylate /tmp/whylate x.trace
//
// With -shop DIR, it sends the joined requests of lab/shop's recording as well, as one file and as a file for each service, and compares
// traces of several services with the logs of those services.
//
// The first run downloads and builds Jaeger, which takes minutes; -jaeger
// names a binary that is there already. No test runs this.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// version of Jaeger that is built.
const version = "v1.76.0"

func main() {
	whylate := flag.String("whylate", "whylate", "the whylate command")
	jaeger := flag.String("jaeger", "", "a Jaeger v2 binary; built if empty")
	maxTraces := flag.Int("most", 2000, "compare at most this many traces in each encoding")
	shop := flag.String("shop", "", "a directory with shop.whylate and truth.json of lab/shop")
	flag.Parse()
	if err := run(*whylate, *jaeger, flag.Arg(0), *shop, *maxTraces); err != nil {
		fmt.Fprintln(os.Stderr, "jaeger:", err)
		os.Exit(1)
	}
}

func run(whylate, jaeger, trace, shop string, maxTraces int) error {
	if trace == "" {
		return errors.New("name a trace")
	}
	dir, err := os.MkdirTemp("", "whylate-jaeger-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if jaeger == "" {
		if jaeger, err = build(dir); err != nil {
			return err
		}
	}
	want, err := requests(whylate, trace, dir)
	if err != nil {
		return err
	}
	for _, encoding := range []string{"json", "protobuf"} {
		if err := proveTraces(whylate, jaeger, trace, dir, encoding, want, maxTraces); err != nil {
			return fmt.Errorf("%s: %w", encoding, err)
		}
		if shop == "" {
			continue
		}
		file := filepath.Join(shop, "shop.whylate")
		separate, err := recordingsOf(file, dir)
		if err != nil {
			return err
		}
		for _, recordings := range [][]string{{file}, separate} {
			if err := proveServices(whylate, jaeger, shop, dir, encoding, recordings); err != nil {
				return fmt.Errorf("%s of several services: %w", encoding, err)
			}
		}
	}
	return nil
}

// build builds Jaeger inside its own module, with its own go.sum.
func build(dir string) (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/jaegertracing/jaeger@"+version).Output()
	if err != nil {
		return "", fmt.Errorf("downloading Jaeger: %w", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "jaeger")
	cmd := exec.Command("go", "build", "-o", bin, "./cmd/jaeger")
	cmd.Dir, cmd.Env = module.Dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building Jaeger: %w: %.400s", err, out)
	}
	return bin, nil
}

// A piece is a request or one of its segments. Times are ns.
type piece struct {
	name       string
	start, end int64
}

// A request is the expected content of one trace.
type request struct {
	id       string
	root     piece
	segments []piece
}

// requests lists the trace's requests as JSONL has them.
func requests(whylate, trace, dir string) (map[string]*request, error) {
	file := filepath.Join(dir, "all.jsonl")
	if out, err := exec.Command(whylate, "export", "--to", "jsonl", "--all", "-o", file, trace).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("whylate: %w: %s", err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list := map[string]*request{}
	var wall int64
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var obj struct {
			Type, ID, Group, Cause string
			Start                  *time.Time
			StartNS                int64  `json:"start_ns"`
			LatencyNS              int64  `json:"latency_ns"`
			DurationNS             int64  `json:"duration_ns"`
			RequestID              string `json:"request_id"`
			Site                   *struct{ Func string }
		}
		if kind := typeOf(lines.Bytes()); kind != "input" && kind != "request" && kind != "segment" {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &obj); err != nil {
			return nil, err
		}
		switch obj.Type {
		case "input":
			if obj.Start == nil {
				return nil, errors.New("the trace does not know the time of day")
			}
			wall = obj.Start.UnixNano()
		case "request":
			list[obj.ID] = &request{id: obj.ID, root: piece{obj.Group, wall + obj.StartNS, wall + obj.StartNS + obj.LatencyNS}}
		case "segment":
			name := obj.Cause
			if obj.Site != nil {
				name += " " + obj.Site.Func
			}
			r := list[obj.RequestID]
			r.segments = append(r.segments, piece{name, wall + obj.StartNS, wall + obj.StartNS + obj.DurationNS})
		}
	}
	return list, lines.Err()
}

func typeOf(line []byte) string {
	_, rest, _ := bytes.Cut(line, []byte(`"type":"`))
	kind, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(kind)
}

// config is a Jaeger that keeps traces in memory and listens on given ports.
const config = `service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}
  telemetry:
    metrics: {level: none}
    logs: {level: warn}
extensions:
  jaeger_storage:
    backends: {some_storage: {memory: {max_traces: 1000000}}}
  jaeger_query:
    storage: {traces: some_storage}
    http: {endpoint: "127.0.0.1:%d"}
    grpc: {endpoint: "127.0.0.1:%d"}
receivers:
  otlp:
    protocols:
      http: {endpoint: "127.0.0.1:%d"}
exporters:
  jaeger_storage_exporter: {trace_storage: some_storage}
`

// A server is a running Jaeger.
type server struct {
	api, endpoint string
	cmd           *exec.Cmd
}

// startServer starts a Jaeger without any traces.
func startServer(jaeger, dir string) (*server, error) {
	var ports [3]int
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		ports[i] = l.Addr().(*net.TCPAddr).Port
		defer l.Close()
		l.Close()
	}
	file := filepath.Join(dir, "jaeger.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, ports[0], ports[1], ports[2]), 0o600); err != nil {
		return nil, err
	}
	var log bytes.Buffer
	s := &server{fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d/v1/traces", ports[2]), exec.Command(jaeger, "--config", file)}
	s.cmd.Stdout, s.cmd.Stderr = &log, &log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err := ready(s.api + "/api/services"); err != nil {
		s.end()
		return nil, fmt.Errorf("%w: %.800s", err, log.String())
	}
	return s, nil
}

func (s *server) end() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func proveTraces(whylate, jaeger, trace, dir, encoding string, want map[string]*request, maxTraces int) error {
	server, err := startServer(jaeger, dir)
	if err != nil {
		return err
	}
	defer server.end()
	began := time.Now()
	if out, err := exec.Command(whylate, "export", "--to", "otlp", "--all", "--encoding", encoding, "-o", server.endpoint, trace).CombinedOutput(); err != nil {
		return fmt.Errorf("whylate: %w: %s", err, out)
	}
	sent := time.Since(began)
	ids, err := traceIDs(whylate, trace, dir)
	if err != nil {
		return err
	}
	compared, spans := 0, 0
	var total, reference int64
	for id, trace := range ids {
		if compared == maxTraces {
			break
		}
		r := want[id]
		if r == nil {
			return fmt.Errorf("request %s is sent, but not listed", id)
		}
		n, ns, err := compare(server.api, trace, r)
		if err != nil {
			return fmt.Errorf("request %s, trace %s: %w", id, trace, err)
		}
		compared++
		spans += n
		total += ns
		reference += r.root.end - r.root.start
	}
	if len(ids) != len(want) {
		return fmt.Errorf("%d requests are sent, %d listed", len(ids), len(want))
	}
	fmt.Printf("%-8s  %d requests sent in %v; %d of them asked for: %d spans, each with the name, start and duration of the JSON, to the nanosecond; sum of latencies %d ns in Jaeger, %d ns in the JSON\n",
		encoding, len(ids), sent.Round(time.Millisecond), compared, spans, total, reference)
	return nil
}

func ready(url string) error {
	for range 300 {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("no answer from Jaeger")
}

// otlpTraces is the part of OTLP/JSON that is compared.
type otlpTraces struct {
	ResourceSpans []struct {
		Resource   struct{ Attributes []otlpAttribute }
		ScopeSpans []struct {
			Spans []struct {
				TraceID, SpanID, ParentSpanID, Name string
				StartTimeUnixNano, EndTimeUnixNano  string
				Attributes                          []otlpAttribute
			}
		}
	}
}

type otlpAttribute struct {
	Key   string
	Value struct{ StringValue, IntValue string }
}

// traceIDs returns the trace of every request, from spans written to a file.
func traceIDs(whylate, trace, dir string) (map[string]string, error) {
	file := filepath.Join(dir, "spans.json")
	if out, err := exec.Command(whylate, "export", "--to", "otlp", "--all", "-o", file, trace).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("whylate: %w: %s", err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ids := map[string]string{}
	for dec := json.NewDecoder(f); ; {
		var doc otlpTraces
		if err := dec.Decode(&doc); err == io.EOF {
			return ids, nil
		} else if err != nil {
			return nil, err
		}
		for _, s := range doc.ResourceSpans[0].ScopeSpans[0].Spans {
			for _, a := range s.Attributes {
				if a.Key == "whylate.request" {
					ids[a.Value.StringValue] = s.TraceID
				}
			}
		}
	}
}

// ask asks Jaeger for JSON.
func ask[T any](url string) (answer T, err error) {
	resp, err := http.Get(url)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer, err
	}
	if resp.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("the answer of Jaeger is %s: %.200s", resp.Status, body)
	}
	return answer, json.Unmarshal(body, &answer)
}

// compare asks for a trace and holds it to the request. It returns the number
// of spans and the duration of the request's.
func compare(api, trace string, r *request) (int, int64, error) {
	answer, err := ask[struct{ Result otlpTraces }](api + "/api/v3/traces/" + trace)
	if err != nil {
		return 0, 0, err
	}
	var root *piece
	var rootID string
	segments := map[piece]int{}
	spans := 0
	for _, from := range answer.Result.ResourceSpans {
		for _, scope := range from.ScopeSpans {
			for _, s := range scope.Spans {
				p := piece{name: s.Name}
				p.start, _ = strconv.ParseInt(s.StartTimeUnixNano, 10, 64)
				p.end, _ = strconv.ParseInt(s.EndTimeUnixNano, 10, 64)
				isRoot := false
				for _, a := range s.Attributes {
					isRoot = isRoot || a.Key == "whylate.request" && a.Value.StringValue == r.id
				}
				if isRoot {
					root, rootID = &p, s.SpanID
				}
			}
		}
	}
	if root == nil || *root != r.root {
		return 0, 0, fmt.Errorf("the request is %+v, want %+v", root, r.root)
	}
	spans++
	for _, from := range answer.Result.ResourceSpans {
		for _, scope := range from.ScopeSpans {
			for _, s := range scope.Spans {
				if s.ParentSpanID != rootID {
					continue
				}
				p := piece{name: s.Name}
				p.start, _ = strconv.ParseInt(s.StartTimeUnixNano, 10, 64)
				p.end, _ = strconv.ParseInt(s.EndTimeUnixNano, 10, 64)
				segments[p]++
				spans++
			}
		}
	}
	for _, p := range r.segments {
		if segments[p]--; segments[p] < 0 {
			return 0, 0, fmt.Errorf("no span for segment %+v; there are %v", p, strings.Join(strings.Fields(fmt.Sprint(segments)), " "))
		}
	}
	if spans != 1+len(r.segments) {
		return 0, 0, fmt.Errorf("%d spans, want %d", spans, 1+len(r.segments))
	}
	return spans, root.end - root.start, nil
}
