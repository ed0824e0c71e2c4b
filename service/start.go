package service

import (
	"cmp"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"github.com/whylate/whylate/service/debugz"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/internal/guard"
	"github.com/whylate/whylate/service/internal/settings"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

// Options configure the components. The zero value starts a tuner as importing
// service/auto does, and the probe.
type Options struct {
	// Tune, if not nil, configures the tuner of GOMAXPROCS, GOMEMLIMIT and GOGC. nil
	// reads the environment as service/auto does: GOMAXPROCS is applied, the others
	// are observed.
	Tune *tune.Options
	// Probe are the probe's options.
	Probe probe.Options
	// Flight, if not nil, starts a recorder of slow moments (service/flight): the
	// probe's freezes are triggers of it, and Handler shows and serves it.
	Flight *flight.Options
	// Logger gets every decision, unless Tune has another logger; nil is
	// slog.Default.
	Logger *slog.Logger
}

// A Service has the components that run from Start to Stop. Its methods may be
// called concurrently.
type Service struct {
	tuner *tune.Tuner
	probe *probe.Probe
	// flight is nil without Options.Flight, or if these options are invalid.
	flight   *flight.Recorder
	stopOnce sync.Once
}

// A State has the tuner's decisions and the probe's measurements.
type State struct {
	Tune  tune.State
	Probe probe.Snapshot
	// Flight is nil without a recorder.
	Flight *flight.State
}

// Start starts a tuner, a probe and, if o.Flight is set, a flight recorder. It
// never fails: State reports limits that cannot be read or set, and the Logger reports
// invalid options of the recorder.
func Start(o Options) *Service { return start(o, os.Getenv) }

// start is Start with a given environment (getenv), whose settings of the tuner count only
// if o.Tune is nil.
func start(o Options, getenv func(string) string) *Service {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	t := o.Tune
	if t == nil {
		opts, quiet, problems := settings.Options(getenv)
		for _, p := range problems {
			warn(&o, "whylate: a setting of the environment is ignored", slog.String("setting", p))
		}
		if quiet {
			opts.Logger = slog.New(slog.DiscardHandler)
		}
		t = &opts
	}
	opts := *t
	opts.Logger = cmp.Or(opts.Logger, o.Logger)
	rec, probing := withFlight(&o)
	return &Service{tuner: tune.Start(opts), probe: probe.Start(probing), flight: rec}
}

// warn writes a warning to the service's logger, which may panic without effect.
func warn(o *Options, text string, attr slog.Attr) {
	var g guard.Guard
	_ = g.Do("service.Options.Logger", func() { o.Logger.Warn(text, attr) })
}

// withFlight starts the recorder, if there are options for it, and returns the probe's options, which report freezes to it. The
// recorder is nil without options, and if it cannot start.
func withFlight(o *Options) (*flight.Recorder, probe.Options) {
	probing := o.Probe
	if o.Flight == nil {
		return nil, probing
	}
	rec, err := flight.Start(*o.Flight)
	if err != nil {
		warn(o, "whylate: the flight recorder was not started", slog.String("error", err.Error()))
		return nil, probing
	}
	onFreeze := o.Probe.OnFreeze
	probing.OnFreeze = func(f probe.Freeze) {
		rec.OnFreeze(f)
		if onFreeze != nil {
			onFreeze(f)
		}
	}
	return rec, probing
}

// Flight returns the flight recorder, nil without one: a nil recorder's methods record nothing.
func (s *Service) Flight() *flight.Recorder { return s.flight }

// Tuner returns the tuner, for the adapters.
func (s *Service) Tuner() *tune.Tuner { return s.tuner }

// Probe returns the probe, for the adapters.
func (s *Service) Probe() *probe.Probe { return s.probe }

// State returns the current state. It still answers after Stop.
func (s *Service) State() State {
	st := State{Tune: s.tuner.State()}
	s.probe.Snapshot(&st.Probe)
	if s.flight != nil {
		f := s.flight.State()
		st.Flight = &f
	}
	return st
}

// Handler returns debugz's handler of this service; the tuner, the probe and the
// flight recorder in o are this service's.
func (s *Service) Handler(o debugz.Options) http.Handler {
	o.Tuner, o.Probe, o.Flight = s.tuner, s.probe, s.flight
	return debugz.Handler(o)
}

// Stop stops all components and restores the settings. It may be called more than once.
func (s *Service) Stop() {
	s.stopOnce.Do(func() {
		s.probe.Stop()
		if s.flight != nil {
			s.flight.Stop()
		}
		s.tuner.Stop()
	})
}
