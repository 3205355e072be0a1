package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// credentialsForTest returns a directory with the files that the examples name. One certificate
// serves as authority, as client, and as server "redis-c".
func credentialsForTest(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	certificate, key := newCertificate(t)
	for name, content := range map[string][]byte{
		"redis-password": []byte("hunter2\n"),
		"ca.pem":         certificate,
		"client.pem":     certificate,
		"client.key":     key,
	} {
		writeFile(t, filepath.Join(dir, name), string(content))
	}
	return dir
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newCertificate(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "redis-c"},
		DNSNames:              []string{"redis-c"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

func TestPassword(t *testing.T) {
	name := filepath.Join(t.TempDir(), "password")
	node := Node{Name: "a", PasswordFile: name}
	for _, c := range []struct{ content, want string }{
		{"hunter2", "hunter2"},
		{"hunter3\n", "hunter3"}, // a second read sees the new content
		{"hunter4\r\n", "hunter4"},
		{" with spaces \n", " with spaces "},
	} {
		writeFile(t, name, c.content)
		got, err := node.Password()
		if err != nil || got.Reveal() != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.content, got.Reveal(), err, c.want)
		}
	}
	for _, content := range []string{"", "\n", "hunter2\n\n", "hunter2\nhunter3", "hunter2\x00", strings.Repeat("x", maxSecretSize+1)} {
		writeFile(t, name, content)
		if got, err := node.Password(); err == nil || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%.20q: got %q, %v; want an error that does not show the content", content, got.Reveal(), err)
		}
	}
}

func TestNoPassword(t *testing.T) {
	got, err := Node{}.Password()
	if err != nil || got.Reveal() != "" {
		t.Errorf("got %q, %v; want none", got.Reveal(), err)
	}
}

// Without $CREDENTIALS_DIRECTORY, relative names start in the directory of the config file.
func TestCredentialsBesideConfig(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "password"), "hunter2\n")
	config := filepath.Join(dir, "redlockd.hcl")
	writeFile(t, config, `quorum {
  node "a" {
    address       = "10.0.0.1:6379"
    password_file = "password"
  }
}`)
	cfg, err := Load(config)
	if err != nil {
		t.Fatal(err)
	}
	password, err := cfg.Quorum.Nodes[0].Password()
	if err != nil || password.Reveal() != "hunter2" {
		t.Errorf("got %q, %v; want hunter2", password.Reveal(), err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", t.TempDir()) // it is not there
	if _, err := Load(config); err == nil || !strings.Contains(err.Error(), "(relative to $CREDENTIALS_DIRECTORY, as that is set:") {
		t.Errorf("got %v, want an error that names the directory", err)
	}
}

func TestSecretIsNeverShown(t *testing.T) {
	secret := NewSecret("hunter2")
	inside := struct {
		Shown  Secret
		hidden Secret // fmt cannot call methods on it
	}{secret, secret}
	encoded, err := json.Marshal(inside)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{string(encoded), secret.String(), secret.GoString()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%f"} {
		shown = append(shown, fmt.Sprintf(verb, secret), fmt.Sprintf(verb, &secret), fmt.Sprintf(verb, inside), fmt.Sprintf(verb, []Secret{secret}))
	}
	for _, text := range shown {
		if strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) {
			t.Errorf("got %s", text)
		}
	}
	if got := fmt.Sprintf("%+v", secret); got != "[redacted]" {
		t.Errorf("got %s, want [redacted]", got)
	}
	if inside.hidden.Reveal() != "hunter2" {
		t.Errorf("got %q from Reveal, want hunter2", inside.hidden.Reveal())
	}
}

// TestTLSClientConfig makes TLS handshakes with a server that asks for a client certificate.
func TestTLSClientConfig(t *testing.T) {
	dir := credentialsForTest(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	node := Node{Address: "redis-c:6379", TLS: &TLS{CAFile: file("ca.pem"), CertFile: file("client.pem"), KeyFile: file("client.key")}}
	if err := tlsHandshake(t, node); err != nil {
		t.Errorf("server name from the address: %v", err)
	}
	node.Address = "10.0.0.3:6379"
	if err := tlsHandshake(t, node); err == nil {
		t.Error("got no error for a certificate of another name")
	}
	node.TLS.ServerName = "redis-c"
	if err := tlsHandshake(t, node); err != nil {
		t.Errorf("server name from server_name: %v", err)
	}
	certificate, _ := newCertificate(t)
	writeFile(t, file("ca.pem"), string(certificate))
	if err := tlsHandshake(t, node); err == nil {
		t.Error("got no error after the authority changed")
	}
	writeFile(t, file("client.pem"), string(certificate))
	if _, err := node.TLSClientConfig(); err == nil || !strings.Contains(err.Error(), "does not match") {
		t.Errorf("got %v for a certificate and the key of another", err)
	}
}

// If a file was removed since the start, the daemon fails to connect: it does not connect without TLS,
// certificate or password.
func TestConnectingNeedsTheSecretFiles(t *testing.T) {
	for _, gone := range []string{"ca.pem", "client.pem", "client.key"} {
		dir := credentialsForTest(t)
		file := func(name string) string { return filepath.Join(dir, name) }
		node := Node{Address: "redis-c:6379", TLS: &TLS{CAFile: file("ca.pem"), CertFile: file("client.pem"), KeyFile: file("client.key")}}
		if err := os.Remove(file(gone)); err != nil {
			t.Fatal(err)
		}
		if got, err := node.TLSClientConfig(); got != nil || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without %s: got %v, %v; want an error", gone, got, err)
		}
	}
	node := Node{PasswordFile: filepath.Join(t.TempDir(), "password")}
	if got, err := node.Password(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the password: got %q, %v; want an error", got.Reveal(), err)
	}
}

// tlsHandshake makes a TLS handshake with a server that has the node's certificate, and returns the
// error of the client, or else of the server.
func tlsHandshake(t *testing.T, node Node) error {
	t.Helper()
	client, err := node.TLSClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: client.Certificates, ClientAuth: tls.RequireAnyClientCert}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
		accepted <- err
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), client)
	if err == nil {
		conn.Close()
	}
	if serverErr := <-accepted; err == nil && serverErr != nil {
		return serverErr
	}
	return err
}

func TestNoTLS(t *testing.T) {
	got, err := Node{Address: "10.0.0.1:6379"}.TLSClientConfig()
	if got != nil || err != nil {
		t.Errorf("got %v, %v; want neither", got, err)
	}
}
