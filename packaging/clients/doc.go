// Command clients writes the packages of the clients in other languages: a wheel and an sdist for
// pip, a tarball for npm, a gem, and a zip file for Composer.
//
//	go run ./packaging/clients VERSION DIR
//
// It runs in the top folder. It writes the formats itself, so it needs neither the network nor the
// tools of these languages, and the same sources give the same bytes whatever is installed. It fails if
// a client has another version than VERSION. SOURCE_DATE_EPOCH dates the files in the packages.
//
// packaging/release runs it.
package main
