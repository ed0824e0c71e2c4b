package record

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

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
