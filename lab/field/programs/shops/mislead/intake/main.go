// Intake takes parcels from a broker in another process: it asks for the next
// ones, and the broker answers when there are some.
package main

import (
	"crypto/sha256"
	"math/rand/v2"
	"strings"
	"time"

	"shop.example/shops/internal/run"
	"shop.example/shops/mislead/wire"
)

type intake struct {
	broker *wire.Conn
	seen   map[[32]byte]int
}

// take waits for the next parcels.
func (i *intake) take() []string {
	line := run.Must(i.broker.Ask("next"))
	return strings.Fields(line)
}

// store keeps a parcel.
func (i *intake) store(parcel string) {
	start := time.Now()
	sum := sha256.Sum256([]byte(parcel))
	for range 1500 {
		sum = sha256.Sum256(sum[:])
	}
	i.seen[sum]++
	run.Took(start, nil)
}

func (i *intake) loop() {
	for {
		for _, parcel := range i.take() {
			i.store(parcel)
		}
	}
}

func main() {
	run.Parse()
	if *run.AsPeer {
		wire.Serve(*run.Listen, func(string) string {
			time.Sleep(time.Duration(10+rand.ExpFloat64()*30) * time.Millisecond)
			return strings.Repeat("parcel ", 1+rand.IntN(3))
		})
	}
	i := &intake{wire.Dial(*run.Peer), map[[32]byte]int{}}
	run.Profiles()
	i.loop()
}
