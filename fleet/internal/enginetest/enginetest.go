// Package enginetest starts the servers that a fleet uses (ClickHouse, Kafka, MinIO, an OpenTelemetry Collector) for tests. Each
// runs in a process that a test may kill and start again.
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
	"github.com/whylate/whylate/internal/testing/must"
)

// An Engine is a server in a process. Its data survives Kill.
type Engine struct {
	Address    string // in the form of the flags of whylate-fleet
	t          testing.TB
	logFile    string
	checkReady func() error
	newCommand func() *exec.Cmd
	process    *exec.Cmd
}

// Start starts the process, and returns when the server accepts connections.
func (e *Engine) Start() {
	e.t.Helper()
	log, err := os.OpenFile(e.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	e.process = e.newCommand()
	e.process.Stdout, e.process.Stderr = log, log
	e.process.Dir = filepath.Dir(e.logFile) // the working directory of the test may be gone when the server starts again
	if err := e.process.Start(); err != nil {
		e.t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := e.checkReady()
		if err == nil {
			return
		}
		if time.Since(begin) > 3*time.Minute {
			logText, _ := os.ReadFile(e.logFile)
			e.t.Fatalf("%s: %v\n%s", e.process, err, logText[max(0, len(logText)-4000):])
		}
	}
}

// Kill kills the process (SIGKILL) and waits for its end.
func (e *Engine) Kill() {
	_ = e.process.Process.Kill()
	_ = e.process.Wait()
}

// startForTest starts the engine, and kills it at the end of the test.
func (e *Engine) startForTest() *Engine {
	e.t.Helper()
	e.t.Cleanup(e.Kill)
	e.Start()
	return e
}

// FreePort returns a port of this machine that is free now.
func FreePort(t testing.TB) string { return freePorts(t, 1)[0] }

// freePorts returns n different free ports of this machine as text. The test fails if there are not as many.
func freePorts(t testing.TB, n int) []string {
	t.Helper()
	ports := must.Have(freeport.Find(n))(t)
	return ports
}

// writeFile writes text to a new file that only its owner may read, and returns the file's name. The test fails if it cannot be
// written.
func writeFile(t testing.TB, file, text string) string {
	t.Helper()
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// dialCheck returns a function that returns an error if address accepts no connection.
func dialCheck(address string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	}
}

// repositoryRoot returns the directory of the repository.
func repositoryRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../..")
}

// MinIO starts a MinIO server with a bucket, and sets its keys in the environment. It builds the server unless one
// is installed.
func MinIO(t testing.TB) *Engine {
	t.Helper()
	dir, ports := t.TempDir(), freePorts(t, 2)
	server, err := exec.LookPath("minio")
	if err != nil {
		server = filepath.Join(dir, "minio")
		build := exec.Command("go", "build", "-ldflags=-s", "-o", server, "github.com/minio/minio")
		build.Dir, build.Env = filepath.Join(repositoryRoot(), "lab/field/programs/minio"), append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	const user, password = "whylate", "whylate-test"
	for key, value := range map[string]string{"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": password} {
		if err := os.Setenv(key, value); err != nil { // not t.Setenv, which parallel tests may not call
			t.Fatal(err)
		}
	}
	address := "127.0.0.1:" + ports[0]
	client, err := minio.New(address, &minio.Options{Creds: credentials.NewStaticV4(user, password, "")})
	must.Do(t, err)
	e := &Engine{t: t, Address: "s3://fleet/test?endpoint=http://" + address, logFile: filepath.Join(dir, "log"), newCommand: func() *exec.Cmd {
		c := exec.Command(server, "server", "--address", address, "--console-address", "127.0.0.1:"+ports[1], filepath.Join(dir, "data"))
		c.Env = []string{"HOME=" + dir, "MINIO_ROOT_USER=" + user, "MINIO_ROOT_PASSWORD=" + password, "MINIO_BROWSER=off", "MINIO_UPDATE=off"}
		return c
	}, checkReady: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		ok, err := client.BucketExists(ctx, "fleet")
		if err == nil && !ok {
			err = client.MakeBucket(ctx, "fleet", minio.MakeBucketOptions{})
		}
		return err
	}}
	return e.startForTest()
}

