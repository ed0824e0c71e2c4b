package record

import (
	"context"
	"errors"
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
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// BundleExt is the extension of files with a recording: trace, profiles and metadata. Files with other
// extensions get the bare trace.
const BundleExt = ".whylate"

// Save records target into the named file: a bundle if the name ends in [BundleExt], else the bare
// trace. The file gets its name when it is complete. Tool is the version in the metadata of a bundle.
// With an empty name Save writes no file.
//
// If the trace ends early, Save keeps what has arrived, unless that is nothing, and returns both the
// result and an *[Error] of kind Cut, Interrupted or Timeout. With any other error the result is nil,
// there is no new file, and an older file of that name is unchanged.
//
// Tee, if not nil, gets the trace while it arrives. Its errors are of kind Write and end the
// recording.
func Save(ctx context.Context, target string, opt Options, name, tool string, tee io.Writer) (*Result, error) {
	var outs []io.Writer
	var f *atomicfile.File
	if name != "" {
		// Create the file first: a wrong name should fail before ten seconds of recording.
		var err error
		if f, err = atomicfile.Create(name); err != nil {
			return nil, writeError(name, err)
		}
		defer f.Discard()
	}
	isBundle := strings.EqualFold(filepath.Ext(name), BundleExt)
	if !isBundle {
		opt.NoAllocs = true // a bare trace has no allocation profile
	}
	var watch *HostWatch
	if isBundle || opt.HostWriter != nil {
		watch = WatchHost(ctx, target, opt)
		defer watch.Finish()
	}
	s, err := Open(ctx, target, opt)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	watch.AttachStream(s)
	var b *bundle.Writer
	switch {
	case isBundle:
		if b, err = bundle.NewWriter(f, s.Result().Start); err != nil {
			return nil, writeError(name, err)
		}
		outs = append(outs, b)
	case f != nil:
		outs = append(outs, f)
	}
	if tee != nil {
		outs = append(outs, tee)
	}
	var clock *clockCheck
	if opt.Kernel != nil {
		clock = newClockCheck()
		defer clock.Close()
		outs = append(outs, clock)
	}
	_, traceErr, err := copyAll(io.MultiWriter(outs...), s)
	if err != nil {
		return nil, writeError(name, err)
	}
	hostRecording, warnings := watch.Finish()
	for _, w := range warnings {
		s.warn(w.Code, w.Text)
	}
	if hostRecording != nil && opt.HostWriter != nil {
		if _, err := opt.HostWriter.Write(hostRecording.Data); err != nil {
			return nil, writeError("host samples", err)
		}
	}
	var cpu, allocs []byte
	if isBundle {
		cpu, allocs = s.Profiles()
	}
	s.Close()
	r := s.Result()
	r.CPUProfile, r.AllocsProfile = cpu != nil, allocs != nil
	var samples []byte
	if hostRecording != nil && isBundle {
		samples, r.HostFacts, r.HostSamples = hostRecording.Data, hostRecording.Facts, hostRecording.Samples
	}
	kernel := watch.Kernel()
	if r.Kernel = kernel.Facts; clock != nil {
		clock.describe(r.Kernel)
	}
	if r.Bytes < headerLen {
		return nil, traceErr
	}
	if isBundle {
		if err := errors.Join(b.Add(bundle.NameCPU, cpu), b.Add(bundle.NameAllocs, allocs), b.Add(bundle.NameHost, samples), b.Add(bundle.NameKernel, kernel.Data), b.Close(r.Meta(tool, opt.Service))); err != nil {
			return nil, writeError(name, err)
		}
	}
	if f != nil {
		if err := f.Commit(); err != nil {
			return nil, writeError(name, err)
		}
	}
	r.HasGeneration = !r.Partial || hasGeneration(name)
	return &r, traceErr
}

// hasGeneration reports whether the file of a recording that ended early has at least one complete
// generation.
func hasGeneration(name string) bool {
	var src io.ReadCloser
	var err error
	if strings.EqualFold(filepath.Ext(name), BundleExt) {
		b, openErr := bundle.Open(name)
		if openErr != nil {
			return false
		}
		defer b.Close()
		src, _, err = b.Trace()
	} else {
		src, err = os.Open(name)
	}
	if err != nil {
		return false
	}
	defer src.Close()
	r, err := tracefmt.NewReader(src, tracefmt.Options{})
	if err != nil {
		return false
	}
	_, err = r.Next()
	return err == nil
}

// writeError returns the error of writing a recording to the file of a name, or, if the name is empty, to a writer of the caller.
func writeError(name string, err error) *Error {
	op := "saving the recording"
	if name != "" {
		op += " as"
	}
	return &Error{Kind: Write, Op: op, URL: cleanLine(name, 200), Text: cleanLine(err.Error(), 300), Err: err}
}

// copyAll copies r to its end and returns the number of bytes written. readErr is r's error, nil for a regular end; err is an error of writing, which
// ends the copy.
func copyAll(w io.Writer, r io.Reader) (size int64, readErr, err error) {
	buf := make([]byte, 64<<10)
	for {
		n, readErr := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return size, nil, err
			}
			size += int64(n)
		}
		if readErr == io.EOF {
			return size, nil, nil
		}
		if readErr != nil {
			return size, readErr, nil
		}
	}
}

// Meta returns the metadata of a bundle with this result.
func (r Result) Meta(tool string, service map[string]string) bundle.Meta {
	m := bundle.Meta{
		Tool: tool, URL: r.URL, Service: service, Start: r.Start, RequestedNS: int64(r.Requested), WindowNS: int64(r.Window), ReceivedNS: int64(r.Received),
		Truncated: r.Partial, TraceVersion: r.TraceVersion, Warnings: r.Warnings, Host: r.HostFacts, Kernel: r.Kernel,
	}
	if r.HostFacts != nil {
		m.Go = r.HostFacts.Go
	}
	return m
}

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
