package enginetest

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
)

// A Bucket holds the objects of an S3 server in memory, and the SHA-256 sums that clients sent with them, by path.
type Bucket struct {
	Objects map[string][]byte
	Sums    map[string]string
	mu      sync.Mutex
}

// S3 serves the bucket fleet with those requests of S3 that package raw needs, and sets keys for it in the environment.
func S3(t testing.TB) (address string, b *Bucket) {
	t.Helper()
	b = &Bucket{Objects: make(map[string][]byte), Sums: make(map[string]string)}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	for _, key := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		if err := os.Setenv(key, "x"); err != nil { // not t.Setenv, which parallel tests may not call
			t.Fatal(err)
		}
	}
	return "s3://fleet/test?region=us-east-1&endpoint=" + server.URL, b
}

// ServeHTTP answers as an S3 server does: at the path /fleet/ the list of objects, at the path of an object PUT, DELETE and
// reading with any other method. It refuses a PUT without a checksum of the content, and checks no signature.
func (b *Bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const header = "X-Amz-Meta-Whylate-Sha256"
	w.Header().Set("ETag", `"x"`)
	switch body, ok := b.Objects[r.URL.Path]; {
	case r.URL.Path == "/fleet/":
		b.list(w, r.FormValue("prefix"))
	case r.Method == http.MethodPut:
		content, err := unchunk(r)
		if err != nil || r.Header.Get("Content-Md5") == "" {
			http.Error(w, fmt.Sprint("no content with its sum: ", err), http.StatusBadRequest)
			return
		}
		b.Objects[r.URL.Path], b.Sums[r.URL.Path] = content, r.Header.Get(header)
	case r.Method == http.MethodDelete:
		delete(b.Objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case !ok:
		http.Error(w, "", http.StatusNotFound)
	default:
		if sum := b.Sums[r.URL.Path]; sum != "" {
			w.Header().Set(header, sum)
		}
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write(body)
	}
}

// list writes, as S3's XML, the objects directly below a prefix, and the directories there as common prefixes.
func (b *Bucket) list(w io.Writer, prefix string) {
	type object struct {
		Key          string
		LastModified time.Time
		Size         int
	}
	var result struct {
		XMLName        xml.Name `xml:"ListBucketResult"`
		Contents       []object
		CommonPrefixes []struct{ Prefix string }
	}
	for _, path := range slices.Sorted(maps.Keys(b.Objects)) {
		key := strings.TrimPrefix(path, "/fleet/")
		if rest, ok := strings.CutPrefix(key, prefix); !ok {
			continue
		} else if dir, _, isBelow := strings.Cut(rest, "/"); isBelow {
			result.CommonPrefixes = append(result.CommonPrefixes, struct{ Prefix string }{prefix + dir + "/"})
		} else {
			result.Contents = append(result.Contents, object{key, time.Now().UTC(), len(b.Objects[path])})
		}
	}
	_ = xml.NewEncoder(w).Encode(result)
}

// unchunk returns the body of a request; AWS' signed chunks, which clients send without TLS, are decoded.
func unchunk(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING") {
		return wire.ReadAll(r.Body, 1<<30)
	}
	var out bytes.Buffer
	in := bufio.NewReader(r.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, _, _ := strings.Cut(strings.TrimSpace(line), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if err != nil || n == 0 {
			return out.Bytes(), err
		}
		if _, err := io.CopyN(&out, in, n); err != nil {
			return nil, err
		}
		if _, err := in.Discard(2); err != nil {
			return nil, err
		}
	}
}
