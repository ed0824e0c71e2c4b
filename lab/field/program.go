package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/experiment/freeport"
)

// program is a program to record.
type program struct {
	name            string
	module, version string
	pkg             string // of the main function
	// dir is the directory of a small program that uses the module; empty for the module's own program.
	dir         string
	noFaultFlag bool // a program in dir without a flag -fault
	tags        string
	// arguments returns the program's arguments, given free ports.
	arguments func(data string, ports []string) ([]string, error)
	// ready and pprof return URLs, given the ports.
	ready, pprof func(ports []string) string
	env          []string
	// A program in dir may need a server, and a peer: the program itself with -as-peer.
	backend backendStarter
	peer    bool
	cgo     bool
	quota   float64 // of its cgroup, in CPUs
}

var programs = []program{
	{
		name: "etcd", module: "go.etcd.io/etcd/server/v3", version: "v3.7.3", pkg: "go.etcd.io/etcd/server/v3",
		arguments: etcdArguments, ready: etcdReady, pprof: etcdPprof,
	},
	{
		name: "nats", module: "github.com/nats-io/nats-server/v2", version: "v2.15.2", pkg: "github.com/nats-io/nats-server/v2",
		arguments: func(data string, p []string) ([]string, error) {
			return []string{"-a", "127.0.0.1", "-p", p[0], "-m", p[1], "--profile", p[2], "-js", "-sd", data}, nil
		},
		ready: func(p []string) string { return "http://127.0.0.1:" + p[1] + "/healthz" },
		pprof: func(p []string) string { return "http://127.0.0.1:" + p[2] },
	},
	{
		name: "prometheus", module: "github.com/prometheus/prometheus", version: "v0.315.0", pkg: "github.com/prometheus/prometheus/cmd/prometheus",
		arguments: prometheusArguments, ready: prometheusReady, pprof: prometheusPprof,
	},
}

func init() {
	programs = append(programs, program{
		name: "victoriametrics", module: "github.com/VictoriaMetrics/VictoriaMetrics", version: "v1.115.0", pkg: "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics",
		arguments: func(data string, p []string) ([]string, error) {
			return []string{"-httpListenAddr=127.0.0.1:" + p[0], "-storageDataPath=" + data, "-retentionPeriod=1d", "-loggerLevel=ERROR"}, nil
		},
		ready: func(p []string) string { return "http://127.0.0.1:" + p[0] + "/health" },
		pprof: func(p []string) string { return "http://127.0.0.1:" + p[0] },
	}, program{
		name: "caddy", module: "github.com/caddyserver/caddy/v2", version: "v2.11.8", pkg: "github.com/caddyserver/caddy/v2/cmd/caddy",
		arguments: caddyArguments(`respond "hello"`),
		env:       []string{"HOME=/nonexistent"},
		ready:     func(p []string) string { return "http://127.0.0.1:" + p[1] + "/config/" },
		pprof:     func(p []string) string { return "http://127.0.0.1:" + p[1] },
	}, program{
		name: "coredns", module: "github.com/coredns/coredns", version: "v1.14.7", dir: "lab/field/programs/coredns", noFaultFlag: true,
		arguments: corednsArguments("forward . 127.0.0.1:UPSTREAM"),
		ready:     func(p []string) string { return "http://127.0.0.1:" + p[1] + "/debug/pprof/cmdline" },
		pprof:     func(p []string) string { return "http://127.0.0.1:" + p[1] },
	}, program{
		name: "minio", module: "github.com/minio/minio", version: "v0.0.0-20260212201848-7aac2a2c5b7c", dir: "lab/field/programs/minio", noFaultFlag: true,
		arguments: func(data string, p []string) ([]string, error) {
			return []string{"127.0.0.1:" + p[1], "server", "--quiet", "--address", "127.0.0.1:" + p[0], "--console-address", "127.0.0.1:" + p[2], filepath.Join(data, "disk")}, nil
		},
		env:   []string{"MINIO_ROOT_USER=field", "MINIO_ROOT_PASSWORD=fieldfield", "MINIO_BROWSER=off", "MINIO_UPDATE=off"},
		ready: func(p []string) string { return "http://127.0.0.1:" + p[0] + "/minio/health/live" },
		pprof: func(p []string) string { return "http://127.0.0.1:" + p[1] },
	}, program{
		name: "controller", module: "k8s.io/client-go", version: "v0.37.2", dir: "lab/kube/controller",
		arguments: func(data string, p []string) ([]string, error) {
			return []string{"-server", "http://127.0.0.1:" + p[3], "-pprof", "127.0.0.1:" + p[1]}, nil
		},
		env:   []string{"KUBE_FEATURE_WatchListClient=false"},
		ready: func(p []string) string { return "http://127.0.0.1:" + p[1] + "/debug/pprof/cmdline" },
		pprof: func(p []string) string { return "http://127.0.0.1:" + p[1] },
	}, program{
		name: "pd", module: "github.com/tikv/pd", version: "v1.1.0-beta.0.20240407022249-7179657d129b", pkg: "github.com/tikv/pd/cmd/pd-server", tags: "without_dashboard",
		arguments: func(data string, p []string) ([]string, error) {
			return []string{"--name=pd1", "--data-dir=" + data, "--client-urls=http://127.0.0.1:" + p[0], "--peer-urls=http://127.0.0.1:" + p[1], "-L", "error"}, nil
		},
		env:   []string{"GODEBUG=httpmuxgo121=1"},
		ready: func(p []string) string { return "http://127.0.0.1:" + p[0] + "/pd/api/v1/health" },
		pprof: func(p []string) string { return "http://127.0.0.1:" + p[0] + "/pd/api/v1/debug/pprof/trace" },
	}, program{
		name: "tso", module: "github.com/tikv/pd/client", version: "v0.0.0-20260609141937-b01426f6b08b", dir: "stories/tso/client/field",
		arguments: func(data string, p []string) ([]string, error) {
			return []string{"-server", "http://127.0.0.1:" + p[3], "-pprof", "127.0.0.1:" + p[1]}, nil
		},
		ready: func(p []string) string { return "http://127.0.0.1:" + p[1] + "/debug/pprof/cmdline" },
		pprof: func(p []string) string { return "http://127.0.0.1:" + p[1] },
	})
}

