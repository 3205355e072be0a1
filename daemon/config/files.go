package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// maxSecretSize bounds a password, key or certificate file.
const maxSecretSize = 1 << 20

// Password reads the node's password from its file, without the line break at the end. It reads the
// file at every call, so that the next connection uses a changed password. Without a password file
// it returns the empty Secret.
func (n Node) Password() (Secret, error) {
	if n.PasswordFile == "" {
		return Secret{}, nil
	}
	content, err := readSecretFile(n.PasswordFile)
	if err != nil {
		return Secret{}, err
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	switch {
	case password == "":
		return Secret{}, fmt.Errorf("%s: the file is empty", n.PasswordFile)
	case strings.ContainsAny(password, "\n\x00"):
		return Secret{}, fmt.Errorf("%s: more than the one line of a password", n.PasswordFile)
	}
	return NewSecret(password), nil
}

// TLSClientConfig reads the node's certificates and returns the TLS config for it, or nil if it has
// no tls block. It reads the files at every call, so that the next connection uses renewed ones.
func (n Node) TLSClientConfig() (*tls.Config, error) {
	if n.TLS == nil {
		return nil, nil
	}
	roots, err := n.TLS.roots()
	if err != nil {
		return nil, err
	}
	certificates, err := n.TLS.certificates()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		ServerName:   n.serverName(),
		RootCAs:      roots,
		Certificates: certificates,
	}, nil
}

func (n Node) serverName() string {
	if n.TLS.ServerName != "" {
		return n.TLS.ServerName
	}
	host, _, _ := net.SplitHostPort(n.Address) // checkNodeAddress accepted it
	return host
}

// roots returns the authorities to trust; nil: the system's.
func (t *TLS) roots() (*x509.CertPool, error) {
	if t.CAFile == "" {
		return nil, nil
	}
	content, err := readSecretFile(t.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s: no PEM certificate in it", t.CAFile)
	}
	return pool, nil
}

// certificates returns the client certificate, or none.
func (t *TLS) certificates() ([]tls.Certificate, error) {
	if t.CertFile == "" || t.KeyFile == "" {
		return nil, nil
	}
	cert, err := readSecretFile(t.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := readSecretFile(t.KeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s, which does not match %s: %w", t.KeyFile, t.CertFile, err)
	}
	return []tls.Certificate{pair}, nil
}

// readSecretFile reads a small regular file. It refuses others: a FIFO would block the start, and be
// empty at the second read.
func readSecretFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxSecretSize+1))
	if err == nil && len(content) > maxSecretSize {
		err = fmt.Errorf("%s: larger than %d bytes", name, maxSecretSize)
	}
	return content, err
}

// fileName reads the name of a file into *to, and resolves it. It calls use, so that a missing or bad
// file is a fault now and not at the first connection. It reports whether the file is good.
func (b *section) fileName(word string, to *string, use func() error) bool {
	if !b.text(word, to, checkFileName) {
		return false
	}
	wanted := "a file to read"
	if !filepath.IsAbs(*to) {
		*to = filepath.Join(b.r.credentials, *to)
		if os.Getenv("CREDENTIALS_DIRECTORY") == "" {
			wanted += " (relative to the config file, as $CREDENTIALS_DIRECTORY is not set)"
		} else {
			wanted += " (relative to $CREDENTIALS_DIRECTORY, as that is set: LoadCredential= this file, too, or write its full path)"
		}
	}
	return b.checkFile(word, wanted, use)
}

// checkFile adds a fault at the attribute word if use fails. It reports whether the file is good.
func (b *section) checkFile(word, wanted string, use func() error) bool {
	err := use()
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = fmt.Errorf("%s: %w", path.Path, path.Err) // without the name of the system call
	}
	if err != nil {
		b.r.faultf(b.r.rangeOf(b.name(word)), "%s: wanted %s, found %v", b.name(word), wanted, err)
	}
	return err == nil
}
