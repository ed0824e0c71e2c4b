package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/kernelprobe"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
)

// Environment variables for credentials, which then are in no command line.
const (
	envHeaders  = "WHYLATE_HEADERS"
	envPassword = "WHYLATE_PASSWORD"
	envToken    = "WHYLATE_TOKEN"
)

type dialKey struct{}

// WithDial returns a context with which verbs connect to services by dial.
func WithDial(ctx context.Context, dial func(ctx context.Context, network, addr string) (net.Conn, error)) context.Context {
	return context.WithValue(ctx, dialKey{}, dial)
}

// connectFlags contains the flags of verbs that connect to a service.
type connectFlags struct {
	recording             record.Options // those that are set directly by flags
	headers               []string
	headerFile            string
	user, password, token string // password and token are files
	timeout               time.Duration
	kernel                bool
	force                 bool
}

// defaultTimeout is the default of --timeout.
const defaultTimeout = 15 * time.Second

// addFlags adds the flags of verbs that record or watch services.
func (c *connectFlags) addFlags(f *pflag.FlagSet) {
	c.addExplainFlags(f)
	r := &c.recording
	f.BoolVar(&r.NoHost, "no-host", false, "take no host samples, even if the service runs on this host")
	f.StringVar(&c.headerFile, "header-file", "", "send the headers in this file, one per line")
	f.StringVarP(&c.user, "user", "u", "", "send this user, or USER:PASSWORD, as basic authentication")
	f.StringVar(&c.password, "password-file", "", "read the password for --user from this file")
	f.StringVar(&c.token, "token-file", "", "send the token in this file as a bearer token")
	addTLSFiles(f, &r.TLS, "server")
	f.StringVar(&r.Proxy, "proxy", "", "use this proxy (http, https, socks5 URL), or none")
	f.DurationVar(&c.timeout, "timeout", defaultTimeout, "longest time to connect, and to wait for data after the recording's end")
	f.BoolVar(&r.NoRedirects, "no-redirects", false, "ask the given address only: a redirect is an error")
	_ = f.MarkHidden("no-redirects") // for programs that may reach some addresses only, such as whylate-mcp
}

// addExplainFlags adds the flags of explain. For a recording that needs other flags, users run the verb record.
func (c *connectFlags) addExplainFlags(f *pflag.FlagSet) {
	r := &c.recording
	c.timeout = defaultTimeout
	f.DurationVarP(&r.Duration, "duration", "d", record.DefaultDuration, "how long to record; rounded up to whole seconds")
	f.BoolVar(&r.NoCPU, "no-cpu", false, "take no CPU profile together with the trace (the trace then has no CPU samples)")
	f.Var((*processFlag)(&r.PID), "pid", "take host samples of this process, or of container:ID, instead of the one that listens at the URL's port")
	f.StringArrayVarP(&c.headers, "header", "H", nil, "send this `header`, 'Name: value'; may be repeated")
	addInsecure(f, &r.TLS, "server")
}

// A processFlag is the number of a process, or container:ID for the first process of a container of this host.
type processFlag int

var containerName = regexp.MustCompile(`^container:([0-9a-f]{12,64})$`)

func (p *processFlag) String() string { return strconv.Itoa(int(*p)) }

func (p *processFlag) Type() string { return "process" }

// Set parses a process id, or container:ID, of which it stores the id of the container's first process here.
func (p *processFlag) Set(text string) error {
	if m := containerName.FindStringSubmatch(text); m != nil {
		pid, err := host.ContainerPID(m[1])
		*p = processFlag(pid)
		return err
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		return errors.New("write the number of a process, or container: and the container's identifier")
	}
	*p = processFlag(pid)
	return nil
}

// addKernel adds the flag of verbs that can record the kernel's events.
func (c *connectFlags) addKernel(f *pflag.FlagSet) {
	f.BoolVar(&c.kernel, "kernel", false, "also record the kernel's events about the service's threads; needs root, or CAP_BPF and CAP_PERFMON")
}

