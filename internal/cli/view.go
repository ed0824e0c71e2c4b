package cli

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/internal/viewer/view"
	"github.com/whylate/whylate/report/html"
)

// viewFlags contains the flags of view.
type viewFlags struct {
	explainFlags
	listen string
	remote bool
	open   bool
}

// newView returns the command view, which serves a trace as a page for a browser.
func newView(s *streams) *cobra.Command {
	var (
		v    viewFlags
		conn connectFlags
	)
	cmd := &cobra.Command{
		Use:   "view [flags] TRACE|URL|-",
		Short: "Open a trace in the browser: every request, every timeline",
		Args:  command.Exactly(1, "name one trace, a URL, or - for standard input"),
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			if err := v.validate(cmd); err != nil {
				return err
			}
			if err := v.checkAddress(cmd); err != nil {
				return err
			}
			return v.run(cmd, s, args[0], &conn)
		}),
	}
	v.addTraceFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&v.listen, "listen", "127.0.0.1:0", "serve at this address and port; with port 0 a file gets the same free port each time")
	f.BoolVar(&v.remote, "allow-remote", false, "let --listen name an address that other machines can reach: they see everything in the trace")
	f.BoolVar(&v.open, "open", false, "open the page in the browser")
	v.addEditor(cmd)
	conn.addFlags(f)
	command.ShowFlags(cmd, "duration", "group", "request", "listen", "allow-remote", "open", "editor", "max-memory", "header", "user")
	return cmd
}

// run serves the trace, URL or service arg until an interrupt. It serves the progress while it reads the trace, and records a
// URL again when the page requests that.
func (v *viewFlags) run(cmd *cobra.Command, s *streams, arg string, conn *connectFlags) error {
	ctx := cmd.Context()
	server := &progressServer{}
	server.beginReading(s.Bar())
	opts := view.Options{Remote: v.remote, Page: html.Options{Command: v.reportCommand(cmd, arg), Version: readBuild().Version, Editor: v.editor}}
	readAgain := make(chan string, 1)
	file, service := memberArg(arg)
	if services := servicesIn(file); services != nil {
		names := services.Names()
		arg = file + memberSeparator + cmp.Or(service, names[0])
		if len(names) > 1 {
			opts.Page.Services = names
		}
	}
	if isURL(arg) || opts.Page.Services != nil {
		opts.ReadAgain = func(service string) { readAgain <- service }
	}
	var err error
	if server.Server, err = view.New(opts); err != nil {
		return err
	}
	in, err := v.openArgument(cmd, s, arg, conn, server)
	if err != nil {
		return err
	}
	// A new recording replaces the shown one, which is then closed.
	defer func() { in.Close() }()
	if in.isReport {
		return fmt.Errorf("%s is a report: it has no timelines; `whylate report --html FILE %s` makes a page of it", in.name, in.name)
	}
	listener, err := v.listenForFile(arg)
	if err != nil {
		return fmt.Errorf("listening at %s: %w", v.listen, err)
	}
	defer listener.Close()
	stop, failed := v.serve(ctx, s, listener, server)
	defer stop()
	if err := v.show(ctx, server, in); err != nil {
		if ctx.Err() == nil {
			server.Fail(err)
			return err
		}
		return interruptedEarly()
	}
	usual := debug.SetGCPercent(servingGC)
	defer func() { debug.SetGCPercent(usual) }()
	for {
		select {
		case err := <-failed:
			return fmt.Errorf("serving: %w", err)
		case <-ctx.Done():
			return nil
		case service := <-readAgain:
			if service != "" {
				arg = file + memberSeparator + service
			}
		}
		debug.SetGCPercent(usual)
		server.beginReading(s.Bar())
		next, err := v.openArgument(cmd, s, arg, conn, server)
		if err == nil {
			if err = v.show(ctx, server, next); err != nil {
				next.Close()
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			fmt.Fprintf(s.Err, "whylate: %s\n", command.OneLine(err.Error()))
			server.Fail(err)
		default:
			in.Close()
			in = next
		}
		debug.SetGCPercent(servingGC)
	}
}

// A progressServer is a server that shows the progress of reading, as the terminal does.
type progressServer struct {
	*view.Server
	bar  *progress.Bar
	stop func()
}

// beginReading makes s.bar a bar that shows a new reading's progress on the page and on the terminal's bar. It ignores further progress of the
// reading before.
func (s *progressServer) beginReading(terminal *progress.Bar) {
	if s.stop != nil {
		s.stop()
	}
	var isReplaced atomic.Bool
	s.stop = func() { isReplaced.Store(true) }
	s.bar = terminal.WithObserver(func(p progress.State) {
		if !isReplaced.Load() {
			text, share := p.Figures()
			s.SetProgress(p.Label, text, share)
		}
	})
}

// show explains the trace of an input, indexes it, and makes the server show it.
func (v *viewFlags) show(ctx context.Context, server *progressServer, in *input) error {
	bar := server.bar
	defer bar.Clear()
	unpacking := bar
	if isURL(in.name) {
		unpacking = nil // the recording shows its own progress
	}
	plain, size, err := seekableTrace(ctx, in, unpacking)
	if err != nil {
		return err
	}
	in.Reader = progress.NewReader(io.NewSectionReader(plain, 0, size), bar, in.name, size)
	index := inspect.NewIndex(inspect.Limits{Generations: int64(v.maxMemory)})
	v.index = index
	rep, err := v.explain(ctx, in)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return err
	}
	in.warnOfRecording(rep)
	trace, err := inspect.Open(index, plain, size)
	if err != nil {
		return fmt.Errorf("%s: %w", in.name, err)
	}
	return server.Show(trace, rep)
}

