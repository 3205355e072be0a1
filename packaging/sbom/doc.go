// Command sbom lists the modules of others that programs of redlockd contain: for machines
// (CycloneDX 1.6), and for people, with the licences.
//
//	go run ./packaging/sbom VERSION DATE DIR PROGRAM...
//
// It writes redlockd.cdx.json, THIRD-PARTY, and THIRD-PARTY.debian for a Debian package into
// DIR. The modules are those that the programs name (go version -m), and the licences those of
// the sources that they were built from. It fails if a module has no licence that it knows.
//
// packaging/package.sh runs it. It never uses the network.
package main
