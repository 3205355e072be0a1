package admission

import (
	"strings"
	"testing"
)

// A node in cluster mode, a Sentinel and a replica are refused, with Redis (redis_mode) and with
// Valkey (server_mode).
func TestModeOfRedisAndValkey(t *testing.T) {
	for mode, want := range map[string]string{
		"redis_mode:standalone":                      "",
		"server_mode:standalone":                     "",
		"redis_mode:cluster":                         "cluster mode",
		"server_mode:cluster":                        "cluster mode",
		"redis_mode:sentinel":                        "Sentinel",
		"server_mode:sentinel":                       "Sentinel",
		"redis_mode:standalone\r\ncluster_enabled:1": "cluster mode",
		"server_mode:standalone\r\nrole:slave":       "it is a replica",
	} {
		info := ReadInfo("redis_version:7.2.4\r\nrun_id:1\r\nrole:master\r\n" + mode + "\r\n")
		got := ""
		if err := info.Refusal(); err != nil {
			got = err.Error()
		}
		if got == "" != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: got %q, want %q", mode, got, want)
		}
	}
}
