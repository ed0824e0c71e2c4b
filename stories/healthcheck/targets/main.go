// Command targets listens on loopback for checkers: -steady is a port that always accepts, -flapping one that refuses for -down
// of every -period. Each accepted connection is closed at once.
package main

import (
	"flag"
	"log"
	"net"
	"time"
)

func main() {
	steady := flag.String("steady", "", "port that always accepts")
	flapping := flag.String("flapping", "", "port that refuses at times")
	period := flag.Duration("period", 20*time.Second, "how often it begins to refuse")
	down := flag.Duration("down", 10*time.Second, "how long it refuses")
	flag.Parse()
	l, err := net.Listen("tcp4", "0.0.0.0:"+*steady)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			l, err := net.Listen("tcp4", "0.0.0.0:"+*flapping)
			if err != nil {
				log.Fatal(err)
			}
			go serve(l)
			time.Sleep(*period - *down)
			l.Close()
			time.Sleep(*down)
		}
	}()
	serve(l)
}

func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Close()
	}
}
