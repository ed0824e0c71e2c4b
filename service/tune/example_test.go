package tune_test

import (
	"fmt"
	"log/slog"

	"github.com/whylate/whylate/service/tune"
)

// GOMAXPROCS follows the quota; the other two are observed only.
func ExampleStart() {
	t := tune.Start(tune.Options{Procs: tune.ModeApply, Logger: slog.New(slog.DiscardHandler)})
	defer t.Stop()
	s := t.State()
	fmt.Println(s.ProcsMode, s.MemoryMode, s.GOGCMode)
	// Output:
	// apply observe observe
}
