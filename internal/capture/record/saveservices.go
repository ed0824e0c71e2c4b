package record

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/capture/bundle"
)

// A Job is one of several recordings.
type Job struct {
	Target  string
	Name    string // name of the file
	Options Options
	// Tee, if not nil, gets the trace while it arrives, and is closed at the end of the recording.
	Tee io.WriteCloser
}

// An Outcome is the result and the error of a Job.
type Outcome struct {
	*Result
	Err error
}

// SaveAll runs several recordings concurrently, waits for all, and returns their outcomes in the order of the jobs. It closes their Tees.
func SaveAll(ctx context.Context, jobs []Job, tool string) []Outcome {
	out := make([]Outcome, len(jobs))
	var wg sync.WaitGroup
	for i, j := range jobs {
		wg.Go(func() {
			var tee io.Writer
			if j.Tee != nil {
				tee = j.Tee
				defer j.Tee.Close()
			}
			out[i].Result, out[i].Err = Save(ctx, j.Target, j.Options, j.Name, tool, tee)
		})
	}
	wg.Wait()
	return out
}

// WarnService is the code of the warning about a service of several that could not be recorded.
const WarnService = "service"

// SaveServices writes the recordings of several services of the same time into one file, which gets its name when it is complete. save records each
// service into the file of the same index, and returns an error, or nil, for each. A service without a file is a warning in the metadata. If none has
// one, there is no new file, and isSaved is false.
func SaveServices(name, tool string, services []string, save func(files []string) []error) (isSaved bool, err error) {
	f, err := atomicfile.Create(name)
	if err != nil {
		return false, writeError(name, err)
	}
	defer f.Discard()
	dir, remove, err := atomicfile.CreateDir(name)
	if err != nil {
		return false, writeError(name, err)
	}
	defer remove()
	file := func(service string) string { return filepath.Join(dir, service+BundleExt) }
	files := make([]string, len(services))
	for i, service := range services {
		files[i] = file(service)
	}
	recordings := bundle.Services{Tool: tool, Start: time.Now()}
	for i, saveErr := range save(files) {
		if _, err := os.Stat(files[i]); err == nil {
			recordings.Services = append(recordings.Services, bundle.Member{Name: services[i]})
		} else {
			text := services[i] + " was not recorded"
			if saveErr != nil {
				text += ": " + cleanLine(saveErr.Error(), 300)
			}
			recordings.Warnings = append(recordings.Warnings, bundle.Warning{Code: WarnService, Text: text})
		}
	}
	if len(recordings.Services) == 0 {
		return false, nil
	}
	err = bundle.WriteServices(f, recordings, func(service string) (io.ReadCloser, error) { return os.Open(file(service)) })
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		return false, writeError(name, err)
	}
	return true, nil
}

// FileNames returns a different file name for each target, from one name and the target's host and port: x.trace becomes x-svc-1_6060.trace.
func FileNames(name string, targets []string) ([]string, error) {
	ext := filepath.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	names := make([]string, len(targets))
	usedNames := map[string]bool{}
	for i, t := range targets {
		e, _, err := ParseEndpoint(t)
		if err != nil {
			return nil, err
		}
		host := strings.Map(func(r rune) rune {
			switch {
			case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-':
				return r
			}
			return '_' // colons and brackets, which Windows does not allow in names
		}, e.Host())
		n := stem + "-" + host + ext
		for k := 2; usedNames[strings.ToLower(n)]; k++ {
			n = fmt.Sprint(stem, "-", host, "-", strconv.Itoa(k), ext)
		}
		usedNames[strings.ToLower(n)] = true
		names[i] = n
	}
	return names, nil
}
