package main

import (
	"archive/zip"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A logSpan is what a goroutine of a service logged for a call: see lab/shop.
type logSpan struct {
	ID         string
	G          uint64
	Begin, End int64
}

type serviceLog struct {
	Made, Served []logSpan
	Wall         int64
}

// A serviceSpan is a span of one of the services. Times are Unix ns.
type serviceSpan struct {
	service, id, parent, name string
	start, end                int64
	g                         uint64
}

// recordingsOf returns arguments for the whylate command: the recordings in a file of several services, each extracted to a file of its own.
func recordingsOf(file, dir string) (args []string, err error) {
	services, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer services.Close()
	for _, entry := range services.File {
		name, isRecording := strings.CutSuffix(entry.Name, ".whylate")
		if !isRecording {
			continue
		}
		recording, err := fs.ReadFile(services, entry.Name)
		if err != nil {
			return nil, err
		}
		extracted := filepath.Join(dir, entry.Name)
		if err := os.WriteFile(extracted, recording, 0o600); err != nil {
			return nil, err
		}
		args = append(args, name+"="+extracted)
	}
	return args, nil
}

// proveServices sends the joined requests of lab/shop, from recordings, and compares the traces with the logs of the services: each trace
// is one request of the gateway, spans are inside of their parents, and a span of another service is the call that the logs say its
// parent made.
func proveServices(whylate, jaeger, shop, dir, encoding string, recordings []string) error {
	text, err := os.ReadFile(filepath.Join(shop, "truth.json"))
	if err != nil {
		return err
	}
	var logs map[string]*serviceLog
	if err := json.Unmarshal(text, &logs); err != nil {
		return err
	}
	server, err := startServer(jaeger, dir)
	if err != nil {
		return err
	}
	defer server.end()
	if out, err := exec.Command(whylate, append([]string{"export", "--to", "otlp", "--slowest", "100", "--encoding", encoding, "-o", server.endpoint}, recordings...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("whylate: %w: %s", err, out)
	}
	// What Jaeger's page asks for.
	found, err := ask[struct{ Data []struct{ TraceID string } }](server.api + "/api/traces?" + url.Values{"service": {"gateway"}, "limit": {"1000"}, "lookback": {"custom"}, "start": {"1"}, "end": {"9000000000000000"}}.Encode())
	if err != nil {
		return err
	}
	spanCount, calls, depth := 0, make(map[string]int), 0
	for _, x := range found.Data {
		spans, err := spansOf(server.api, x.TraceID)
		if err != nil {
			return err
		}
		if err := checkServices(spans, logs, calls); err != nil {
			return fmt.Errorf("trace %s: %w", x.TraceID, err)
		}
		services := make(map[string]bool)
		for _, s := range spans {
			services[s.service] = true
		}
		spanCount, depth = spanCount+len(spans), max(depth, len(services))
	}
	fmt.Printf("%-8s  %d recordings: %d traces of the gateway, %d spans of up to %d services, each inside of its parent; calls that the services logged:", encoding, len(recordings), len(found.Data), spanCount, depth)
	for _, c := range slices.Sorted(maps.Keys(calls)) {
		fmt.Printf(" %d %s", calls[c], c)
	}
	fmt.Println()
	if depth < 3 || calls["gateway -> stock"] == 0 || calls["gateway -> price"] == 0 || calls["stock -> ledger"] == 0 {
		return errors.New("no trace has them all")
	}
	return nil
}

func spansOf(api, trace string) (map[string]*serviceSpan, error) {
	answer, err := ask[struct{ Result otlpTraces }](api + "/api/v3/traces/" + trace)
	if err != nil {
		return nil, err
	}
	out := make(map[string]*serviceSpan)
	for _, from := range answer.Result.ResourceSpans {
		service := ""
		for _, a := range from.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.StringValue
			}
		}
		for _, scope := range from.ScopeSpans {
			for _, s := range scope.Spans {
				x := &serviceSpan{service: service, id: s.SpanID, parent: s.ParentSpanID, name: s.Name}
				x.start, _ = strconv.ParseInt(s.StartTimeUnixNano, 10, 64)
				x.end, _ = strconv.ParseInt(s.EndTimeUnixNano, 10, 64)
				for _, a := range s.Attributes {
					if a.Key == "whylate.goroutine" {
						x.g, _ = strconv.ParseUint(a.Value.IntValue, 10, 64)
					}
				}
				out[x.id] = x
			}
		}
	}
	return out, nil
}

