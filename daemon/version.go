package daemon

import "runtime/debug"

// version is set by a release: -ldflags "-X github.com/redlockd/redlockd/daemon.version=1.2.3".
var version string

// Version returns the version of the release, or the one that the Go toolchain recorded, or "devel".
func Version() string {
	if version != "" {
		return version
	}
	return recordedVersion(debug.ReadBuildInfo())
}

// recordedVersion returns the version of the module, or else the commit of the build.
func recordedVersion(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	const shownDigits = 12
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return "devel-" + setting.Value[:min(shownDigits, len(setting.Value))]
		}
	}
	return "devel"
}
