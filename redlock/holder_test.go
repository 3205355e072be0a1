package redlock

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

var since = time.UnixMilli(1_795_247_588_294)

func TestTokenRoundTrip(t *testing.T) {
	for _, want := range []Holder{
		{Host: "web3", PID: 4121, UID: 33, User: "cron", Since: since},
		{Host: "größe-東京", PID: 1, User: "münch", Since: since},
		{Host: "a=b", PID: 4_194_304, UID: 4_294_967_294, User: "x=y", Since: since},
	} {
		token := newToken(want)
		if got := holderOf(token); got != want {
			t.Errorf("holder of %q\n got %+v\nwant %+v", token, got, want)
		}
	}
}

func TestHolderText(t *testing.T) {
	seen := Holder{Host: "web3", PID: 4121, User: "alice"}
	unseen := Holder{Host: "web3", User: "alice"} // in another container
	for _, test := range []struct {
		err  HeldError
		want string
	}{
		{HeldError{Name: "a", Holder: seen}, "a: held by alice on web3 (pid 4121)"},
		{HeldError{Name: "a", Holder: unseen}, "a: held by alice on web3"},
		{HeldError{Name: "a", Holder: unseen, Shared: true}, "a: shared by others, one of them alice on web3"},
		{HeldError{Name: "a", Holder: unseen, Shared: true, Waiting: true}, "a: shared by others; alice on web3 already waits until they end"},
		{HeldError{Name: "a", Holder: unseen, Waiting: true}, "a: kept for alice on web3, which waited for it and is next"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("%+v\n got %q\nwant %q", test.err, got, test.want)
		}
	}
}

// Whatever the name of a host or a user, its token is one printable string of at most 256 bytes,
// and reveals no more than it should. Guards printable.
func TestTokenOfHostileNames(t *testing.T) {
	for _, name := range []string{
		"", " ", "\x00\x1b[2J", "a b pid=1 uid=0", "x\r\nSET k v", strings.Repeat("h", 10_000), strings.Repeat("東", 100),
		"\xff\xfe\xfd", "a\u2028b", "a\u202eb", strings.Repeat("\xf0\x9f\x98", 40), "\t", "\ufffd",
	} {
		checkHostile(t, name, newToken(Holder{Host: name, PID: -1 << 63, UID: -1 << 63, User: name, Since: time.UnixMilli(-1 << 62)}))
	}
}

func checkHostile(t *testing.T, name, token string) {
	t.Helper()
	if len(token) > maxToken || !utf8.ValidString(token) {
		t.Errorf("name %.40q: token of %d bytes, valid %v: want at most %d bytes of UTF-8\n%q", name, len(token), utf8.ValidString(token), maxToken, token)
	}
	if i := strings.IndexFunc(token, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("name %.40q: byte %d of the token is not printable: %q", name, i, token)
	}
	got := holderOf(token)
	if !got.Known() || got.PID != -1<<63 || got.UID != -1<<63 || got.User != got.Host {
		t.Errorf("name %.40q: its token has the holder %+v", name, got)
	}
}

// Tokens of other Redlock clients name no holder. Guards holderOf.
func TestForeignTokens(t *testing.T) {
	ours := newToken(Holder{Host: "h", User: "u"})
	for _, token := range []string{
		"", "x", "2XxPvMeeLEpyEvi8Cn7bKQ==", // redsync: base64 of 16 bytes
		"8f14e45fceea167a5a36dedd4bea2543",     // node-redlock: hex
		"6e1d7a8e-44c5-4d38-9c35-3e8a3b7d7f5a", // Redisson, among others: a UUID
		"host=web3 pid=1", " host=web3", ours[1:], "é" + ours, ours[:tokenID], ours + strings.Repeat("x", maxToken),
	} {
		if got := holderOf(token); got.Known() || got != (Holder{}) {
			t.Errorf("token %.60q: got %+v, want nothing known", token, got)
		}
	}
}

// No token is used twice, because a token may be released long after another one was made.
func TestTokensAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		token := newToken(Holder{Host: "h", User: "u", Since: since})
		if id := token[:tokenID]; seen[id] || strings.ContainsAny(id, " =") {
			t.Fatalf("token %q: its random part is missing or was used before", token)
		}
		seen[token[:tokenID]] = true
	}
}

func FuzzHolderOf(f *testing.F) {
	f.Add("web3", "cron", 4121)
	f.Add("a b", "\xff", -1)
	f.Fuzz(func(t *testing.T, host, user string, pid int) {
		got := holderOf(newToken(Holder{Host: host, User: user, PID: pid, Since: since}))
		if !got.Known() || got.PID != pid || !got.Since.Equal(since) || got.UID != 0 {
			t.Errorf("host %q, user %q, pid %d were read as %+v", host, user, pid, got)
		}
		holderOf(host)
	})
}
