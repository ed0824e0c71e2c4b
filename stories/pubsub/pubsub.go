// Package pubsub is the story of an HTTP service over Kafka whose requests became five times slower by a change of the
// consumer library: each request opens a consumer, and the library sleeps twice on its own goroutine.
package pubsub

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/stories/stage"
)

// Versions that work together: Kafka 4 no longer supports the defaults of older clients, so the service sets the protocol's
// version.
const (
	kafkaVersion   = "4.3.0"
	clusterVersion = "v2.1.8"
	saramaVersion  = "v1.22.1"
	franzVersion   = "v1.22.2"
)

// The library's two waits, both set by Config.Consumer.MaxProcessingTime (sarama-cluster v2.1.8, consumer.go): release
// waits for it once, fetchOffsets twice as long.
const (
	release = "sarama-cluster.(*Consumer).release"
	offsets = "sarama-cluster.(*Consumer).fetchOffsets"
)

// fixedWait is MaxProcessingTime in the second arm.
const fixedWait = 5 * time.Millisecond

// Need checks for Java, and for Maven until Kafka's jars are fetched.
func Need() error { return stage.NeedJars(jarsFolder, kafkaJars) }

const (
	jarsFolder = "pubsub/kafka"
	kafkaJars  = "kafka.version=" + kafkaVersion
)

// Run compares the library's defaults, short waits, and one consumer for all requests.
func Run(ctx context.Context, s *stage.Stage) (*stage.Result, error) {
	jars, err := s.Jars(ctx, jarsFolder, kafkaJars)
	if err != nil {
		return nil, err
	}
	service, err := s.Build(ctx, "pubsub/service")
	if err != nil {
		return nil, err
	}
	broker, err := startKafka(ctx, s, jars)
	if err != nil {
		return nil, err
	}
	r := &stage.Result{
		Story: "pubsub", Published: 312. / 27,
		Notes:    []string{"The service here closes its consumer for each request, which waits in release again: four waits of 100 ms where the incident had three."},
		Versions: map[string]string{"kafka": kafkaVersion, "sarama-cluster": clusterVersion, "sarama": saramaVersion, "franz-go": franzVersion},
	}
	// The wait of fetchOffsets is the longer one.
	var healed []string
	if s.Healthy {
		healed = []string{"-wait", fixedWait.String()}
	}
	before, file, err := runArm(ctx, s, "before", service, broker, stage.Place{Code: "WL2001", Site: regexp.QuoteMeta(offsets) + "|" + regexp.QuoteMeta(release)}, 8, healed...)
	if err != nil {
		return nil, err
	}
	prediction, err := s.Explain(ctx, file, "--what-if", offsets+"="+(2*fixedWait).String(), "--what-if", release+"="+fixedWait.String())
	if err != nil {
		return nil, err
	}
	for _, w := range prediction.Report.WhatIf {
		if strings.Contains(w.Name, "sub") {
			r.Predicted = w.Predicted.P50NS.Est
		}
	}
	profile, err := s.Profile(ctx, file)
	if err != nil {
		return nil, err
	}
	busiest, busiestTime := profile.Busiest()
	library := profile.TimeIn(func(f string) bool { return strings.Contains(f, "sarama-cluster") })
	r.Notes = append(r.Notes, fmt.Sprintf("The CPU profile of the arm before, taken beside the trace, shows nothing of it: %v of CPU in %v, %v of that in the library's functions, release and fetchOffsets among them: %v. Its busiest function is %s with %v.",
		profile.Total, recordingTime(s), library, profile.TimeIn(func(f string) bool { return strings.Contains(f, release) || strings.Contains(f, offsets) }), busiest, busiestTime))
	flame, err := s.WriteFlame(profile, "pubsub-before-flame")
	if err != nil {
		return nil, err
	}
	if flame != "" {
		r.Pictures = append(r.Pictures, stage.Picture{Title: "CPU time before, as a flame graph: no sleep is in it", File: flame})
	}
	// The rest is Kafka's: a group's member joins, reads and leaves in a dozen round trips. The two waits of 5 and 10 ms that are
	// left are about as long, and first where Kafka is quick.
	rest := stage.Place{Code: "WL2005|WL2001", Site: `sarama\.\(\*bufConn\)\.Read|` + regexp.QuoteMeta(offsets) + "|" + regexp.QuoteMeta(release)}
	after, _, err := runArm(ctx, s, "after", service, broker, rest, 8, "-wait", fixedWait.String())
	if err != nil {
		return nil, err
	}
	modern, _, err := runArm(ctx, s, "modern", service, broker, stage.Place{}, 8, "-modern")
	if err != nil {
		return nil, err
	}
	r.Arms = []stage.Arm{before, after, modern}
	r.Compare("before", "after", stage.P50)
	return r, nil
}