// checkServices checks the spans of a trace by id, and counts the calls between services.
func checkServices(spans map[string]*serviceSpan, logs map[string]*serviceLog, calls map[string]int) error {
	roots := 0
	for _, s := range spans {
		if s.parent == "" {
			if roots++; roots > 1 || s.service != "gateway" {
				return fmt.Errorf("%s of %s has no parent", s.name, s.service)
			}
			continue
		}
		parent := spans[s.parent]
		switch {
		case parent == nil:
			return fmt.Errorf("%s of %s has an unknown parent", s.name, s.service)
		case s.start < parent.start || s.end > parent.end || s.end < s.start:
			return fmt.Errorf("%s of %s lasts from %d to %d, its parent %s of %s from %d to %d", s.name, s.service, s.start, s.end, parent.name, parent.service, parent.start, parent.end)
		case parent.service == s.service:
			continue
		}
		callers, isLogged := callersOf(s, parent, logs)
		kind := parent.service + " -> " + s.service
		switch {
		case !isLogged:
			return fmt.Errorf("%s served %q from %d to %d, within a call of %s: its log does not have that", s.service, servedBy(s, logs)[0].ID, s.start, s.end, parent.service)
		case !slices.ContainsFunc(servedBy(parent, logs), func(asked logSpan) bool { return slices.Contains(callers, asked.G) }):
			kind += othersCall
		}
		calls[kind]++
	}
	return nil
}

// othersCall marks the calls of goroutines that do not serve the span's parent: it waits for a lock or a connection that they hold, so its
// path continues in their calls.
const othersCall = " for another request"

// callersOf returns the goroutines of the parent's service that made the call of span s, which lasts longer than the span. isLogged is
// false if the log has no such call.
func callersOf(s, parent *serviceSpan, logs map[string]*serviceLog) (goroutines []uint64, isLogged bool) {
	served, log := servedBy(s, logs), logs[parent.service]
	for _, m := range log.Made {
		if m.Begin+log.Wall < s.start+ambiguous && m.End+log.Wall > s.end-ambiguous && slices.ContainsFunc(served, func(call logSpan) bool { return call.ID == m.ID }) {
			goroutines = append(goroutines, m.G)
		}
	}
	return goroutines, len(goroutines) > 0
}

// ambiguous is the difference of times, in ns, below which two logged requests fit a span equally well: requests that a busy machine
// runs at the same moment begin and end within microseconds, and the log's clock is read later than the trace's.
const ambiguous = 1_000_000

// servedBy returns the logged requests whose times are most similar to those of a span, the most similar one first, of those of its
// goroutine if that is known. It is never empty. The service may have waited for a CPU before it logged the begin.
func servedBy(s *serviceSpan, logs map[string]*serviceLog) []logSpan {
	distance := func(x logSpan) int64 {
		if s.g != 0 && s.g != x.G {
			return math.MaxInt64
		}
		end := x.End + logs[s.service].Wall
		return max(0, s.start-x.Begin-logs[s.service].Wall) + max(s.end-end, end-s.end)
	}
	list := slices.Clone(logs[s.service].Served)
	slices.SortFunc(list, func(a, b logSpan) int { return cmp.Compare(distance(a), distance(b)) })
	return slices.DeleteFunc(list, func(x logSpan) bool { return distance(x)-ambiguous > distance(list[0]) })
}
