package cli

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/source"
)

// runServices explains the recordings of several services that were made in the same seconds.
func (e *explainFlags) runServices(cmd *cobra.Command, s *streams, args []string) error {
	var services []*explain.Service
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
			return command.Usage(cmd, "a recording of several cannot be standard input, because each is read twice")
		case isURL(file):
			return command.Usage(cmd, "record the services first, in the same seconds: whylate record -o x.whylate NAME=URL NAME=URL")
		}
		in, err := s.openInput(cmd.Context(), file)
		if err != nil {
			return err
		}
		inputs = append(inputs, in)
		if in.isReport {
			return command.Usage(cmd, "several services need their traces: %s is a report", in.name)
		}
		if in.reopen == nil {
			return command.Usage(cmd, "%s can be read only once: save it to a file first", in.name)
		}
		opts := e.engineOptions(in)
		opts.Name = uniqueName(services, cmp.Or(name, in.serviceName()))
		services = append(services, &explain.Service{Options: opts, Annotate: in.addWarnings})
	}
	held, restore := limitMemory(int64(e.maxMemory))
	for _, service := range services {
		service.Progress = func(int64) { held() }
	}
	rep, err := explain.ExplainServices(cmd.Context(), services)
	excess := restore()
	if rep != nil {
		warnOfExcess(rep, excess)
		source.LocalCache().AddWaitLengths(rep)
		finding.MarkIgnored(rep.Findings, e.ignored)
	}
	return e.writeAndExit(cmd, s, strings.Join(args, " "), rep, err)
}

// serviceArg divides an argument NAME=FILE. A file of that name takes precedence.
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

// uniqueName returns a name that no other service has.
func uniqueName(services []*explain.Service, name string) string {
	for slices.ContainsFunc(services, func(s *explain.Service) bool { return s.Name == name }) {
		name += "'"
	}
	return name
}
