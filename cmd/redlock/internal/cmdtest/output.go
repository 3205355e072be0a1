package cmdtest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
)

// FailsWithoutRoom checks that show returns an error if its output ends early, at any byte.
func FailsWithoutRoom(t *testing.T, what string, show func(io.Writer) error) {
	t.Helper()
	var all bytes.Buffer
	if err := show(&all); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	for room := range all.Len() {
		if f, is := errors.AsType[*exit.Failure](show(&narrow{room})); !is || f.Code != exit.Internal {
			t.Errorf("%s: with room for %d of %d bytes the failure is %v, want exit code 70", what, room, all.Len(), f)
		}
	}
}

// narrow is an output with room for a number of bytes.
type narrow struct{ room int }

func (n *narrow) Write(text []byte) (int, error) {
	if n.room -= len(text); n.room < 0 {
		return 0, errors.New("no space left")
	}
	return len(text), nil
}

// TwoDown returns the status of two nodes that are down.
func TwoDown() *client.Status {
	status := *HealthyStatus
	status.Nodes = []client.Node{{Name: "a", State: "down", Reason: "no route"}, {Name: "b", State: "down", Reason: "refused"}}
	return &status
}