// addProcessFlags adds the flags of verbs that record a process from outside. It must follow the others.
func (c *connectFlags) addProcessFlags(f *pflag.FlagSet) {
	f.Lookup("pid").Usage = "without a URL: record this process, or the first one of container:ID, from outside, for 3s unless -d is given; with a URL: take host samples of it"
	f.BoolVar(&c.force, "force", false, "with --pid and no URL: record even if that takes more than 5 % of the CPUs that the process may use")
}

// isRecordFlag reports whether a name, or a shorthand of one letter, is that of a flag of record that explain does not have.
func isRecordFlag(name string) bool {
	var explain, all pflag.FlagSet
	new(connectFlags).addExplainFlags(&explain)
	new(connectFlags).addFlags(&all)
	f := all.Lookup(name)
	if len(name) == 1 {
		f = all.ShorthandLookup(name)
	}
	return f != nil && explain.Lookup(f.Name) == nil
}

// addTLSFiles adds the flags for the TLS of verbs that may connect to a server, which their help names, except --insecure.
func addTLSFiles(f *pflag.FlagSet, t *record.TLSFiles, server string) {
	f.StringVar(&t.CACert, "cacert", "", "trust the authorities in this PEM file instead of the system's")
	f.StringVar(&t.Cert, "cert", "", "present the client certificate in this PEM file")
	f.StringVar(&t.Key, "key", "", "the private key of --cert, in this PEM file")
	f.StringVar(&t.ServerName, "server-name", "", "expect this name in the "+server+"'s certificate")
}

func addInsecure(f *pflag.FlagSet, t *record.TLSFiles, server string) {
	f.BoolVar(&t.Insecure, "insecure", false, "do not verify the "+server+"'s certificate")
}

// options checks the flags, reads the files and variables that they name, and returns a function that returns the options for one target.
func (c *connectFlags) options(cmd *cobra.Command) (func(target string) (record.Options, error), error) {
	opt := c.recording
	if opt.Duration <= 0 {
		return nil, command.Usage(cmd, "--duration must be positive, not %v", opt.Duration)
	}
	if c.timeout <= 0 {
		return nil, command.Usage(cmd, "--timeout must be positive, not %v", c.timeout)
	}
	if opt.PID < 0 || opt.PID > 0 && opt.NoHost {
		return nil, command.Usage(cmd, "--pid samples a process, and --no-host samples none: give one of them")
	}
	if c.kernel && opt.NoHost {
		return nil, command.Usage(cmd, "--kernel records about a process of this host, and --no-host records nothing about it: give one of them")
	}
	if c.kernel {
		opt.Kernel = func(pid int) (record.KernelProbe, error) { return kernelprobe.Start(pid) }
	}
	fromStdin := 0
	for _, name := range []string{c.headerFile, c.password, c.token} {
		if name == "-" {
			fromStdin++
		}
	}
	if fromStdin > 1 {
		return nil, command.Usage(cmd, "only one of --header-file, --password-file and --token-file can be - (standard input)")
	}
	opt.Header, opt.ConnectTimeout, opt.Grace, opt.UserAgent = http.Header{}, c.timeout, c.timeout, "whylate/"+readBuild().Version
	opt.Dial, _ = cmd.Context().Value(dialKey{}).(func(ctx context.Context, network, addr string) (net.Conn, error))
	if err := c.readHeaders(cmd, opt.Header); err != nil {
		return nil, err
	}
	var err error
	if opt.Login, err = c.login(cmd); err != nil {
		return nil, err
	}
	if c.token != "" {
		if opt.Token, err = secret(cmd, c.token); err != nil {
			return nil, err
		}
		if opt.Token == "" {
			return nil, command.Usage(cmd, "the file of --token-file is empty")
		}
	}
	envToken := strings.TrimSpace(os.Getenv(envToken))
	return func(target string) (record.Options, error) {
		_, inURL, err := record.ParseEndpoint(target)
		if err != nil {
			return record.Options{}, err
		}
		o := opt
		// The variables are for all targets of all runs, so credentials for this target take precedence.
		if o.Token == "" && o.Login == nil && inURL == nil && o.Header.Get("Authorization") == "" {
			o.Token = envToken
		}
		return o, nil
	}, nil
}

