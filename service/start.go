package service

import (
	"log/slog"
	"net/http"
	"os"
	"sync"

	"github.com/whylate/whylate/service/debugz"
	"github.com/whylate/whylate/service/internal/settings"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

// Options say what to start. The zero value does what importing service/auto
// does, with the probe.
type Options struct {
	// Tune, if not nil, says what is done about GOMAXPROCS, GOMEMLIMIT and GOGC.
	// nil asks the environment as service/auto does: GOMAXPROCS is applied, the
	// others are observed.
	Tune *tune.Options
	// Probe are the probe's options.
	Probe probe.Options
	// Logger gets what is decided, unless Tune has one of its own; nil is
	// slog.Default.
	Logger *slog.Logger
}

// A Service is what runs from Start to Stop. Its methods may be called
// concurrently.
type Service struct {
	tuner *tune.Tuner
	probe *probe.Probe
	once  sync.Once
}

// A State is what was decided and what was measured.
type State struct {
	Tune  tune.State
	Probe probe.Snapshot
}

// Start starts a tuner and a probe. It never fails: what cannot be read or set
// here is told by State.
func Start(o Options) *Service { return start(o, os.Getenv) }

func start(o Options, getenv func(string) string) *Service {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	t := o.Tune
	if t == nil {
		opts, quiet, problems := settings.Options(getenv)
		for _, p := range problems {
			o.Logger.Warn("whylate: a setting of the environment is ignored", slog.String("setting", p))
		}
		if quiet {
			opts.Logger = slog.New(slog.DiscardHandler)
		}
		t = &opts
	}
	opts := *t
	if opts.Logger == nil {
		opts.Logger = o.Logger
	}
	return &Service{tuner: tune.Start(opts), probe: probe.Start(o.Probe)}
}

// Tuner returns the tuner, for the adapters.
func (s *Service) Tuner() *tune.Tuner { return s.tuner }

// Probe returns the probe, for the adapters.
func (s *Service) Probe() *probe.Probe { return s.probe }

// State returns what is known now. After Stop it still answers.
func (s *Service) State() State {
	st := State{Tune: s.tuner.State()}
	s.probe.Snapshot(&st.Probe)
	return st
}

// Handler returns debugz's handler of this service; the tuner and the probe in o
// are this service's.
func (s *Service) Handler(o debugz.Options) http.Handler {
	o.Tuner, o.Probe = s.tuner, s.probe
	return debugz.Handler(o)
}

// Stop ends both and gives back what was set. It may be called more than once.
func (s *Service) Stop() {
	s.once.Do(func() {
		s.probe.Stop()
		s.tuner.Stop()
	})
}
