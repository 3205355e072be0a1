package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

// TestRestartFindings maps the output of systemd about the unit to findings.
func TestRestartFindings(t *testing.T) {
	const limits = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max open files            1024                 524288               files     \n"
	for what, test := range map[string]struct {
		shown, limits string
		want          []string
	}{
		"as shipped":                         {"LoadState=loaded\nFileDescriptorStoreMax=1000\nEnvironment=FDSTORE=1000\n", limits, nil},
		"systemd 254, which tells by itself": {"LoadState=loaded\nFileDescriptorStoreMax=1000\nEnvironment=\n", limits, nil},
		"no limits known":                    {"LoadState=loaded\nFileDescriptorStoreMax=2000\nEnvironment=A=1 FDSTORE=2000\n", "", nil},
		"no bound":                           {"LoadState=loaded\nFileDescriptorStoreMax=2000\nEnvironment=FDSTORE=2000\n", "\nMax open files unlimited unlimited files\n", nil},
		"too many are told": {"LoadState=loaded\nFileDescriptorStoreMax=512\nEnvironment=GOGC=50 \"FDSTORE=513\"\n", limits,
			[]string{"bad restarts: redlockd expects 513 connections to be kept through a restart (FDSTORE=), but systemd keeps 512 "}},
		"more than systemd's own": {"LoadState=loaded\nFileDescriptorStoreMax=1024\nEnvironment=FDSTORE=1024\n", limits,
			[]string{"bad restarts: systemd should keep 1024 connections through a restart (FileDescriptorStoreMax=), but may itself have only 1024 files open"}},
		"fewer are told": {"LoadState=loaded\nFileDescriptorStoreMax=512\nEnvironment=FDSTORE=511\n", limits,
			[]string{"warning restarts: systemd keeps 512 connections through a restart (FileDescriptorStoreMax=), and redlockd uses 511"}},
		"none": {"LoadState=loaded\nFileDescriptorStoreMax=0\nEnvironment=\n", limits,
			[]string{"warning restarts: systemd keeps no connections"}},
		"none are told": {"LoadState=loaded\nFileDescriptorStoreMax=9\nEnvironment=FDSTORE=0\n", limits,
			[]string{"warning restarts: systemd keeps no connections"}},
	} {
		unit, err := showUnit(t.Context(), fakeSystemctl(t, test.shown, 0))
		if err != nil {
			t.Fatal(err)
		}
		got := restartFindings(unit, managerFileLimit(test.limits))
		if len(got) != 1 {
			t.Fatalf("%s: found %+v, want one finding", what, got)
		}
		if Worst(got) == OK {
			got = nil
		}
		compareFindings(t, what, got, test.want)
	}
}

// Without systemd, without the unit, or with another daemon, the check finds nothing.
func TestCheckRestarts(t *testing.T) {
	const kept = "LoadState=loaded\nFileDescriptorStoreMax=10\nEnvironment=FDSTORE=10\n"
	for what, test := range map[string]struct {
		socket, systemctl string
		want              int
	}{
		"the unit's daemon": {client.DefaultSocket, fakeSystemctl(t, kept, 0), 1},
		"another daemon":    {"/tmp/s", fakeSystemctl(t, kept, 0), 0},
		"no systemd":        {client.DefaultSocket, fakeSystemctl(t, kept, 1), 0},
		"no systemctl":      {client.DefaultSocket, "/nowhere/systemctl", 0},
		"no unit":           {client.DefaultSocket, fakeSystemctl(t, "LoadState=not-found\nFileDescriptorStoreMax=0\n", 0), 0},
	} {
		if got := checkRestarts(t.Context(), test.socket, test.systemctl); len(got) != test.want {
			t.Errorf("%s: found %+v, want %d findings", what, got, test.want)
		}
	}
}

// redlock doctor runs this check with the systemctl in its PATH.
func TestDoctorChecksRestarts(t *testing.T) {
	systemctl := fakeSystemctl(t, "LoadState=loaded\nFileDescriptorStoreMax=10\nEnvironment=FDSTORE=10\n", 0)
	t.Setenv("PATH", filepath.Dir(systemctl)+":"+os.Getenv("PATH"))
	t.Setenv(cmdtest.SocketVariable, client.DefaultSocket)
	isOne := func(f Finding) bool {
		return f.check == "restarts" && f.text == "systemd keeps 10 connections through a restart"
	}
	if got, _ := Examine(t.Context(), "devel"); !slices.ContainsFunc(got, isOne) {
		t.Errorf("found is %+v, want the places among it", got)
	}
}

// fakeSystemctl writes a systemctl that prints shown if it gets the arguments of the check. It
// exits with code.
func fakeSystemctl(t *testing.T, shown string, code int) string {
	t.Helper()
	const asked = "show --property=LoadState,FileDescriptorStoreMax,Environment " + unitName
	path := filepath.Join(t.TempDir(), "systemctl")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$*\" = '%s' ] && cat <<'END'\n%sEND\nexit %d\n", asked, shown, code)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
