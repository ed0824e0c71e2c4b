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

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// BundleExt is the extension of file names that asks for a recording with profiles and metadata instead of a bare trace.
const BundleExt = ".whylate"

// Save records target into the named file: a bundle if the name ends in [BundleExt], else the bare trace. The file takes
// its name at the end; tool is the version to note in a bundle. An empty name makes no file.
//
// If the trace ends before its time, what arrived is kept, unless it is nothing: then both the result and the error, an
// *[Error] of kind Cut, Interrupted or Timeout, are returned. With any other error the result is nil and no file is
// left, and an older file of that name is as it was.
//
// Tee, if not nil, gets the trace too, while it arrives; its errors are of kind Write and end the recording.
func Save(ctx context.Context, target string, opt Options, name, tool string, tee io.Writer) (*Result, error) {
	var outs []io.Writer
	var f *atomicfile.File
	if name != "" {
		// Before any recording: a wrong file name should not cost ten seconds and a trace.
		var err error
		if f, err = atomicfile.Create(name); err != nil {
			return nil, writeError(name, err)
		}
		defer f.Discard()
	}
	isBundle := strings.EqualFold(filepath.Ext(name), BundleExt)
	if !isBundle {
		opt.NoAllocs = true // there is no place for it
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
	traceErr, err := copyTrace(io.MultiWriter(outs...), s)
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
	if r.Bytes < headerLen {
		return nil, traceErr
	}
	if isBundle {
		if err := errors.Join(b.Add(bundle.NameCPU, cpu), b.Add(bundle.NameAllocs, allocs), b.Add(bundle.NameHost, samples), b.Close(r.meta(tool, opt.Service))); err != nil {
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

// hasGeneration tells whether the file of a recording that ended early holds at least one whole generation.
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

func writeError(name string, err error) *Error {
	return &Error{Kind: Write, Op: "saving the recording as", URL: cleanLine(name, 200), Text: cleanLine(err.Error(), 300), Err: err}
}

// copyTrace copies until the trace ends; end is how, nil for well. Err is a failure to write.
func copyTrace(w io.Writer, s *Stream) (traceErr, err error) {
	buf := make([]byte, 64<<10)
	for {
		n, rerr := s.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return nil, err
			}
		}
		if rerr == io.EOF {
			return nil, nil
		}
		if rerr != nil {
			return rerr, nil
		}
	}
}

// meta is the result as it stands in a bundle.
func (r Result) meta(tool string, service map[string]string) bundle.Meta {
	m := bundle.Meta{
		Tool: tool, URL: r.URL, Service: service, Start: r.Start, RequestedNS: int64(r.Requested), WindowNS: int64(r.Window), ReceivedNS: int64(r.Received),
		Truncated: r.Partial, TraceVersion: r.TraceVersion, Warnings: r.Warnings, Host: r.HostFacts,
	}
	if r.HostFacts != nil {
		m.Go = r.HostFacts.Go
	}
	return m
}

// Job is one of several recordings.
type Job struct {
	Target  string
	Name    string // of the file
	Options Options
	// Tee, if not nil, gets the trace too, and is closed when the recording has ended.
	Tee io.WriteCloser
}

// Outcome is what Save returned for a Job.
type Outcome struct {
	*Result
	Err error
}

// SaveAll runs several recordings at the same time and returns their outcomes in the order of the jobs.
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

// FileNames gives each of several targets a file name, made from one name and the target's host and port:
// x.trace becomes x-svc-1_6060.trace.
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
