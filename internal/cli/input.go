package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"golang.org/x/term"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/report"
)

// An input is a trace or a report that a verb reads.
type input struct {
	io.Reader
	name     string   // for reports and messages
	size     int64    // of what Reader will give; 0 if not known
	isReport bool     // a report in JSON, not a trace
	file     *os.File // the regular file that Reader reads as it is; nil for all else
	// reopen returns the trace again, from its beginning; nil where it can be read only once.
	reopen func() (io.ReadCloser, error)
	meta   *bundle.Meta
	// bundle is the recording that the trace is of; nil for a bare trace, and for a recording that was not finished.
	bundle *bundle.Bundle
	host   io.Reader // host samples, nil if there are none
	kernel io.Reader // the kernel's events, nil if there are none
	allocs io.Reader // an allocation profile of the same time, nil if there is none
	// recordWarnings returns the warnings of a recording in progress; it is nil for other inputs. Some are known only when the input is
	// closed.
	recordWarnings func() []bundle.Warning
	closers        []func() error
}

// Close releases the resources of the input.
func (in *input) Close() {
	for i := len(in.closers) - 1; i >= 0; i-- {
		in.closers[i]()
	}
}

// ownFile makes Close of the input close and remove a temporary file. If the system allows to remove an open file, it is removed immediately, so that
// it never remains.
func (in *input) ownFile(tmp *os.File) {
	if os.Remove(tmp.Name()) == nil {
		in.closers = append(in.closers, tmp.Close)
	} else {
		in.closers = append(in.closers, func() error { return os.Remove(tmp.Name()) }, tmp.Close)
	}
}

// program returns the recorded build information of the service; nil if there is none.
func (in *input) program() *modules.Build {
	if in.meta == nil {
		return nil
	}
	return in.meta.Program()
}

// addWarnings adds the warnings in a recording's metadata to its report.
func (in *input) addWarnings(rep *report.Report) {
	if in.meta == nil || rep == nil {
		return
	}
	rep.Input.Service = in.meta.ServiceAttributes()
	if f := in.meta.Flight; f != nil {
		rep.Input.Reason = f.Description()
	}
	warn(rep, in.meta.Warnings)
}

// warnOfRecording adds the warnings of a recording that was made for the report.
func (in *input) warnOfRecording(rep *report.Report) {
	if in.recordWarnings != nil && rep != nil {
		warn(rep, in.recordWarnings())
	}
}

// warn adds the warnings of a bundle to a report.
func warn(rep *report.Report, warnings []bundle.Warning) {
	for _, w := range warnings {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: w.Code, Text: w.Text})
	}
}

// openInput opens a file, or standard input for "-". It detects a trace, a recording or a report by its first bytes, not by
// its name. Errors are one line that says what to do.
//
// Reading from a pipe or another input that is no regular file ends with ctx, even if no data arrives.
func (s *streams) openInput(ctx context.Context, arg string) (_ *input, err error) {
	in := &input{name: arg}
	arg, service := memberArg(arg)
	defer func() {
		if ctx.Err() != nil {
			err = command.InterruptedReading(in.name)
		}
		if err != nil {
			in.Close()
		}
	}()
	var file *os.File
	if arg == "-" {
		in.name, in.Reader = "standard input", s.In
		if f, ok := s.In.(*os.File); ok {
			if term.IsTerminal(int(f.Fd())) {
				return nil, errors.New("standard input is a terminal, not a trace: pipe one in, or name a file")
			}
			file = f
		}
	} else if strings.HasPrefix(arg, fleetScheme) {
		body, err := openFleet(ctx, arg)
		if err != nil {
			return nil, err
		}
		in.closers = append(in.closers, body.Close)
		in.Reader = body
	} else {
		if file, err = openWhile(ctx, arg); err != nil {
			return nil, err
		}
		in.closers = append(in.closers, file.Close)
		in.Reader = file
	}
	if file != nil {
		info, err := file.Stat()
		switch {
		case err != nil:
			return nil, fmt.Errorf("opening %s: %w", in.name, err)
		case info.IsDir():
			return nil, fmt.Errorf("%s is a directory: name a file in it", in.name)
		case info.Mode().IsRegular():
			in.size = info.Size()
		default:
			file = nil // a pipe or a device, which can be read only sequentially
		}
	}
	if file == nil {
		in.Reader = &interruptible{ctx: ctx, r: in.Reader}
	}
	head := bufio.NewReaderSize(in.Reader, readSize)
	in.Reader = head
	first, err := head.Peek(bundle.MagicLen)
	if err != nil && err != io.EOF && len(first) == 0 {
		return nil, fmt.Errorf("reading %s: %w", in.name, command.WithoutPath(err))
	}
	switch {
	case bundle.IsZip(first):
		if err := in.unpack(file, service); err != nil {
			return nil, fmt.Errorf("%s: %w", in.name, err)
		}
	case service != "":
		return nil, fmt.Errorf("%s: the file has only one recording: leave out #%s", in.name, service)
	case bytes.HasPrefix(bytes.TrimLeft(bytes.TrimPrefix(first, []byte("\xef\xbb\xbf")), " \t\r\n"), []byte("{")):
		in.isReport = true
	case arg != "-":
		if in.file = file; file != nil {
			in.reopen = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(file, 0, in.size)), nil }
		}
	}
	return in, nil
}

