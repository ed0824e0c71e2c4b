package redact

import (
	"encoding/json"
	"strings"
)

// The fields of a host line that stay (docs/bundle.md). All others are removed: process ids, names of control groups, and
// fields of later versions.
var (
	hostNumbers = fieldSet("interval_ns", "usage_ns", "periods", "throttled_periods", "throttled_ns", "local_ns",
		"ancestor_throttled_periods", "ancestor_throttled_ns", "ancestors_complete", "run_ns", "run_delay_ns", "threads")
	factNumbers = fieldSet("cpus", "parallelism", "quota_cpus", "period_ns", "quota_depth", "quota_hidden", "memory_bytes")
	factWords   = fieldSet("os", "arch", "gomaxprocs", "gogc", "gomemlimit", "go")
)

// fieldSet returns a set of names.
func fieldSet(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

type fields map[string]json.RawMessage

// redactHostLine removes the identity of the process from a line of host samples, a user log of service/flight, and keeps its
// numbers; ok is false for another text.
func (o *Options) redactHostLine(text string) (out string, ok bool) {
	var line fields
	if json.Unmarshal([]byte(text), &line) != nil {
		return "", false
	}
	var kind string
	if json.Unmarshal(line["kind"], &kind) != nil || kind != "start" && kind != "sample" {
		return "", false
	}
	if o.strictest() == Keep {
		return text, true
	}
	filtered := line.filter(hostNumbers, nil)
	filtered["kind"] = line["kind"]
	if schema := string(line["schema"]); strings.HasPrefix(schema, `"whylate.host/`) && len(schema) < 20 {
		filtered["schema"] = line["schema"]
	}
	var facts fields
	if json.Unmarshal(line["facts"], &facts) == nil && facts != nil {
		filtered["facts"], _ = json.Marshal(facts.filter(factNumbers, factWords)) // it was read from JSON
	}
	data, err := json.Marshal(filtered)
	return string(data), err == nil
}

// filter returns the listed fields: of numbers, every value but strings, lists and objects; of words, strings below 80 bytes without
// a slash or backslash, which no file name is.
func (f fields) filter(numbers, words map[string]bool) fields {
	filtered := fields{}
	for name, value := range f {
		switch first := value[0]; {
		case numbers[name] && first != '"' && first != '{' && first != '[':
			filtered[name] = value
		case words[name] && first == '"' && len(value) < 80 && !strings.ContainsAny(string(value), `/\`):
			filtered[name] = value
		}
	}
	return filtered
}