// startKafka starts a broker that is its own controller and returns its address.
func startKafka(ctx context.Context, s *stage.Stage, jars string) (string, error) {
	dir, err := s.Temp("kafka")
	if err != nil {
		return "", err
	}
	ports, err := freeport.Find(2)
	if err != nil {
		return "", err
	}
	broker, controller := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	config := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(config, []byte(strings.Join([]string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + controller,
		"listeners=PLAINTEXT://" + broker + ",CONTROLLER://" + controller, "advertised.listeners=PLAINTEXT://" + broker,
		"controller.listener.names=CONTROLLER", "log.dirs=" + filepath.Join(dir, "data"),
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"group.initial.rebalance.delay.ms=0", "num.partitions=1", "offsets.topic.num.partitions=4", "",
	}, "\n")), 0o666); err != nil {
		return "", err
	}
	// Any 16 bytes in base64 are a cluster's id.
	format, err := s.Start(ctx, stage.Program{Name: "Kafka's storage tool", Args: []string{"java", "-cp", jars + "/*", "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", config}})
	if err != nil {
		return "", err
	}
	if err := format.Wait(ctx); err != nil {
		return "", err
	}
	_, err = s.Start(ctx, stage.Program{
		Name: "Kafka " + kafkaVersion, Ready: broker,
		Args: []string{"java", "-Xmx512m", "-cp", jars + "/*", "kafka.Kafka", config},
	})
	return broker, err
}

// recordingTime returns the duration of an arm's recording.
func recordingTime(s *stage.Stage) time.Duration {
	if s.Short {
		return 5 * time.Second
	}
	return 20 * time.Second
}

// runArm runs the service as an arm and returns its clients' measurements with whylate's answer.
func runArm(ctx context.Context, s *stage.Stage, name, service, broker string, expected stage.Place, perSecond float64, args ...string) (stage.Arm, string, error) {
	ports, err := freeport.Find(1)
	if err != nil {
		return stage.Arm{}, "", err
	}
	address, topic := "127.0.0.1:"+ports[0], "orders-"+name
	server, err := s.Start(ctx, stage.Program{
		Name: "the service, " + name, Ready: "http://" + address + "/ready",
		Args: append([]string{service, "-listen", address, "-broker", broker, "-topic", topic}, args...),
	})
	if err != nil {
		return stage.Arm{}, "", err
	}
	defer server.Stop()

	long := recordingTime(s)
	const publish, subscribe = 0, 1
	var next atomic.Int64
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	// The load continues a little after the end of the recording, so that its last requests have the same load.
	o := load.Options{
		Targets:  []load.Target{publish: {Name: "pub", Weight: 2}, subscribe: {Name: "sub", Weight: 1}},
		Phases:   []load.Phase{{StartRate: 3 * perSecond, EndRate: 3 * perSecond, Duration: long + 2*time.Second}},
		Arrivals: load.Constant, Warmup: 6 * time.Second, Seed: 1, // until the broker has compiled itself
		Send: func(ctx context.Context, target int) load.Answer {
			url := "http://" + address + "/pub?topic=" + topic
			method := http.MethodPost
			if target == subscribe {
				// No group is used again before its last consumer has left.
				n := next.Add(1)
				url = fmt.Sprintf("http://%s/sub?topic=%s&group=%s-%d", address, topic, name, n%64)
				if method = http.MethodGet; n%2 == 0 {
					url += "&commit=later"
				}
			}
			return send(ctx, client, method, url)
		},
	}
	var file string
	measured, err := stage.RunUnderLoad(ctx, o, func() (err error) {
		time.Sleep(o.Warmup) // the first requests meet a broker that has just started
		file, err = s.Record(ctx, "pubsub-"+name, address, long)
		return err
	})
	if err != nil {
		return stage.Arm{}, "", err
	}
	a, err := s.Judge(ctx, name, file, expected)
	if measured.Errors > 0 {
		s.Say("%d of %d requests failed: %s", measured.Errors, measured.Requests, measured.Reasons[0].Text)
	}
	for _, t := range measured.Targets {
		if t.Name == "sub" {
			a.P50NS, a.P99NS, a.Requests = t.Intended.P50, t.Intended.P99, t.Requests
		}
	}
	return a, file, err
}

func send(ctx context.Context, client *http.Client, method, url string) load.Answer {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("a message"))
	if err != nil {
		return load.Answer{Err: err}
	}
	resp, err := client.Do(req)
	if err != nil {
		return load.Answer{Err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 400 {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return load.Answer{Status: resp.StatusCode, Err: err}
}