const readSize = 64 << 10

// readReport reads the report of an input that is one; an interrupt is another error.
func (in *input) readReport(ctx context.Context) (*report.Report, error) {
	rep, err := report.ReadJSON(in)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, command.InterruptedReading(in.name)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", in.name, err)
	}
	return rep, nil
}

// unpack replaces the input by the trace of its recording. The directory of a zip is at its end, so a recording from a pipe is
// copied to a temporary file first.
//
// Of a file with the recordings of several services it reads that of one, which is empty for a file with one recording.
func (in *input) unpack(file *os.File, service string) error {
	if file == nil {
		tmp, err := os.CreateTemp("", "whylate-*.part")
		if err != nil {
			return fmt.Errorf("keeping the recording for reading: %w", err)
		}
		in.ownFile(tmp)
		if in.size, err = io.Copy(tmp, in.Reader); err != nil {
			return fmt.Errorf("keeping the recording for reading: %w", err)
		}
		file = tmp
	}
	b, err := bundle.New(file, in.size)
	if errors.Is(err, bundle.ErrServices) {
		var services *bundle.Services
		if services, err = bundle.ReadServices(file, in.size); err != nil {
			return err
		}
		recording, size := services.Recording(service)
		if recording == nil {
			return missingMember(in.name, services, service)
		}
		if b, err = bundle.New(recording, size); err != nil {
			return err
		}
	} else if err == nil && service != "" {
		return fmt.Errorf("the file has only one recording: leave out #%s", service)
	}
	if trace, ok := bundle.UnfinishedTrace(file, in.size); err != nil && !errors.Is(err, bundle.ErrDirectory) && ok {
		in.Reader, in.size = trace, trace.Size()
		in.reopen = func() (io.ReadCloser, error) {
			trace, _ := bundle.UnfinishedTrace(file, trace.Size())
			return io.NopCloser(trace), nil
		}
		in.meta = &bundle.Meta{Warnings: []bundle.Warning{{Code: record.WarnCut, Text: "this recording is incomplete: its end is missing, so only its trace is read"}}}
		return nil
	}
	if err != nil {
		return err
	}
	in.bundle = b
	trace, size, err := b.Trace()
	if err != nil {
		return err
	}
	in.closers = append(in.closers, trace.Close)
	in.reopen = func() (io.ReadCloser, error) {
		trace, _, err := b.Trace()
		return trace, err
	}
	if samples, err := b.HostStream(); err == nil {
		in.closers = append(in.closers, samples.Close)
		in.host = samples
	} else if !errors.Is(err, fs.ErrNotExist) {
		in.host = failedReader{err}
	}
	if events, err := b.KernelEvents(); err == nil {
		in.kernel = bytes.NewReader(events)
	} else if !errors.Is(err, fs.ErrNotExist) {
		in.kernel = failedReader{err}
	}
	if profile, err := b.AllocsProfile(); err == nil {
		in.allocs = bytes.NewReader(profile)
	} else if !errors.Is(err, fs.ErrNotExist) {
		in.allocs = failedReader{err}
	}
	meta := b.Meta()
	in.Reader, in.size, in.meta = trace, size, &meta
	return nil
}

// A lazyReader reads data that exists only when it is first read. Without data it is empty.
type lazyReader struct {
	data func() []byte
	r    *bytes.Reader
}

func (l *lazyReader) Read(p []byte) (int, error) {
	if l.r == nil {
		l.r = bytes.NewReader(l.data())
	}
	return l.r.Read(p)
}

// A failedReader returns an error.
type failedReader struct{ err error }

func (f failedReader) Read([]byte) (int, error) { return 0, f.err }

// hostPort matches a URL without a scheme: svc:6060, :6060, [::1]:6060/debug/pprof.
var hostPort = regexp.MustCompile(`^([A-Za-z0-9._-]*|\[[0-9A-Fa-f:.%]+\]):[0-9]{1,5}(/.*)?$`)

// isURL reports whether arg names a service: a URL, or host:port unless there is a file of that name.
func isURL(arg string) bool {
	if i := strings.Index(arg, "://"); i > 0 {
		switch strings.ToLower(arg[:i]) {
		case "http", "https":
			return true
		}
	}
	if !hostPort.MatchString(arg) {
		return false
	}
	_, err := os.Stat(arg)
	return err != nil
}

// openURL begins a recording and returns its trace as an input, which is decoded while it arrives. Closing the input ends the recording.
func openURL(ctx context.Context, target string, opt record.Options) (*input, error) {
	watch := record.WatchHost(ctx, target, opt)
	s, err := record.Open(ctx, target, opt)
	if err != nil {
		watch.Finish()
		return nil, err
	}
	watch.AttachStream(s)
	in := &input{Reader: s, name: s.Result().URL}
	if !opt.NoAllocs {
		in.allocs = &lazyReader{data: s.Allocs}
	}
	var ofHost []bundle.Warning
	in.closers = []func() error{s.Close, func() error {
		_, ofHost = watch.Finish()
		return nil
	}}
	in.recordWarnings = func() []bundle.Warning { return append(s.Result().Warnings, ofHost...) }
	if watch != nil {
		in.host = &lazyReader{data: watch.Data}
	}
	return in, nil
}