// processOptions checks and returns the options for recording the process that --pid names from outside.
func (c *connectFlags) processOptions(cmd *cobra.Command) (record.Options, error) {
	opt := c.recording
	if opt.Duration <= 0 || opt.Duration > maxProcessDuration {
		return opt, command.Usage(cmd, "--duration of a recording from outside must be positive and at most %v, not %v", maxProcessDuration, opt.Duration)
	}
	return opt, nil
}

// maxProcessDuration bounds a recording from outside, which costs the process CPU time while it runs.
const maxProcessDuration = 30 * time.Second

// optionsFor returns the options for a command's only target. The error has its exit status.
func (c *connectFlags) optionsFor(cmd *cobra.Command, target string) (opt record.Options, err error) {
	options, err := c.options(cmd)
	if err == nil {
		opt, err = options(target)
	}
	if err != nil {
		return opt, command.RecordError(err)
	}
	return opt, nil
}

// secret reads a file of credentials, and ends with cmd's context.
func secret(cmd *cobra.Command, name string) (string, error) {
	return command.WaitFor(cmd.Context(), name, func() (string, error) { return record.ReadSecretFile(name, cmd.InOrStdin()) })
}

// readHeaders adds the headers of the user to h: those of the header file, then those of --header; those of the environment
// only if neither has the name.
func (c *connectFlags) readHeaders(cmd *cobra.Command, h http.Header) error {
	env := http.Header{}
	if err := record.AddHeaders(env, "from "+envHeaders, record.SplitHeaderLines(os.Getenv(envHeaders))); err != nil {
		return err
	}
	if c.headerFile != "" {
		text, err := secret(cmd, c.headerFile)
		if err != nil {
			return err
		}
		if err := record.AddHeaders(h, "from "+c.headerFile, record.SplitHeaderLines(text)); err != nil {
			return err
		}
	}
	if err := record.AddHeaders(h, "from --header", c.headers); err != nil {
		return err
	}
	for name, values := range env {
		if h[name] == nil {
			h[name] = values
		}
	}
	return nil
}

// login returns the user and password of --user, whose password may also come from --password-file or the environment; nil
// without --user.
func (c *connectFlags) login(cmd *cobra.Command) (*record.Login, error) {
	user, password, hasPassword := strings.Cut(c.user, ":")
	switch {
	case c.user == "" && c.password != "":
		return nil, command.Usage(cmd, "--password-file needs --user")
	case c.user == "":
		return nil, nil
	case hasPassword && c.password != "":
		return nil, command.Usage(cmd, "--user holds a password and --password-file names another")
	case hasPassword:
	case c.password != "":
		var err error
		if password, err = secret(cmd, c.password); err != nil {
			return nil, err
		}
	default:
		var set bool
		if password, set = os.LookupEnv(envPassword); !set {
			return nil, command.Usage(cmd, "--user without a password: set %s, give --password-file, or write USER: for an empty one", envPassword)
		}
	}
	return &record.Login{User: user, Password: password}, nil
}

// eachService calls f for each service in the arguments, in order, with the options of its connection and its endpoint. It ends
// with an error at a target that is no address, that is a file, or whose endpoint occurred before: a process can have only one
// trace at a time. By then f was called for the targets before, so f must only store its arguments.
func eachService(cmd *cobra.Command, targets []string, options func(target string) (record.Options, error), f func(i int, opt record.Options, end record.Endpoint)) error {
	endpoints := map[string]bool{}
	for i, target := range targets {
		if ext := filepath.Ext(target); ext == record.BundleExt || ext == ".trace" {
			if _, err := os.Stat(target); err == nil {
				return command.Usage(cmd, "%s is a file, not a service: `whylate explain` reads it", target)
			}
		}
		opt, err := options(target)
		if err != nil {
			return command.RecordError(err)
		}
		end, _, err := record.ParseEndpoint(target)
		if err != nil {
			return command.RecordError(err)
		}
		if endpoints[end.String()] {
			return command.Usage(cmd, "%s is given twice: a process can have only one trace at a time", end)
		}
		endpoints[end.String()] = true
		f(i, opt, end)
	}
	return nil
}
