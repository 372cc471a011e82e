// Package archtest has no code, only tests of the repository itself: which package imports which,
// which dependencies there are, how large files are. The rules are read from ARCHITECTURE.md, so
// that the document and the code cannot drift apart. Nothing may import this package.
package archtest
