package daemon

import (
	"runtime/debug"
	"testing"
)

func TestRecordedVersion(t *testing.T) {
	info := func(version, revision string) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main:     debug.Module{Version: version},
			Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "vcs.revision", Value: revision}},
		}
	}
	for _, c := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{info("v1.2.3", "0123456789abcdef"), "v1.2.3"},
		{info("(devel)", "0123456789abcdef"), "devel-0123456789ab"},
		{info("", "0123"), "devel-0123"},
		{&debug.BuildInfo{}, "devel"},
		{nil, "devel"},
	} {
		if got := recordedVersion(c.info, c.info != nil); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.info, got, c.want)
		}
	}
}

func TestVersionOfRelease(t *testing.T) {
	defer func(old string) { version = old }(version)
	version = "1.2.3"
	if got := Version(); got != "1.2.3" {
		t.Errorf("got %s, want 1.2.3", got)
	}
}
