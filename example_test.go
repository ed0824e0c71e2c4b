package whylate_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"path"
	"runtime/trace"
	"time"

	"github.com/whylate/whylate"
)

// A program explains itself: it traces some of its work, marked as tasks, and reports why they took so long. Servers need no
// tasks.
func ExampleExplain() {
	var recorded bytes.Buffer
	if err := trace.Start(&recorded); err != nil {
		log.Fatal(err)
	}
	for range 20 {
		_, task := trace.NewTask(context.Background(), "checkout")
		paid := make(chan bool)
		go func() {
			askBank()
			close(paid)
		}()
		<-paid
		task.End()
	}
	trace.Stop()

	rep, err := whylate.Explain(context.Background(), &recorded, whylate.Options{Name: "example"})
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range rep.Groups {
		first := g.Bands[0].Causes[0]
		fmt.Printf("%d requests of %s: %s in %s", g.Count, g.Name, first.Cause, path.Base(first.Site.Func))
		for _, via := range first.Via {
			fmt.Printf(", via %s in %s", via.Wait, path.Base(via.Site.Func))
		}
		fmt.Println()
	}
	// Output:
	// 20 requests of checkout: sleep in whylate_test.askBank, via chan in whylate_test.ExampleExplain
}

func askBank() { time.Sleep(10 * time.Millisecond) }

// A change names a site and the time that it is to take.
func ExampleParseChange() {
	c, err := whylate.ParseChange("sleep@checkout.askBank=5ms")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s at %s takes %v\n", c.Cause, c.Site, c.To)
	// Output:
	// sleep at checkout.askBank takes 5ms
}
