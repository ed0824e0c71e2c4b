// Package enginetest runs the engines of a fleet for tests: real ones, each in a process that a test may kill and start again.
package enginetest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/whylate/whylate/internal/experiment/freeport"
)

// An Engine is a process of a server. It keeps its data while it is killed.
type Engine struct {
	Address string // as the flag of whylate-fleet has it
	t       testing.TB
	log     string
	ready   func() error
	command func() *exec.Cmd
	running *exec.Cmd
}

// Start starts it, and returns when it answers.
func (e *Engine) Start() {
	e.t.Helper()
	log, err := os.OpenFile(e.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	e.running = e.command()
	e.running.Stdout, e.running.Stderr = log, log
	e.running.Dir = filepath.Dir(e.log) // the test's own may be gone by the time that it is started again
	if err := e.running.Start(); err != nil {
		e.t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := e.ready()
		if err == nil {
			return
		}
		if time.Since(begin) > 3*time.Minute {
			said, _ := os.ReadFile(e.log)
			e.t.Fatalf("%s: %v\n%s", e.running, err, said[max(0, len(said)-4000):])
		}
	}
}

// Kill ends it at once.
func (e *Engine) Kill() {
	_ = e.running.Process.Kill()
	_ = e.running.Wait()
}

func (e *Engine) begin() *Engine {
	e.t.Helper()
	e.t.Cleanup(e.Kill)
	e.Start()
	return e
}

// Port is a port of this machine that is free now.
func Port(t testing.TB) string { return ports(t, 1)[0] }

func ports(t testing.TB, n int) []string {
	t.Helper()
	port, err := freeport.Find(n)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func write(t testing.TB, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func dial(address string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	}
}

// root is the repository.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../..")
}

// MinIO builds the server of lab/minio, unless one is installed, and starts it with a bucket. Its keys are in the environment.
func MinIO(t testing.TB) *Engine {
	t.Helper()
	dir, port := t.TempDir(), ports(t, 2)
	server, err := exec.LookPath("minio")
	if err != nil {
		server = filepath.Join(dir, "minio")
		build := exec.Command("go", "build", "-ldflags=-s", "-o", server, "github.com/minio/minio")
		build.Dir, build.Env = filepath.Join(root(), "lab/minio"), append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	const user, password = "whylate", "whylate-test"
	for key, value := range map[string]string{"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": password} {
		if err := os.Setenv(key, value); err != nil { // not t.Setenv: a benchmark or a parallel test may ask
			t.Fatal(err)
		}
	}
	at := "127.0.0.1:" + port[0]
	client, err := minio.New(at, &minio.Options{Creds: credentials.NewStaticV4(user, password, "")})
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{t: t, Address: "s3://fleet/test?endpoint=http://" + at, log: filepath.Join(dir, "log"), command: func() *exec.Cmd {
		c := exec.Command(server, "server", "--address", at, "--console-address", "127.0.0.1:"+port[1], filepath.Join(dir, "data"))
		c.Env = []string{"HOME=" + dir, "MINIO_ROOT_USER=" + user, "MINIO_ROOT_PASSWORD=" + password, "MINIO_BROWSER=off", "MINIO_UPDATE=off"}
		return c
	}, ready: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		ok, err := client.BucketExists(ctx, "fleet")
		if err == nil && !ok {
			err = client.MakeBucket(ctx, "fleet", minio.MakeBucketOptions{})
		}
		return err
	}}
	return e.begin()
}

// Kafka gets Kafka's jars by Maven, and starts a server that is broker and controller.
func Kafka(t testing.TB) *Engine {
	t.Helper()
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no Java or no Maven is installed: apt-get install openjdk-17-jre-headless maven")
		}
	}
	dir, port := t.TempDir(), ports(t, 2)
	jars := os.Getenv("WHYLATE_KAFKA")
	if jars == "" {
		jars = filepath.Join(dir, "lib")
		get := exec.Command("mvn", "-q", "-B", "-f", filepath.Join(root(), "stories/pubsub/kafka/pom.xml"), "-Dkafka.version=4.3.0", "dependency:copy-dependencies", "-DoutputDirectory="+jars)
		if out, err := get.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	broker, controller := "127.0.0.1:"+port[0], "127.0.0.1:"+port[1]
	config := write(t, filepath.Join(dir, "server.properties"), strings.Join([]string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + controller, "controller.listener.names=CONTROLLER",
		"listeners=PLAINTEXT://" + broker + ",CONTROLLER://" + controller, "advertised.listeners=PLAINTEXT://" + broker, "log.dirs=" + filepath.Join(dir, "data"),
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=4", ""}, "\n"))
	java := func(args ...string) *exec.Cmd {
		return exec.Command("java", append([]string{"-Xmx512m", "-cp", jars + "/*"}, args...)...)
	}
	// Any 16 bytes in base64 are a cluster's id.
	if out, err := java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", config).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e := &Engine{t: t, Address: "kafka://" + broker + "/whylate?partitions=4", log: filepath.Join(dir, "log"), ready: dial(broker),
		command: func() *exec.Cmd { return java("kafka.Kafka", config) }}
	return e.begin()
}

// ClickHouse starts Debian's server.
func ClickHouse(t testing.TB) *Engine {
	t.Helper()
	server, err := exec.LookPath("clickhouse-server")
	if err != nil {
		t.Skip("no clickhouse-server is installed: apt-get install clickhouse-server")
	}
	dir, port := t.TempDir(), ports(t, 2)
	config := write(t, filepath.Join(dir, "config.xml"), fmt.Sprintf(`<yandex><logger><level>warning</level><log>%[1]s/log</log><errorlog>%[1]s/err</errorlog></logger><http_port>%[2]s</http_port><tcp_port>%[3]s</tcp_port>
			<listen_host>127.0.0.1</listen_host><path>%[1]s/data/</path><tmp_path>%[1]s/tmp/</tmp_path><mark_cache_size>67108864</mark_cache_size>
			<users_config>%[1]s/users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database></yandex>`, dir, port[0], port[1]))
	write(t, filepath.Join(dir, "users.xml"), `<yandex><profiles><default></default></profiles><users><default><password></password><networks><ip>127.0.0.1</ip></networks>
			<profile>default</profile><quota>default</quota></default></users><quotas><default></default></quotas></yandex>`)
	e := &Engine{t: t, Address: "clickhouse://127.0.0.1:" + port[1] + "/default", log: filepath.Join(dir, "said"), ready: dial("127.0.0.1:" + port[1]),
		command: func() *exec.Cmd { return exec.Command(server, "--config-file="+config) }}
	return e.begin()
}

// Collector builds the OpenTelemetry Collector of lab/collector and starts it. It sends on to an address by OTLP over HTTP.
func Collector(t testing.TB, to string) *Engine {
	t.Helper()
	dir, port := t.TempDir(), ports(t, 1)
	server := filepath.Join(dir, "collector")
	build := exec.Command("go", "build", "-ldflags=-s", "-o", server, ".")
	build.Dir, build.Env = filepath.Join(root(), "lab/collector"), append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config := write(t, filepath.Join(dir, "config.yaml"), fmt.Sprintf(`
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%s"}}}}
exporters: {otlphttp: {endpoint: %q, compression: none}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [otlphttp]}
    logs: {receivers: [otlp], exporters: [otlphttp]}
`, port[0], to))
	e := &Engine{Address: "http://127.0.0.1:" + port[0], t: t, log: filepath.Join(dir, "log"), ready: dial("127.0.0.1:" + port[0]),
		command: func() *exec.Cmd { return exec.Command(server, "--config", config) }}
	return e.begin()
}
