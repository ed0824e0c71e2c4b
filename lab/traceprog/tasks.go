package main

import (
	"context"
	"fmt"
	"runtime/trace"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func taskScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "tasks", Duration: 2500 * time.Millisecond, Run: tasks,
			Doc: "user tasks, nested and across goroutines and generations, some never ended or begun before the trace; regions with and without a task; logs"},
	}
}

func tasks(e *rig.Env) error {
	old, endsInside := trace.NewTask(context.Background(), "begun before the trace")
	openRegion := trace.StartRegion(old, "open since before the trace")
	return e.Record(func(ctx context.Context) error {
		openRegion.End()
		endsInside.End()
		spanning, span := trace.NewTask(ctx, "spans generations")
		defer span.End()
		_, forgotten := trace.NewTask(spanning, "never ended")
		_ = forgotten
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			trace.StartRegion(spanning, "left open by a goroutine that ends")
		}()
		<-ended
		return rig.Crew(4, func(i int) error {
			return rig.Pace(ctx, 2*time.Millisecond, func() error {
				e.Count("orders", 1)
				order(ctx, i)
				if i == 0 {
					trace.WithRegion(context.Background(), "region without a task", func() { time.Sleep(100 * time.Microsecond) })
					trace.Log(spanning, "still", "here")
				}
				return nil
			})
		})
	})
}

// order is a task with a child task on another goroutine, that ends there.
func order(ctx context.Context, i int) {
	octx, task := trace.NewTask(ctx, "order")
	defer task.End()
	trace.Log(octx, "customer", fmt.Sprintf("c%d", i))
	trace.WithRegion(octx, "check", func() {
		trace.WithRegion(octx, "check stock", func() { time.Sleep(200 * time.Microsecond) })
		trace.WithRegion(octx, "check credit", func() { rig.Burn(50 * time.Microsecond) })
	})
	pctx, payment := trace.NewTask(octx, "payment")
	paid := make(chan struct{})
	go func() {
		defer close(paid)
		defer payment.End()
		defer trace.StartRegion(pctx, "charge").End()
		time.Sleep(300 * time.Microsecond)
		trace.Logf(pctx, "amount", "%d cents", 100*i)
	}()
	<-paid
}
