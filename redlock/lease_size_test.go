package redlock

import (
	"reflect"
	"testing"
)

// TestLeaseIsSmall: a process holds tens of thousands. 288 bytes is a size of Go's
// allocator; the next one is 320.
func TestLeaseIsSmall(t *testing.T) {
	if size := reflect.TypeFor[Lease]().Size(); size > 288 {
		t.Errorf("a Lease takes %d bytes", size)
	}
}