// openArgument opens the file that arg names, or begins to record the service at a URL, and shows the progress on server. The caller closes the
// input.
func (v *viewFlags) openArgument(cmd *cobra.Command, s *streams, arg string, conn *connectFlags, server *progressServer) (*input, error) {
	if !isURL(arg) {
		return s.openInput(cmd.Context(), arg)
	}
	opt, err := conn.optionsFor(cmd, arg)
	if err != nil {
		return nil, err
	}
	if in, err := s.openFlight(cmd, arg, opt); err != nil || in != nil {
		return in, err
	}
	opt.NoAllocs = true
	bar := newRecordBar(server.bar, []string{arg})
	opt.Progress = bar.callback(0)
	in, err := openURL(cmd.Context(), arg, opt)
	if err != nil {
		bar.clear()
		return nil, command.RecordError(err)
	}
	in.closers = append(in.closers, func() error { bar.clear(); return nil })
	return in, nil
}

// seekableTrace returns the unpacked trace of an input as something of which any part can be read, and its size in bytes: the file, or a copy of its
// valid part that is removed when the input is closed.
func seekableTrace(ctx context.Context, in *input, bar *progress.Bar) (io.ReaderAt, int64, error) {
	head := bufio.NewReaderSize(in.Reader, readSize)
	magic, _ := head.Peek(2)
	zipped := len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b
	if in.file != nil && !zipped {
		return in.file, in.size, nil
	}
	tmp, err := os.CreateTemp("", "whylate-*.part")
	if err != nil {
		return nil, 0, fmt.Errorf("keeping the trace for viewing: %w", err)
	}
	in.ownFile(tmp)
	src := progress.NewReader(head, bar, in.name, in.size)
	if zipped {
		if src, err = gzip.NewReader(src); err != nil {
			return nil, 0, fmt.Errorf("%s: this begins like gzip but cannot be unpacked: %w", in.name, err)
		}
	}
	// Only a valid trace is unpacked, up to a damaged part, because a small file may unpack to any number of bytes. So the trace's reader
	// reads it, without keeping generations in memory.
	copier := &copyingReader{from: &interruptible{ctx: ctx, r: src}, to: tmp}
	trace, err := tracefmt.NewReader(copier, tracefmt.Options{MaxGeneration: readSize})
	if err == nil {
		for err == nil {
			var g *tracefmt.Generation
			if g, err = trace.Next(); err == nil {
				g.Release()
			}
		}
		err = copier.err // the valid part of a cut or damaged trace is explained
	}
	switch {
	case ctx.Err() != nil:
		return nil, 0, ctx.Err()
	case err != nil:
		return nil, 0, fmt.Errorf("%s: %w", in.name, err)
	}
	return tmp, copier.size, nil
}

// A copyingReader copies everything that is read to a file. err is the first error other than the end.
type copyingReader struct {
	from io.Reader
	to   *os.File
	size int64
	err  error
}

// Read reads from the source and copies the bytes to the file. It stores an error other than the end of the input.
func (k *copyingReader) Read(p []byte) (int, error) {
	n, err := k.from.Read(p)
	if _, werr := k.to.Write(p[:n]); werr != nil {
		err = fmt.Errorf("keeping the trace for viewing: %w", command.WithoutPath(werr))
	}
	k.size += int64(n)
	if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		k.err = err
	}
	return n, err
}
