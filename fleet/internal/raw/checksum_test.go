package raw

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/whylate/whylate/fleet/internal/enginetest"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestChecksums: Open compares the content of a file with the stored sum, whatever its name. For an object of an earlier
// version, which has no sum, it compares with the id in the name.
func TestChecksums(t *testing.T) {
	address, b := enginetest.S3(t)
	s := must.Have(OpenS3(t.Context(), address, Dir(t.TempDir())))(t)
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
		b.Objects["/fleet/test/"+name] = []byte("rotten")
		if _, err := read(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: a changed file is taken: %v", name, err)
		}
	}
	for name, ok := range map[string]bool{contentID(content): true, contentID([]byte("x")): false} { // as an earlier version has stored them
		b.Objects["/fleet/test/"+name], b.Sums["/fleet/test/"+name] = content, ""
		if _, err := read(name); (err == nil) != ok {
			t.Errorf("%s of an earlier program: %v", name, err)
		}
	}
}
