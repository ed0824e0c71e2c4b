package raw

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/must"
)

// fakeBucket implements the requests of S3 that Save and Open need.
type fakeBucket struct {
	mu      sync.Mutex
	objects map[string][]byte
	sums    map[string]string
}

func (b *fakeBucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const header = "X-Amz-Meta-" + contentSumKey
	switch body, ok := b.objects[r.URL.Path]; {
	case r.Method == http.MethodPut:
		content, err := unchunk(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b.objects[r.URL.Path], b.sums[r.URL.Path] = content, r.Header.Get(header)
		w.Header().Set("ETag", `"x"`)
	case !ok:
		http.Error(w, "", http.StatusNotFound)
	default:
		if sum := b.sums[r.URL.Path]; sum != "" {
			w.Header().Set(header, sum)
		}
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write(body)
	}
}

// unchunk decodes a body in AWS' signed chunks, which clients send without TLS.
func unchunk(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING") {
		return io.ReadAll(r.Body)
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

// TestChecksums: Open compares the content of a file with the stored sum, whatever its name. For an object of an earlier
// version, which has no sum, it compares with the id in the name.
func TestChecksums(t *testing.T) {
	b := &fakeBucket{objects: make(map[string][]byte), sums: make(map[string]string)}
	server := httptest.NewServer(b)
	defer server.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "a")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "b")
	s := must.Have(OpenS3(t.Context(), "s3://bucket/x?region=us-east-1&endpoint="+server.URL, Dir(t.TempDir())))(t)
	content := []byte("sent")
	read := func(name string) ([]byte, error) {
		f := must.Have(s.Open(t.Context(), name))(t)
		defer f.Close()
		return io.ReadAll(f)
	}
	for _, name := range []string{contentID(content), contentID([]byte("another name")), ReportName(contentID(content))} {
		saveFile(t, s, name, content)
		if got, err := read(name); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %q %v", name, got, err)
		}
		b.objects["/bucket/x/"+name] = []byte("rotten")
		if _, err := read(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: a changed file is taken: %v", name, err)
		}
	}
	for name, ok := range map[string]bool{contentID(content): true, contentID([]byte("x")): false} { // as an earlier version has stored them
		b.objects["/bucket/x/"+name], b.sums["/bucket/x/"+name] = content, ""
		if _, err := read(name); (err == nil) != ok {
			t.Errorf("%s of an earlier program: %v", name, err)
		}
	}
}
