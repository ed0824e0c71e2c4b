package bundle

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
)

// ServicesSchema is the value of Services.Schema in files that this package writes.
const ServicesSchema = "whylate.services/v1"

// NameServices is the entry with Services.
const NameServices = "services.json"

// MaxServices is how many services one file may have.
const MaxServices = 64

// Services is the description of a file with the recordings of several services of the same seconds. Each recording is an entry
// without compression, so that it is read in place.
type Services struct {
	Schema   string    `json:"schema"`
	Tool     string    `json:"tool,omitempty"`
	Start    time.Time `json:"start"`
	Services []Member  `json:"services"`
	// Warnings include the services that could not be recorded.
	Warnings []Warning `json:"warnings,omitempty"`

	recordings map[string]*io.SectionReader
}

// A Member is one service of Services, and the entry with its recording.
type Member struct {
	Name string `json:"name"`
	File string `json:"file"`
}

// IsServiceName reports whether a name can be that of a service in a file: letters, digits, dots, dashes and underscores.
func IsServiceName(name string) bool {
	return name != "" && len(name) <= 100 && strings.Trim(name, ".") != "" && strings.IndexFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r)
	}) < 0
}

// Names returns the names of the services, in the order of the file.
func (s *Services) Names() (out []string) {
	for _, m := range s.Services {
		out = append(out, m.Name)
	}
	return out
}

// Recording returns the recording of a service, which New reads, and its size; nil if there is none of that name.
func (s *Services) Recording(name string) (r *io.SectionReader, size int64) {
	if r = s.recordings[name]; r != nil {
		size = r.Size()
	}
	return r, size
}

// ErrServices is wrapped, with [ErrNotBundle], by errors about a file with the recordings of several services.
var ErrServices = errors.New("it has the recordings of several services")

// ReadServices reads the description of a file with the recordings of several services. It reads no recording: that is what [Services.Recording] is
// for, and r has to stay open. An error wraps [ErrNotBundle], or fs.ErrNotExist if the file has no such description.
func ReadServices(r io.ReaderAt, size int64) (*Services, error) {
	z, err := ReadDirectory(r, size)
	if err != nil {
		return nil, err
	}
	b := &Bundle{entries: make(map[string]*zip.File, len(z.File))}
	for _, f := range z.File {
		b.entries[f.Name] = f
	}
	data, err := b.read(NameServices, maxMeta)
	if err != nil {
		return nil, err
	}
	out := &Services{recordings: make(map[string]*io.SectionReader)}
	if err := json.Unmarshal(data, out); err != nil {
		return nil, fmt.Errorf("%w: reading its %s: %w", ErrNotBundle, NameServices, err)
	}
	if out.Schema != ServicesSchema {
		return nil, fmt.Errorf("%w of a version known here: its schema is %q, this program reads %q: use a newer whylate", ErrNotBundle, clip(out.Schema), ServicesSchema)
	}
	if len(out.Services) > MaxServices {
		return nil, fmt.Errorf("%w: it has %d services, more than %d", ErrNotBundle, len(out.Services), MaxServices)
	}
	for _, m := range out.Services {
		f := b.entries[m.File]
		switch {
		case !IsServiceName(m.Name) || out.recordings[m.Name] != nil:
			return nil, fmt.Errorf("%w: it has no, or another, service named %q", ErrNotBundle, clip(m.Name))
		case f == nil || f.Method != zip.Store || f.UncompressedSize64 > uint64(size):
			return nil, fmt.Errorf("%w: it has no unpacked recording of %s (was it packed again?)", ErrNotBundle, m.Name)
		}
		offset, err := f.DataOffset()
		if err != nil {
			return nil, fmt.Errorf("%w: finding its recording of %s: %w", ErrNotBundle, m.Name, err)
		}
		out.recordings[m.Name] = io.NewSectionReader(r, offset, int64(f.UncompressedSize64))
	}
	if len(out.Services) == 0 {
		return nil, fmt.Errorf("%w: it has no service", ErrNotBundle)
	}
	return out, nil
}

// WriteServices writes the recordings of several services as one file, and sets the schema and the names of entries in its copy of s. It calls open
// for one service after the other, copies the result and closes it.
func WriteServices(w io.Writer, s Services, open func(name string) (io.ReadCloser, error)) error {
	s.Schema, s.Services = ServicesSchema, slices.Clone(s.Services)
	out := zip.NewWriter(w)
	for i := range s.Services {
		m := &s.Services[i]
		m.File = m.Name + ".whylate"
		entry, err := out.CreateHeader(&zip.FileHeader{Name: m.File, Method: zip.Store, Modified: s.Start})
		if err != nil {
			return fmt.Errorf("writing the recording of %s: %w", m.Name, err)
		}
		recording, err := open(m.Name)
		if err != nil {
			return fmt.Errorf("reading the recording of %s: %w", m.Name, err)
		}
		_, err = io.Copy(entry, recording)
		recording.Close()
		if err != nil {
			return fmt.Errorf("writing the recording of %s: %w", m.Name, err)
		}
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", NameServices, err)
	}
	entry, err := out.CreateHeader(&zip.FileHeader{Name: NameServices, Method: zip.Store, Modified: s.Start})
	if err != nil {
		return fmt.Errorf("writing %s: %w", NameServices, err)
	}
	if _, err := entry.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("writing %s: %w", NameServices, err)
	}
	return out.Close()
}
