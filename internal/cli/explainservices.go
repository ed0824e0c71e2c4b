package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/source"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// runServices explains the recordings of several services that were made in the same seconds.
func (e *explainFlags) runServices(cmd *cobra.Command, s *streams, args []string) error {
	rep, err := e.explainServices(cmd.Context(), cmd, s, args)
	return e.writeAndExit(cmd, s, strings.Join(args, " "), rep, err)
}

// explainServices explains recordings of several services in the same seconds as one report. A file may have the recordings of several services. One
// service is explained alone.
func (e *explainFlags) explainServices(ctx context.Context, cmd *cobra.Command, s *streams, args []string) (*report.Report, error) {
	var services []*explain.Service
	var warnings []bundle.Warning
	var inputs []*input
	defer func() {
		for _, in := range inputs {
			in.Close()
		}
	}()
	for _, arg := range args {
		name, file := serviceArg(arg)
		switch {
		case file == "-":
			return nil, command.Usage(cmd, "a recording of several cannot be standard input, because each is read twice")
		case isURL(file):
			return nil, command.Usage(cmd, "record the services first, in the same seconds: whylate record -o x.whylate NAME=URL NAME=URL")
		}
		members := []string{""}
		if recordings := servicesIn(file); recordings != nil {
			if name != "" {
				return nil, command.Usage(cmd, "%s has the recordings of several services, which have names: leave out %s=", file, name)
			}
			members = recordings.Names()
			warnings = append(warnings, recordings.Warnings...)
		}
		for _, member := range members {
			memberFile := file
			if member != "" {
				name, memberFile = member, file+memberSeparator+member
			}
			in, err := s.openInput(ctx, memberFile)
			if err != nil {
				return nil, err
			}
			inputs = append(inputs, in)
			if in.isReport {
				return nil, command.Usage(cmd, "several services need their traces: %s is a report", in.name)
			}
			if in.reopen == nil {
				return nil, command.Usage(cmd, "%s can be read only once: save it to a file first", in.name)
			}
			opts := e.engineOptions(in)
			opts.Name = uniqueName(services, cmp.Or(name, in.serviceName()))
			services = append(services, &explain.Service{Options: opts, Annotate: in.addWarnings})
		}
	}
	if len(services) == 1 {
		rep, err := e.explainShown(ctx, inputs[0], s.Bar())
		if rep != nil {
			warn(rep, warnings)
		}
		return rep, err
	}
	held, restore := limitMemory(int64(e.maxMemory))
	for _, service := range services {
		service.Progress = func(int64) { held() }
	}
	rep, err := explain.ExplainServices(ctx, services)
	excess := restore()
	if rep != nil {
		warn(rep, warnings)
		warnOfExcess(rep, excess)
		source.LocalCache().AddWaitLengths(rep)
		finding.MarkIgnored(rep.Findings, e.ignored)
	}
	return rep, err
}

// memberSeparator separates a file with the recordings of several services from the name of one.
const memberSeparator = "#"

// memberArg divides an argument FILE#SERVICE; service is "" for any other, and if a file has the whole name.
func memberArg(arg string) (file, service string) {
	i := strings.LastIndex(arg, memberSeparator)
	if i <= 0 || !bundle.IsServiceName(arg[i+1:]) {
		return arg, ""
	}
	if _, err := os.Stat(arg); !errors.Is(err, os.ErrNotExist) {
		return arg, ""
	}
	if _, err := os.Stat(arg[:i]); err != nil {
		return arg, ""
	}
	return arg[:i], arg[i+1:]
}

// areServices reports whether the arguments are recordings of several services.
func areServices(args []string) bool { return len(args) > 1 || servicesIn(args[0]) != nil }

// servicesIn returns the description of a file with the recordings of several services, which cannot be read through it because the file is closed;
// nil for any other file.
func servicesIn(name string) *bundle.Services {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer file.Close()
	head := make([]byte, bundle.MagicLen)
	if n, _ := io.ReadFull(file, head); !bundle.IsZip(head[:n]) || bundle.HasMagic(head[:n]) {
		return nil
	}
	services, err := bundle.ReadServices(file, info.Size())
	if err != nil {
		return nil // opening it says why
	}
	return services
}

// missingMember returns the error for a file with the recordings of several services, of which one has to be named and service ("" for none) is no
// name.
func missingMember(file string, services *bundle.Services, service string) error {
	names := services.Names()
	if service != "" {
		return fmt.Errorf("it has no recording of %s, but of %s", service, words.List(names))
	}
	return fmt.Errorf("it has the recordings of %s: name one, such as %s, or explain them together with `whylate explain`", words.List(names), words.ShellQuote(file+memberSeparator+names[0]))
}

// serviceArg divides an argument NAME=FILE; name is "" for any other, and if a file has the whole name.
func serviceArg(arg string) (name, file string) {
	before, after, ok := strings.Cut(arg, "=")
	if !ok || before == "" || strings.ContainsAny(before, "/\\?") {
		return "", arg
	}
	if _, err := os.Stat(arg); !errors.Is(err, os.ErrNotExist) {
		return "", arg
	}
	return before, after
}

// serviceName returns the name of the recorded service, else that of the file without its extension.
func (in *input) serviceName() string {
	if in.meta != nil {
		if name := in.meta.ServiceAttributes()["service.name"]; name != "" {
			return name
		}
	}
	name := filepath.Base(in.name)
	for _, ext := range []string{".gz", ".whylate", ".trace"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// uniqueName returns the name, with as many ' behind it that no other service has it.
func uniqueName(services []*explain.Service, name string) string {
	for slices.ContainsFunc(services, func(s *explain.Service) bool { return s.Name == name }) {
		name += "'"
	}
	return name
}
