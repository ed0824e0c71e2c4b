package cli

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/words"
)

// divideServices returns the URLs of arguments NAME=URL, and sets r.services to the names: all services go into one file. Without any name it returns
// the arguments, and each URL gets a file.
func (r *recorder) divideServices(cmd *cobra.Command, args []string) (targets []string, err error) {
	var names []string
	isNamed := false
	for _, arg := range args {
		name, target, ok := strings.Cut(arg, "=")
		if ok = ok && bundle.IsServiceName(name); !ok {
			name, target = "", arg
		}
		isNamed = isNamed || ok
		names, targets = append(names, name), append(targets, target)
	}
	if !isNamed {
		return args, nil
	}
	for i, name := range names {
		switch {
		case name == "":
			return nil, command.Usage(cmd, "%s has no name: with NAME=URL all services go into one file, so name each", record.RedactString(targets[i]))
		case slices.Contains(names[:i], name):
			return nil, command.Usage(cmd, "two services are named %s", name)
		}
	}
	switch {
	case len(names) > bundle.MaxServices:
		return nil, command.Usage(cmd, "one file holds at most %d services, you named %d", bundle.MaxServices, len(names))
	case r.output != "" && !strings.EqualFold(filepath.Ext(r.output), record.BundleExt):
		return nil, command.Usage(cmd, "services with names go into one file: name it x%s with -o", record.BundleExt)
	case r.json && r.explain:
		return nil, command.Usage(cmd, "--json with --explain is for services without names: explain the file with `whylate explain --json`")
	}
	r.services = names
	return targets, nil
}

// withServiceName returns attributes of a service with its name, unless they have one.
func withServiceName(attributes map[string]string, name string) map[string]string {
	out := map[string]string{"service.name": name}
	maps.Copy(out, attributes)
	return out
}

// saveServices records the jobs concurrently, one for each service, into the file name. version is that of this program, for the metadata. A service
// that failed has its error in its outcome; err is about the file.
func (r *recorder) saveServices(ctx context.Context, jobs []record.Job, name, version string) (outcomes []record.Outcome, err error) {
	_, err = record.SaveServices(name, version, r.services, func(files []string) []error {
		for i := range jobs {
			jobs[i].Name = files[i]
		}
		outcomes = record.SaveAll(ctx, jobs, version)
		errs := make([]error, len(jobs))
		for i := range jobs {
			jobs[i].Name, errs[i] = name, outcomes[i].Err
		}
		return errs
	})
	return outcomes, err
}

// flights fetches the recordings of the flight recorders of several services at the same time into one file.
func (r *recorder) flights(cmd *cobra.Command, targets []string, name string) error {
	sizes, errs := make([]int64, len(targets)), make([]error, len(targets))
	options := make([]record.Options, len(targets))
	if err := eachService(cmd, targets, r.options, func(i int, opt record.Options, _ record.Endpoint) { options[i] = opt }); err != nil {
		return err
	}
	isSaved, err := record.SaveServices(name, readBuild().Version, r.services, func(files []string) []error {
		var fetches sync.WaitGroup
		for i, target := range targets {
			fetches.Go(func() {
				sizes[i], errs[i] = record.SaveFlight(cmd.Context(), target, options[i], files[i], nil)
			})
		}
		fetches.Wait()
		return errs
	})
	if err != nil {
		return command.RecordError(err)
	}
	status := ExitOK
	for i, service := range r.services {
		if errs[i] != nil {
			fmt.Fprintf(r.s.Err, "whylate: %s: %s\n", service, command.OneLine(errs[i].Error()))
			status = command.RecordStatus(errs[i])
		} else if isSaved {
			fmt.Fprintf(r.s.Out, "%s#%s: %s\n", name, service, words.Bytes(sizes[i]))
		}
	}
	if status != ExitOK {
		return command.Exit(status, nil)
	}
	return nil
}
