package server

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The server receives no descriptor that a client sends with its lines, and answers the lines as if none
// had come: whole ones, one in parts, and the last ones before the client ends its side.
func TestDescriptorsAreDropped(t *testing.T) {
	d := startFake(t, nil)
	nc, err := net.Dial("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	client := nc.(*net.UnixConn)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	send := func(text string) {
		t.Helper()
		if _, _, err := client.WriteMsgUnix([]byte(text), unix.UnixRights(int(w.Fd()), int(w.Fd())), nil); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"@a OK", "@b OK", "@c OK", "@d OK"}
	for n := range 100 {
		send(fmt.Sprintf("@%d PING\n", n))
		want = append(want, fmt.Sprintf("@%d OK", n))
	}
	send("@a PING\n@b P")
	send("I")
	if _, err := io.WriteString(client, "NG\n@c PING\n@d PI"); err != nil {
		t.Fatal(err)
	}
	send("N")
	if _, err := io.WriteString(client, "G\n"); err != nil {
		t.Fatal(err)
	}
	client.CloseWrite()
	client.SetReadDeadline(time.Now().Add(patience))
	answers, err := io.ReadAll(client)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(answers)), " OK", "=OK"))
	for i := range got {
		got[i] = strings.Replace(got[i], "=OK", " OK", 1)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	other, err := net.Dial("unix", d.path) // whose descriptors the server cannot have closed yet
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	client = other.(*net.UnixConn)
	send("@1 PING\n@2 PI")
	client.SetReadDeadline(time.Now().Add(patience))
	if _, err := client.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(client, "NG\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.SetReadDeadline(time.Now().Add(patience))
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("reading the pipe: %d, %v; want its end, because nobody has the other end", n, err)
	}
}
