package job

import (
	"os"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m)) }
