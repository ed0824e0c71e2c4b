// Broker takes measurements over MQTT, by mochi-mqtt. A request is a message
// that its sender publishes with QoS 1, until it is acknowledged.
//
// Faults: ask (another service is asked for each message whether its sender
// may send it, which takes 6 ms; without the fault a map knows).
package main

import (
	"io"
	"log"
	"log/slog"
	"net/http"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"

	"shop.example/shops/internal/run"
)

type guard struct {
	mqtt.HookBase
	client *http.Client
	may    map[string]bool
}

func (g *guard) Provides(b byte) bool { return b == mqtt.OnConnectAuthenticate || b == mqtt.OnACLCheck }

func (g *guard) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool { return true }

func (g *guard) OnACLCheck(_ *mqtt.Client, topic string, _ bool) bool {
	if run.Fault("ask") {
		return g.ask(topic)
	}
	return g.may[topic]
}

// ask asks the other service.
func (g *guard) ask(topic string) bool {
	resp, err := g.client.Get("http://" + *run.Peer + "/may?topic=" + topic)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}

func publisher() (publish func() error) {
	c := paho.NewClient(paho.NewClientOptions().AddBroker("tcp://" + *run.Load))
	if t := c.Connect(); t.Wait() && t.Error() != nil {
		log.Fatal(t.Error())
	}
	return func() error {
		t := c.Publish("heat", 1, false, "21.5")
		t.Wait()
		return t.Error()
	}
}

func main() {
	run.Parse("ask")
	switch {
	case *run.Load != "":
		var publish []func() error
		for range 8 {
			publish = append(publish, publisher())
		}
		run.Clients(len(publish), 40*time.Millisecond, func(i int) error { return publish[i]() })
	case *run.AsPeer:
		log.Fatal(http.ListenAndServe(*run.Listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(6 * time.Millisecond)
			io.WriteString(w, "yes")
		})))
	}
	s := mqtt.New(&mqtt.Options{Logger: slog.New(slog.DiscardHandler)})
	run.Check(s.AddHook(&guard{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}, may: map[string]bool{"heat": true}}, nil))
	run.Check(s.AddListener(listeners.NewTCP(listeners.Config{ID: "tcp", Address: *run.Listen})))
	run.Check(s.Serve())
	run.Profiles()
	run.End()
}
