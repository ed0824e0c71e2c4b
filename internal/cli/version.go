package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
)

// build is the toolchain's information about this program.
type build struct {
	Version  string   `json:"version"` // "(devel)" outside a tagged module
	Revision string   `json:"revision,omitempty"`
	Time     string   `json:"time,omitempty"`
	Modified bool     `json:"modified,omitempty"`
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Modules  []module `json:"modules"`
}

type module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Sum     string `json:"sum,omitempty"`
}

// readBuild returns the facts of this program's build: version, revision, Go release and modules. Unknown ones are empty.
func readBuild() build {
	b := build{Version: "(devel)", Revision: releasedFrom, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Modules: []module{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		b.Modules = append(b.Modules, module{d.Path, d.Version, d.Sum})
	}
	return b
}

// Version returns the version of this program's module, "(devel)" outside a tagged one.
func Version() string { return readBuild().Version }

// line returns the version, revision, time and local changes of the build in one line, such as
// "whylate v0.3.0 (revision 1a2b3c, 2026-11-21T04:00:00Z)".
func (b build) line() string {
	var from []string
	if b.Revision != "" {
		from = append(from, "revision "+b.Revision)
	}
	if b.Time != "" {
		from = append(from, b.Time)
	}
	if b.Modified {
		from = append(from, "with local changes")
	}
	if len(from) == 0 {
		return "whylate " + b.Version
	}
	return "whylate " + b.Version + " (" + strings.Join(from, ", ") + ")"
}

// newVersion returns the command version, which prints the facts of this program's build.
func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Args:  command.NoArgs,
		RunE: command.RunE(func(cmd *cobra.Command, _ []string) error {
			b := readBuild()
			if asJSON {
				return command.WriteJSON(cmd.OutOrStdout(), b)
			}
			var out strings.Builder
			fmt.Fprintf(&out, "%s\n%s %s\n", b.line(), b.Go, b.Platform)
			for _, m := range b.Modules {
				fmt.Fprintf(&out, "%s %s\n", m.Path, m.Version)
			}
			_, err := io.WriteString(cmd.OutOrStdout(), out.String())
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
