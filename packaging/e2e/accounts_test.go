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

// The accounts that these tests make on the host, where they are run as root, and remove
// at the end.
const (
	byName    = "rltest-named" // a rule names this user
	byPrimary = "rltest-prime" // a rule names its primary group
	byOther   = "rltest-other" // a rule names one of its other groups, which is no primary group
	inNone    = "rltest-none"  // no rule names this user

	primaryGroup = "rltest-team"
	otherGroup   = "rltest-also"
	plainGroup   = "rltest-plain" // of everybody else; in no rule
)

// accountsLock is held while the accounts exist, by one test run of the host.
const accountsLock = "/run/redlockd-e2e-accounts.lock"

// makeAccounts creates the accounts until the test ends. It first removes what a
// killed run has left. It skips the test if it cannot create accounts.
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

// lockAccounts waits while another run has accounts. The kernel ends the lock with this
// process, however that ends.
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

// removeAccounts removes those that are there.
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

// admin has the accounts changed. An error is one of the test, and does not stop it:
// the rest is to be removed.
func admin(t *testing.T, program string, args ...string) {
	t.Helper()
	if output, err := combined(exec.Command(program, args...)); err != nil {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, output)
	}
}

// login connects as who logs in under that name now: with the groups of the account.
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

// credentialOf is what login(1) would give a process of the account, but that its primary
// group is not one of the others, too: that is to count by itself.
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

// becomeAccount changes this thread only, as package syscall does not.
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
