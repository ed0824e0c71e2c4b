package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/experiment/freeport"
)

// A backendStarter starts a server that a program needs, with its data in its own directory, and returns the program's
// argument of -backend.
type backendStarter func(ctx context.Context) (address string, stop func(), err error)

// startPostgres starts PostgreSQL (Debian's package postgresql; on other systems, the one in the PATH).
func startPostgres(ctx context.Context) (string, func(), error) {
	bin := ""
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		bin = filepath.Dir(found[len(found)-1]) + "/"
	}
	ports, err := freeport.Find(1)
	if err != nil {
		return "", nil, err
	}
	dir, remove, err := scratchDir()
	if err != nil {
		return "", nil, err
	}
	// PostgreSQL does not run as root.
	as := func(args ...string) *exec.Cmd {
		if u, err := user.Current(); err == nil && u.Uid == "0" {
			args = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"}, args...)
		}
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir = dir
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := as(bin+"initdb", "-D", data, "-U", "field", "-A", "trust", "--no-sync").CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	stop, err := startInBackground(as(bin+"postgres", "-D", data, "-p", ports[0], "-h", "127.0.0.1", "-k", dir, "-c", "max_connections=60"), "127.0.0.1:"+ports[0])
	if err != nil {
		remove()
		return "", nil, err
	}
	for exec.CommandContext(ctx, bin+"pg_isready", "-q", "-h", "127.0.0.1", "-p", ports[0]).Run() != nil && ctx.Err() == nil {
		sleep(ctx, 100*time.Millisecond)
	}
	return "postgres://field@127.0.0.1:" + ports[0] + "/postgres?sslmode=disable", func() { stop(); remove() }, nil
}

// startRedis starts Redis (Debian's package redis-server).
func startRedis(ctx context.Context) (string, func(), error) {
	ports, err := freeport.Find(1)
	if err != nil {
		return "", nil, err
	}
	addr := "127.0.0.1:" + ports[0]
	stop, err := startInBackground(exec.CommandContext(ctx, "redis-server", "--port", ports[0], "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"), addr)
	return addr, stop, err
}

const kafkaVersion = "4.3.0"

// startKafka starts Kafka from the jars of Maven's repository, which needs mvn and java.
func startKafka(ctx context.Context) (string, func(), error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, err
	}
	home := filepath.Join(cache, "whylate-field", "kafka-"+kafkaVersion)
	jars := filepath.Join(home, "lib")
	if _, err := os.Stat(jars); err != nil {
		if err := os.MkdirAll(home, 0o777); err != nil {
			return "", nil, err
		}
		pom := `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>field</groupId><artifactId>field</artifactId><version>1</version><dependencies>` +
			`<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + kafkaVersion + `</version></dependency>` +
			`<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency></dependencies></project>`
		if err := os.WriteFile(filepath.Join(home, "pom.xml"), []byte(pom), 0o666); err != nil {
			return "", nil, err
		}
		if err := runCommand(ctx, home, nil, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=fetched"); err != nil {
			return "", nil, fmt.Errorf("fetching Kafka: %w", err)
		}
		if err := os.Rename(filepath.Join(home, "fetched"), jars); err != nil {
			return "", nil, err
		}
	}
	ports, err := freeport.Find(2)
	if err != nil {
		return "", nil, err
	}
	dir, remove, err := scratchDir()
	if err != nil {
		return "", nil, err
	}
	addr, controller := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	properties := filepath.Join(dir, "server.properties")
	lines := []string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + controller,
		"listeners=PLAINTEXT://" + addr + ",CONTROLLER://" + controller, "advertised.listeners=PLAINTEXT://" + addr, "controller.listener.names=CONTROLLER",
		"log.dirs=" + filepath.Join(dir, "log"), "offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1", "transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1", "group.initial.rebalance.delay.ms=0", "num.partitions=1", "",
	}
	if err := os.WriteFile(properties, []byte(strings.Join(lines, "\n")), 0o666); err != nil {
		return "", nil, err
	}
	java := func(args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "java", append([]string{"-Xmx400m", "-cp", filepath.Join(jars, "*")}, args...)...)
	}
	if out, err := java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", properties).CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("formatting Kafka's storage: %w\n%s", err, out)
	}
	stop, err := startInBackground(java("kafka.Kafka", properties), addr)
	if err != nil {
		remove()
		return "", nil, err
	}
	return addr, func() { stop(); remove() }, nil
}

// scratchDir creates a directory to which other users may write.
func scratchDir() (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "field-backend"); err != nil {
		return "", nil, err
	}
	return dir, func() { os.RemoveAll(dir) }, os.Chmod(dir, 0o777)
}

// startInBackground starts a server and waits until it accepts connections.
func startInBackground(cmd *exec.Cmd, addr string) (stop func(), err error) {
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	stop = func() {
		if cmd.Process.Signal(os.Interrupt) == nil {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Second):
			}
		}
		cmd.Process.Kill()
		<-done
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
			return stop, nil
		}
		select {
		case err := <-done:
			return nil, fmt.Errorf("%s ended at once: %w", cmd.Path, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	stop()
	return nil, errors.New(cmd.Path + " does not accept connections")
}

// startDependencies starts the backend and the peer that a program needs, and returns the arguments with their addresses.
func (p program) startDependencies(ctx context.Context, binary, fault string) (args []string, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	if p.backend != nil {
		addr, stop, err := p.backend(ctx)
		if err != nil {
			return nil, nil, err
		}
		stops = append(stops, stop)
		args = append(args, "-backend", addr)
	}
	if p.peer {
		ports, err := freeport.Find(1)
		if err != nil {
			stop()
			return nil, nil, err
		}
		addr := "127.0.0.1:" + ports[0]
		peer := exec.CommandContext(ctx, binary, append([]string{"-as-peer", "-listen", addr, "-fault", fault}, args...)...)
		peer.Stderr = os.Stderr
		if err := peer.Start(); err != nil {
			stop()
			return nil, nil, err
		}
		stops = append(stops, func() { peer.Process.Kill(); peer.Wait() })
		args = append(args, "-peer", addr)
	}
	return args, stop, nil
}
