package main

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/whylate/whylate/internal/load"
	"github.com/whylate/whylate/internal/testprog"
)

const loopback = "the answer takes less than the way over the loopback and the client's own wake-ups"

// entries is the corpus, by program.
var entries = []entry{
	{
		name: "etcd-reads", program: "etcd", about: "reads over the JSON gateway, nothing else",
		loads: []stream{{kind: "POST /v3/kv/range", rate: 150, targets: etcdTargets("range")}},
		truth: testprog.FieldTruth{Group: `ServeHTTP`, CountWithin: 0.1, WhyNot: loopback},
	},
	{
		name: "etcd-reads-neighbours", program: "etcd", about: "the same reads beside processes that use all CPUs", neighbours: true,
		loads: []stream{{kind: "POST /v3/kv/range", rate: 150, targets: etcdTargets("range")}},
		truth: testprog.FieldTruth{Group: `ServeHTTP`, CountWithin: 0.1, WhyNot: loopback},
	},
	{
		name: "etcd-puts", program: "etcd", about: "every write waits for the log to be on the disk", fault: "fsync",
		loads: []stream{{kind: "POST /v3/kv/put", rate: 100, targets: etcdTargets("put")}},
		truth: testprog.FieldTruth{Group: `kvServer\)\.Put|quotaKVServer\)\.Put`, Cause: `syscall`, Site: `Fdatasync`, Code: `WL2007|WL2003`, CountWithin: 0.1, WhyNot: loopback},
	},
}

func etcdTargets(verb string) func(s *server) []load.Target {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	return func(s *server) []load.Target {
		var list []load.Target
		for i := range 50 {
			body := `{"key":"` + b64(fmt.Sprintf("key-%04d", i)) + `"}`
			if verb == "put" {
				body = strings.TrimSuffix(body, "}") + `,"value":"` + b64(strings.Repeat("v", 256)) + `"}`
			}
			list = append(list, load.Target{Name: verb, Method: "POST", URL: "http://127.0.0.1:" + s.ports[0] + "/v3/kv/" + verb, Body: []byte(body)})
		}
		return list
	}
}
