package redact

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
)

// TestHostLine tests that host lines keep numbers and words that are not file names.
func TestHostLine(t *testing.T) {
	const start = `{"kind":"start","schema":"whylate.host/v1","pid":4242,"interval_ns":50000000,"facts":{"pid":4242,"os":"linux","arch":"amd64","cpus":8,"parallelism":4,"quota_cpus":2.5,"period_ns":100000000,` +
		`"quota_from":"/sys/fs/cgroup/pod-secret/cpu.max","quota_depth":1,"quota_hidden":true,"memory_bytes":1073741824,"memory_from":"/sys/fs/cgroup/secret","group":"/secret","gomaxprocs":"4","gogc":"off","gomemlimit":"1GiB","go":"go1.26.8","later":"secret"}}`
	const startKept = `{"facts":{"arch":"amd64","cpus":8,"go":"go1.26.8","gogc":"off","gomaxprocs":"4","gomemlimit":"1GiB","memory_bytes":1073741824,"os":"linux","parallelism":4,"period_ns":100000000,"quota_cpus":2.5,"quota_depth":1,"quota_hidden":true},` +
		`"interval_ns":50000000,"kind":"start","schema":"whylate.host/v1"}`
	const sample = `{"ancestor_throttled_ns":6,"ancestor_throttled_periods":5,"ancestors_complete":true,"kind":"sample","local_ns":4,"periods":1,"run_delay_ns":8,"run_ns":7,"threads":9,"throttled_ns":3,"throttled_periods":2,"usage_ns":18446744073709551615}`
	for text, want := range map[string]string{
		start:  startKept,
		sample: sample,
		`{"kind":"sample","run_ns":"secret","threads":{"secret":1},"periods":[1],"secret":1}`:       `{"kind":"sample"}`,
		`{"kind":"start","schema":"secret","facts":{"go":"/home/secret","os":7,"gogc":["secret"]}}`: `{"facts":{},"kind":"start"}`,
		`{"kind":"start","facts":"secret","schema":"whylate.host/v1-and-a-secret"}`:                 `{"kind":"start"}`,
		`{"kind":"sample","facts":null,"usage_ns":null}`:                                            `{"kind":"sample","usage_ns":null}`,
	} {
		for _, o := range []Options{{Logs: Drop}, {Tasks: Hash}, {Routes: Drop}, {Parents: Hash}} {
			if got, ok := o.redactHostLine(text); !ok || got != want {
				t.Errorf("%s\nbecame %s, %v\nwant   %s", text, got, ok, want)
			}
		}
		if got, ok := (&Options{Files: Drop}).redactHostLine(text); !ok || got != text {
			t.Errorf("%s\nbecame %s, %v, although no text is hidden", text, got, ok)
		}
	}
	for _, text := range []string{"", "secret", `{"kind":"secret"}`, `{"kind":"start"`, `{"kind":"start"} secret`, `[{"kind":"start"}]`, `null`, start[:len(start)-1]} {
		if got, ok := (&Options{Logs: Drop}).redactHostLine(text); ok {
			t.Errorf("%s became %s", text, got)
		}
	}
	check.True(t, json.Valid([]byte(startKept)) && !strings.Contains(startKept, "secret"), "the test is wrong")
}
