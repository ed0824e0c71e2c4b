package scrape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	_ "github.com/prometheus/prometheus/discovery/dns" // the kinds of discovery that a file may name; the command adds Kubernetes, which is large
	_ "github.com/prometheus/prometheus/discovery/file"
	_ "github.com/prometheus/prometheus/discovery/http"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v2"

	"github.com/whylate/whylate/internal/capture/record"
)

// A Config is a configuration file with a subset of the fields of a Prometheus configuration.
type Config struct {
	Jobs []*Job `yaml:"scrape_configs"`
}

// A Job says how to find targets and how to connect to them.
type Job struct {
	Name          string                `yaml:"job_name"`
	Scheme        string                `yaml:"scheme,omitempty"`
	Path          string                `yaml:"trace_path,omitempty"` // the path of net/http/pprof
	Authorization *config.Authorization `yaml:"authorization,omitempty"`
	BasicAuth     *config.BasicAuth     `yaml:"basic_auth,omitempty"`
	TLS           config.TLSConfig      `yaml:"tls_config,omitempty"`
	Relabel       []*relabel.Config     `yaml:"relabel_configs,omitempty"`
	Discovery     discovery.Configs     `yaml:"-"`
}

// UnmarshalYAML also reads the fields of service discovery, which Job does not declare.
func (j *Job) UnmarshalYAML(unmarshal func(any) error) error {
	return discovery.UnmarshalYAMLWithInlineConfigs(j, unmarshal)
}

// ReadConfig reads and checks a file. Paths in it are relative to its directory.
func ReadConfig(file string) (*Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := new(Config)
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	names, dir := make(map[string]bool), filepath.Dir(file)
	for i, j := range c.Jobs {
		jobError := func(err error) (*Config, error) { return nil, fmt.Errorf("%s: job %d %q: %w", file, i+1, j.Name, err) }
		switch {
		case j.Name == "" || names[j.Name]:
			return jobError(errors.New("it needs a job_name of its own"))
		case j.Scheme != "" && j.Scheme != "http" && j.Scheme != "https":
			return jobError(fmt.Errorf("scheme %q is neither http nor https", j.Scheme))
		case j.Authorization != nil && !strings.EqualFold(j.Authorization.Type, "Bearer") && j.Authorization.Type != "":
			return jobError(errors.New("only authorization of type Bearer is known, and basic_auth"))
		case len(j.Discovery) == 0:
			return jobError(errors.New("it finds no targets: give static_configs, file_sd_configs, http_sd_configs, dns_sd_configs or kubernetes_sd_configs"))
		}
		names[j.Name] = true
		for _, r := range j.Relabel {
			if err := r.Validate(model.UTF8Validation); err != nil {
				return jobError(err)
			}
		}
		j.Discovery.SetDirectory(dir)
		j.Authorization.SetDirectory(dir)
		j.BasicAuth.SetDirectory(dir)
		j.TLS.SetDirectory(dir)
	}
	if len(c.Jobs) == 0 {
		return nil, fmt.Errorf("%s: it has no scrape_configs", file)
	}
	return c, nil
}

// recordOptions returns the credentials and, for the scheme https, the TLS files for targets of the job. It reads files with credentials at each
// call, because they change.
func (j *Job) recordOptions(scheme string) (opt record.Options, err error) {
	secret := func(text config.Secret, file string) (string, error) {
		if file == "" {
			return string(text), nil
		}
		return record.ReadSecretFile(file, nil)
	}
	if a := j.Authorization; a != nil {
		if opt.Token, err = secret(a.Credentials, a.CredentialsFile); err != nil {
			return opt, err
		}
	}
	if b := j.BasicAuth; b != nil {
		password, err := secret(b.Password, b.PasswordFile)
		if err != nil {
			return opt, err
		}
		opt.Login = &record.Login{User: b.Username, Password: password}
	}
	if t := &j.TLS; scheme == "https" {
		opt.TLS = record.TLSFiles{CACert: t.CAFile, Cert: t.CertFile, Key: t.KeyFile, ServerName: t.ServerName, Insecure: t.InsecureSkipVerify}
	}
	return opt, nil
}
