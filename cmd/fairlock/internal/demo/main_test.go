package demo_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/demo"
)

// TestMain plays one client if the tests were started again as that.
func TestMain(m *testing.M) {
	logging.Disable()
	if len(os.Args) == 2 && os.Args[1] == demo.ChildCommand {
		if err := demo.Child(os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