// caddyArguments configures a site of Caddy on the first port; UPSTREAM is the fourth.
func caddyArguments(site string) func(data string, p []string) ([]string, error) {
	return func(data string, p []string) ([]string, error) {
		config := filepath.Join(data, "Caddyfile")
		text := "{\n admin 127.0.0.1:" + p[1] + "\n auto_https off\n persist_config off\n}\nhttp://127.0.0.1:" + p[0] + " {\n" + site + "\n}\n"
		text = strings.NewReplacer("UPSTREAM", p[3], "DATA", data).Replace(text)
		return []string{"run", "--config", config, "--adapter", "caddyfile"}, os.WriteFile(config, []byte(text), 0o666)
	}
}

// corednsArguments configures a zone of CoreDNS on the first port, UDP; UPSTREAM is the fourth.
func corednsArguments(plugins string) func(data string, p []string) ([]string, error) {
	return func(data string, p []string) ([]string, error) {
		config := filepath.Join(data, "Corefile")
		text := ".:" + p[0] + " {\n bind 127.0.0.1\n pprof 127.0.0.1:" + p[1] + "\n prometheus 127.0.0.1:" + p[2] + "\n errors\n " + plugins + "\n}\n"
		return []string{"-conf", config, "-quiet"}, os.WriteFile(config, []byte(strings.ReplaceAll(text, "UPSTREAM", p[3])), 0o666)
	}
}

