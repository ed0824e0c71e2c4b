// Package endless has HTTP servers whose answers never end, for tests of clients.
package endless

import (
	"bytes"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

// maxSent bounds the bytes of one connection, so that a test ends if a client reads everything.
const maxSent = 64 << 20

// An answer is the start of an answer and the text that follows repeatedly.
type answer struct{ start, repeated string }

var answers = map[string]answer{
	"status line":    {"HTTP/1.1 200 ", "aaaaaaaaaaaaaaaa"},
	"one header":     {"HTTP/1.1 200 OK\r\nX-Long: ", "aaaaaaaaaaaaaaaa"},
	"headers":        {"HTTP/1.1 200 OK\r\n", ""}, // each with another name, see chunk
	"empty headers":  {"HTTP/1.1 200 OK\r\n", "A:\n"},
	"continued line": {"HTTP/1.1 200 OK\r\nX-Long: a\r\n", " b\r\n"},
	"interim":        {"", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"},
}

// Heads returns the kinds of answers with an endless head.
func Heads() []string { return slices.Sorted(maps.Keys(answers)) }

// chunk returns about 64 KiB of the repeated text. For distinct headers, round selects their names.
func (e answer) chunk(round int) []byte {
	if e.repeated != "" {
		return bytes.Repeat([]byte(e.repeated), 64<<10/len(e.repeated))
	}
	var b []byte
	for i := range 3000 {
		b = append(b, "X-"...)
		b = strconv.AppendInt(b, int64(round*3000+i), 36)
		b = append(b, ": a\r\n"...)
	}
	return b
}

// Serve starts a server that answers every request with an endless answer of that kind until the test
// ends. It returns the server's URL.
func Serve(t testing.TB, kind string) string {
	t.Helper()
	a, ok := answers[kind]
	must.True(t, ok, "there is no endless answer %q", kind)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	pieces := [8][]byte{}
	for i := range pieces {
		pieces[i] = a.chunk(i)
	}
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			serving.Go(func() {
				defer c.Close()
				c.Read(make([]byte, 1)) // a request
				go io.Copy(io.Discard, c)
				io.WriteString(c, a.start)
				for i, sent := 0, 0; sent < maxSent; i++ {
					n, err := c.Write(pieces[i%len(pieces)])
					if err != nil {
						return
					}
					sent += n
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return "http://" + l.Addr().String()
}

// Allocated returns the number of bytes that all goroutines allocate during a call of f, including
// garbage.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
