package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

var attackDuration = flag.Duration("attack", 3*time.Second, "duration of TestMixedAttack; from a minute on it judges how fast pages answer")

// Bounds of a fleet under attack.
const (
	maxPageTime       = time.Second
	maxServerMemoryMB = 500
)

// gzipped returns parts compressed, which are short even if the parts are zeros of many megabytes.
func gzipped(t *testing.T, parts ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	for _, part := range parts {
		must.Have(z.Write(part))(t)
	}
	must.Do(t, z.Close())
	return out.Bytes()
}

// directoryBomb returns a zip of 193 MB, compressed to less than one, whose directory has four million entries.
func directoryBomb(t *testing.T) []byte {
	const entries = 1 << 22
	entry := make([]byte, 46)
	copy(entry, "PK\x01\x02")
	end := make([]byte, 22)
	copy(end, "PK\x05\x06")
	binary.LittleEndian.PutUint16(end[10:], 1)
	binary.LittleEndian.PutUint32(end[12:], uint32(entries*len(entry)))
	binary.LittleEndian.PutUint32(end[16:], 4)
	return gzipped(t, []byte("PK\x03\x04"), bytes.Repeat(entry, entries), end)
}

// TestMixedAttack: one service sends bombs, damaged files and hostile names, reads and sends slowly, and asks for pages without
// rest. The pages of another service answer in time, the server's memory stays bounded, and no accepted recording is lost.
func TestMixedAttack(t *testing.T) {
	const requests = 20
	dir := t.TempDir()
	st := must.Have((&config{dir: dir}).openStore(t.Context(), false))(t)
	defer st.Close()
	for _, service := range []string{"bank", "attacker"} {
		must.Do(t, st.AddToken(t.Context(), service, store.SendScope, service, time.Now().Add(time.Hour)))
	}
	trace := recordTrace(t, requests)
	url, server := startFleet(t, dir)
	firstID, status := postAs(url, "bank", newRecording(t, trace, "bank", "pod", -1))
	must.Equal(t, status, http.StatusAccepted, "the first recording is refused")
	var mu sync.Mutex
	accepted := map[string][]string{"bank": {firstID}}
	answers := map[int]int{} // by status
	send := func(service string, body []byte, encoding string) {
		q, err := http.NewRequest("POST", url+"/v1/recordings", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		q.Header.Set("Authorization", "Bearer "+service)
		if encoding != "" {
			q.Header.Set("Content-Encoding", encoding)
		}
		res, err := http.DefaultClient.Do(q)
		if err != nil {
			return // the server may close a connection before a body's end
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		mu.Lock()
		defer mu.Unlock()
		answers[res.StatusCode]++
		if _, id, ok := strings.Cut(string(text), `"id":"`); ok && res.StatusCode == http.StatusAccepted {
			id, _, _ = strings.Cut(id, `"`)
			accepted[service] = append(accepted[service], id)
		}
	}
	get := func(path string) (time.Duration, int) {
		begin := time.Now()
		res, err := http.Get(url + path)
		if err != nil {
			return time.Since(begin), 0
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return time.Since(begin), res.StatusCode
	}
	directory, zeros := directoryBomb(t), gzipped(t, trace, make([]byte, 300<<20))
	host := strings.TrimPrefix(url, "http://")
	connect := func(ctx context.Context, request string, pause time.Duration, part string) {
		c, err := net.Dial("tcp", host)
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, request)
		for i := 0; ctx.Err() == nil && i < 100; i++ {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			if _, err := io.WriteString(c, part); err != nil {
				return
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), *attackDuration)
	defer cancel()
	var running sync.WaitGroup
	repeat := func(pause time.Duration, act func(i int)) {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				act(i)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	repeat(100*time.Millisecond, func(int) { send("attacker", directory, "gzip") })
	repeat(100*time.Millisecond, func(int) { send("attacker", zeros, "gzip") })
	repeat(50*time.Millisecond, func(i int) {
		send("attacker", newRecording(t, append(slices.Clone(trace[:len(trace)/2]), make([]byte, 1000)...), "attacker", fmt.Sprint("damaged", i), i), "")
	})
	repeat(50*time.Millisecond, func(i int) {
		send("attacker", newRecording(t, trace, "attacker", fmt.Sprintf("<script>\u202e\u009b%d</script>", i), 1_000_000+i), "")
	})
	repeat(20*time.Millisecond, func(i int) { send("wrong", trace[:i%len(trace)], "") })
	for range 4 {
		repeat(time.Millisecond, func(int) {
			connect(ctx, strings.Repeat("GET /recordings/"+firstID+"/report HTTP/1.1\r\nHost: "+host+"\r\n\r\n", 60), 100*time.Millisecond, "")
		})
		repeat(time.Millisecond, func(int) {
			connect(ctx, "POST /v1/recordings HTTP/1.1\r\nHost: "+host+"\r\nAuthorization: Bearer attacker\r\nContent-Length: 1000000\r\n\r\ngo 1.26 trace\x00\x00\x00", 100*time.Millisecond, "x")
		})
	}
	repeat(20*time.Millisecond, func(i int) { get([]string{"/", "/service/attacker", "/moments", "/v1/findings"}[i%4]) })

	// The other service sends and reads during the attack.
	repeat(500*time.Millisecond, func(i int) { send("bank", newRecording(t, trace, "bank", "pod", i), "") })
	var slowest time.Duration
	pages, failed := 0, 0
	repeat(200*time.Millisecond, func(i int) {
		took, status := get([]string{"/service/bank", "/"}[i%2])
		mu.Lock()
		defer mu.Unlock()
		pages++
		slowest = max(slowest, took)
		if status != http.StatusOK {
			failed++
		}
	})
	running.Wait()

	memory := peakMemoryMB(t, server.Process.Pid)
	t.Logf("%v: %d pages, the slowest after %v; %.0f MB; answers by status %v; accepted %d of bank, %d of the attacker", *attackDuration, pages, slowest, memory, answers, len(accepted["bank"]), len(accepted["attacker"]))
	check.True(t, failed == 0, "%d of %d pages of the other service failed", failed, pages)
	check.False(t, *attackDuration >= time.Minute && slowest > maxPageTime,
		"a page of the other service took %v, want at most %v", slowest, maxPageTime)
	check.True(t, memory <= maxServerMemoryMB, "the server took %.0f MB, want at most %d", memory, maxServerMemoryMB)
	for service, ids := range accepted {
		for _, id := range ids {
			if _, status := get("/recordings/" + id); status != http.StatusOK {
				t.Errorf("the accepted recording %s of %s is lost: %d", id, service, status)
			}
		}
	}
	for want := int64(len(accepted["bank"]) * requests); ; time.Sleep(50 * time.Millisecond) { // the time limit of the test ends the loop
		_, v, err := st.Overview(t.Context(), store.Selection{Service: "bank", From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)})
		if err != nil || len(v) > 1 || len(v) == 1 && v[0].Requests > want {
			t.Fatalf("%+v %v, want %d requests", v, err, want)
		}
		if len(v) == 1 && v[0].Requests == want {
			return
		}
	}
}
