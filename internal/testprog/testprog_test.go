package testprog

import (
	"bytes"
	"os"
	"testing"
)

func TestRecord(t *testing.T) {
	data, facts := Record(t, "http1", "-d", "100ms", "-procs", "2")
	if !bytes.HasPrefix(data, []byte("go 1.")) {
		t.Errorf("the trace begins with %.16q", data)
	}
	if facts.Scenario != "http1" || facts.Procs != 2 || facts.Bytes != int64(len(data)) || facts.Facts["requests"] == 0 {
		t.Errorf("%d bytes of trace, facts %+v", len(data), facts)
	}
}

func TestBuildOnce(t *testing.T) {
	first := Build(t, "lab/traceprog")
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	again, err := build("lab/traceprog") // as another test process would
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(again)
	if err != nil {
		t.Fatal(err)
	}
	if first != again || !os.SameFile(before, after) {
		t.Errorf("the same program built twice is kept as %s and %s", first, again)
	}
}

func TestBuildFails(t *testing.T) {
	if path, err := build("lab/nosuchprogram"); err == nil {
		t.Errorf("a program that does not exist was built as %s", path)
	}
}

func TestTruth(t *testing.T) {
	services := Services(t)
	if len(services) < 12 {
		t.Fatalf("%d services", len(services))
	}
	data, out, client := Truth(t, "waitgroup", "-d", "700ms", "-trace", "0.4")
	tr := out.Service.Truth
	if !bytes.HasPrefix(data, []byte("go 1.")) || tr.Cause != "sleep" || tr.Site.Line == 0 || out.Client.MinNS < tr.LeastNS || len(client.Requests) != client.All.Count {
		t.Errorf("%d bytes of trace, outcome %+v, client %+v", len(data), out, client.All)
	}
	for _, r := range client.Requests {
		if r.End <= r.Start || r.Status != 200 {
			t.Fatalf("the client saw %+v", r)
		}
	}
}