func etcdArguments(data string, p []string) ([]string, error) {
	client, peer := "http://127.0.0.1:"+p[0], "http://127.0.0.1:"+p[1]
	return []string{"--data-dir", data, "--enable-pprof", "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer}, nil
}

func etcdReady(p []string) string { return "http://127.0.0.1:" + p[0] + "/health" }
func etcdPprof(p []string) string { return "http://127.0.0.1:" + p[0] }

func prometheusArguments(data string, p []string) ([]string, error) {
	config := filepath.Join(data, "prometheus.yml")
	err := os.WriteFile(config, fmt.Appendf(nil,
		"global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: self\n  static_configs: [{targets: ['127.0.0.1:%s']}]\n", p[0]), 0o666)
	return []string{"--config.file", config, "--storage.tsdb.path", filepath.Join(data, "tsdb"), "--web.listen-address", "127.0.0.1:" + p[0], "--log.level", "warn"}, err
}

func prometheusReady(p []string) string { return "http://127.0.0.1:" + p[0] + "/-/ready" }
func prometheusPprof(p []string) string { return "http://127.0.0.1:" + p[0] }

func programNamed(name string) (program, bool) {
	for _, p := range programs {
		if p.name == name {
			return p, true
		}
	}
	return program{}, false
}

// build builds the program and returns the binary's path. A program in dir is built in its module; a module's own program is
// built in a scratch module, unless its binary exists.
func (p program) build(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "whylate-field", strings.ReplaceAll(p.pkg, "/", "_")+"-"+p.version+"-"+runtime.Version())
	if p.dir != "" {
		dir = filepath.Join(cache, "whylate-field", p.name)
	}
	binary := filepath.Join(dir, "program")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod -trimpath", "CGO_ENABLED=0"}
	if p.dir != "" {
		// The checksums of its own module apply.
		verb := []string{"build"}
		if tests, _ := filepath.Glob(filepath.Join(p.dir, "*_test.go")); len(tests) > 0 {
			verb = []string{"test", "-c"}
		}
		env[1] = "GOFLAGS=-mod=readonly -trimpath -buildvcs=false"
		if p.cgo {
			env[2] = "CGO_ENABLED=1"
		}
		if err := runCommand(ctx, p.dir, env, "go", append(verb, "-tags", p.tags, "-o", binary, ".")...); err != nil {
			return "", fmt.Errorf("building %s: %w", p.dir, err)
		}
		return binary, nil
	}
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	mod := fmt.Sprintf("module field\n\ngo 1.26\n\nrequire %s %s\n", p.module, p.version)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o666); err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "building %s %s\n", p.name, p.version)
	if err := runCommand(ctx, dir, env, "go", "build", "-tags", p.tags, "-o", binary, p.pkg); err != nil {
		return "", fmt.Errorf("building %s@%s: %w", p.pkg, p.version, err)
	}
	return binary, nil
}

// server is a running program.
type server struct {
	cmd          *exec.Cmd
	ports        []string
	data         string
	pprof        string
	extraArgs    []string // arguments
	releaseQuota func()   // removes the cgroup with the quota, if there is one
	done         chan error

	mu      sync.Mutex
	log     bytes.Buffer // the last lines
	line    []byte
	samples *sampleLog
}

// Write receives the program's output. It adds samples of the program's requests to samples, if set, and stores the rest for
// messages.
func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = append(s.line, p...)
	for {
		line, rest, ok := bytes.Cut(s.line, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		if s.samples == nil || !parseSample(string(line), s.samples) {
			if s.log.Len() > 1<<16 {
				s.log.Reset()
			}
			s.log.Write(line)
			s.log.WriteByte('\n')
		}
		s.line = append(s.line[:0], rest...)
	}
}

func (s *server) collectSamples(t *sampleLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = t
}

// recentOutput returns the last lines that the program printed.
func (s *server) recentOutput() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.log.String()
	return text[max(0, len(text)-2000):]
}

// start runs the program and waits until it is ready.
func (p program) start(ctx context.Context, binary, data string, extraArgs, env []string) (*server, error) {
	ports, err := freeport.Find(4)
	if err != nil {
		return nil, err
	}
	args, err := p.arguments(data, ports)
	if err != nil {
		return nil, err
	}
	return p.startWithPorts(ctx, binary, data, ports, append(args, extraArgs...), extraArgs, env)
}

// startWithPorts is start with given ports and arguments; extraArgs are the arguments that are not the program's own.
func (p program) startWithPorts(ctx context.Context, binary, data string, ports, args, extraArgs, env []string) (*server, error) {
	s := &server{cmd: exec.Command(binary, args...), ports: ports, data: data, pprof: p.pprof(ports), extraArgs: extraArgs, done: make(chan error, 1)}
	s.cmd.Stdout, s.cmd.Stderr = s, s
	s.cmd.Dir = data
	s.cmd.Env = append(append(os.Environ(), p.env...), env...)
	if p.quota > 0 {
		var err error
		if s.releaseQuota, err = confineCPU(s.cmd, p.quota); err != nil {
			return nil, err
		}
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { s.done <- s.cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ready(ports), nil)
		if err != nil {
			return nil, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s, nil
			}
		}
		select {
		case err := <-s.done:
			s.done <- err
			return nil, fmt.Errorf("it ended at once: %v\n%s", err, s.recentOutput())
		case <-ctx.Done():
			s.stop()
			return nil, fmt.Errorf("it did not become ready: %w\n%s", ctx.Err(), s.recentOutput())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *server) stop() {
	if s.releaseQuota != nil {
		defer s.releaseQuota()
	}
	if s.cmd.Process.Signal(os.Interrupt) != nil {
		s.cmd.Process.Kill()
	}
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		s.cmd.Process.Kill()
		<-s.done
	}
}

// tempDir creates a directory that is removed when the context ends.
func tempDir(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "field")
	if err == nil {
		context.AfterFunc(ctx, func() { os.RemoveAll(dir) })
	}
	return dir, err
}