// Kafka downloads Kafka with Maven, and starts one server as broker and controller.
func Kafka(t testing.TB) *Engine {
	t.Helper()
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no Java or no Maven is installed: apt-get install openjdk-17-jre-headless maven")
		}
	}
	dir, ports := t.TempDir(), freePorts(t, 2)
	jars := os.Getenv("WHYLATE_KAFKA")
	if jars == "" {
		jars = filepath.Join(dir, "lib")
		download := exec.Command("mvn", "-q", "-B", "-f", filepath.Join(repositoryRoot(), "stories/pubsub/kafka/pom.xml"), "-Dkafka.version=4.3.0", "dependency:copy-dependencies", "-DoutputDirectory="+jars)
		if out, err := download.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	broker, controller := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	config := writeFile(t, filepath.Join(dir, "server.properties"), strings.Join([]string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + controller, "controller.listener.names=CONTROLLER",
		"listeners=PLAINTEXT://" + broker + ",CONTROLLER://" + controller, "advertised.listeners=PLAINTEXT://" + broker, "log.dirs=" + filepath.Join(dir, "data"),
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=4", ""}, "\n"))
	java := func(args ...string) *exec.Cmd {
		return exec.Command("java", append([]string{"-Xmx512m", "-cp", jars + "/*"}, args...)...)
	}
	// The id of a cluster is 16 bytes of any value, in base64.
	if out, err := java("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", config).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e := &Engine{t: t, Address: "kafka://" + broker + "/whylate?partitions=4", logFile: filepath.Join(dir, "log"), checkReady: dialCheck(broker),
		newCommand: func() *exec.Cmd { return java("kafka.Kafka", config) }}
	return e.startForTest()
}

// ClickHouse starts the ClickHouse server of Debian's package.
func ClickHouse(t testing.TB) *Engine {
	t.Helper()
	server, err := exec.LookPath("clickhouse-server")
	if err != nil {
		t.Skip("no clickhouse-server is installed: apt-get install clickhouse-server")
	}
	dir, ports := t.TempDir(), freePorts(t, 2)
	config := writeFile(t, filepath.Join(dir, "config.xml"), fmt.Sprintf(`<yandex><logger><level>warning</level><log>%[1]s/log</log><errorlog>%[1]s/err</errorlog></logger><http_port>%[2]s</http_port><tcp_port>%[3]s</tcp_port>
			<listen_host>127.0.0.1</listen_host><path>%[1]s/data/</path><tmp_path>%[1]s/tmp/</tmp_path><mark_cache_size>67108864</mark_cache_size>
			<users_config>%[1]s/users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database></yandex>`, dir, ports[0], ports[1]))
	writeFile(t, filepath.Join(dir, "users.xml"), `<yandex><profiles><default></default></profiles><users><default><password></password><networks><ip>127.0.0.1</ip></networks>
			<profile>default</profile><quota>default</quota></default></users><quotas><default></default></quotas></yandex>`)
	e := &Engine{t: t, Address: "clickhouse://127.0.0.1:" + ports[1] + "/default", logFile: filepath.Join(dir, "said"), checkReady: dialCheck("127.0.0.1:" + ports[1]),
		newCommand: func() *exec.Cmd { return exec.Command(server, "--config-file="+config) }}
	return e.startForTest()
}

// Collector builds the OpenTelemetry Collector of lab/collector and starts it. It forwards to destination by OTLP over HTTP.
func Collector(t testing.TB, destination string) *Engine {
	t.Helper()
	dir, ports := t.TempDir(), freePorts(t, 1)
	server := filepath.Join(dir, "collector")
	build := exec.Command("go", "build", "-ldflags=-s", "-o", server, ".")
	build.Dir, build.Env = filepath.Join(repositoryRoot(), "lab/collector"), append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config := writeFile(t, filepath.Join(dir, "config.yaml"), fmt.Sprintf(`
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%s"}}}}
exporters: {otlphttp: {endpoint: %q, compression: none}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [otlphttp]}
    logs: {receivers: [otlp], exporters: [otlphttp]}
`, ports[0], destination))
	e := &Engine{Address: "http://127.0.0.1:" + ports[0], t: t, logFile: filepath.Join(dir, "log"), checkReady: dialCheck("127.0.0.1:" + ports[0]),
		newCommand: func() *exec.Cmd { return exec.Command(server, "--config", config) }}
	return e.startForTest()
}
