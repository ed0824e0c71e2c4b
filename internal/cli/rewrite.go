package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/rewrite"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/service/redact"
)

// newCut returns the command cut, which writes the generations of a recording within a time as a new recording.
func newCut(s *streams) *cobra.Command {
	var from, to time.Duration
	cmd := &cobra.Command{
		Use:   "cut [flags] IN OUT",
		Short: "Write a part of a recording as a new recording",
		Args:  command.Exactly(2, "name the recording to read and the file to write, got {n}"),
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			switch {
			case from < 0 || to < 0:
				return command.Usage(cmd, "--from and --to count from the trace's start and cannot be negative")
			case to > 0 && to <= from:
				return command.Usage(cmd, "--to %v is not after --from %v", to, from)
			case from == 0 && to == 0:
				return command.Usage(cmd, "name the part with --from and --to")
			}
			var p rewrite.Excerpt
			err := s.rewrite(cmd, args[0], args[1], func(w io.Writer, src *rewrite.Source) (err error) {
				p, err = rewrite.Cut(w, src, from, to)
				return err
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(s.Err, "whylate: kept %v to %v of %s, in whole generations\n", p.Start.Round(time.Millisecond), p.End.Round(time.Millisecond), args[0])
			s.warnOfLoss(args[0], p.Loss)
			return nil
		}),
	}
	f := cmd.Flags()
	f.DurationVar(&from, "from", 0, "keep the trace from this time on")
	f.DurationVar(&to, "to", 0, "keep the trace until this time (default: its end)")
	return cmd
}

// newRedact returns the command redact, which writes a recording with its texts hidden.
func newRedact(s *streams) *cobra.Command {
	var (
		keep    []string
		drop    bool
		keyFile string
		o       redact.Options
	)
	cmd := &cobra.Command{
		Use:   "redact [flags] IN OUT",
		Short: "Hide the texts of a recording before you share it",
		Args:  command.Exactly(2, "name the recording to read and the file to write, got {n}"),
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			mode := redact.Hash
			o.Files = redact.Trim
			if drop {
				mode, o.Files = redact.Drop, redact.Drop
			}
			o.Logs, o.Tasks, o.Routes, o.Parents = mode, mode, mode, mode
			var allowed []*regexp.Regexp
			for _, k := range keep {
				re, err := regexp.Compile(k)
				if err != nil {
					return command.Usage(cmd, "--keep: %v", err)
				}
				allowed = append(allowed, re)
			}
			o.Allow = func(text string) bool {
				return slices.ContainsFunc(allowed, func(re *regexp.Regexp) bool { return re.MatchString(text) })
			}
			if keyFile != "" {
				key, err := command.WaitFor(cmd.Context(), keyFile, func() ([]byte, error) { return os.ReadFile(keyFile) })
				if err != nil {
					return fmt.Errorf("reading the key: %w", err)
				}
				if len(key) < 16 {
					return command.Usage(cmd, "--key-file: a key has at least 16 bytes, this one has %d", len(key))
				}
				o.Key = key
			}
			var loss rewrite.Loss
			err := s.rewrite(cmd, args[0], args[1], func(w io.Writer, src *rewrite.Source) (err error) {
				loss, err = rewrite.Redact(w, src, o)
				return err
			})
			if err != nil {
				return err
			}
			s.warnOfLoss(args[0], loss)
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&keep, "keep", nil, "do not hide texts that match this regular `expression` (may be repeated)")
	f.BoolVar(&drop, "drop", false, "leave texts out instead of hashing them")
	f.StringVar(&keyFile, "key-file", "", "make hashes with the key in this `file`")
	f.StringVar(&o.Main, "main", "", "the import `path` of the main package, for names of its files")
	return cmd
}

// warnOfLoss writes to standard error which parts of the original recording, called name, could not be read.
func (s *streams) warnOfLoss(name string, loss rewrite.Loss) {
	if loss.Truncated {
		fmt.Fprintf(s.Err, "whylate: %s is cut or damaged: what was written ends where it can no longer be read\n", name)
	}
	if len(loss.Entries) > 0 {
		fmt.Fprintf(s.Err, "whylate: %s is damaged: it could not be read, or not to its end: %s\n", name, strings.Join(loss.Entries, ", "))
	}
}

// rewrite opens the recording from and calls write with it and the output to, which is complete at the end or missing.
func (s *streams) rewrite(cmd *cobra.Command, from, to string, write func(io.Writer, *rewrite.Source) error) error {
	in, err := s.openInput(cmd.Context(), from)
	if err != nil {
		return err
	}
	defer in.Close()
	if in.isReport {
		return fmt.Errorf("%s is a report, not a recording", in.name)
	}
	if to == from && to != "-" {
		return command.Usage(cmd, "IN and OUT are both %s: write to another file", from)
	}
	bar := s.Bar()
	defer bar.Clear()
	src := &rewrite.Source{Name: in.name, Trace: &interruptible{ctx: cmd.Context(), r: progress.NewReader(in.Reader, bar, in.name, in.size)}, Bundle: in.bundle}
	if in.bundle == nil {
		src.Meta = in.meta
	}
	switch {
	case to == "":
		return command.Usage(cmd, "the name of OUT is empty")
	case to == "-" && width(s.Out) > 0:
		return command.Usage(cmd, "a recording cannot be shown on a terminal: name a file")
	}
	return s.WriteTo(to, func(w io.Writer) error {
		out := bufio.NewWriterSize(w, 1<<20)
		if err := write(out, src); err != nil {
			return err
		}
		return out.Flush()
	})
}
