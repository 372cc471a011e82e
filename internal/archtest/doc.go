// Package archtest has no code, only tests of the repository itself. They check, for example, which
// package imports which, which dependencies there are, and how large files are. The rules are read
// from ARCHITECTURE.md, so that the document and the code always agree. No package may import this
// one.
package archtest
