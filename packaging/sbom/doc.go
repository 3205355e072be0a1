// Command sbom lists the third-party modules in programs of redlockd: for machines (CycloneDX 1.6),
// and for people, with the licences.
//
//	go run ./packaging/sbom VERSION DATE DIR PROGRAM...
//
// It writes redlockd.cdx.json, THIRD-PARTY, and THIRD-PARTY.debian for a Debian package into DIR.
// It takes the modules from the programs (go version -m), and the licences from the sources of
// which they were built. If it finds no known licence for a module, it fails.
//
// packaging/package.sh runs it. It never uses the network.
package main
