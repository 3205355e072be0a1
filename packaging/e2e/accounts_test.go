//go:build linux

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The accounts that these tests create on the host if they run as root, and remove at the end.
const (
	byName    = "rltest-named" // a rule names this user
	byPrimary = "rltest-prime" // a rule names its primary group
	byOther   = "rltest-other" // a rule names its supplementary group
	inNone    = "rltest-none"  // no rule names this user

	primaryGroup = "rltest-team"
	otherGroup   = "rltest-also"
	plainGroup   = "rltest-plain" // group of the others; in no rule
)

// accountsLock is the file that one test run of the host locks while the accounts exist.
const accountsLock = "/run/redlockd-e2e-accounts.lock"

// makeAccounts creates the accounts until the test ends. It first removes accounts that a killed
// run has left. If it cannot create accounts, it skips the test.
func makeAccounts(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make accounts, and be other users")
	}
	for _, program := range []string{"useradd", "userdel", "usermod", "groupadd", "groupdel", "groupmod"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed (Debian: apt-get install passwd)", program)
		}
	}
	lockAccounts(t)
	removeAccounts(t)
	t.Cleanup(func() { removeAccounts(t) })
	for _, group := range []string{primaryGroup, otherGroup, plainGroup} {
		admin(t, "groupadd", group)
	}
	addUser(t, byName, plainGroup)
	addUser(t, byPrimary, primaryGroup)
	addUser(t, byOther, plainGroup, "--groups", otherGroup)
	addUser(t, inNone, plainGroup)
}

// lockAccounts waits while another run has accounts. The kernel releases the lock when this process
// ends.
func lockAccounts(t *testing.T) {
	t.Helper()
	file, err := os.OpenFile(accountsLock, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	locked := make(chan error, 1)
	go func() { locked <- unix.Flock(int(file.Fd()), unix.LOCK_EX) }()
	if err := await(t, 2*patience, locked, "another run of these tests to release "+accountsLock, nil); err != nil {
		t.Fatal(err)
	}
}

func addUser(t *testing.T, name, group string, more ...string) {
	t.Helper()
	admin(t, "useradd", append(more, "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", "--gid", group, name)...)
}

// removeAccounts removes the accounts that exist.
func removeAccounts(t *testing.T) {
	for _, name := range []string{byName, byPrimary, byOther, inNone} {
		if _, err := user.Lookup(name); err == nil {
			admin(t, "userdel", name)
		}
	}
	for _, name := range []string{primaryGroup, otherGroup, plainGroup} {
		if _, err := user.LookupGroup(name); err == nil {
			admin(t, "groupdel", name)
		}
	}
}

// admin runs a program that changes accounts. An error fails the test but does not stop it, so that
// the cleanup goes on.
func admin(t *testing.T, program string, args ...string) {
	t.Helper()
	if output, err := combined(exec.Command(program, args...)); err != nil {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, output)
	}
}

// login connects like a process that has just logged in under that name, with the groups of the
// account.
func (h *host) login(t *testing.T, name string) *guest {
	t.Helper()
	who := credentialOf(t, name)
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	onAnotherThread(func() {
		err := becomeAccount(who)
		var conn net.Conn
		if err == nil {
			conn, err = dialPatiently(h.socket)
		}
		done <- result{conn, err}
	})
	r := await(t, 2*patience, done, "a connection as "+name, nil)
	if r.err != nil {
		t.Fatalf("%s: %v", name, r.err)
	}
	return newGuest(t, r.conn)
}

// credentialOf returns the credential that login(1) would set for the account. The primary group is
// not among the supplementary groups, so that the test checks it separately.
func credentialOf(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	account, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := account.GroupIds()
	if err != nil {
		t.Fatal(err)
	}
	who := &syscall.Credential{Uid: id(t, account.Uid), Gid: id(t, account.Gid)}
	for _, group := range groups {
		if group != account.Gid {
			who.Groups = append(who.Groups, id(t, group))
		}
	}
	return who
}

func id(t *testing.T, number string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

// becomeAccount changes this thread only, unlike package syscall.
func becomeAccount(who *syscall.Credential) error {
	groups := unsafe.Pointer(unsafe.SliceData(who.Groups))
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(who.Groups)), uintptr(groups), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	uid, gid := uintptr(who.Uid), uintptr(who.Gid)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("setresgid: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("setresuid: %w", errno)
	}
	return nil
}
