package server

import (
	"bytes"
	"io"
	"testing"
	"time"
)

// Farewell's line reaches a client that reads. Farewell does not wait for a client that does not.
func TestFarewell(t *testing.T) {
	theirs, ours := socketPair(t)
	Farewell(ours, []byte("BYE\n"))
	ours.Close()
	if got, err := io.ReadAll(theirs); string(got) != "BYE\n" || err != nil {
		t.Errorf("he reads %q, %v", got, err)
	}
	_, ours = socketPair(t)
	for full := false; !full; {
		ours.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := ours.Write(bytes.Repeat([]byte{'x'}, maxWrite))
		full = err != nil
	}
	ours.SetWriteDeadline(time.Time{})
	Farewell(ours, []byte("BYE\n")) // the test hangs if this blocks
}
