package describe

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/client"
)

// The JSON says whether a restart would lose the held locks, and why.
func TestStatusJSONReportsUnwrittenState(t *testing.T) {
	for want, status := range map[string]client.Status{
		`"counts":null}`:                                  {},
		`"counts":null,"unnoted":true}`:                   {Unnoted: true},
		`"counts":null,"unnoted":true,"table":"removed"}`: {Unnoted: true, Table: "removed"},
	} {
		got, err := json.Marshal(StatusToJSON(&status))
		if err != nil || !strings.HasSuffix(string(got), want) {
			t.Errorf("%s, %v, want it to end in %s", got, err, want)
		}
	}
}
