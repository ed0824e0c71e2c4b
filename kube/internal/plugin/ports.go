package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/capture/wire"
)

// portAnnotations are annotations of a pod with the port of net/http/pprof or a flight recorder: our own, and those of
// Grafana's collectors of profiles.
var portAnnotations = []string{"whylate/port", "profiles.grafana.com/cpu.port", "profiles.grafana.com/memory.port"}

// pathAnnotation is the annotation with an unusual path of the handlers.
const pathAnnotation = "whylate/path"

// debugPortNames matches names of ports that probably serve debugging handlers.
var debugPortNames = regexp.MustCompile(`pprof|prof|debug|flight|admin|diag|internal|ops`)

// usualPorts are the ports at which services usually serve net/http/pprof.
var usualPorts = []int{6060, 6061, 8080, 8081, 9090}

const (
	maxCandidates = 12
	probeTimeout  = 3 * time.Second
)

// candidatePorts returns the ports at which the pod may serve profiles, the most likely first. isSpecified means that the flag or an annotation names
// the only one. A value that is neither a number nor the name of a declared port is an error.
func candidatePorts(pod *corev1.Pod, flag string) (ports []int, isSpecified bool, err error) {
	value, source := flag, "--port"
	for _, name := range portAnnotations {
		if v := pod.Annotations[name]; value == "" && v != "" {
			value, source = v, "annotation "+name
		}
	}
	var likely, declared []int
	var names []string
	for _, c := range append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...) {
		for _, p := range c.Ports {
			if p.Protocol == corev1.ProtocolUDP || p.Protocol == corev1.ProtocolSCTP {
				continue
			}
			if value != "" && p.Name == value {
				return []int{int(p.ContainerPort)}, true, nil
			}
			if p.Name != "" {
				names = append(names, p.Name)
			}
			if debugPortNames.MatchString(p.Name) {
				likely = append(likely, int(p.ContainerPort))
			} else {
				declared = append(declared, int(p.ContainerPort))
			}
		}
	}
	if value != "" {
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n == 0 {
			return nil, true, fmt.Errorf("%s of pod %s: %q is neither a port's number nor the name of one that it declares (%s)", source, pod.Name, shortText(value), strings.Join(names, ", "))
		}
		return []int{int(n)}, true, nil
	}
	for _, p := range slices.Concat(likely, usualPorts[:1], declared, usualPorts[1:]) {
		if !slices.Contains(ports, p) && len(ports) < maxCandidates {
			ports = append(ports, p)
		}
	}
	return ports, false, nil
}

// portHandlers are the handlers that a port serves.
type portHandlers struct{ pprof, flight bool }

// probe returns which handlers a port serves. If it serves none, the error has the reason.
func (t *target) probe(ctx context.Context, port int) (handlers portHandlers, err error) {
	transport := wire.Transport(&http.Transport{DialContext: t.dial, DisableCompression: true})
	defer transport.CloseIdleConnections()
	client := wire.Client(transport)
	get := func(path string) (status int, kind string, err error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url(port)+path, nil)
		if err != nil {
			return 0, "", err
		}
		req.Host = net.JoinHostPort("localhost", strconv.Itoa(port))
		resp, err := client.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		_, _ = wire.ReadFirst(resp.Body, 64<<10) // so that the connection can be reused
		return resp.StatusCode, resp.Header.Get("Content-Type"), nil
	}
	status, kind, err := get(record.FlightPath + "?state")
	if err != nil {
		if e, ok := errors.AsType[*record.Error](err); ok {
			return handlers, e
		}
		return handlers, fmt.Errorf("no answer to an HTTP request (%s)", shortText(err.Error()))
	}
	handlers.flight = status == http.StatusOK && strings.HasPrefix(kind, "application/json")
	status, _, err = get("/debug/pprof/")
	switch {
	case err == nil && (status == http.StatusOK || status == http.StatusUnauthorized || status == http.StatusForbidden):
		handlers.pprof = true // also if it requires credentials, which the recording then reports
	case !handlers.flight && err == nil:
		return handlers, fmt.Errorf("no net/http/pprof there: /debug/pprof/ is answered with %d", status)
	case !handlers.flight:
		return handlers, fmt.Errorf("no answer to an HTTP request (%s)", shortText(err.Error()))
	}
	return handlers, nil
}

// findPort sets the port to record, and flight if the flight recorder is to be used: on wantFlight (then it is required), or
// where one is found unless wantTrace is set or the target has a path. flag is the value of --port, "" without it.
func (t *target) findPort(ctx context.Context, flag string, wantFlight, wantTrace bool) error {
	ports, isSpecified, err := candidatePorts(t.pod, flag)
	if err != nil {
		return err
	}
	var reason error
	for _, port := range ports {
		o, err := t.probe(ctx, port)
		if err == nil && wantFlight && !o.flight {
			err = fmt.Errorf("no flight recorder there (service/flight at %s)", record.FlightPath)
		}
		if err == nil && (o.flight || o.pprof) {
			t.port, t.flight = port, o.flight && !wantTrace && (wantFlight || t.path == "")
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if isSpecified {
			// The user specified the port: the recording reports any other failure.
			if e, ok := errors.AsType[*record.Error](err); ok {
				return e
			}
			t.port, t.flight = port, wantFlight
			return nil
		}
		if e, ok := errors.AsType[*record.Error](err); !ok {
			reason = cmp.Or(reason, fmt.Errorf("port %d: %w", port, err))
		} else if e.Kind != record.Refused {
			return e // the next port would fail in the same way
		}
	}
	wanted := "net/http/pprof"
	if wantFlight {
		wanted = "a flight recorder"
	}
	reason = cmp.Or(reason, errors.New("nothing listens there"))
	return fmt.Errorf("pod %s: %s was found at none of the ports %s (%w): name its port with --port, or by the annotation %s; if the service has none, import net/http/pprof and serve it on 127.0.0.1:6060",
		t.pod.Name, wanted, joinPorts(ports), reason, portAnnotations[0])
}

// joinPorts returns the ports as text, separated by commas.
func joinPorts(ports []int) string {
	out := make([]string, len(ports))
	for i, p := range ports {
		out[i] = strconv.Itoa(p)
	}
	return strings.Join(out, ", ")
}
